"""Blocks of training rows as coordinates of descent on all rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from kernelgrad.compute import linalg
from kernelgrad.compute.backend import BlockValues
from kernelgrad.compute.threads import parallel_for
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.kernels import ExactRows
from kernelgrad.types import Float32Array, Float64Array, IntArray

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

    def __init__(self, block: Block, rows: ExactRows, buffer: Float32Array | None) -> None:
        self._block, self._rows, self.n, M = block, rows, rows.n_rows, block.width
        self._stored = None if buffer is None else buffer[: self.n * M].reshape(self.n, M)
        self._filled = False
        self.n_tiles_made = 0

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[slice, Float32Array]]:
        """Yield slices of rows with their values (k, h, M): k tiles of h rows.

        Stored tiles come together: other threads run during their products, which are short.
        """
        stop = min(stop, self.n)
        a, whole, M = start, start, self._block.width
        if self._filled and self._stored is not None:
            whole = start + max(0, stop - start) // _SUB * _SUB
        while a < stop:
            rows = slice(a, whole if a < whole else min(stop, a + _SUB))
            height = _SUB if a < whole else rows.stop - a
            if self._stored is None:
                values = self._block.tile(self._rows.take(rows))
            else:
                values = self._stored[rows]
                if not self._filled:
                    self._block.tile(self._rows.take(rows), values)
            yield rows, values.reshape(-1, height, M)
            a = rows.stop

    def product(self, R: Float32Array) -> Float64Array:
        """Return ``R K`` for R (C, n), shape (C, M), summed in float64 over tiles in order."""
        chunk = TILE * max(1, -(-self.n // (_PARTS * TILE)))
        parts = np.zeros((-(-self.n // chunk), len(R), self._block.width))

        def task(i: int) -> None:
            for rows, K in self._pieces(i * chunk, (i + 1) * chunk):
                for part in R[:, rows].reshape(len(R), *K.shape[:2]).swapaxes(0, 1) @ K:
                    parts[i] += part

        parallel_for(len(parts), task)
        self._passed()
        return np.asarray(parts.sum(axis=0))

    def responses(self, V: Float32Array, out: Float32Array) -> None:
        """Write ``V K^T`` for V (C, M) to `out` (C, n)."""

        def task(i: int) -> None:
            for rows, K in self._pieces(i * TILE, (i + 1) * TILE):
                out[:, rows] = (K @ V.T).reshape(-1, len(V)).T

        parallel_for(-(-self.n // TILE), task)
        self._passed()

    def _passed(self) -> None:
        if self._stored is None or not self._filled:
            self.n_tiles_made += 1
        self._filled = True


class Block:
    """M training rows ``x_i, i in index`` as centres: coordinates ``k(x_i, .)``.

    With `compiled` loops make the values, for many rows. `number` counts the blocks before.
    """

    def __init__(
        self, number: int, exact: ExactKernel, centres: ExactRows, index: IntArray,
        *, compiled: bool = False,
    ) -> None:  # fmt: skip
        self.number, self.index, self.width = number, index, len(index)
        self.exact, self.centres, self._compiled = exact, centres, compiled

    @cached_property
    def gram(self) -> Float32Array:
        """Inner products of the coordinates."""
        return self.sample(self.centres)

    @cached_property
    def rounding(self) -> float:
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
        """The source of values on a device; None on the CPU."""
        return self.exact.on_device

    def there(self, rows: ExactRows) -> Any:
        """Return the values on prepared rows, on the device."""
        return self.on_device.matrix(rows, self.centres)

    def tile(self, rows: ExactRows, out: Float32Array | None = None) -> Float32Array:
        """Return the values on some prepared rows, (t, M), in one thread, in `out` if given."""
        out = np.empty((rows.n_rows, self.width), np.float32) if out is None else out
        return self.exact.values(rows, self.centres, out=out, compiled=self._compiled)

    def products(
        self, rows: ExactRows, coef: Float64Array, *, wide: bool = False
    ) -> Float64Array:
        """Return ``coef K^T`` on prepared rows, (k, n) for coef (k, M), summed in float64.

        With `wide` kernel values are float64, so that audits see what rounding does.
        """
        coef = np.ascontiguousarray(coef.T)
        how = {"wide": wide, "compiled": self._compiled}
        return self.exact.products(rows, self.centres, coef, **how).T

    def sample(self, rows: ExactRows) -> Float32Array:
        """Return the values on prepared rows, (m, M), by tiles."""
        if self.on_device is not None:
            values: Float32Array = self.there(rows).all()
            return values
        out = np.empty((rows.n_rows, self.width), np.float32)

        def task(i: int) -> None:
            part = slice(i * _SUB, (i + 1) * _SUB)
            self.tile(rows.take(part), out[part])

        parallel_for(-(-len(out) // _SUB), task)
        return out

    def squares(
        self, rows: ExactRows, root: Float32Array, values: Float32Array | None = None
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
            K = self.sample(rows.take(part)) if values is None else values[part]
            both = np.empty((len(K), M + 1))
            np.multiply(K, root[part], out=both[:, :M])
            both[:, M:] = root[part]
            linalg.gram(both, out)
        return out

    def matrix(self, rows: ExactRows, buffer: Float32Array | None) -> BlockValues:
        """Return the values on many prepared rows, kept in `buffer` if there is one."""
        if self.on_device is not None:
            values: BlockValues = self.there(rows)
            return values
        return BlockMatrix(self, rows, buffer)
