"""Slow references for the losses of block descent, in float64, from the formulas alone."""

import numpy as np

import oracles_losses as losses


def kink(t, d):
    """Return |t| with a parabola inside [-d, d]."""
    return np.where(np.abs(t) >= d, np.abs(t), t**2 / (2 * d) + d / 2)


def values(name, y, f, number, d):
    """Return the smoothed loss of each entry (C, n); "log_loss" gives one row."""
    return losses.value(name, y.T, f.T, number, lambda t: (kink(t, d) + t) / 2).T


def slopes(name, y, f, number, d, h=1e-6):
    """Return derivatives (C, n) of :func:`values` by central differences."""
    out = np.empty_like(f)
    for c in range(len(f)):
        e = np.zeros_like(f)
        e[c] = h
        up, down = (values(name, y, f + s * e, number, d) for s in (1, -1))
        out[c] = (up - down).sum(axis=0) / (2 * h)
    return out


def ten_sums(name, y, w, f, directions, number, d, h=1e-4):
    """Return value, gradient and Hessian of sum_i w_i l along three directions (C, 10)."""

    def total(s):
        point = f + np.tensordot(s, directions, axes=1)
        return values(name, y, point, number, d) @ w

    e = h * np.eye(3)
    sums = [total(np.zeros(3))]
    sums += [(total(a) - total(-a)) / (2 * h) for a in e]
    for k in range(3):
        for j in range(k, 3):
            a, b = e[k], e[j]
            four = total(a + b) - total(a - b) - total(b - a) + total(-a - b)
            sums.append(four / (4 * h * h))
    return np.stack(sums, axis=1)


def probabilities(f):
    """Return exp(f_c) / sum_b exp(f_b) of each column."""
    e = np.exp(f - f.max(axis=0))
    return e / e.sum(axis=0)
