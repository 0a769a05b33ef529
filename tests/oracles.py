"""Slow scalar references, written from the formulas and sharing no code with kernelgrad."""

import math


def _sigmoid(t):
    return 1.0 / (1.0 + math.exp(-t)) if t >= 0 else math.exp(t) / (1.0 + math.exp(t))


def scalar_loss(name, y, f, delta=1.0, epsilon=0.1, quantile=0.5):
    """l(y, f) of one output."""
    r = f - y
    if name == "squared":
        return r * r / 2
    if name == "huber":
        return r * r / 2 if abs(r) <= delta else delta * abs(r) - delta * delta / 2
    if name == "epsilon_insensitive":
        return abs(r) - epsilon if abs(r) > epsilon else 0.0
    if name == "absolute":
        return abs(r)
    if name == "quantile":
        return quantile * -r if r < 0 else (1 - quantile) * r
    if name == "hinge":
        return 1 - y * f if y * f < 1 else 0.0
    if name == "squared_hinge":
        return (1 - y * f) ** 2 if y * f < 1 else 0.0
    if name == "logistic":
        return -math.log(_sigmoid(y * f))
    raise KeyError(name)


def scalar_slope(name, y, f, delta=1.0, epsilon=0.1, quantile=0.5):
    """dl/df of one output, away from kinks."""
    r = f - y
    sign = (r > 0) - (r < 0)
    if name == "squared":
        return r
    if name == "huber":
        return r if abs(r) <= delta else delta * sign
    if name == "epsilon_insensitive":
        return sign if abs(r) > epsilon else 0.0
    if name == "absolute":
        return sign
    if name == "quantile":
        return -quantile if r < 0 else 1 - quantile
    if name == "hinge":
        return -y if y * f < 1 else 0.0
    if name == "squared_hinge":
        return -2 * y * (1 - y * f) if y * f < 1 else 0.0
    if name == "logistic":
        return -y * _sigmoid(-y * f)
    raise KeyError(name)


def scalar_weight(name, y, f, width, delta=1.0, epsilon=0.1, quantile=0.5):
    """Second derivative of one output, or the majorising weight where there are kinks."""
    r = abs(f - y)
    if name == "squared":
        return 1.0
    if name == "huber":
        return 1.0 if r <= delta else delta / r
    if name == "epsilon_insensitive":
        return 0.5 / max(abs(r - epsilon), width) + 0.5 / max(r + epsilon, width)
    if name == "absolute":
        return 1 / max(r, width)
    if name == "quantile":
        return 0.5 / max(r, width)
    if name == "hinge":
        return 0.5 / max(abs(1 - y * f), width)
    if name == "squared_hinge":
        return 2.0 if y * f < 1 else 0.0
    if name == "logistic":
        return _sigmoid(f) * (1 - _sigmoid(f))
    raise KeyError(name)


def softmax_row(f):
    """Class probabilities of one row."""
    top = max(f)
    powers = [math.exp(t - top) for t in f]
    return [p / sum(powers) for p in powers]


def multinomial_row(y, f):
    """Loss, gradient and largest Hessian diagonal of one row with one-hot y."""
    p = softmax_row(f)
    value = -sum(t * math.log(q) for t, q in zip(y, p, strict=True))
    gradient = [q - t for t, q in zip(y, p, strict=True)]
    return value, gradient, max(q * (1 - q) for q in p)


def loss_row(name, y, f, width, **params):
    """Loss, gradient and weight of one row."""
    if name == "log_loss":
        return multinomial_row(y, f)
    pairs = list(zip(y, f, strict=True))
    value = sum(scalar_loss(name, t, u, **params) for t, u in pairs)
    gradient = [scalar_slope(name, t, u, **params) for t, u in pairs]
    return value, gradient, max(scalar_weight(name, t, u, width, **params) for t, u in pairs)
