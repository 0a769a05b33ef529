"""Slow references for regularised risks with a bias, from the formulas alone."""

from functools import partial

import numpy as np
from scipy.special import softmax

import oracles_losses as losses
from oracles import gaussian as gaussian

DELTA, EPSILON, QUANTILE = 0.4, 0.1, 0.3


# losses of targets y (n, C) and responses f (n, C), one value a row and output
NUMBERS = {
    "huber": DELTA, "epsilon_insensitive": EPSILON, "quantile": QUANTILE, "kl_ratio": 0.05
}  # fmt: skip
SMOOTH = (
    "logistic", "log_loss", "squared", "squared_hinge", "huber", "kl", "least_squares",
    "kl_ratio",
)  # fmt: skip
KINKED = ("hinge", "epsilon_insensitive", "absolute", "quantile", "one_class")
LOSSES = {name: partial(losses.value, name, a=NUMBERS.get(name)) for name in SMOOTH + KINKED}


def penalty(K, a, alpha):
    """alpha/2 times the squared norm of the functions with coefficients a (n, C)."""
    return alpha / 2 * float(np.einsum("ic,ij,jc->", a, K, a, optimize=True))


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


def ridge_objective(K, y, weight, alpha, coef, intercept):
    p = weight / weight.sum()
    f = K @ coef
    return 0.5 * p @ ((y - f - intercept) ** 2).sum(axis=1) + 0.5 * alpha * (coef * f).sum()


def hessian(loss, y, f, a):
    """Return the Hessian of each row, (n, C, C): diagonal where outputs are apart."""
    each = np.eye(f.shape[1])
    if loss == "log_loss":
        return (s := softmax(f, axis=1))[..., None] * (each - s[:, None])
    return losses.curvature(loss, y, f, a)[..., None] * each


def minimum(loss, K, y, weight, alpha, fit_intercept=True, a=0.0, constant=0.0):
    """Return the least objective and the responses there, (n, C), beside a given constant."""
    p, (n, C) = weight / weight.sum(), y.shape
    least, V = np.linalg.eigh(K)
    Z = np.column_stack([V * np.sqrt(np.maximum(least, 0)), np.full(n, float(fit_intercept))])
    penalty = alpha * np.append(np.ones(n), 0.0)[:, None]
    theta = np.zeros((n + 1, C))

    def objective(t):
        f = Z @ t + constant
        return p @ losses.value(loss, y, f, a).sum(1) + 0.5 * (penalty * t**2).sum()

    for _ in range(200):
        f = Z @ theta + constant
        g = Z.T @ (p[:, None] * losses.slope(loss, y, f, a)) + penalty * theta
        H = np.einsum("ia,i,icd,ib->acbd", Z, p, hessian(loss, y, f, a), Z, optimize=True)
        H = H.reshape((n + 1) * C, -1) + np.diag(np.repeat(penalty + 1e-15, C))
        step, size = np.linalg.solve(H, g.ravel()).reshape(g.shape), 1.0
        while objective(theta - size * step) > objective(theta) and size > 1e-9:
            size *= 0.5
        if size * (g * step).sum() <= 1e-12 * abs(objective(theta)):
            break
        theta = theta - size * step
    return objective(theta), Z @ theta + constant


def smooth_minimum(loss, K, y, p, alpha, bias):
    """Least objective of a loss without kinks."""
    return minimum(loss, K, y, p, alpha, bias, NUMBERS.get(loss, 0.0))[0]


def box_program(K, E, c, h, total=None):
    """Least c'v + (E v)'K(E v)/2 over 0 <= v <= h with sum(E v) = total, by interior points.

    Returns the least value, and v. Steps are Newton's on the conditions of optimality with
    r v = q (h - v) = mu for the multipliers of both bounds, and mu a tenth of its last mean.
    """
    Q, n = E.T @ K @ E, len(h)
    e = np.zeros(n) if total is None else E.sum(axis=0)
    v, r, q, lam = h / 2, np.full(n, 1.0), np.full(n, 1.0), 0.0
    for _ in range(200):
        w = h - v
        mu = 0.1 * (r @ v + q @ w) / (2 * n)
        slope = -(Q @ v + c + lam * e) + mu / v - mu / w
        corner = np.array(0.0 if total is not None else 1.0)
        A = np.block([[Q + np.diag(r / v + q / w), e[:, None]], [e, corner]])
        d = np.linalg.solve(A, np.r_[slope, 0.0 if total is None else total - e @ v])
        dv, dlam = d[:n], d[n]
        dr, dq = mu / v - r - r / v * dv, mu / w - q + q / w * dv
        ends = np.concatenate([-dv / v, dv / w, -dr / r, -dq / q])
        step = min(1.0, 0.99 / max(ends.max(), 1e-9))
        v, lam, r, q = v + step * dv, lam + step * dlam, r + step * dr, q + step * dq
        value = c @ v + v @ Q @ v / 2
        if r @ v + q @ (h - v) < 1e-8 * abs(value) and step > 0.9:
            break
    assert np.abs(Q @ v + c + lam * e - r + q).max() < 1e-7
    assert total is None or abs(e @ v - total) < 1e-10
    return value, v


def dual_bound(loss, K, y, p, alpha, bias, *, q=QUANTILE, epsilon=EPSILON, nu=None):
    """Lower bound of one output's objective, tight: the best dual objective.

    With u_i a value of p_i times the loss's subgradient at the optimum, f = -K u / alpha and
    the objective is at least -u'Ku / (2 alpha) - sum_i p_i l_i*(u_i / p_i); a free bias asks
    for sum(u) = 0 (one class, whose objective has the term -nu tau: -nu). Conjugates l* are
    linear on a box, the tube's after a split of u into parts above and below.
    """
    n, both = len(y), np.hstack([np.eye(len(y)), -np.eye(len(y))])
    E, c, h = {
        "hinge": (-np.diag(y), -np.ones(n), p),
        "one_class": (-np.eye(n), np.zeros(n), p),
        "absolute": (both, np.r_[y, -y], np.r_[p, p]),
        "quantile": (both, np.r_[y, -y], np.r_[(1 - q) * p, q * p]),
        "epsilon_insensitive": (both, np.r_[y, -y] + epsilon, np.r_[p, p]),
    }[loss]
    total = (0.0 if nu is None else -nu) if bias else None
    return -box_program(K / alpha, E, c, h, total)[0]
