"""Kernel ridge regression as one bordered linear system, in the plainest form."""

from __future__ import annotations

import numpy as np


def ridge(K, y, weight, alpha, fit_intercept):
    """Return (coef, intercept) of the optimum over rows of positive weight, (n, C) and (C,)."""
    live = np.flatnonzero(weight)
    K, p = K[np.ix_(live, live)], weight[live] / weight.sum()
    m, C = len(live), y.shape[1]
    system = np.zeros((m + 1, m + 1))
    system[:m, :m] = K + alpha * np.diag(1 / p)
    system[m, m] = 1.0
    if fit_intercept:
        system[:m, m] = system[m, :m] = 1.0
        system[m, m] = 0.0
    solution = np.linalg.solve(system, np.vstack([y[live], np.zeros((1, C))]))
    coef = np.zeros((len(weight), C))
    coef[live] = solution[:m]
    return coef, solution[m]


def objective(K, y, weight, alpha, coef, intercept):
    p = weight / weight.sum()
    f = K @ coef
    return 0.5 * p @ ((y - f - intercept) ** 2).sum(axis=1) + 0.5 * alpha * (coef * f).sum()
