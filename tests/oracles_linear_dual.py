"""Minima of linear problems, found in other ways than by the dual or by stochastic steps."""

from __future__ import annotations

import numpy as np
from scipy.optimize import LinearConstraint, minimize
from scipy.special import expit
from sklearn.svm import SVC


def smooth_loss(name, y, f, number):
    """Value and derivative of the smooth losses; `number` is delta of huber, else the width."""
    m, z = 1 - y * f, f - y
    if name == "squared":
        return z**2 / 2, z
    if name == "logistic":
        return np.logaddexp(0, -y * f), -y * expit(-y * f)
    if name == "squared_hinge":
        return np.maximum(m, 0) ** 2, -2 * y * np.maximum(m, 0)
    if name == "huber":
        near = np.abs(z) <= number
        far = number * (np.abs(z) - number / 2)
        return np.where(near, z**2 / 2, far), np.clip(z, -number, number)
    ramp = np.clip(m / number, 0, 1)
    return ramp * (m - ramp * number / 2), -y * ramp


def smooth_minimum(name, X, y, p, l2, fit_bias, number=1.0):
    """Return (objective, w, b) by L-BFGS."""
    d = X.shape[1]

    def objective(v):
        loss, slope = smooth_loss(name, y, X @ v[:d] + v[d] * fit_bias, number)
        slope = p * slope
        g = np.append(X.T @ slope + l2 * v[:d], slope.sum() * fit_bias)
        return p @ loss + l2 / 2 * v[:d] @ v[:d], g

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-11}
    found = minimize(objective, np.zeros(d + 1), jac=True, method="L-BFGS-B", options=options)
    return found.fun, found.x[:d], found.x[d] * fit_bias


def kinked_minimum(pieces, X, p, l1, l2, fit_bias):
    """Return (objective, w, b) for losses ``max_k (a_k f + c_k)`` as a quadratic program.

    `pieces` are pairs of arrays (a, c) of n; variables are w+, w-, b and the n losses.
    """
    n, d = X.shape
    H = np.hstack([X, -X, np.full((n, 1), float(fit_bias))])
    A = np.vstack([np.hstack([-a[:, None] * H, np.eye(n)]) for a, _ in pieces])
    low = np.concatenate([c for _, c in pieces])
    cost = np.concatenate([np.full(2 * d, l1), [0.0], p])
    D = np.hstack([np.eye(d), -np.eye(d), np.zeros((d, n + 1))])

    def objective(v):
        w = D @ v
        return cost @ v + l2 / 2 * w @ w, cost + l2 * D.T @ w

    start = np.concatenate([np.zeros(2 * d + 1), np.max([c for _, c in pieces], axis=0)])
    bounds = [(0, None)] * (2 * d) + [(None, None)] * (n + 1)
    found = minimize(
        objective, start, jac=True, method="SLSQP", bounds=bounds,
        constraints=LinearConstraint(A, low, np.inf), options={"maxiter": 2000, "ftol": 1e-15},
    )  # fmt: skip
    return found.fun, D @ found.x, found.x[2 * d] * fit_bias


def elastic_net(name, X, y, p, l1, l2, fit_bias, steps=60_000):
    """Return (objective, w, b) by proximal gradients with restarted momentum."""
    n, d = X.shape
    Z = np.hstack([X, np.full((n, 1), float(fit_bias))])
    rate = 1 / (2 * np.linalg.norm(Z * np.sqrt(p)[:, None], 2) ** 2 + l2)
    v = ahead = np.zeros(d + 1)
    t = 1.0
    for _ in range(steps):
        _, slope = smooth_loss(name, y, Z @ ahead, 1.0)
        new = ahead - rate * (Z.T @ (p * slope))
        new[:d] -= rate * l2 * ahead[:d]
        new[:d] = np.sign(new[:d]) * np.maximum(np.abs(new[:d]) - rate * l1, 0)
        if (ahead - new) @ (new - v) > 0:
            t, ahead = 1.0, v
            continue
        grown = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead, v, t = new + (t - 1) / grown * (new - v), new, grown
    loss, _ = smooth_loss(name, y, Z @ v, 1.0)
    w = v[:d]
    return p @ loss + l1 * np.abs(w).sum() + l2 / 2 * w @ w, w, v[d] * fit_bias


def slack_optimum(X, y, weight, C):
    """Return (nu, level, alpha, objective) of slack and regularised problem, with a bias.

    The minimum w of the regularised problem is, at unit length, the maximum of the
    slack-constrained one for ``nu = mean hinge / |w|``, with the level ``1 / |w|``.
    """
    svc = SVC(C=C, kernel="linear", tol=1e-9).fit(X, y, weight)
    w, p, alpha = svc.coef_[0], weight / weight.sum(), 1 / (C * weight.sum())
    mean = p @ np.maximum(0, 1 - y * (X @ w + svc.intercept_[0]))
    length = np.linalg.norm(w)
    return mean / length, 1 / length, alpha, mean + alpha / 2 * length**2


def level(c, y, weight, volume):
    """Return ``max_(b, xi) min_i (c_i + y_i b + xi_i)`` with ``sum weight xi <= volume``."""

    def height(b):
        heights = c + y * b
        low, high = heights.min(), heights.min() + volume / weight.min() + 1
        for _ in range(100):
            middle = (low + high) / 2
            full = weight @ np.maximum(0, middle - heights) > volume
            low, high = (low, middle) if full else (middle, high)
        return low

    low, high = -2 * np.abs(c).max() - 1, 2 * np.abs(c).max() + 1
    for _ in range(100):  # concave in b
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (a, high) if height(a) < height(b) else (low, b)
    return height((low + high) / 2)


def greedy_slack(q, s, volume, most):
    """Return the slack of each row that maximises ``sum s q xi``; ties share alike."""
    xi, left = np.zeros(len(q)), volume
    for value in np.unique(q[s > 0])[::-1]:
        ties = q == value
        xi[ties] = min(most, left / s[ties].sum())
        left -= s[ties] @ xi[ties]
        if left <= 0:
            break
    return xi


def simba(X, y, s, volume, fit_bias, rounds):
    """Return the average of w and q after rounds of (T, 2) uniform numbers, in plain arrays."""
    n = len(y)
    Z = y[:, None] * X / np.linalg.norm(X, axis=1).max()
    q, S, total = np.ones(n), np.zeros(X.shape[1]), np.zeros(X.shape[1])
    done, before = 0, 1.0
    for uniform in rounds:
        horizon = done + len(uniform)
        eta = np.sqrt(np.log(n) / horizon)
        q, before = q ** (eta / before), eta
        for first, second in uniform:
            mass = s * q
            S = S + Z[np.searchsorted(np.cumsum(mass), first * mass.sum(), side="right")]
            w = S / max(np.sqrt(2 * horizon), np.linalg.norm(S))
            done += 1
            total += done * w
            j = np.searchsorted(np.cumsum(S**2), second * S @ S, side="right")
            v = Z[:, j] * (w @ w) / w[j] + greedy_slack(q, s, volume, 2.0)
            v += y * np.sign(mass @ y) * fit_bias
            v = np.clip(v, -1 / eta, 1 / eta)
            q = np.maximum(q * n / mass.sum() * (1 - eta * v + eta**2 * v**2), 1e-30)
    return total / (done * (done + 1) / 2), q
