"""Sums, norms, centres and distances of rows, by which kernels choose their parameters."""

import numpy as np
from sklearn.utils.extmath import row_norms

from kernelgrad.features.base import float64_rows
from kernelgrad.types import Float64Array, Matrix

_OUTLYING = 1e3  # distance of mean and median, in median norms, that only outliers explain


def row_sums(X: Matrix) -> Float64Array:
    """Return the sums of rows, dense or CSR, in float64."""
    return np.asarray(float64_rows(X).sum(axis=1), np.float64).ravel()


def large_norm(X: Matrix) -> float:
    """Return the 99.9 % quantile of ``|x|`` over rows, a maximum that ignores outliers."""
    return float(np.quantile(row_norms(X), 0.999)) if X.shape[0] else 0.0


def steady_centre(X: Float64Array, mean: Float64Array) -> Float64Array:
    """Return the mean of rows like `X`, or their median if outliers have moved the mean.

    A centre far from most rows would cost their distances precision.
    """
    median: Float64Array = np.median(X, axis=0)
    near = np.linalg.norm(mean - median) <= _OUTLYING * np.median(row_norms(X - median))
    return mean if near else median


def median_distance(D: Float64Array, sizes: Float64Array) -> float:
    """Return the median positive distance in D (n, n), for rows of norms `sizes` (n,).

    Distances within the rounding error of the norms belong to equal rows and are left out. If
    no others remain the result is 1.
    """
    pairs = np.concatenate([D[:0].ravel(), *(D[i, i + 1 :] for i in range(len(D)))])
    if pairs.min(initial=np.inf) <= 1e-7 * sizes.max(initial=0.0):
        own = [np.maximum(sizes[i], sizes[i + 1 :]) for i in range(len(D))]
        pairs = pairs[1e-7 * np.concatenate([sizes[:0], *own]) < pairs]
    return float(np.median(pairs, overwrite_input=True)) if pairs.size else 1.0
