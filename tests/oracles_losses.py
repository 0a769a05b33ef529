"""Losses from their formulas alone: values, slopes and curvatures of targets y at responses f.

All but "log_loss" are of single entries of y and f; that one takes classes along the last axis
and has one value per row. `a` is the parameter of a loss that has one.
"""

from functools import partial

import numpy as np
from scipy.special import expit, logsumexp, softmax, xlogy

NUMBERS = {
    "huber": "delta", "epsilon_insensitive": "epsilon", "quantile": "quantile",
    "smoothed_hinge": "width", "modified_logistic": "beta", "kl_ratio": "floor",
    "tweedie": "power",
}  # fmt: skip


def spec(loss):
    """Name and number of a loss object."""
    if loss.name == "log_squared":
        return "squared", 0.0
    if loss.name == "relative_novelty":
        return "kl_ratio", np.exp(-loss.rho)
    return loss.name, getattr(loss, NUMBERS.get(loss.name, ""), 0.0)


def value_of(loss):
    """The value of a loss object, a function of y and f."""
    name, a = spec(loss)
    return partial(value, name, a=a)


def slope_of(loss):
    """The slope of a loss object, a function of y and f."""
    name, a = spec(loss)
    return partial(slope, name, a=a)


def ramp(t, g=0.0):
    """max(0, t), or its quadratic smoothing of width g (at most g/2 lower)."""
    if g == 0:
        return np.maximum(t, 0.0)
    return np.where(t <= 0, 0.0, np.where(t >= g, t - g / 2, t * t / (2 * g)))


def rise(t, g=0.0):
    """Derivative of `ramp`; 0 at the kink of the unsmoothed one."""
    return np.clip(t / g, 0.0, 1.0) if g else (t > 0) * 1.0


def value(name, y, f, a=0.0, positive=ramp):
    """l(y, f), the kinks smoothed as `positive` smooths max(0, t)."""
    m, z = y * f, f - y
    return {
        "squared": lambda: z**2 / 2,
        "huber": lambda: np.where(abs(z) <= a, z**2 / 2, a * (abs(z) - a / 2)),
        "epsilon_insensitive": lambda: positive(z - a) + positive(-z - a),
        "absolute": lambda: positive(z) + positive(-z),
        "quantile": lambda: a * positive(-z) + (1 - a) * positive(z),
        "hinge": lambda: positive(1 - m),
        "perceptron": lambda: positive(-m),
        "smoothed_hinge": lambda: ramp(1 - m, a),
        "squared_hinge": lambda: ramp(1 - m) ** 2,
        "modified_logistic": lambda: np.logaddexp(0, a * (1 - m)) / a,
        "logistic": lambda: np.logaddexp(0, -m),
        "log_loss": lambda: logsumexp(f, -1, keepdims=True) - m.sum(-1, keepdims=True),
        "poisson": lambda: np.exp(f) - m + xlogy(y, y) - y,
        "gamma": lambda: y / np.exp(f) + f - np.log(y) - 1,
        "tweedie": lambda: (
            np.exp((2 - a) * f) / (2 - a)
            - y * np.exp((1 - a) * f) / (1 - a)
            + ramp(y) ** (2 - a) / ((1 - a) * (2 - a))
        ),
        "one_class": lambda: positive(-f),
        # from 30 on exp goes on as its tangent
        "kl": lambda: np.where(y > 0, -f, np.exp(np.minimum(f, 30)) * (1 + ramp(f - 30))),
        "least_squares": lambda: np.where(y > 0, -f, f**2 / 2),
        # below a -log goes on as its tangent
        "kl_ratio": lambda: np.where(y > 0, ramp(a - f) / a - np.log(np.maximum(f, a)), f),
    }[name]()


def slope(name, y, f, a=0.0, step=rise):
    """dl/df, with the choices at kinks that the losses document; `step` smooths as `rise`."""
    m, z = y * f, f - y
    return {
        "squared": lambda: z,
        "huber": lambda: np.clip(z, -a, a),
        "epsilon_insensitive": lambda: step(z - a) - step(-z - a),
        "absolute": lambda: step(z) - step(-z),
        "quantile": lambda: (1 - a) * step(z) - a * step(-z),
        "hinge": lambda: -y * step(1 - m),
        "perceptron": lambda: -y * (m <= 0),
        "smoothed_hinge": lambda: -y * rise(1 - m, a),
        "squared_hinge": lambda: -2 * y * ramp(1 - m),
        "modified_logistic": lambda: -y * expit(a * (1 - m)),
        "logistic": lambda: -y * expit(-m),
        "log_loss": lambda: softmax(f, -1) - y,
        "poisson": lambda: np.exp(f) - y,
        "gamma": lambda: 1 - y / np.exp(f),
        "tweedie": lambda: (np.exp(f) - y) * np.exp((1 - a) * f),
        "one_class": lambda: -step(-f),
        "kl": lambda: np.where(y > 0, -1.0, np.exp(np.minimum(f, 30))),
        "least_squares": lambda: np.where(y > 0, -1.0, f),
        "kl_ratio": lambda: np.where(y > 0, -1 / np.maximum(f, a), 1.0),
    }[name]()


def curvature(name, y, f, a=0.0, least=0.0):
    """d2l/df2, or the majorising weight where there are kinks, at most 1/2 over `least`."""
    m, z = y * f, f - y

    def kink(t):
        return 0.5 / np.maximum(abs(t), least)

    return {
        "squared": lambda: np.ones_like(f),
        "huber": lambda: a / np.maximum(abs(z), a),
        "epsilon_insensitive": lambda: kink(z - a) + kink(z + a),
        "absolute": lambda: 2 * kink(z),
        "quantile": lambda: kink(z),
        "hinge": lambda: kink(1 - m),
        "perceptron": lambda: kink(f),
        # the parabola that touches at m and at 2 - a - m
        "smoothed_hinge": lambda: 1 / np.maximum(abs(2 * m - 2 + a), a),
        "squared_hinge": lambda: 2.0 * (m < 1),
        # |slope - half| over the distance, as of the hinge
        "modified_logistic": lambda: (expit(a * (1 - m)) - 0.5) / (1 - m),
        "logistic": lambda: expit(f) * expit(-f),
        "log_loss": lambda: (p := softmax(f, -1)) * (1 - p),
        "poisson": lambda: np.exp(f),
        "gamma": lambda: y / np.exp(f),
        "tweedie": lambda: ((2 - a) * np.exp(f) + (a - 1) * y) * np.exp((1 - a) * f),
        "one_class": lambda: kink(f),
        "kl": lambda: np.where(y > 0, 0.0, np.exp(f)),
        "least_squares": lambda: np.where(y > 0, 0.0, 1.0),
        # below a the parabola that lies above the loss
        "kl_ratio": lambda: (y > 0) / (np.maximum(f, a) + np.sqrt(a * ramp(a - f))) ** 2,
    }[name]()


# the losses of block descent, with outputs along the first axis and kinks of width d


def kink(t, d):
    """Return |t| with a parabola inside [-d, d]."""
    return np.where(np.abs(t) >= d, np.abs(t), t**2 / (2 * d) + d / 2)


def values(name, y, f, number, d):
    """Return the smoothed loss of each entry (C, n); "log_loss" gives one row."""
    return value(name, y.T, f.T, number, lambda t: (kink(t, d) + t) / 2).T


def slopes(name, y, f, number, d):
    """Return derivatives (C, n) of :func:`values`."""
    step = lambda t: (np.clip(t / d, -1, 1) + 1) / 2  # noqa: E731
    return slope(name, y.T, f.T, number, step).T


def ten_sums(name, y, w, f, directions, number, d, h=1e-5):
    """Return value, gradient and Hessian of sum_i w_i l along three directions (C, 10)."""

    def gradient(f):
        G = np.einsum("kcn,cn->kc", directions, w * slopes(name, y, f, number, d))
        return G.sum(axis=1, keepdims=True) if name == "log_loss" else G

    H = np.array([gradient(f + h * a) - gradient(f - h * a) for a in directions]) / (2 * h)
    value = values(name, y, f, number, d) @ w
    return np.vstack([value[None], gradient(f), H[np.triu_indices(3)]]).T
