"""Model files of earlier versions load, predict as they did, and go on where they were.

Each folder of ``data`` has files of one version, beside what its models predicted
(``predictions.npz``: scores of the rows Z, and for resumable files those after a further fit of
the rows X and targets y; models of short fits have rows of their own for all of it).
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cases import every, raises
from kernelgrad import load
from kernelgrad.files.container import read_container, write_container
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS, dsg

FOLDER = Path(__file__).parent / "data"
NAMES = sorted(path.relative_to(FOLDER).as_posix()[:-4] for path in FOLDER.glob("v*/*.kgm"))
NAMES.remove("v0.2.0/pipeline")
# of the largest score: sums of some hundred float32 products, in an order that depends on the
# processor; further steps feed that rounding back
ROUNDING, STEPS = 2e-5, 1e-3


def loaded(name):
    """Return the model of a file, its name beside others of the version, and their arrays."""
    version, short = name.split("/")
    with np.load(FOLDER / version / "predictions.npz") as arrays:
        return load(FOLDER / f"{name}.kgm"), short, dict(arrays)


def scores(model, X):
    name = "decision_function" if hasattr(model, "decision_function") else "predict"
    return getattr(model, name)(X)


def assert_close(found, wanted, rtol):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=rtol * np.abs(wanted).max())


def test_there_is_a_file_of_every_kind():
    assert len(NAMES) == 29 + 11


def new_rows(name, expected):
    Z = expected["short_X" if name.startswith("short") else "Z"]
    if name == "classifier_frame":
        kinds = np.array(["low", "mid", "high"])[np.digitize(Z[:, 2], (-0.3, 0.3))]
        return pd.DataFrame(Z, columns=list("uvw")).assign(kind=kinds)
    return Z


@every("name", NAMES)
def test_predictions(name, tmp_path):
    model, name, expected = loaded(name)
    Z = new_rows(name, expected)
    assert_close(scores(model, Z), expected[name], ROUNDING)
    if name == "gaussian_process":
        _, std = model.predict(Z, return_std=True)
        assert_close(std, expected["gaussian_process_std"], STEPS)
    model.save(tmp_path / "again.kgm")
    again = load(tmp_path / "again.kgm")
    np.testing.assert_array_equal(scores(again, Z), scores(model, Z))


# these go on by another solver, or without the bound of their support
ENDED = ("v0.1.0/short_linear_simba", "v0.1.0/resumable_norma")


@every("name", [n for n in NAMES if ("/resumable" in n or "/short" in n) and n not in ENDED])
def test_fits_go_on(name, monkeypatch):
    monkeypatch.setattr(dsg, "_MOMENTUM_ROWS", 0)  # 0.1.0 had momentum in small batches too
    model, name, expected = loaded(name)
    if model.warm_start:
        model.fit(expected["X"], expected["y"])
    else:
        y = expected["short_semi" if "semi" in name else "short_y"]
        X = expected["short_X"]
        if hasattr(model, "partial_fit"):
            model.partial_fit(X, y)
        else:
            model.set_params(warm_start=True, max_iter=2).fit(X, y)
    found = scores(model, new_rows(name, expected))
    assert_close(found, expected[f"{name}_next"], STEPS)
    moved = np.abs(expected[f"{name}_next"] - expected[name]).max() > 0
    assert moved or "cccp" in name  # which had converged


def test_variances_of_0_1_0_are_of_scaled_targets(tmp_path):
    name = FOLDER / "v0.1.0" / "gaussian_process.kgm"
    header, arrays = read_container(name)
    header["fitted"]["y_scale_"] = 2.0
    write_container(tmp_path / "m.kgm", header, arrays)
    once, twice = load(name), load(tmp_path / "m.kgm")
    assert twice.noise_variance_ == 4.0 * once.noise_variance_
    assert twice.signal_variance_ == 4.0 * once.signal_variance_


@every("name", ["v0.2.0/linear_saga", "v0.1.0/short_linear_simba"])
def test_replaced_solvers_do_not_continue(name):
    model, _, expected = loaded(name)
    rows = "short_" if "short" in name else ""
    with pytest.raises(ValueError, match=r"cannot be continued; .* fit a new estimator"):
        model.set_params(warm_start=True).fit(expected[f"{rows}X"], expected[f"{rows}y"])


@every("registry", [SOLVERS, LINEAR_SOLVERS])
def test_only_parameters_of_old_solvers_are_left_out(registry):
    for cls in registry.values():
        old = {name: 1 for each in cls.__mro__ for name in getattr(each, "removed", ())}
        assert repr(cls.restored(**old)) == repr(cls())
        raises(TypeError, "blok_size", cls.restored, blok_size=3)
