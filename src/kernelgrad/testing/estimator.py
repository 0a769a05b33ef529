"""The contract of estimators: invariance, persistence, errors, and metamorphic relations."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier, is_regressor
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
# Differences relative to the largest output: sums of some 1e3 float32 products in another
# order, and what tolerances of solvers leave.
_ROUNDING, _CLOSE = 1e-4, 1e-3
_WORSE = 0.3  # loss of score that few iterations on rows in another order may cost
_OUTLIER = 1e8
_NO_LABEL = -1


class _CallbackError(Exception):
    """Raised by the callback of a fit that must fail."""


class _Fail(Callback):
    def on_iteration(self, event: FitEvent) -> bool | None:
        raise _CallbackError


class _Interrupt(Callback):
    n_steps = 0

    def on_iteration(self, event: FitEvent) -> bool | None:
        self.n_steps += 1
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

    def changed(self, change: Callable[[Any], Any]) -> _Rows:
        return replace(self, X=change(self.X), new=change(self.new))

    def score(self, model: Any) -> float:
        """Return the score on the training rows with a label."""
        rows = np.flatnonzero(self.y != _NO_LABEL) if is_classifier(model) else slice(None)
        return float(model.score(self.X[rows], self.y[rows]))


def _make_rows(estimator: Any, n: int, seed: int) -> _Rows:
    """Return rows in [0, 2)^4, a third of the entries zero, with targets for `estimator`."""
    rng = np.random.default_rng(seed)
    X = 2.0 * rng.random((n + _NEW_ROWS, _COLUMNS))
    X[rng.random(X.shape) < 0.3] = 0.0
    signal = np.sin(3.0 * X[:, 0]) + X[:, 1] - X[:, 2] + 0.2 * rng.standard_normal(len(X))
    y: AnyArray = signal
    if is_classifier(estimator):
        few = has_fit_parameter(estimator, "X_unlabelled")
        y = np.digitize(signal, np.quantile(signal, (0.5,) if few else (1 / 3, 2 / 3)))
        if few:
            y[rng.random(len(y)) < 0.6] = _NO_LABEL
    elif not is_regressor(estimator):
        y = (signal > np.median(signal)).astype(np.int64)
    return _Rows(X[:n], y[:n], rng.integers(0, 4, n), X[n:])


def _outputs(model: Any, X: Matrix) -> dict[str, AnyArray]:
    """Return the result of each prediction method."""
    names = [name for name in METHODS if hasattr(model, name)]
    outputs = {name: np.asarray(getattr(model, name)(X)) for name in names}
    if hasattr(model, "noise_variance"):
        outputs["std"] = model.predict(X[:_NEW_ROWS], return_std=True)[1]
    return outputs


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


def _require_twin(model: Any, rows: _Rows, twin: Any, new: _Rows, what: str) -> None:
    """Raise unless values agree, or scores if the fit depends on the order of rows."""
    expected, outputs = _outputs(model, rows.new), _outputs(twin, new.new)
    history = getattr(model, "history_", {"search": None})
    # losses of rows without labels have several minima
    settled = "search" not in history and model.fit_status_ == "converged"
    if settled and not model.solver_.marks:
        expected.pop("predict_proba", None)  # calibrated on rows in another order
        _require_close(model, expected, outputs, what, _CLOSE)
    elif is_classifier(model) or is_regressor(model):
        right, other = rows.score(model), new.score(twin)
        require(other >= right - _WORSE, model, f"{what}: score {other:.3g} of {right:.3g}.")


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
    checks = (
        _check_seed, _check_order, _check_weights, _check_chunks, _check_csr, _check_classes,
        _check_pickle, _check_files, _check_failure, _check_resuming,
    )  # fmt: skip
    estimator = clone(estimator).set_params(random_state=random_state)
    check_parameters(estimator, lambda wrong: wrong.fit(object(), object()))
    _run(checks, estimator, random_state)
    _check_threads(estimator, random_state)


def check_relations(estimator: Any, *, random_state: int = 0) -> None:
    """Check metamorphic relations between fits of an estimator.

    The right model of given rows is unknown, but it is known how the model must change when the
    rows change in certain ways. Each relation holds for some of the estimators:

    Same bits
        for the same rows in float32 and float64; for weights times 4; for a stream cut into
        other chunks of whole batches.
    Same values up to rounding
        for shifted targets and, with the squared loss, targets times 4. If the fit has
        converged and nothing was searched for, also for class names in reverse order; for
        shifted columns, with a stationary kernel; for multiplied columns, if columns are
        scaled; and for reordered columns and an additional constant one, if the function is an
        expansion in kernel values. Other fits then draw their rows in another order.
    A similar score
        in the latter cases, and with one entry of the rows set to 1e8, for any kernel of
        differences.

    Parameters and errors are those of :func:`~kernelgrad.testing.check_estimator_contract`.
    """
    checks = (
        _check_precision, _check_units_of_weights, _check_stream, _check_order_of_classes,
        _check_targets, _check_columns, _check_outlier,
    )  # fmt: skip
    _run(checks, clone(estimator).set_params(random_state=random_state), random_state)


def _run(checks: Any, estimator: Any, random_state: int) -> None:
    rows = _make_rows(estimator, _ROWS, random_state)
    model = rows.fit(estimator)
    for check in checks:
        check(estimator, model, rows)


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
            outputs = _outputs(rows.fit(estimator), rows.X)
        _require_same_bits(one, expected, outputs, f"{n} threads")


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
    twin = clone(estimator).fit(rows.X, np.where(light, wrong, rows.y), sample_weight=weight)
    right, bad = (twin.score(rows.X, y) for y in (rows.y, wrong))
    # few steps of a weak learner may be no better than chance, but not clearly wrong
    message = f"light rows decide: score {right:.3g}, of theirs {bad:.3g}."
    require(right > bad - 0.1, model, message)


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
    if getattr(estimator, "_standardize", False) in (
        "auto",
        UNITS,
    ):  # only dense rows are scaled
        estimator = clone(estimator).set_params(standardize=False)
        expected = _outputs(rows.fit(estimator), rows.new)
    twin = replace(rows, X=sp.csr_matrix(rows.X)).fit(estimator)
    _require_close(model, expected, _outputs(twin, rows.new), "a fit of CSR rows")


def _check_classes(estimator: Any, model: Any, rows: _Rows) -> None:
    if not is_classifier(estimator):
        return
    names = np.array([5, 7, 9, _NO_LABEL])  # the last is the mark of rows without a label
    twin = replace(rows, y=names[rows.y]).fit(estimator)
    same = np.array_equal(twin.classes_, names[: len(model.classes_)])
    require(same, model, f"classes_ are {twin.classes_}.")
    expected = _outputs(model, rows.new)
    expected["predict"] = names[expected["predict"]]
    _require_same_bits(model, expected, _outputs(twin, rows.new), "names of classes")


def _check_pickle(estimator: Any, model: Any, rows: _Rows) -> None:
    twin = pickled(model, model)
    _require_same(model, twin, rows, "pickling")
    if hasattr(model, "partial_fit"):
        pair = pickled(model, model), twin
        first, second = (each.partial_fit(rows.X, rows.y) for each in pair)
        _require_same(first, second, rows, "pickling before partial_fit")
        _check_interrupt(first, pickled(model, model), rows)
    _require_same(model, rows.refit(pickled(model, model)), rows, "a second fit of one object")


def _check_interrupt(expected: Any, model: Any, rows: _Rows) -> None:
    before, callback = model.n_iter_, _Interrupt()
    try:
        model.set_params(callbacks=callback).partial_fit(rows.X, rows.y)
    except KeyboardInterrupt:
        same = callback.n_steps == model.n_iter_ - before == expected.n_iter_ - before
        require(same, model, f"partial_fit tells {callback.n_steps} steps.")
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


def _check_precision(estimator: Any, model: Any, rows: _Rows) -> None:
    single = rows.changed(lambda X: X.astype(np.float32))
    double = single.changed(lambda X: X.astype(np.float64))
    wide, narrow = double.fit(estimator), single.fit(estimator)
    # linear functions are fitted to rows in their own precision
    require_equal = _require_close if hasattr(model, "coef_") else _require_same_bits
    require_equal(model, _outputs(wide, double.new), _outputs(narrow, double.new), "float32")


def _check_units_of_weights(estimator: Any, model: Any, rows: _Rows) -> None:
    # C is per weight, and weights tell the noise of a Gaussian process
    plain = getattr(estimator, "C", None) is None and not hasattr(estimator, "noise_variance")
    if has_fit_parameter(estimator, "sample_weight") and plain:
        four = replace(rows, weight=4 * rows.weight)
        _require_same(model, four.fit(estimator), rows, "weights times 4")


def _check_stream(estimator: Any, model: Any, rows: _Rows) -> None:
    if not hasattr(estimator, "partial_fit") or getattr(estimator, "C", None) is not None:
        return
    many = _make_rows(estimator, _MANY_ROWS, 0)
    whole, parts = clone(estimator), clone(estimator)
    more = {"classes": np.unique(many.y)} if is_classifier(estimator) else {}
    if _NO_LABEL in many.y:
        return
    size = whole.partial_fit(many.X, many.y, **more).solver_.resolve_batch_size(None)
    cuts = [*range(0, len(many.y), 2 * size), len(many.y)]
    for a, b in pairwise(cuts):
        parts.partial_fit(many.X[a:b], many.y[a:b], **more)
    _require_same(whole, parts, many, "a stream in other pieces")


def _check_order_of_classes(estimator: Any, model: Any, rows: _Rows) -> None:
    if not is_classifier(estimator):
        return
    last = int(rows.y.max())
    back = replace(rows, y=np.where(rows.y == _NO_LABEL, _NO_LABEL, last - rows.y))
    _require_twin(model, rows, _Reversed(back.fit(estimator)), back, "classes in reverse order")


class _Reversed(ClassifierMixin, BaseEstimator):
    """A classifier with two or three classes whose names are in reverse order."""

    def __init__(self, model: Any) -> None:
        self._model, self.score = model, model.score

    def predict(self, X: AnyArray) -> AnyArray:
        """Return the original names."""
        return np.asarray(self._model.classes_[-1] - self._model.predict(X))

    def decision_function(self, X: AnyArray) -> AnyArray:
        """Return scores in the original order."""
        f = np.asarray(self._model.decision_function(X))
        return f[:, ::-1] if f.ndim == 2 else -f


def _check_targets(estimator: Any, model: Any, rows: _Rows) -> None:
    if not is_regressor(estimator):
        return
    expected = {"predict": model.predict(rows.new)}
    if getattr(estimator, "loss", "squared") == "squared":
        f = replace(rows, y=4.0 * rows.y).fit(estimator).predict(rows.new) / 4.0
        _require_close(model, expected, {"predict": f}, "targets times 4")
    f = replace(rows, y=rows.y + 8.0).fit(estimator).predict(rows.new) - 8.0
    _require_close(model, expected, {"predict": f}, "targets plus 8")


def _check_columns(estimator: Any, model: Any, rows: _Rows) -> None:
    kernel = getattr(model, "kernel_", None)
    if kernel is not None and not kernel.is_stationary:
        return

    def check(change: Any, what: str) -> None:
        twin = rows.changed(change)
        _require_twin(model, rows, twin.fit(estimator), twin, what)

    if kernel is not None:
        check(lambda X: X + 4.0, "columns plus 4")
    if getattr(estimator, "_standardize", False) not in (False, UNITS):
        check(lambda X: X * [2.0, 0.25, 1.0, 64.0] - 3.0, "columns in other units")
    # the function is a kernel expansion, or linear
    exact = getattr(model, "n_random_features_", 1) == 0 or hasattr(model, "coef_")
    if exact:
        check(lambda X: X[:, ::-1].copy(), "columns in reverse order")
    if exact and kernel is not None:
        check(lambda X: np.column_stack([X, np.full(len(X), 2.0)]), "a constant column")


def _check_outlier(estimator: Any, model: Any, rows: _Rows) -> None:
    kernel = getattr(model, "kernel_", None)
    scored = is_classifier(estimator) or is_regressor(estimator)
    if kernel is None or not (kernel.is_stationary and scored):
        return
    X = rows.X.copy()
    X[int(np.argmax(rows.weight)), 0] = _OUTLIER
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        twin = replace(rows, X=X).fit(estimator)
    others = rows.take(np.flatnonzero(X[:, 0] < _OUTLIER))
    right, score = others.score(model), others.score(twin)
    good = score >= right - _WORSE or messages
    require(good, model, f"one cell of 1e8: score {score:.3g} of {right:.3g}, no warning.")


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
            contents = fit(folder, Checkpoint(one, resume=True))
            _require_equal(estimator, contents, expected, f"going on from {path.name}")
        return len(writer.saved)


def timeless(model: Any, path: Path) -> Contents:
    """Return the contents of a model file without times and counts of work."""
    model.save(path, resumable="warm_start" in model.get_params(deep=False))
    header, arrays = read_container(path)
    parts: list[dict[str, Any]] = [header["history"], header["state"] or {}]
    for values in parts:
        values = values.get("state", values)  # a few solvers nest their state
        for name in ("seconds", "compile_seconds", "kernel_evaluations"):
            values.pop(name, None)  # what was cached is evaluated again
    return header | prefixed("history", header.pop("history")), arrays


def _require_equal(estimator: Any, one: Contents, other: Contents, what: str) -> None:
    """Raise unless values and arrays have the same bits."""
    for first, second in zip(one, other, strict=True):
        for name in {**first, **second}:
            texts = []
            for it in (first.get(name), second.get(name)):
                pair = ({}, {name: it}) if isinstance(it, np.ndarray) else ({name: it}, {})
                texts.append(contents_digest(pair))
            require(texts[0] == texts[1], estimator, f"{what} changes {name!r}.")
