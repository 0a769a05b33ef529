"""The contract of estimators: invariance, persistence and errors."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.validation import has_fit_parameter

from kernelgrad.callbacks import Callback, Checkpoint, FitEvent
from kernelgrad.compute.threads import set_num_threads
from kernelgrad.estimators import load
from kernelgrad.files.records import contents_digest, prefixed, read_container
from kernelgrad.functions.scaling import UNITS
from kernelgrad.testing.parameters import check_parameters, pickled, require
from kernelgrad.testing.warmup import METHODS
from kernelgrad.types import AnyArray, Contents, FloatArray, IntArray, Matrix

_ROWS, _MANY_ROWS, _NEW_ROWS, _COLUMNS = 120, 1100, 40, 4
# of the largest output: sums of some 1e3 float32 products, rounded in another order
_ROUNDING = 1e-4
_NO_LABEL = -1


class _CallbackError(Exception):
    """Raised by the callback of a fit that must fail."""


class _Fail(Callback):
    def on_iteration(self, event: FitEvent) -> bool | None:
        raise _CallbackError


class _Interrupt(Callback):
    heard = 0

    def on_iteration(self, event: FitEvent) -> bool | None:
        self.heard += 1
        if event.iteration == event.max_iter:
            raise KeyboardInterrupt
        return None


@dataclass(frozen=True)
class _Rows:
    """Training rows with weights, and new rows."""

    X: Matrix
    y: AnyArray
    weight: IntArray
    new: FloatArray

    def fit(self, estimator: Any, *, weighted: bool = True) -> Any:
        """Return a fitted clone."""
        return self.refit(clone(estimator), weighted=weighted)

    def refit(self, estimator: Any, *, weighted: bool = True) -> Any:
        """Fit this very object."""
        if weighted and has_fit_parameter(estimator, "sample_weight"):
            return estimator.fit(self.X, self.y, sample_weight=self.weight)
        return estimator.fit(self.X, self.y)

    def take(self, index: IntArray) -> _Rows:
        return replace(self, X=self.X[index], y=self.y[index], weight=self.weight[index])


def _make_rows(estimator: Any, n: int, seed: int) -> _Rows:
    """Return rows in [0, 2)^4, a third of the entries zero, with targets for `estimator`."""
    rng = np.random.default_rng(seed)
    X = 2.0 * rng.random((n + _NEW_ROWS, _COLUMNS))
    X[rng.random(X.shape) < 0.3] = 0.0
    signal = np.sin(3.0 * X[:, 0]) + X[:, 1] - X[:, 2] + 0.2 * rng.standard_normal(len(X))
    y: AnyArray
    if is_regressor(estimator):
        y = signal
    elif is_classifier(estimator):
        few = has_fit_parameter(estimator, "X_unlabelled")
        y = np.digitize(signal, np.quantile(signal, (0.5,) if few else (1 / 3, 2 / 3)))
        if few:
            y[rng.random(len(y)) < 0.6] = _NO_LABEL
    else:
        y = (signal > np.median(signal)).astype(np.int64)
    return _Rows(X[:n], y[:n], rng.integers(0, 4, n), X[n:])


def _outputs(model: Any, X: Matrix) -> dict[str, AnyArray]:
    """Return the result of each prediction method."""
    found = {
        name: np.asarray(getattr(model, name)(X)) for name in METHODS if hasattr(model, name)
    }
    if hasattr(model, "noise_variance"):
        found["std"] = model.predict(X[:_NEW_ROWS], return_std=True)[1]
    return found


def _require_same(model: Any, other: Any, rows: _Rows, what: str) -> None:
    """Raise unless both models predict the same bits."""
    _require_same_bits(model, _outputs(model, rows.new), _outputs(other, rows.new), what)


def _require_same_bits(
    model: Any, first: dict[str, AnyArray], second: dict[str, AnyArray], what: str
) -> None:
    for name, value in first.items():
        same = np.array_equal(value, second[name])
        require(same, model, f"{what} change{'s' * (what[-1] != 's')} the bits of {name}.")


def _require_close(
    model: Any, first: dict[str, AnyArray], second: dict[str, AnyArray], what: str,
    rounding: float = _ROUNDING,
) -> None:  # fmt: skip
    """Raise unless values agree up to the rounding of float32 sums, and most labels agree."""
    for name, value in first.items():
        if value.dtype.kind != "f":
            share = float(np.mean(value == second[name]))
            require(share > 0.9, model, f"{what}: {1 - share:.0%} of {name} are others.")
            continue
        off = float(np.abs(value - second[name]).max())
        scale = max(float(np.abs(value).max()), 1e-3)
        require(off <= rounding * scale, model, f"{what}: {name} is off by {off / scale:.2g}.")


@contextmanager
def _threads(n: int) -> Iterator[None]:
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(None)


def check_estimator_contract(estimator: Any, *, random_state: int = 0) -> None:
    """Check on small data the promises that every estimator of this package makes.

    Same bits
        for the same ``random_state``, whatever the state of NumPy's global generator; for one,
        two and three threads; for reordered rows; for integer ``sample_weight`` and rows
        repeated as often, if `fit` takes weights; after pickling, and after ``save`` and
        ``load``, also of further training (``partial_fit``, ``warm_start`` with
        ``resumable=True``); and after resuming from any checkpoint (see
        :func:`check_checkpoints`). Order and repeats do not matter as long as all rows, repeats
        included, fit into one batch of the solver: here up to 300 rows.
    Same values up to rounding
        for predictions of rows one by one, in chunks or all at once; for CSR rows in
        prediction, and in `fit` unless ``standardize="auto"`` scales the columns.
    Unchanged by a failure
        A callback that raises in the middle of a fit leaves all attributes as they were.
    Errors
        Every declared parameter is rejected outside its domain, before the rows are read.

    Parameters
    ----------
    estimator : estimator of kernelgrad
        A classifier, regressor, novelty detector, density ratio, transformer or
        semi-supervised classifier, unfitted. A small ``max_iter`` makes the check fast. Its
        ``random_state`` is replaced.
    random_state : int, default=0
        Seed of the data and of the estimator, fixed so that a failure can be repeated.

    Raises
    ------
    AssertionError
        The message names the estimator and the broken promise.
    """
    estimator = clone(estimator).set_params(random_state=random_state)
    rows = _make_rows(estimator, _ROWS, random_state)
    check_parameters(estimator, lambda wrong: wrong.fit(object(), object()))
    model = rows.fit(estimator)
    for check in (
        _check_seed, _check_order, _check_weights, _check_chunks, _check_csr, _check_classes,
        _check_pickle, _check_files, _check_failure, _check_resuming,
    ):  # fmt: skip
        check(estimator, model, rows)
    _check_threads(estimator, random_state)


def _check_seed(estimator: Any, model: Any, rows: _Rows) -> None:
    np.random.seed(1)  # noqa: NPY002  what must not matter
    first = rows.fit(estimator)
    np.random.seed(2)  # noqa: NPY002
    _require_same(first, rows.fit(estimator), rows, "NumPy's global generator")


def _check_threads(estimator: Any, random_state: int) -> None:
    rows = _make_rows(estimator, _MANY_ROWS, random_state)
    with _threads(1):
        one = rows.fit(estimator)
        expected = _outputs(one, rows.X)
    for n in (2, 3):
        with _threads(n):
            found = _outputs(rows.fit(estimator), rows.X)
        _require_same_bits(one, expected, found, f"{n} threads")


def _check_order(estimator: Any, model: Any, rows: _Rows) -> None:
    order = np.random.default_rng(0).permutation(len(rows.y))
    if has_fit_parameter(estimator, "sample_weight"):
        _require_same(model, rows.take(order).fit(estimator), rows, "the order of rows")


def _check_weights(estimator: Any, model: Any, rows: _Rows) -> None:
    if not has_fit_parameter(estimator, "sample_weight"):
        return
    again = rows.take(np.repeat(np.arange(len(rows.y)), rows.weight))
    repeated = again.fit(estimator, weighted=False)
    _require_same(model, repeated, rows, "repeating rows instead of weighting them")
    # equal rows are merged into weights, so steps that ignore weights pass so far: most rows
    # have a wrong target here, and next to no weight
    if not (is_regressor(estimator) or is_classifier(estimator)) or _NO_LABEL in rows.y:
        return
    wrong = rows.y.max() - rows.y if is_classifier(estimator) else -rows.y
    light = np.arange(len(rows.y)) % 3 > 0
    weight = np.where(light, 1e-3, 1.0)
    found = clone(estimator).fit(rows.X, np.where(light, wrong, rows.y), sample_weight=weight)
    right, bad = (found.score(rows.X, y) for y in (rows.y, wrong))
    # few steps of a weak learner may be no better than chance, but not clearly wrong
    require(
        right > bad - 0.1, model, f"light rows decide: score {right:.3g}, of theirs {bad:.3g}."
    )


def _check_chunks(estimator: Any, model: Any, rows: _Rows) -> None:
    for X in (rows.new, sp.csr_matrix(rows.new)):
        whole = _outputs(model, X)
        parts = [_outputs(model, X[a:b]) for a, b in pairwise((0, 1, 2, 11, _NEW_ROWS))]
        whole.pop("std", None)  # shares a regression
        joined = {name: np.concatenate([part[name] for part in parts]) for name in whole}
        _require_close(model, whole, joined, "rows predicted one by one")


def _check_csr(estimator: Any, model: Any, rows: _Rows) -> None:
    expected = _outputs(model, rows.new)
    _require_close(model, expected, _outputs(model, sp.csr_matrix(rows.new)), "new CSR rows")
    if hasattr(model, "transform"):  # dense rows are centred: other features, the same kernel
        return
    if getattr(estimator, "_standardize", False) in ("auto", UNITS):  # of dense rows alone
        estimator = clone(estimator).set_params(standardize=False)
        expected = _outputs(rows.fit(estimator), rows.new)
    twin = replace(rows, X=sp.csr_matrix(rows.X)).fit(estimator)
    _require_close(model, expected, _outputs(twin, rows.new), "a fit of CSR rows")


def _check_classes(estimator: Any, model: Any, rows: _Rows) -> None:
    if not is_classifier(estimator):
        return
    names = np.array([5, 7, 9, _NO_LABEL])  # the last is the mark of rows without a label
    twin = replace(rows, y=names[rows.y]).fit(estimator)
    known = names[: len(model.classes_)]
    require(np.array_equal(twin.classes_, known), model, f"classes_ are {twin.classes_}.")
    expected, found = _outputs(model, rows.new), _outputs(twin, rows.new)
    expected["predict"] = names[expected["predict"]]
    _require_same_bits(model, expected, found, "names of classes")


def _check_pickle(estimator: Any, model: Any, rows: _Rows) -> None:
    twin = pickled(model, model)
    _require_same(model, twin, rows, "pickling")
    if hasattr(model, "partial_fit"):
        first, second = (
            each.partial_fit(rows.X, rows.y) for each in (pickled(model, model), twin)
        )
        _require_same(first, second, rows, "pickling before partial_fit")
        _check_interrupt(first, pickled(model, model), rows)
    _require_same(model, rows.refit(pickled(model, model)), rows, "a second fit of one object")


def _check_interrupt(expected: Any, model: Any, rows: _Rows) -> None:
    before, told = model.n_iter_, _Interrupt()
    try:
        model.set_params(callbacks=told).partial_fit(rows.X, rows.y)
    except KeyboardInterrupt:
        same = told.heard == model.n_iter_ - before == expected.n_iter_ - before
        require(same, model, f"partial_fit tells {told.heard} steps.")
        model.set_params(callbacks=expected.callbacks)
        for each in (expected, model):
            each.partial_fit(rows.X, rows.y)
        _require_same(expected, model, rows, "Ctrl-C in partial_fit")
    else:
        raise AssertionError(f"{model!r}: partial_fit suppresses Ctrl-C.")


def _check_files(estimator: Any, model: Any, rows: _Rows) -> None:
    if not hasattr(model, "save"):
        return
    resumable = "warm_start" in model.get_params(deep=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.kgm"
        model.save(path)
        loaded = load(path)
        _require_same(model, loaded, rows, "a file")
        require(repr(loaded) == repr(model), model, f"a file gives {loaded!r}.")
        if not resumable:
            return
        model.save(path, resumable=True)
        loaded = load(path)
    warm = [each.set_params(warm_start=True) for each in (pickled(model, model), loaded)]
    goes_on, twin = (rows.refit(each) for each in warm)
    require(goes_on.n_iter_ >= model.n_iter_, model, "warm_start begins anew.")
    _require_same(goes_on, twin, rows, "a file before a warm start")


def _check_failure(estimator: Any, model: Any, rows: _Rows) -> None:
    if "callbacks" not in estimator.get_params(deep=False):
        return
    fresh = clone(estimator).set_params(callbacks=_Fail())
    fitted = pickled(model, model).set_params(callbacks=_Fail())
    before = _outputs(fitted, rows.new)
    for each in (fresh, fitted):
        names = set(vars(each))
        try:
            rows.refit(each)
        except _CallbackError:
            require(set(vars(each)) == names, model, "a failed fit changes attributes.")
        else:
            raise AssertionError(f"{model!r}: suppresses the error of a callback.")
    _require_same_bits(model, before, _outputs(fitted, rows.new), "a failed fit")


def _check_resuming(estimator: Any, model: Any, rows: _Rows) -> None:
    if "callbacks" in estimator.get_params(deep=False):
        check_checkpoints(estimator, rows.X, rows.y)


def check_checkpoints(estimator: Any, X: Any, y: Any = None, **more: Any) -> int:
    """Check that a fit gives the same bits when it is resumed from any of its checkpoints.

    All values and arrays of the model file are compared, including the state of the solver and
    the history except for its times.

    Parameters
    ----------
    estimator : estimator of kernelgrad
        Unfitted, with a number as ``random_state``.
    X, y, **more
        Arguments of `fit`.

    Returns
    -------
    int
        The number of checkpoints checked.

    Raises
    ------
    AssertionError
        The message names the estimator, the checkpoint and the difference.
    """

    def fit(folder: Path, checkpoint: Checkpoint | None = None) -> Contents:
        twin = clone(estimator).set_params(callbacks=checkpoint)
        return timeless(twin.fit(X, y, **more), folder / "model.kgm")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = fit(folder)
        writer = Checkpoint(folder / "all", every=1, keep=1_000_000)
        _require_equal(estimator, fit(folder, writer), expected, "writing checkpoints")
        for path in writer.saved:
            one = folder / path.stem
            one.mkdir()
            shutil.copy(path, one)
            found = fit(folder, Checkpoint(one, resume=True))
            _require_equal(estimator, found, expected, f"going on from {path.name}")
        return len(writer.saved)


def timeless(model: Any, path: Path) -> Contents:
    """Return the contents of a model file without times and counts of work."""
    model.save(path, resumable="warm_start" in model.get_params(deep=False))
    header, arrays = read_container(path)
    parts: list[dict[str, Any]] = [header["history"], header["state"] or {}]
    for values in parts:
        values = values.get("state", values)  # of solvers that nest it
        for name in ("seconds", "compile_seconds", "kernel_evaluations"):
            values.pop(name, None)  # what was cached is evaluated again
    return header | prefixed("history", header.pop("history")), arrays


def _require_equal(estimator: Any, found: Contents, expected: Contents, what: str) -> None:
    """Raise unless values and arrays have the same bits."""
    for first, second in zip(expected, found, strict=True):
        for name in {**first, **second}:
            texts = []
            for it in (first.get(name), second.get(name)):
                pair = ({}, {name: it}) if isinstance(it, np.ndarray) else ({name: it}, {})
                texts.append(contents_digest(pair))
            require(texts[0] == texts[1], estimator, f"{what} changes {name!r}.")
