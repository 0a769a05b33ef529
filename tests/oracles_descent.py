"""Slow references for the losses of block descent, in float64, from the formulas alone."""

import numpy as np

import oracles_losses as losses


def kink(t, d):
    """Return |t| with a parabola inside [-d, d]."""
    return np.where(np.abs(t) >= d, np.abs(t), t**2 / (2 * d) + d / 2)


def values(name, y, f, number, d):
    """Return the smoothed loss of each entry (C, n); "log_loss" gives one row."""
    return losses.value(name, y.T, f.T, number, lambda t: (kink(t, d) + t) / 2).T


def slopes(name, y, f, number, d):
    """Return derivatives (C, n) of :func:`values`."""
    step = lambda t: (np.clip(t / d, -1, 1) + 1) / 2  # noqa: E731
    return losses.slope(name, y.T, f.T, number, step).T


def ten_sums(name, y, w, f, directions, number, d, h=1e-5):
    """Return value, gradient and Hessian of sum_i w_i l along three directions (C, 10)."""

    def gradient(f):
        G = np.einsum("kcn,cn->kc", directions, w * slopes(name, y, f, number, d))
        return G.sum(axis=1, keepdims=True) if name == "log_loss" else G

    H = np.array([gradient(f + h * a) - gradient(f - h * a) for a in directions]) / (2 * h)
    value = values(name, y, f, number, d) @ w
    return np.vstack([value[None], gradient(f), H[np.triu_indices(3)]]).T
