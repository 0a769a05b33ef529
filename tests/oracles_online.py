"""Slow references of the online solvers, one row at a time on a full kernel matrix."""

import numpy as np


def pegasos(K, order, y, slope, alpha, *, t0=0.0, bias=0.0, omega=None):
    """Return (last, average) coefficients of `order`'s visits; omega(t) weighs iterates."""
    a, total, mass = np.zeros((3, len(K)))
    for t, i in enumerate(order, 1):
        g = slope(y[i], bias + K[i] @ a)
        a = (1 - 1 / (t + t0)) * a
        a[i] -= g / (alpha * (t + t0))
        total, mass = total + (omega(t) if omega else 0) * a, mass + (omega(t) if omega else 0)
    return a, total / np.where(mass > 0, mass, 1)


def norma(K, order, y, slope, alpha, *, eta, decay, bias):
    """Return (coefficients, bias, mean coefficients) of visits to the rows order[t] at once."""
    a, total = np.zeros((2, len(K)))
    for t, i in enumerate(order, 1):
        g, step = slope(y[i], bias + K[i] @ a) / len(i), eta / t**decay
        a = (1 - step * alpha) * a
        np.subtract.at(a, i, step * g)
        bias, total = bias - step * g.sum(), total + a
    return a, bias, total / len(order)


def projected(K, order, y, B):
    """Stochastic gradient descent on the mean hinge loss within |w| <= B: the mean iterate."""
    a, total = np.zeros(len(K)), np.zeros(len(K))
    for t, i in enumerate(order, 1):
        if y[i] * (K[i] @ a) < 1:
            a[i] += B / np.sqrt(t) * y[i]
        a *= min(1.0, B / max(np.sqrt(a @ K @ a), 1e-300))
        total += a
    return total / len(order)


def perceptron(K, order, y, weight, *, constant=0.0):
    """Return (last, average); `weight` is of each visit, the bias of a constant feature."""
    K = K + constant
    a, total = np.zeros(len(K)), np.zeros(len(K))
    for i, w in zip(order, weight, strict=True):
        for _ in range(max(1, int(np.ceil(w - 1e-9)))):
            if y[i] * (K[i] @ a) <= 0:
                a[i] += y[i] * w / max(1, np.ceil(w - 1e-9))
        total += a
    return a, total / len(order)
