"""Slow references for the block methods of linear functions, from the formulas alone."""

import numpy as np
from scipy.optimize import minimize

SLOPES = {
    "squared": lambda y, u: u - y,
    "logistic": lambda y, u: -y / (1.0 + np.exp(y * u)),
    "squared_hinge": lambda y, u: -2.0 * y * np.maximum(0.0, 1.0 - y * u),
    "smoothed_hinge": lambda y, u: -y * np.clip(1.0 - y * u, 0.0, 1.0),
    "huber": lambda y, u: np.clip(u - y, -0.4, 0.4),
    "hinge": lambda y, u: -y * (y * u < 1.0),
    "absolute": lambda y, u: np.sign(u - y),
    "log_loss": lambda y, u: (
        np.exp(u - u.max(1, keepdims=True))
        / np.exp(u - u.max(1, keepdims=True)).sum(1, keepdims=True)
        - y
    ),
}
VALUES = {
    "squared": lambda y, u: 0.5 * (u - y) ** 2,
    "logistic": lambda y, u: np.logaddexp(0.0, -y * u),
    "squared_hinge": lambda y, u: np.maximum(0.0, 1.0 - y * u) ** 2,
    "smoothed_hinge": lambda y, u: np.where(
        1.0 - y * u > 1.0, 0.5 - y * u, 0.5 * np.maximum(0.0, 1.0 - y * u) ** 2
    ),
    "huber": lambda y, u: np.where(
        np.abs(u - y) <= 0.4, 0.5 * (u - y) ** 2, 0.4 * np.abs(u - y) - 0.08
    ),
    "log_loss": lambda y, u: (
        np.log(np.exp(u).sum(1, keepdims=True)) - (y * u).sum(1, keepdims=True)
    ),
}


def objective(loss, X, Y, p, W, b, l1, l2):
    """sum_i p_i l(y_i, x_i W + b) + l1 |W|_1 + l2/2 |W|^2."""
    penalty = l1 * np.abs(W).sum() + 0.5 * l2 * (W**2).sum()
    return p @ VALUES[loss](Y, X @ W + b).sum(axis=1) + penalty


def minimum(loss, X, Y, p, l1, l2, bias):
    """The optimum by L-BFGS on positive and negative parts of W."""
    d, C = X.shape[1], Y.shape[1]
    size = d * C

    def parts(v):
        W = (v[:size] - v[size : 2 * size]).reshape(d, C)
        return W, v[2 * size :] if bias else np.zeros(C)

    def both(v):
        W, b = parts(v)
        G = p[:, None] * SLOPES[loss](Y, X @ W + b)
        g = (X.T @ G + l2 * W).ravel()
        f = objective(loss, X, Y, p, W, b, 0.0, l2) + l1 * v[: 2 * size].sum()
        return f, np.concatenate([g + l1, -g + l1, G.sum(axis=0)[: C * bias]])

    start = np.zeros(2 * size + C * bias)
    box = [(0.0, None)] * (2 * size) + [(None, None)] * (C * bias)
    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-17, "gtol": 1e-11}
    return parts(
        minimize(both, start, jac=True, bounds=box, method="L-BFGS-B", options=options).x
    )


def elastic_net(X, y, p, l1, l2, sweeps=5000):
    """Squared loss with bias, one output: descent on coefficients of standardised columns."""
    mean = p @ X
    Z = X - mean
    size = np.sqrt(p @ Z**2)
    Z = Z / size
    A, c = Z.T @ (p[:, None] * Z), Z.T @ (p * (y - p @ y))
    w = np.zeros(len(c))
    for _ in range(sweeps):
        for j in range(len(c)):
            r = c[j] - A[j] @ w + A[j, j] * w[j]
            w[j] = np.sign(r) * max(abs(r) - l1 / size[j], 0.0) / (A[j, j] + l2 / size[j] ** 2)
    return w / size, p @ y - mean @ (w / size)


def mirror_steps(loss, X, Y, W, b, rows, chosen, first, eta, eta_bias, l1, l2):
    """Proximal steps on one block of columns each, row by row of `rows`."""
    for at, block in zip(rows, chosen, strict=True):
        G = SLOPES[loss](Y[at], X[at] @ W + b) / len(at)
        B = slice(first[block], first[block + 1])
        Z = W[B] - eta[block] * X[at, B].T @ G
        Z = np.sign(Z) * np.maximum(np.abs(Z) - eta[block] * l1, 0.0)
        W[B] = Z / (1.0 + eta[block] * l2)
        b = b - eta_bias * G.sum(axis=0)
    return W, b
