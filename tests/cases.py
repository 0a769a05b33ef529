"""Cases of a test that run within one test."""

import functools
import inspect
from collections.abc import Iterable

import pytest


def every(names, cases: Iterable):
    """Decorate a test to run on all cases in turn; a failure carries a note of its case.

    Written as ``pytest.mark.parametrize``, it makes one test of all cases: for contracts whose
    cases are quick and many. All share the fixtures of the test, but `tmp_path`: each case has
    a folder of its own.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    cases = list(cases)
    if not cases:
        raise ValueError(f"There are no cases of {', '.join(names)}.")
    if any(isinstance(case, type(pytest.param())) for case in cases):
        raise TypeError("Cases of one test carry no marks of their own; parametrize instead.")

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            folder = kwargs.get("tmp_path")
            for i, case in enumerate(cases):
                named = dict(zip(names, [case] if len(names) == 1 else case, strict=True))
                if folder is not None:
                    kwargs["tmp_path"] = folder / str(i)
                    kwargs["tmp_path"].mkdir()
                try:
                    test(*args, **kwargs, **named)
                except BaseException as error:
                    error.add_note("case: " + ", ".join(f"{k}={v!r}" for k, v in named.items()))
                    raise

        signature = inspect.signature(test)
        rest = [p for name, p in signature.parameters.items() if name not in names]
        run.__signature__ = signature.replace(parameters=rest)
        return run

    return decorate


def raises(error, message, call, *args, **kwargs):
    """Check that a call raises an error with a message, a pattern."""
    with pytest.raises(error, match=message):
        call(*args, **kwargs)
