"""The exact minimum of smooth losses over one kernel matrix.

The squared loss needs one Newton system, which :class:`DirectSolve` solves to rounding by a
Cholesky factor; :class:`NewtonCG` solves systems as exactly as its steps deserve. Both run
preconditioned conjugate gradients on the same equations, see :mod:`kernelgrad.solvers.newton`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kernelgrad.compute import linalg
from kernelgrad.compute.memory import available_bytes
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import Kernel
from kernelgrad.params import parameters, real
from kernelgrad.solvers import newton, support
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, sized, transient
from kernelgrad.solvers.kernel_matrix import KernelMatrix, kernel_matrix
from kernelgrad.solvers.newton import Descent, Pair, Point
from kernelgrad.solvers.support import RowsSolver, RowsState, support_update
from kernelgrad.solvers.trackers import Update
from kernelgrad.types import Float64Array, Matrix
from kernelgrad.validation import DataError

# bytes of a kernel matrix without a memory limit: 32,000 rows in float64, 46,000 in float32
MATRIX_BYTES = 8.0 * 2**30


@dataclass(frozen=True)
class DirectSettings:
    """Numbers of :class:`DirectSolve`."""

    single_rows: int = 2048  # rows from which a float32 factor is worth its more iterations
    # steps of conjugate gradients with a factor of either precision, the residual relative to
    # the right-hand side at which they end, and the largest one of a solution
    single: tuple[int, float, float] = (25, 1e-11, 1e-9)
    double: tuple[int, float, float] = (5, 1e-13, 1e-6)
    astray: float = 100.0  # growth of the residual over the least one: rounding has won
    # largest ridge that rounding may require, relative to the trace: it moves no eigenvalue by
    # more than eps times the trace, and kernel values are good to some eps
    indefinite: float = 1e-5


SETTINGS = DirectSettings()


def direct_bytes(n_rows: int, n_outputs: int, row_bytes: float) -> float:
    """Return the bytes that :class:`DirectSolve` needs, including both forms of the rows."""
    return support.matrix_bytes(n_rows, n_outputs, row_bytes, np.float64)


def newton_bytes(n_rows: int, n_outputs: int, row_bytes: float) -> float:
    """Return the bytes that :class:`NewtonCG` takes, rows in both forms included."""
    r = newton.coarse_rows(n_rows, n_outputs)  # their kernel rows in three forms, their squares
    more = (12.0 * n_rows + 32.0 * r) * r - 2.0 * n_rows**2  # half of the matrix
    return support.matrix_bytes(n_rows, n_outputs, row_bytes, np.float32) + more


@dataclass(kw_only=True)
class ExactState(RowsState):
    """State of the exact solvers; ``responses`` are f on the rows without the intercept."""

    alpha: float  # penalty that `coef` is for
    objective: float = np.nan  # objective of the problem, NaN before the first step
    matrix: KernelMatrix | None = transient(released=False)  # factor, if a posterior is wanted
    coarse: bool = False  # whether systems were hard
    length: Float64Array = sized("problem", empty=True)  # part of the last step
    excess: Float64Array = sized("problem", empty=True)  # ratio of gains to promises
    descent: Descent | None = transient()
    point: Point | None = transient()


class ExactSolver(RowsSolver[ExactState]):
    """Base of the solvers of smooth losses over a kernel matrix that fits in memory."""

    state_class = ExactState
    bytes_of: ClassVar[Callable[..., float]]  # bytes for n rows, C outputs, and bytes of rows

    def init(self, problem: Problem, batch: TrainBatch) -> ExactState:
        """Start from the best constant."""
        return self._new_state(problem, batch, alpha=problem.alpha)

    def _check_memory(self, problem: Problem, batch: TrainBatch) -> None:
        n, C, size = batch.n_rows, problem.n_outputs, linalg.rows_bytes(batch.X)
        problem.resources.check(
            f"the kernel matrix of {n} rows in solver {self.name!r}",
            type(self).bytes_of(n, C, size), "take solver='block_descent'", most=MATRIX_BYTES,
        )  # fmt: skip

    def _report(
        self, problem: Problem, state: ExactState, at: Point, n_rows: int,
        update: Update, **own: Any,
    ) -> StepInfo:  # fmt: skip
        """Note a point of one penalty in the state, and return the report of the step."""
        state.coef, state.responses = np.ascontiguousarray(at.a[0].T), at.f[0]
        state.intercept, state.objective = at.b[0], float(at.objective.sum())
        state.iteration += 1
        state.rows_seen += n_rows
        gap = 0.5 * max(0.0, float((at.G * at.KG).sum())) / (problem.alpha or 1.0)
        gap = min(gap, float(at.gap.sum()))
        return self._info(
            state,
            state.objective - 0.5 * problem.alpha * float((at.a * at.f).sum()),
            update,
            epoch=float(state.iteration),
            objective=state.objective,
            duality_gap=gap if problem.alpha > 0 else None,
            **own,
        )


@parameters
class DirectSolve(ExactSolver):
    r"""The exact solution for the squared loss, in one step.

    .. math:: \min_{f, b}\ \frac{1}{\sum_i w_i} \sum_i \frac{w_i}{2} (y_i - f(x_i) - b)^2
              + \frac{\alpha}{2} \|f\|^2

    With weights of mean 1, ``S = diag(sqrt(w))`` and ``f = sum_i c_i k(x_i, .)``, ``c = S u``,

    .. math:: (S K S + \alpha n I)\, u = S (y - b 1), \qquad 1^T c = 0

    where the second equation, which belongs to the unpenalised constant b, is eliminated. One
    factorisation serves all outputs, and preconditions conjugate gradients on these equations
    in float64. Beyond 2,048 rows it is float32, which takes half the time, where that suffices.
    Then b is the mean of ``y - f``.

    ``history_["duality_gap"]`` bounds how far the objective is from its minimum for these
    kernel values: with ``e = alpha c - w (y - f - b) / n``, it is ``e^T K e / (2 alpha)``.

    If the equations are indefinite by rounding, eps / n (1.2e-7 / n, or 2.2e-16 / n) times the
    mean of ``k(x, x)`` is added to alpha, then ten times as much, and so on until they are
    positive definite, up to ``1e-5`` of the trace. The reported objective is always that of the
    given alpha.

    References
    ----------
    Saunders, Gammerman and Vovk (1998), "Ridge Regression Learning Algorithm in Dual
    Variables".
    """

    name: ClassVar[str] = "direct"
    requires: ClassVar[frozenset[str]] = frozenset({"gradient", "exact_kernel", "squared_loss"})
    bytes_of = staticmethod(direct_bytes)

    def step(self, problem: Problem, state: ExactState, batch: TrainBatch) -> StepInfo:
        """Solve; raise if K exceeds the memory limit, or is not positive semi-definite."""
        self._check_memory(problem, batch)
        rows = self._attach(problem, state, batch).rows
        exact, n, deadline = state.exact, batch.n_rows, problem.resources.deadline
        small = exact.is_small(problem.alpha, rows)
        single = n > SETTINGS.single_rows and not problem.posterior
        dtype = np.float32 if single and not small else np.float64
        K = kernel_matrix(exact, rows, deadline, dtype, wide=small)
        at = self._solved(K, problem, batch, 0.0, single=True) if single else None
        if at is None and dtype == np.float32:
            del K  # a wider one needs its room
            K = kernel_matrix(exact, rows, deadline)
        ridges = _ridges(K, batch, problem.alpha, precise=exact.precise or small)
        while at is None:
            at = self._solved(K, problem, batch, next(ridges))
        state.alpha = K.ridge / n
        state.matrix = K if problem.posterior else None
        state.kernel_evaluations += K.n_values
        update = support_update(state, rows, np.ascontiguousarray(at.a[0].T), 0.0)
        return self._report(problem, state, at, n, update, converged=True)

    @staticmethod
    def _solved(
        K: KernelMatrix, problem: Problem, batch: TrainBatch, ridge: float, *,
        single: bool = False,
    ) -> Point | None:  # fmt: skip
        """Return the solution with `ridge` more penalty, None if rounding makes K indefinite.

        The factor is float32 if `single`.
        """
        most, settled, solved = SETTINGS.single if single else SETTINGS.double
        weight, alpha, n = _weights(batch), problem.alpha + ridge, K.n
        scale = np.sqrt(weight)
        try:
            K.factor(scale, alpha * n, np.float32 if single else np.float64)
        except np.linalg.LinAlgError:
            return None
        descent = Descent(
            K, problem.loss, batch.y, weight / n, np.array([alpha]), problem.fit_intercept
        )
        descent.dtype = np.float64
        # S K S + n alpha I, with weights of mean 1, is n times the system
        inverse = newton.factored_inverse(
            K, scale, alpha * n, problem.fit_intercept, lambda v: K.solve(v.T).T
        )

        y = batch.y.astype(np.float64)
        start = weight @ y / n if problem.fit_intercept else np.zeros(problem.n_outputs)
        right = ((weight / n)[:, None] * (y - start)).T[None]
        inverse_scale = np.divide(1.0, scale, out=np.zeros(n), where=scale > 0)
        size = np.linalg.norm(right * inverse_scale, axis=-1)
        size[size == 0.0] = 1.0
        best, least = None, np.inf

        def precondition(x: Any, R: Float64Array) -> Pair | None:
            nonlocal best, least
            if x is not None:
                left = float((np.linalg.norm(R * inverse_scale, axis=-1) / size).max())
                if left < least:
                    best, least = x, left
                if not left <= SETTINGS.astray * least or left <= settled:
                    return None
            Z = n * inverse(R[0])[None]
            KZ = descent.product(Z)
            return np.stack([Z, KZ]), (R * KZ).sum(axis=-1, keepdims=True)

        descent.solve(right, np.ones_like(right), most + 1, precondition)
        if best is None or least > solved:
            # rows that are all alike have K r = 0, where the inner product of K sees nothing
            D = n * inverse(right[0])[None]
            best = np.stack([D, descent.product(D)])
            mean = best[1] @ weight[:, None] / n if problem.fit_intercept else 0.0
            left = right - alpha * D - weight / n * (best[1] - mean)
            if not (np.linalg.norm(left * inverse_scale, axis=-1) / size).max() <= solved:
                return None
        descent.alpha = np.full((1, 1, 1), problem.alpha)
        return descent.point(best[0], start[None], best[1])


def _weights(batch: TrainBatch) -> Float64Array:
    weight = np.asarray(batch.sample_weight, np.float64)
    return np.asarray(weight / weight.mean())


def _ridges(
    K: KernelMatrix, batch: TrainBatch, alpha: float, *, precise: bool
) -> Iterator[float]:
    """Yield what is added to alpha: 0, then as much as rounding may require.

    It is that of float32 values unless they are `precise`.
    """
    trace = float(_weights(batch) @ np.maximum(K.diagonal, 0.0)) / K.n or 1.0
    rounding = float(np.finfo(np.float64 if precise else np.float32).eps) * trace / K.n
    yield from linalg.dampings(0.0, rounding, SETTINGS.indefinite * trace)
    raise DataError(
        f"The kernel matrix is not positive semi-definite: with alpha = {alpha:.3g} the "
        "objective of solver 'direct' has no minimum. Use a positive semi-definite kernel, a "
        "larger alpha, or solver='block_descent'."
    )


@parameters
class NewtonCG(ExactSolver):
    r"""The minimum of a smooth loss on the whole kernel matrix, by Newton's method.

    .. math:: \min_{f, b}\ \frac{1}{\sum_i w_i} \sum_i w_i\, l(y_i, f(x_i) + b)
              + \frac{\alpha}{2} \|f\|^2

    Each step solves a Newton system by conjugate gradients in the inner product of the kernel's
    space, to half of its residual, and halves the step while it raises the objective. An inner
    step costs one product with the kernel matrix, of ``2 n^2`` operations for each output. Sums
    are in float64. The squared loss is one system, see :mod:`kernelgrad.solvers.newton`.

    The loss must be twice differentiable or have a majorising curvature: log_loss, logistic,
    squared, squared_hinge, smoothed_hinge, modified_logistic, huber and your own. It may have
    any number of outputs; penalties of a path share the products.

    Parameters
    ----------
    tol : float > 0, default=1e-4
        The fit has converged when the next step is predicted to lower the objective by less
        than `tol` times its value; errors of predictions settle from 1e-3 on.

    Notes
    -----
    ``history_["duality_gap"]`` is ``g^T K g / (2 alpha)`` with ``g = r + alpha a`` the gradient
    in coefficients, or less for the squared loss, and None with ``alpha=0``.

    References
    ----------
    Chapelle (2007), "Training a Support Vector Machine in the Primal"; Nocedal and Wright
    (2006), "Numerical Optimization", chapter 7 (inexact Newton methods).
    """

    name: ClassVar[str] = "newton"
    requires: ClassVar[frozenset[str]] = frozenset(
        {"exact_kernel", "smooth_loss", "fixed_intercept"}
    )
    bytes_of = staticmethod(newton_bytes)

    tol: float = real(default=1e-4, low=0, low_open=True)

    def path(
        self, problem: Problem, batch: TrainBatch, alphas: Sequence[float], X: Matrix,
        max_iter: int,
    ) -> tuple[Kernel, list[Float64Array]]:  # fmt: skip
        """Return what :meth:`RowsSolver.path` does; the penalties share the products."""
        state = self.init(problem, batch)
        descent = self._descent(problem, state, batch, np.array(alphas))
        shape = len(alphas), problem.n_outputs
        b = np.tile(state.intercept, (shape[0], 1))
        at = descent.point(np.zeros((*shape, batch.n_rows)), b)
        a, b, live = at.a.copy(), at.b.copy(), np.arange(len(alphas))
        for _ in range(max_iter):
            at = descent.advance(at, self.tol)
            a[live], b[live] = at.a, at.b
            going = np.flatnonzero(~at.done.all(axis=1))
            if not len(going):
                break
            live = live[going]
            at = descent.only(at, going)
        expansions = [
            SupportExpansion(state.exact, state.prepared, coef.T, intercept)
            for coef, intercept in zip(a, b, strict=True)
        ]
        return state.exact.kernel, [e.raw_prediction(X) for e in expansions]

    def _descent(
        self, problem: Problem, state: ExactState, batch: TrainBatch, alphas: Float64Array
    ) -> Descent:
        """Return what descends for the penalties `alphas`; makes the kernel matrix."""
        self._check_memory(problem, batch)
        rows = self._attach(problem, state, batch).rows
        weight = np.asarray(batch.sample_weight, np.float64)
        n, deadline = batch.n_rows, problem.resources.deadline
        narrow = newton_bytes(n, problem.n_outputs, linalg.rows_bytes(batch.X))
        limit = problem.resources.limit(min(MATRIX_BYTES, available_bytes()))
        small = state.exact.is_small(newton.SETTINGS.precise * min(alphas), rows)
        wide = small and narrow + 2.0 * n**2 <= limit
        dtype = np.float64 if wide else state.exact.dtype
        K = kernel_matrix(state.exact, rows, deadline, dtype, wide=wide)
        state.kernel_evaluations += n**2
        return Descent(
            K, problem.loss, batch.y, weight / weight.sum(), alphas, problem.fit_intercept,
            problem.seed, deadline,
        )  # fmt: skip

    def step(self, problem: Problem, state: ExactState, batch: TrainBatch) -> StepInfo:
        """Solve a Newton system, or several until one leads on."""
        at, descent = state.point, state.descent
        if descent is None or at is None or state.alpha != problem.alpha:
            same, state.alpha = state.alpha == problem.alpha, problem.alpha
            descent = self._descent(problem, state, batch, np.array([problem.alpha]))
            if state.coarse:
                descent.help()
            a = np.ascontiguousarray(state.coef.T)[None]
            # a state from a file goes on to the same bit
            at = descent.point(a, state.intercept[None], settled=state.iteration > 0)
            if state.length.size and same:
                at = replace(at, length=state.length[None])
                descent.excess = state.excess[None]
        before = state.coef
        for _ in range(8):  # many steps lead not far if the curvature jumps
            at = descent.advance(at, self.tol)
            long = at.done.all() or at.length[~at.done].min() >= newton.SETTINGS.short
            if long or problem.resources.deadline.over:
                break
        state.descent, state.point = descent, at
        state.coarse, state.length = descent.helper is not None, at.length[0]
        state.excess = descent.excess[0]
        change = np.ascontiguousarray(at.a[0].T) - before
        return self._report(
            problem, state, at, batch.n_rows,
            support_update(state, state.prepared, change),
            step_size=float(at.length.min()), converged=bool(at.done.all()),
        )  # fmt: skip
