"""Kernel regression."""

from __future__ import annotations

from typing import Any

from kernelgrad.estimators._tasks import Regression
from kernelgrad.estimators.kernel import BaseKernelEstimator
from kernelgrad.losses import Loss


class KernelRegressor(Regression, BaseKernelEstimator):
    r"""Kernel regressor: any loss, kernel and solver, on data too large for kernel matrices.

    Minimises ``mean_i w_i loss(y_i, f(x_i)) / mean_i w_i + (alpha / 2) ||f - b||^2_H`` over the
    kernel's function space, with an unpenalised constant b. With the squared loss
    (``(f - y)^2 / 2``) alpha is the ridge of kernel ridge regression divided by n.

    Parameters
    ----------
    loss : {"squared", "huber", "epsilon_insensitive", "absolute", "quantile"} or Loss
        Default ``"squared"``. For its parameters give an object: ``Quantile(0.9)``; Huber's
        delta and epsilon are in the units of y. ``Quantile((0.1, 0.5, 0.9))`` fits several
        quantiles of one target with shared features, one output each.
    kernel, gamma, bandwidth_factor, solver, alpha, C, max_iter, tol, early_stopping,
    validation_fraction, n_iter_no_change, fit_intercept, standardize, memory_limit,
    warm_start, random_state, verbose, callbacks
        As in :class:`KernelClassifier`. The validation score is R^2 for the squared loss,
        else the negative mean loss.

    Notes
    -----
    Several quantiles are fitted without a constraint between them; `predict` sorts the values
    of each row, which never moves them further from the true quantiles (Chernozhukov,
    Fernández-Val and Galichon 2010).

    Attributes
    ----------
    n_outputs_ : int
    alpha_, n_features_in_, feature_names_in_, expansion_, kernel_, n_random_features_,
    n_support_, n_iter_, best_iteration_, best_score_, history_, fit_status_
        As in :class:`KernelClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelgrad import KernelRegressor
    >>> X = np.linspace(-3, 3, 400)[:, None]
    >>> model = KernelRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(model.score(X, np.sin(X[:, 0])) > 0.99)
    True
    """

    def __init__(
        self,
        loss: str | Loss = "squared",
        kernel: Any = "rbf",
        *,
        gamma: float | str = "median",
        bandwidth_factor: float = 1.0,
        solver: Any = "auto",
        alpha: float | str = 1e-6,
        C: float | None = None,
        max_iter: int = 40,
        tol: float = 1e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        fit_intercept: bool = True,
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
        self.C = C
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    _searches = True
    _sibling = "KernelClassifier"
