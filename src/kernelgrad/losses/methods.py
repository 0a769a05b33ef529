"""Makes losses that are defined by Python methods available to compiled loops.

Such a loss has no code in the table. :func:`lend` assigns it one from `FIRST` upwards, and a
compiled loop that meets such a code calls back into Python for each row, which takes some 10
microseconds instead of nanoseconds. The callbacks are registered under names in the linker's
symbol table, so that compiled loops can be cached on disk.
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

from kernelgrad.types import Float64Array

FIRST = 1000

_LENT: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_next = itertools.count(FIRST)


def lend(loss: Any) -> int:
    """Assign a code to a loss without one, valid in this process while the loss exists."""
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
    slopes[:] = np.nan  # remains if the method raises; its error is printed
    slopes[:] = _LENT[code].gradient(targets, predictions)


def _value(code: int, C: int, y: int, f: int) -> float:
    targets, predictions = _rows(C, y, f)
    return float(_LENT[code].value(targets, predictions)[0])


_callbacks: list[Any] = []  # references that keep the callbacks alive


def _external(name: str, function: Callable[..., Any], result: Any, n_arrays: int) -> Any:
    """Wrap `function` for compiled code: its arguments are a code, a size and addresses."""
    kinds = {types.void: None, types.float64: ctypes.c_double}
    arguments = [ctypes.c_int64] * 2 + [ctypes.c_void_p] * n_arrays
    _callbacks.append(ctypes.CFUNCTYPE(kinds[result], *arguments)(function))
    llvm.add_symbol(name, ctypes.cast(_callbacks[-1], ctypes.c_void_p).value)
    signature = result(types.int64, types.int64, *[types.voidptr] * n_arrays)
    return types.ExternalFunction(name, signature)


slopes_by_method = _external("kernelgrad_slopes_of_row", _slopes, types.void, 3)
value_by_method = _external("kernelgrad_value_of_row", _value, types.float64, 2)
