"""Blocks of coordinates for descent on all rows: training rows, or random features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from kernelgrad._typing import Float32Array, Float64Array, IntArray, Matrix
from kernelgrad.compute.threads import parallel_for
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.features import FeatureStream
from kernelgrad.kernels import ExactRows

TILE = 2048  # rows that one task takes
_SUB = 256  # rows of a tile whose kernel values stay in the second cache
_PARTS = 64  # partial sums of a product over all rows
_JUST_USED = 1e-12  # factor of the weights of the rows of the last block


class BlockMatrix:
    """The n x M values of a block on all rows: kept in `buffer`, or made anew when needed.

    Tiles are the same either way, so what is kept changes no bit.

    Parameters
    ----------
    n, width : int
    tile : callable
        Returns the values of a slice of rows, (t, M) float32, in one thread; in its second
        argument if that is not None.
    buffer : float32 array or None
        Of at least n M entries.
    """

    def __init__(
        self,
        n: int,
        width: int,
        tile: Callable[[slice, Float32Array | None], Float32Array],
        buffer: Float32Array | None,
    ) -> None:
        self.n, self.width, self._tile = n, width, tile
        self._kept = None if buffer is None else buffer[: n * width].reshape(n, width)
        self._filled = False
        self.n_tiles_made = 0

    def _values(self, rows: slice) -> Float32Array:
        if self._kept is None:
            return self._tile(rows, None)
        if not self._filled:
            self._tile(rows, self._kept[rows])
        return self._kept[rows]

    def product(self, R: Float32Array) -> Float64Array:
        """Return ``R K`` for R (C, n), shape (C, M), summed in float64 over tiles in order."""
        chunk = TILE * max(1, -(-self.n // (_PARTS * TILE)))
        parts = np.zeros((-(-self.n // chunk), len(R), self.width))

        def task(i: int) -> None:
            for a in range(i * chunk, min(self.n, (i + 1) * chunk), TILE):
                rows = slice(a, min(self.n, a + TILE))
                parts[i] += R[:, rows] @ self._values(rows)

        parallel_for(len(parts), task)
        self._passed()
        total: Float64Array = parts.sum(axis=0)
        return total

    def responses(self, V: Float32Array, out: Float32Array) -> None:
        """Write ``V K^T`` for V (C, M) to `out` (C, n)."""

        def task(i: int) -> None:
            rows = slice(i * TILE, min(self.n, (i + 1) * TILE))
            out[:, rows] = V @ self._values(rows).T

        parallel_for(-(-self.n // TILE), task)
        self._passed()

    def _passed(self) -> None:
        if self._kept is None or not self._filled:
            self.n_tiles_made += 1
        self._filled = True


class Block(ABC):
    """One block: M coordinates, their values on rows, and their inner products.

    Attributes
    ----------
    width : int
        M.
    gram : float32 array (M, M) or None
        Inner products of the coordinates; None is the identity.
    """

    width: int
    gram: Float32Array | None

    @abstractmethod
    def matrix(self, buffer: Float32Array | None) -> BlockMatrix:
        """Return the values on all rows, kept in `buffer` if there is one."""

    @abstractmethod
    def sample(self, rows: IntArray) -> Float32Array:
        """Return the values on some rows, (m, M)."""

    @abstractmethod
    def pick(self, values: Float32Array, coef: Float64Array) -> Float64Array:
        """Return the inner products of the coordinates with a function, (C, M).

        The function has responses `values` (C, n), without constant, and coefficients `coef`.
        """

    @abstractmethod
    def add(self, coef: Float64Array, move: Float64Array) -> None:
        """Add `move` (C, M) to the coefficients of the block."""

    @abstractmethod
    def products(self, rows: Any, coef: Float64Array) -> Float64Array:
        """Return ``coef K^T`` on other prepared rows, (k, n) for coef (k, M)."""


class Blocks(ABC):
    """A source of blocks for one set of rows.

    Attributes
    ----------
    n : int
        Rows.
    max_width : int
        Coordinates in a block.
    n_blocks : int
        Blocks that hold all coordinates once.
    """

    n: int
    max_width: int
    n_blocks: int

    @abstractmethod
    def new_coef(self, n_outputs: int) -> Float64Array:
        """Return the coefficients of the zero function."""

    @abstractmethod
    def draw(self, number: int, weight: Float64Array | None, rng: np.random.Generator) -> Block:
        """Return block `number`; rows of large `weight` (n,) come first. None is uniform."""

    @abstractmethod
    def inner(self, a: Float64Array, b: Float64Array, values: Float32Array) -> Float64Array:
        """Return the inner product of two functions, output by output, shape (C,).

        `a` and `b` are coefficients; `values` (C, n) are the responses of the second function.
        """


class SupportBlock(Block):
    """Training rows ``x_i, i in index`` as centres: coordinates ``k(x_i, .)``."""

    def __init__(self, exact: ExactKernel, rows: ExactRows, index: IntArray) -> None:
        self.index, self.width = index, len(index)
        self._exact, self._rows = exact, rows
        self.centres = rows.take(index)
        self.gram = self._sub_tiles(self.centres)

    def _tile(self, rows: ExactRows, out: Float32Array | None) -> Float32Array:
        if out is None:
            out = np.empty((rows.n_rows, self.width), np.float32)
        for a in range(0, rows.n_rows, _SUB):
            part = slice(a, a + _SUB)
            out[part] = self._exact.fast_block(rows.take(part), self.centres)
        return out

    def _sub_tiles(self, rows: ExactRows) -> Float32Array:
        out = np.empty((rows.n_rows, self.width), np.float32)

        def task(i: int) -> None:
            part = slice(i * _SUB, (i + 1) * _SUB)
            out[part] = self._exact.fast_block(rows.take(part), self.centres)

        parallel_for(-(-rows.n_rows // _SUB), task)
        return out

    def matrix(self, buffer: Float32Array | None) -> BlockMatrix:
        """Return ``k(X, Z)``."""
        return BlockMatrix(
            self._rows.n_rows,
            self.width,
            lambda rows, out: self._tile(self._rows.take(rows), out),
            buffer,
        )

    def sample(self, rows: IntArray) -> Float32Array:
        """Return ``k(X_rows, Z)``."""
        return self._sub_tiles(self._rows.take(rows))

    def pick(self, values: Float32Array, coef: Float64Array) -> Float64Array:
        """Return ``f(x_i)``: by the reproducing property the inner products."""
        return values[:, self.index].astype(np.float64)

    def add(self, coef: Float64Array, move: Float64Array) -> None:
        """Add to the coefficients (C, n) of the centres."""
        coef[:, self.index] += move

    def products(self, rows: Any, coef: Float64Array) -> Float64Array:
        """Return ``sum_i k(x, x_i) coef_i``, summed in float64."""
        out = np.zeros((rows.n_rows, len(coef)))
        self._exact.add_product(rows, self.centres, np.ascontiguousarray(coef.T), out)
        return out.T


class SupportBlocks(Blocks):
    """Blocks of training rows, drawn in proportion to weights.

    The rows of a block are balanced when it is left and lose their balance as others move.
    Their weight grows back, in as many blocks as hold all rows once.

    Parameters
    ----------
    exact : ExactKernel
    rows : ExactRows
    distinct : bool array (n,)
        False for rows equal to an earlier one: they are no centres.
    width : int
        Centres in a block.

    Attributes
    ----------
    used : int32 array (n,)
        The last block of each row, counted from 1; 0 of a row that has been no centre.
    """

    def __init__(
        self, exact: ExactKernel, rows: ExactRows, distinct: IntArray, width: int
    ) -> None:
        self.n = rows.n_rows
        self.exact, self.rows = exact, rows
        self.candidates = np.flatnonzero(distinct)
        self.used: IntArray = np.zeros(self.n, np.int32)
        self.max_width = min(width, len(self.candidates))
        self.n_blocks = -(-len(self.candidates) // self.max_width)

    def new_coef(self, n_outputs: int) -> Float64Array:
        """Return zeros (C, n)."""
        return np.zeros((n_outputs, self.n))

    def draw(
        self, number: int, weight: Float64Array | None, rng: np.random.Generator
    ) -> SupportBlock:
        """Return the rows with the largest Gumbel keys, a draw without replacement."""
        among, M = self.candidates, self.max_width
        if len(among) == M:
            index = among
        else:
            w = np.ones(len(among)) if weight is None else weight[among].astype(np.float64)
            top = float(w.max(initial=0.0))
            w = w / top if np.isfinite(top) and top > 0 else np.ones(len(among))
            last = self.used[among]
            rest = np.clip((number - last) / self.n_blocks, _JUST_USED, 1.0)
            w = np.maximum(w, 1e-100) * np.where(last > 0, rest, 1.0)
            u = rng.random(len(among))
            key = np.log(w) - np.log(-np.log(np.maximum(u, 1e-300)))
            index = np.sort(among[np.argpartition(-key, M - 1)[:M]])
        return SupportBlock(self.exact, self.rows, index)

    def inner(self, a: Float64Array, b: Float64Array, values: Float32Array) -> Float64Array:
        """Return ``sum_i a_i g(x_i)`` for the function g of responses `values`."""
        return np.asarray(np.einsum("cn,cn->c", a, values, dtype=np.float64))


class FeatureBlock(Block):
    """One of J blocks of random features, ``phi_j / sqrt(J)``: orthonormal coordinates."""

    def __init__(self, number: int, n_blocks: int, stream: FeatureStream, rows: Matrix) -> None:
        self.number, self.width = number, stream.width
        self._scale = np.float32(1.0 / np.sqrt(n_blocks))
        self._stream, self._rows = stream, rows
        self.gram = None

    def _values(self, rows: Matrix) -> Float32Array:
        values = self._stream.transform(rows, self.number)
        values *= self._scale
        return values

    def _tile(self, rows: slice, out: Float32Array | None) -> Float32Array:
        values = self._values(self._rows[rows])
        if out is None:
            return values
        out[:] = values
        return out

    def matrix(self, buffer: Float32Array | None) -> BlockMatrix:
        """Return ``phi_j(X) / sqrt(J)``."""
        return BlockMatrix(self._rows.shape[0], self.width, self._tile, buffer)

    def sample(self, rows: IntArray) -> Float32Array:
        """Return ``phi_j(X_rows) / sqrt(J)``."""
        return self._values(self._rows[rows])

    def pick(self, values: Float32Array, coef: Float64Array) -> Float64Array:
        """Return the block's own coefficients."""
        return coef[:, self.number]

    def add(self, coef: Float64Array, move: Float64Array) -> None:
        """Add to the coefficients (C, J, M) of the block."""
        coef[:, self.number] += move

    def products(self, rows: Any, coef: Float64Array) -> Float64Array:
        """Return the sum over features."""
        out = np.empty((len(coef), rows.shape[0]))
        for a in range(0, rows.shape[0], TILE):
            part = self._values(rows[a : a + TILE])
            out[:, a : a + TILE] = (part @ coef.T.astype(np.float32)).T
        return out


class FeatureBlocks(Blocks):
    """J blocks of random features, taken in turn.

    Together they stand for the kernel ``sum_j phi_j . phi_j / J``, the mean of the estimates of
    all blocks: the objective is one and the same from the first step on.
    """

    def __init__(self, stream: FeatureStream, rows: Matrix, n_blocks: int) -> None:
        self.n = rows.shape[0]
        self.stream, self.rows = stream, rows
        self.max_width, self.n_blocks = stream.width, n_blocks

    def new_coef(self, n_outputs: int) -> Float64Array:
        """Return zeros (C, J, M)."""
        return np.zeros((n_outputs, self.n_blocks, self.max_width))

    def draw(
        self, number: int, weight: Float64Array | None, rng: np.random.Generator
    ) -> FeatureBlock:
        """Return block ``number mod J``."""
        return FeatureBlock(number % self.n_blocks, self.n_blocks, self.stream, self.rows)

    def inner(self, a: Float64Array, b: Float64Array, values: Float32Array) -> Float64Array:
        """Return the sum of products of coefficients."""
        return np.asarray(np.einsum("cjm,cjm->c", a, b))
