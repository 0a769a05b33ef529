"""Cholesky factors and their uses by LAPACK, during which other threads run.

SciPy's own wrappers of these routines hold the lock of the interpreter, so that two threads
that factor small matrices take as long as one. These call the same library without the lock.
Rows of matrices (m, m) are contiguous, of float32 or float64; only upper triangles are read,
and written by a factor, which LAPACK sees as lower triangles in its own order. Large matrices
are halved again and again, so that threads share the products of halves.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from kernelgrad.compute.threads import over_tiles
from kernelgrad.types import AnyArray

_TYPES: dict[str, tuple[str, Any]] = {
    "float32": ("s", ctypes.c_float),
    "float64": ("d", ctypes.c_double),
}
_WHOLE = 800  # rows up to which one call factors or inverts
_TILE = 128  # rows or columns of a task
_UPPER = np.tri(_TILE, dtype=bool).T  # entries of a tile on the diagonal that are used


@cache
def _routine(name: str) -> Any:
    """Return a routine of SciPy's BLAS or LAPACK; it takes addresses only."""
    python = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
        ("PyCapsule_GetName", python)
    )
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", python)
    )
    capsule = (cython_blas.__pyx_capi__ | cython_lapack.__pyx_capi__)[name]
    return ctypes.CFUNCTYPE(None)(pointer_of(capsule, name_of(capsule)))


def _call(name: str, A: AnyArray, *arguments: Any) -> int:
    """Call a routine and return its status, 0 for trsm, which has none.

    The arguments are letters, numbers, and arrays, which the lengths of their rows follow.
    """
    letter, real = _TYPES[A.dtype.name]
    status, values = ctypes.c_int(0), list[Any]()
    for value in arguments:
        if isinstance(value, np.ndarray):
            assert value.strides[-1] == value.itemsize
            values += [ctypes.c_char.from_address(value.ctypes.data)]
            values += [ctypes.c_int(max(1, value.strides[0] // value.itemsize))]
        elif isinstance(value, str):
            values += [ctypes.c_char(c.encode()) for c in value]
        else:
            values += [real(value) if isinstance(value, float) else ctypes.c_int(value)]
    values += [status] * (name != "trsm")
    _routine(letter + name)(*map(ctypes.byref, values))
    return status.value


def factor(A: AnyArray) -> bool:
    """Overwrite A (m, m) by R with ``A = R^T R``; return False if it is not definite."""
    m, h = len(A), len(A) // 2
    if m <= _WHOLE:
        return m == 0 or _call("potrf", A, "L", m, A) == 0
    first, right, last = A[:h, :h], A[:h, h:], A[h:, h:]
    if not factor(first):
        return False
    over_tiles(m - h, _TILE, lambda a, b: _divide(first, right[:, a:b], "T"))
    over_tiles(m - h, _TILE, lambda a, b: _subtract(last, a, b, right[:, a:b].T, right))
    return factor(last)


def invert(R: AnyArray) -> bool:
    """Overwrite the factor R (m, m) of A by ``A^-1``; return False if R is singular.

    Below the diagonal the entries have no meaning afterwards.
    The factor ``[[P, S], [0, Q]]`` of halves has ``T = P^-1 S`` and ``B = (Q^T Q)^-1``, and the
    inverse is ``[[(P^T P)^-1 + T B T^T, -T B], [., B]]``.
    """
    m, h = len(R), len(R) // 2
    if m <= _WHOLE:
        return m == 0 or _call("potri", R, "L", m, R) == 0
    first, right, last = R[:h, :h], R[:h, h:], R[h:, h:]
    over_tiles(m - h, _TILE, lambda a, b: _divide(first, right[:, a:b], "N"))
    if not (invert(first) and invert(last)):
        return False
    T, B = right.copy(), mirrored(last)

    def update(a: int, b: int) -> None:
        np.matmul(-T[a:b], B, out=right[a:b])
        _subtract(first, a, b, right[a:b], T.T)

    over_tiles(h, _TILE, update)
    return True


def mirrored(A: AnyArray) -> AnyArray:
    """Return A (m, m) with its upper triangle below the diagonal too."""
    for a in range(0, len(A), _TILE):
        b = a + _TILE
        A[b:, a:b] = A[a:b, b:].T
        corner = A[a:b, a:b]
        np.copyto(corner, corner.T.copy(), where=np.tri(len(corner), k=-1, dtype=bool))
    return A


def _divide(R: AnyArray, B: AnyArray, letter: str) -> None:
    """Overwrite B (m, k) by ``R^-T B`` or, if the letter is N, by ``R^-1 B``; R is (m, m)."""
    _call("trsm", R, "RL" + letter + "N", B.shape[1], len(B), 1.0, R, B)


def _subtract(A: AnyArray, a: int, b: int, left: AnyArray, right: AnyArray) -> None:
    """Subtract ``left @ right`` (b - a, m) from rows a to b of the upper triangle of A."""
    A[a:b, b:] -= left @ right[:, b:]
    corner = A[a:b, a:b]
    product = left @ right[:, a:b]
    np.subtract(corner, product, out=corner, where=_UPPER[: b - a, : b - a])


def solve(R: AnyArray, B: AnyArray) -> AnyArray:
    """Return ``A^-1 B`` (m, k) for the factor R (m, m) of A, in the precision of R."""
    m, X = len(R), np.array(B.T, R.dtype, order="C", ndmin=2)
    _call("potrs", R, "L", m, len(X), R, X)
    return X.T
