"""Semi-supervised kernel classification."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from kernelgrad import losses
from kernelgrad.calibration import keep_argmax, sigmoid_proba
from kernelgrad.data import ArraySource, Batch, BatchSource
from kernelgrad.estimators import partly_labelled, support
from kernelgrad.estimators.blocks import by_blocks
from kernelgrad.estimators.classifier import BaseClassifier, can_tell_proba
from kernelgrad.estimators.folds import cross_validate
from kernelgrad.estimators.kernel import BaseKernelEstimator
from kernelgrad.estimators.partly_labelled import (
    NO_LABEL,
    MarkedClassification,
    SemiSupervisedRows,
)
from kernelgrad.estimators.plan import Choice, Given, Parts, Plan, Posed, Reading
from kernelgrad.estimators.support import as_numpy, available_if, can_stream, with_callbacks
from kernelgrad.estimators.warnings import warn_caller, warn_of_drift
from kernelgrad.files.records import Check, Record, check_number
from kernelgrad.kernels import Kernel
from kernelgrad.losses import Loss, UnlabelledLoss
from kernelgrad.params import anything, boolean, integer, parameters, real
from kernelgrad.solvers import DSG, BlockDescent, Problem, Solver, get_solver
from kernelgrad.solvers.loop import check_numbers
from kernelgrad.tasks import Classification, decide
from kernelgrad.training_rows import TrainingRows, no_rows, weights_of
from kernelgrad.types import AnyArray, Float64Array
from kernelgrad.validation import DataError, check_name, check_real

_RATIO = 0.5  # C* over C


@parameters
class SemiSupervisedKernelClassifier(BaseClassifier, BaseKernelEstimator):
    r"""Kernel support vector machine of few labelled and many unlabelled rows.

    All solvers but the default minimise, for each class against the rest,

    .. math:: \frac{1}{2} \|f\|^2 + C \sum_{\text{labelled}} w_i\,l(y_i, f(x_i))
              + C^* W_l \frac{1}{W_u} \sum_{\text{unlabelled}} w_i\,u(f(x_i))

    with W_l and W_u the sums of the weights of either kind: the paper's objective (Section 3.1)
    with its C divided by the number of labelled rows, so that C is that of scikit-learn's SVC.
    The unlabelled loss pushes the boundary out of regions with many rows. This lowers the error
    where classes are clusters and can raise it elsewhere: compare with ``C_star=0`` on held-out
    labels.

    Parameters
    ----------
    loss : str or Loss, default="hinge"
        Loss of labelled rows, with one output for each class: ``"hinge"``, ``"squared_hinge"``,
        ``"smoothed_hinge"``, ``"logistic"`` (also named ``"log_loss"``) or ``"squared"``.
    unlabelled_loss : str or UnlabelledLoss, default="symmetric_hinge"
        ``"symmetric_hinge"``, ``"squared_symmetric_hinge"``, ``"ramp"`` or ``"gaussian"``
        (Table 2; the last is its differentiable approximation). An object sets further
        parameters: ``Ramp(s=-0.5)``.
    kernel, gamma, bandwidth_factor
        As in :class:`KernelClassifier`, without ``gamma="auto"``. Rules for the bandwidth use
        labelled and unlabelled rows.
    solver : str or Solver, default="auto"
        ``"auto"`` is ``"soft_labels"`` for rows in memory: ridge regression to the labels that
        a supervised machine gives all rows, without `unlabelled_loss`. It is ``"tsg"``, the
        paper's triply stochastic gradients, for rows on disk, for `partial_fit`, and if
        `unlabelled_loss` is not the default, with ``"bgs3vm"`` in its place for kernels without
        random features. docs/semi_supervised.md lists all names.
    C : float > 0, default=10.0
        Cost of the loss of a labelled row, as in SVC.
    C_star : float >= 0, "auto" or "paper", default="auto"
        Cost of the mean loss of unlabelled rows in units of C; ``"auto"`` is ``C / 2``, and
        ``"paper"`` is ``C W_l / W_u`` (in `partial_fit`, which does not know W_u, ``C / 2``).
    max_iter : int >= 1, default=200
        Iterations: of ``"tsg"`` one batch of either kind and one block of features, so that
        time grows with their square; of ``"soft_labels"`` the machine and at most eight rounds.
    early_stopping : bool, default=False
        Choose the number of iterations by cross-validation on the labelled rows, whose mean
        accuracies are ``history_["cv_accuracy"]``, or on the `X_val` of `fit`.
    probability : bool, default=False
        Calibrate `predict_proba` by a sigmoid of each output on the rows (at most 5,000) that
        such a cross-validation holds out.
    n_folds : int >= 2, default=5
        Number of folds of the cross-validation of `early_stopping` and `probability`.
    class_weight : dict, "balanced" or None, default=None
        As in scikit-learn, of labelled rows.
    fit_intercept : bool, default=True
        A constant b beside f: the mean of the labels, which ``"block_descent"`` fits further.
    metric : array or None, default=None
        Weights of the scaled columns (d,), or a matrix (d, r) that they are multiplied by.
    standardize
        As in :class:`KernelNoveltyDetector`.
    categorical_features, memory_limit, time_limit, warm_start, random_state, verbose, callbacks
        As in :class:`KernelClassifier`.

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
        The class labels in sorted order.
    transduction_ : ndarray (n,)
        A label for each row of `fit`, rows of X before those of X_unlabelled: the given one, or
        the predicted one. Only after a fit to arrays; not part of a model file.
    calibration_ : float64 array (C, 2)
        Slopes and intercepts of the sigmoids, with ``probability=True``.
    labelled_weight_ : float
        W_l, of all rows that have been fitted.
    expansion_, kernel_, intercept_, n_random_features_, n_support_, n_iter_, history_,
    fit_status_, best_score_, n_features_in_, feature_names_in_
        As in :class:`KernelClassifier`; ``best_score_`` is that on the `X_val` of `fit`, or of
        cross-validation.

    See Also
    --------
    KernelClassifier : Where all rows have labels.

    Notes
    -----
    With no unlabelled row the fit is supervised, and a warning says so. Another warning appears
    when the class fractions predicted for unlabelled rows are far from those of the labels.

    References
    ----------
    Geng, Gu, Li, Shi, Zheng and Huang (2019), "Scalable Semi-Supervised SVM via Triply
    Stochastic Gradients".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from kernelgrad import SemiSupervisedKernelClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> marked = np.where(np.arange(len(y)) < 100, y, -1)
    >>> model = SemiSupervisedKernelClassifier(random_state=0).fit(X, marked)
    >>> bool(np.mean(model.transduction_[100:] == y[100:]) > 0.85)
    True
    """

    loss: str | Loss = anything(default="hinge", kw_only=False)
    unlabelled_loss: str | UnlabelledLoss = anything(default="symmetric_hinge", kw_only=False)
    kernel: Any = anything(default="rbf", kw_only=False)
    C: float = real(default=10.0, low=0, low_open=True)
    C_star: float | str = anything(default="auto")
    max_iter: int = integer(default=200, low=1)
    early_stopping: bool = boolean(default=False)
    probability: bool = boolean(default=False)
    n_folds: int = integer(default=5, low=2)
    fit_intercept: bool = boolean(default=True)
    warm_start: bool = boolean(default=False)

    _sibling = "KernelRegressor"
    _task_type = MarkedClassification
    _calibrates = False  # its own cross-validation does
    _targets_encode = False  # most rows have no target

    # -- parameters --------------------------------------------------------------------

    def _make_parts(self) -> Parts:
        if isinstance(self.C_star, str):
            check_name(self.C_star, ("auto", "paper"), "rule for C_star")
        else:
            check_real(self.C_star, "C_star", low=0)
        losses.get_unlabelled_loss(self.unlabelled_loss)
        return super()._make_parts()

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        if self._auto_solver:
            return get_solver("soft_labels")
        solver = get_solver(self.solver)
        if isinstance(solver, DSG) and not solver.marks:
            raise ValueError(
                f"solver {solver.name!r} does not tell labelled rows from others; take "
                "'tsg', which makes the same steps on batches of either kind."
            )
        return solver

    def _automatic(self, parts: Parts, rows: TrainingRows, *, stream: bool) -> Choice:
        has_features = parts.kernel.has_random_features
        if stream or not rows.in_memory:
            why = "a stream" if stream else "rows on disk"
            if has_features:
                return get_solver("tsg"), why
            return get_solver("bgs3vm"), f"{why}, a kernel without random features"
        # soft labels have no unlabelled loss
        asked = self.unlabelled_loss != "symmetric_hinge" and has_features
        return get_solver("tsg" if asked else "soft_labels"), "rows in memory"

    _kept: ClassVar[dict[str, Check]] = {"labelled_weight_": check_number}

    def _make_loss(self, n_classes: int) -> Loss:
        # one-vs-rest: a row without a label has no place in a multinomial loss
        loss = losses.get_loss(self.loss, task="classification", n_classes=2)
        if isinstance(loss, losses.Perceptron):
            raise ValueError(
                "loss='perceptron' has no margin, which unlabelled rows are pushed beyond; "
                "take 'hinge'."
            )
        return loss

    def _alpha_for(self, rows: TrainingRows, *, stream: bool = False) -> float:
        return float("nan")  # comes from C and the labelled rows

    def _problem(self, kernel: Kernel, loss: Loss, n_outputs: int, alpha: float) -> Problem:
        unlabelled = losses.get_unlabelled_loss(self.unlabelled_loss)
        joint = losses.SemiSupervised(loss, unlabelled, self._ratio(np.nan, np.nan))
        problem = super()._problem(kernel, joint, n_outputs, alpha)
        return replace(problem, max_iter=int(self.max_iter))

    def _ratio(self, labelled: float, unlabelled: float) -> float:
        """Return C*/C; sums of weights are for the paper's."""
        if self.C_star == "auto":
            return _RATIO
        if self.C_star == "paper":
            known = np.isfinite(labelled) and unlabelled > 0
            return labelled / unlabelled if known else _RATIO
        return float(self.C_star) / float(self.C)

    def _weighted(self, problem: Problem, labelled: float, unlabelled: float) -> Problem:
        """Return the problem for these sums of weights."""
        loss = problem.loss
        assert isinstance(loss, losses.SemiSupervised)
        ratio = self._ratio(labelled, unlabelled)
        return replace(
            problem,
            loss=losses.SemiSupervised(loss.labelled, loss.unlabelled, ratio),
            alpha=1.0 / (2.0 * float(self.C) * labelled),
            kind_weights=(labelled, unlabelled),
        )

    def _check_streams(self) -> None:
        try:
            super()._check_streams()
        except AttributeError:
            fitted = getattr(self, "solver_", None)
            name = fitted.name if self._auto_solver and fitted is not None else self.solver
            raise AttributeError(
                f"solver {getattr(name, 'name', name)!r} needs all rows at once and has no "
                "partial_fit; for streams take a new estimator with solver='tsg', 'fr_s3vm' or "
                "'bgs3vm', or begin with partial_fit where the solver is 'auto'."
            ) from None

    # -- rows --------------------------------------------------------------------------

    def _loads(self, source: BatchSource) -> bool:
        return False  # rows of one kind may be of a source, those of the other of arrays

    def _array_rows(self, parts: Parts, given: Given, how: Reading) -> TrainingRows:
        X, y, sample_weight = given[:3]
        fresh, declared = how.fresh, how.declared
        raw = partly_labelled.labels_of(y)
        known = partly_labelled.is_labelled(raw, self._signed(raw, declared, fresh))
        if fresh and declared is None and not known.any():
            raise DataError(
                f"y has no label: all {len(raw)} rows are marked as unlabelled (-1, None "
                "or NaN); at least one row of each class must have its label."
            )
        filled = raw
        if not known.all():
            filled = raw.copy()
            filled[~known] = raw[known][0] if known.any() else 0
        X, filled = self._coded(X, filled, how)
        X = self._encode_rows(X, fresh=fresh)
        self._check_rows(parts, X)
        labels = partly_labelled.plain(np.asarray(filled)[known])
        try:
            if len(labels):
                labels = self._check_targets(labels)
            task = self._learn(labels, declared) if fresh else self._task()
        except DataError as error:
            raise partly_labelled.explained(error, raw) from None
        codes = np.full(len(raw), NO_LABEL)
        if len(labels):
            codes[known] = task.codes(labels)
        weight = support.checked_weights(sample_weight, X, task.class_factor(codes))
        return TrainingRows(ArraySource(X, codes, weight, checked=True), task, True)

    def _signed(self, y: AnyArray, declared: AnyArray | None, fresh: bool) -> bool:
        """Whether -1 is a class and no mark."""
        if fresh and declared is None:
            return partly_labelled.is_signed(y)
        classes = self.classes_ if declared is None else declared
        return -1 in np.asarray(classes).tolist()

    def _learn(
        self, targets: AnyArray | BatchSource, declared: AnyArray | None
    ) -> Classification:
        if declared is not None and not isinstance(targets, BatchSource) and not len(targets):
            targets = declared[:0]
        return super()._learn(targets, declared)

    def _labels_of_source(
        self, source: BatchSource, declared: AnyArray | None
    ) -> tuple[AnyArray, AnyArray]:
        found, counts = super()._labels_of_source(source, declared)
        known = partly_labelled.is_labelled(found, self._signed(found, declared, True))
        if declared is None and not known.any():
            raise DataError(
                "The source has no label: all rows are marked by -1; at least one row of each "
                "class must have its own."
            )
        return found[known], counts[known]

    def _all_rows(self, parts: Parts, given: Given, *, fresh: bool) -> SemiSupervisedRows:
        X_unlabelled = given.others
        rows = self._rows(parts, given, Reading(fresh))
        if X_unlabelled is not None and self._is_precomputed:
            raise ValueError(
                "kernel='precomputed' takes one kernel matrix of all rows; mark rows without a "
                "label in y, and leave X_unlabelled out."
            )
        source, task, extra = rows.source, rows.task, self._extra_rows(parts, X_unlabelled)
        assert isinstance(task, MarkedClassification)
        if rows.encoded and not isinstance(X_unlabelled, BatchSource):
            whole = partly_labelled.one_source([source] if extra is None else [source, extra])
            return SemiSupervisedRows(whole, task, True, unlabelled=None, given=whole)
        codes = [y if rows.encoded else task.internal(y) for y in source.target_chunks()]
        known = np.flatnonzero(np.concatenate(codes) != NO_LABEL)
        if len(known) == source.n_rows:
            return SemiSupervisedRows(source, task, rows.encoded, unlabelled=extra)
        if rows.encoded:
            raise ValueError(
                "y marks rows as unlabelled, and X_unlabelled is a source; put all "
                "unlabelled rows into the source."
            )
        if extra is not None:
            raise ValueError(
                "The source has rows marked as unlabelled, and X_unlabelled was given too; put "
                "all unlabelled rows into one of them."
            )
        batch = source.take(known)
        labelled = ArraySource(batch.X, batch.y, batch.sample_weight, checked=True)
        return SemiSupervisedRows(labelled, task, unlabelled=source, marked=known)

    def _extra_rows(self, parts: Parts, extra: Any) -> BatchSource | None:
        """Return X_unlabelled, checked, as a source."""
        if extra is None:
            return None
        if isinstance(extra, BatchSource):
            support.check_columns(self, extra)
            if extra.n_rows == 0:
                raise DataError("X_unlabelled has no rows.")
            return self._encoded_source(extra)
        more = self._matrix(extra)
        self._check_rows(parts, more)
        return ArraySource(more, checked=True)

    # -- fitting -----------------------------------------------------------------------

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        X_unlabelled: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), DataFrame, or BatchSource
            A source carries its own targets and weights. Its labelled rows are kept in memory,
            the others are read in chunks.
        y : array-like (n,); None with a BatchSource
            Labels. Rows without one are marked by -1 where labels are numbers, by None or NaN
            elsewhere (in sources by -1 only). Where y holds -1 and 1 and nothing else, these
            are two classes; give the other rows as `X_unlabelled`. There must be two classes,
            and a labelled row of each.
        sample_weight : array-like (n,) or None
            Non-negative; a weight of 2 is a row given twice, 0 is a row left out.
        X_unlabelled : array-like or CSR matrix (m, d), BatchSource, or None
            Further unlabelled rows; targets of a source are ignored. y may still mark
            unlabelled rows of X, but not if `X_unlabelled` is a source.
        X_val, y_val, sample_weight_val : as X, y and sample_weight, or None
            Rows with labels for validation, which are not fitted:
            ``history_["validation_score"]`` holds the accuracy of each iteration on them. With
            ``early_stopping=True`` they replace the cross-validation, and the best iterate is
            kept; otherwise they do not change the model.
        """
        given = Given(X, y, sample_weight, X_unlabelled)
        return self._fit_checked(given, Given(X_val, y_val, sample_weight_val))

    def _fit(self, parts: Parts, given: Given, apart: Given) -> TrainingRows:
        rows = super()._fit(parts, given, apart)
        self._transduce(rows)
        return rows

    def _plan(self, parts: Parts, rows: TrainingRows, chosen: Choice, *, warm: bool) -> Plan:
        assert isinstance(rows, SemiSupervisedRows)
        weights, others = rows.class_weights(), rows.unlabelled_weight()
        rows.task.require_all(weights)
        self.labelled_weight_ = float(weights.sum())
        posed = self._pose(parts, rows, chosen, Reading(True)).problem
        problem = self._weighted(posed, self.labelled_weight_, others)
        problem = replace(problem, n_rows=rows.n_train + rows.n_unlabelled)
        if others == 0:
            rows = replace(rows, unlabelled=None, marked=no_rows())
            problem, chosen = _supervised(problem, chosen)
        plan = Plan(rows, problem, *chosen, max_iter=int(self.max_iter))
        solver = plan.solver
        self._check_plan(plan)
        if not solver.streams and not rows.in_memory:
            raise DataError(
                f"solver {solver.name!r} keeps all rows, which are on disk here; load them "
                "into arrays, or take solver='tsg'."
            )
        if hasattr(self, "calibration_"):  # it belongs to another function
            del self.calibration_
        if warm and self.probability:
            raise ValueError(
                "probability=True calibrates one whole fit, not the continued one of "
                "warm_start=True; set one of them to False."
            )
        if rows.apart is not None:
            plan = replace(plan, validation=self._validation(rows, warm=warm))
        stops = self.early_stopping and rows.apart is None
        if warm or not (stops or self.probability):
            return plan
        scores, calibration = self._recalled(
            "folds",
            lambda: cross_validate(self, plan, rows),
            lambda it: ({"scores": it[0]}, {"calibration": it[1]}),
            partial(self._restored_folds, plan),
        )
        if self.probability:
            self.calibration_: Float64Array = calibration
        plan = replace(plan, found={"cv_accuracy": scores})
        if not stops:
            return plan
        return replace(plan, max_iter=1 + int(np.argmax(scores)), best_score=max(scores))

    def _restored_folds(self, plan: Plan, record: Record) -> tuple[list[float], Float64Array]:
        """Return what :func:`cross_validate` found in a fit that is resumed."""
        scores = record.take("scores", partial(check_numbers, n=plan.max_iter))
        C = plan.problem.n_outputs if self.probability else 0
        return scores, record.array("calibration", C, 2)

    def _transduce(self, rows: TrainingRows) -> None:
        """Label the given rows; warn where the classes of unlabelled rows are other ones."""
        if hasattr(self, "transduction_"):
            del self.transduction_
        assert isinstance(rows, SemiSupervisedRows)
        if rows.given is None:
            return
        batch = rows.given.read(0, rows.given.n_rows)
        labels = np.array(batch.y)
        others = np.flatnonzero(labels == NO_LABEL)
        if len(others):
            labelled = labels[labels != NO_LABEL]
            labels[others] = decide(self.expansion_.raw_prediction(batch.X[others]))
            warn_of_drift(self.classes_, labels[others], labelled)
        self.transduction_: AnyArray = self.classes_[labels]

    @available_if(can_stream)
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Take further steps, one for each batch of the solver, in the order given.

        Rows with and without labels may come in any mixture; either kind of a batch counts
        half. The penalty follows the number of labelled rows so far. Parameters are those of
        :meth:`KernelClassifier.partial_fit`.
        """
        super().partial_fit(X, y, classes, sample_weight)
        for name in ("transduction_", "calibration_"):  # they belong to another function
            if hasattr(self, name):
                delattr(self, name)
        return self

    def _pose(self, parts: Parts, rows: TrainingRows, chosen: Choice, how: Reading) -> Posed:
        posed = super()._pose(parts, rows, chosen, how)
        if not how.stream:
            return posed
        total = float(getattr(self, "labelled_weight_", 0.0))
        for batch in rows.source.chunks():  # C times the labelled rows so far
            _, codes, w, _ = rows.usable(batch)
            total += float(w[codes != NO_LABEL].sum())
        self.labelled_weight_ = total
        problem = replace(posed.problem, max_iter=None)
        return Posed(self._weighted(problem, max(total, 1.0), np.nan), {})

    # -- predictions -------------------------------------------------------------------

    @as_numpy
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy on rows that have a label, of arrays or of a BatchSource."""
        X, y, sample_weight = self._lazy(X, y, sample_weight)
        no_label = DataError("No row has a label to score against: all of y are marks.")
        if isinstance(X, BatchSource):
            hits, total = self._summed(X, "_hits")
            if not total > 0:
                raise no_label
            return float(hits / total)
        if y is None:
            return super().score(X, y, sample_weight)
        check_is_fitted(self, "expansion_")
        raw = partly_labelled.labels_of(y)
        known = np.flatnonzero(partly_labelled.is_labelled(raw, self._signed(raw, None, False)))
        if len(known) == len(raw):
            return super().score(X, y, sample_weight)
        if len(known) == 0:
            raise no_label
        check_consistent_length(X, raw, sample_weight)
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return super().score(
            _safe_indexing(X, known), partly_labelled.plain(raw[known]), weight
        )

    def _hits(self, batch: Batch, raw: Float64Array) -> Float64Array:
        codes = self._task().internal(np.asarray(batch.y))
        w = weights_of(batch) * (codes != NO_LABEL)
        return np.array([w @ (decide(raw) == codes), w.sum()])

    @available_if(can_tell_proba)
    @by_blocks
    def predict_proba(self, X: Any) -> Float64Array:
        """Return class probabilities (n, n_classes), as ``probability=True`` asked for.

        One-vs-rest probabilities are normalised to sum 1; `predict` returns the class of the
        largest one. Not available after `partial_fit` alone, which has no rows to calibrate on.
        """
        check_is_fitted(self, "calibration_")
        return super().predict_proba(X)

    def _probabilities(self, raw: Float64Array) -> Float64Array:
        p = sigmoid_proba(self.calibration_, raw)
        return keep_argmax(p, self._task().decide(raw))

    def _check_proba(self) -> None:
        if not self.probability:
            raise AttributeError(
                "predict_proba is made on request; set probability=True, which fits the model "
                "n_folds times more to calibrate it."
            )

    def _extra_arrays(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        found = hasattr(self, "calibration_")
        return {}, {"calibration_": self.calibration_} if found else {}

    def _restore_extra(self, record: Record) -> None:
        if "calibration_" in record:
            self.calibration_ = record.array("calibration_", "C", 2)


def _supervised(problem: Problem, chosen: Choice) -> tuple[Problem, Choice]:
    """Return what fits the labelled rows alone."""
    warn_caller(
        "There are no unlabelled rows: the fit is supervised. Mark rows by -1 or None in "
        "y, or give X_unlabelled."
    )
    solver = chosen[0]
    if solver.streams:
        return problem, chosen
    loss = problem.loss
    assert isinstance(loss, losses.SemiSupervised)
    if solver.name != "block_descent":
        solver = BlockDescent()
    # without a second kind of rows the labelled ones are all of the mean, not half of it
    problem = replace(problem, loss=loss.labelled, alpha=2.0 * problem.alpha)
    return problem, (solver, "no unlabelled rows")
