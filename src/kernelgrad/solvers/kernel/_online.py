"""One row after another on a function of kernel values: the loop inside a group of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from kernelgrad.losses.scalar import slopes_of_row

# Of a lazy factor, before the coefficients take it in: the average is a difference of sums that
# lose no more digits than this.
_LEAST = 1e-4


@njit(nogil=True, cache=True)
def sweep(
    K: Any, R: Any, y: Any, weight: Any, slot: Any, f: Any,
    eta: Any, keep: Any, omega: Any, code: int, params: Any, learn_bias: bool,
    square_radius: float,
    base: Any, late: Any, stamp: Any,
    scale: Any, mass: Any, square: Any, bias: Any, bias_sum: Any, kept: Any, blend: Any,
    first: int, count: int, limit: int, old: Any, K_old: Any,
) -> None:  # fmt: skip
    r"""Take gradient steps on the m rows of a group, one after another.

    For output c the function before row i is ``b_c + s_c sum_j base_jc k(x_j, .)``. The row
    gives its response ``f_ic``, the derivative ``g_ic`` of its loss there, and

    .. math:: w_c \leftarrow \min(1, R / |\cdot|)
              (keep_{ic} w_c - eta_{ic} v_i g_{ic} k(x_i, .))

    with the weight v_i of the row. The factors go to ``s_c``, so that a step touches one
    coefficient. The sum of iterates ``sum_t omega_t w_t`` is ``mass_c base_c - late_c``.

    Where a new entry would be one too many the entry whose last step is longest ago goes.

    Parameters
    ----------
    K : float32 array (m, m)
        Kernel values inside the group; the lower triangle is used.
    R : float64 array (m, C)
        ``k(group, support) base``; changed.
    y, f : float64 arrays (m, C)
        Targets; responses, written.
    weight : float64 array (m,)
    slot : int64 array (m,)
        Entry of each row.
    eta, keep : float64 arrays (m, C)
        Steps, and factors in [0, 1].
    omega : float64 array (m,)
        Weight of the iterate after each row in the sum of iterates.
    code, params : int, float64 array (C,)
        The loss, and its delta, epsilon, quantile or width.
    learn_bias : bool
        Whether the bias takes the same steps, without the factor.
    square_radius : float
        ``R^2``; infinite for no projection.
    base, late : float64 arrays (S, C)
        With zeros for the entries that the group may add.
    stamp : int64 array (S,)
        Number of the last row that moved an entry; negative for entries outside of the
        support: those not yet made (-1) and those dropped (-2).
    scale, mass, square, bias, bias_sum, kept, blend : float64 arrays (C,)
        s; mass of the sum; ``|w|^2`` (where there is a radius); b; ``sum omega_t b_t``; product
        of all factors; ``sum omega_t`` times that product after step t.
    first : int
        Number of the first row.
    count, limit : int
        Entries before the group, and how many there may be.
    old : int64 array (q,)
        The entries that go first, in this order: at least as many as the group can use up.
    K_old : float32 array (m, q)
        Kernel values of the group with them.
    """
    m, C = y.shape
    D = np.zeros((m, C))
    g = np.empty(C)
    before = stamp[old]
    oldest = 0
    for i in range(m):
        for c in range(C):
            total = R[i, c]
            for j in range(i):
                total += K[i, j] * D[j, c]
            f[i, c] = scale[c] * total + bias[c]
        slopes_of_row(code, params, y[i], f[i], g)
        moved = False
        k = slot[i]
        for c in range(C):
            step = -eta[i, c] * weight[i] * g[c]
            factor = keep[i, c]
            s = scale[c] * factor
            if s < _LEAST:
                for j in range(base.shape[0]):
                    late[j, c] -= mass[c] * base[j, c]
                    base[j, c] *= s
                for j in range(i):
                    D[j, c] *= s
                for j in range(i + 1, m):
                    R[j, c] *= s
                mass[c] = 0.0
                s = 1.0
            if step != 0.0:
                moved = True
                D[i, c] = step / s
                base[k, c] += D[i, c]
                late[k, c] += mass[c] * D[i, c]
            if square_radius < np.inf:
                w = f[i, c] - bias[c]
                norm = factor * factor * square[c] + step * (2.0 * factor * w + step * K[i, i])
                square[c] = max(norm, 0.0)
                if norm > square_radius:
                    shrink = np.sqrt(square_radius / norm)
                    s *= shrink
                    factor *= shrink
                    square[c] = square_radius
            scale[c] = s
            mass[c] += omega[i] * s
            kept[c] *= factor
            blend[c] += omega[i] * kept[c]
            if learn_bias:
                bias[c] += step
            bias_sum[c] += omega[i] * bias[c]
        if not moved:
            continue
        if stamp[k] < 0:
            count += 1
        stamp[k] = first + i
        if count > limit:
            while stamp[old[oldest]] != before[oldest]:
                oldest += 1
            p = old[oldest]
            for c in range(C):
                for j in range(i + 1, m):
                    R[j, c] -= base[p, c] * K_old[j, oldest]
                base[p, c] = 0.0
                late[p, c] = 0.0
            stamp[p] = -2
            count -= 1
