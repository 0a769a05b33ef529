"""Kernel novelty detection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from sklearn.base import OutlierMixin

from kernelgrad.compute.backend import CPU
from kernelgrad.estimators.kernel import AnyKernel, BaseKernelEstimator
from kernelgrad.estimators.support import available_if, by_blocks, can_stream
from kernelgrad.families.reading import Data
from kernelgrad.families.unlabelled import Novelty, NoveltySpec, WithoutTargets
from kernelgrad.losses import OneClass
from kernelgrad.params import anything, boolean, integer, parameters
from kernelgrad.types import Float64Array, Gamma, IntArray, Rows, Values


@parameters
class KernelNoveltyDetector(OutlierMixin, BaseKernelEstimator):
    r"""One-class support vector machine on data too large for kernel matrices.

    Finds the function f and the level tau of the paper's novelty detection (Section 4),

    .. math::
        \min_{f, \tau} \; \frac1n \sum_i \max(0, \tau - f(x_i))
        + \frac\nu2 \|f\|^2 - \nu \tau .

    The f of scikit-learn's :class:`~sklearn.svm.OneClassSVM` is ``nu n`` times this one, which
    does not grow with n. A row is an outlier where ``f(x) < tau``; a fraction nu of the
    training rows are outliers. The dsg family takes steps of size ``(2 / nu) / (t + 2)``: with
    the level at the nu-quantile of each batch, those of Frank and Wolfe on the dual problem.

    Parameters
    ----------
    nu : float in (0, 1), default=0.1
        Fraction of training rows that are outliers.
    kernel : str or Kernel, default="rbf"
    gamma : float, "auto", "median" or "scale", default="auto"
        ``"auto"`` is half the median distance of two rows, as OneClassSVM's ``"scale"`` for
        normal columns; ``"median"`` itself is too wide to follow the rows.
    bandwidth_factor : float, default=1.0
    metric : array or None, default=None
        Weights of the scaled columns (d,), or a matrix (d, r) that they are multiplied by.
    solver : str or Solver, default="auto"
        ``"auto"`` is ``"working_set"``, which is exact, for up to some 60,000 rows in memory,
        else ``"dsg"``, or ``"block_descent"`` for kernels without random features. Objects of
        the dsg family need ``momentum=0``.
    tau : {"quantile", "steps"}, default="quantile"
        ``"quantile"`` takes the best level for each batch, ``"steps"`` the paper's gradient
        steps, which are slow (for ``DSG.paper``).
    max_iter : int, default=100
        Batches of ``"dsg"``, whose objective comes within O(1 / max_iter) of its minimum.
    standardize : bool, "robust", "ranks" or "auto", default="auto"
        Scaling of the columns. ``"auto"`` divides dense columns in different units (one spreads
        more than ten times, or less than a tenth, as wide as half of the others) by their
        deviations if gamma is a rule.
    categorical_features, device, memory_limit, time_limit, warm_start, random_state, verbose,
    callbacks
        As in :class:`KernelClassifier`.

    Attributes
    ----------
    offset_ : float
        tau, the weighted nu-quantile of f over at most 20,000 training rows (of the last call
        of ``partial_fit``), or the solver's own with ``tau="steps"``.
    expansion_, kernel_, n_random_features_, n_iter_, history_, fit_status_, n_features_in_,
    feature_names_in_
        As in :class:`KernelClassifier`.

    See Also
    --------
    KernelDensityRatio : Where rows of one sample are novel against another.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelgrad import KernelNoveltyDetector
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> detector = KernelNoveltyDetector(nu=0.1, random_state=0).fit(X)
    >>> detector.predict([[0.0, 0.0], [6.0, 6.0]])
    array([ 1, -1])
    """

    nu: float = anything(default=0.1, kw_only=False)
    kernel: AnyKernel = anything(default="rbf", kw_only=False)
    gamma: Gamma = anything(default="auto")
    tau: Literal["quantile", "steps"] = anything(default="quantile")
    max_iter: int = integer(default=100, low=1)
    device: str = anything(default=CPU)
    warm_start: bool = boolean(default=False)

    if TYPE_CHECKING:  # what fits set
        offset_: ClassVar[float]

    _spec_type = NoveltySpec
    _fixed: ClassVar[dict[str, Any]] = {"fit_intercept": True}

    def _targets(self) -> WithoutTargets:
        loss = OneClass(self.nu, tau=self.tau)
        return WithoutTargets(type(self).__name__, loss, Novelty, "novelty")

    def _fit(self, data: Data, *args: Any, **options: Any) -> Self:
        # y is there for the API's sake
        return super()._fit(data._replace(y=None), *args, **options)

    @available_if(can_stream)
    def partial_fit(self, X: Rows, y: Values = None, sample_weight: Values = None) -> Self:
        """Take further steps, one for every ``batch_size`` rows of `X`, in the order given.

        The level is then that of the rows of this call. Parameters are those of :meth:`fit`.
        """
        return self._fit(Data(X, None, sample_weight), stream=True)

    def decision_function(self, X: Rows) -> Float64Array:
        """Return ``f(X) - offset_``, shape (n,): negative for outliers."""
        return by_blocks(self._model.decision, X)  # type: ignore[no-any-return]

    def score_samples(self, X: Rows) -> Float64Array:
        """Return ``f(X)``, shape (n,): the smaller, the more abnormal."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Rows) -> IntArray:
        """Return +1 for ordinary rows and -1 for outliers, shape (n,)."""
        return by_blocks(self._model.predict, X)  # type: ignore[no-any-return]
