"""Solvers and functions driven by hand, below the estimators."""

import numpy as np
import scipy.sparse as sp

import oracles_linear as oracles
from kernelgrad import losses
from kernelgrad.callbacks import Callback
from kernelgrad.compute import rng
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.kernels import Polynomial
from kernelgrad.linear.base import LinearProblem, PreparedRows
from kernelgrad.solvers.contract import TrainBatch
from oracles_losses import spec

# losses of linear functions
SMOOTH = [
    losses.SquaredError(), losses.Logistic(), losses.Multinomial(), losses.SquaredHinge(),
    losses.Huber(0.4), losses.SmoothedHinge(0.6), losses.ModifiedLogistic(5.0),
]  # fmt: skip
KINKED = [losses.Hinge(), losses.EpsilonInsensitive(0.2), losses.Quantile(0.3)]
ONE_OUTPUT = [loss for loss in SMOOTH if not loss.is_multinomial] + KINKED + [losses.Absolute()]


def solve(solver, problem, batch, most, state=None):
    """Step until the solver converges; return the state and what each step told."""
    infos = []
    with single_threaded_blas():  # as the common loop does
        state = solver.init(problem, batch) if state is None else state
        for _ in range(most):
            infos.append(solver.step(problem, state, batch))
            if infos[-1].converged:
                break
    return state, infos


class At(Callback):
    """Do something after an iteration; what it returns may stop the fit."""

    def __init__(self, iteration, do):
        self.iteration, self.do = iteration, do

    def on_iteration(self, event):
        return self.do() if event.iteration == self.iteration else None


def forever(batch):
    """Yield a batch again and again, as the loop takes it."""
    while True:
        yield batch, 0.0


def signal(n=400, seed=0, noise=0.3):
    """Return rows of three columns and a target with noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + noise * rng.standard_normal(n)


def gram(problem, X):
    """Return the kernel matrix of rows, rounded to float32."""
    X = X.astype(np.float64)
    return problem.kernel.pairwise(X, X).astype(np.float32).astype(np.float64)


def linear_problem(loss, X, y, alpha, seed, **options):
    """Return the problem of a linear function of X (n, d) with targets y (n, C)."""
    return LinearProblem(
        loss=loss, kernel=Polynomial(degree=1, gamma=1.0, coef0=0.0), alpha=alpha,
        n_outputs=y.shape[1], n_features_in=X.shape[1], seed=seed,
        **{"l1_ratio": 0.0} | options,
    )  # fmt: skip


class LinearSetting:
    """A linear problem, its batch, and the same in plain arrays for the oracles."""

    def __init__(
        self, loss=None, n=300, d=6, C=1, *, seed=0, sparse=False, weights=None, alpha=1e-2,
        l1_ratio=0.0, fit_intercept=True, tol=1e-7, clusters=0, offset=0.0, X=None, Y=None,
        **options,
    ):  # fmt: skip
        loss = losses.Logistic() if loss is None else loss
        self.loss = spec(loss)
        if X is None:
            C = max(C, 3) if loss.is_multinomial else C
            X, Y = oracles.data(loss.name, n, d, C, seed, clusters)
            X[X != 0] += offset
        self.X, self.Y = X, Y
        weights = np.ones(len(X)) if weights is None else weights
        self.p = weights / weights.sum()
        self.batch = TrainBatch(sp.csr_matrix(X) if sparse else X, Y, weights)
        self.problem = linear_problem(
            loss, X, Y, alpha, 3 + seed, l1_ratio=l1_ratio, fit_intercept=fit_intercept,
            tol=tol, **options,
        )  # fmt: skip
        self.penalty = alpha * l1_ratio, alpha * (1 - l1_ratio)
        self._best = None

    def best(self):
        """Coefficients, bias and objective of the oracle's optimum, within 1e-4 at kinks."""
        if self._best is None:
            width = 0.0 if self.problem.loss.is_smooth else 1e-3
            fit = oracles.optimum(self.loss, self.X, self.Y, self.p, *self.penalty,
                                  self.problem.fit_intercept, width)  # fmt: skip
            self._best = (*fit, self.objective(*fit))
        return self._best

    def objective(self, W, b):
        return oracles.objective(self.loss, self.X, self.Y, self.p, W, b, *self.penalty)

    def excess(self, W, b):
        least = self.best()[2]
        return (self.objective(W, b) - least) / abs(least)

    def gradient(self, W, b):
        """Of the mean loss, in coefficients and bias."""
        D = oracles.slope(self.loss[0], self.Y, self.X @ W + b, self.loss[1])
        return self.X.T @ (self.p[:, None] * D), self.p @ D

    def data(self):
        return PreparedRows.build(self.problem, self.batch)

    def fit(self, solver, steps, state=None):
        return solve(solver, self.problem, self.batch, steps, state)


def draw(law, *, seed=5, first=0, n_tiles=4, d=16, tile=256, scale=1.0, columns=None):
    """Return variates of a law (n_tiles, columns, tile), for d columns or some of them."""
    columns = np.arange(d) if columns is None else np.asarray(columns)
    W = np.empty((n_tiles, len(columns), tile), np.float32)
    rng.fill_tiles(W, columns, seed, first, getattr(rng, law.upper()), scale)
    return W
