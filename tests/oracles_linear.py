"""Slow references for the linear solvers, from the formulas alone."""

from functools import partial

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

import oracles_losses as losses


def value(name, y, u, a=0.0, g=0.0):
    """Loss of each row, outputs summed; `a` is the loss's number, g smooths kinks."""
    return losses.value(name, y, u, a, partial(losses.ramp, g=g)).sum(1)


def slope(name, y, u, a=0.0, g=0.0):
    """Derivative in every output, (n, C)."""
    return losses.slope(name, y, u, a, partial(losses.rise, g=g))


def prox(w, eta, l1, l2):
    """argmin_v (v - w)^2 / 2 + eta (l1 |v| + l2/2 v^2)."""
    return np.sign(w) * np.maximum(abs(w) - eta * l1, 0.0) / (1 + eta * l2)


def objective(loss, X, Y, p, W, b, l1, l2, g=0.0):
    name, a = loss
    return p @ value(name, Y, X @ W + b, a, g) + l1 * abs(W).sum() + l2 / 2 * (W**2).sum()


def optimum(loss, X, Y, p, l1, l2, fit_bias, g=0.0):
    """Minimum by L-BFGS-B on W = V - Q with V, Q >= 0; returns W and b."""
    (name, a), (d, C) = loss, (X.shape[1], Y.shape[1])
    size, split = d * C, l1 > 0

    def parts(v):
        W = v[:size] - v[size : 2 * size] if split else v[:size]
        return W.reshape(d, C), v[-C:] * fit_bias

    def f(v):
        W, b = parts(v)
        U = X @ W + b
        D = slope(name, Y, U, a, g) * p[:, None]
        F = p @ value(name, Y, U, a, g) + l2 / 2 * (W**2).sum()
        G, B = (X.T @ D + l2 * W).ravel(), D.sum(0) * fit_bias
        if not split:
            return F, np.r_[G, B]
        return F + l1 * v[: 2 * size].sum(), np.r_[G + l1, l1 - G, B]

    n = (1 + split) * size
    box = [(0 if split else None, None)] * n + [(None, None)] * C
    rules = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 30}
    return parts(minimize(f, np.zeros(n + C), jac=True, method="L-BFGS-B", bounds=box,
                          options=rules).x)  # fmt: skip


def descend(loss, X, Y, W, b, order, share, eta, l1, l2, fit_bias, table=None, mean=0.0,
            mean_bias=0.0):  # fmt: skip
    """Proximal steps with references; returns W, b and the losses seen."""
    (name, a), seen = loss, 0.0
    table = np.zeros(Y.shape) if table is None else table
    for rows, s in zip(order, share, strict=True):
        U = X[rows] @ W + b
        D = slope(name, Y[rows], U, a)
        seen += s @ value(name, Y[rows], U, a)
        V = s[:, None] * (D - table[rows])
        W = prox(W - eta * (X[rows].T @ V + mean), eta, l1, l2)
        b = b - eta * (V.sum(0) + mean_bias) * fit_bias
    return W, b, seen


def anchor_weights(x, Z, k):
    """Weights of sum 1 over the k nearest of Z: Gaussians as wide as the nearest is far."""
    D = np.sqrt(((Z - x) ** 2).sum(1))
    near = np.argsort(D, kind="stable")[:k]
    sigma = max(1e-4, D[near[0]])
    g = np.exp(-(D[near] ** 2) / sigma**2)
    return near, g / g.sum()


def s3gd_paper(X, y, anchors, k, batches, eta, lam, balanced, k_in):
    """w after Algorithm 1 of Mu et al. (2015) on the logistic loss, with given mini-batches."""
    n, Z = len(X), X[anchors]
    size = np.where(y > 0, (y > 0).sum(), (y < 0).sum())
    omega = 1 / size if balanced else np.full(n, 1 / n)  # Equation (46); else 1 / n
    gamma = np.zeros((n, len(Z)))
    for i in range(n):
        near, weights = anchor_weights(X[i], Z, k)
        gamma[i, near] = weights
    w = np.zeros(X.shape[1])
    for t, batch in enumerate(batches):
        if t % k_in == 0:
            psi = -y[:, None] * expit(-y[:, None] * (Z @ w))  # of row i at every anchor
            h = ((gamma * psi).sum(1))[:, None] * X  # Equation (19)
            H = omega @ h  # Equation (22)
        own = (-y * expit(-y * (X @ w)))[:, None] * X
        g = omega.sum() * (own - h)[batch].mean(0) + H  # Equation (8), rows drawn by omega
        w = (w - eta * g) / (1 + 2 * eta * lam)
    return w


def bends(name, y, U, a=0.0):
    """Second derivatives of one row's loss by differences of its slopes, (C, C)."""
    e = 1e-6 * np.eye(len(U))
    one = [(slope(name, y[None], U[None] + s, a) - slope(name, y[None], U[None] - s, a))[0]
           for s in e]  # fmt: skip
    return np.array(one) / 2e-6


def class_references(name, a, X, W, b, p, group, targets):
    """r_i: the derivative at the class mean with its first-order change to the row."""
    U, r = X @ W + b, np.zeros((len(X), W.shape[1]))
    for c in range(len(targets)):
        i = group == c
        centre = p[i] @ U[i] / p[i].sum()
        first = slope(name, targets[c][None], centre[None], a)[0]
        r[i] = first + (U[i] - centre) @ bends(name, targets[c], centre, a)
    return r


def data(name, n, d, C, seed=0, clusters=0):
    """Rows with unequal columns and targets that fit the loss; exact in float32."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.linspace(0.4, 1.2, d) / np.sqrt(d)
    if clusters:
        centres = rng.standard_normal((clusters, d))
        X += 1.2 * centres[rng.integers(clusters, size=n)] / np.sqrt(d)
    X[rng.random((n, d)) < 0.3] = 0.0
    W = rng.standard_normal((d, C)) * (np.arange(d) % 3 != 0)[:, None]
    U = 2 * X @ W + 0.3 + 0.5 * rng.standard_normal((n, C))
    if name == "log_loss":
        Y = np.eye(C)[U.argmax(1)]
    elif name in ("squared", "huber", "epsilon_insensitive", "absolute", "quantile"):
        Y = U
    else:
        Y = np.where(U > 0.1, 1.0, -1.0)
    return X.astype(np.float32).astype(float), Y.astype(np.float32).astype(float)


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
        G = slope(loss[0], Y[at], X[at] @ W + b, loss[1]) / len(at)
        B = slice(first[block], first[block + 1])
        W[B] = prox(W[B] - eta[block] * X[at, B].T @ G, eta[block], l1, l2)
        b = b - eta_bias * G.sum(axis=0)
    return W, b
