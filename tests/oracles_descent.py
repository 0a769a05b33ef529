"""Slow references for the losses of block descent, in float64, from the formulas alone."""

import numpy as np


def kink(t, d):
    """Return |t| with a parabola inside [-d, d]."""
    return np.where(np.abs(t) >= d, np.abs(t), t**2 / (2 * d) + d / 2)


def values(name, y, f, number, d):
    """Return the smoothed loss of each entry (C, n); "multinomial" gives one row."""
    z, m = f - y, y * f
    if name == "squared":
        return z**2 / 2
    if name == "logistic":
        return np.logaddexp(0, -m)
    if name == "multinomial":
        return np.logaddexp.reduce(f, axis=0, keepdims=True) - (y * f).sum(0, keepdims=True)
    if name == "modified_logistic":
        return np.logaddexp(0, number * (1 - m)) / number
    if name == "squared_hinge":
        return np.maximum(0, 1 - m) ** 2
    if name == "smoothed_hinge":
        line = 1 - m - number / 2
        return np.where(m <= 1 - number, line, np.maximum(0, 1 - m) ** 2 / (2 * number))
    if name == "hinge":
        return (kink(1 - m, d) + 1 - m) / 2
    if name == "huber":
        return np.where(np.abs(z) <= number, z**2 / 2, number * (np.abs(z) - number / 2))
    if name == "epsilon":
        return (kink(z - number, d) + kink(z + number, d)) / 2 - number
    if name == "quantile":
        return kink(z, d) / 2 + (0.5 - number) * z
    if name == "one_class":
        return (kink(-f, d) - f) / 2
    if name == "kl":
        tangent = np.exp(30) * (f - 29)
        return np.where(y > 0, -f, np.where(f < 30, np.exp(np.minimum(f, 30)), tangent))
    if name == "ratio":
        low = np.maximum(f, number)
        return np.where(y > 0, (low - f) / number - np.log(low), f)
    return np.where(y > 0, -f, f**2 / 2)


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
