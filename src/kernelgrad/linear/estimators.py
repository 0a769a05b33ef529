"""Linear classification and regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from kernelgrad.estimators.base import BaseRowsEstimator
from kernelgrad.estimators.classifier import BaseClassifier
from kernelgrad.estimators.regressor import BaseRegressor
from kernelgrad.linear.family import LinearSpec
from kernelgrad.losses import Loss
from kernelgrad.params import anything, boolean, choice, integer, parameters, real
from kernelgrad.types import Float64Array

_PENALTIES = ("elasticnet", "l1", "l2")


@parameters
class BaseLinearEstimator(BaseRowsEstimator):
    """Parameters of linear estimators."""

    loss: str | Loss = anything(default="squared", kw_only=False)
    penalty: str | None = choice(_PENALTIES, default="l2", words=(None,))
    l1_ratio: float = real(default=0.5, low=0, high=1)
    alpha: float = real(default=1e-4, low=0)
    C: float | None = real(default=None, low=0, low_open=True, words=(None,))
    max_iter: int = integer(default=100, low=1)
    tol: float = real(default=1e-4, low=0)
    early_stopping: bool = boolean(default=False)
    validation_fraction: float = real(default=0.1, low=0, high=1, low_open=True, high_open=True)
    n_iter_no_change: int = integer(default=5, low=1)
    fit_intercept: bool = boolean(default=True)
    warm_start: bool = boolean(default=False)

    _spec_type = LinearSpec
    if TYPE_CHECKING:  # what fits set
        coef_: ClassVar[Float64Array]

    def _fit(self, *args: Any, **options: Any) -> Self:
        # a solver that diverges is an error that says why
        with np.errstate(over="ignore", invalid="ignore"):
            return super()._fit(*args, **options)


@parameters
class LinearClassifier(BaseClassifier, BaseLinearEstimator):
    r"""Linear classifier: any loss, L1 and L2 penalties, and solvers for many rows.

    Minimises, over coefficients W and an intercept b that has no penalty,

    .. math:: \frac{\sum_i w_i\, l(y_i, x_i W + b)}{\sum_i w_i}
              + \alpha \Bigl( \rho \|W\|_1 + \frac{1 - \rho}{2} \|W\|_2^2 \Bigr)

    with rho the share of L1. Two classes have one output, more have one each (one-vs-rest, or
    jointly with the multinomial ``"log_loss"``). Scale the columns first, by StandardScaler or,
    for CSR rows, by MaxAbsScaler: the longest rows limit the step size.

    Parameters
    ----------
    loss : str or Loss, default="log_loss"
        ``"log_loss"`` is logistic for two classes, multinomial for more; ``"logistic"`` is
        one-vs-rest. Both give probabilities. docs/linear.md has the losses of each solver.
    penalty : {"l2", "l1", "elasticnet"} or None, default="l2"
        rho is 0, 1 or `l1_ratio`; None is alpha = 0.
    l1_ratio : float in [0, 1], default=0.5
        rho of ``penalty="elasticnet"``.
    alpha : float >= 0, default=1e-4
        Weight of the penalty. With n rows it is ``1 / (C n)`` of scikit-learn's
        LogisticRegression and LinearSVC, and alpha of its SGDClassifier; a penalty written
        ``lambda |W|^2`` has ``alpha = 2 lambda``.
    C, early_stopping, validation_fraction, n_iter_no_change, fit_intercept, probability,
    categorical_features, time_limit, random_state, verbose, callbacks
        As in :class:`KernelClassifier`.
    solver : str or LinearSolver, default="auto"
        A name of docs/linear.md, which has the rules of ``"auto"``, or an object:
        ``SVRG(batch_size=32)``.
    max_iter : int >= 1, default=100
        Largest number of passes over rows in memory, or of batches (2^24 cells, 4,096 to 65,536
        rows) of rows on disk. Solvers other than ``"sgd"``, ``"pegasos"`` and ``"sbmd"`` read
        all rows into memory.
    tol : float >= 0, default=1e-4
        The fit has converged when the largest entry of the least subgradient is at most `tol`
        times that at W = 0, or the duality gap at most `tol` times the objective; with
        `early_stopping` it is also the smallest gain of the validation score that counts.
        ``"sgd"`` and similar solvers run for `max_iter`.
    class_weight : dict, "balanced" or None, default=None
        As in scikit-learn; multiplies the sample weights. ``"balanced"`` gives each class the
        total weight ``n / K``; weights ``1 / n_c`` make the loss K times as large, so that a
        penalty ``lambda |W|^2`` beside them has ``alpha = 2 lambda / K``.
    memory_limit : float, str or None, default=None
        Bytes, or "2 GB", that ``solver="auto"`` may count on (half of the system's memory when
        None), and the bound of the covariances of ``"scv"``.
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
        optimality of the result on the rows of the last batch, and the length of the longest of
        these rows over that of the median one.

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
    probability: bool = boolean(default=True)

    _sibling = "LinearRegressor"


@parameters
class LinearRegressor(BaseRegressor, BaseLinearEstimator):
    """Linear regressor: any loss, L1 and L2 penalties, and solvers for many rows.

    Minimises the objective of :class:`LinearClassifier`. The squared loss is ``(f - y)^2 / 2``:
    alpha and `l1_ratio` are those of scikit-learn's ElasticNet and Lasso, and Ridge has ``n
    alpha``. The losses of several outputs add up. The validation score is R^2 for the squared
    loss, else the negative mean loss.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        As in :class:`KernelRegressor`.
    penalty, l1_ratio, alpha, C, solver, max_iter, tol, early_stopping, validation_fraction,
    n_iter_no_change, fit_intercept, categorical_features, memory_limit, time_limit,
    warm_start, random_state, verbose, callbacks
        As in :class:`LinearClassifier`.

    Attributes
    ----------
    coef_ : float64 array (d,), or (n_outputs, d) where y is 2-d or the loss has several outputs
    intercept_ : float, or float64 array (n_outputs,)
    n_outputs_ : int
    alpha_, n_features_in_, feature_names_in_, expansion_, n_iter_, best_iteration_,
    best_score_, history_, fit_status_
        As in :class:`LinearClassifier`.

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
