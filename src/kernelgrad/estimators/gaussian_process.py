"""Gaussian process regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, overload

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state

from kernelgrad.data import BatchSource
from kernelgrad.estimators import base
from kernelgrad.estimators.kernel import AnyKernel, BaseKernelEstimator
from kernelgrad.estimators.regressor import BaseRegressor
from kernelgrad.families.process import ProcessSpec
from kernelgrad.inputs import as_numpy
from kernelgrad.params import anything, boolean, choice, integer, parameters, real
from kernelgrad.tasks import ColumnTargets
from kernelgrad.types import Float64Array, Gamma, Metric, Rows

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
        median.
    bandwidth_factor : float, default=1.0
        Multiplies the bandwidth that a rule finds; no effect on a search along the gradient.
    metric : {"auto", "diagonal"} or None, default="auto"
        Whether each column has a bandwidth of its own (``"diagonal"``), or all share one
        (None). ``"auto"`` takes the better by Schwarz's criterion (docs/gaussian_process.md).
    normalize_y : bool, default=True
        Subtract the mean of y before fitting: far from all rows the prediction is the mean.
    variance : {"per_point", "operator"}, default="per_point"
        ``"per_point"`` keeps the training rows. ``"operator"`` (experimental, random features
        only) is that of the paper's Appendix D, with noise as large as small variances.
    solver : {"auto", "direct", "dsg", "udsg", "cdsg"} or an object of these, default="auto"
        ``"auto"`` is ``"direct"``, the closed form, up to 8,192 rows in memory, else ``"dsg"``.
        The dsg family by name has blocks of 512 frequencies, batches of 8,192 rows, damping 3.
    max_iter : int, default=60
        With random features, blocks of the mean and of each variance function.
    standardize
        As in :class:`KernelNoveltyDetector`.
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

    noise_variance: float | Literal["auto"] = real(
        default="auto", low=0, low_open=True, words=("auto",), kw_only=False
    )
    signal_variance: float | Literal["auto"] = real(
        default="auto", low=0, low_open=True, words=("auto",)
    )
    kernel: AnyKernel = anything(default="rbf")
    gamma: Gamma = anything(default="auto")
    metric: Metric = anything(default="auto")
    normalize_y: bool = boolean(default=True)
    variance: Literal["per_point", "operator"] = choice(
        ("per_point", "operator"), default="per_point", what="variance estimator"
    )
    max_iter: int = integer(default=60, low=1)

    _spec_type = ProcessSpec

    if TYPE_CHECKING:  # what fits set
        log_marginal_likelihood_: ClassVar[float | None]
        noise_variance_: ClassVar[float]
        signal_variance_: ClassVar[float]
        y_mean_: ClassVar[float]
        y_scale_: ClassVar[float]

    def _targets(self) -> ColumnTargets:
        return ColumnTargets(type(self).__name__, "squared")

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
        self, X: Rows, return_std: bool = False, return_cov: bool = False,
        include_noise: bool = False,
    ) -> Any:  # fmt: skip
        """Return the posterior mean, and on request its standard deviation or covariance.

        Parameters
        ----------
        X : array-like or CSR matrix (m, d), or BatchSource for the mean alone
        return_std : bool, default=False
            Also return the standard deviation, shape (m,).
        return_cov : bool, default=False
            Also return the covariance, shape (m, m); needs ``variance="per_point"``.
        include_noise : bool, default=False
            Whether deviations and covariances are those of new observations y, or those of f.

        Returns
        -------
        float64 array (m,), or a tuple of it and the other array
        """
        if return_std and return_cov:
            raise ValueError("Ask for return_std or return_cov, not both.")
        model = self._model
        mean = model.predict(X)
        if not (return_std or return_cov):
            return mean
        if isinstance(X, BatchSource):
            raise ValueError("Variances of a BatchSource are not available; give arrays.")
        posterior = model.posterior
        assert posterior is not None
        rows = model.inputs.read(X)
        noise = posterior.noise if include_noise else 0.0
        if return_cov:
            covariance = posterior.covariance(rows)
            covariance[np.diag_indices(len(mean))] += noise
            return mean, covariance
        return mean, np.sqrt(posterior.variance(rows) + noise)

    def sample_y(self, X: Rows, n_samples: int = 1, random_state: Any = 0) -> Float64Array:
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

    predict_interval = BaseRegressor.predict_interval
    calibrate_coverage = base.calibrate_coverage
    score = as_numpy(RegressorMixin.score)
