"""Kernel novelty detection."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kernelgrad._typing import AnyArray, Float64Array, FloatArray, IntArray
from kernelgrad.data import BatchSource
from kernelgrad.estimators._support import with_callbacks
from kernelgrad.estimators.base import MAX_VALIDATION_ROWS, can_stream
from kernelgrad.estimators.kernel import BaseKernelEstimator
from kernelgrad.losses import Loss, OneClass, get_loss
from kernelgrad.solvers import DSG, Solver

# Four times as many frequencies per block change no score (correlation .998 and more on three
# real sets) and cost four times as much.
_BLOCK_SIZE, _BATCH_SIZE = 256, 8192


class KernelNoveltyDetector(OutlierMixin, BaseKernelEstimator):  # type: ignore[misc]
    r"""One-class support vector machine on data too large for kernel matrices.

    Finds the function f and the level tau of the paper's novelty detection (Section 4),

    .. math::
        \min_{f, \tau} \; \frac1n \sum_i \max(0, \tau - f(x_i))
        + \frac\nu2 \|f\|^2 - \nu \tau .

    It is scikit-learn's :class:`~sklearn.svm.OneClassSVM` on another scale: its f is
    ``nu n`` times this one, so this one does not grow with n. A row is an outlier where
    ``f(x) < tau``; of the training rows that is a fraction nu.

    The default solver takes plain steps of size ``(2 / nu) / (t + 2)``. With the level at
    the nu-quantile of each batch these are the steps of Frank and Wolfe on the dual problem:
    f stays an average of features of the fraction nu of rows that lie deepest.

    Parameters
    ----------
    nu : float in (0, 1), default=0.1
        Fraction of training rows that are outliers.
    kernel : str or Kernel, default="rbf"
    gamma : float, "median" or "scale", default="median"
    bandwidth_factor : float, default=1.0
    solver : {"auto", "dsg", "udsg", "cdsg", "cached"} or Solver, default="auto"
        ``"auto"`` is ``"dsg"``, or ``"cached"`` for rows in memory and a kernel without random
        features. The names of the dsg family mean the steps above, blocks of 256 frequencies
        and batches of 8,192 rows; an object is used as it is (give it ``momentum=0``:
        momentum is slow here).
    max_iter : int, default=100
        Batches of ``"dsg"``: the objective comes within O(1 / max_iter) of its minimum.
        Blocks at most of ``"cached"``.
    standardize : bool, default=False
    memory_limit, warm_start, random_state, verbose, callbacks
        As in :class:`KernelClassifier`.

    Attributes
    ----------
    offset_ : float
        tau, the weighted nu-quantile of f over the training rows (over at most 20,000 of
        them, seeded; after ``partial_fit``, over the rows of the last call).
    expansion_, kernel_, n_random_features_, n_iter_, history_, fit_status_, n_features_in_,
    feature_names_in_
        As in :class:`KernelClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelgrad import KernelNoveltyDetector
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> detector = KernelNoveltyDetector(nu=0.1, random_state=0).fit(X)
    >>> detector.predict([[0.0, 0.0], [6.0, 6.0]])
    array([ 1, -1])
    """

    def __init__(
        self,
        nu: float = 0.1,
        kernel: Any = "rbf",
        *,
        gamma: float | str = "median",
        bandwidth_factor: float = 1.0,
        solver: Any = "auto",
        max_iter: int = 100,
        standardize: bool = False,
        memory_limit: float | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        self.nu = nu
        self.kernel = kernel
        self.gamma = gamma
        self.bandwidth_factor = bandwidth_factor
        self.solver = solver
        self.max_iter = max_iter
        self.standardize = standardize
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    _stratified = False
    _requires_y = False
    fit_intercept = True  # the level, which starts at 0

    @property
    def _alpha(self) -> float:
        return float(self.nu)  # the objective's own scale: another alpha rescales f and tau

    @property
    def _n_outputs(self) -> int:
        return 1

    def _make_loss(self) -> Loss:
        return get_loss(OneClass(self.nu), task="novelty")

    def _make_solver(self, auto: Solver[Any] | None = None) -> Solver[Any]:
        solver = super()._make_solver(auto)
        if isinstance(self.solver, str) and isinstance(solver, DSG):
            solver.set_params(
                preconditioned=False, step_size=1.0 / float(self.nu), decay=2.0, momentum=0.0,
                average=None, block_size=_BLOCK_SIZE, batch_size=_BATCH_SIZE,
            )  # fmt: skip
        return solver

    def _check_parameters(self) -> None:
        self._make_loss()
        super()._check_parameters()

    def _prepare_targets(self, y: AnyArray, *, reset: bool) -> tuple[AnyArray, Loss]:
        return y, self._make_loss()

    def _prepare_source(self, source: BatchSource) -> Loss:
        return self._make_loss()

    def _internal(self, y: AnyArray) -> AnyArray:
        return np.zeros(len(y))

    def _encode(self, y: AnyArray, loss: Loss) -> FloatArray:
        return np.zeros((len(y), 1), np.float32)

    def _class_factor(self, y: AnyArray) -> Float64Array | None:
        return None

    def _validation_score(self, loss: Loss) -> tuple[str, Any]:
        return "negative loss", None

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the detector.

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), memory map, DataFrame, or BatchSource
            Mostly ordinary rows.
        y : ignored
            Present for the API's sake.
        sample_weight : array-like (n,) or None
            Non-negative; a weight of 2 is a row given twice.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For parameters outside their domain, NaN or infinite values, or rows outside the
            kernel's domain; before any work is done.
        """
        return self._fit_checked(X, None, sample_weight)

    @available_if(can_stream)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take further steps, one for every ``batch_size`` rows of `X`, in the order given.

        The level is then that of the rows of this call. Parameters are those of :meth:`fit`.
        """
        return self._partial_fit(X, None, sample_weight)

    def _calibrate(self, source: BatchSource) -> None:
        rows: IntArray = np.arange(source.n_rows)
        if source.n_rows > MAX_VALIDATION_ROWS:
            key = np.random.SeedSequence([self._seed, 0x6C766C])
            rng = np.random.Generator(np.random.Philox(key))
            rows = np.sort(rng.choice(source.n_rows, MAX_VALIDATION_ROWS, replace=False))
        batch = source.take(rows)
        X, _, weight, _ = self._usable_rows(batch, np.zeros(batch.X.shape[0]))
        previous = self._previous_level
        expansion = self.expansion_.copy()  # the solver goes on with a level of its own
        expansion.intercept = np.zeros(1)
        loss = self.loss_
        assert isinstance(loss, OneClass)
        if len(weight):
            expansion.intercept = -loss.level(expansion.raw_prediction(X), weight)
        elif previous is not None:  # no row that counts: the level stays
            expansion.intercept = np.array([-previous])
        self._set_function(expansion)

    def _finish(self, *args: Any) -> None:
        self._previous_level = getattr(self, "offset_", None)
        super()._finish(*args)

    def _check_continuation(self) -> None:
        before = self.loss_.nu if hasattr(self, "_state") else self.nu
        if float(before) != float(self.nu):
            raise ValueError(
                f"nu changed from {before!r} to {self.nu!r} in the middle of a fit; set it "
                "back, or fit a new estimator."
            )
        super()._check_continuation()

    def _set_function(self, expansion: Any) -> None:
        super()._set_function(expansion)
        self.offset_ = -float(expansion.intercept[0])

    def decision_function(self, X: Any) -> Float64Array:
        """Return ``f(X) - offset_``, shape (n,): negative for outliers."""
        return self._raw(X).ravel()

    def score_samples(self, X: Any) -> Float64Array:
        """Return ``f(X)``, shape (n,): the smaller, the more abnormal."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> IntArray:
        """Return +1 for ordinary rows and -1 for outliers, shape (n,)."""
        check_is_fitted(self, "expansion_")
        return np.where(self.decision_function(X) >= 0, 1, -1)
