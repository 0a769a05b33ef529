"""What the objectives about linear models share: data, the minimum, and traces of solvers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from benchmarks.datasets.archives import csr_part, open_archive, standardised
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.kernels import Polynomial
from kernelgrad.linear.base import PreparedRows, evaluate
from kernelgrad.losses import get_loss
from kernelgrad.solvers import LinearProblem, TrainBatch

SETS = ["ijcnn1", "covtype20k", "a9a", "cod_rna", "news20_bydate", "protein"]
RARE = 0.15  # classes rarer than this are balanced, as Equation (46) has it
_QUICK = 1500


@dataclass
class Case:
    """Rows, labels -1/+1 and weights of one binary problem, and its objective.

    Dense columns are standardised; rows have a mean squared norm of 1.
    """

    name: str
    X: Any
    y: Any
    weight: Any
    X_test: Any
    y_test: Any
    weight_test: Any

    def batch(self, *, sparse: bool | None = None) -> TrainBatch:
        """Return all training rows, as they are, as CSR or dense."""
        X = self.X
        if sparse is not None and sparse != sp.issparse(X):
            X = sp.csr_matrix(X) if sparse else np.asarray(X.todense())
        return TrainBatch(X, self.y[:, None], self.weight)

    def head(self, n_rows: int) -> Case:
        """Return the case of the first training rows."""
        return replace(self, X=self.X[:n_rows], y=self.y[:n_rows], weight=self.weight[:n_rows])

    def problem(
        self, alpha: float, l1_ratio: float = 0.0, loss: str = "logistic", **settings: Any
    ) -> LinearProblem:
        """Return the problem of this penalty."""
        given = {"fit_intercept": True, "tol": 1e-10, "seed": 0} | settings
        return LinearProblem(
            loss=get_loss(loss, task="classification", n_classes=2),
            kernel=Polynomial(degree=1, gamma=1.0, coef0=0.0),
            alpha=alpha,
            n_outputs=1,
            n_features_in=self.X.shape[1],
            l1_ratio=l1_ratio,
            **given,
        )


def load(
    name: str, *, quick: bool = False, balanced: bool = True, rows: int | None = None
) -> Case:
    """Return one data set: the largest class against the rest; targets above their median.

    `rows` are the first ones to take, 1,500 where it is to be quick; None takes all.
    """
    z, most = open_archive(name), _QUICK if quick else rows
    if "train_data" in z:
        (X, y), (X_test, y_test) = (csr_part(z, kind) for kind in ("train", "test"))
        X, y, X_test = X[:most].astype(float), y[:most], X_test.astype(float)
    else:
        X, y, X_test, y_test = (z[k] for k in ("X_train", "y_train", "X_test", "y_test"))
        X, y = X[:most], y[:most]
        X, X_test = standardised(X, X_test)
    values, counts = np.unique(y, return_counts=True)
    if y.dtype.kind == "f" and len(values) > 100:
        middle = np.median(y)
        y, y_test = (np.where(a > middle, 1.0, -1.0) for a in (y, y_test))
    else:
        one = values.max() if len(values) == 2 else values[counts.argmax()]
        y, y_test = (np.where(a == one, 1.0, -1.0) for a in (y, y_test))
    square = X.multiply(X).sum() if sp.issparse(X) else (X * X).sum()
    size = np.sqrt(float(square) / X.shape[0])
    share = float(np.mean(y > 0))
    weights = {1.0: 1.0, -1.0: 1.0}
    if balanced and min(share, 1 - share) < RARE:
        weights = {1.0: 0.5 / share, -1.0: 0.5 / (1 - share)}
    w, w_test = (np.where(a > 0, weights[1.0], weights[-1.0]) for a in (y, y_test))
    return Case(name, X / size, y, w, X_test / size, y_test, w_test)


def minimum(problem: LinearProblem, batch: TrainBatch) -> tuple[float, Any]:
    """Return the least objective and its coefficients, by L-BFGS in float64.

    With an L1 part coefficients are split into positive and negative parts, so that it is
    linear.
    """
    X, Y = batch.X, batch.y
    p = batch.sample_weight / batch.sample_weight.sum()
    d = X.shape[1]

    def smooth(v: Any) -> tuple[float, Any]:
        f = np.asarray(X @ v[:d] + v[d])[:, None]
        slope = p * problem.loss.gradient(Y, f)[:, 0]
        value = float(p @ problem.loss.value(Y, f)) + 0.5 * problem.l2 * float(v[:d] @ v[:d])
        free = float(problem.fit_intercept)
        return value, np.append(X.T @ slope + problem.l2 * v[:d], free * slope.sum())

    def split(v: Any) -> tuple[float, Any]:
        value, g = smooth(np.append(v[:d] - v[d : 2 * d], v[-1]))
        value += problem.l1 * float(v[:-1].sum())
        return value, np.concatenate([g[:d] + problem.l1, problem.l1 - g[:d], g[d:]])

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 30}
    if problem.l1 == 0:
        found = minimize(smooth, np.zeros(d + 1), jac=True, method="L-BFGS-B", options=options)
        return float(found.fun), found.x
    bounds = [(0.0, None)] * (2 * d) + [(None, None)]
    start = np.zeros(2 * d + 1)
    found = minimize(split, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    w = np.append(found.x[:d] - found.x[d : 2 * d], found.x[-1])
    return float(found.fun), w


@dataclass
class Trace:
    """Seconds of steps alone and the objective of the result after each of them."""

    seconds: list[float]
    objective: list[float]
    state: Any

    def first_below(self, limit: float) -> float | None:
        """Return the seconds to the first objective below `limit`; None if there is none."""
        good = [s for s, f in zip(self.seconds, self.objective, strict=True) if f <= limit]
        return good[0] if good else None


def trace(
    solver: Any,
    problem: LinearProblem,
    batch: TrainBatch,
    *,
    steps: int,
    seconds: float = np.inf,
    target: float = -np.inf,
    every: int = 1,
    after: Callable[[Any], None] | None = None,
) -> Trace:
    """Run a solver; looking at the objective is off the clock, preparing rows is on it."""
    look = PreparedRows.build(problem, batch)
    out = Trace([], [], None)
    with single_threaded_blas():
        start = time.perf_counter()
        solver.check()
        state = solver.init(problem, batch)
        clock = time.perf_counter() - start
        for number in range(steps):
            start = time.perf_counter()
            info = solver.step(problem, state, batch)
            clock += time.perf_counter() - start
            if after is not None:
                after(state)
            if number % every and not info.converged:
                continue
            coef, bias = solver.solution(state)
            W = look.native(coef)
            out.seconds.append(clock)
            out.objective.append(evaluate(problem, look, W, bias).objective)
            if info.converged or out.objective[-1] <= target or clock > seconds:
                break
    out.state = state
    return out


def warm_up(
    solvers: list[Any], case: Case, problem: LinearProblem, *, sparse: bool | None = None
) -> None:
    """Compile the loops on a few rows: as those of the case, CSR or dense."""
    n = min(200, len(case.y))
    rows = np.unique(np.r_[np.flatnonzero(case.y > 0)[:20], np.arange(n)])
    part = replace(case, X=case.X[rows], y=case.y[rows], weight=case.weight[rows])
    few = part.batch(sparse=sparse)
    own = replace(problem, tol=0.0)
    for solver in solvers:
        trace(solver, own, few, steps=2)
