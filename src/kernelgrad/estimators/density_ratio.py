"""Kernel density-ratio estimation."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from kernelgrad._typing import AnyArray, Float64Array, FloatArray
from kernelgrad._validation import DataError
from kernelgrad.data import ArraySource, BatchSource, sample_batches
from kernelgrad.estimators._support import canonical_rows, with_callbacks
from kernelgrad.estimators.kernel import BaseKernelEstimator
from kernelgrad.losses import KLDensityRatio, LeastSquaresDensityRatio, Loss, get_loss
from kernelgrad.solvers import DSG, Solver, State, TrainBatch, check_capabilities

# Blocks of 1,024 frequencies were no more accurate (10,000 rows of each sample, one and five
# dimensions) and cost twelve times as much.
_BLOCK_SIZE, _BATCH_SIZE = 256, 8192
_NEEDS_BOTH = (
    "A density ratio needs two samples: give fit(X_p, denominator=X_q), or all rows and their "
    "sample as y"
)


class KernelDensityRatio(BaseKernelEstimator):
    r"""Ratio p/q of two densities from a sample of each, without estimating either.

    With ``loss="kl"`` f estimates ``log p/q`` by minimising (Dai et al. 2014, Section 4)

    .. math:: \tfrac12 \left( E_q[\exp f] - E_p[f] \right) + \tfrac\alpha2 \|f - b\|^2 ,

    with ``loss="least_squares"`` f estimates ``p/q`` itself with ``E_q[f^2] / 2`` in place of
    ``E_q[exp f]``; b is the constant of equal samples, 0 or 1. Where steps take batches, half
    of each is drawn from each sample, independently of the other.

    Parameters
    ----------
    loss : {"kl", "least_squares"} or Loss, default="kl"
        The Kullback-Leibler form keeps the ratio positive; the least-squares form is less
        sensitive to single rows where the ratio is large.
    kernel : str or Kernel, default="rbf"
    gamma : float, "median" or "scale", default="median"
        The rule sees rows of both samples.
    bandwidth_factor : float, default=1.0
    solver : {"auto", "cached", "dsg", "udsg", "cdsg"} or Solver, default="auto"
        ``"auto"`` is ``"cached"`` for rows in memory that fit there, else ``"dsg"``. The names
        of the dsg family mean blocks of 256 frequencies and batches of 8,192 rows; an object
        is used as it is.
    alpha : float >= 0, default=1e-4
        The ratio of two samples is easily overfitted: in the tails a few rows decide. More
        than for supervised estimators, and worth a search by ``score``; give the search
        ``cv=StratifiedKFold(shuffle=True)``, so that every fold holds both samples.
    max_iter : int, default=40
    standardize : bool, default=False
    memory_limit, warm_start, random_state, verbose, callbacks
        As in :class:`KernelClassifier`.

    Attributes
    ----------
    expansion_, kernel_, n_random_features_, n_iter_, history_, fit_status_, n_features_in_,
    feature_names_in_
        As in :class:`KernelClassifier`.
    samples_ : array (2,)
        The two values of y: denominator, numerator.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelgrad import KernelDensityRatio
    >>> rng = np.random.default_rng(0)
    >>> p, q = rng.normal(0.0, 1, (2000, 1)), rng.normal(0.5, 1, (2000, 1))
    >>> model = KernelDensityRatio(random_state=0).fit(p, denominator=q)
    >>> ratio = model.predict([[-1.0], [0.25], [1.5]])
    >>> bool(ratio[0] > ratio[1] > ratio[2])
    True
    """

    def __init__(
        self,
        loss: str | Loss = "kl",
        kernel: Any = "rbf",
        *,
        gamma: float | str = "median",
        bandwidth_factor: float = 1.0,
        solver: Any = "auto",
        alpha: float = 1e-4,
        max_iter: int = 40,
        standardize: bool = False,
        memory_limit: float | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        self.loss = loss
        self.kernel = kernel
        self.gamma = gamma
        self.bandwidth_factor = bandwidth_factor
        self.solver = solver
        self.alpha = alpha
        self.max_iter = max_iter
        self.standardize = standardize
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    fit_intercept = True

    @property
    def _alpha(self) -> float:
        return float(self.alpha)

    @property
    def _n_outputs(self) -> int:
        return 1

    def _make_loss(self) -> Loss:
        return get_loss(self.loss, task="density_ratio")

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        solver = super()._make_solver(auto)
        if isinstance(self.solver, str) and isinstance(solver, DSG):
            solver.set_params(block_size=_BLOCK_SIZE, batch_size=_BATCH_SIZE)
        return solver

    def _check_parameters(self) -> None:
        self._make_loss()
        super()._check_parameters()

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, denominator: Any = None
    ) -> Self:
        """Fit the ratio.

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), DataFrame, or BatchSource
            Rows of the numerator p, when `denominator` is given; else rows of both samples.
        y : array-like (n,) with two distinct values, or None
            The sample of each row of `X`, when there is no `denominator`: the greater value
            marks rows of the numerator p, the smaller those of the denominator q.
        sample_weight : array-like (n,) or None
            Non-negative weights of the rows of `X`; each sample counts the same in total.
        denominator : array-like or CSR matrix (m, d), DataFrame, or BatchSource
            Rows of q. Sources are streamed side by side; their weights count, their
            targets do not.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For parameters outside their domain, NaN or infinite values, a sample without
            rows, or both or none of y and `denominator`; before any work is done.
        """
        self._denominator = denominator
        try:
            return self._fit_checked(X, y, sample_weight)
        finally:
            self.__dict__.pop("_denominator", None)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        denominator = self.__dict__.pop("_denominator", None)
        warm = bool(self.warm_start) and hasattr(self, "_state")
        if not warm:
            self._new_seed()
        loss = self._make_loss()
        sources = self._two_sources(X, y, sample_weight, denominator, reset=not warm)
        if warm:
            solver, reason = self.solver_, self.history_["solver_reason"]
        else:
            solver, reason = self._select_solver(loss, sources)
        problem = self._problem(loss)
        check_capabilities(solver, loss, problem.kernel)
        state: State | None = self._state.copy() if warm else None
        start = 0 if state is None else state.iteration
        batches: Iterator[tuple[TrainBatch, float]]
        halves = [max(1, solver.resolve_batch_size(2 * s.n_rows) // 2) for s in sources]
        if all(s.n_rows <= half for s, half in zip(sources, halves, strict=True)):
            problem = replace(problem, fixed_rows=True)
            joined = _joined([s.take(np.arange(s.n_rows)) for s in sources])
            batches = ((joined, float(t)) for t in count(start + 1))
        else:
            batches = self._pairs(sources, halves, start)
        history = copy.deepcopy(self.history_) if warm else None
        ctx = self._begin_sklearn_callbacks(X, y)
        self._finish(problem, solver, batches, self.max_iter, state, None, history, ctx)
        self._record_choice(solver, reason)

    def _two_sources(
        self, X: Any, y: Any, sample_weight: Any, denominator: Any, *, reset: bool
    ) -> tuple[BatchSource, BatchSource]:
        """Return the numerator and the denominator."""
        if denominator is not None and y is not None:
            raise ValueError(f"{_NEEDS_BOTH}, not both y and denominator.")
        if isinstance(X, BatchSource) or isinstance(denominator, BatchSource):
            if not (isinstance(X, BatchSource) and isinstance(denominator, BatchSource)):
                raise ValueError(
                    f"{_NEEDS_BOTH}; a BatchSource needs another one as denominator."
                )
            if sample_weight is not None:
                raise ValueError("A BatchSource carries its own weights; leave them out.")
            self._adopt_source(X, reset=reset)
            self._adopt_source(denominator, reset=False)
            if reset:
                self.samples_ = np.array([0, 1])
            return X, denominator
        if denominator is None:
            if y is None:
                raise ValueError(
                    "requires y to be passed, but the target y is None: " + _NEEDS_BOTH + "."
                )
            X, y = validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype="numeric")
            weight = self._weights(sample_weight, X)
            values = np.unique(np.asarray(y)[weight > 0])
            if not reset:
                unknown = np.setdiff1d(values, self.samples_)
                if len(unknown):
                    raise ValueError(
                        f"y holds {unknown[:5]}, but the samples of the fit are "
                        f"{self.samples_} (denominator, numerator)."
                    )
            if len(values) != 2:
                raise ValueError(
                    f"y must have two distinct values, one per sample, got {len(values)} "
                    f"class(es): {values[:5]}."
                )
            numerator = np.asarray(y) == values[1]
            parts = (X[numerator], weight[numerator]), (X[~numerator], weight[~numerator])
        else:
            X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric")
            Z = validate_data(
                self, denominator, reset=False, accept_sparse="csr", dtype="numeric"
            )
            values = np.array([0, 1])
            parts = (X, self._weights(sample_weight, X)), (Z, np.ones(Z.shape[0]))
        if reset:
            self.samples_ = values
        solver = self._make_solver() if reset else self.solver_
        size = max(1, solver.resolve_batch_size(None) // 2)
        sources = []
        for rows, w in parts:
            if not self.standardize:
                self._make_kernel().check_domain(rows)
            ones = np.zeros(rows.shape[0])
            rows, ones, w = canonical_rows(rows, ones, w, merge=rows.shape[0] <= size)
            sources.append(ArraySource(rows, ones, w, checked=True))
        return sources[0], sources[1]

    def _weights(self, sample_weight: Any, X: Any) -> Float64Array:
        weight: Float64Array = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        if not weight.sum() > 0:
            raise ValueError("All sample weights are zero; at least one row must count.")
        return weight

    def _pairs(
        self, sources: tuple[BatchSource, BatchSource], halves: list[int], start: int
    ) -> Iterator[tuple[TrainBatch, float]]:
        """Yield batches of half a batch from each sample, drawn independently."""
        p, q = (
            sample_batches(source, half, seed=self._seed + i, start=start)
            for i, (source, half) in enumerate(zip(sources, halves, strict=True))
        )
        for one, other in zip(p, q, strict=False):
            yield _joined([one.batch, other.batch]), one.fraction

    def predict(self, X: Any) -> Float64Array:
        """Return the estimated ratio p/q at the rows of `X`, shape (n,); never negative."""
        return np.asarray(self._ratio_loss.ratio(self._raw(X).ravel()), np.float64)

    def decision_function(self, X: Any) -> Float64Array:
        """Return f(X), shape (n,): the log ratio, or the unclipped ratio of least squares."""
        return self._raw(X).ravel()

    @property
    def _ratio_loss(self) -> KLDensityRatio | LeastSquaresDensityRatio:
        check_is_fitted(self, "expansion_")
        loss = self.loss_
        assert isinstance(loss, KLDensityRatio | LeastSquaresDensityRatio)
        return loss

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, denominator: Any = None
    ) -> float:
        r"""Return a lower bound of the divergence of held-out samples; greater is better.

        ``E_p[f] - E_q[exp f] + 1 <= KL(p || q)``, or for least squares
        ``E_p[f] - E_q[f^2] / 2 - 1/2 <= E_q[(p/q - 1)^2] / 2``, half the Pearson divergence.
        Parameters are those of :meth:`fit`; sources are read in chunks.
        """
        loss = self._ratio_loss
        constant = 1.0 if isinstance(loss, KLDensityRatio) else -0.5
        sources = self._two_sources(X, y, sample_weight, denominator, reset=False)
        means = []
        for sign, source in zip((1.0, -1.0), sources, strict=True):
            total, weight = 0.0, 0.0
            for batch in source.chunks():
                w = np.ones(batch.X.shape[0])
                w = w if batch.sample_weight is None else np.asarray(batch.sample_weight)
                f = self.expansion_.raw_prediction(batch.X)
                total += float(w @ loss.value(np.full(f.shape, sign), f))
                weight += float(w.sum())
            if not weight > 0:
                raise DataError("A sample has no row of positive weight to score on.")
            means.append(total / weight)
        return constant - means[0] - means[1]

    # -- what the base asks of supervised estimators; batches here are made by _pairs ------

    _stratified = False
    _requires_y = False

    def _prepare_targets(self, y: AnyArray, *, reset: bool) -> tuple[AnyArray, Loss]:
        return y, self._make_loss()

    def _prepare_source(self, source: BatchSource) -> Loss:
        return self._make_loss()

    def _internal(self, y: AnyArray) -> AnyArray:
        return y

    def _encode(self, y: AnyArray, loss: Loss) -> FloatArray:
        return np.where(y.reshape(-1, 1) > 0, 1.0, -1.0)

    def _class_factor(self, y: AnyArray) -> Float64Array | None:
        return None

    def _validation_score(self, loss: Loss) -> tuple[str, Any]:
        return "negative loss", None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags


def _joined(batches: list[Any]) -> TrainBatch:
    """Return one batch of numerator and denominator rows, half the weight each."""
    X, weights = [], []
    for batch in batches:
        w = np.ones(batch.X.shape[0])
        w = w if batch.sample_weight is None else np.asarray(batch.sample_weight, np.float64)
        keep = np.flatnonzero(w > 0)
        if len(keep) == 0:
            raise DataError("All weights of a batch are zero; drop such rows of the source.")
        X.append(batch.X if len(keep) == len(w) else batch.X[keep])
        weights.append(w[keep] / (2.0 * w.sum()))
    sizes = [len(w) for w in weights]
    rows = sp.vstack(X, format="csr") if any(sp.issparse(A) for A in X) else np.concatenate(X)
    y = np.repeat([1.0, -1.0], sizes)[:, None].astype(np.float32)
    return TrainBatch(rows, y, sum(sizes) * np.concatenate(weights))
