"""Algorithms 1 and 2 of Dai et al. (2014) as printed, in NumPy, to be read beside the paper.

:class:`~kernelgrad.solvers.DSG` does the same in compiled loops; ``DSG.paper(nu=nu)`` has the
steps ``gamma_i = 1 / (nu i)`` of Theorem 4.
"""

from collections.abc import Callable, Sequence

import numpy as np

from kernelgrad.types import Float64Array

Features = Callable[[Float64Array, int], Float64Array]  # phi(x, i), (B, m), drawn with seed i


def train(
    sample: Callable[[int], tuple[Float64Array, Float64Array]], phi: Features,
    slope: Callable[[Float64Array, Float64Array], Float64Array], gamma: Callable[[int], float],
    nu: float, t: int,
) -> list[Float64Array]:  # fmt: skip
    """Algorithm 1: return alpha_1, ..., alpha_t, (m,) each.

    ``sample(i)`` returns B rows x (B, d) and targets y (B,); ``slope(f, y)`` is l'(f, y).
    """
    alpha: list[Float64Array] = []
    for i in range(1, t + 1):  # step 1
        x, y = sample(i)  # step 2
        phi_i = phi(x, i)  # step 3
        f = predict(x, alpha, phi)  # step 4
        alpha_i = -gamma(i) * phi_i.T @ slope(f, y) / len(y)  # step 5
        alpha = [(1 - gamma(i) * nu) * alpha_j for alpha_j in alpha]  # step 6
        alpha.append(alpha_i)
    return alpha


def predict(x: Float64Array, alpha: Sequence[Float64Array], phi: Features) -> Float64Array:
    """Algorithm 2: return f(x), (B,)."""
    f = np.zeros(len(x))  # step 1
    for i, alpha_i in enumerate(alpha, 1):  # step 2
        f += phi(x, i) @ alpha_i  # steps 3 and 4
    return f


def gaussian_features(sigma: float, m: int = 1) -> Features:
    """Return ``sqrt(2 / m) cos(omega . x + b)`` of the Gaussian kernel (Theorem 2), (B, m)."""

    def phi(x: Float64Array, i: int) -> Float64Array:
        rng = np.random.default_rng(i)
        omega = rng.standard_normal((x.shape[1], m)) / sigma
        b = rng.uniform(0.0, 2.0 * np.pi, m)
        return np.asarray(np.sqrt(2.0 / m) * np.cos(x @ omega + b))

    return phi
