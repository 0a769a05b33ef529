"""Kernel classification, and what all classifiers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from kernelgrad.calibration import MOST_ROWS, Calibration, keep_argmax
from kernelgrad.callbacks import Aside, CallbackList, Deadline
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import Batch, BatchSource, split_rows
from kernelgrad.estimators import files as _files
from kernelgrad.estimators.base import BaseRowsEstimator, joined
from kernelgrad.estimators.blocks import by_blocks
from kernelgrad.estimators.kernel import BaseSearchedEstimator
from kernelgrad.estimators.plan import Choice, Parts, Plan
from kernelgrad.estimators.support import as_numpy, available_if, can_stream
from kernelgrad.files.records import Check, Record, or_none
from kernelgrad.functions.expansions import Expansion
from kernelgrad.losses import Loss, get_loss
from kernelgrad.losses.classification import MarginLoss
from kernelgrad.params import anything, boolean, choice, parameters
from kernelgrad.solvers import run
from kernelgrad.solvers.support import KernelSolver
from kernelgrad.tasks import Classification, weights_of_classes
from kernelgrad.training_rows import Batches, TrainingRows, weights_of
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray
from kernelgrad.validation import CapabilityError, DataError, check_bool

_MANY_ROWS = 100_000  # rows from which the fit itself holds some out to calibrate on

Responses = tuple[FloatArray, AnyArray, Float64Array]  # responses of classes, codes, weights


can_tell_proba = methodcaller("_check_proba")


@parameters
class BaseClassifier(ClassifierMixin, BaseRowsEstimator):
    """Classes, predictions and scores of a classifier."""

    class_weight: Any = anything(default=None)
    probability: bool = boolean(default=True)

    _onnx_kind = "classes"
    _calibrates: ClassVar[bool] = True
    _calibration = cast("Calibration | None", None)
    _latest = cast("Responses | None", None)  # the latest rows of a stream
    if TYPE_CHECKING:  # what fits set
        classes_: ClassVar[AnyArray]

    _kept: ClassVar[dict[str, Check]] = {
        "classes_": _files.labels, "_class_weights": or_none(_files.numbers)
    }  # fmt: skip
    _may_keep: ClassVar[dict[str, Check]] = {"_by_pairs": check_bool}
    _loss_task = "classification"
    _sibling: ClassVar[str] = "a regressor"  # remedy for continuous targets in messages
    _task_type: ClassVar[type[Classification]] = Classification

    def _make_loss(self, n_classes: int) -> Loss:
        return get_loss(self.loss, task="classification", n_classes=n_classes)

    def _check_targets(self, y: AnyArray) -> AnyArray:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        return np.asarray(y)

    def _learn(
        self, targets: AnyArray | BatchSource, declared: AnyArray | None
    ) -> Classification:
        if isinstance(targets, BatchSource):
            found, counts = self._labels_of_source(targets, declared)
        else:
            found, counts = np.unique(targets, return_counts=True)
        # the first batch of a stream may lack some of the declared classes
        classes = found if declared is None else declared
        if len(classes) < 2:
            raise DataError(
                f"{type(self).__name__} needs at least two classes; the data have only one "
                f"class: {classes.tolist()!r}."
            )
        task = self._task_type(self._make_loss(len(classes)), classes)
        total = np.zeros(len(classes))
        total[task.codes(found)] = counts
        weights = weights_of_classes(self.class_weight, classes, total)
        by_pairs = getattr(self, "multi_class", None) == "ovo" and len(classes) > 2
        return replace(task, weights=weights, by_pairs=by_pairs)

    def _labels_of_source(
        self, source: BatchSource, declared: AnyArray | None
    ) -> tuple[AnyArray, AnyArray]:
        summary = source.summarize_target()
        if summary.classes is None:
            raise DataError(
                "The target has more than 1,000 distinct values; for a continuous target use "
                f"{self._sibling}."
            )
        if summary.kind == "float" and summary.infer_task() == "regression":
            raise DataError(
                f"The target is continuous; use {self._sibling}, or encode it as classes."
            )
        return np.asarray(summary.classes), np.asarray(summary.counts)

    def _has_own_proba(self, loss: Loss) -> bool:
        """Whether responses are probabilities without a calibration."""
        return loss.has_proba and getattr(self, "multi_class", None) != "ovo"

    def _check_proba(self) -> None:
        loss = getattr(self, "loss_", None)
        fitted = loss is not None
        if loss is None:
            loss = get_loss(self.loss, task="classification", n_classes=2)
        if self._has_own_proba(loss):
            return
        if not self.probability or (fitted and self._calibration is None):
            raise AttributeError(
                f"predict_proba with loss={loss.name!r} needs a calibration, which this model "
                "does not have; fit it with probability=True, or use loss='log_loss'."
            )

    def _plan(self, parts: Parts, rows: TrainingRows, chosen: Choice, *, warm: bool) -> Plan:
        wanted = self._calibrates and self.probability and rows.n_train >= _MANY_ROWS
        if wanted and not self._has_own_proba(rows.task.loss):
            rows = rows.hold_out(MOST_ROWS / rows.n_train, self._seed, stratify=False)
        return super()._plan(parts, rows, chosen, warm=warm)

    # -- calibration -------------------------------------------------------------------

    def _run(self, plan: Plan, batches: Batches) -> None:
        wanted = self._calibrates and self.probability
        if not wanted or self._has_own_proba(plan.rows.task.loss):
            self._calibration = self._latest = None
            super()._run(plan, batches)
            return
        found = known = None
        if plan.stream and plan.goes_on:
            found = self._seen_by(self.expansion_, plan.rows, _some(plan.rows))
            if self._latest is not None:
                known = self._calibration
                pairs = zip(self._latest, found, strict=True)
                z, y, weight = (np.concatenate(pair)[-1000:] for pair in pairs)
                found = z, y, weight
        elif not plan.stream and not len(plan.rows.held):
            start = clock()
            found = self._recalled(
                "calibration",
                lambda: self._fit_a_part(plan, self.n_iter_ if plan.goes_on else 0),
                lambda it: ({}, {} if it is None else dict(zip("zyw", it, strict=True))),
                partial(self._restored_responses, names="zyw"),
            )
            if not plan.goes_on:
                plan = replace(plan, seconds=plan.seconds + clock() - start)
        if found is not None:  # callbacks use the model during the fit
            self._calibrate(plan, found, known)
        super()._run(plan, batches)
        if found is None:
            # without held-out rows the stream has just begun, or the rows are too few
            rows = plan.rows
            some = _thinned(rows.held) if len(rows.held) else _some(rows)
            self._calibrate(plan, self._seen_by(self.expansion_, rows, some))

    def _restored_responses(self, record: Record, names: Sequence[str]) -> Responses | None:
        z, y, w = names
        if z not in record:
            return None
        K = len(self.classes_)
        responses, codes = record.array(z, "n", K), record.array(y, "n", kinds="iu", least=0)
        if codes.size and codes.max() >= K:
            raise record.error(f"holds class {codes.max()} in {y!r}, of {K}")
        return responses, codes, record.array(w, "n", least=0.0)

    def _calibrate(
        self, plan: Plan, found: Responses, known: Calibration | None = None
    ) -> None:
        """Set the calibration on responses, starting from the one that is `known`."""
        self._latest = found if plan.stream else None
        if found[2].sum() > 0:
            unit = None if plan.rows.task.loss.name == "perceptron" else 1.0
            self._calibration = Calibration.fit(*found, unit=unit, start=known)

    def _fit_a_part(self, plan: Plan, before: int) -> Responses | None:
        """Fit a copy to a subset and return its responses to other rows.

        The copy takes about a tenth to a quarter of the time of the fit: a part of the rows in
        memory, or few iterations. The result is None if a class has a single row.
        """
        rows, solver, problem = plan.rows, plan.solver, plan.problem
        steps, n, strata = plan.max_iter + before, rows.source.n_rows, rows.strata
        samples = "random_features" in solver.requires
        try:
            if samples or not rows.in_memory:
                steps = -int(-steps * (0.3 if samples else 0.1) // 1)
                held = some = split_rows(
                    rows.source, 0.2, seed=self._seed, stratify=strata, max_rows=MOST_ROWS
                )
            else:
                # the time goes with the square of the rows, or with the rows; 200 are enough
                share = 0.25 if isinstance(solver, KernelSolver) else 0.1
                share = max(share, min(0.5, 200 / n))
                held = split_rows(n, 1.0 - share, seed=self._seed, stratify=strata)
                some = _thinned(held)
        except DataError:
            return None
        self._listeners.on_phase("calibration")
        rows = replace(rows, held=held)
        batches, fixed = rows.batches(solver, self._seed, 0, plan.batch_size)
        left = self._deadline.left()
        deadline = Deadline(0.1 * left) if np.isfinite(left) else self._deadline
        resources = replace(problem.resources, deadline=deadline)
        problem = replace(problem, fixed_rows=fixed, resources=resources)
        if hasattr(solver, "tol"):
            solver = clone(solver).set_params(tol=10.0 * solver.tol)
        heard = CallbackList([Aside(self._listeners)])
        result = run(solver, problem, batches, max_iter=steps, callbacks=heard)
        if heard.interrupted:
            raise KeyboardInterrupt
        return self._seen_by(result.expansion, rows, some)

    @staticmethod
    def _seen_by(expansion: Expansion, rows: TrainingRows, some: IntArray) -> Responses:
        """Return responses of the classes, codes and weights of some rows."""
        X, y, weight, _ = rows.usable(rows.source.take(some))
        task = rows.task
        assert isinstance(task, Classification)
        with single_threaded_blas():
            raw = expansion.raw_prediction(X)
        return task.class_responses(raw), y, weight

    def _probabilities(self, raw: Float64Array) -> Float64Array:
        """Return probabilities (n, K) of f (n, C); the largest is that of `predict`."""
        task = self._task()
        if self._has_own_proba(self.loss_):
            p = np.asarray(self.loss_.predict_proba(raw), np.float64)
        else:
            assert self._calibration is not None
            p = self._calibration.proba(task.class_responses(raw))
        return keep_argmax(p, task.decide(raw))

    def _extra_arrays(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        found = {} if self._calibration is None else self._calibration.arrays()
        return {}, found | {f"latest.{i}": part for i, part in enumerate(self._latest or ())}

    def _restore_extra(self, record: Record) -> None:
        record.sizes["K"] = len(self.classes_)
        if "calibration.unit" in record:
            self._calibration = Calibration.restore(record)
        self._latest = self._restored_responses(record, ("latest.0", "latest.1", "latest.2"))

    def _check_restored(self) -> None:
        super()._check_restored()
        weights = self._class_weights
        if weights is not None and not (
            len(weights) == len(self.classes_) and (weights >= 0).all()
        ):
            raise ValueError(
                "The weights of classes are not one for each class, none negative."
            )
        if self._task().by_pairs and not isinstance(self.loss_, MarginLoss):
            raise ValueError(f"{self.loss_!r} has no margin between pairs of classes.")

    def _task(self) -> Classification:
        # copies that scikit-learn's callbacks make on the way have no class weights
        weights = getattr(self, "_class_weights", None)
        by_pairs = getattr(self, "_by_pairs", False)
        return self._task_type(self.loss_, self.classes_, weights, by_pairs)

    @available_if(can_stream)
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Take further steps, one for every ``batch_size`` rows of `X`, in the order given.

        The first call needs all `classes` unless its `y` holds them. Other parameters are those
        of :meth:`fit`.
        """
        if classes is None:
            return self._partial_fit(X, y, sample_weight)
        declared = np.unique(np.asarray(classes))
        if hasattr(self, "_state") and not np.array_equal(declared, self.classes_):
            raise ValueError(
                f"classes={declared.tolist()!r} is not the same as on the first call: "
                f"{self.classes_.tolist()!r}."
            )
        return self._partial_fit(X, y, sample_weight, declared=declared)

    @by_blocks
    def decision_function(self, X: Any) -> Float64Array:
        """Return f(X): (n,) for two classes (positive favours ``classes_[1]``), else (n, K).

        With ``multi_class="ovo"`` these are the votes of the pairs plus less than half a vote
        from the sum of their responses, as in ``SVC(decision_function_shape="ovr")``.
        """
        raw = self._raw(X)
        return self._task().decision(raw)

    @by_blocks
    def predict(self, X: Any) -> AnyArray:
        """Return the predicted class of every row, shape (n,)."""
        return joined(self._task().predict(raw) for raw in self._responses(X))

    @available_if(can_tell_proba)
    @by_blocks
    def predict_proba(self, X: Any) -> Float64Array:
        """Return class probabilities, shape (n, n_classes), in the order of ``classes_``.

        They come from the log losses, normalised to sum 1 if one-vs-rest, and for other losses
        from the calibration described at ``probability``. `predict` returns the class of the
        largest one, the first of equal ones.
        """
        check_is_fitted(self, "expansion_")
        return self._probabilities(self._raw(X))

    @available_if(can_tell_proba)
    @by_blocks
    def predict_log_proba(self, X: Any) -> Float64Array:
        """Return the logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @as_numpy
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy on arrays or collections, or on a source with its targets."""
        X, y, sample_weight = self._lazy(X, y, sample_weight)
        if not isinstance(X, BatchSource):
            from sklearn.metrics import accuracy_score

            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        hits, total = self._summed(X, "_hits")
        return float(hits / total)

    def _hits(self, batch: Batch, raw: Float64Array) -> Float64Array:
        """Return the weights of rows whose class is predicted, and of all."""
        w = weights_of(batch)
        return np.array([w @ (self._task().predict(raw) == column_or_1d(batch.y)), w.sum()])


def _thinned(rows: IntArray, most: int = MOST_ROWS) -> IntArray:
    """Return at most `most` evenly spaced rows."""
    return rows[:: max(1, -(-len(rows) // most))]


def _some(rows: TrainingRows) -> IntArray:
    """Return a tenth of the rows of a stream, at least 50 and at most 2,000 of them."""
    n = rows.source.n_rows
    return _thinned(np.arange(n), int(np.clip(n // 10, 50, MOST_ROWS)))


@parameters
class KernelClassifier(BaseClassifier, BaseSearchedEstimator):
    r"""Kernel classifier: any loss, kernel and solver, on data too large for kernel matrices.

    Minimises ``mean_i w_i loss(y_i, f(x_i)) / mean_i w_i + (alpha / 2) ||f - b||^2_H`` over the
    kernel's function space, with an unpenalised constant b. Two classes have one output,
    more have one each (one-vs-rest, or jointly with the multinomial ``"log_loss"``).

    Parameters
    ----------
    loss : str or Loss, default="squared"
        A name in docs/losses.md. ``"squared"`` is the cheapest, and on most tables no other has
        smaller errors; ``"log_loss"`` (multinomial) needs no calibration of probabilities.
    kernel : str, Kernel, callable, or scikit-learn RBF / Matern, default="auto"
        A name in docs/kernels.md. ``"auto"`` chooses Gaussian, Matern or Laplacian with the
        bandwidth (Gaussian if gamma is given). ``"precomputed"`` takes kernel matrices as
        X, (n, n) in fit and (m, n) in predict; a function is ``k(X, Z) -> (n, m)``.
    gamma : float > 0, "auto", "median" or "scale", default="auto"
        Inverse bandwidth as in scikit-learn, or a rule. ``"auto"`` has the least leave-one-out
        errors on random subsets; it is ``1 / d`` for kernels of the inner product.
    metric : "auto", "diagonal", "full", None or array, default="auto"
        Weights of the scaled columns (d,), or a matrix (d, r) by which they are multiplied.
        ``"diagonal"`` and ``"full"`` learn them (Gaussian and Matern kernels); ``"auto"`` takes
        learned weights if they are better by a standard error (docs/metric.md).
    bandwidth_factor : float > 0, default=1.0
        Factor on the bandwidth that a rule or a search finds.
    solver : str or Solver, default="auto"
        One of auto, direct, newton, working_set, block_descent, dsg, udsg, cdsg, sbp, sdca,
        pegasos, norma and perceptron (docs/solvers.md). ``"auto"`` solves exactly what takes
        about a minute, and more rows by ``"block_descent"``; for `partial_fit` it is ``"dsg"``,
        or ``"pegasos"`` for kernels without random features. An object has parameters:
        ``DSG(block_size=512)``.
    alpha : float >= 0 or "auto", default="auto"
        Weight of the squared norm (the papers' nu). ``"auto"`` minimises leave-one-out errors,
        and for losses other than the squared one the loss on held-out rows (docs/metric.md).
    C : float > 0 or None, default=None
        Cost of the loss as in SVC, in place of alpha: ``alpha = 1 / (C W)`` with W the sum of
        the weights of the training rows, which streams and sources with weights do not tell.
    max_iter : int >= 1, default=40
        Largest number of iterations: Newton steps, rounds, blocks, or batches of ``"dsg"``,
        whose time grows with the square of `max_iter`.
    tol : float >= 0, default=1e-4
        Smallest gain of the validation score, or relative decrease of its loss, that counts.
    early_stopping : bool, default=False
        Stop after ``n_iter_no_change`` iterations without progress on held-out rows (at most
        20,000) or on the `X_val` of `fit`, and keep the best iterate.
    validation_fraction : float in (0, 1), default=0.1
        Fraction of the rows that `early_stopping` holds out.
    n_iter_no_change : int >= 1, default=10
        Iterations without progress after which `early_stopping` ends the fit.
    multi_class : {"auto", "ovo"}, default="auto"
        For more than two classes: an output for each, or for each pair as in SVC (docs/svc.md).
    class_weight : dict, "balanced" or None, default=None
        As in scikit-learn; multiplies the sample weights.
    probability : bool, default=True
        Calibrate `predict_proba` on rows that were not fitted, for all losses but the log
        losses (docs/choose.md). False saves that time, 10 to 30 % of a fit.
    fit_intercept : bool, default=True
        Start from the best constant instead of zero; ``"sbp"`` fits an unpenalised bias.
    standardize : "auto", bool, "robust" or "ranks", default="auto"
        Scaling of the columns: by quartiles with a bend at three deviations, by normal scores
        of the ranks, or (True) by standard deviations. ``"auto"`` leaves the columns as they
        are if gamma is given, and else is robust, or ranks if these do better (docs/metric.md).
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Columns that are categories: names, numbers or a mask; ``"from_dtype"`` takes text and
        categorical types in frames. docs/data.md says how tables become numbers.
    device : {"cpu", "cuda", "cuda:N", "torch"}, default="cpu"
        Where block descent, the dsg family and predictions compute (docs/devices.md).
    memory_limit : float or None, default=None
        Bytes that a fit may take beside its data, libraries and compiled loops: kept from 1e8
        on, or CapabilityError names the least that would do (docs/solvers.md).
    time_limit : float > 0 or None, default=None
        Seconds, without those of compilation, after which a fit ends with the model so far.
    engine : DaskEngine or None, default=None
        Workers that hold the rows of block descent (docs/distributed.md).
    warm_start : bool, default=False
        Another fit continues with ``max_iter`` more iterations.
    random_state : int, RandomState or None, default=None
        Seed of all random numbers; with an integer the fit is reproducible.
    verbose : int, default=0
        1 shows a progress bar, 2 writes lines for a log.
    callbacks : Callback, list of Callback or None, default=None
        Objects of :mod:`kernelgrad.callbacks`, called after every iteration.

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
        In sorted order.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    expansion_ : RandomFeatureExpansion or SupportExpansion
        The fitted function: seed and coefficients, or training rows and coefficients.
    kernel_ : Kernel
    metric_ : float64 array (d,) or (d, r), or None
        Weights of the encoded and scaled columns, the largest 1; None if all are equal.
    feature_importances_ : float64 array (``n_features_in_``,)
        Squared weights, summed over the encoded columns of each column, with sum 1.
    n_random_features_, n_support_ : int
        Number of random features, or of training rows, in the sum; the other number is 0.
    alpha_ : float
        The weight of the squared norm that was used: given, found, or computed from C.
    n_iter_, best_iteration_ : int
        Their number, and the iteration of the kept function.
    best_score_ : float or None
        Validation accuracy of the kept iterate.
    history_ : History
        Iterations, the solver and its reason, and what searches tried (docs/choose.md).
    fit_status_ : {"converged", "max_iter", "stopped", "time_limit", "interrupted"}
        What ended the fit: a callback if ``"stopped"``, Ctrl-C if ``"interrupted"``.

    See Also
    --------
    KernelRegressor : The same for continuous targets.
    SemiSupervisedKernelClassifier, LinearClassifier

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from kernelgrad import KernelClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = KernelClassifier(random_state=0).fit(X[:1200], y[:1200])
    >>> bool(model.score(X[1200:], y[1200:]) > 0.9)
    True
    """

    multi_class: str = choice(("auto", "ovo"), default="auto")

    _sibling = "KernelRegressor"

    def _make_loss(self, n_classes: int) -> Loss:
        if self.multi_class != "ovo":
            return super()._make_loss(n_classes)
        loss = super()._make_loss(2)
        if not isinstance(loss, MarginLoss):
            raise ValueError(
                f"multi_class='ovo' is for losses of the margin such as 'hinge' or 'logistic', "
                f"not for {loss.name!r}; leave it at 'auto'."
            )
        return loss

    def _choose(self, parts: Parts, rows: TrainingRows, *, stream: bool = False) -> Choice:
        solver, reason = super()._choose(parts, rows, stream=stream)
        if solver.name in ("sbp", "perceptron") and self.multi_class == "ovo":
            raise CapabilityError(
                f"solver {solver.name!r} counts all rows for each output, those of a third "
                "class too; for multi_class='ovo' take another, such as 'working_set' or "
                "'block_descent'."
            )
        return solver, reason
