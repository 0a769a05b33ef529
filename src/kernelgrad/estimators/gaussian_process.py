"""Gaussian process regression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import column_or_1d

from kernelgrad._params import anything, boolean, integer, parameters, real
from kernelgrad._typing import AnyArray, Float64Array, FloatArray, Matrix
from kernelgrad._validation import CapabilityError, DataError, check_name
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource, BatchSource
from kernelgrad.estimators._auto import GIVEN
from kernelgrad.estimators._posterior import PosteriorOperator, explained_covariance
from kernelgrad.estimators._rows import TrainingRows, weights_of
from kernelgrad.estimators._support import with_callbacks
from kernelgrad.estimators._tasks import Task
from kernelgrad.estimators.base import Choice, Given, Parts
from kernelgrad.estimators.kernel import BaseKernelEstimator
from kernelgrad.functions.features import FeatureStream
from kernelgrad.losses import Loss, SquaredError
from kernelgrad.solvers import DSG, Solver, TrainBatch

_OPERATOR_FEATURES = 4096  # of each side: 64 MiB of coefficients
_OPERATOR_BLOCK = 64  # frequencies per block of the operator
_TEST_ROWS = 1024  # rows of one group of predict(return_std=True)


@dataclass(frozen=True)
class ScaledColumn(Task):
    """One column of numbers, of which ``(y - centre) / scale`` is fitted.

    ``total`` is the sum of the weights of its rows, where they have been read.
    """

    centre: float = 0.0
    scale: float = 1.0
    total: float = np.nan
    loss: Loss = field(default_factory=SquaredError)

    @property
    def n_outputs(self) -> int:
        """One."""
        return 1

    def internal(self, y: AnyArray) -> AnyArray:
        """Return the column as float64."""
        y = np.asarray(y, np.float64)
        if y.ndim == 2 and y.shape[1] != 1:
            raise ValueError(
                f"y must have one column, got {y.shape[1]}; fit one estimator per column."
            )
        return np.asarray(y if y.ndim == 1 else column_or_1d(y, warn=True))

    def encode(self, y: AnyArray) -> FloatArray:
        """Return scaled targets, (n, 1)."""
        return ((y - self.centre) / self.scale).reshape(-1, 1)

    def attributes(self) -> dict[str, Any]:
        """Return centre and scale."""
        return {"y_mean_": self.centre, "y_scale_": self.scale}


@parameters
class KernelGaussianProcessRegressor(RegressorMixin, BaseKernelEstimator):  # type: ignore[misc]
    r"""Posterior mean and variance of a Gaussian process, without a kernel matrix.

    For the prior ``f ~ GP(0, s^2 k)`` and ``y = f(x) + noise`` of variance ``sigma^2``, the
    posterior at x is normal with (Dai et al. 2014, Eq. 9)

    .. math::
        m(x) = s^2 k_x^\top (s^2 K + \sigma^2)^{-1} y, \qquad
        v(x) = s^2 k(x, x) - s^4 k_x^\top (s^2 K + \sigma^2)^{-1} k_x .

    The mean is kernel ridge regression with ``alpha = sigma^2 / (n s^2)`` (the paper's
    ``2 sigma^2`` is another scaling) and is fitted by `fit`. The variance needs one more
    regression per test row, of ``k(x, .)`` on the training rows; those of up to 1,024 test
    rows share batches, features and preconditioner, and are fitted by ``predict``.

    Parameters
    ----------
    noise_variance : float > 0, default=0.1
        ``sigma^2``, in the squared units of y (of normalised y with `normalize_y`).
    signal_variance : float > 0, default=1.0
        ``s^2``, prior variance of f, in the same units.
    kernel : str or Kernel, default="rbf"
    gamma : float, "median" or "scale", default="median"
    bandwidth_factor : float, default=1.0
    normalize_y : bool, default=False
        Subtract the mean of y and divide by its standard deviation before fitting; the prior
        mean is then the mean of y.
    variance : {"per_point", "operator"}, default="per_point"
        ``"per_point"`` keeps the training rows and is accurate. ``"operator"`` (experimental)
        estimates the operator of the paper's Appendix D in `fit`: no rows are kept, any
        number of test rows is cheap, but its noise is of the order of small variances.
    solver : {"auto", "dsg", "udsg", "cdsg"} or DSG, default="auto"
        A name means that solver with blocks of 512 frequencies, batches of 8,192 rows and
        damping 3; an object is used as it is.
    max_iter : int, default=60
        Blocks of the mean and of each variance function. Below 5 a variance may come out
        as zero.
    standardize : bool, default=False
    memory_limit, time_limit, random_state, verbose, callbacks
        As in :class:`KernelRegressor`.

    Attributes
    ----------
    alpha_ : float
        ``noise_variance / (n signal_variance)``, n the total weight of the rows.
    signal_variance_ : float
        ``s^2`` of the fit.
    y_mean_, y_scale_ : float
        0 and 1 unless `normalize_y`.
    expansion_, kernel_, n_random_features_, n_iter_, history_, fit_status_, n_features_in_,
    feature_names_in_
        As in :class:`KernelRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelgrad import KernelGaussianProcessRegressor
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> gp = KernelGaussianProcessRegressor(0.01, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = gp.predict([[0.0], [9.0]], return_std=True)
    >>> bool(std[0] < 0.1 < std[1])
    True
    """

    noise_variance: float = real(default=0.1, low=0, low_open=True, kw_only=False)
    signal_variance: float = real(default=1.0, low=0, low_open=True)
    kernel: Any = anything(default="rbf")
    normalize_y: bool = boolean(default=False)
    variance: str = anything(default="per_point")
    max_iter: int = integer(default=60, low=1)

    _y_numeric = True
    _tells_alpha = True

    def _make_parts(self) -> Parts:
        check_name(self.variance, ("per_point", "operator"), "variance estimator")
        return super()._make_parts()

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        solver = super()._make_solver(auto)
        if not isinstance(solver, DSG):
            raise CapabilityError(
                f"solver {solver.name!r} gives no posterior variance; use dsg, udsg or cdsg."
            )
        return solver

    def _dsg_parameters(self) -> dict[str, Any]:
        # A posterior is wanted to a few per cent, where a prediction needs less: blocks are
        # larger than for other tasks of few rows (a block's inverse covariance is biased by
        # the features it lacks) and steps more damped (measured on 500 and 2,048 rows).
        return {"block_size": 512, "batch_size": 8192, "damping": 3.0}

    def _choose(self, parts: Parts, rows: TrainingRows, *, stream: bool = False) -> Choice:
        return parts.solver, "it gives the variance" if self._auto_solver else GIVEN

    def _learn(
        self, targets: AnyArray | BatchSource, declared: AnyArray | None
    ) -> ScaledColumn:
        return ScaledColumn()

    def _task(self) -> ScaledColumn:
        return ScaledColumn(self.y_mean_, self.y_scale_)

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the posterior mean (and the operator with ``variance="operator"``).

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), memory map, DataFrame, or BatchSource
            With ``variance="per_point"`` the model, and its file, keep these rows (a source
            is kept, not its rows; it is no part of a file).
        y : array-like (n,); None with a BatchSource
        sample_weight : array-like (n,) or None
            A weight of 2 is a row observed twice.

        Returns
        -------
        self
        """
        return self._fit_checked(X, y, sample_weight)

    def _fit(self, parts: Parts, given: Given, **more: Any) -> TrainingRows:
        rows = super()._fit(parts, given, **more)
        source = rows.source
        if isinstance(source, ArraySource) and source.in_memory:
            kept = source.take(np.arange(source.n_rows))  # a copy: callers may change theirs
            source = ArraySource(kept.X, kept.y, kept.sample_weight, checked=True)
        self._source: BatchSource | None = source
        self._encoded = rows.encoded
        self._operator: PosteriorOperator | None = None
        if self.variance == "operator":
            with single_threaded_blas():
                self._operator = self._fit_operator()
            self._source = None
        return rows

    def _all_rows(self, parts: Parts, given: Given, *, fresh: bool) -> TrainingRows:
        rows = super()._all_rows(parts, given, fresh=fresh)
        targets, weights = [], []
        for batch in rows.source.chunks():
            values = np.asarray(batch.y)
            if values.dtype.kind not in "iufb" or values.ndim != 1:
                raise DataError(
                    f"The target must be one column of numbers, got {values[:1]!r}."
                )
            targets.append(values.astype(np.float64))
            weights.append(weights_of(batch))
        values, weight = np.concatenate(targets), np.concatenate(weights)
        if not weight.sum() > 0:
            raise DataError("All sample weights are zero; at least one row must count.")
        centre, scale = 0.0, 1.0
        if self.normalize_y:
            centre = float(np.average(values, weights=weight))
            spread = float(np.sqrt(np.average((values - centre) ** 2, weights=weight)))
            rounding = 10 * np.finfo(float).eps * float(np.abs(values).max())
            scale = spread if spread > rounding else 1.0
        task = ScaledColumn(centre, scale, total=float(weight.sum()))
        self._set(task.attributes() | {"signal_variance_": float(self.signal_variance)})
        return replace(rows, task=task)

    def _alpha_for(self, rows: TrainingRows, *, stream: bool = False) -> float:
        task = rows.task
        assert isinstance(task, ScaledColumn)
        return float(self.noise_variance / (self.signal_variance_ * task.total))

    def _operator_of(self, n_blocks: int) -> PosteriorOperator:
        stream = self.expansion_.stream
        left, right = (
            FeatureStream(
                stream.kernel, stream.n_features_in, int(seed), _OPERATOR_BLOCK,
                stream.scaling, stream.cache_bytes,
            )
            for seed in np.random.SeedSequence([self._seed, 0x6F7072]).generate_state(2)
        )  # fmt: skip
        return PosteriorOperator(
            left, right, n_blocks, self.alpha_, 1.0, float(n_blocks), damping=1.0
        )

    def _fit_operator(self) -> PosteriorOperator:
        stream = self.expansion_.stream
        n_blocks = max(1, _OPERATOR_FEATURES // (stream.planes * _OPERATOR_BLOCK))
        operator = self._operator_of(n_blocks)
        for batch in islice(self._posterior_batches(), n_blocks):
            operator.step(batch)
        return operator

    def _kept_rows(self) -> TrainingRows:
        """Return the training rows, which a model from a file or an operator may not have."""
        assert self._source is not None
        return TrainingRows(self._source, self._task(), self._encoded)

    def _extra_arrays(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        if self._operator is not None:
            theta = self._operator.theta
            return {"n_blocks": self._operator.n_blocks}, {"theta": theta}
        if not isinstance(self._source, ArraySource) or not self._source.in_memory:
            return {}, {}  # a file, memory map or stream is no part of a model file
        batch = self._source.read(0, self._source.n_rows)
        X, y, weight, _ = self._kept_rows().usable(batch)
        arrays = {"y": y, "weight": weight}
        if sp.issparse(X):
            arrays |= {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        else:
            arrays["X"] = X
        return {"n_rows": len(y)}, arrays

    def _restore_extra(self, values: dict[str, Any], arrays: dict[str, AnyArray]) -> None:
        self._source, self._operator, self._encoded = None, None, True
        if "n_blocks" in values:
            self._operator = self._operator_of(values["n_blocks"])
            self._operator.n_blocks = values["n_blocks"]
            self._operator.theta = np.asarray(arrays["theta"], np.float32)
        elif "n_rows" in values:
            X = arrays.get("X")
            if X is None:
                shape = (values["n_rows"], self._width)
                parts = (arrays["data"], arrays["indices"], arrays["indptr"])
                X = sp.csr_matrix(parts, shape=shape)
            self._source = ArraySource(X, arrays["y"], arrays["weight"], checked=True)

    def _posterior_batches(self) -> Iterator[TrainBatch]:
        """Yield training rows for the variance; the same batch where all rows fit in one."""
        batches, _ = self._kept_rows().batches(self.solver_, self._seed, 0)
        return (train for train, _ in batches)

    # -- prediction --------------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return the posterior mean, and on request its standard deviation or covariance.

        Parameters
        ----------
        X : array-like or CSR matrix (m, d), or BatchSource for the mean alone
        return_std : bool, default=False
            Also return the standard deviation of f (without the noise of y), shape (m,).
        return_cov : bool, default=False
            Also return the covariance, shape (m, m); needs ``variance="per_point"``.

        Returns
        -------
        float64 array (m,), or a tuple of it and the other array
        """
        if return_std and return_cov:
            raise ValueError("Ask for return_std or return_cov, not both.")
        raw = self._raw(X).ravel()
        mean = self.y_mean_ + self.y_scale_ * raw
        if not (return_std or return_cov):
            return mean
        if isinstance(X, BatchSource):
            raise ValueError("Variances of a BatchSource are not available; give arrays.")
        X = self._matrix(X)
        scale = self.signal_variance_ * self.y_scale_**2
        if return_cov:
            return mean, scale * self._covariance(X)
        return mean, np.sqrt(scale * np.maximum(self._variance(X), 0.0))

    def _variance(self, X: Matrix) -> Float64Array:
        """Return ``k(x, x) - A(x, x)``, shape (m,)."""
        if self._operator is not None:
            prior = self.kernel_.diag(self.expansion_.stream.scaling.apply(X))
            with single_threaded_blas():
                return np.asarray(prior - self._operator.explained_variance(X), np.float64)
        m = X.shape[0]
        parts = [
            np.diag(self._covariance(X[start : start + _TEST_ROWS]))
            for start in range(0, m, _TEST_ROWS)
        ]
        return np.concatenate(parts)

    def _covariance(self, X: Matrix) -> Float64Array:
        """Return ``k(X, X) - A(X, X)``, symmetric, shape (m, m)."""
        if self._operator is not None:
            raise CapabilityError(
                'variance="operator" gives no covariance; fit with variance="per_point".'
            )
        if self._source is None:
            raise CapabilityError(
                "This model was loaded from a file without its training rows, which the "
                'variance needs; fit with variance="operator", or fit again.'
            )
        stream = self.expansion_.stream
        fits = self._source.n_rows <= self.solver_.resolve_batch_size(self._source.n_rows)
        problem = self._problem(stream.kernel, self.loss_, 1, self.alpha_)
        problem = replace(problem, fixed_rows=fits)
        with single_threaded_blas():
            explained = explained_covariance(
                self.solver_, problem, stream, self._posterior_batches, X, self.n_iter_
            )
        scaled = stream.scaling.apply(X)
        covariance = self.kernel_.pairwise(scaled, scaled) - explained
        return np.asarray((covariance + covariance.T) / 2, np.float64)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Float64Array:
        """Return functions drawn from the posterior at the rows of `X`, shape (m, n_samples).

        Parameters
        ----------
        X : array-like or CSR matrix (m, d)
            Time and memory grow with m^2 and m^3 as for any joint normal law.
        n_samples : int, default=1
        random_state : int, RandomState or None, default=0
        """
        mean, covariance = self.predict(X, return_cov=True)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))  # noise may leave values below zero
        normals = check_random_state(random_state).standard_normal((len(mean), n_samples))
        return np.asarray(mean[:, None] + root @ normals, np.float64)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the posterior mean."""
        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))
