"""Kernel novelty detection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from kernelgrad.compute.rng import draws
from kernelgrad.estimators.blocks import by_blocks
from kernelgrad.estimators.kernel import BaseUnlabelledEstimator
from kernelgrad.estimators.plan import Given, Parts
from kernelgrad.estimators.support import available_if, can_stream, is_auto
from kernelgrad.kernels import Kernel, get_kernel
from kernelgrad.losses import Loss, OneClass, get_loss
from kernelgrad.params import anything, integer, parameters
from kernelgrad.solvers import DSG, Solver
from kernelgrad.tasks import Novelty
from kernelgrad.training_rows import MAX_VALIDATION_ROWS, TrainingRows
from kernelgrad.types import Float64Array, IntArray
from kernelgrad.validation import CapabilityError


@parameters
class KernelNoveltyDetector(OutlierMixin, BaseUnlabelledEstimator):
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
        else ``"dsg"``, or ``"block_descent"`` for kernels without random features. ``"dsg"``,
        ``"udsg"`` and ``"cdsg"`` by name have blocks of 256 frequencies and batches of 8,192
        rows; objects need ``momentum=0``.
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
    kernel: Any = anything(default="rbf", kw_only=False)
    gamma: float | str = anything(default="auto")
    tau: str = anything(default="quantile")
    max_iter: int = integer(default=100, low=1)

    if TYPE_CHECKING:  # what fits set
        offset_: ClassVar[float]

    _onnx_kind = "novelty"
    _task_type = Novelty

    def _named(self, gamma: Any) -> Kernel:
        if not is_auto(gamma):
            return super()._named(gamma)
        width = 0.5 * float(self.bandwidth_factor)
        return get_kernel(self.kernel, gamma="median", bandwidth_factor=width)

    def _alpha_for(self, rows: TrainingRows, *, stream: bool = False) -> float:
        return float(self.nu)  # the objective's own scale: another alpha rescales f and tau

    _loss_task = "novelty"

    def _make_loss(self) -> Loss:
        return get_loss(OneClass(self.nu, tau=self.tau), task="novelty")

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        solver = super()._make_solver(auto)
        if self.tau == "steps" and not isinstance(solver, DSG):
            raise CapabilityError(
                f"tau='steps' is for the dsg family, not for solver {solver.name!r}; leave "
                "tau='quantile', or give solver='dsg'."
            )
        return solver

    def _dsg_parameters(self) -> dict[str, Any]:
        # Blocks of four times as many frequencies change no score and cost four times as much.
        return {
            "preconditioned": False, "step_size": 1.0 / float(self.nu), "decay": 2.0,
            "momentum": 0.0, "average": None, "block_size": 256, "batch_size": 8192,
        }  # fmt: skip

    def _fit_checked(self, given: Given, apart: Given) -> Self:
        return super()._fit_checked(given._replace(y=None), apart)  # there for the API's sake

    @available_if(can_stream)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take further steps, one for every ``batch_size`` rows of `X`, in the order given.

        The level is then that of the rows of this call. Parameters are those of :meth:`fit`.
        """
        return self._partial_fit(X, None, sample_weight)

    def _settled(self, expansion: Any, rows: TrainingRows) -> Any:
        if self.tau == "steps":
            return expansion
        n, at = rows.source.n_rows, rows.train
        if n > MAX_VALIDATION_ROWS:
            rng = draws(self._seed, 0x6C766C)
            at = np.sort(rng.choice(n, MAX_VALIDATION_ROWS, replace=False))
        X, _, weight, _ = rows.usable(rows.source.take(at))
        loss = rows.task.loss
        assert isinstance(loss, OneClass)
        expansion = expansion.copy()  # the solver goes on with a level of its own
        expansion.intercept = np.zeros(1)
        if len(weight):
            expansion.intercept = -loss.level(expansion.raw_prediction(X), weight)
        elif hasattr(self, "offset_"):  # no row that counts: the level stays
            expansion.intercept = np.array([-self.offset_])
        return expansion

    def _check_continuation(self, parts: Parts) -> None:
        before = self.loss_.nu if hasattr(self, "_state") else self.nu
        if float(before) != float(self.nu):
            raise ValueError(
                f"nu changed from {before!r} to {self.nu!r} in the middle of a fit; set it "
                "back, or fit a new estimator."
            )
        super()._check_continuation(parts)

    def _function_attributes(self, expansion: Any) -> dict[str, Any]:
        offset = -float(expansion.intercept[0])
        return super()._function_attributes(expansion) | {"offset_": offset}

    @by_blocks
    def decision_function(self, X: Any) -> Float64Array:
        """Return ``f(X) - offset_``, shape (n,): negative for outliers."""
        return self._raw(X).ravel()

    @by_blocks
    def score_samples(self, X: Any) -> Float64Array:
        """Return ``f(X)``, shape (n,): the smaller, the more abnormal."""
        return np.asarray(self.decision_function(X) + self.offset_)

    @by_blocks
    def predict(self, X: Any) -> IntArray:
        """Return +1 for ordinary rows and -1 for outliers, shape (n,)."""
        check_is_fitted(self, "expansion_")
        return np.where(self.decision_function(X) >= 0, 1, -1)
