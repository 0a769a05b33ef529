"""The contract of estimators: invariance, persistence, errors, and metamorphic relations."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable
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
from kernelgrad.files.container import contents_digest, prefixed, read_container
from kernelgrad.functions.scaling import UNITS
from kernelgrad.testing.parts import check_parameters, pickled, require
from kernelgrad.testing.warmup import METHODS
from kernelgrad.types import AnyArray, Contents, FloatArray, IntArray, Matrix
from kernelgrad.validation import CapabilityError

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
        return self.refit(clone(estimator), weighted=weighted)

    def refit(self, estimator: Any, *, weighted: bool = True) -> Any:
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
    names = [name for name in METHODS if hasattr(model, name)]
    outputs = {name: np.asarray(getattr(model, name)(X)) for name in names}
    if hasattr(model, "noise_variance"):
        outputs["std"] = model.predict(X[:_NEW_ROWS], return_std=True)[1]
    return outputs


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


def check_estimator_contract(estimator: Any, *, random_state: int = 0) -> None:
    """Check on small data the promises that every estimator of this package makes.

    Same bits
        for the same ``random_state``, whatever the state of NumPy's global generator; for the
        parameters of ``best_params_``; for one, two and three threads; for reordered rows; for
        integer ``sample_weight`` and rows repeated as often; after pickling, and after ``save``
        and ``load``, also of further training; and after resuming from any checkpoint. Order
        and repeats do not matter as long as all rows fit into one batch of the solver.
    Same values up to rounding
        for predictions of rows one by one, in chunks or all at once; for CSR rows in
        prediction, and in `fit` unless ``standardize="auto"`` scales the columns or a metric
        is learned.
    Same values up to the tolerance
        of the estimator that ``compress`` returns, where the function is a sum over support
        rows; it is refused elsewhere.
    Unchanged by a failure
        A callback that raises in the middle of a fit leaves all attributes as they were.
    Errors
        Every declared parameter is rejected outside its domain, before the rows are read.

    AssertionError names the estimator and the broken promise.

    Parameters
    ----------
    estimator : estimator of kernelgrad
        Unfitted; a small ``max_iter`` makes the check fast.
    random_state : int, default=0
        Seed of the data and of the estimator, fixed so that a failure can be repeated.
    """
    estimator = clone(estimator).set_params(random_state=random_state)
    check_parameters(estimator, lambda wrong: wrong.fit(object(), object()))
    checks = _Checks(estimator, random_state)
    for check in (
        checks.seed, checks.best_params, checks.order_and_weights, checks.light_rows,
        checks.chunks, checks.csr, checks.classes, checks.pickle, checks.files,
        checks.compressed, checks.callbacks, checks.threads,
    ):  # fmt: skip
        check()


def check_relations(estimator: Any, *, random_state: int = 0) -> None:
    """Check metamorphic relations between fits of an estimator, each where it holds.

    Same bits
        for the same rows in float32 and float64; for weights times 4; for a stream cut into
        other chunks of whole batches.
    Same values up to rounding
        for shifted targets and, with the squared loss, targets times 4. If the fit has
        converged and nothing was searched for, also for class names in reverse order; for
        shifted columns, with a stationary kernel; for multiplied columns, if columns are
        scaled; and for reordered columns and an additional constant one, if the function is an
        expansion in kernel values.
    A similar score
        in the latter cases, and with one entry of the rows set to 1e8, for any kernel of
        differences.

    Parameters and errors are those of :func:`~kernelgrad.testing.check_estimator_contract`.
    """
    checks = _Checks(clone(estimator).set_params(random_state=random_state), random_state)
    for check in (
        checks.precision, checks.units_of_weights, checks.stream, checks.order_of_classes,
        checks.targets, checks.columns, checks.outlier,
    ):  # fmt: skip
        check()


class _Checks:
    """The checks of one estimator, on the same rows and beside one fitted model."""

    def __init__(self, estimator: Any, random_state: int) -> None:
        self.estimator, self.random_state = estimator, random_state
        self.rows = _make_rows(estimator, _ROWS, random_state)
        self.model = self.rows.fit(estimator)
        self.weighted = has_fit_parameter(estimator, "sample_weight")
        self.kernel = getattr(self.model, "kernel_", None)

    def outputs(self, model: Any) -> dict[str, AnyArray]:
        return _outputs(model, self.rows.new)

    def same(self, other: Any, what: str, model: Any = None) -> None:
        model = self.model if model is None else model
        _require_same_bits(model, self.outputs(model), self.outputs(other), what)

    def close(self, other: dict[str, AnyArray], what: str, model: Any = None) -> None:
        model = self.model if model is None else model
        outputs = self.outputs(model)
        _require_close(model, {name: outputs[name] for name in other}, other, what)

    def twin(self, new: _Rows, what: str, twin: Any = None) -> None:
        """Raise unless values agree, or scores if the fit depends on the order of rows."""
        model, twin = self.model, new.fit(self.estimator) if twin is None else twin
        history = getattr(model, "history_", {"search": None})
        # losses of rows without labels have several minima
        settled = "search" not in history and model.fit_status_ == "converged"
        if settled and not model.solver_.marks:
            expected = self.outputs(model)
            expected.pop("predict_proba", None)  # calibrated on rows in another order
            _require_close(model, expected, _outputs(twin, new.new), what, _CLOSE)
        elif is_classifier(model) or is_regressor(model):
            right, other = self.rows.score(model), new.score(twin)
            message = f"{what}: score {other:.3g} of {right:.3g}."
            require(other >= right - _WORSE, model, message)

    # The contract

    def seed(self) -> None:
        np.random.seed(1)  # noqa: NPY002  what must not matter
        first = self.rows.fit(self.estimator)
        np.random.seed(2)  # noqa: NPY002
        self.same(self.rows.fit(self.estimator), "NumPy's global generator", first)

    def best_params(self) -> None:
        if hasattr(self.model, "best_params_"):
            used = clone(self.estimator).set_params(**self.model.best_params_)
            self.same(self.rows.fit(used), "best_params_ in place of a search")

    def threads(self) -> None:
        rows, outputs = _make_rows(self.estimator, _MANY_ROWS, self.random_state), []
        try:
            for n in (1, 2, 3):
                set_num_threads(n)
                outputs.append(_outputs(rows.fit(self.estimator), rows.X))
                _require_same_bits(self.model, outputs[0], outputs[-1], f"{n} threads")
        finally:
            set_num_threads(None)

    def order_and_weights(self) -> None:
        if not self.weighted:
            return
        rows, n = self.rows, len(self.rows.y)
        order = np.random.default_rng(0).permutation(n)
        self.same(rows.take(order).fit(self.estimator), "the order of rows")
        repeated = rows.take(np.repeat(np.arange(n), rows.weight))
        twin = repeated.fit(self.estimator, weighted=False)
        self.same(twin, "repeating rows instead of weighting them")

    def light_rows(self) -> None:
        """Equal rows are merged into weights, so that steps which ignore weights pass so far.

        Here most rows have a wrong target and next to no weight.
        """
        rows, classes = self.rows, is_classifier(self.estimator)
        scored = classes or is_regressor(self.estimator)
        if not (self.weighted and scored) or _NO_LABEL in rows.y:
            return
        wrong = rows.y.max() - rows.y if classes else -rows.y
        light = np.arange(len(rows.y)) % 3 > 0
        y, weight = np.where(light, wrong, rows.y), np.where(light, 1e-3, 1.0)
        twin = clone(self.estimator).fit(rows.X, y, sample_weight=weight)
        right, bad = (twin.score(rows.X, y) for y in (rows.y, wrong))
        # few steps of a weak learner may be no better than chance, but not clearly wrong
        message = f"light rows decide: score {right:.3g}, of theirs {bad:.3g}."
        require(right > bad - 0.1, self.model, message)

    def chunks(self, rounding: float = _ROUNDING) -> None:
        for X in (self.rows.new, sp.csr_matrix(self.rows.new)):
            whole = _outputs(self.model, X)
            cuts = pairwise((0, 1, 2, 11, _NEW_ROWS))
            parts = [_outputs(self.model, X[a:b]) for a, b in cuts]
            whole.pop("std", None)  # shares a regression
            joined = {name: np.concatenate([part[name] for part in parts]) for name in whole}
            _require_close(self.model, whole, joined, "rows predicted one by one", rounding)

    def csr(self) -> None:
        rows, estimator, model = self.rows, self.estimator, self.model
        self.close(_outputs(model, sp.csr_matrix(rows.new)), "new CSR rows")
        if hasattr(model, "transform"):  # dense rows are centred: other features, same kernel
            return
        if getattr(model, "history_", {}).get("metric"):  # CSR rows have no kernels with edges
            return
        if getattr(estimator, "standardize", False) in ("auto", UNITS):  # not of CSR rows
            estimator = clone(estimator).set_params(standardize=False)
            model = rows.fit(estimator)
        twin = replace(rows, X=sp.csr_matrix(rows.X)).fit(estimator)
        self.close(self.outputs(twin), "a fit of CSR rows", model)

    def classes(self) -> None:
        if not is_classifier(self.estimator):
            return
        names = np.array([5, 7, 9, _NO_LABEL])  # the last is the mark of rows without a label
        twin = replace(self.rows, y=names[self.rows.y]).fit(self.estimator)
        same = np.array_equal(twin.classes_, names[: len(self.model.classes_)])
        require(same, self.model, f"classes_ are {twin.classes_}.")
        expected = self.outputs(self.model)
        expected["predict"] = names[expected["predict"]]
        _require_same_bits(self.model, expected, self.outputs(twin), "names of classes")

    def pickle(self) -> None:
        rows, model = self.rows, self.model
        twin = pickled(model, model)
        self.same(twin, "pickling")
        if hasattr(model, "partial_fit"):
            pair = pickled(model, model), twin
            first, second = (each.partial_fit(rows.X, rows.y) for each in pair)
            self.same(second, "pickling before partial_fit", first)
            self.interrupt(first, pickled(model, model))
        self.same(rows.refit(pickled(model, model)), "a second fit of one object")

    def interrupt(self, expected: Any, model: Any) -> None:
        rows, before, callback = self.rows, model.n_iter_, _Interrupt()
        try:
            model.set_params(callbacks=callback).partial_fit(rows.X, rows.y)
        except KeyboardInterrupt:
            same = callback.n_steps == model.n_iter_ - before == expected.n_iter_ - before
            require(same, model, f"partial_fit tells {callback.n_steps} steps.")
            model.set_params(callbacks=expected.callbacks)
            for each in (expected, model):
                each.partial_fit(rows.X, rows.y)
            self.same(model, "Ctrl-C in partial_fit", expected)
        else:
            raise AssertionError(f"{model!r}: partial_fit suppresses Ctrl-C.")

    def files(self) -> None:
        model = self.model
        if not hasattr(model, "save"):
            return
        resumable = "warm_start" in model.get_params(deep=False)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.kgm"
            model.save(path)
            loaded = load(path)
            self.same(loaded, "a file")
            require(repr(loaded) == repr(model), model, f"a file gives {loaded!r}.")
            if not resumable:
                return
            model.save(path, resumable=True)
            loaded = load(path)
        warm = [each.set_params(warm_start=True) for each in (pickled(model, model), loaded)]
        goes_on, twin = (self.rows.refit(each) for each in warm)
        require(goes_on.n_iter_ >= model.n_iter_, model, "warm_start begins anew.")
        self.same(twin, "a file before a warm start", goes_on)

    def compressed(self) -> None:
        model = self.model
        if not hasattr(model, "compress"):
            return
        before = self.outputs(model)
        try:
            twin = model.compress(_ROWS, tol=_CLOSE, X=self.rows.X)
        except CapabilityError:
            sums = model.n_support_ and not hasattr(model, "noise_variance_")
            require(not sums, model, "refuses to compress.")
            return
        _require_same_bits(model, before, self.outputs(model), "compress")
        numbers = {k: v for k, v in before.items() if k != "predict" or is_regressor(model)}
        _require_close(model, numbers, self.outputs(twin), "compress", 10 * _CLOSE)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.kgm"
            twin.save(path)
            self.same(load(path), "a file of a compressed model", twin)
        report = twin.history_["compression"]
        rows = report["rows"]
        require(twin.n_support_ == rows <= report["rows_before"], model, f"has {rows} rows.")

    def callbacks(self) -> None:
        rows, model = self.rows, self.model
        if "callbacks" not in self.estimator.get_params(deep=False):
            return
        fresh = clone(self.estimator).set_params(callbacks=_Fail())
        fitted = pickled(model, model).set_params(callbacks=_Fail())
        before = self.outputs(fitted)
        for each in (fresh, fitted):
            names = set(vars(each))
            try:
                rows.refit(each)
            except _CallbackError:
                require(set(vars(each)) == names, model, "a failed fit changes attributes.")
            else:
                raise AssertionError(f"{model!r}: suppresses the error of a callback.")
        _require_same_bits(model, before, self.outputs(fitted), "a failed fit")
        check_checkpoints(self.estimator, rows.X, rows.y)

    # The relations

    def precision(self) -> None:
        single = self.rows.changed(lambda X: X.astype(np.float32))
        double = single.changed(lambda X: X.astype(np.float64))
        wide, narrow = (_outputs(x.fit(self.estimator), double.new) for x in (double, single))
        # linear functions are fitted to rows in their own precision
        require_equal = _require_close if self.is_linear else _require_same_bits
        require_equal(self.model, wide, narrow, "float32")

    @property
    def is_linear(self) -> bool:
        return hasattr(self.model, "coef_")

    def units_of_weights(self) -> None:
        # C is per weight, and weights tell the noise of a Gaussian process
        per_weight = getattr(self.estimator, "C", None) is not None
        if self.weighted and not per_weight and not hasattr(self.estimator, "noise_variance"):
            four = replace(self.rows, weight=4 * self.rows.weight)
            self.same(four.fit(self.estimator), "weights times 4")

    def stream(self) -> None:
        many = _make_rows(self.estimator, _MANY_ROWS, 0)
        streams = hasattr(self.estimator, "partial_fit") and _NO_LABEL not in many.y
        if not streams or getattr(self.estimator, "C", None) is not None:
            return
        whole, parts = clone(self.estimator), clone(self.estimator)
        more = {"classes": np.unique(many.y)} if is_classifier(whole) else {}
        size = whole.partial_fit(many.X, many.y, **more).solver_.resolve_batch_size(None)
        for a, b in pairwise([*range(0, len(many.y), 2 * size), len(many.y)]):
            parts.partial_fit(many.X[a:b], many.y[a:b], **more)
        self.same(parts, "a stream in other pieces", whole)

    def order_of_classes(self) -> None:
        if is_classifier(self.estimator):
            y = self.rows.y
            back = replace(self.rows, y=np.where(y == _NO_LABEL, _NO_LABEL, y.max() - y))
            self.twin(back, "classes in reverse order", _Reversed(back.fit(self.estimator)))

    def targets(self) -> None:
        rows, estimator = self.rows, self.estimator
        if not is_regressor(estimator):
            return
        if getattr(estimator, "loss", "squared") == "squared":
            f = replace(rows, y=4.0 * rows.y).fit(estimator).predict(rows.new) / 4.0
            self.close({"predict": f}, "targets times 4")
        f = replace(rows, y=rows.y + 8.0).fit(estimator).predict(rows.new) - 8.0
        self.close({"predict": f}, "targets plus 8")

    def columns(self) -> None:
        model, changed = self.model, self.rows.changed
        if self.kernel is not None and not self.kernel.is_stationary:
            return
        if self.kernel is not None:
            self.twin(changed(lambda X: X + 4.0), "columns plus 4")
        if getattr(self.estimator, "standardize", False) not in (False, UNITS, "auto"):
            units = changed(lambda X: X * [2.0, 0.25, 1.0, 64.0] - 3.0)
            self.twin(units, "columns in other units")
        exact = getattr(model, "n_random_features_", 1) == 0 or self.is_linear
        if exact:
            self.twin(changed(lambda X: X[:, ::-1].copy()), "columns in reverse order")
        if exact and self.kernel is not None:
            more = changed(lambda X: np.column_stack([X, np.full(len(X), 2.0)]))
            self.twin(more, "a constant column")

    def outlier(self) -> None:
        scored = is_classifier(self.estimator) or is_regressor(self.estimator)
        if self.kernel is None or not (self.kernel.is_stationary and scored):
            return
        X = self.rows.X.copy()
        X[int(np.argmax(self.rows.weight)), 0] = _OUTLIER
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            twin = replace(self.rows, X=X).fit(self.estimator)
        others = self.rows.take(np.flatnonzero(X[:, 0] < _OUTLIER))
        right, score = others.score(self.model), others.score(twin)
        message = f"one cell of 1e8: score {score:.3g} of {right:.3g}, no warning."
        require(score >= right - _WORSE or messages, self.model, message)


class _Reversed(ClassifierMixin, BaseEstimator):
    """A classifier with two or three classes whose names are in reverse order."""

    def __init__(self, model: Any) -> None:
        self._model, self.score = model, model.score

    def predict(self, X: AnyArray) -> AnyArray:
        return np.asarray(self._model.classes_[-1] - self._model.predict(X))

    def decision_function(self, X: AnyArray) -> AnyArray:
        f = np.asarray(self._model.decision_function(X))
        return f[:, ::-1] if f.ndim == 2 else -f


def check_checkpoints(estimator: Any, X: Any, y: Any = None, **more: Any) -> int:
    """Check that a fit gives the same bits when it is resumed from any of its checkpoints.

    All values and arrays of the model file are compared, including the state of the solver and
    the history except for its times. Returns the number of checkpoints; AssertionError names
    the first difference.

    Parameters
    ----------
    estimator : estimator of kernelgrad
        Unfitted, with a number as ``random_state``.
    X, y, **more
        Arguments of `fit`.
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
    machines = header["history"].get("metric", [])
    parts: list[dict[str, Any]] = [header["history"], header["state"] or {}, *machines]
    for values in parts:
        values = values.get("state", values)  # a few solvers nest their state
        for name in ("seconds", "compile_seconds", "kernel_evaluations"):
            values.pop(name, None)  # what was cached is evaluated again
    return header | prefixed("history", header.pop("history")), arrays


def _require_equal(estimator: Any, one: Contents, other: Contents, what: str) -> None:
    for first, second in zip(one, other, strict=True):
        for name in {**first, **second}:
            texts = []
            for it in (first.get(name), second.get(name)):
                pair = ({}, {name: it}) if isinstance(it, np.ndarray) else ({name: it}, {})
                texts.append(contents_digest(pair))
            require(texts[0] == texts[1], estimator, f"{what} changes {name!r}.")
