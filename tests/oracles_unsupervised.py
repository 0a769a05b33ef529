"""References for novelty detection and density ratios; they share no code with kernelgrad."""

import numpy as np


def gaussian(X, Z, gamma):
    """exp(-gamma |x - z|^2) of all pairs of rows."""
    return np.exp(-gamma * ((X[:, None] - Z[None]) ** 2).sum(-1))


def frank_wolfe(outliers, nu):
    """Weights of the rows when step t goes 2 / (t + 2) of the way to the rows outliers[t]."""
    a = np.zeros(outliers.shape[1])
    for t, lowest in enumerate(outliers):
        a += 2 / (t + 2) * (lowest / (nu * len(a)) - a)
    return a


def one_class_gap(K, a, nu):
    """Primal minus dual objective of the paper's problem at f = K a, over the dual one."""
    f, norm = K @ a, a @ K @ a
    tau = np.sort(f)[int(np.ceil(nu * len(f))) - 1]
    primal = np.mean(np.maximum(0, tau - f)) + nu / 2 * norm - nu * tau
    return (primal + nu / 2 * norm) / (nu / 2 * norm)


def ratio_coefficients(K, w, alpha, loss):
    """Coefficients a of the best f = b + K a, by Newton's method, and b.

    Rows of p have weight w > 0, rows of q have w < 0, and each sample sums to one.
    """
    a, b = np.zeros(len(w)), 0.0 if loss == "kl" else 1.0
    for _ in range(30):
        f = b + K @ a
        growth, bend = (np.exp(f), np.exp(f)) if loss == "kl" else (f, np.ones_like(f))
        slope = -w / 2 * np.where(w > 0, 1.0, growth) + alpha * a
        a = a - np.linalg.solve(
            np.where(w < 0, -w * bend / 2, 0)[:, None] * K + alpha * np.eye(len(w)), slope
        )
    assert np.abs(slope).max() < 1e-10
    return a, b


def ratio_bound(loss, f_p, f_q, w_p, w_q):
    """Lower bound of the divergence from responses and weights of both samples."""
    p, q = np.average(f_p, weights=w_p), np.asarray(w_q) / np.sum(w_q)
    if loss == "kl":
        return p - sum(v * np.exp(f) for v, f in zip(q, f_q, strict=True)) + 1
    return p - sum(v * f * f for v, f in zip(q, f_q, strict=True)) / 2 - 0.5
