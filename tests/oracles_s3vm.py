"""Slow references for semi-supervised machines, from the formulas alone."""

import numpy as np
from scipy.special import softmax

from oracles_cached import box_program as interior


def symmetric(r, s=0.0):
    """Loss of a row without a label: max(0, 1 - |r|), cut off at 1 + s."""
    return np.minimum(1.0 + s, np.maximum(0.0, 1.0 - np.abs(r)))


def true_objective(K, y, p, ratio, alpha, a, b, s=0.0):
    """sum_i p_i (hinge or ratio u) + alpha/2 a' K a; y is 0 for rows without a label."""
    g = K @ a
    hinge = np.maximum(0.0, 1.0 - y * (g + b))
    losses = np.where(y != 0, hinge, ratio * symmetric(g + b, s))
    return p @ losses + 0.5 * alpha * a @ g


def linearised(K, y, p, ratio, alpha, a, b, slopes, s=0.0):
    """Objective with Collobert's hinges H_1(f) + H_1(-f) and the tangents of the rest."""
    g = K @ a
    f = g + b
    hinges = np.maximum(0.0, 1.0 - f) + np.maximum(0.0, 1.0 + f)
    # -H_s(f) - H_s(-f) at f0 has the slope -sign(f0) and the value s there and beyond
    other = hinges - (1.0 - s) - slopes * f - s * np.abs(slopes)
    losses = np.where(y != 0, np.maximum(0.0, 1.0 - y * f), ratio * other)
    return p @ losses + 0.5 * alpha * a @ g


def box_program(K, y, p, ratio, alpha, b, slopes):
    """Coefficients at the minimum of the linearised objective, by its dual program."""
    known, others = np.flatnonzero(y != 0), np.flatnonzero(y == 0)
    rows = np.r_[known, others, others]
    t = np.r_[y[known], np.ones(len(others)), -np.ones(len(others))]
    top = np.r_[p[known], ratio * p[others], ratio * p[others]] / alpha
    rows, t, top = (each[top > 0] for each in (rows, t, top))
    fixed = np.where(y == 0, ratio * p * slopes / alpha, 0.0)
    E = np.zeros((len(K), len(t)))
    E[rows, np.arange(len(t))] = t
    _, c = interior(K, E, E.T @ (K @ fixed) + t * b - 1.0, top)
    return fixed + E @ c


def budgeted(kernel, batches, alpha, ratio, budgets, gamma0, b, sign=-1.0):
    """Gradient steps on symmetric hinge and hinge; {row: (coefficient, kind)} by number."""
    a, X = {}, {}
    for t, (ids, rows, y, w) in enumerate(batches):
        gamma = gamma0 / (1.0 + gamma0 * alpha * t)
        f = [b + sum(c * kernel(x, X[i]) for i, c in a.items()) for x in rows]
        a = {i: (1.0 - gamma * alpha) * c for i, c in a.items()}
        for k, (i, x) in enumerate(zip(ids, rows, strict=True)):
            share = 0.5 * w[k] / w[(y != 0) == (y[k] != 0)].sum()
            slope = -y[k] * (y[k] * f[k] < 1)
            if y[k] == 0:
                slope = sign * ratio * np.sign(f[k]) * (abs(f[k]) < 1)
            if slope:
                a[i], X[i] = a.get(i, 0.0) - gamma * share * slope, x
                X[i, "kind"] = bool(y[k])
        for kind, budget in budgets.items():
            mine = sorted((i for i in a if X[i, "kind"] == kind), key=lambda i: abs(a[i]))
            for i in mine[: max(0, len(mine) - budget)]:
                del a[i]
    return a


def tsg_oracle(Phi, y, picks, gammas, C, C_star, labelled, unlabelled):
    """Return f on all rows after steps on blocks Phi[t], each (n, features): Algorithm 1."""
    f = np.zeros(y.shape)
    for phi, (at, others), gamma, cost in zip(Phi, picks, gammas, C_star, strict=True):
        g = C / len(at) * phi[at].T @ labelled(y[at], f[at])
        g += cost / len(others) * phi[others].T @ unlabelled(f[others])
        f = (1 - gamma) * f - gamma * phi @ g
    return f


def soft_labels_oracle(K, gram, y, w, start, C, temperature, rounds):
    """Return the responses of ridge regressions to soft labels; y is 0 for rows without one."""
    known = y.any(axis=1)
    weight = np.where(known, 0.5 * w * w[~known].sum() / w[known].sum(), w)
    H = gram + C * (K.T * weight) @ K
    f = start
    for _ in range(rounds):
        z = f / temperature
        soft = np.tanh(z) if y.shape[1] == 1 else 2.0 * softmax(z, axis=1) - 1.0
        s = np.where(known[:, None], y, soft)
        f = K @ np.linalg.lstsq(H, C * K.T @ (weight[:, None] * s), rcond=1e-12)[0]
    return f
