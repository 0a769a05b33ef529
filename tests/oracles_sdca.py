"""Slow references for dual coordinate ascent, from the formulas alone."""

import numpy as np
from scipy.optimize import brentq


def primal(loss, K, y, p, alpha, a, b=0.0):
    """sum_i p_i loss(y_i, b + (K a)_i) + alpha/2 a' K a."""
    g = K @ a
    return p @ loss(y, b + g) + 0.5 * alpha * a @ g


def one_pass(slope, K, y, p, alpha, order, b=0.0):
    """Sequential dual ascent: row i gets the response z of least q loss(z) + (z - t)^2 / 2.

    There q slope(z) + z - t, which increases, changes its sign.
    """
    a, f = np.zeros(len(y)), np.full(len(y), b)
    for i in order:
        q = p[i] * K[i, i] / alpha
        u = -alpha * a[i] / p[i]
        t = f[i] + q * u
        far = 1.0 + 2.0 * q * (abs(u) + 2.0 + abs(y[i]) + abs(t))
        z = brentq(lambda z, i=i, q=q, t=t: q * slope(y[i], z) + z - t, t - far, t + far)
        moved = (z - f[i]) / K[i, i]
        a[i] += moved
        f = f + moved * K[:, i]
    return a


def hinge_visits(K, y, orders, most):
    """Yield the coefficients after each visit, with the hinge loss and without a bias."""
    a = np.zeros(len(y))
    for i in np.concatenate(list(orders)):
        a[i] = y[i] * np.clip(y[i] * a[i] + (1 - y[i] * (K[i] @ a)) / K[i, i], 0, most)
        yield a.copy()


def greedy(K, y, cost, steps):
    """SMO without a bias: max sum_i b_i - |w|^2 / 2, 0 <= b_i <= cost, best row first."""
    b = np.zeros(len(y))
    for _ in range(steps):
        slope = 1.0 - y * (K @ (b * y))
        move = np.clip(b + slope / np.diag(K), 0.0, cost) - b
        i = np.argmax(slope * move - np.diag(K) * move**2 / 2)
        b[i] += move[i]
    return b * y
