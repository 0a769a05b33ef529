r"""One compiled pass over rows: a loss, its derivatives, and their sums along three directions.

Responses U, targets Y and directions are (C, n), outputs by rows, float32 and C-contiguous, so
that the inner loops run over rows. The loss is an entry of :mod:`kernelgrad.losses.scalar`, its
kinks smoothed over a width; :func:`_loop_of` compiles the pass for one loss at a time.

Entries are computed in float32, in pieces of constant width, quadratic values and all sums in
float64: sums are good to some 1e-7 of the sum of absolute terms, and finite up to |U| = 1e30.
Tiles of rows are fixed by shapes and their sums are added in the order of tiles, so that no bit
depends on the number of threads. A compiled pass takes a third to a tenth of the time of NumPy
passes over tiles, which made whole fits of ten classes a sixth slower.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from kernelgrad.compute.compiling import njit
from kernelgrad.compute.elementary import exp_flat, log2_flat
from kernelgrad.compute.threads import parallel_for
from kernelgrad.losses import scalar
from kernelgrad.types import AnyArray, Float32Array, Float64Array

SCALE, STEP, MOMENTUM = 1, 2, 4  # bits of the directions of :func:`along`

_ENTRIES = 16384  # entries, rows times outputs, of a tile: some 20 us, well above a call
_N = 512  # rows of a piece: constant, so that compiled loops see that its parts do not overlap
_f, _d = np.float32, np.float64
_ZERO, _ONE, _LN2 = _f(0), _f(1), _f(np.log(2.0))
_FIRST = (4, 6, 7)  # place of h_kk less k in the ten sums
_LEAST_WIDTH = 1e-30  # width of a kink that is not smoothed
_FAST = {"contract", "nsz", "arcp"}
# "reassoc" lets sums run in vector registers; their order follows from the constant width
_SUMS = _FAST | {"reassoc"}


@njit(nogil=True, cache=True, fastmath=_SUMS, forceinline=True)
def _dot(a: Any, b: Any) -> float:
    s = 0.0
    for j in range(_N):
        s += _d(a[j]) * _d(b[j])
    return s


@njit(nogil=True, cache=True, fastmath=_FAST)
def _load(x: Any, base: Any, out: Any) -> None:
    """Write ``x - base`` to out (_N,), and zeros behind it."""
    for j in range(x.size):
        out[j] = x[j] - base
    for j in range(x.size, _N):
        out[j] = _ZERO


@njit(nogil=True, cache=True, fastmath=_FAST)
def _load_directions(
    U: Any, base: Any, D: Any, P: Any, c: int, rows: Any, directions: int, A: Any
) -> None:
    """Write the directions ``U - base``, D and P of output c that are used to A (3, _N)."""
    if directions & SCALE:
        _load(U[c, rows], base[c], A[0])
    if directions & STEP:
        _load(D[c, rows], _ZERO, A[1])
    if directions & MOMENTUM:
        _load(P[c, rows], _ZERO, A[2])


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _logistic(y: Any, u: Any, value: Any, slope: Any, curvature: Any, T: Any) -> None:
    """Write the logistic loss of a piece and its derivatives; T (3, _N) is scratch."""
    e, u1, log = T[0], T[1], T[2]
    for j in range(_N):
        e[j] = -abs(y[j] * u[j])
    exp_flat(e, u1.view(np.int32))
    for j in range(_N):
        u1[j] = _ONE + e[j]
    log2_flat(u1, log)
    for j in range(_N):
        m = y[j] * u[j]
        whole = _ONE + e[j]
        q = _ONE / whole
        p = e[j] * q
        slope[j] = -y[j] * (p if m > _ZERO else q)
        curvature[j] = p * q
        lost = (e[j] - (whole - _ONE)) * q  # what 1 + e rounded away
        value[j] = _LN2 * log[j] + lost + (-m if m < _ZERO else _ZERO)


@njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def _softmax(E: Any, Y: Any, rows: Any, value: Any, T: Any) -> None:
    """Turn responses E (C, _N) into probabilities; write the multinomial loss to `value`.

    The logarithm is taken of 1 plus all terms but the largest, so that it is good near 0.
    """
    C, m = E.shape[0], rows.stop - rows.start
    top, bits = T[0], T[1].view(np.int32)
    total = np.full(_N, -1.0)
    for j in range(_N):
        top[j] = E[0, j]
    for c in range(1, C):
        for j in range(_N):
            top[j] = E[c, j] if E[c, j] > top[j] else top[j]
    value[:] = 0.0
    for c in range(C):
        e, y = E[c], Y[c, rows]
        for j in range(_N):
            e[j] -= top[j]
        for j in range(m):
            value[j] -= _d(y[j]) * _d(e[j])
        exp_flat(e, bits)
        for j in range(_N):
            total[j] += _d(e[j])
    for j in range(_N):
        value[j] += np.log1p(total[j])
        top[j] = _ONE / _f(1.0 + total[j])
    for c in range(C):
        for j in range(_N):
            E[c, j] *= top[j]


@njit(nogil=True, cache=True, fastmath=_FAST, forceinline=True)
def _add_derivatives(
    w: Any, slope: Any, curvature: Any, A: Any, directions: int, sums: Any
) -> None:
    """Add first and second derivatives along the used directions A (3, _N) to `sums` (10,)."""
    bent = np.empty(_N)
    for k in range(3):
        if not directions >> k & 1:
            continue
        for j in range(_N):
            bent[j] = w[j] * _d(slope[j])
        sums[1 + k] += _dot(bent, A[k])
        for j in range(_N):
            bent[j] = w[j] * _d(curvature[j]) * _d(A[k, j])
        for h in range(k, 3):
            sums[_FIRST[k] + h] += _dot(bent, A[h])


@njit(nogil=True, cache=True, fastmath=_FAST, forceinline=True)
def _add_directions(steps: Any, A: Any, directions: int, e: Any) -> None:
    for k in range(3):
        for j in range(_N if directions >> k & 1 else 0):
            e[j] += steps[k] * A[k, j]


@njit(nogil=True, cache=True, fastmath=_FAST, forceinline=True)
def _add_products(e: Any, a: Any, total: Any, n: int) -> None:
    for j in range(n):
        total[j] += e[j] * a[j]


@njit(nogil=True, cache=True, fastmath=_FAST, forceinline=True)
def _multinomial_slopes(e: Any, y: Any, far: Any, slope: Any, curvature: Any) -> None:
    for j in range(_N):
        slope[j] = e[j] - y[j]
        curvature[j] = e[j] * (_ONE - far * e[j])


@njit(nogil=True, cache=True, fastmath=_FAST, forceinline=True)
def _write_weighted(weight: Any, values: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = _f(weight[j]) * values[j]


@cache
def _loop_of(code: int) -> Any:
    """Return the compiled pass of a loss; `code` is a constant in it."""
    kinked, joint = code in scalar.KINKED, code == scalar.MULTINOMIAL

    @njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
    def loop(
        params: Any, widths: Any, U: Any, base: Any, D: Any, P: Any, Y: Any, w: Any,
        steps: Any, directions: int, far: Any, R: Any, W: Any, start: int, stop: int, sums: Any,
    ) -> None:  # fmt: skip
        """Add the sums of rows `start` to `stop`, (C, 10); write R and W if they have rows."""
        C, writes = U.shape[0], R.shape[1] > 0
        points, scratch = np.empty((3, C, _N), np.float32), np.zeros((3, 3, _N), np.float32)
        E, S, B = points[0], points[1], points[2]
        A, M, T = scratch[0], scratch[1], scratch[2]
        V, y, weight = np.zeros((C, _N)), np.empty(_N, np.float32), np.empty(_N)
        for i in range(start, stop, _N):
            m = min(_N, stop - i)
            rows = slice(i, i + m)
            _load(w[rows], _ZERO, weight)
            for c in range(C):
                _load(U[c, rows], _ZERO, E[c])
                _load_directions(U, base, D, P, c, rows, directions, A)
                _add_directions(steps[c], A, directions, E[c])
            if joint:
                _softmax(E, Y, rows, V[0], T)
                M[:] = _ZERO
            for c in range(C):
                g, d = _f(params[c]), _f(max(widths[c], _LEAST_WIDTH))
                _load(Y[c, rows], _ZERO, y)
                if joint:
                    _multinomial_slopes(E[c], y, far, S[c], B[c])
                    _load_directions(U, base, D, P, c, rows, directions, A)
                    for k in range(3):
                        _add_products(E[c], A[k], M[k], _N if directions >> k & 1 else 0)
                elif code == scalar.LOGISTIC:
                    _logistic(y, E[c], V[c], S[c], B[c], T)
                else:
                    for j in range(_N):
                        u = E[c, j]
                        S[c, j] = scalar.smooth_slope(code, g, y[j], u, d)
                        B[c, j] = scalar.curvature(code, g, y[j], u, d, far)
                        if kinked:
                            V[c, j] = scalar.smooth_value(code, g, y[j], u, d)
                        else:
                            V[c, j] = scalar.value(code, params[c], _d(y[j]), _d(u))
                sums[c, 0] += _dot(weight, V[c])
                if writes:
                    for j in range(_N if kinked else 0):
                        V[c, j] = scalar.value(code, g, y[j], E[c, j])
                    sums[c, 1] += _dot(weight, V[c])
                    _write_weighted(weight, S[c], R[c, rows])
                    _write_weighted(weight, B[c], W[c, rows])
            for c in range(C if directions else 0):
                _load_directions(U, base, D, P, c, rows, directions, A)
                # The Hessian of the multinomial loss is the covariance of the directions: about
                # their means M nothing cancels. Its slopes sum to 0, so the means change none.
                for k in range(3 if joint else 0):
                    for j in range(_N):
                        A[k, j] -= M[k, j]
                _add_derivatives(weight, S[c], B[c], A, directions, sums[c])

    return loop


def weighted_sums(
    code: int, params: Float64Array, widths: Float64Array, U: Float32Array, Y: Float32Array,
    w: Float32Array, slopes: tuple[Float32Array, Float32Array] | None = None,
    base: AnyArray | None = None, D: Float32Array | None = None, P: Float32Array | None = None,
    steps: Float64Array | None = None, directions: int = 0,
) -> Float64Array:  # fmt: skip
    """Return sums of the loss at ``U + s_0 (U - base) + s_1 D + s_2 P`` and their derivatives.

    The loss has one parameter and one positive width d for each output, (C,), unused where it
    has no kinks. Responses U and targets Y (one-hot for MULTINOMIAL) are (C, n), the weights w
    of the rows are not negative. The `steps` ``(s_0, s_1, s_2)`` of each output, (C, 3), are
    rounded to float32, and `base` (C,) is what the scale leaves alone, the bias. `directions`
    is the sum of SCALE, STEP and MOMENTUM; the arrays of those left out are not read.

    With `slopes`, a pair (R, W) of arrays (C, n), R becomes ``w_i dl_d/df`` and W the weights
    times the majorising curvatures of the table, the diagonal ones for MULTINOMIAL.
    Otherwise second derivatives are true ones: kinks count ``1/d`` inside their width and 0
    outside, HUBER 1 and 0, SMOOTHED_HINGE 1/g and 0, MULTINOMIAL its whole Hessian.

    Returns
    -------
    float64 array (C, 10)
        ``sum_i w_i l_d``, then ``g_0, g_1, g_2, h_00, h_01, h_02, h_11, h_12, h_22``, one row
        an output; with `slopes` the second entry is ``sum_i w_i l`` of the exact loss. The loss
        of MULTINOMIAL is joint: its value is in row 0, its derivatives are sums over rows.
    """
    C, n = U.shape
    if code in (scalar.SMOOTHED_HINGE, scalar.MODIFIED, scalar.RATIO):
        params = np.clip(params, 1e-30, 1e30)  # float32 holds these and their inverses
    s = np.zeros((C, 3), np.float32) if steps is None else steps.astype(np.float32)
    b = np.zeros(C, np.float32) if base is None else np.asarray(base, np.float32)
    R, W = (U[:, :0],) * 2 if slopes is None else slopes
    D, P = (D if directions & STEP else U), (P if directions & MOMENTUM else U)
    far, loop = np.float32(slopes is not None), _loop_of(code)
    height = _N * max(1, _ENTRIES // (_N * C))
    sums = np.zeros((-(-n // height), C, 10))

    def task(t: int) -> None:
        rows = t * height, min(n, (t + 1) * height)
        loop(params, widths, U, b, D, P, Y, w, s, directions, far, R, W, *rows, sums[t])

    parallel_for(len(sums), task)
    return sums[0] if len(sums) == 1 else np.asarray(sums.sum(axis=0))
