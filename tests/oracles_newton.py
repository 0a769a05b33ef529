"""The minimum of a smooth loss by dense Newton steps in eigenfunctions of K, float64."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, log_expit, logsumexp, softmax, xlogy

each = np.eye  # outputs apart: the Hessian of a row is diagonal
LOSSES = {  # value (n,), slope (n, C), Hessian (n, C, C) of targets y and predictions f
    "logistic": (
        lambda y, f: -log_expit(y * f).sum(1),
        lambda y, f: -y * expit(-y * f),
        lambda y, f: (expit(f) * expit(-f))[..., None] * each(f.shape[1]),
    ),
    "log_loss": (
        lambda y, f: logsumexp(f, axis=1) - (y * f).sum(1),
        lambda y, f: softmax(f, axis=1) - y,
        lambda y, f: (s := softmax(f, axis=1))[..., None] * (each(f.shape[1]) - s[:, None]),
    ),
    "squared_hinge": (
        lambda y, f: (np.maximum(0, 1 - y * f) ** 2).sum(1),
        lambda y, f: -2 * y * np.maximum(0, 1 - y * f),
        lambda y, f: 2.0 * (y * f < 1)[..., None] * each(f.shape[1]),
    ),
    "squared": (
        lambda y, f: 0.5 * ((f - y) ** 2).sum(1),
        lambda y, f: f - y,
        lambda y, f: np.ones_like(f)[..., None] * each(f.shape[1]),
    ),
    "poisson": (
        lambda y, f: (np.exp(f) - y * f + xlogy(y, y) - y).sum(1),
        lambda y, f: np.exp(f) - y,
        lambda y, f: np.exp(f)[..., None] * each(f.shape[1]),
    ),
    "gamma": (
        lambda y, f: (y * np.exp(-f) + f - np.log(y) - 1).sum(1),
        lambda y, f: 1 - y * np.exp(-f),
        lambda y, f: (y * np.exp(-f))[..., None] * each(f.shape[1]),
    ),
}


def minimum(loss, K, y, weight, alpha, fit_intercept=True):
    """Return the least objective and the responses there, (n, C)."""
    value, slope, hessian = LOSSES[loss]
    p, (n, C) = weight / weight.sum(), y.shape
    least, V = np.linalg.eigh(K)
    Z = np.column_stack([V * np.sqrt(np.maximum(least, 0)), np.full(n, float(fit_intercept))])
    penalty = alpha * np.append(np.ones(n), 0.0)[:, None]
    theta = np.zeros((n + 1, C))

    def objective(t):
        return p @ value(y, Z @ t) + 0.5 * (penalty * t**2).sum()

    for _ in range(200):
        f = Z @ theta
        g = Z.T @ (p[:, None] * slope(y, f)) + penalty * theta
        H = np.einsum("ia,i,icd,ib->acbd", Z, p, hessian(y, f), Z, optimize=True)
        H = H.reshape((n + 1) * C, -1) + np.diag(np.repeat(penalty + 1e-15, C))
        step, size = np.linalg.solve(H, g.ravel()).reshape(g.shape), 1.0
        while objective(theta - size * step) > objective(theta) and size > 1e-9:
            size *= 0.5
        if size * (g * step).sum() <= 1e-12 * objective(theta):
            break
        theta = theta - size * step
    return objective(theta), Z @ theta
