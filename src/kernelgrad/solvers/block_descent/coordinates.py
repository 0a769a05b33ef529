"""Blocks of coordinates for descent on all rows: training rows, or random features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from kernelgrad.compute import linalg
from kernelgrad.compute.backend import BlockValues
from kernelgrad.compute.linalg import stacked
from kernelgrad.compute.threads import parallel_for
from kernelgrad.functions.exact import ExactKernel, join_rows
from kernelgrad.functions.features import FeatureStream
from kernelgrad.kernels import ExactRows
from kernelgrad.types import Float32Array, Float64Array, IntArray, Matrix

TILE = 2048  # rows that one task takes
EPSILON = 6e-8  # rounding of float32
_SUB = 256  # rows of a tile whose kernel values stay in the second cache
_PROBES = 64  # centres that tell the rounding of kernel values
PART_BYTES = 2**23 + 2**13  # bytes of kernel values whose squares are summed at once
_PARTS = 64  # partial sums of a product over all rows


class BlockMatrix:
    """The n x M values of a block for all rows, stored in `buffer` or recomputed when needed.

    Tiles are the same either way, so storing them changes no bit. The buffer has at least n M
    entries.
    """

    def __init__(self, block: Block, rows: Any, buffer: Float32Array | None) -> None:
        self._block, self._rows, self.n, M = block, rows, n_rows(rows), block.width
        self._stored = None if buffer is None else buffer[: self.n * M].reshape(self.n, M)
        self._filled = False
        self.n_tiles_made = 0

    def _values(self, part: slice) -> Float32Array:
        if self._stored is None:
            return self._block.tile(take_rows(self._rows, part))
        if not self._filled:
            self._block.tile(take_rows(self._rows, part), self._stored[part])
        return self._stored[part]

    def product(self, R: Float32Array) -> Float64Array:
        """Return ``R K`` for R (C, n), shape (C, M), summed in float64 over tiles in order."""
        chunk = TILE * max(1, -(-self.n // (_PARTS * TILE)))
        parts = np.zeros((-(-self.n // chunk), len(R), self._block.width))

        def task(i: int) -> None:
            for rows in self._tiles(i * chunk, (i + 1) * chunk):
                parts[i] += R[:, rows] @ self._values(rows)

        parallel_for(len(parts), task)
        self._passed()
        return np.asarray(parts.sum(axis=0))

    def responses(self, V: Float32Array, out: Float32Array) -> None:
        """Write ``V K^T`` for V (C, M) to `out` (C, n)."""

        def task(i: int) -> None:
            for rows in self._tiles(i * TILE, (i + 1) * TILE):
                out[:, rows] = (self._values(rows) @ V.T).T

        parallel_for(-(-self.n // TILE), task)
        self._passed()

    def _tiles(self, start: int, stop: int) -> Iterator[slice]:
        """Yield the slices of rows whose values are made, and used, at once."""
        stop, height = min(stop, self.n), self._block.height
        return (slice(a, min(stop, a + height)) for a in range(start, stop, height))

    def _passed(self) -> None:
        if self._stored is None or not self._filled:
            self.n_tiles_made += 1
        self._filled = True


class Block(ABC):
    """One block: M coordinates, their values on rows, and their inner products."""

    number: int  # blocks before this one, counted from the start of the fit
    width: int  # M
    height = TILE  # rows whose values are made at once
    index: IntArray | None = None  # numbers of the rows that are centres, (M,)
    at = slice(None)  # places of features among all coefficients
    gram: Float32Array | None = None  # inner products of the coordinates; None is the identity
    rounding: float = EPSILON  # rounding error of values of a centre on its own row

    @property
    @abstractmethod
    def on_device(self) -> Any:
        """The source of values on a device; None on the CPU."""

    @abstractmethod
    def there(self, rows: Any) -> Any:
        """Return the values on prepared rows, on the device."""

    @abstractmethod
    def tile(self, rows: Any, out: Float32Array | None = None) -> Float32Array:
        """Return the values on some prepared rows, (t, M), in one thread, in `out` if given."""

    @abstractmethod
    def products(self, rows: Any, coef: Float64Array, *, wide: bool = False) -> Float64Array:
        """Return ``coef K^T`` on prepared rows, (k, n) for coef (k, M), summed in float64.

        With `wide` kernel values are float64, so that audits see what rounding does.
        """

    def sample(self, rows: Any) -> Float32Array:
        """Return the values on prepared rows, (m, M), by tiles."""
        if self.on_device is not None:
            values: Float32Array = self.there(rows).all()
            return values
        out = np.empty((n_rows(rows), self.width), np.float32)

        def task(i: int) -> None:
            part = slice(i * _SUB, (i + 1) * _SUB)
            self.tile(take_rows(rows, part), out[part])

        parallel_for(-(-len(out) // _SUB), task)
        return out

    def squares(
        self, rows: Any, root: Float32Array, values: Float32Array | None = None
    ) -> Float64Array:
        """Return the lower triangle of ``P^T P``, ``P = [root K, root]``, summed in float64.

        `root` (m, 1) are factors of the rows, `values` their K (m, M) if they are there.
        """
        if self.on_device is not None:
            squares: Float64Array = self.there(rows).squares(root)
            return squares
        M = self.width
        out, size = np.zeros((M + 1, M + 1)), max(1, PART_BYTES // (8 * (M + 1)))
        for a in range(0, len(root), size):  # so few at a time that they take little room
            part = slice(a, a + size)
            K = self.sample(take_rows(rows, part)) if values is None else values[part]
            both = np.empty((len(K), M + 1))
            np.multiply(K, root[part], out=both[:, :M])
            both[:, M:] = root[part]
            linalg.gram(both, out)
        return out

    def matrix(self, rows: Any, buffer: Float32Array | None) -> BlockValues:
        """Return the values on many prepared rows, kept in `buffer` if there is one."""
        if self.on_device is not None:
            values: BlockValues = self.there(rows)
            return values
        return BlockMatrix(self, rows, buffer)


class SupportBlock(Block):
    """Training rows ``x_i, i in index`` as centres: coordinates ``k(x_i, .)``.

    With `compiled` loops make the values, for many rows.
    """

    height = _SUB

    def __init__(
        self, number: int, exact: ExactKernel, centres: ExactRows, index: IntArray,
        *, compiled: bool = False,
    ) -> None:  # fmt: skip
        self.number, self.index, self.width = number, index, len(index)
        self.exact, self.centres, self._compiled = exact, centres, compiled

    @cached_property
    def gram(self) -> Float32Array:  # type: ignore[override]
        return self.sample(self.centres)

    @cached_property
    def rounding(self) -> float:  # type: ignore[override]
        """The largest rounding error of values at some of the centres.

        Distances in float32 lose more than the values themselves do.
        """
        at = np.linspace(0, self.width - 1, min(self.width, _PROBES)).astype(int)
        rows = self.centres.take(at)
        least = EPSILON * float(self.exact.kernel.exact_diag(rows).max())
        if self.exact.precise or self.exact.kernel.name == "precomputed":
            return least
        wide = self.exact.values(rows, rows, wide=True)
        return max(least, float(np.abs(self.exact.values(rows, rows) - wide).max()))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "gram"}

    @property
    def on_device(self) -> Any:
        return self.exact.on_device

    def there(self, rows: ExactRows) -> Any:
        return self.on_device.matrix(rows, self.centres)

    def tile(self, rows: ExactRows, out: Float32Array | None = None) -> Float32Array:
        out = np.empty((rows.n_rows, self.width), np.float32) if out is None else out
        return self.exact.values(rows, self.centres, out=out, compiled=self._compiled)

    def products(
        self, rows: ExactRows, coef: Float64Array, *, wide: bool = False
    ) -> Float64Array:
        coef = np.ascontiguousarray(coef.T)
        how = {"wide": wide, "compiled": self._compiled}
        return self.exact.products(rows, self.centres, coef, **how).T


class FeatureBlock(Block):
    """One of J blocks of random features, ``phi_j / sqrt(J)``: orthonormal coordinates.

    Together they stand for the kernel ``sum_j phi_j . phi_j / J``, the mean of the estimates of
    all blocks: the objective is one and the same from the first step on.
    """

    def __init__(self, number: int, n_blocks: int, stream: FeatureStream) -> None:
        self.number, self.width = number, stream.width
        self._j = number % n_blocks
        self.at = slice(self._j * self.width, (self._j + 1) * self.width)
        self._scale = np.float32(1.0 / np.sqrt(n_blocks))
        self._stream = stream

    @property
    def on_device(self) -> Any:
        return self._stream.on_device

    def there(self, rows: Matrix) -> Any:
        return self.on_device.matrix(rows, self._j, float(self._scale))

    def tile(self, rows: Matrix, out: Float32Array | None = None) -> Float32Array:
        values = self._stream.transform(rows, self._j)
        values *= self._scale
        if out is None:
            return values
        out[:] = values
        return out

    def products(self, rows: Matrix, coef: Float64Array, *, wide: bool = False) -> Float64Array:
        out = np.empty((len(coef), rows.shape[0]))
        if self.on_device is not None:
            self.there(rows).responses(coef.astype(np.float32), out)
            return out
        for a in range(0, rows.shape[0], TILE):
            out[:, a : a + TILE] = (self.tile(rows[a : a + TILE]) @ coef.T.astype(np.float32)).T
        return out


def take_rows(rows: Any, index: IntArray | slice) -> Any:
    return rows.take(index) if isinstance(rows, ExactRows) else rows[index]


def n_rows(rows: Any) -> int:
    return rows.n_rows if isinstance(rows, ExactRows) else int(rows.shape[0])


def join_prepared(parts: list[Any]) -> Any:
    if isinstance(parts[0], ExactRows):
        return join_rows(parts)
    return stacked(parts)
