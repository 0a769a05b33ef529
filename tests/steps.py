"""Solvers and functions driven by hand, below the estimators."""

import numpy as np

from kernelgrad.compute import rng
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.functions.expansions import RandomFeatureExpansion
from kernelgrad.kernels import Polynomial
from kernelgrad.linear.base import LinearProblem


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


def draw(law, *, seed=5, first=0, n_tiles=4, d=16, tile=256, scale=1.0, columns=None):
    """Return variates of a law (n_tiles, columns, tile), for d columns or some of them."""
    columns = np.arange(d) if columns is None else np.asarray(columns)
    W = np.empty((n_tiles, len(columns), tile), np.float32)
    rng.fill_tiles(W, columns, seed, first, getattr(rng, law.upper()), scale)
    return W


def expansion(features, n_blocks=3, C=2, seed=1):
    """Return a function on a stream of features, with random coefficients."""
    f = RandomFeatureExpansion(features, C)
    shape = (features.planes, n_blocks * features.block_size, C)
    f.coef = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return f
