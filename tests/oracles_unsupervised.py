"""References for novelty detection and density ratios; they share no code with kernelgrad."""

import numpy as np

import oracles_losses as losses
from oracles import gaussian as gaussian
from oracles_cached import minimum


def novelty_paper(features, nu, gammas):
    """Step 5 of Dai et al. for novelty detection: (alpha, tau) after each row i.

    Row i of `features` holds those of row i, the feature of iteration j in column j.
    """
    alpha, tau, course = np.zeros(len(features)), 0.0, []
    for i, gamma in enumerate(gammas):
        outlier = features[i, :i] @ alpha[:i] < tau
        alpha[:i] *= 1 - gamma * nu
        alpha[i] = gamma * features[i, i] if outlier else 0.0
        tau += -gamma * (1 - nu) if outlier else gamma * nu
        course.append((alpha.copy(), tau))
    return course


FLOORS = {"kl_ratio": 0.05, "relative_novelty": np.exp(-1.0)}


def ratio_responses(K, w, alpha, loss):
    """Return the best f = b + K a at the rows, and b.

    Rows of p have weight w > 0, rows of q have w < 0, and each sample sums to one.
    """
    y, size, b = np.sign(w)[:, None], np.abs(w), 0.0 if loss == "kl" else 1.0
    name, low = ("kl_ratio", FLOORS[loss]) if loss in FLOORS else (loss, 0.0)
    _, f = minimum(name, K, y, size, 2 * alpha / size.sum(), False, low, b)
    return f[:, 0], b


def ratio_bound(loss, f_p, f_q, w_p, w_q):
    """Lower bound of the divergence from responses and weights of both samples."""
    p, q = np.average(f_p, weights=w_p), np.asarray(w_q) / np.sum(w_q)
    if loss == "kl":
        return p - sum(v * np.exp(f) for v, f in zip(q, f_q, strict=True)) + 1
    if loss in FLOORS:  # of the ratio clipped at 0
        cost = losses.value("kl_ratio", 1.0, np.maximum(f_p, 0), FLOORS[loss])
        constant = {"kl_ratio": 1.0, "relative_novelty": 2.0}[loss]
        return constant - np.average(cost, weights=w_p) - q @ np.maximum(f_q, 0)
    return p - sum(v * f * f for v, f in zip(q, f_q, strict=True)) / 2 - 0.5
