"""Cholesky factors and their uses by LAPACK, during which other threads run.

SciPy's own wrappers of these routines hold the lock of the interpreter, so that two threads
that factor small matrices take as long as one. These call the same library without the lock.
Matrices (m, m) are C-contiguous and of float32 or float64; only their upper triangles are read
and written, which LAPACK sees as lower triangles in its own order.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack

from kernelgrad.types import AnyArray

_LETTERS = {"float32": "s", "float64": "d"}


@cache
def _routine(name: str) -> Any:
    """Return a routine of SciPy's LAPACK; it takes addresses only."""
    python = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
        ("PyCapsule_GetName", python)
    )
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", python)
    )
    capsule = cython_lapack.__pyx_capi__[name]
    return ctypes.CFUNCTYPE(None)(pointer_of(capsule, name_of(capsule)))


def _call(name: str, dtype: Any, *arguments: Any) -> int:
    """Return the status of a routine for the lower triangle, and some sizes and arrays."""
    info = ctypes.c_int(0)
    pointers: list[Any] = []
    for value in arguments:
        if isinstance(value, np.ndarray):
            assert value.flags.c_contiguous
            pointers.append(ctypes.c_void_p(value.ctypes.data))
        else:
            pointers.append(ctypes.byref(ctypes.c_int(value)))
    routine = _routine(_LETTERS[np.dtype(dtype).name] + name)
    routine(ctypes.byref(ctypes.c_char(b"L")), *pointers, ctypes.byref(info))
    return info.value


def factor(A: AnyArray) -> bool:
    """Overwrite A (m, m) by R with ``A = R^T R``; return False if it is not definite."""
    return _call("potrf", A.dtype, len(A), A, max(1, len(A))) == 0


def invert(R: AnyArray) -> bool:
    """Overwrite the factor R (m, m) of A by ``A^-1``; return False if R is singular."""
    return _call("potri", R.dtype, len(R), R, max(1, len(R))) == 0


def solve(R: AnyArray, B: AnyArray) -> AnyArray:
    """Return ``A^-1 B`` (m, k) for the factor R (m, m) of A, in the precision of R."""
    m, X = len(R), np.array(B.T, R.dtype, order="C", ndmin=2)
    _call("potrs", R.dtype, m, len(X), R, max(1, m), X, max(1, m))
    return X.T
