"""The contract of a kernel and of its random features."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.features.base import FeatureMap, float32_rows
from kernelgrad.kernels import Kernel
from kernelgrad.testing.parameters import check_parameters, pickled, require, without_warnings
from kernelgrad.types import Float32Array, Float64Array, FloatArray

_FREQUENCIES = 32
_CHECKED_PAIRS = 12
_ALLOWED = 5.0  # standard errors


def check_kernel(
    kernel: Kernel, *, X: FloatArray | None = None, random_state: int = 0, n_blocks: int = 400
) -> None:
    """Check that a kernel fulfils the contract of `kernelgrad.kernels.Kernel`.

    - ``clone`` and ``get_params`` reproduce the kernel, and pickling preserves its values;
    - the exact form is symmetric, positive semi-definite up to rounding, agrees with ``diag``,
      and is the same for any part of the rows and for sparse rows;
    - ``E[phi_j(x) . phi_j(z)] = k(x, z)`` within five standard errors, estimated from
      `n_blocks` blocks of 32 features; for rows scaled by 1.25 the same statistic must fail;
    - block ``j`` is a pure function of (seed, j), whatever was computed before, and up to
      rounding whatever the other rows are; another seed or block gives other features;
    - ``predict`` is the sum of ``transform(X, j) @ coef_j``, and ``gradient`` is
      ``transform(X, j).T @ R``; a feature map can be pickled.

    AssertionError names the kernel and the first property that fails.

    Parameters
    ----------
    kernel : Kernel
        The kernel, with its parameters; rules are resolved on `X`.
    X : float array (n, d) or None
        At least 8 rows of the kernel's domain, at distances where it is neither 0 nor 1. None
        means 24 rows, uniform in the cube [0, 2)^3.
    random_state : int, default=0
        Seed of rows and features, fixed so that a failure can be repeated.
    n_blocks : int, default=400
        Number of blocks to average.
    """
    require(isinstance(kernel, Kernel), kernel, "is not a kernelgrad.kernels.Kernel.")
    rng = np.random.default_rng(random_state)
    rows = 2.0 * rng.random((24, 3)) if X is None else np.asarray(X, np.float64)
    with without_warnings(kernel):
        kernel.check()
        check_parameters(kernel)
        kernel = kernel.resolve(rows, random_state)
        _check_exact(kernel, rows)
        if kernel.has_random_features:
            _check_blocks(kernel, rows, random_state)
            _check_products(kernel, rows, random_state, rng)
            _check_expectation(kernel, rows, random_state, n_blocks)


def _check_exact(kernel: Kernel, X: Float64Array) -> None:
    K, n, diagonal, form = kernel(X), len(X), kernel.diag(X), "the exact form"
    good = K.shape == (n, n) and K.dtype == np.float64 and bool(np.isfinite(K).all())
    message = f"{form} gives {K.shape} {K.dtype}, expected finite float64 {(n, n)}."
    require(good, kernel, message)
    scale = max(1.0, float(np.abs(K).max()))
    skew = float(np.abs(K - K.T).max())
    require(skew <= 1e-12 * scale, kernel, f"{form} is not symmetric: off by {skew:.3g}.")
    good = diagonal.shape == (n,) and _near(diagonal, K.diagonal(), 1e-10 * scale)
    require(good, kernel, f"diag does not agree with {form}.")
    least = float(np.linalg.eigvalsh(K)[0])
    message = f"{form} is not positive semi-definite: eigenvalue {least:.3g}."
    require(least >= -1e-10 * n * scale, kernel, message)
    others = {
        "of a part of the rows": (kernel(X[2:7], X[:5]), K[2:7, :5], 1e-6),
        "of sparse rows": (kernel(sp.csr_matrix(X)), K, 1e-6),
        "after pickling": (pickled(kernel, kernel)(X), K, 0.0),
    }
    for what, (other, expected, tolerance) in others.items():
        same = _near(other, expected, tolerance * scale)
        require(same, kernel, f"{form} {what} differs.")


def _near(values: FloatArray, expected: FloatArray | float, tolerance: float) -> bool:
    return np.allclose(values, expected, rtol=0, atol=tolerance)


def _map(kernel: Kernel, X: FloatArray, seed: int) -> FeatureMap:
    return kernel.feature_map(X.shape[1], seed, _FREQUENCIES)


def _prepared(features: FeatureMap, X: Any) -> Any:
    return float32_rows(features.prepare(X))


def _check_blocks(kernel: Kernel, X: Float64Array, seed: int) -> None:
    features = _map(kernel, X, seed)
    rows = _prepared(features, X)
    planar = features.width == features.planes * features.block_size
    require(planar, kernel, "width is not planes * block_size.")
    blocks, shape = [features.transform(rows, j) for j in range(4)], (len(rows), features.width)
    for block in blocks:
        good = block.shape == shape and block.dtype == np.float32
        message = f"transform gives {block.shape} {block.dtype}, expected float32 {shape}."
        require(good, kernel, message)
    fresh = _map(kernel, X, seed)
    for j in (3, 0, 2, 0, 1):
        same = np.array_equal(fresh.transform(rows, j), blocks[j])
        message = f"block {j} is not a pure function of (seed, j): the order of calls matters."
        require(same, kernel, message)
    same = np.array_equal(pickled(features, kernel).transform(rows, 1), blocks[1])
    require(same, kernel, "pickle changes the features.")
    # the median, because rounding of heavy-tailed frequencies may change a few features
    allowed = 1e-4 * max(1e-3, float(np.abs(blocks[1]).max()))
    parts = [features.transform(rows[a : a + 5], 1) for a in range(0, len(rows), 5)]
    same = np.median(np.abs(np.vstack(parts) - blocks[1])) <= allowed
    require(same, kernel, "features of a row depend on the other rows.")
    sparse = features.transform(_prepared(features, sp.csr_matrix(X)), 1)
    same = np.median(np.abs(sparse - blocks[1])) <= allowed
    require(same, kernel, "features of sparse rows differ from those of dense rows.")
    for what, other_seed, j in (
        ("seed", seed + 1, 1), ("seed", seed + 2**40, 1), ("block", seed, 2),
    ):  # fmt: skip
        share = np.mean(_map(kernel, X, other_seed).transform(rows, j) == blocks[1])
        require(share < 0.9, kernel, f"another {what} gives the same features.")


def _check_products(
    kernel: Kernel, X: Float64Array, seed: int, rng: np.random.Generator
) -> None:
    features = _map(kernel, X, seed)
    rows = _prepared(features, X)
    n, n_blocks, F = len(rows), 3, features.block_size
    coef = np.zeros((features.planes, features.capacity(n_blocks), 2), np.float32)
    used = coef[:, : n_blocks * F]
    used[:] = rng.standard_normal(used.shape)
    R = rng.standard_normal((n, 2)).astype(np.float32)
    blocks = [features.transform(rows, j).astype(np.float64) for j in range(n_blocks)]
    planes = [coef[:, j * F : (j + 1) * F].reshape(features.width, 2) for j in range(n_blocks)]
    expected = 1.0 + sum(P @ A for P, A in zip(blocks, planes, strict=True))
    scale = float(np.abs(expected).max())
    for cache_bytes in (0, 2**20):
        out: Float32Array = np.ones((n, 2), np.float32)
        features.predict(rows, coef, n_blocks, out, cache_bytes)
        message = "predict does not add the sum over blocks of transform times coefficients."
        require(_near(out, expected, 1e-3 * scale), kernel, message)
    G = features.gradient(rows, R, 1)
    product = blocks[1].T @ R
    tolerance = 1e-3 * float(np.abs(product).max())
    same = G.shape == product.shape and _near(G, product, tolerance)
    require(same, kernel, "gradient is not transform.T @ R.")


def _check_expectation(kernel: Kernel, X: Float64Array, seed: int, n_blocks: int) -> None:
    # features are of float32 rows, so the exact form gets the same: rounding is no bias
    rows = X[: 2 * _CHECKED_PAIRS].astype(np.float32)
    features = _map(kernel, rows, seed)
    prepared = _prepared(features, rows)
    half = len(rows) // 2
    left = np.concatenate([[0], np.arange(half)])
    right = np.concatenate([[0], half + np.arange(half)])
    estimates = np.empty((n_blocks, len(left)))
    for j in range(n_blocks):
        P = features.transform(prepared, j).astype(np.float64)
        estimates[j] = np.einsum("pf,pf->p", P[left], P[right])
    K = kernel(rows)
    stretched = (1.25 * rows).astype(np.float32)  # a wrong bandwidth
    exact, wrong = K[left, right], kernel(stretched)[left, right]
    mean = estimates.mean(axis=0)
    # the floor is the rounding of float32 features
    error = np.hypot(
        estimates.std(axis=0, ddof=1) / np.sqrt(n_blocks), 1e-6 * np.maximum(1.0, np.abs(exact))
    )
    z, z_wrong = np.abs(mean - exact) / error, np.abs(mean - wrong) / error
    at = int(z.argmax())
    message = f"features estimate {mean[at]:.5g} +- {error[at]:.2g} of a value {exact[at]:.5g}."
    require(z.max() < _ALLOWED, kernel, message)
    message = "a wrong bandwidth passes as well; give more blocks or other rows."
    require(z_wrong.max() > _ALLOWED, kernel, message)
