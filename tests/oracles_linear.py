"""Slow references for the linear solvers, from the formulas alone."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, softmax


def ramp(t, g):
    """max(0, t), or its quadratic smoothing of width g (at most g/2 lower)."""
    if g == 0:
        return np.maximum(t, 0.0)
    return np.where(t <= 0, 0.0, np.where(t >= g, t - g / 2, t * t / (2 * g)))


def rise(t, g):
    """Derivative of `ramp`; 0 at the kink of the unsmoothed one."""
    return np.clip(t / g, 0.0, 1.0) if g else (t > 0).astype(float)


def value(name, y, u, a=0.0, g=0.0):
    """Loss of each row, outputs summed; `a` is the loss's number, g smooths kinks."""
    m, z = y * u, u - y
    if name == "multinomial":
        top = u.max(1)
        return top + np.log(np.exp(u - top[:, None]).sum(1)) - (y * u).sum(1)
    each = {
        "squared": lambda: z**2 / 2,
        "logistic": lambda: np.logaddexp(0, -m),
        "squared_hinge": lambda: np.maximum(0, 1 - m) ** 2,
        "hinge": lambda: ramp(1 - m, g),
        "huber": lambda: np.where(abs(z) <= a, z**2 / 2, a * abs(z) - a * a / 2),
        "smoothed_hinge": lambda: ramp(1 - m, a),
        "epsilon": lambda: ramp(z - a, g) + ramp(-z - a, g),
        "quantile": lambda: a * ramp(-z, g) + (1 - a) * ramp(z, g),
    }[name]()
    return each.sum(1)


def slope(name, y, u, a=0.0, g=0.0):
    """Derivative in every output, (n, C)."""
    m, z = y * u, u - y
    return {
        "multinomial": lambda: softmax(u, axis=1) - y,
        "squared": lambda: z,
        "logistic": lambda: -y * expit(-m),
        "squared_hinge": lambda: -2 * y * np.maximum(0, 1 - m),
        "hinge": lambda: -y * rise(1 - m, g),
        "huber": lambda: np.clip(z, -a, a),
        "smoothed_hinge": lambda: -y * rise(1 - m, a),
        "epsilon": lambda: rise(z - a, g) - rise(-z - a, g),
        "quantile": lambda: (1 - a) * rise(z, g) - a * rise(-z, g),
    }[name]()


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
            mean_bias=0.0, moving=None):  # fmt: skip
    """Proximal steps with references; returns W, b, losses seen, table and its means."""
    (name, a), seen = loss, 0.0
    table = np.zeros(Y.shape) if table is None else table.copy()
    for rows, s in zip(order, share, strict=True):
        U = X[rows] @ W + b
        D = slope(name, Y[rows], U, a)
        seen += s @ value(name, Y[rows], U, a)
        V = s[:, None] * (D - table[rows])
        W = prox(W - eta * (X[rows].T @ V + mean), eta, l1, l2)
        b = b - eta * (V.sum(0) + mean_bias) * fit_bias
        for i, new in zip(rows, D, strict=True):
            if moving is not None:
                change = moving[i] * (new - table[i])
                mean, mean_bias = mean + np.outer(X[i], change), mean_bias + change
                table[i] = new
    return W, b, seen, table, mean, mean_bias


def references(loss, X, targets, W, b, anchors, near, gamma):
    """h_i = sum_k gamma_ik l'(t_i, u(z_k)), Eq. (19), row by row; targets (n, C)."""
    (name, a), U = loss, X[anchors] @ W + b
    rows = []
    for t, places, weights in zip(targets, near, gamma, strict=True):
        rows.append(weights @ slope(name, np.tile(t, (len(places), 1)), U[places], a))
    return np.array(rows)


def anchor_weights(x, Z, k):
    """Weights of sum 1 over the k nearest of Z: Gaussians as wide as the nearest is far."""
    D = np.sqrt(((Z - x) ** 2).sum(1))
    near = np.argsort(D, kind="stable")[:k]
    sigma = max(1e-4, D[near[0]])
    g = np.exp(-(D[near] ** 2) / sigma**2)
    return near, g / g.sum()


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
        X += (
            1.2
            * rng.standard_normal((clusters, d))[rng.integers(clusters, size=n)]
            / np.sqrt(d)
        )
    X[rng.random((n, d)) < 0.3] = 0.0
    W = rng.standard_normal((d, C)) * (np.arange(d) % 3 != 0)[:, None]
    U = 2 * X @ W + 0.3 + 0.5 * rng.standard_normal((n, C))
    if name == "multinomial":
        Y = np.eye(C)[U.argmax(1)]
    elif name in ("squared", "huber", "epsilon", "quantile"):
        Y = U
    else:
        Y = np.where(U > 0.1, 1.0, -1.0)
    return X.astype(np.float32).astype(float), Y.astype(np.float32).astype(float)
