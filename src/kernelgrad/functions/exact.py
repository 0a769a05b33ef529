"""Exact kernel values of unscaled rows: blocks, cached rows, and sums over support rows."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.linalg import untouched
from kernelgrad.compute.threads import (
    over_tiles,
    parallel_for,
    parallel_map,
    single_threaded_blas,
)
from kernelgrad.files.records import Record
from kernelgrad.functions.scaling import InputScaling, ScaledKernel, restored_kernel
from kernelgrad.kernels import ExactRows, Kernel
from kernelgrad.kernels.tiles import ALIKE
from kernelgrad.registry import room
from kernelgrad.types import AnyArray, Float32Array, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad.validation import check_bool

COLUMN_TILE = 1024  # columns of a block computed by one task
GEMV_OUTPUTS = 4  # up to here products with single columns are faster than with all
CACHE_TILE = 4096  # columns of cached rows computed by one task
# Kernel values of a prediction, and of a block of a fit, from which compiled loops are worth
# the time to load them, or to compile them once per machine
PREDICT_COMPILED, FIT_COMPILED = 2**27, 2**24
GRAM_TILE = 256  # rows and columns of a tile of a symmetric matrix, which stays in the cache
PREDICT_TILE = 512  # rows and support rows of a prediction tile: 1 MiB of float32
PREPARE_ROWS = 8192
# Penalty, in units of the mean of k(x, x) over the root of the number of rows, with which
# float32 values raise the objective of a fit by up to 1e-5 of itself; with smaller penalties by
# the inverse square.
SMALL_ALPHA = 6e-5
_CSR = ("data", "indices", "indptr")
# Bytes of cached kernel rows unless a memory limit is given. Touching new memory may take as
# long as a kernel value of some 200 columns, so only expensive values deserve a larger cache.
CHEAP_CACHE, MOST_CACHE, CACHE_PART = 2**30, 4 * 2**30, 6
DEAR_COLUMNS = 256
# Rows of at least that many columns, or all rows, are cached in groups of so many, because a
# product of ALIKE rows takes twice the time of each. The last bits of such a row depend on the
# rows that are loaded with it.
_GROUP_ROWS = 64


def small_alpha(diagonal: FloatArray) -> float:
    """Return the penalty below which a fit to rows with these k(x, x) needs float64 values."""
    return float(SMALL_ALPHA / np.sqrt(max(1, len(diagonal))) * diagonal.mean())


class ExactKernel(ScaledKernel):
    r"""Exact values ``k(x, z)`` of a resolved kernel for unscaled rows.

    It is the counterpart of :class:`~kernelgrad.functions.FeatureStream` for functions that are
    expansions in kernel values instead of random features.

    Parameters
    ----------
    kernel, n_features_in, scaling
        As for :class:`~kernelgrad.functions.scaling.ScaledKernel`.
    wide : bool, default=False
        Whether to keep rows in float64, for rows so far from their centre, relative to the
        bandwidth, that float32 would suffer cancellation. Kernel values are float32 anyway.
    precise : bool, default=False
        Whether to keep rows and kernel values in float64.
    """

    def __init__(
        self, kernel: Kernel, n_features_in: int, scaling: InputScaling | None = None, *,
        wide: bool = False, precise: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(kernel, n_features_in, scaling)
        self.wide = wide or precise
        self.precise = precise

    def prepare(self, X: Matrix, ids: IntArray | None = None, *, first: int = 0) -> ExactRows:
        """Return rows scaled, checked and embedded; `ids` are columns of a precomputed matrix.

        `first` is the number of the first row, for messages.
        """

        def part(start: int) -> ExactRows:  # keeps work arrays small
            scaled = self.scaled(X[start : start + PREPARE_ROWS], first=first + start)
            return self.kernel.exact_rows(scaled, wide=self.wide)

        with single_threaded_blas():
            starts = range(0, max(1, X.shape[0]), PREPARE_ROWS)
            rows = join_rows(parallel_map(part, starts))
        return rows if ids is None else replace(rows, ids=ids)

    def _moved(self, device: Any) -> Any:
        return room("device").KernelTiles(device, self.kernel)

    @property
    def on_device(self) -> Any:
        """The kernel on the device; None for the CPU, which always computes float64 values."""
        return None if self.precise else super().on_device

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """The precision of kernel values, unless another is asked for."""
        return np.float64 if self.precise else np.float32

    def values(
        self, A: ExactRows, B: ExactRows, *, wide: bool = False,
        out: AnyArray | None = None, compiled: bool = False,
    ) -> AnyArray:  # fmt: skip
        """Return ``k(A, B)``, shape (n_A, n_B), in one thread; in float64 if `wide`.

        The last bits depend on which rows are multiplied together. The result is written to
        `out`, float32 or float64, if given. Use `compiled` loops for many values.
        """
        dtype = np.float64 if wide else self.dtype
        K = self.kernel.values(A, B, dtype, out=out, compiled=compiled)
        if out is None or K is out:
            return K
        out[:] = K
        return out

    def products(
        self, A: ExactRows, B: ExactRows, coef: Float64Array, *, wide: bool = False,
        compiled: bool = False,
    ) -> Float64Array:  # fmt: skip
        """Return ``k(A, B) coef``, (n_A, C), in tiles, without keeping ``k(A, B)``.

        Kernel values are as those of :meth:`values`; sums are float64 anyway.
        """
        out = np.zeros((A.n_rows, coef.shape[1]))
        if self.on_device is not None:
            self.on_device.add_product(A, B, coef, out, wide=wide)
            return out
        if A.n_rows == 1:  # without tiles, which take longer than its values
            K = np.empty((1, B.n_rows))
            with single_threaded_blas():
                self.values(A, B, wide=wide, out=K, compiled=compiled)
                _add_sums(K, coef, out)
            return out
        width = max(PREDICT_TILE, PREDICT_TILE**2 // max(1, A.n_rows))
        tiles = [slice(b, b + width) for b in range(0, B.n_rows, width)]
        parts = [(B.take(t), coef[t]) for t in tiles]

        def task(a: int, z: int) -> None:
            rows, buffer = A.take(slice(a, z)), np.empty((z - a, min(width, B.n_rows)))
            for part, weights in parts:
                K = buffer[:, : len(weights)]
                self.values(rows, part, wide=wide, out=K, compiled=compiled)
                _add_sums(K, weights, out[a:z])

        with single_threaded_blas():
            over_tiles(A.n_rows, PREDICT_TILE, task)
        return out

    def matrix(self, A: ExactRows, B: ExactRows) -> Float32Array:
        """Return ``k(A, B)``, shape (n_A, n_B), with columns distributed over the threads."""
        out = np.empty((A.n_rows, B.n_rows), np.float32)

        def task(i: int) -> None:
            columns = slice(i * COLUMN_TILE, (i + 1) * COLUMN_TILE)
            self.values(A, B.take(columns), out=out[:, columns])

        with single_threaded_blas():
            parallel_for(-(-B.n_rows // COLUMN_TILE), task)
        return out

    def is_small(self, alpha: float, rows: ExactRows) -> bool:
        """Whether the penalty is so small that a fit to the rows needs float64 values."""
        return alpha < small_alpha(self.kernel.exact_diag(rows))

    def describe(self) -> dict[str, Any]:
        precise = {"precise": True} if self.precise else {}
        return super().describe() | {"wide": self.wide} | precise

    @classmethod
    def restore(cls, record: Record, scaling: Record | None = None) -> Self:
        """Return the kernel from the results of :meth:`describe` and ``scaling.arrays()``."""
        wide, precise = (record.take(name, check_bool, False) for name in ("wide", "precise"))
        return cls(*restored_kernel(record, scaling), wide=wide, precise=precise)

    def restore_rows(self, record: Record) -> ExactRows:
        """Return the S support rows from the arrays of :func:`rows_to_arrays`."""
        d = self.scaling.width(self.n_features_in)
        like = [
            self.kernel.exact_rows(X, wide=self.wide)
            for X in (np.zeros((1, d)), sp.csr_matrix((1, d)))
        ]
        rows = _restored_rows(record, "rows", *like)
        if self.kernel.name == "precomputed" and not (
            rows.ids is not None and (rows.ids < self.n_features_in).all()
        ):
            raise record.error("holds rows that are no columns of a kernel matrix")
        return rows


class KernelRows:
    """Rows ``k(x_i, X)`` of a kernel matrix in a cache of the most recently used ones.

    Parameters
    ----------
    exact : ExactKernel
        The kernel.
    rows : ExactRows
        The n rows X.
    cache_bytes : int
        Size of the cache; a row takes 4 n bytes, or 8 n of float64. Memory is touched only when
        it is needed. The size does not change results.

    Attributes
    ----------
    n_evaluations : int
        Number of kernel values of cached rows computed so far.
    buffer : float32 or float64 array (slots, n)
        The cached rows; valid until the next load.
    wide : bool
        Whether they are float64.
    """

    wide = False

    def __init__(self, exact: ExactKernel, rows: ExactRows, cache_bytes: int) -> None:
        self.exact = exact
        self.rows, self._n = rows, rows.n_rows
        self.n_evaluations = 0
        self._bytes = int(cache_bytes)
        self._clear()

    def _clear(self, least: int = 1) -> None:
        row_bytes = (8 if self.wide else 4) * max(1, self._n)
        n_slots = max(least, min(self._n, self._bytes // row_bytes))
        self.buffer = untouched(n_slots, self._n, wide=self.wide)
        # slots of rows, the least recently used first
        self._slot: OrderedDict[int, int] = OrderedDict()

    def widen(self, wide: bool) -> bool:
        """Keep rows in float64 or float32 from now on; return whether this is a change."""
        if wide == self.wide:
            return False
        self.wide = wide
        self._clear()
        return True

    def load(self, index: IntArray) -> IntArray:
        """Cache these rows, all distinct; return their slots, valid until the next call."""
        wanted = index.tolist()
        if len(wanted) > len(self.buffer):
            self._clear(len(wanted))
        missing = [i for i in wanted if i not in self._slot]
        for i in wanted:
            if i in self._slot:
                self._slot.move_to_end(i)
        for i in missing:
            used = len(self._slot)
            full = used == len(self.buffer)
            # the requested rows were moved to the end, so none of them is evicted
            self._slot[i] = self._slot.popitem(last=False)[1] if full else used
        if missing:
            self._compute(np.array(missing), np.array([self._slot[i] for i in missing]))
        return np.array([self._slot[i] for i in wanted], np.intp)

    def _compute(self, index: IntArray, slots: IntArray) -> None:
        n = self._n
        compiled = n**2 >= FIT_COMPILED
        # a resumed fit may load a block of dual ascent, 128 rows, in parts
        whole = len(index) == n > 2 * _GROUP_ROWS
        dear = self.exact.n_features_in >= DEAR_COLUMNS
        step = _GROUP_ROWS if whole or dear else ALIKE
        parts = [slice(a, a + step) for a in range(0, len(index), step)]
        groups = [np.resize(index[part], max(2, len(index[part]))) for part in parts]
        taken = [self.rows.take(group) for group in groups]  # one row twice, for its bits

        def task(j: int) -> None:
            columns = slice(j * CACHE_TILE, (j + 1) * CACHE_TILE)
            tile = self.rows.take(columns)
            for part, rows in zip(parts, taken, strict=True):
                values = self.exact.values(rows, tile, wide=self.wide, compiled=compiled)
                self.buffer[slots[part], columns] = values[: len(slots[part])]

        with single_threaded_blas():
            parallel_for(-(-n // CACHE_TILE), task)
        self.n_evaluations += len(index) * n


def _add_sums(K: AnyArray, coef: Float64Array, out: Float64Array) -> None:
    """Add ``K coef`` to `out`; callers check the sums."""
    with np.errstate(over="ignore", invalid="ignore"):
        if coef.shape[1] > GEMV_OUTPUTS:
            out += K @ coef
            return
        for c, column in enumerate(coef.T):
            out[:, c] += K @ column


def join_rows(parts: Sequence[ExactRows]) -> ExactRows:
    """Return the concatenated rows of `parts`."""
    if len(parts) == 1:
        return parts[0]
    joined = ExactRows(*(_join([getattr(p, f.name) for p in parts]) for f in fields(ExactRows)))
    return joined.in_columns()


def _join(pieces: list[Any]) -> Any:
    if any(p is None for p in pieces):
        return None
    first = pieces[0]
    if any(sp.issparse(p) for p in pieces):  # batches of one source may differ in density
        return sp.vstack([sp.csr_matrix(p) for p in pieces], format="csr")
    if isinstance(first, ExactRows):
        return join_rows(pieces)
    if isinstance(first, tuple):
        return tuple(_join(list(column)) for column in zip(*pieces, strict=True))
    return np.concatenate(pieces)


def rows_to_arrays(rows: ExactRows, name: str = "rows") -> dict[str, AnyArray]:
    """Return prepared rows as named arrays, for files."""
    values = rows.values
    if sp.issparse(values):
        arrays = {f"{name}.{part}": getattr(values, part) for part in _CSR}
        arrays[f"{name}.shape"] = np.array(values.shape)
    else:
        arrays = {name: np.ascontiguousarray(values)}
    for part in ("square", "ids"):
        a = getattr(rows, part)
        if a is not None:
            arrays[f"{name}.{part}"] = a
    for i, rows_of_part in enumerate(rows.parts):
        arrays |= rows_to_arrays(rows_of_part, f"{name}.{i}")
    return arrays


def _restored_rows(record: Record, name: str, dense: ExactRows, sparse: ExactRows) -> ExactRows:
    """Return rows from the arrays of :func:`rows_to_arrays`.

    They must have the form that the kernel gives to dense or to sparse rows.
    """
    like = sparse if f"{name}.shape" in record.arrays else dense
    d = like.values.shape[1]
    if like is sparse:
        n, width = record.array(f"{name}.shape", 2, kinds="i", least=0).tolist()
        values = record.csr(f"{name}.", "S", d)
        if (n, width) != values.shape or not sp.issparse(like.values):
            raise record.error(f"holds rows {name!r} of other columns than the kernel's")
    else:
        stored = record.arrays.get(name)  # None for a precomputed kernel, which needs only ids
        compact = stored is not None and stored.shape[1:] == (0,)
        values = record.array(name, "S", 0 if compact else d)
    if values.dtype != like.values.dtype:
        raise record.error(f"holds rows {name!r} of dtype {values.dtype}")
    square = None
    if like.square is not None:
        square = record.array(f"{name}.square", "S", least=0.0).astype(np.float64, copy=False)
    ids = record.array(f"{name}.ids", "S", kinds="i", least=0, optional=True)
    pairs = zip(dense.parts, sparse.parts, strict=True)
    parts = [_restored_rows(record, f"{name}.{i}", *pair) for i, pair in enumerate(pairs)]
    return ExactRows(values, square, ids, tuple(parts))
