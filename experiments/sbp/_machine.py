"""Exact kernel machines followed update by update; kernel values are shared by all solvers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.objectives._shared import distinct, where
from benchmarks.registry import Row

from experiments.sbp._libsvm import geometric, load
from kernelgrad.functions.exact import ExactKernel, KernelRows
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import Hinge, Perceptron
from kernelgrad.papers.sbp import StochasticBatchPerceptron
from kernelgrad.papers.sbp.minimax import slack_level
from kernelgrad.solvers import NORMA, SDCA, KernelPerceptron, Pegasos, Problem, TrainBatch

SETS = {"adult": ("a9a", 10.0), "mnist": ("mnist8", 25.0)}  # and sigma^2, Table 2 without bias
SBP, PEGASOS, DUAL, SMO, PERCEPTRON = "SBP", "Pegasos", "SDCA", "SMO", "perceptron"
_STEPS = 50  # looks at the support in a pass of dual ascent


class Machine:
    """Rows and labels of -1 and +1 with all their kernel values, and those of test rows."""

    def __init__(
        self, X: Any, y: Any, X_test: Any, y_test: Any, gamma: float, bias: bool = False
    ) -> None:
        self.X, self.X_test = (
            np.asarray(A.toarray() if sp.issparse(A) else A, np.float32) for A in (X, X_test)
        )
        self.y, self.y_test = (np.where(np.asarray(b) > 0, 1.0, -1.0) for b in (y, y_test))
        self.n, self.bias, self.kernel = len(self.y), bias, Gaussian(gamma=gamma)
        exact = ExactKernel(self.kernel, self.X.shape[1])
        rows = exact.prepare(self.X)
        self.rows = KernelRows(exact, rows, 4 * self.n**2)
        self.rows.fast = True
        self.rows.load(np.arange(self.n))
        self.K = self.rows.buffer
        self.K_test = exact.matrix(exact.prepare(self.X_test), rows)

    def problem(self, loss: Any, alpha: float, seed: int, *, fixed: bool) -> Problem:
        """Return what solvers are told."""
        return Problem(
            loss, self.kernel, alpha, 1, self.X.shape[1], seed, self.bias, fixed_rows=fixed
        )

    def error(self, coef: Any, intercept: float = 0.0) -> float:
        """Return the test error in percent."""
        f = self.K_test @ coef.astype(np.float32) + intercept
        return 100 * float(np.mean(np.where(f > 0, 1.0, -1.0) != self.y_test))

    def hinge(self, coef: Any) -> float:
        """Return the mean hinge loss on the training rows."""
        return float(np.maximum(0, 1 - self.y * (self.K @ coef)).mean())

    def norm(self, coef: Any) -> float:
        """Return that of the function."""
        return float(np.sqrt(coef @ (self.K @ coef)))

    def together(
        self, solver: Any, alpha: float, seed: int, ends: Sequence[int]
    ) -> Iterator[tuple[int, Any]]:
        """Yield updates and coefficients of a solver that keeps all responses.

        Those of SBP are of the average within the unit ball, not divided by its level.
        """
        batch = TrainBatch(self.X, self.y[:, None].astype(np.float32), np.ones(self.n))
        problem = self.problem(Hinge(), alpha, seed, fixed=True)
        state = solver.init(problem, batch)
        state.rows = self.rows
        for start, end in pairwise([0, *ends]):
            solver.round_size = end - start
            solver.step(problem, state, batch)
            yield end, getattr(state, "average", state.coef)[:, 0]

    def singly(
        self, solver: Any, loss: Any, alpha: float, order: Any, ends: Sequence[int]
    ) -> Iterator[tuple[int, Any, int]]:
        """Yield visits, coefficients and kernel evaluations of visits to rows in order."""
        problem, state = self.problem(loss, alpha, 0, fixed=False), None
        for start, end in pairwise([0, *ends]):
            for a in range(start, end, 8192):
                i = order[a : min(a + 8192, end)]
                y = self.y[i, None].astype(np.float32)
                batch = TrainBatch(self.X[i], y, np.ones(len(i)), i)
                state = solver.init(problem, batch) if state is None else state
                solver.step(problem, state, batch)
            coef = np.zeros(self.n)
            coef[state.numbers] = state.average[:, 0]
            yield end, coef, state.kernel_evaluations

    def sbp(self, nu: float, seed: int, ends: Sequence[int]) -> Iterator[tuple[int, Any, int]]:
        """Yield updates, coefficients and kernel evaluations of the paper's algorithm."""
        solver = StochasticBatchPerceptron.paper(nu, sigma=1.0, bias=self.bias)["solver"]
        for t, coef in self.together(solver, 0.0, seed, ends):
            yield t, coef, t * self.n

    def descent(self, B: float, seed: int, ends: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Yield visits and coefficients of gradient descent on the mean loss, |w| <= B."""
        order = np.random.default_rng(seed).integers(self.n, size=ends[-1])
        solver = NORMA(step_size=B, decay=0.5, radius=B, average="uniform")
        for t, coef, _ in self.singly(solver, Hinge(), 0.0, order, ends):
            yield t, coef

    def optimum(self, alpha: float, tol: float = 1e-3) -> Any:
        """Return the coefficients of the regularised optimum, to a relative gap of tol."""
        batch = TrainBatch(self.X, self.y[:, None].astype(np.float32), np.ones(self.n))
        problem, solver = self.problem(Hinge(), alpha, 0, fixed=True), SDCA(tol=tol)
        state = solver.init(problem, batch)
        state.rows = self.rows
        while not solver.step(problem, state, batch).converged:
            pass
        return state.coef[:, 0]

    def level(self, coef: Any, nu: float) -> float:
        """Return f(w) of Equation 3.1."""
        c = (self.y * (self.K @ coef)).astype(np.float64)
        return slack_level(c, self.n * nu)

    def slack(self, coef: Any) -> float:
        """Return the paper's nu of an optimum: mean hinge loss over norm."""
        return self.hinge(coef) / self.norm(coef)


@lru_cache(1)
def machine(name: str, rows: int, test_rows: int | None) -> Machine:
    """Return random rows of a data set of Table 2, its parameters those without a bias."""
    file, square = SETS[name]
    p = load(file, rows, test_rows)
    return Machine(p.X, p.y, p.X_test, p.y_test, 1 / (2 * square))


@lru_cache(1)
def reference(name: str, rows: int, test_rows: int | None) -> tuple[float, float]:
    """Return nu and test error of the optimum for lambda = 1 / n."""
    m = machine(name, rows, test_rows)
    best = m.optimum(1 / m.n)
    return m.slack(best), m.error(best)


def marks(last: int) -> list[int]:
    """Return the visits of the points of a curve."""
    return geometric(1, last, 2**0.5)


def race(
    m: Machine, method: str, nu: float, seed: int, epochs: int
) -> Iterator[tuple[int, Any, int]]:
    """Yield visits, coefficients and kernel evaluations so far of one of the methods.

    SBP and SMO update all responses, n values each time. The others compute the response of
    the row that they visit: a value for each row of the support. What has no average is looked
    at more often than at `marks`.
    """
    n, last = m.n, epochs * m.n
    ends = marks(last)
    finely = geometric(1, last, 2**0.125)
    rng = np.random.default_rng(seed)
    if method == SBP:
        yield from m.sbp(nu, seed, ends)
    elif method == SMO:
        greedy = SDCA(tol=0.0, order="greedy")
        yield from ((t, a, t * n) for t, a in m.together(greedy, 1 / n, seed, ends))
    elif method == DUAL:
        looks = sorted({*finely, *range(0, last, max(1, n // _STEPS))} - {0})
        count = before = 0
        for t, a in m.together(SDCA(tol=0.0), 1 / n, seed, looks):
            count += (t - before) * int(np.count_nonzero(a))
            before = t
            if t in finely:
                yield t, a, count
    elif method == PEGASOS:
        solver: Any = Pegasos(t0=0.0, average=None)
        yield from m.singly(solver, Hinge(), 1 / n, rng.integers(n, size=last), finely)
    else:
        order = np.concatenate([rng.permutation(n) for _ in range(epochs)])
        yield from m.singly(KernelPerceptron(average=False), Perceptron(), 0.0, order, finely)


def at(rows: list[Row], method: str, x: Any, key: str = "evaluations") -> Any:
    """Return the error of a method at x, linear in log x between its points."""
    mine = where(rows, method=method)
    return np.interp(np.log(x), np.log([r[key] for r in mine]), [r["error"] for r in mine])


def lead(rows: list[Row], one: str, other: str, key: str = "evaluations") -> float:
    """Return the points of error that `one` has less, a mean over the logarithm of a column.

    From 100 visits of SBP on: before, no method has learned anything.
    """
    ends = [[r[key] for r in where(rows, method=name)] for name in (one, other)]
    least = 100 if key == "visits" else 100 * rows[0]["rows"]
    x = np.geomspace(max(least, *(e[0] for e in ends)), min(e[-1] for e in ends), 200)
    return float(np.mean(at(rows, other, x, key) - at(rows, one, x, key)))


def mean_curve(rows: list[Row], x: str = "evaluations") -> tuple[list[float], list[float]]:
    """Return x and error, means over seeds of the points of one method."""
    points = distinct(rows, "visits")
    return tuple(
        [float(np.mean([r[key] for r in where(rows, visits=t)])) for t in points]
        for key in (x, "error")
    )  # type: ignore[return-value]
