"""Linear classification and regression."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelgrad.data.memory import rows_nbytes, usable_memory
from kernelgrad.estimators.classifier import BaseClassifier
from kernelgrad.estimators.plan import Choice, Parts, Plan
from kernelgrad.estimators.regressor import BaseRegressor
from kernelgrad.estimators.supervised import BaseSupervisedEstimator
from kernelgrad.estimators.warnings import warn_caller
from kernelgrad.functions.expansions import LinearExpansion
from kernelgrad.kernels import Polynomial
from kernelgrad.linear.base import LinearProblem, LinearSolver
from kernelgrad.linear.rbcd import RBCD, WHOLE, WHOLE_ENTRIES
from kernelgrad.linear.sdca import LinearSDCA
from kernelgrad.linear.sgd import SGD
from kernelgrad.linear.svrg import SVRG
from kernelgrad.losses import Loss
from kernelgrad.params import anything, choice, integer, parameters, real
from kernelgrad.solvers import LINEAR_SOLVERS, Solver, get_linear_solver
from kernelgrad.solvers.loop import left_over
from kernelgrad.training_rows import Batches, TrainingRows
from kernelgrad.types import AnyArray, Float64Array
from kernelgrad.validation import check_name

_INNER_PRODUCT = Polynomial(degree=1, gamma=1.0, coef0=0.0)
_PENALTIES = ("elasticnet", "l1", "l2")
_RESPONSE_BYTES = 120  # bytes for each response, of which RBCD keeps the most
_STEEP = 0.1  # slope over the first one, or excess over the objective, that calls for a warning
_LONG = 300.0  # longest over median length, beyond which one row can be all that the loss sees
_COPIES = 3.0  # copies of the rows in memory: the user's, a batch, by columns
_DISK_CELLS, _DISK_ROWS = 2**24, (4096, 65_536)  # cells and rows of a batch from disk


def choose_linear_solver(
    loss: Loss, *, rows: str, n_rows: int = 0, n_features: int, n_outputs: int = 1, l2: float
) -> tuple[LinearSolver[Any], str]:
    """Return the solver that ``solver="auto"`` of linear estimators stands for, and the reason.

    The first rule that applies decides; docs/linear.md has them as a table. `l2` is the weight
    of the L2 part of the penalty. Raises CapabilityError where no linear solver takes the loss.
    """
    check_name(rows, ("memory", "disk", "stream", "large"), "place of rows")
    SGD().check_loss(loss)
    if rows != "memory":
        why = {
            "disk": "the rows are on disk",
            "stream": "the rows are a stream",
            "large": "the rows do not fit in memory three times",
        }
        return SGD(), why[rows]
    if RBCD.takes(loss):
        if n_features <= WHOLE and n_features**2 * n_outputs <= WHOLE_ENTRIES:
            return RBCD(), f"the loss is smooth and there are at most {WHOLE} columns"
        if LinearSDCA.takes(loss) and l2 * n_rows >= 1.0:
            return LinearSDCA(), "many columns, and the penalty has an L2 part"
        return SVRG(), "the loss is smooth and the rows are in memory"
    if loss.smoothness is not None and SVRG.takes(loss):
        return SVRG(), "the loss is smooth and the rows are in memory"
    fast = "classification" in loss.tasks or l2 * n_rows >= 1.0
    if LinearSDCA.takes(loss) and l2 > 0 and fast:
        return LinearSDCA(), "the loss has kinks and the penalty an L2 part"
    return SGD(), "the loss has kinks and the penalty no L2 part, or a very small one"


@parameters
class BaseLinearEstimator(BaseSupervisedEstimator):
    loss: str | Loss = anything(default="squared", kw_only=False)
    penalty: str | None = choice(_PENALTIES, default="l2", words=(None,))
    l1_ratio: float = real(default=0.5, low=0, high=1)
    alpha: float = anything(default=1e-4)
    max_iter: int = integer(default=100, low=1)
    n_iter_no_change: int = integer(default=5, low=1)

    _solvers = LINEAR_SOLVERS
    _streaming = " with solver='sgd'", "'sgd'"
    _problem_type = LinearProblem
    if TYPE_CHECKING:  # what fits set
        coef_: ClassVar[Float64Array]

    @property
    def _l1_share(self) -> float:
        shares = {None: 0.0, "l2": 0.0, "l1": 1.0, "elasticnet": float(self.l1_ratio)}
        return shares[self.penalty]

    def _given_alpha(self) -> float:
        return 0.0 if self.penalty is None else float(self.alpha)

    def _make_parts(self) -> Parts:
        if self.penalty is None and self.C is not None:
            raise ValueError("penalty=None has no strength; leave C out, or name a penalty.")
        return Parts(_INNER_PRODUCT, self._make_solver())

    def _make_solver(self, auto: Solver[Any] | None = None) -> LinearSolver[Any]:
        solver: LinearSolver[Any] = get_linear_solver(self.solver if auto is None else auto)
        return solver

    def _automatic(self, parts: Parts, rows: TrainingRows, *, stream: bool) -> Choice:
        where = "stream" if stream else "disk"
        if rows.in_memory and not stream:
            where = "memory" if self._fits(rows) else "large"
        n = rows.source.n_rows
        # but for weights
        alpha = self._given_alpha() if self.C is None else 1.0 / (float(self.C) * max(1, n))
        return choose_linear_solver(
            rows.task.loss,
            rows=where,
            n_rows=n,
            n_features=self._width,
            n_outputs=rows.task.n_outputs,
            l2=alpha * (1.0 - self._l1_share),
        )

    def _fits(self, rows: TrainingRows) -> bool:
        responses = _RESPONSE_BYTES * rows.source.n_rows * rows.task.n_outputs
        needed = _COPIES * rows_nbytes(rows.source) + responses
        return needed <= usable_memory(self.memory_limit)

    def _plan(self, parts: Parts, rows: TrainingRows, chosen: Choice, *, warm: bool) -> Plan:
        plan = super()._plan(parts, rows, chosen, warm=warm)
        in_memory = rows.in_memory and not (self._auto_solver and not self._fits(rows))
        if in_memory or not plan.solver.streams:
            return plan
        size = int(np.clip(_DISK_CELLS // max(1, rows.source.n_features), *_DISK_ROWS))
        return replace(plan, batch_size=size)

    def _problem_options(self) -> dict[str, Any]:
        return {"l1_ratio": self._l1_share, "tol": float(self.tol)}

    def _run(self, plan: Plan, batches: Batches) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # raised as an error that says why
            super()._run(plan, batches)
        audit = self.history_.get("audit", {})
        objective = audit.get("objective", 0.0)
        slope = audit.get("optimality") or 0.0
        if not np.isfinite(objective):
            raise ValueError(
                f"solver {self.solver_.name!r} diverged: the objective is {objective!r} after "
                f"{self.n_iter_} iterations; give a smaller step_size, or leave it at 'auto'."
            )
        # on columns of very different scales each iteration gains next to nothing
        ended = self.fit_status_ == "max_iter" and self.loss_.is_smooth and not plan.stream
        if ended and slope > _STEEP and not (left_over(dict(self.history_)) or 0.0) > _STEEP:
            warn_caller(
                f"The fit ended after max_iter={self.max_iter} iterations with a slope of "
                f"{slope:.0%} of the first one; scale the columns, take solver='auto', or "
                "raise max_iter.",
                ConvergenceWarning,
            )

        if audit.get("longest", 0.0) > _LONG:
            warn_caller(
                f"The longest row is {audit['longest']:.3g} times as long as the median one "
                "and may decide the model alone; correct or drop such rows, or scale the "
                "columns by scikit-learn's RobustScaler and clip them."
            )

    def _function_info(self) -> dict[str, Any]:
        return {"penalty": self.penalty, "l1_ratio": self._l1_share}


@parameters
class LinearClassifier(BaseClassifier, BaseLinearEstimator):
    r"""Linear classifier: any loss, L1 and L2 penalties, and solvers for many rows.

    Minimises, over coefficients W and an intercept b that has no penalty,

    .. math:: \frac{\sum_i w_i\, l(y_i, x_i W + b)}{\sum_i w_i}
              + \alpha \Bigl( \rho \|W\|_1 + \frac{1 - \rho}{2} \|W\|_2^2 \Bigr)

    with rho the share of L1. Two classes have one output, more have one each (one-vs-rest, or
    jointly with the multinomial ``"log_loss"``).

    Parameters
    ----------
    loss : str or Loss, default="log_loss"
        ``"log_loss"`` is logistic for two classes, multinomial for more; ``"logistic"`` is
        one-vs-rest. Both give probabilities. The others are ``"hinge"``, ``"smoothed_hinge"``,
        ``"modified_logistic"``, ``"squared_hinge"`` and ``"squared"``. docs/linear.md lists the
        losses of each solver.
    penalty : {"l2", "l1", "elasticnet"} or None, default="l2"
        rho is 0, 1 or `l1_ratio`; None is alpha = 0.
    l1_ratio : float in [0, 1], default=0.5
        rho of ``penalty="elasticnet"``.
    alpha : float >= 0, default=1e-4
        Weight of the penalty. With n rows it is ``1 / (C n)`` of scikit-learn's
        LogisticRegression and LinearSVC, and alpha of its SGDClassifier; a penalty written
        ``lambda |W|^2`` has ``alpha = 2 lambda``.
    C, early_stopping, validation_fraction, fit_intercept, probability, random_state, verbose,
    callbacks
        As in :class:`KernelClassifier`.
    solver : str or LinearSolver, default="auto"
        A name of docs/linear.md, or an object: ``SVRG(batch_size=32)``. For rows in memory
        ``"auto"`` is ``"rbcd"`` for smooth losses on at most 512 columns, ``"sdca"`` or
        ``"svrg"`` on more columns, and ``"sdca"`` for the hinge if the penalty has an L2 part.
        Otherwise it is ``"sgd"``: for rows on disk, for ``partial_fit``, and for rows of which
        three copies do not fit in memory.
    max_iter : int >= 1, default=100
        Largest number of passes over rows in memory, or of batches (2^24 cells, 4,096 to 65,536
        rows) of rows on disk. Solvers other than ``"sgd"``, ``"pegasos"`` and ``"sbmd"`` read
        all rows into memory.
    tol : float >= 0, default=1e-4
        The fit has converged when the largest entry of the least subgradient is at most `tol`
        times that at W = 0, or the duality gap at most `tol` times the objective; with
        `early_stopping` `tol` is also the smallest gain of the validation score or loss that
        counts as progress. ``"sgd"`` and similar solvers run for `max_iter`.
    n_iter_no_change : int >= 1, default=5
    class_weight : dict, "balanced" or None, default=None
        As in scikit-learn; multiplies the sample weights. ``"balanced"`` gives every class the
        same total weight, ``n / K`` each. Weights ``1 / n_c`` that are not divided by their
        sum, K, make the loss K times as large: a penalty ``lambda |W|^2`` beside it has
        ``alpha = 2 lambda / K``.
    categorical_features
        As in :class:`KernelClassifier`.
    memory_limit : float or None, default=None
        Bytes that ``solver="auto"`` may count on (half of the system's memory when None), and
        the bound of the covariances of ``"scv"``.
    time_limit : float > 0 or None, default=None
        As in :class:`KernelClassifier`.
    warm_start : bool, default=False
        Another fit continues with ``max_iter`` more iterations, also with another alpha, which
        gives a path of penalties.

    Attributes
    ----------
    coef_ : float64 array (1, d) for two classes, (K, d) for more
    intercept_ : float64 array (1,) or (K,)
    alpha_ : float
        The weight of the penalty that was used, given or computed from C.
    expansion_ : LinearExpansion
        The fitted function.
    classes_, n_features_in_, feature_names_in_, n_iter_, best_iteration_, best_score_,
    fit_status_
        As in :class:`KernelClassifier`.
    history_ : dict of lists
        One entry per iteration, as in :class:`KernelClassifier`; ``"audit"`` has objective and
        optimality of the result on the rows of the last batch, and the length of the longest
        of these rows over that of the median one.

    See Also
    --------
    KernelClassifier : Functions that are not linear.
    RandomFeatures : Features that make a linear function a kernel machine.

    Notes
    -----
    The longest rows limit the step size: scale columns first, by StandardScaler or, for CSR
    rows, by MaxAbsScaler.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from kernelgrad import LinearClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LinearClassifier(random_state=0).fit(X[:1200] / 16, y[:1200])
    >>> bool(model.score(X[1200:] / 16, y[1200:]) > 0.9)
    True
    """

    loss: str | Loss = anything(default="log_loss", kw_only=False)

    _sibling = "LinearRegressor"

    def _function_attributes(self, expansion: LinearExpansion) -> dict[str, Any]:
        return super()._function_attributes(expansion) | {
            "coef_": np.array(expansion.coef.T, order="C")
        }


@parameters
class LinearRegressor(BaseRegressor, BaseLinearEstimator):
    r"""Linear regressor: any loss, L1 and L2 penalties, and solvers for many rows.

    Minimises, over coefficients W and an intercept b that has no penalty,

    .. math:: \frac{\sum_i w_i\, l(y_i, x_i W + b)}{\sum_i w_i}
              + \alpha \Bigl( \rho \|W\|_1 + \frac{1 - \rho}{2} \|W\|_2^2 \Bigr)

    with rho the share of L1. The squared loss is ``(f - y)^2 / 2``: alpha and `l1_ratio` are
    those of scikit-learn's ElasticNet and Lasso, and Ridge has ``n alpha``. The losses of
    several outputs add up.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        As in :class:`KernelRegressor`. Each solver supports some of the losses
        (docs/linear.md).
    penalty, l1_ratio, alpha, C, max_iter, tol, early_stopping, validation_fraction,
    n_iter_no_change, fit_intercept, categorical_features, memory_limit, time_limit,
    warm_start, random_state, verbose, callbacks
        As in :class:`LinearClassifier`. The validation score is R^2 for the squared loss, else
        the negative mean loss.
    solver : str or LinearSolver, default="auto"
        For rows in memory ``"auto"`` is ``"rbcd"`` for smooth losses (squared, Huber) on at
        most 512 columns. On more columns, and for the other losses, it is ``"sdca"`` if the L2
        part of the penalty is at least ``1 / n``, else ``"svrg"`` for smooth losses. Otherwise
        it is ``"sgd"``.

    Attributes
    ----------
    coef_ : float64 array (d,), or (n_outputs, d) where y is 2-d or the loss has several outputs
    intercept_ : float, or float64 array (n_outputs,)
    n_outputs_ : int
    alpha_, n_features_in_, feature_names_in_, expansion_, n_iter_, best_iteration_,
    best_score_, history_, fit_status_
        As in :class:`LinearClassifier`.

    See Also
    --------
    KernelRegressor : Functions that are not linear.
    RandomFeatures : Features that make a linear function a kernel machine.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelgrad import LinearRegressor
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> model = LinearRegressor(alpha=1e-6, random_state=0).fit(X, X @ [1.0, -2.0, 0.0] + 3.0)
    >>> model.coef_.round(2) + 0.0, round(model.intercept_, 2)
    (array([ 1., -2.,  0.]), 3.0)
    """

    _sibling = "LinearClassifier"

    def _function_attributes(self, expansion: LinearExpansion) -> dict[str, Any]:
        coef: AnyArray = np.array(expansion.coef.T, order="C")
        intercept: Any = expansion.intercept
        if self._y_ndim == 1:
            coef, intercept = coef[0], float(intercept[0])
        return super()._function_attributes(expansion) | {
            "coef_": coef, "intercept_": intercept,
        }  # fmt: skip
