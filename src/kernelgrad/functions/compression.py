"""The same function of fewer support rows."""

from bisect import bisect_left
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from kernelgrad.compute.linalg import damped_cholesky, untouched
from kernelgrad.compute.threads import over_tiles, single_threaded_blas
from kernelgrad.functions.exact import FIT_COMPILED, ExactKernel, join_rows
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import ExactRows
from kernelgrad.types import AnyArray, Float64Array, IntArray

MOST_ROWS = 50_000  # rows from which centres come, and on which changes are measured
_TILE = 1024
_LEAST_BLOCK, _MOST_BLOCK = 32, 256  # centres chosen at once: a quarter of those before
_CANDIDATES = 4  # rows for each centre of a block
_SPANNED = 1e-10  # part of k(x, x) outside of the span, from which x is no new centre


class _NewtonBasis:
    """Functions of growing sets of centres, orthonormal in the kernel's space, at some rows.

    Up to `most` of the first `n_candidates` rows, which are ready for float64 values, become
    centres. A function in the space has the values f (n_rows, C).
    """

    def __init__(
        self, exact: ExactKernel, rows: ExactRows, f: Float64Array, n_candidates: int, most: int
    ) -> None:
        self.exact, self.rows, self.most = exact, rows, most
        self.n_candidates = n_candidates
        self.values = untouched(most, rows.n_rows, wide=True)
        self.centres: IntArray = np.empty(0, np.intp)
        self.coef = np.empty((0, f.shape[1]))  # the projection's
        self.residual = f.copy()  # the function minus its projection
        diagonal = exact.kernel.exact_diag(rows)
        self.outside = diagonal.copy()  # squared distances of k(x, .) from the span
        self._least = _SPANNED * diagonal

    def grow(self) -> bool:
        """Add some centres at which the residual is large; return False if there are none."""
        m, n = len(self.centres), self.n_candidates
        size = min(max(_LEAST_BLOCK, min(m // 4, _MOST_BLOCK)), self.most - m)
        usable = self.outside[:n] > self._least[:n]
        score = np.where(usable, (self.residual[:n] ** 2).sum(axis=1), 0.0)
        near = np.argsort(-score, kind="stable")[: _CANDIDATES * size]
        candidates = self.rows.take(near)
        K = self.exact.values(candidates, candidates, wide=True)
        V = self.values[:m, near]
        new, L = self._pivots(K - V.T @ V, near, size)
        if not len(new):
            return False
        coef = solve_triangular(L, self.residual[new], lower=True)
        before, centres = self.values[:m, new].T, self.rows.take(new)
        compiled = len(self.residual) ** 2 >= FIT_COMPILED

        def task(a: int, z: int) -> None:
            tile = self.rows.take(slice(a, z))
            K = self.exact.values(centres, tile, wide=True, compiled=compiled)
            basis = solve_triangular(L, K - before @ self.values[:m, a:z], lower=True)
            self.values[m : m + len(new), a:z] = basis
            self.outside[a:z] -= (basis**2).sum(axis=0)
            self.residual[a:z] -= basis.T @ coef

        over_tiles(len(self.residual), _TILE, task)
        self.outside[new] = 0.0
        self.centres = np.concatenate([self.centres, new])
        self.coef = np.concatenate([self.coef, coef])
        return True

    def _pivots(self, K: Float64Array, rows: IntArray, size: int) -> tuple[IntArray, AnyArray]:
        """Return up to `size` of the rows, and their factor of the residual kernel K."""
        left, f = K.diagonal().copy(), self.residual[rows]
        V = np.zeros((size, len(K)))
        chosen: list[int] = []
        for j in range(size):
            score = np.where(left > self._least[rows], (f**2).sum(axis=1), 0.0)
            p = int(np.argmax(score))
            if not score[p] > 0:
                break
            V[j] = (K[p] - V[:j, p] @ V[:j]) / np.sqrt(left[p])
            f -= np.outer(V[j], f[p] / V[j, p])
            left -= V[j] ** 2
            left[p] = 0.0
            chosen.append(p)
        return rows[chosen], np.tril(V[: len(chosen), chosen].T)


class _Squares:
    """The least-squares coefficients of a basis at the first rows, and the changes at others.

    The change of f at the rows is made small, not its norm, so that a function with spikes at
    the support rows is not followed into each of them.
    """

    def __init__(
        self, basis: _NewtonBasis, f: Float64Array, n_fitted: int, measured: slice
    ) -> None:
        self.basis, self.n_fitted, self.measured, self._f = basis, n_fitted, measured, f
        # Cholesky factor of the products of functions, and what it makes of those with f
        self._factor: Any = untouched(basis.most, basis.most, wide=True)
        self._half = np.empty((basis.most, f.shape[1]))
        self._m = 0

    def update(self) -> None:
        """Take in the new functions of the basis."""
        m, n = self._m, len(self.basis.centres)
        self._m = n
        V = self.basis.values[:n, : self.n_fitted]
        gram = np.empty((n, n - m))

        def task(a: int, z: int) -> None:
            gram[a:z] = V[a:z] @ V[m:].T

        over_tiles(n, _TILE // 4, task)
        cross = gram[:m]
        if m:  # old versions of SciPy refuse a system without equations
            cross = solve_triangular(self._factor[:m, :m], cross, lower=True)
        L = damped_cholesky(gram[m:] - cross.T @ cross)[0]
        self._factor[m:n, :m], self._factor[m:n, m:n] = cross.T, L
        right = V[m:] @ self._f[: self.n_fitted] - cross.T @ self._half[:m]
        self._half[m:n] = solve_triangular(L, right, lower=True)

    def coef(self, m: int) -> Float64Array:
        """Return the coefficients (m, C) of the first m functions."""
        factor = self._factor[:m, :m]
        return np.asarray(solve_triangular(factor, self._half[:m], trans="T", lower=True))

    def change(self, m: int) -> Float64Array:
        """Return f minus the sum of the first m functions at the measured rows."""
        values = self.basis.values[:m, self.measured]
        return np.asarray(self._f[self.measured] - values.T @ self.coef(m))


def compressed(
    function: SupportExpansion, *, max_rows: int, tol: float, usable: float,
    others: ExactRows | None = None,
) -> tuple[SupportExpansion, dict[str, Any]]:  # fmt: skip
    """Return a function of at most `max_rows` of the support rows, and how far it is from f.

    Centres are chosen where the projection of f on the span of those before is worst, among the
    support rows, evenly spread ones if there are very many. Their coefficients have the least
    squared change at the same rows. Centres are added until the root mean square of the change
    there is `tol` times the spread of f. With `others` every other one of these joins the rows
    of the least squares, and the change is measured at the rest. `usable` is the memory in
    bytes.
    """
    exact, n = function.exact, function.n_support
    support = exact.kernel.widened(function.support)
    how = {"wide": True, "compiled": n**2 >= FIT_COMPILED}
    with single_threaded_blas():
        f = exact.products(support, support, function.coef, **how)
        norm2 = np.einsum("nc,nc->c", function.coef, f)
        index = _spread(n)
        rows, f, n_fitted, measured = support.take(index), f[index], len(index), slice(0, None)
        if others is not None:
            order = _spread(others.n_rows)
            order = np.concatenate([order[1::2], order[::2]])
            new = exact.kernel.widened(others.take(order))
            rows = join_rows([rows, new])
            f = np.concatenate([f, exact.products(new, support, function.coef, **how)])
            n_fitted += len(order) // 2
            measured = slice(n_fitted, None)
        most = max(1, min(max_rows, len(index), int(usable / (16 * len(f)))))
        reason = "max_rows" if most == min(max_rows, len(index)) else "memory"
        basis = _NewtonBasis(exact, rows, f, len(index), most)
        squares = _Squares(basis, f, n_fitted, measured)
        spread2 = float(((f[measured] - f[measured].mean(axis=0)) ** 2).sum())

        def near(m: int) -> bool:
            return float((squares.change(m) ** 2).sum()) <= tol**2 * spread2

        m = 0
        while reason != "tol" and m < most:
            if not basis.grow():
                reason = "rounding"
                break
            squares.update()
            before, m = m, len(basis.centres)
            if near(m):
                reason = "tol"
                m = before + 1 + bisect_left(range(before + 1, m), True, key=near)
        coef, change = squares.coef(m), squares.change(m)
        new_coef = solve_triangular(basis.values[:m, basis.centres[:m]], coef)
    centres = function.support.take(index[basis.centres[:m]])
    result = SupportExpansion(exact, centres, new_coef, function.intercept)
    result.compact()
    report = {"rows_before": n, "rows": m, "stopped_by": reason}
    return result, report | _changes(basis, coef, norm2, change, spread2)


def _changes(
    basis: _NewtonBasis, coef: Float64Array, norm2: Float64Array, change: Float64Array,
    spread2: float,
) -> dict[str, Any]:  # fmt: skip
    """Return by how much functions of squared norms `norm2` and coefficients `coef` differ."""
    projected = basis.coef[: len(coef)]
    off = norm2 - (projected**2).sum(axis=0) + ((coef - projected) ** 2).sum(axis=0)
    error = np.sqrt(np.maximum(off, 0.0))
    unit = float(np.sqrt(basis.exact.kernel.exact_diag(basis.rows).max()))
    square = float((change**2).sum())
    return {
        "norm_error": error.tolist(),
        "bound": (unit * error).tolist(),
        "largest_change": float(np.abs(change).max()),
        "mean_square_change": square / change.size,
        "relative_change": float(np.sqrt(square / spread2)) if spread2 > 0 else 0.0,
    }


def _spread(n: int) -> IntArray:
    """Return the numbers of n rows, or of some that are evenly spread."""
    return np.linspace(0, n - 1, min(n, MOST_ROWS)).astype(np.intp)
