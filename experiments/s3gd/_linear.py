"""Linear problems: rows of unit size, their objective and its least value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.datasets.archives import csr_part, open_archive, standardised
from scipy.optimize import minimize

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

    def batch(self) -> TrainBatch:
        """Return all training rows."""
        return TrainBatch(self.X, self.y[:, None], self.weight)

    def head(self, n: int) -> Case:
        """Return the case of the first training rows."""
        return replace(self, X=self.X[:n], y=self.y[:n], weight=self.weight[:n])

    def problem(self, alpha: float, **settings: Any) -> LinearProblem:
        """Return the problem of this penalty, without an intercept."""
        return LinearProblem(
            loss=get_loss("logistic", task="classification", n_classes=2),
            kernel=Polynomial(degree=1, gamma=1.0, coef0=0.0),
            alpha=alpha,
            n_outputs=1,
            n_features_in=self.X.shape[1],
            fit_intercept=False,
            **settings,
        )


def load(name: str, *, quick: bool, rows: int | None) -> Case:
    """Return the first rows of a set: the largest class against the rest, or large targets."""
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
    if min(share, 1 - share) < RARE:
        weights = {1.0: 0.5 / share, -1.0: 0.5 / (1 - share)}
    w, w_test = (np.where(a > 0, weights[1.0], weights[-1.0]) for a in (y, y_test))
    return Case(name, X / size, y, w, X_test / size, y_test, w_test)


def minimum(problem: LinearProblem, batch: TrainBatch) -> tuple[float, Any]:
    """Return the least objective and its coefficients, by L-BFGS in float64."""
    X, Y = batch.X, batch.y
    p = batch.sample_weight / batch.sample_weight.sum()

    def smooth(w: Any) -> tuple[float, Any]:
        f = np.asarray(X @ w)[:, None]
        slope = p * problem.loss.gradient(Y, f)[:, 0]
        value = float(p @ problem.loss.value(Y, f)) + 0.5 * problem.l2 * float(w @ w)
        return value, X.T @ slope + problem.l2 * w

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 30}
    start = np.zeros(X.shape[1])
    found = minimize(smooth, start, jac=True, method="L-BFGS-B", options=options)
    return float(found.fun), found.x


def warm_up(solver: Any, case: Case, problem: LinearProblem) -> None:
    """Compile the loops of a solver on a few rows of the case."""
    n = min(200, len(case.y))
    rows = np.unique(np.r_[np.flatnonzero(case.y > 0)[:20], np.arange(n)])
    few = replace(case, X=case.X[rows], y=case.y[rows], weight=case.weight[rows]).batch()
    data = PreparedRows.build(problem, few)
    with single_threaded_blas():
        solver.check()
        state = solver.init(problem, few)
        for _ in range(2):
            solver.step(problem, state, few)
        coef, bias = solver.solution(state)
        evaluate(problem, data, data.native(coef), bias)
