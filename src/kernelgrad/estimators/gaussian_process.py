"""Gaussian process regression."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, cast, overload

import numpy as np
import scipy.sparse as sp
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state

from kernelgrad.compute.compiling import clock
from kernelgrad.compute.threads import over_tiles, single_threaded_blas
from kernelgrad.data import ArraySource, BatchSource
from kernelgrad.data.memory import rows_nbytes, usable_memory
from kernelgrad.estimators import posterior
from kernelgrad.estimators.hyperparameters import VARIANCES, hyperparameters
from kernelgrad.estimators.kernel import BaseKernelEstimator
from kernelgrad.estimators.plan import Choice, Given, Parts, Plan
from kernelgrad.estimators.posterior import PosteriorOperator
from kernelgrad.estimators.support import as_numpy, is_auto
from kernelgrad.exceptions import CapabilityError, ModelFileError
from kernelgrad.files.records import Check, Record, check_number, or_none
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.functions.scaling import UNITS
from kernelgrad.kernels import get_kernel
from kernelgrad.params import anything, boolean, integer, parameters, real
from kernelgrad.search.evidence import Evidence, has_rule
from kernelgrad.search.metric import smoothness
from kernelgrad.solvers import DSG, DirectSolve, Solver, TrainBatch
from kernelgrad.solvers.exact import direct_bytes
from kernelgrad.solvers.kernel_matrix import KernelMatrix, kernel_matrix
from kernelgrad.solvers.loop import check_entries
from kernelgrad.tasks import ScaledColumn
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import check_int, check_name, check_real

_TEST_ROWS = 1024  # rows of one group of predict(return_std=True) by random features
_DIRECT_ROWS = 8192  # rows up to which a factorisation takes seconds and half a GiB
_No: TypeAlias = Literal[False]
_Yes: TypeAlias = Literal[True]


@parameters
class KernelGaussianProcessRegressor(RegressorMixin, BaseKernelEstimator):
    r"""Gaussian process regression: posterior mean, variance, covariance and samples.

    For the prior ``f ~ GP(0, s^2 k)`` and ``y = f(x) + noise`` of variance ``sigma^2``, the
    posterior at x is normal with

    .. math::
        m(x) = s^2 k_x^\top (s^2 K + \sigma^2)^{-1} y, \qquad
        v(x) = s^2 k(x, x) - s^4 k_x^\top (s^2 K + \sigma^2)^{-1} k_x .

    By default ``sigma^2``, ``s^2`` and the bandwidths of k maximise the marginal likelihood of
    y. Up to 8,192 rows in memory, one Cholesky factorisation in float64 gives the posterior.
    For more rows, for files and with ``solver="dsg"``, random features replace it (Dai et al.
    2014, Eq. 9): the mean is kernel ridge regression with ``alpha = sigma^2 / (n s^2)``, and
    ``predict`` fits a regression of ``k(x, .)`` on the training rows for each test row.

    Parameters
    ----------
    noise_variance : float > 0 or "auto", default="auto"
        ``sigma^2``, in the squared units of y.
    signal_variance : float > 0 or "auto", default="auto"
        ``s^2``, prior variance of f, in the squared units of y.
    kernel : str or Kernel, default="rbf"
    gamma : float, "auto", "median" or "scale", default="auto"
        ``"auto"`` maximises the marginal likelihood: along the gradient for ``"rbf"`` and
        ``"matern"`` with nu .5, 1.5 or 2.5, for other kernels over a quarter to four times the
        median. Kernel objects are searched if their gamma is a rule.
    bandwidth_factor : float, default=1.0
        Multiplies the bandwidth that a rule finds; no effect on a search along the gradient.
    metric : {"auto", "diagonal"} or None, default="auto"
        Whether each column has a bandwidth of its own (``"diagonal"``), or all share one
        (None). ``"auto"`` takes the better by Schwarz's criterion,
        ``log likelihood - (number of bandwidths) log(n) / 2``, for at most 100 columns with at
        least five rows each.
    normalize_y : bool, default=True
        Subtract the mean of y before fitting: far from all rows the prediction is the mean.
    variance : {"per_point", "operator"}, default="per_point"
        ``"per_point"`` keeps the training rows, in the model's file too unless they are of a
        source. ``"operator"`` (experimental, random features only) estimates the operator of
        the paper's Appendix D, which keeps no rows but has noise as large as small variances.
    solver : {"auto", "direct", "dsg", "udsg", "cdsg"} or an object of these, default="auto"
        ``"auto"`` is ``"direct"``, the closed form, up to 8,192 rows in memory, else ``"dsg"``.
        The dsg family by name has blocks of 512 frequencies, batches of 8,192 rows, damping 3.
    max_iter : int, default=60
        With random features, blocks of the mean and of each variance function. Below 5 a
        variance may be estimated as zero.
    standardize
        As in :class:`KernelNoveltyDetector`. With a bandwidth for each column `standardize`
        only changes where the search starts.
    categorical_features, memory_limit, time_limit, random_state, verbose, callbacks
        As in :class:`KernelRegressor`.

    Attributes
    ----------
    noise_variance_, signal_variance_ : float
        ``sigma^2`` and ``s^2`` of the fit, in the squared units of y.
    kernel_ : Kernel
        With the gamma of the fit, for columns times `metric_`.
    metric_ : float64 array (d,) or None
        Weights of the columns, the largest 1, where each has a bandwidth of its own: that of
        column j is ``1 / (metric_[j] sqrt(2 gamma))``.
    log_marginal_likelihood_ : float or None
        Of all rows, as the density of y given its mean; None with random features.
    alpha_ : float
        ``noise_variance_ / (n signal_variance_)``, n the total weight of the rows.
    y_mean_, y_scale_ : float
        The prior mean, and the unit in which y was fitted.
    history_ : dict
        ``history_["search"]`` lists what the search found, with its choice first;
        ``history_["validation_score"]`` is R^2 of the mean on rows for validation.
    expansion_, n_random_features_, n_support_, n_iter_, fit_status_, n_features_in_,
    feature_names_in_
        As in :class:`KernelRegressor`.

    See Also
    --------
    KernelRegressor : The mean alone, by any loss; several quantiles for noise that varies.

    Notes
    -----
    With weights w the noise of a row has the variance ``sigma^2 / w``, and the likelihood is
    that of w equal observations.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelgrad import KernelGaussianProcessRegressor
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(200)
    >>> gp = KernelGaussianProcessRegressor(random_state=0).fit(X, y)
    >>> mean, std = gp.predict([[0.0], [9.0]], return_std=True)
    >>> bool(std[0] < 0.1 < std[1])
    True
    """

    noise_variance: float | str = real(
        default="auto", low=0, low_open=True, words=("auto",), kw_only=False
    )
    signal_variance: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    kernel: Any = anything(default="rbf")
    gamma: float | str = anything(default="auto")
    metric: Any = anything(default="auto")
    normalize_y: bool = boolean(default=True)
    variance: str = anything(default="per_point")
    max_iter: int = integer(default=60, low=1)

    if TYPE_CHECKING:  # what fits set
        y_mean_: ClassVar[float]
        y_scale_: ClassVar[float]

    _kept: ClassVar[dict[str, Check]] = {
        "alpha_": partial(check_real, low=0.0),
        "signal_variance_": partial(check_real, low=0.0),
        "y_mean_": check_real,
        "y_scale_": partial(check_real, low=0.0, low_open=True),
    }
    _may_keep: ClassVar[dict[str, Check]] = {
        "noise_variance_": partial(check_real, low=0.0),
        "log_marginal_likelihood_": or_none(check_number),
    }
    _loss_task = "regression"
    _onnx_kind = "process"
    _y_numeric = True
    _tells_alpha = True
    _sees_outliers = (True, False, UNITS)  # the search of bandwidths follows them

    def _make_parts(self) -> Parts:
        check_name(self.variance, ("per_point", "operator"), "variance estimator")
        if isinstance(self.metric, str):
            check_name(self.metric, ("auto", "diagonal"), "metric")
        elif self.metric is not None:
            raise TypeError(f"metric must be 'auto', 'diagonal' or None, got {self.metric!r}.")
        if self._is_precomputed:
            raise CapabilityError(
                "kernel='precomputed' does not tell k(x, x) at new rows, which the variance "
                "needs; give a kernel by name, object or function."
            )
        kernel = get_kernel(
            self.kernel,
            gamma="median" if is_auto(self.gamma) else self.gamma,
            bandwidth_factor=self.bandwidth_factor,
        )
        if self.metric == "diagonal" and (
            not is_auto(self.gamma) or not has_rule(kernel) or smoothness(kernel) is None
        ):
            raise ValueError(
                "metric='diagonal' finds a bandwidth for each column: it needs gamma='auto' "
                "and the kernel 'rbf', or 'matern' with nu .5, 1.5 or 2.5, without a gamma of "
                "its own; take metric=None."
            )
        return Parts(kernel, self._make_solver())

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        solver = super()._make_solver(auto)
        if not isinstance(solver, DSG | DirectSolve):
            raise CapabilityError(
                f"solver {solver.name!r} gives no posterior variance; use direct, dsg, udsg or "
                "cdsg."
            )
        if isinstance(solver, DirectSolve) and self.variance == "operator":
            raise CapabilityError(
                "variance='operator' needs random features; use solver='dsg', or leave out "
                "the variance for the exact one."
            )
        return solver

    def _dsg_parameters(self) -> dict[str, Any]:
        # A variance to a few per cent takes larger blocks, whose inverse covariances are less
        # biased, and more damped steps (measured on 500 and 2,048 rows).
        return {"block_size": 512, "batch_size": 8192, "damping": 3.0}

    def _automatic(self, parts: Parts, rows: TrainingRows, *, stream: bool) -> Choice:
        n = rows.source.n_rows
        if self.variance == "operator":
            why = "variance='operator' is of random features"
        elif not rows.in_memory:
            why = "the rows are on disk"
        elif n > _DIRECT_ROWS:
            why = f"there are more than {_DIRECT_ROWS:,} rows"
        elif direct_bytes(n, 1, rows_nbytes(rows.source)) > usable_memory(self.memory_limit):
            why = "the kernel matrix does not fit in memory"
        else:
            why = f"the posterior of up to {_DIRECT_ROWS:,} rows is a closed form"
            return self._make_solver(DirectSolve()), why
        return self._make_solver(DSG()), why

    def _learn(
        self, targets: AnyArray | BatchSource, declared: AnyArray | None
    ) -> ScaledColumn:
        return ScaledColumn()

    def _task(self) -> ScaledColumn:
        return ScaledColumn(self.y_mean_, self.y_scale_)

    def _fit(self, parts: Parts, given: Given, apart: Given) -> TrainingRows:
        rows = super()._fit(parts, given, apart)
        source = rows.source
        if isinstance(source, ArraySource) and source.in_memory:
            kept = source.read(0, source.n_rows)  # copied: callers may change theirs
            y, weight = (None if a is None else a.copy() for a in (kept.y, kept.sample_weight))
            source = ArraySource(kept.X.copy(), y, weight, checked=True)
        self._source: BatchSource | None = source
        self._encoded = rows.encoded
        self._operator: PosteriorOperator | None = None
        self._factored: KernelMatrix | None = getattr(self._state, "matrix", None)
        self._ridge: float | None = None if self._factored is None else self._factored.ridge
        self.log_marginal_likelihood_ = self._likelihood()
        if self.variance == "operator":
            with single_threaded_blas():
                stream, batches = self.expansion_.stream, self._posterior_batches()
                self._operator = PosteriorOperator._fitted(
                    stream, batches, self.alpha_, self._seed
                )
            self._source = None
        return rows

    def _plan(self, parts: Parts, rows: TrainingRows, chosen: Choice, *, warm: bool) -> Plan:
        """Scale the targets and find what is "auto": rows are in their final order now."""
        start = clock()
        task, varies = ScaledColumn.learn(rows.source.chunks(), self.normalize_y)
        self._set(task.attributes())
        rows = replace(rows, task=task)
        scaling, kernel, told = self._searched(
            lambda: hyperparameters(self, parts.kernel, rows, varies),
            dict.fromkeys(VARIANCES, partial(check_real, low=0.0)) | {"tried": check_entries},
        )
        tried = told.pop("tried")
        self._set(told)
        plan = super()._plan(replace(parts, kernel=kernel), rows, chosen, warm=warm)
        exact = isinstance(plan.solver, DirectSolve)
        problem = replace(plan.problem, posterior=exact, scaling=scaling)
        found = {"search": tried} if tried else {}
        return replace(plan, problem=problem, found=found, seconds=clock() - start)

    def _alpha_for(self, rows: TrainingRows, *, stream: bool = False) -> float:
        task = rows.task
        assert isinstance(task, ScaledColumn)
        return float(self.noise_variance_ / (self.signal_variance_ * task.total))

    def _likelihood(self) -> float | None:
        """Return the logarithm of the likelihood of all rows, None without a factor."""
        if self._factored is None:
            return None
        _, y, weight, _ = self._rows_of_posterior()
        scale = self.y_scale_**2
        noise, signal = self.noise_variance_ / scale, self.signal_variance_ / scale
        encoded = self._task().encode(y)[:, 0].astype(np.float64)
        evidence = Evidence(encoded, weight, noise, signal)
        square = float(evidence.y @ cast("Any", self._state).coef[:, 0])
        value = evidence.likelihood(square, self._factored.log_determinant(), noise / signal)
        return value - evidence.total * float(np.log(self.y_scale_))

    def _kept_rows(self) -> TrainingRows:
        """Return the training rows, which a model from a file or an operator may not have."""
        assert self._source is not None
        return TrainingRows(self._source, self._task(), self._encoded)

    @property
    def _exact(self) -> bool:
        return isinstance(self.expansion_, SupportExpansion)

    def _rows_of_posterior(self) -> tuple[Matrix, AnyArray, Float64Array, Any]:
        assert isinstance(self._source, ArraySource)
        return self._kept_rows().usable(self._source.read(0, self._source.n_rows))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return state | {"_factored": None}  # made again from the rows

    def _extra_arrays(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        if self._operator is not None:
            theta = self._operator.theta
            return {"n_blocks": self._operator.n_blocks}, {"theta": theta}
        if not isinstance(self._source, ArraySource) or not self._source.in_memory:
            return {}, {}  # a file, memory map or stream is no part of a model file
        X, y, weight, _ = self._rows_of_posterior()
        arrays = {"y": y, "weight": weight}
        if sp.issparse(X):
            arrays |= {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        else:
            arrays["X"] = X
        return {"n_rows": len(y), "ridge": self._ridge}, arrays

    def _restore_extra(self, record: Record) -> None:
        self._source, self._operator, self._encoded = None, None, True
        self._factored = None
        self._ridge = record.take("ridge", or_none(partial(check_real, low=0.0)), None)
        if not hasattr(self, "noise_variance_"):  # 0.1.0: variances of scaled targets
            self.signal_variance_ *= self.y_scale_**2
            self.noise_variance_ = float(self.noise_variance) * self.y_scale_**2
            self.log_marginal_likelihood_ = None
        if "n_blocks" in record:
            theta = record.array("theta", "features", "features")
            n_blocks = record.take("n_blocks", check_int)
            stream = self.expansion_.stream
            if n_blocks * stream.planes * posterior.OPERATOR_BLOCK > len(theta):
                raise record.error(f"holds less than {n_blocks} blocks of the operator")
            self._operator = PosteriorOperator._of(stream, n_blocks, self.alpha_, self._seed)
            self._operator.n_blocks = n_blocks
            self._operator.theta = np.asarray(theta, np.float32)
        elif "n_rows" in record:
            record.sizes["n"] = record.take("n_rows", check_int)
            if "X" in record:
                X = record.array("X", "n", "d", kinds="biuf")
            else:
                X = record.csr("", "n", self._width)
            y, weight = (
                record.array("y", "n", kinds="biuf"),
                record.array("weight", "n", least=0),
            )
            self._source = ArraySource(X, y, weight, checked=True)

    def _posterior_batches(self) -> Iterator[TrainBatch]:
        """Yield training rows for the variance; the same batch where all rows fit in one."""
        batches, _ = self._kept_rows().batches(self.solver_, self._seed, 0)
        return (train for train, _ in batches)

    # -- prediction --------------------------------------------------------------------

    @overload
    def predict(
        self, X: Any, return_std: _No = ..., return_cov: _No = ..., include_noise: bool = ...
    ) -> Float64Array: ...

    @overload
    def predict(
        self, X: Any, return_std: _Yes, return_cov: bool = ..., include_noise: bool = ...
    ) -> tuple[Float64Array, Float64Array]: ...

    @overload
    def predict(
        self, X: Any, return_std: bool = ..., *, return_cov: _Yes, include_noise: bool = ...
    ) -> tuple[Float64Array, Float64Array]: ...

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = False,
    ) -> Any:
        """Return the posterior mean, and on request its standard deviation or covariance.

        Parameters
        ----------
        X : array-like or CSR matrix (m, d), or BatchSource for the mean alone
        return_std : bool, default=False
            Also return the standard deviation, shape (m,).
        return_cov : bool, default=False
            Also return the covariance, shape (m, m); needs ``variance="per_point"``.
        include_noise : bool, default=False
            Whether deviations and covariances are those of new observations y, including the
            variance of the noise, or those of f. Scikit-learn's are those of y if its kernel
            contains a ``WhiteKernel``, and of f if the noise is its ``alpha``.

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
        signal = self.signal_variance_
        noise = self.noise_variance_ if include_noise else 0.0
        if return_cov:
            covariance = signal * self._covariance(X)
            covariance[np.diag_indices(len(mean))] += noise
            return mean, covariance
        return mean, np.sqrt(signal * np.maximum(self._variance(X), 0.0) + noise)

    def _variance(self, X: Matrix) -> Float64Array:
        """Return ``k(x, x) - A(x, x)``, shape (m,)."""
        if self._operator is not None:
            prior = self.kernel_.diag(self.expansion_.stream.scaling.apply(X))
            with single_threaded_blas():
                return np.asarray(prior - self._operator.explained_variance(X), np.float64)
        m = X.shape[0]
        if self._exact:
            prior = self.kernel_.diag(self.expansion_.exact.scaling.apply(X))
            explained = np.empty(m)

            def task(columns: slice, Z: Float64Array) -> None:
                explained[columns] = (Z * Z).sum(axis=0)

            self._explain(X, task)
            return np.asarray(prior - explained)
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
        if self._exact:
            half = np.empty((self._source.n_rows, X.shape[0]))

            def task(columns: slice, Z: Float64Array) -> None:
                half[:, columns] = Z

            self._explain(X, task)
            with single_threaded_blas():
                explained = half.T @ half
            scaled = self.expansion_.exact.scaling.apply(X)
            return self._difference(scaled, explained)
        stream = self.expansion_.stream
        fits = self._source.n_rows <= self.solver_.resolve_batch_size(self._source.n_rows)
        problem = self._problem(stream.kernel, self.loss_, 1, self.alpha_)
        problem = replace(problem, fixed_rows=fits)
        with single_threaded_blas():
            explained = posterior.explained_covariance(
                self.solver_, problem, stream, self._posterior_batches, X, self.n_iter_
            )
        return self._difference(stream.scaling.apply(X), explained)

    def _difference(self, scaled: Matrix, explained: Float64Array) -> Float64Array:
        covariance = self.kernel_.pairwise(scaled, scaled) - explained
        return np.asarray((covariance + covariance.T) / 2, np.float64)

    def _explain(self, X: Matrix, take: Callable[[slice, Float64Array], None]) -> None:
        """Hand over ``L^-1 S k(rows, x)`` for some rows x of `X` at a time, in any order."""
        exact = self.expansion_.exact
        if self._ridge is None:  # time was up before the first factorisation: the prior
            take(slice(None), np.zeros((1, X.shape[0])))
            return
        kept, _, weight, _ = self._rows_of_posterior()
        with single_threaded_blas():
            rows, new = exact.prepare(kept), exact.prepare(X)
            if self._factored is None:
                assert self._ridge is not None
                matrix = kernel_matrix(exact, rows)
                try:
                    matrix.factor(np.sqrt(weight / weight.mean()), self._ridge)
                except np.linalg.LinAlgError:
                    raise ModelFileError(
                        "The training rows in the model file have no positive definite kernel "
                        f"matrix plus {self._ridge:g}: it was altered or written on another "
                        "machine; fit again for variances."
                    ) from None
                self._factored = matrix
            matrix = self._factored

            def task(a: int, b: int) -> None:
                block = exact.values(rows, new.take(slice(a, b)))
                take(slice(a, b), matrix.half_solve(matrix.scale[:, None] * block))

            over_tiles(X.shape[0], 128, task)

    def _half_inverse(self) -> Float64Array:
        """Return the matrix H of ``explained variance = |H k(rows, x)|^2``, (n, n)."""
        if not self._exact or self._ridge is None:
            raise CapabilityError(
                "The standard deviation has a closed form after solver='direct' only; export "
                "the mean alone, or fit with that solver."
            )
        self._explain(self._rows_of_posterior()[0][:1], lambda *_: None)  # factors if need be
        matrix = cast("KernelMatrix", self._factored)
        with single_threaded_blas():
            return matrix.half_solve(np.diag(matrix.scale))

    def to_onnx(self, path: str | os.PathLike[str] | None = None, *, std: bool = False) -> Any:
        """Return the fitted model as an ONNX model, as :meth:`KernelRegressor.to_onnx`.

        Parameters
        ----------
        path : str or path-like, optional
            Where to write the model too, atomically.
        std : bool, default=False
            Whether the model also returns the standard deviation of f: for ``solver="direct"``
            only, else CapabilityError; the model then holds ``8 n^2`` bytes for n rows.
        """
        return self._to_onnx(path, std=std)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Float64Array:
        """Return functions drawn from the posterior at the rows of `X`, shape (m, n_samples).

        Parameters
        ----------
        X : array-like or CSR matrix (m, d)
        n_samples : int, default=1
        random_state : int, RandomState or None, default=0
        """
        mean, covariance = self.predict(X, return_cov=True)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))  # noise may leave values below zero
        normals = check_random_state(random_state).standard_normal((len(mean), n_samples))
        return np.asarray(mean[:, None] + root @ normals, np.float64)

    @as_numpy
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the posterior mean."""
        from sklearn.metrics import r2_score

        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))
