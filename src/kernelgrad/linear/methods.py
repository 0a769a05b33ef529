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
from functools import cached_property
from typing import Any

import numpy as np

from kernelgrad.compute.compiling import before_loops
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


class _External:
    """A function for loops, whose arguments are a code, a number of outputs and addresses."""

    def __init__(self, name: str, function: Callable[..., Any], result: Any, n_arrays: int):
        kinds = [ctypes.c_int64] * 2 + [ctypes.c_void_p] * n_arrays
        self._callback = ctypes.CFUNCTYPE(result, *kinds)(function)
        self._name, self._n_arrays, self._is_void = name, n_arrays, result is None
        before_loops(self._link)

    def _link(self) -> None:
        from llvmlite import binding

        binding.add_symbol(self._name, ctypes.cast(self._callback, ctypes.c_void_p).value)

    @cached_property
    def _numba_type_(self) -> Any:  # numba asks for it when it compiles a loop
        from numba import types

        result = types.void if self._is_void else types.float64
        signature = result(types.int64, types.int64, *[types.voidptr] * self._n_arrays)
        return types.ExternalFunction(self._name, signature)


slopes_by_method: Any = _External("kernelgrad_slopes_of_row", _slopes, None, 3)
value_by_method: Any = _External("kernelgrad_value_of_row", _value, ctypes.c_double, 2)
