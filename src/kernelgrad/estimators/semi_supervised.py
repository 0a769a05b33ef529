"""Semi-supervised kernel classification."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    check_is_fitted,
    validate_data,
)

from kernelgrad._typing import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad._validation import DataError, check_bool, check_int, check_name, check_real
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource, BatchSource
from kernelgrad.estimators._folds import folds, sigmoids
from kernelgrad.estimators._mixed import (
    NO_LABEL,
    MixedRows,
    Targets,
    is_signed,
    labels_of,
    plain,
    stacked,
    unmarked,
)
from kernelgrad.estimators._search import GIVEN
from kernelgrad.estimators._support import canonical_rows, with_callbacks
from kernelgrad.estimators._tasks import Classification, decide
from kernelgrad.estimators.base import can_stream
from kernelgrad.estimators.kernel import BaseKernelEstimator
from kernelgrad.losses import (
    Loss,
    Perceptron,
    SemiSupervised,
    UnlabelledLoss,
    encode_labels,
    get_loss,
    get_unlabelled_loss,
)
from kernelgrad.solvers import (
    DSG,
    TSG,
    CachedBlockDescent,
    Problem,
    Solver,
    State,
    TrainBatch,
    check_capabilities,
    get_solver,
)

_RATIO = 0.5  # C* over C
_DRIFT, _ERRORS = 0.1, 5.0  # of class fractions, and in their standard errors


def _gives_proba(estimator: SemiSupervisedKernelClassifier) -> bool:
    if estimator.probability:
        return True
    raise AttributeError(
        "predict_proba is made on request; set probability=True, which fits the model n_folds "
        "times more to calibrate it."
    )


class SemiSupervisedKernelClassifier(Classification, BaseKernelEstimator):
    r"""Kernel support vector machine of few labelled and many unlabelled rows.

    All solvers but the default minimise, for each class against the rest,

    .. math:: \frac{1}{2} \|f\|^2 + C \sum_{\text{labelled}} w_i\,l(y_i, f(x_i))
              + C^* W_l \frac{1}{W_u} \sum_{\text{unlabelled}} w_i\,u(f(x_i))

    with W_l and W_u the sums of the weights of either kind: the paper's objective (Section 3.1)
    with its C divided by the number of labelled rows, so that C is that of scikit-learn's SVC.
    The second loss pushes the boundary out of places with many rows. That pays where classes
    are clusters and can cost elsewhere: compare with ``C_star=0`` on held-out labels.

    Parameters
    ----------
    loss : str or Loss, default="hinge"
        Of labelled rows, one output for each class: ``"hinge"``, ``"squared_hinge"``,
        ``"smoothed_hinge"``, ``"logistic"`` (also by the name ``"log_loss"``) or
        ``"squared"``.
    unlabelled_loss : str or UnlabelledLoss, default="symmetric_hinge"
        ``"symmetric_hinge"``, ``"squared_symmetric_hinge"``, ``"ramp"`` or ``"gaussian"``
        (Table 2; the last is its differentiable approximation). An object where a name is not
        enough: ``Ramp(s=-0.5)``.
    kernel, gamma, bandwidth_factor
        As in :class:`KernelClassifier`, without ``gamma="auto"``. The bandwidth sees labelled
        and unlabelled rows.
    solver : str or Solver, default="auto"
        ``"soft_labels"``: the sum of a supervised machine and of ridge regression to its sides
        of all rows (see :class:`~kernelgrad.solvers.SoftLabels`), without `unlabelled_loss`.
        ``"tsg"``: the paper's triply stochastic gradients on the objective above, linear in
        the rows of a pass and flat in memory, also from disk. ``"auto"`` is the first where
        rows are in memory, on the data tried the one with the lower error, and the second on
        disk, for `partial_fit`, and where `unlabelled_loss` is not the default; there
        ``"bgs3vm"`` for kernels without random features. ``"cached"``: the same objective to
        its nearest minimum, where responses of all rows fit in memory. The paper's rivals:
        ``"fr_s3vm"`` (fixed random features), ``"bgs3vm"`` (budgets of support rows),
        ``"cccp_s3vm"`` and ``"s3vm_light"`` (label switching), the last two for few thousand
        rows.
    C : float > 0, default=10.0
        Cost of the loss of a labelled row, as in SVC.
    C_star : float >= 0, "auto" or "paper", default="auto"
        Cost of the mean loss of unlabelled rows in units of C; ``"auto"`` is ``C / 2``.
        ``"paper"`` is ``C W_l / W_u``, which with few labels hardly differs from 0. With
        `partial_fit`, which does not know W_u, it is ``C / 2`` too.
    max_iter : int >= 1, default=200
        Iterations: of ``"tsg"`` one batch of either kind and one block of features, so that
        time grows with its square. Of ``"soft_labels"`` the first is the supervised machine,
        the next are its rounds, at most nine in all.
    early_stopping : bool, default=False
        Choose the number of iterations, up to ``max_iter``, by cross-validation on the labelled
        rows: ``n_folds`` more fits, of which ``history_["cv_accuracy"]`` holds the mean
        accuracy after each iteration.
    probability : bool, default=False
        Calibrate `predict_proba` by a sigmoid of each output on the same held-out responses
        (at most 5,000 rows).
    n_folds : int >= 2, default=5
    class_weight : dict, "balanced" or None, default=None
        As in scikit-learn, of labelled rows.
    fit_intercept : bool, default=True
        A constant b beside f: the mean of the labels, which ``"cached"`` fits further.
    standardize : bool, default=False
        Divide columns by their standard deviation on the first batch, inside the model.
    memory_limit, warm_start, random_state, verbose, callbacks
        As in :class:`KernelClassifier`.

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
    transduction_ : ndarray (n,)
        A label for each row of `fit`, rows of X before those of X_unlabelled: the given one, or
        the predicted one. Only after a fit to arrays; not part of a model file.
    calibration_ : float64 array (C, 2)
        Slopes and intercepts of the sigmoids, with ``probability=True``.
    labelled_weight_ : float
        W_l, of all rows that have been fitted.
    expansion_, kernel_, intercept_, n_random_features_, n_support_, n_iter_, history_, \
fit_status_, best_score_, n_features_in_, feature_names_in_
        As in :class:`KernelClassifier`; ``best_score_`` is that of cross-validation.

    Notes
    -----
    With no unlabelled row the fit is supervised, and a warning says so. A warning also tells
    when predicted classes of the unlabelled rows are far from those of the labels.

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

    def __init__(
        self,
        loss: str | Loss = "hinge",
        unlabelled_loss: str | UnlabelledLoss = "symmetric_hinge",
        kernel: Any = "rbf",
        *,
        gamma: float | str = "median",
        bandwidth_factor: float = 1.0,
        solver: Any = "auto",
        C: float = 10.0,
        C_star: float | str = "auto",
        max_iter: int = 200,
        early_stopping: bool = False,
        probability: bool = False,
        n_folds: int = 5,
        class_weight: Any = None,
        fit_intercept: bool = True,
        standardize: bool = False,
        memory_limit: float | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        self.loss = loss
        self.unlabelled_loss = unlabelled_loss
        self.kernel = kernel
        self.gamma = gamma
        self.bandwidth_factor = bandwidth_factor
        self.solver = solver
        self.C = C
        self.C_star = C_star
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.probability = probability
        self.n_folds = n_folds
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    _sibling = "KernelRegressor"

    @property
    def _alpha(self) -> float:
        return float("nan")  # comes from C and the labelled rows

    # -- parameters --------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_real(self.C, "C", low=0, low_open=True)
        if isinstance(self.C_star, str):
            check_name(self.C_star, ("auto", "paper"), "rule for C_star")
        else:
            check_real(self.C_star, "C_star", low=0)
        check_bool(self.probability, "probability")
        check_int(self.n_folds, "n_folds", low=2)
        get_unlabelled_loss(self.unlabelled_loss)

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        if not self._auto_solver:
            solver = get_solver(self.solver)
            if isinstance(solver, DSG) and not isinstance(solver, TSG):
                raise ValueError(
                    f"solver {solver.name!r} does not tell labelled rows from others; take "
                    "'tsg', which makes the same steps on batches of either kind."
                )
            return solver
        # the first has no unlabelled loss: who asks for one gets it
        asked = self.unlabelled_loss != "symmetric_hinge"
        asked = asked and self._make_kernel().has_random_features
        return get_solver("tsg" if asked else "soft_labels")

    def _select_solver(
        self, loss: Loss, sources: tuple[BatchSource, ...], *, stream: bool = False
    ) -> tuple[Solver[Any], str]:
        if not self._auto_solver:
            return self._make_solver(), GIVEN
        if stream or not all(source.in_memory for source in sources):
            why = "a stream" if stream else "rows on disk"
            if self._make_kernel().has_random_features:
                return get_solver("tsg"), why
            return get_solver("bgs3vm"), f"{why}, a kernel without random features"
        return self._make_solver(), "rows in memory"

    def _get_loss(self, n_classes: int) -> Loss:
        # one-vs-rest: a row without a label has no place in a multinomial loss
        loss = get_loss(self.loss, task="classification", n_classes=2)
        if isinstance(loss, Perceptron):
            raise ValueError(
                "loss='perceptron' has no margin, which unlabelled rows are pushed beyond; "
                "take 'hinge'."
            )
        return loss

    def _problem(self, loss: Loss) -> Problem:
        joint = SemiSupervised(loss, get_unlabelled_loss(self.unlabelled_loss), self._ratio())
        return replace(super()._problem(joint), max_iter=int(self.max_iter))

    def _ratio(self, labelled: float = np.nan, unlabelled: float = np.nan) -> float:
        """Return C*/C; sums of weights are for the paper's."""
        if self.C_star == "auto":
            return _RATIO
        if self.C_star == "paper":
            known = np.isfinite(labelled) and unlabelled > 0
            return labelled / unlabelled if known else _RATIO
        return float(self.C_star) / float(self.C)

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

    def _with_weights(self, problem: Problem, labelled: float, unlabelled: float) -> Problem:
        loss = problem.loss
        assert isinstance(loss, SemiSupervised)
        ratio = self._ratio(labelled, unlabelled)
        return replace(
            problem,
            loss=SemiSupervised(loss.labelled, loss.unlabelled, ratio),
            alpha=1.0 / (2.0 * float(self.C) * labelled),
            kind_weights=(labelled, unlabelled),
        )

    @property
    def _signed(self) -> bool:
        """Whether -1 is a class and no mark."""
        return bool(np.isin(self.classes_, [-1]).any())

    def _model_loss(self, loss: Loss) -> Loss:
        return loss.labelled if isinstance(loss, SemiSupervised) else loss

    # -- rows --------------------------------------------------------------------------

    def _adopt_arrays(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool
    ) -> tuple[Matrix, AnyArray, Float64Array, Loss]:
        raw = labels_of(y)
        if not reset:
            signed = self._signed
        elif hasattr(self, "_declared"):
            signed = bool(np.isin(self._declared, [-1]).any())
        else:
            signed = is_signed(raw)
        known = unmarked(raw, signed)
        filled = raw
        if not known.all():
            if not known.any() and not hasattr(self, "_declared") and reset:
                raise DataError(
                    f"y has no label: all {len(raw)} rows are marked as unlabelled (-1, None "
                    "or NaN); at least one row of each class must have its label."
                )
            filled = raw.copy()
            filled[~known] = raw[known][0] if known.any() else 0
        X, filled = validate_data(
            self, X, filled, reset=reset, accept_sparse="csr", dtype="numeric"
        )
        self._check_rows(X)
        self._internal_y = True
        codes = np.full(len(filled), NO_LABEL)
        loss = self.loss_ if not reset else None
        if loss is None and not known.any():
            loss = self._set_classes(self._declared)
            self._set_class_weights(np.zeros(len(self.classes_)))
        elif known.any():
            labels = np.asarray(filled)[known]
            if labels.dtype == object:
                labels = plain(labels)
            try:
                codes[known], loss = self._prepare_targets(labels, reset=reset)
            except DataError as error:
                raise _explained(error, raw) from None
        weight = self._checked_weights(sample_weight, X, codes)
        assert loss is not None
        return X, codes, weight, loss

    def _prepare_source(self, source: BatchSource) -> Loss:
        """Learn the classes from the labels of a source, or from those that are declared."""
        summary = source.summarize_target()
        if summary.classes is None:
            raise DataError(
                "The target has more than 1,000 distinct values; classes are needed here."
            )
        found, counts = np.asarray(summary.classes), np.asarray(summary.counts)
        declared = getattr(self, "_declared", None)
        signed = is_signed(found) if declared is None else bool(np.isin(declared, [-1]).any())
        known = unmarked(found, signed)
        if declared is None and not known.any():
            raise DataError(
                "The source has no label: all rows are marked by -1; at least one row of each "
                "class must have its own."
            )
        self._internal_y = False
        loss = self._set_classes(found[known] if declared is None else declared)
        total = np.zeros(len(self.classes_))
        total[self._codes(found[known])] = counts[known]
        self._set_class_weights(total)
        return loss

    def _codes(self, y: AnyArray) -> AnyArray:
        """Return class codes of raw labels, -1 of rows without one."""
        y = labels_of(y)
        known = unmarked(y, self._signed)
        codes = np.full(len(y), NO_LABEL)
        labels = plain(y[known]) if y.dtype == object else y[known]
        if known.any():
            codes[known] = super()._codes(labels)
        return codes

    def _encode(self, y: AnyArray, loss: Loss) -> FloatArray:
        codes = np.asarray(y)
        known = codes != NO_LABEL
        out = np.zeros((len(codes), self._n_outputs), np.float32)
        out[known] = encode_labels(codes[known], len(self.classes_), self._model_loss(loss))
        return out

    def _class_factor(self, y: AnyArray) -> Float64Array | None:
        factor = super()._class_factor(y)
        return None if factor is None else np.where(np.asarray(y) == NO_LABEL, 1.0, factor)

    def _mixed_arrays(
        self, X: Any, y: Any, sample_weight: Any, extra: Any, *, reset: bool
    ) -> tuple[MixedRows, Loss]:
        """Return the rows of arrays; `extra` are more rows without labels."""
        X, codes, weight, loss = self._adopt_arrays(X, y, sample_weight, reset=reset)
        if extra is not None:
            self._check_extra()
            more = validate_data(self, extra, reset=False, accept_sparse="csr", dtype="numeric")
            self._check_rows(more)
            X = stacked([X, more])
            codes = np.concatenate([codes, np.full(more.shape[0], NO_LABEL)])
            weight = np.concatenate([weight, np.ones(more.shape[0])])
        self._given = X, codes
        limit = self._make_solver().resolve_batch_size(None)
        if self._orders_rows:
            X, codes, weight = canonical_rows(X, codes, weight, merge=X.shape[0] <= limit)
        known = codes != NO_LABEL
        weights = np.bincount(codes[known], weight[known], len(self.classes_)).astype(float)
        self._check_classes(weights)
        at = np.flatnonzero(known), np.flatnonzero(~known)
        labelled = ArraySource(X[at[0]], codes[at[0]], weight[at[0]], checked=True)
        others = None
        if len(at[1]):
            others = ArraySource(X[at[1]], None, weight[at[1]], checked=True)
        targets = self._code_targets(loss)
        columns = None if self._orders_rows else at
        return MixedRows(labelled, others, None, targets, columns), loss

    def _check_classes(self, weights: Float64Array) -> None:
        if (weights > 0).all():
            return
        label = self.classes_[int(np.argmin(weights))].item()
        raise DataError(
            f"Class {label!r} has no labelled row of positive weight; label some rows of each "
            "class, or leave the class out."
        )

    def _targets(self, loss: Loss) -> Targets:
        return Targets(
            codes=self._codes,
            factor=self._class_factor,
            encode=lambda codes: self._encode(codes, loss),
            n_outputs=self._n_outputs,
        )

    def _mixed_sources(self, X: Any, extra: Any, *, reset: bool) -> tuple[MixedRows, Loss]:
        """Return the rows of a source, whose targets may hold marks, and of another one."""
        self._adopt_source(X, reset=reset)
        if extra is not None:
            extra = self._extra_source(extra)
        loss = self._prepare_source(X) if reset else self.loss_
        signed = self._signed
        marks = np.concatenate([unmarked(np.asarray(y), signed) for y in X.target_chunks()])
        if marks.all():
            return MixedRows(X, extra, None, self._targets(loss)), loss
        if extra is not None:
            raise ValueError(
                "The source has rows marked as unlabelled, and X_unlabelled was given too; put "
                "all unlabelled rows into one of them."
            )
        rows = np.flatnonzero(marks)
        batch = X.take(rows)
        labelled = ArraySource(batch.X, batch.y, batch.sample_weight, checked=True)
        return MixedRows(labelled, X, rows, self._targets(loss)), loss

    def _code_targets(self, loss: Loss) -> Targets:
        """Return what becomes of codes whose weights are final."""
        return replace(self._targets(loss), codes=np.asarray, factor=lambda codes: None)

    def _check_extra(self) -> None:
        if self._is_precomputed:
            raise ValueError(
                "kernel='precomputed' takes one kernel matrix of all rows; mark rows without a "
                "label in y, and leave X_unlabelled out."
            )

    def _extra_source(self, extra: Any) -> BatchSource:
        self._check_extra()
        if isinstance(extra, BatchSource):
            self._check_source_columns(extra)
            if extra.n_rows == 0:
                raise DataError("X_unlabelled has no rows.")
            return extra
        more = validate_data(self, extra, reset=False, accept_sparse="csr", dtype="numeric")
        return ArraySource(more, checked=True)

    # -- fitting -----------------------------------------------------------------------

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, X_unlabelled: Any = None
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
            are two classes; give the other rows as `X_unlabelled`.
        sample_weight : array-like (n,) or None
            Non-negative; a weight of 2 is a row given twice, 0 is a row left out.
        X_unlabelled : array-like or CSR matrix (m, d), BatchSource, or None
            More rows without labels; targets of a source do not count. Beside an array y may
            hold marks too, beside a source it may not.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For parameters outside their domain, NaN or infinite values, wrong shapes, no or
            one class among the labels, a class without a labelled row; before any work.
        """
        self._unlabelled = X_unlabelled
        try:
            return self._fit_checked(X, y, sample_weight)
        finally:
            self.__dict__.pop("_unlabelled", None)
            self.__dict__.pop("_given", None)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        extra = self.__dict__.pop("_unlabelled", None)
        warm = bool(self.warm_start) and hasattr(self, "_state")
        if not warm:
            self._new_seed()
        if isinstance(X, BatchSource):
            if y is not None or sample_weight is not None:
                raise ValueError(
                    "A BatchSource carries its own y and weights; leave y and sample_weight "
                    "out."
                )
            self._check_source(X)
            mixed, loss = self._mixed_sources(X, extra, reset=not warm)
        else:
            if y is None:
                raise ValueError(
                    f"requires y to be passed, but the target y is None: give y to "
                    f"{type(self).__name__}.fit, or a BatchSource with a target."
                )
            if isinstance(extra, BatchSource):
                X, codes, weight, loss = self._adopt_arrays(X, y, sample_weight, reset=not warm)
                if (codes == NO_LABEL).any():
                    raise ValueError(
                        "y marks rows as unlabelled, and X_unlabelled is a source; put all "
                        "unlabelled rows into the source."
                    )
                labelled = ArraySource(X, codes, weight, checked=True)
                more = self._extra_source(extra)
                mixed = MixedRows(labelled, more, None, self._code_targets(loss))
            else:
                mixed, loss = self._mixed_arrays(X, y, sample_weight, extra, reset=not warm)
        if warm:
            solver, reason = self.solver_, self.history_["solver_reason"]
        else:
            given = [mixed.labelled] + ([mixed.unlabelled] if mixed.unlabelled else [])
            solver, reason = self._select_solver(loss, tuple(given))
        problem = self._problem(loss)
        weights, others = mixed.class_weights(len(self.classes_)), mixed.unlabelled_weight()
        self._check_classes(weights)
        labelled_weight = self.labelled_weight_ = float(weights.sum())
        problem = self._with_weights(problem, labelled_weight, others)
        problem = replace(problem, n_rows=mixed.n_labelled + mixed.n_unlabelled)
        if others == 0:
            mixed = replace(mixed, unlabelled=None, marked=None)
            problem, solver, reason = self._supervised(problem, solver, reason)
        solver.check_problem(problem)
        check_capabilities(solver, problem.loss, problem.kernel)
        if not solver.streams and not mixed.in_memory:
            raise DataError(
                f"solver {solver.name!r} keeps all rows, which are on disk here; load them "
                "into arrays, or take solver='tsg'."
            )
        most = int(self.max_iter)
        scores: list[float] | None = None
        if hasattr(self, "calibration_"):  # of another function
            del self.calibration_
        if warm and self.probability:
            raise ValueError(
                "probability=True calibrates one whole fit, not the continued one of "
                "warm_start=True; set one of them to False."
            )
        if (self.early_stopping or self.probability) and not warm:
            scores, calibration = self._cross_validate(problem, solver, mixed)
            if self.early_stopping:
                most = 1 + int(np.argmax(scores))
            if self.probability:
                self.calibration_: Float64Array = calibration
        state: State | None = self._state.copy() if warm else None
        history = copy.deepcopy(self.history_) if warm else None
        batches, problem = self._feed(
            problem,
            solver,
            mixed,
            np.empty(0, np.int64),
            0 if state is None else state.iteration,
        )
        ctx = self._begin_sklearn_callbacks(X, y)
        self._finish(problem, solver, batches, most, state, None, history, ctx)
        self._record_choice(solver, reason)
        if scores is not None:
            self.history_["cv_accuracy"] = scores
            if self.early_stopping:
                self.best_score_ = scores[most - 1]
                if most < self.max_iter and self.n_iter_ == most:
                    self.fit_status_ = "converged"
        self._transduce(mixed)

    def _supervised(
        self, problem: Problem, solver: Solver[Any], reason: str
    ) -> tuple[Problem, Solver[Any], str]:
        """Return what fits the labelled rows alone."""
        warnings.warn(
            "There are no unlabelled rows: the fit is supervised. Mark rows by -1 or None in "
            "y, or give X_unlabelled.",
            UserWarning,
            stacklevel=6,
        )
        if solver.streams:
            return problem, solver, reason
        loss = problem.loss
        assert isinstance(loss, SemiSupervised)
        if solver.name != "cached":
            solver = CachedBlockDescent()
        # without a second kind of rows the labelled ones are all of the mean, not half of it
        problem = replace(problem, loss=loss.labelled, alpha=2.0 * problem.alpha)
        return problem, solver, "no unlabelled rows"

    def _feed(
        self,
        problem: Problem,
        solver: Solver[Any],
        mixed: MixedRows,
        held: IntArray,
        start: int,
    ) -> tuple[Iterator[tuple[TrainBatch, float]], Problem]:
        """Return the batches of a fit and the problem that says whether all are the same."""
        if solver.streams:
            size = max(1, solver.resolve_batch_size(None) // 2)
            fixed = mixed.n_labelled - len(held) <= size and 0 < mixed.n_unlabelled <= size
            batches = mixed.pairs(size, self._seed, start, held)
            return batches, replace(problem, fixed_rows=fixed)
        whole = mixed.whole(held)
        return self._same_batch(whole, start), replace(problem, fixed_rows=True)

    def _cross_validate(
        self, problem: Problem, solver: Solver[Any], mixed: MixedRows
    ) -> tuple[list[float], Float64Array]:
        """Return the mean accuracy on held-out labels after each iteration, and calibration."""
        parts = [mixed.targets.codes(np.asarray(y)) for y in mixed.labelled.target_chunks()]
        codes, most = np.concatenate(parts), int(self.max_iter)
        hits, total = np.zeros(most), 0.0
        held_out: list[tuple[list[FloatArray], AnyArray, Float64Array]] = []
        for held in folds(codes, self.classes_, int(self.n_folds), self._seed):
            X, y, w, _ = mixed.labels(mixed.labelled.take(held))
            batches, one = self._feed(problem, solver, mixed, held, 0)
            # the cost of a label stays what it is though there are fewer of them
            one = replace(one, alpha=one.alpha / (1.0 - w.sum() / self.labelled_weight_))
            path: list[FloatArray] = []
            state, tracker, t = None, None, 0
            with single_threaded_blas():
                for t, (batch, _) in zip(range(most), batches, strict=False):
                    if state is None:
                        state = solver.init(one, batch)
                        tracker = solver.track(state, X)
                    assert tracker is not None
                    info = solver.step(one, state, batch)
                    tracker.advance(info)
                    raw = np.array(tracker.raw_prediction(), np.float32)
                    hits[t] += float(w @ (decide(raw) == y))
                    if self.probability:
                        # which iteration counts is known in the end, if it is not the last
                        path = [*path, raw] if self.early_stopping else [raw]
                    if info.converged:
                        break
            hits[t + 1 :] += float(w @ (decide(raw) == y))
            total += float(w.sum())
            held_out.append((path, y, w))
        scores = (hits / total).tolist()
        calibration = np.zeros((self._n_outputs, 2))
        if self.probability:
            best = int(np.argmax(scores)) if self.early_stopping else most
            raw = np.concatenate([path[min(best, len(path) - 1)] for path, _, _ in held_out])
            y, w = (np.concatenate([part[i] for part in held_out]) for i in (1, 2))
            with single_threaded_blas():
                calibration = sigmoids(raw.astype(np.float64), y, w)
        return scores, calibration

    def _transduce(self, mixed: MixedRows) -> None:
        """Label the given rows; warn where the classes of unlabelled rows are other ones."""
        if hasattr(self, "transduction_"):
            del self.transduction_
        if "_given" not in self.__dict__:
            return
        X, codes = self._given
        known = codes != NO_LABEL
        labels = np.array(codes)
        if (~known).any():
            labels[~known] = decide(self.expansion_.raw_prediction(X[np.flatnonzero(~known)]))
            self._compare(labels[~known], codes[known])
        self.transduction_: AnyArray = self.classes_[labels]

    def _compare(self, found: AnyArray, labelled: AnyArray) -> None:
        k = len(self.classes_)
        p = np.bincount(labelled, minlength=k) / len(labelled)
        q = np.bincount(found, minlength=k) / len(found)
        error = np.sqrt(np.maximum(p * (1 - p), 1e-4) / len(labelled))
        worst = int(np.argmax(np.abs(p - q) - _ERRORS * error))
        if abs(p[worst] - q[worst]) > max(_DRIFT, _ERRORS * error[worst]):
            warnings.warn(
                f"Class {self.classes_[worst].item()!r} is {p[worst]:.0%} of the labelled "
                f"rows, but {q[worst]:.0%} of what unlabelled rows are predicted to be: the "
                "boundary may have left the classes. Lower C_star, or compare with C_star=0.",
                UserWarning,
                stacklevel=8,
            )

    @available_if(can_stream)
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Take further steps, one for each batch of the solver, in the order given.

        Rows with and without labels may come in any mixture; either kind of a batch counts
        half. The penalty follows the number of labelled rows so far.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        classes : array-like or None
            All classes; needed in the first call unless its `y` holds them all.

        Returns
        -------
        self
        """
        super().partial_fit(X, y, classes, sample_weight)
        for name in ("transduction_", "calibration_"):  # of the function before
            if hasattr(self, name):
                delattr(self, name)
        return self

    def _stream_cost(self, problem: Problem, source: BatchSource) -> Problem:
        """Return the problem for C times the labelled rows so far."""
        total = float(getattr(self, "labelled_weight_", 0.0))
        for batch in source.chunks():
            codes = np.asarray(batch.y)
            w = np.ones(len(codes)) if batch.sample_weight is None else batch.sample_weight
            if not self._internal_y:
                codes = self._codes(codes)
                factor = self._class_factor(codes)
                w = w if factor is None else w * factor
            total += float(w[codes != NO_LABEL].sum())
        self.labelled_weight_ = total
        return self._with_weights(replace(problem, max_iter=None), max(total, 1.0), np.nan)

    # -- predictions -------------------------------------------------------------------

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy on rows that have a label, of arrays or of a BatchSource."""
        if isinstance(X, BatchSource) and y is None and sample_weight is None:
            return self._streamed_score(X)
        if isinstance(X, BatchSource) or y is None:
            return super().score(X, y, sample_weight)
        check_is_fitted(self, "expansion_")
        raw = labels_of(y)
        known = np.flatnonzero(unmarked(raw, self._signed))
        if len(known) == len(raw):
            return super().score(X, y, sample_weight)
        if len(known) == 0:
            raise DataError("No row has a label to score against: all of y are marks.")
        check_consistent_length(X, raw, sample_weight)
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        labels = plain(raw[known]) if raw.dtype == object else raw[known]
        return super().score(_safe_indexing(X, known), labels, weight)

    def _streamed_score(self, source: BatchSource) -> float:
        hits = total = 0.0
        for batch, raw in self._raw_chunks(source):
            codes = self._codes(np.asarray(batch.y))
            w = np.ones(len(raw)) if batch.sample_weight is None else batch.sample_weight
            w = w * (codes != NO_LABEL)
            hits += float(w @ (decide(raw) == codes))
            total += float(w.sum())
        if not total > 0:
            raise DataError("No row has a label to score against: all of y are marks.")
        return hits / total

    @available_if(_gives_proba)
    def predict_proba(self, X: Any) -> Float64Array:
        """Return class probabilities (n, n_classes), as ``probability=True`` asked for.

        One-vs-rest probabilities are normalised to sum 1. Not after `partial_fit` alone, which
        has no rows to calibrate on.
        """
        check_is_fitted(self, "calibration_")
        f = self._raw(X)
        a, b = self.calibration_.T
        p = 1.0 / (1.0 + np.exp(-np.clip(a * f + b, -500.0, 500.0)))
        if p.shape[1] == 1:
            return np.concatenate([1.0 - p, p], axis=1)
        total = p.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, p / np.maximum(total, 1e-300), 1.0 / p.shape[1]))

    @available_if(_gives_proba)
    def predict_log_proba(self, X: Any) -> Float64Array:
        """Return the logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def _extra_arrays(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        names = ("calibration_",)
        return {}, {k: getattr(self, k) for k in names if hasattr(self, k)}

    def _restore_extra(self, values: dict[str, Any], arrays: dict[str, AnyArray]) -> None:
        for name, array in arrays.items():
            setattr(self, name, np.array(array))


def _explained(error: DataError, y: AnyArray) -> DataError:
    """Return the error with what -1 means, where that is why there is one class."""
    minus = unmarked(y, True) & ~unmarked(y, False)
    if not minus.any():
        return error
    return DataError(
        f"{error} Rows of -1 are rows without a label here; if -1 is a class, give rows "
        "without a label as X_unlabelled, or call the classes 0 and 1."
    )


__all__ = ["SemiSupervisedKernelClassifier"]
