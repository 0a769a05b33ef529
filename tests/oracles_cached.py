"""Slow references for regularised risks with a bias, from the formulas alone."""

from functools import partial

import numpy as np

import oracles_direct
import oracles_losses as losses
from oracles import gaussian as gaussian
from oracles_newton import minimum

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


def ridge(K, y, p, alpha, bias):
    """Least squared loss plus penalty, and a, b: stationary where p (f - y) = -alpha a."""
    a, b = oracles_direct.ridge(K, y, p, alpha, bias)
    return p @ LOSSES["squared"](y, K @ a + b).sum(1) + penalty(K, a, alpha), a, b


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
