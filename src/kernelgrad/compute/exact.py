r"""Tiles of exact kernels: ``h(acc_k t(a_k, b_k))`` for all pairs of rows a, b.

A *form* says how the columns of two rows add up, a *finish* what becomes of the result.

========  ==================================================  ====  ==================
form      accumulated over columns                            zero  sparse rows
========  ==================================================  ====  ==================
DOT       ``sum a b``                                         yes   by non-zeros
CHI2      ``sum 2 a b / (a + b)``                             yes   by non-zeros
LEAST     ``sum min(a, b)``, for ``a, b >= 0``                yes   by non-zeros
SHANNON   ``sum (a log2((a+b)/a) + b log2((a+b)/b)) / 2``     yes   by non-zeros
ABSOLUTE  ``sum |a - b|``                                     no    by used columns
ROOTS     ``sum sqrt(a + b)``                                 no    by used columns
LORENTZ   ``prod 1 + (a - b)^2``                              no    by used columns
SUMS      ``prod 1 + (a + b)``                                no    by used columns
COSH      ``prod 1 + (a - b)^2 / (2 (1 + a) (1 + b))``        no    by used columns
========  ==================================================  ====  ==================

"zero" says that a column counts nothing where either entry is 0; in all forms it counts nothing
where both are. Parameters of kernels are factors of the rows, so no form has any.

Columns are accumulated strictly one after another, by fused multiply-adds where there is a
product, and tiles are filled up with zeros. So the bits of an entry depend on its two rows
alone: not on the other rows, their number, the tile, nor, but for what a zero column cannot
change, on whether rows are dense or CSR. A BLAS changes its kernel, and with it the rounding,
with the size of a product (measured: wherever a tail of a tile is small), so none is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from kernelgrad._typing import AnyArray, Float32Array, Float64Array, IntArray, Matrix

DOT, CHI2, LEAST, SHANNON, ABSOLUTE, ROOTS, LORENTZ, SUMS, COSH = range(9)
RAW, EXP, EXP_MINUS, INVERSE, POWER, POLE, SERIES, MATERN1, MATERN3, MATERN5, ARC1, ARC2 = (
    range(12)
)

W = 512  # columns of a tile: a constant, so that compiled loops see that its rows are apart
DEPTH = 256  # input columns of a panel: 512 KiB in float32, in the second cache
_PANEL = 64  # rows of a panel of sparse rows
_CHUNK = 32  # sparse rows made dense at once against such a panel
_DISTANCES = (EXP_MINUS, MATERN1, MATERN3, MATERN5)

_f = np.float32
_FAST = {"contract", "nsz", "arcp"}
_LOG2E, _LN2_HIGH, _LN2_LOW = _f(1.4426950408889634), _f(0.693359375), _f(-2.12194440e-4)
_LOWEST, _HIGHEST = _f(-126), _f(127)
