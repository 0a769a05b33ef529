"""Model files of 0.1.0 load, predict as they did, and go on where they were.

The files in ``data/v0.1.0`` were written by that version, beside what its models predicted
(``predictions.npz``: scores of the rows Z, and for resumable files those after a further fit of
the rows X and targets y).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelgrad import load

FOLDER = Path(__file__).parent / "data" / "v0.1.0"
NAMES = sorted(path.stem for path in FOLDER.glob("*.kgm"))
# of the largest score: sums of some hundred float32 products, in an order that depends on the
# processor; further steps feed that rounding back
ROUNDING, STEPS = 2e-5, 1e-3


@pytest.fixture(scope="module")
def expected():
    with np.load(FOLDER / "predictions.npz") as arrays:
        return dict(arrays)


def scores(model, X):
    return (model.decision_function if hasattr(model, "decision_function") else model.predict)(
        X
    )


def assert_close(found, wanted, rtol):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=rtol * np.abs(wanted).max())


def test_there_is_a_file_of_every_kind():
    assert len(NAMES) == 20


@pytest.mark.parametrize("name", NAMES)
def test_predictions(name, expected, tmp_path):
    model = load(FOLDER / f"{name}.kgm")
    assert_close(scores(model, expected["Z"]), expected[name], ROUNDING)
    if name == "gaussian_process":
        _, std = model.predict(expected["Z"], return_std=True)
        assert_close(std, expected["gaussian_process_std"], STEPS)
    model.save(tmp_path / "again.kgm")
    again = load(tmp_path / "again.kgm")
    np.testing.assert_array_equal(scores(again, expected["Z"]), scores(model, expected["Z"]))


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("resumable")])
def test_fits_go_on(name, expected):
    model = load(FOLDER / f"{name}.kgm").fit(expected["X"], expected["y"])
    assert_close(scores(model, expected["Z"]), expected[f"{name}_next"], STEPS)
    assert np.abs(expected[f"{name}_next"] - expected[name]).max() > 0


def test_labels_of_the_classifier(expected):
    model = load(FOLDER / "classifier_cached.kgm")
    assert model.classes_.tolist() == ["low", "mid", "top"]
    found = model.predict(expected["Z"])
    wanted = model.classes_[expected["classifier_cached"].argmax(axis=1)]
    np.testing.assert_array_equal(found, wanted)
