"""Fits that are killed again and again."""

import os

import pytest
from benchmarks.soak import soak


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL and fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_killed_fits_are_neither_lost_nor_different():
    found = soak(int(os.environ.get("KERNELGRAD_SOAK_FITS", "40")), seed=2)
    assert found["kills"] >= found["fits"] > 0
    assert (found["lost"], found["different"]) == (0, 0), found
