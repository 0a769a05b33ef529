"""Block covariance and its damped solve."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from kernelgrad._typing import Float64Array, FloatArray
from kernelgrad.compute.threads import parallel_for

_PANEL = 128


def gram(P: FloatArray) -> Float64Array:
    """Return the lower triangle of ``P^T P`` (products in the precision of P, then float64).

    Panels of columns are the tasks; each is one product over all rows, so the number of
    threads changes nothing.
    """
    m = P.shape[1]
    H = np.zeros((m, m))

    def task(a: int) -> None:
        j0, j1 = a * _PANEL, min(m, (a + 1) * _PANEL)
        H[j0:, j0:j1] = P[:, j0:].T @ P[:, j0:j1]

    parallel_for(-(-m // _PANEL), task)
    return H


def solve_damped(H: Float64Array, damping: float, G: FloatArray) -> Float64Array:
    """Return ``(H + damping I)^-1 G`` by Cholesky in float64.

    `H` holds the lower triangle of a positive semi-definite matrix known to float32
    rounding. Where rounding made it indefinite, damping grows tenfold until it is not.
    """
    diagonal = H.diagonal().copy()
    floor = float(np.finfo(np.float32).eps) * max(float(diagonal.max(initial=0.0)), 1e-30)
    damping = max(float(damping), floor)
    while True:
        work = H.copy()
        work[np.diag_indices_from(work)] = diagonal + damping
        try:
            factor = scipy.linalg.cho_factor(
                work, lower=True, overwrite_a=True, check_finite=False
            )
        except scipy.linalg.LinAlgError:
            damping *= 10.0
            continue
        solution: Float64Array = scipy.linalg.cho_solve(
            factor, G.astype(np.float64), check_finite=False
        )
        return solution
