r"""Kernel ridge regression by one Cholesky factorisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from kernelgrad.callbacks import FOREVER, Deadline
from kernelgrad.compute.threads import over_tiles, parallel_for
from kernelgrad.functions.exact import GRAM_TILE, ExactKernel
from kernelgrad.kernels import ExactRows
from kernelgrad.params import parameters
from kernelgrad.solvers import contract, support
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, draws, transient
from kernelgrad.solvers.support import RowsSolver, RowsState, SupportUpdate
from kernelgrad.types import AnyArray, Float64Array
from kernelgrad.validation import DataError

_TAG = 0x646972
PANEL = 256  # columns that are factored at once
_HEIGHT = 512  # rows of a panel that one task updates
_FILL = GRAM_TILE  # rows and columns of a tile that is filled at once, and rows of a product
_MOST_BYTES = 8 * 2**30  # unless a memory limit is given: 32,000 rows
# Rows from which a float32 factor is worth its more iterations: half the time of a float64 one
_SINGLE_ROWS = 2048
# Residual, of the right-hand side: correct no further, by a factor of either precision; the
# solution of a float32 factor; a solution at all
_SETTLED, _SINGLE_SETTLED, _SINGLE_SOLVED, _SOLVED = 1e-13, 1e-11, 1e-9, 1e-6
_ASTRAY = 100.0  # times the least residual: rounding has won
# Rounding moves no eigenvalue of a positive semi-definite matrix by more than eps times its
# trace; kernel values are good to some eps.
_INDEFINITE, _GROWTH = 1e-5, 8.0


@dataclass(kw_only=True)
class DirectState(RowsState):
    alpha: float  # the penalty that `coef` is the exact solution for
    objective: float = np.nan  # of the problem, NaN before the first step
    matrix: SymmetricMatrix | None = transient(released=False)  # where a posterior is wanted


def direct_bytes(n_rows: int, n_outputs: int, row_bytes: float) -> float:
    """Return the bytes that :class:`DirectSolve` needs, including both forms of the rows."""
    return support.matrix_bytes(n_rows, n_outputs, row_bytes, np.float64)


@parameters
class DirectSolve(RowsSolver[DirectState]):
    r"""The exact solution for the squared loss, in one step.

    .. math:: \min_{f, b}\ \frac{1}{\sum_i w_i} \sum_i \frac{w_i}{2} (y_i - f(x_i) - b)^2
              + \frac{\alpha}{2} \|f\|^2

    With weights of mean 1, ``S = diag(sqrt(w))`` and ``f = sum_i c_i k(x_i, .)``, ``c = S u``,

    .. math:: (S K S + \alpha n I)\, u = S (y - b 1), \qquad 1^T c = 0

    where the second equation, which belongs to the unpenalised constant b, is eliminated. One
    factorisation serves all outputs. It preconditions conjugate gradients on these equations in
    float64: some two iterations where the factor is float64 too. Beyond 2,048 rows it is
    float32, which takes half the time, unless the matrix is then indefinite or more than 25
    iterations were needed to a residual of 1e-9. Then b is the mean of ``y - f``.

    ``history_["duality_gap"]`` bounds how far the objective is from its minimum for these
    kernel values: with ``e = alpha c - w (y - f - b) / n``, it is ``e^T K e / (2 alpha)``.

    Kernel values are float32, or float64 where alpha is below ``6e-5 / sqrt(n)`` times the
    mean of ``k(x, x)``: there rounding would raise the objective by more than 1e-5 of itself.
    If the equations are indefinite by rounding, eps / n (1.2e-7 / n, or 2.2e-16 / n) times the
    mean of ``k(x, x)`` is added to alpha, then eight times as much, and so on until they are
    positive definite; ``history_["audit"]["alpha"]`` is the alpha used. The reported objective
    is always that of the given alpha. A matrix that needs more than ``1e-5`` of its trace
    raises an error.

    Notes
    -----
    The solution takes ``8 n^2`` bytes and ``n^3 / 3`` operations; further outputs cost next to
    nothing. A matrix beyond the memory limit, 8 GiB without one, raises an error.

    References
    ----------
    Saunders, Gammerman and Vovk (1998), "Ridge Regression Learning Algorithm in Dual
    Variables".
    """

    name: ClassVar[str] = "direct"
    requires: ClassVar[frozenset[str]] = frozenset({"gradient", "exact_kernel", "squared_loss"})
    state_class = DirectState
    max_support = None  # all rows are support

    def init(self, problem: Problem, batch: TrainBatch) -> DirectState:
        support.check_matrix(self.name, problem, batch, direct_bytes, _MOST_BYTES)
        return self._new_state(problem, batch, alpha=problem.alpha)

    def step(self, problem: Problem, state: DirectState, batch: TrainBatch) -> StepInfo:
        """Solve; raise as `init` does, and DataError if K is not positive semi-definite."""
        support.check_matrix(self.name, problem, batch, direct_bytes, _MOST_BYTES)
        rows = self._attach(problem, state, batch).rows
        n, C = batch.n_rows, problem.n_outputs
        weight = _weights(batch)
        y = batch.y.astype(np.float64)
        start = weight @ y / n if problem.fit_intercept else np.zeros(C)
        y -= start
        small = state.exact.is_small(problem.alpha, rows)
        scale = np.sqrt(weight)
        ridge, found = problem.alpha * n, None
        K = None
        if n > _SINGLE_ROWS and not (problem.posterior or small):
            K = kernel_matrix(state.exact, rows, problem.resources.deadline, np.float32)
            found = _solve(K, scale, ridge, y, problem.fit_intercept, single=True)
        if K is None or found is None:
            K = K.wide() if K is not None and _holds_both(problem, batch) else None
            K = K or kernel_matrix(state.exact, rows, problem.resources.deadline, wide=small)
            if n > _SINGLE_ROWS and small and not problem.posterior:
                found = _solve(K, scale, ridge, y, problem.fit_intercept, single=True)
            ridges = _ridges(K, scale, ridge, state.exact.precise or small)
        while found is None:
            ridge = next(ridges)
            found = _solve(K, scale, ridge, y, problem.fit_intercept)
        coef, f = found
        b = weight @ (y - f) / n if problem.fit_intercept else np.zeros(C)
        error = y - f - b
        loss = 0.5 * float(weight @ (error**2).sum(axis=1)) / n
        e = problem.alpha * coef - weight[:, None] * error / n
        gap = None
        if problem.alpha > 0.0:
            gap = max(0.0, float((e * K.product(e)).sum())) / (2.0 * problem.alpha)
        state.alpha = ridge / n
        state.matrix = K if problem.posterior else None
        state.coef, state.responses = coef, np.ascontiguousarray(f.T)
        state.intercept = start + b
        state.objective = loss + 0.5 * problem.alpha * float((coef * f).sum())
        state.iteration += 1
        state.rows_seen += n
        state.kernel_evaluations += K.n_values
        return self._info(
            state,
            loss,
            SupportUpdate.without_average(rows, coef, 0.0),
            epoch=float(state.iteration),
            objective=state.objective,
            duality_gap=gap,
            converged=True,
        )

    def finish(self, problem: Problem, state: DirectState, batch: TrainBatch) -> dict[str, Any]:
        """Return the objective claimed, and the one computed anew from kernel values.

        The latter uses the responses of all rows or, if that takes long, of a sample. The alpha
        that was solved for is returned too.
        """
        prepared = self._attach(problem, state, batch).rows
        n = batch.n_rows
        price = max(1, n) * (2 * problem.n_features_in + 30)
        m = max(contract.AUDIT_LEAST, contract.AUDIT_WORK // price)
        rows = np.arange(n)
        if m < n:
            rows = np.sort(draws(problem.seed, _TAG, state.iteration).choice(n, m, False))
        true = np.zeros((len(rows), problem.n_outputs))
        small = state.exact.is_small(problem.alpha, prepared)
        for start in range(0, len(rows), _FILL):
            some = prepared.take(rows[start : start + _FILL])
            K = state.exact.values(some, prepared, wide=small)
            true[start : start + _FILL] = K.astype(np.float64) @ state.coef
        kept = state.responses[:, rows].T
        weight, y = _weights(batch)[rows], batch.y[rows].astype(np.float64)
        losses = [problem.loss.value(y, f + state.intercept) for f in (true, kept)]
        change = float(weight @ (losses[0] - losses[1])) / len(rows)
        norm = float((state.coef[rows] * (true - kept)).sum()) * n / len(rows)
        claimed = state.objective
        found = claimed + change + 0.5 * problem.alpha * norm
        drift = abs(found - claimed) / abs(claimed) if claimed else 0.0
        return asdict(contract.Audit(claimed, found, drift, len(rows))) | {"alpha": state.alpha}


def kernel_matrix(
    exact: ExactKernel, rows: ExactRows, deadline: Deadline = FOREVER,
    dtype: type[np.floating[Any]] = np.float64, *, wide: bool = False,
) -> SymmetricMatrix:  # fmt: skip
    """Return K (n, n) of the rows, of values in float64 if `wide`."""

    def tile(i: slice, j: slice) -> AnyArray:
        return exact.values(rows.take(i), rows.take(j), wide=wide)

    return SymmetricMatrix(rows.n_rows, tile, deadline, dtype)


def _holds_both(problem: Problem, batch: TrainBatch) -> bool:
    """Whether a float32 matrix fits in memory beside the float64 one that is made from it.

    If not, its values are computed again; they are the same, so no result depends on memory.
    """
    needed = direct_bytes(batch.n_rows, problem.n_outputs, support.sizes(batch.X))
    return 1.5 * needed <= support.matrix_limit(problem, np.inf)


def _weights(batch: TrainBatch) -> Float64Array:
    weight = np.asarray(batch.sample_weight, np.float64)
    return np.asarray(weight / weight.mean())


def _ridges(
    K: SymmetricMatrix, scale: Float64Array, wanted: float, precise: bool
) -> Iterator[float]:
    """Yield the ridge wanted, then larger ones, up to the largest that rounding may require.

    It is that of float32 values unless they are `precise`.
    """
    yield wanted
    trace = float(scale**2 @ np.maximum(K.diagonal, 0.0)) or 1.0
    more = float(np.finfo(np.float64 if precise else np.float32).eps) * trace / K.n
    while more <= _INDEFINITE * trace:
        yield wanted + more
        more *= _GROWTH
    raise DataError(
        f"The kernel matrix is not positive semi-definite: with alpha * n = {wanted:.3g} the "
        "objective of solver 'direct' has no minimum. Use a positive semi-definite kernel, a "
        "larger alpha, or solver='cached'."
    )


def _solve(
    K: SymmetricMatrix, scale: Float64Array, ridge: float, y: Float64Array,
    fit_intercept: bool, *, single: bool = False,
) -> tuple[Float64Array, Float64Array] | None:  # fmt: skip
    """Return coefficients and responses (n, C), or None if rounding makes K indefinite.

    The factor is float32 if `single`.
    """
    most, settled, solved = 5, _SETTLED, _SOLVED
    if single:
        most, settled, solved = 25, _SINGLE_SETTLED, _SINGLE_SOLVED
    try:
        K.factor(scale, ridge, np.float32 if single else np.float64)
    except np.linalg.LinAlgError:
        return None
    s = scale[:, None]
    z = K.solve(s)[:, 0] if fit_intercept else np.zeros(K.n)
    bend = float(scale @ z) or 1.0

    def projected(v: Float64Array) -> Float64Array:
        """Return v (n, C), preconditioned; the coefficients still sum to 0."""
        u = K.solve(v)
        return u - z[:, None] * ((scale @ u) / bend) if fit_intercept else u

    u, f, r = np.zeros_like(y), np.zeros_like(y), s * y
    size = np.linalg.norm(r, axis=0)
    size[size == 0.0] = 1.0
    best, least = (u, f), np.inf
    p, rho = np.zeros_like(y), np.ones(y.shape[1])
    for correction in range(most + 1):
        free = r - s * ((scale @ r) / (scale @ scale)) if fit_intercept else r
        left = float((np.linalg.norm(free, axis=0) / size).max())
        if left < least:
            best, least = (s * u, f), left
        if not left <= _ASTRAY * least or left <= settled or correction == most:
            break
        g = projected(free)
        before, rho = rho, np.einsum("ic,ic->c", free, g)
        p = g + p * (rho / before if correction else 0.0)
        Kp = K.product(s * p)
        Ap = s * Kp + ridge * p
        bent = np.einsum("ic,ic->c", p, Ap)
        length = np.where(bent > 0.0, rho / np.where(bent > 0.0, bent, 1.0), 0.0)
        u, f, r = u + length * p, f + length * Kp, r - length * Ap
    return best if least <= solved else None


class SymmetricMatrix:
    r"""K, symmetric, and the factor L of ``S K S + ridge I = L L^T`` with S diagonal.

    One array holds K above the diagonal and L on and below it. Residuals can therefore be
    computed after the factorisation, and a second one with a larger ridge needs no new K. A
    float32 factor of a float64 matrix takes the left half of the room below the diagonal.

    The bits of LAPACK's factor depend on the number of threads. This factor consists of
    products of tiles that depend on n only, each computed in one thread; it must be used inside
    ``single_threaded_blas``. ``tile(rows, columns)`` returns K for two slices, on and above the
    diagonal only; several threads call it, for ``n_values`` values in all. Past the deadline
    TimeIsUp is raised.
    """

    def __init__(
        self, n: int, tile: Callable[[slice, slice], AnyArray], deadline: Deadline = FOREVER,
        dtype: type[np.floating[Any]] = np.float64,
    ) -> None:  # fmt: skip
        self.n, self._deadline, self.dtype = n, deadline, dtype
        self._array = self._lower = np.empty((n, n), dtype)
        self._inverses: list[AnyArray] = []
        starts = range(0, n, _FILL)
        pairs = [(i, j) for i in starts for j in starts if i <= j]

        def task(number: int) -> None:
            deadline.check()
            rows, columns = (slice(a, min(n, a + _FILL)) for a in pairs[number])
            self._array[rows, columns] = tile(rows, columns)

        parallel_for(len(pairs), task)
        self.n_values = sum(min(_FILL, n - i) * min(_FILL, n - j) for i, j in pairs)
        self.diagonal = self._array.diagonal().copy()

    def _square(self, a: int, b: int) -> AnyArray:
        """Return rows and columns a to b of K, a part of which L has overwritten."""
        upper = np.triu(self._array[a:b, a:b], 1)
        square = upper + upper.T
        np.fill_diagonal(square, self.diagonal[a:b])
        return square

    def wide(self) -> SymmetricMatrix:
        """Return K in float64, read from above the diagonal, where no factor overwrites it."""

        def tile(rows: slice, columns: slice) -> AnyArray:
            if rows == columns:
                return self._square(rows.start, rows.stop)
            return self._array[rows, columns]

        return SymmetricMatrix(self.n, tile, self._deadline)

    def product(self, B: Float64Array) -> Float64Array:
        out = np.empty_like(B)
        K = self._array

        def task(a: int, b: int) -> None:
            some = self._square(a, b) @ B[a:b]
            some += K[:a, a:b].T @ B[:a]
            some += K[a:b, b:] @ B[b:]
            out[a:b] = some

        over_tiles(self.n, _FILL, task)
        return out

    def factor(
        self, scale: Float64Array, ridge: float, dtype: type[np.floating[Any]] | None = None
    ) -> None:
        """Factor ``S K S + ridge I`` in `dtype`, K's own if None; S is ``diag(scale)``.

        Column panels are updated by all panels before them, then multiplied by the inverse of
        the factor of their diagonal block: ``n^3 / 3`` operations, nearly all of them in
        products. LinAlgError is raised, and K left as it was, if the matrix is not positive
        definite up to rounding.
        """
        A, n = self._array, self.n
        dtype = dtype or self.dtype
        F = self._lower = A.view(dtype)  # (n, 2 n) where K is wider
        self.scale, self.ridge = scale, ridge
        scale = scale.astype(dtype)
        self._inverses = []
        for a in range(0, n, PANEL):
            self._deadline.check()
            b = min(n, a + PANEL)
            parts = [slice(a, b)]
            parts += [slice(c, min(n, c + _HEIGHT)) for c in range(b, n, _HEIGHT)]
            updated: list[Any] = [None] * len(parts)  # transposed, as K lies above

            def update(
                i: int, a: int = a, b: int = b, parts: list[slice] = parts,
                updated: list[Any] = updated,
            ) -> None:  # fmt: skip
                rows = parts[i]
                K = A[a:b, rows] if i else self._square(a, b)
                T = scale[a:b, None] * K.astype(dtype, copy=False)
                T *= scale[rows]
                T -= F[a:b, :a] @ F[rows, :a].T
                updated[i] = T

            parallel_for(len(parts), update)
            block = updated[0]
            block[np.diag_indices(b - a)] += ridge
            L = np.linalg.cholesky(block)
            lower = np.tril_indices(b - a)
            F[a:b, a:b][lower] = L[lower]
            inverse = scipy.linalg.solve_triangular(
                L, np.eye(b - a, dtype=dtype), lower=True, check_finite=False
            )
            self._inverses.append(inverse)

            def divide(
                i: int, a: int = a, b: int = b, parts: list[slice] = parts,
                updated: list[Any] = updated, inverse: Float64Array = inverse,
            ) -> None:  # fmt: skip
                F[parts[i + 1], a:b] = (inverse @ updated[i + 1]).T

            parallel_for(len(parts) - 1, divide)

    def solve(self, B: Float64Array) -> Float64Array:
        F, Z = self._lower, self.half_solve(B)
        for i, inverse in reversed(list(enumerate(self._inverses))):
            a, b = i * PANEL, min(self.n, (i + 1) * PANEL)
            Z[a:b] = inverse.T @ (Z[a:b] - F[b:, a:b].T @ Z[b:])
        return Z.astype(np.float64)

    def half_solve(self, B: Float64Array) -> AnyArray:
        F, Z = self._lower, B.astype(self._lower.dtype)
        for i, inverse in enumerate(self._inverses):
            a, b = i * PANEL, min(self.n, (i + 1) * PANEL)
            Z[a:b] = inverse @ (Z[a:b] - F[a:b, :a] @ Z[:a])
        return Z

    def log_determinant(self) -> float:
        """Return ``log |K + ridge S^-2|`` by the last factorisation."""
        return 2.0 * float((np.log(self._lower.diagonal()) - np.log(self.scale)).sum())
