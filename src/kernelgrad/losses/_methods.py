"""Losses that are known by their methods only, for compiled loops.

Such a loss has no code in the table. :func:`lend` gives it one from `FIRST` up, and where a
compiled loop meets such a code it calls back into Python, a row at a time: some 10 microseconds
each, instead of nanoseconds. The functions that are called back stand under a name
in the linker's table, so that compiled loops can be kept on disk.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import types

from kernelgrad._typing import Float64Array

FIRST = 1000

_LENT: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_next = itertools.count(FIRST)


def lend(loss: Any) -> int:
    """Return a code for a loss without one, in this process and as long as it lives."""
    for code, other in _LENT.items():
        if other is loss:
            return code
    code = next(_next)
    _LENT[code] = loss
    return code


def _rows(C: int, *addresses: int) -> list[Float64Array]:
    pointer = ctypes.POINTER(ctypes.c_double)
    return [np.ctypeslib.as_array(ctypes.cast(at, pointer), (1, C)) for at in addresses]


def _slopes(code: int, C: int, y: int, f: int, out: int) -> None:
    targets, predictions, slopes = _rows(C, y, f, out)
    slopes[:] = np.nan  # where the method fails; its error is printed
    slopes[:] = _LENT[code].gradient(targets, predictions)


def _value(code: int, C: int, y: int, f: int) -> float:
    targets, predictions = _rows(C, y, f)
    return float(_LENT[code].value(targets, predictions)[0])


_kept: list[Any] = []  # functions that are called back must live


def _external(name: str, function: Callable[..., Any], result: Any, n_arrays: int) -> Any:
    """Return `function` as compiled code calls it: code, number of outputs, addresses."""
    kinds = {types.void: None, types.float64: ctypes.c_double}
    arguments = [ctypes.c_int64] * 2 + [ctypes.c_void_p] * n_arrays
    _kept.append(ctypes.CFUNCTYPE(kinds[result], *arguments)(function))
    llvm.add_symbol(name, ctypes.cast(_kept[-1], ctypes.c_void_p).value)
    signature = result(types.int64, types.int64, *[types.voidptr] * n_arrays)
    return types.ExternalFunction(name, signature)


slopes_by_method = _external("kernelgrad_slopes_of_row", _slopes, types.void, 3)
value_by_method = _external("kernelgrad_value_of_row", _value, types.float64, 2)
