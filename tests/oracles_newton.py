"""The minimum of a smooth loss by dense Newton steps in eigenfunctions of K, float64."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

import oracles_losses as losses


def hessian(loss, y, f, a):
    """Return the Hessian of each row, (n, C, C): diagonal where outputs are apart."""
    each = np.eye(f.shape[1])
    if loss == "log_loss":
        return (s := softmax(f, axis=1))[..., None] * (each - s[:, None])
    return losses.curvature(loss, y, f, a)[..., None] * each


def minimum(loss, K, y, weight, alpha, fit_intercept=True, a=0.0):
    """Return the least objective and the responses there, (n, C)."""
    p, (n, C) = weight / weight.sum(), y.shape
    least, V = np.linalg.eigh(K)
    Z = np.column_stack([V * np.sqrt(np.maximum(least, 0)), np.full(n, float(fit_intercept))])
    penalty = alpha * np.append(np.ones(n), 0.0)[:, None]
    theta = np.zeros((n + 1, C))

    def objective(t):
        return p @ losses.value(loss, y, Z @ t, a).sum(1) + 0.5 * (penalty * t**2).sum()

    for _ in range(200):
        f = Z @ theta
        g = Z.T @ (p[:, None] * losses.slope(loss, y, f, a)) + penalty * theta
        H = np.einsum("ia,i,icd,ib->acbd", Z, p, hessian(loss, y, f, a), Z, optimize=True)
        H = H.reshape((n + 1) * C, -1) + np.diag(np.repeat(penalty + 1e-15, C))
        step, size = np.linalg.solve(H, g.ravel()).reshape(g.shape), 1.0
        while objective(theta - size * step) > objective(theta) and size > 1e-9:
            size *= 0.5
        if size * (g * step).sum() <= 1e-12 * abs(objective(theta)):
            break
        theta = theta - size * step
    return objective(theta), Z @ theta
