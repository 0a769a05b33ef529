r"""Posterior covariance of a Gaussian process by functional gradients (Dai et al. 2014).

With ``C`` the covariance operator of the training rows and ``alpha = sigma^2 / n``, the
posterior covariance is ``k(x, z) - (A k(x, .))(z)`` for ``A = C (C + alpha)^-1`` (Eq. 10). The
paper gives two ways: one function ``A k(x*, .)`` per test row, which is here, and the operator
of :mod:`kernelgrad.papers.dsg.operator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.threads import over_tiles, single_threaded_blas
from kernelgrad.data import ArraySource
from kernelgrad.exceptions import CapabilityError, ModelFileError
from kernelgrad.files.records import Record, or_none
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.functions.features import FeatureStream
from kernelgrad.losses import SquaredError
from kernelgrad.registry import room
from kernelgrad.search.evidence import Evidence
from kernelgrad.solvers import DSG, Problem, Solver, TrainBatch
from kernelgrad.solvers.feature_blocks import BlockCount
from kernelgrad.solvers.kernel_matrix import KernelMatrix, kernel_matrix
from kernelgrad.tasks import ScaledColumn
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Contents, Float64Array, Matrix
from kernelgrad.validation import check_int, check_real

_TEST_ROWS = 1024  # rows of one group of variances by random features
_OPERATOR = "papers.dsg.operator"  # room of the operator


def explained_covariance(
    solver: DSG, problem: Problem, stream: FeatureStream,
    batches: Callable[[], Iterator[TrainBatch]], X: Matrix, n_steps: int,
) -> Float64Array:  # fmt: skip
    r"""Return ``(A k(x_i, .))(x_j)`` for all pairs of rows of `X`, shape (m, m).

    The function of row i minimises ``mean_j (f(x_j) - k(x_i, x_j))^2 / 2 + alpha/2 ||f||^2``
    over the training rows j. All rows of a group are the outputs of one problem: they share
    batches, features and preconditioner. `problem` and `stream` are those of the posterior
    mean; `batches` returns the training batches anew for every group.
    """
    m = X.shape[0]
    result = np.empty((m, m))
    n_features = n_steps * stream.width if not problem.fixed_rows else 1
    # three copies of float32 coefficients of a group take 512 MiB
    group = max(1, min(m, 512 * 2**20 // (12 * n_features)))
    kernel, scaled = stream.kernel, stream.scaling.apply(X)
    for start in range(0, m, group):
        members = slice(start, min(m, start + group))
        one = replace(
            problem, loss=SquaredError(), n_outputs=members.stop - start, fit_intercept=False
        )
        state = None
        last: tuple[Matrix, TrainBatch] | None = None
        for batch in islice(batches(), n_steps):
            if last is None or last[0] is not batch.X:
                targets = kernel.pairwise(stream.scaling.apply(batch.X), scaled[members])
                train = TrainBatch(batch.X, targets.astype(np.float32), batch.sample_weight)
                last = (batch.X, train)
            train = last[1]
            if state is None:
                state = solver.start(one, train, stream)
                if problem.fixed_rows:  # responses are all that is wanted
                    state.iterates = BlockCount(**vars(state.iterates))
                tracker = solver.track(state, X)
            tracker.advance(solver.step(one, state, train))
        if state is None:
            raise ValueError("There was no batch of training rows.")
        result[members] = tracker.raw_prediction().T
    return result


@dataclass
class Posterior:
    """Variances of a Gaussian process: the training rows, or the operator in their place."""

    function: Any  # the posterior mean, in units of the task
    noise: float  # variances of the noise and of f a priori, in squared units of y
    signal: float
    solver: Solver[Any]  # what found the mean, in `n_steps`
    problem: Problem
    n_steps: int
    rows: TrainingRows | None = None  # None with an operator, and in files of streams' models
    operator: Any | None = None
    ridge: float | None = None  # ridge of the factor; None before the first one
    # the factorised kernel matrix, made again from the rows where it is None
    factor: KernelMatrix | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"factor": None}

    @classmethod
    def fit(
        cls, rows: TrainingRows, problem: Problem, solver: Solver[Any], function: Any,
        variances: tuple[float, float], n_steps: int, state: Any, *, by_operator: bool,
    ) -> Self:  # fmt: skip
        """Return the posterior of a fit from its rows and the state of its solver."""
        source = rows.source
        if isinstance(source, ArraySource) and source.in_memory:
            X, y, w, _ = source.read(0, source.n_rows)  # callers may change theirs
            y, w = (None if a is None else a.copy() for a in (y, w))
            rows = replace(rows, source=ArraySource(X.copy(), y, w, checked=True))
        factor = getattr(state, "matrix", None)
        ridge = None if factor is None else factor.ridge
        posterior = cls(
            function, *variances, solver, problem, n_steps, rows, None, ridge, factor
        )
        if by_operator:
            with single_threaded_blas():
                posterior.operator = room(_OPERATOR).PosteriorOperator.fitted(
                    function.stream, posterior.batches(), problem.alpha, problem.seed
                )
            posterior.rows = None
        return posterior

    def log_likelihood(self, coef: Float64Array) -> float | None:
        """Return that of all rows, from the coefficients of the mean; None without a factor."""
        if self.factor is None:
            return None
        _, y, weight = self._usable_rows()
        assert self.rows is not None
        task = self.rows.task
        assert isinstance(task, ScaledColumn)
        noise, signal = self.noise / task.scale**2, self.signal / task.scale**2
        evidence = Evidence(task.encode(y)[:, 0].astype(np.float64), weight, noise, signal)
        square = float(evidence.y @ coef[:, 0])
        value = evidence.likelihood(square, self.factor.log_determinant(), noise / signal)
        return value - evidence.total * float(np.log(task.scale))

    @property
    def is_exact(self) -> bool:
        return isinstance(self.function, SupportExpansion)

    def _usable_rows(self) -> tuple[Matrix, AnyArray, Float64Array]:
        assert self.rows is not None
        return self.rows.usable(self.rows.source.read(0, self.rows.source.n_rows))[:3]

    def batches(self) -> Iterator[TrainBatch]:
        """Yield training rows for the variance; the same batch where all rows fit in one."""
        assert self.rows is not None
        batches, _ = self.rows.batches(self.solver, self.problem.seed, 0)
        return (train for train, _ in batches)

    # -- variances -----------------------------------------------------------------------

    def variance(self, X: Matrix) -> Float64Array:
        """Return that of f at rows, (m,), in squared units of y."""
        return self.signal * np.maximum(self._unexplained(X), 0.0)

    def covariance(self, X: Matrix) -> Float64Array:
        """Return that of f at rows, (m, m), in squared units of y."""
        return self.signal * self._unexplained_pairs(X)

    def _unexplained(self, X: Matrix) -> Float64Array:
        """Return ``k(x, x) - A(x, x)``, shape (m,)."""
        if self.operator is not None:
            stream = self.function.stream
            prior = stream.kernel.diag(stream.scaling.apply(X))
            with single_threaded_blas():
                return np.asarray(prior - self.operator.explained_variance(X), np.float64)
        groups = [X[a : a + _TEST_ROWS] for a in range(0, X.shape[0], _TEST_ROWS)]
        if not self.is_exact:
            return np.concatenate([np.diag(self._unexplained_pairs(rows)) for rows in groups])
        exact = self.function.exact
        explained = np.concatenate([(self._half(rows) ** 2).sum(axis=0) for rows in groups])
        return np.asarray(exact.kernel.diag(exact.scaling.apply(X)) - explained)

    def _unexplained_pairs(self, X: Matrix) -> Float64Array:
        """Return ``k(X, X) - A(X, X)``, symmetric, shape (m, m)."""
        if self.operator is not None:
            raise CapabilityError(
                'variance="operator" gives no covariance; fit with variance="per_point".'
            )
        if self.rows is None:
            raise CapabilityError(
                "This model was loaded from a file without its training rows, which the "
                'variance needs; fit with variance="operator", or fit again.'
            )
        n = self.rows.source.n_rows
        if self.is_exact:
            home, half = self.function.exact, self._half(X)
            with single_threaded_blas():
                explained = half.T @ half
        else:
            home = self.function.stream
            fits = n <= self.solver.resolve_batch_size(n)
            problem = replace(self.problem, kernel=home.kernel, fixed_rows=fits)
            assert isinstance(self.solver, DSG)
            with single_threaded_blas():
                explained = explained_covariance(
                    self.solver, problem, home, self.batches, X, self.n_steps
                )
        scaled = home.scaling.apply(X)
        covariance = home.kernel.pairwise(scaled, scaled) - explained
        return np.asarray((covariance + covariance.T) / 2, np.float64)

    def _half(self, X: Matrix) -> Float64Array:
        """Return ``L^-1 S k(rows, X)``, (n, m); zeros before the first factorisation."""
        if self.ridge is None:  # the posterior is the prior
            return np.zeros((1, X.shape[0]))
        exact, (support, _, weight) = self.function.exact, self._usable_rows()
        with single_threaded_blas():
            rows, new = exact.prepare(support), exact.prepare(X)
            if self.factor is None:
                self.factor = self._factorised(kernel_matrix(exact, rows), weight)
            factor, half = self.factor, np.empty((len(weight), X.shape[0]))

            def solve(a: int, b: int) -> None:
                block = exact.values(rows, new.take(slice(a, b)))
                half[:, a:b] = factor.half_solve(factor.scale[:, None] * block)

            over_tiles(X.shape[0], 128, solve)
        return half

    def _factorised(self, matrix: KernelMatrix, weight: Float64Array) -> KernelMatrix:
        assert self.ridge is not None
        try:
            matrix.factor(np.sqrt(weight / weight.mean()), self.ridge)
        except np.linalg.LinAlgError:
            raise ModelFileError(
                "The training rows in the model file have no positive definite kernel "
                f"matrix plus {self.ridge:g}: it was altered or written on another "
                "machine; fit again for variances."
            ) from None
        return matrix

    # -- files ---------------------------------------------------------------------------

    def describe(self) -> Contents:
        """Return the operator or the training rows, as values and arrays."""
        if self.operator is not None:
            return {"n_blocks": self.operator.n_blocks}, {"theta": self.operator.theta}
        source = None if self.rows is None else self.rows.source
        if not isinstance(source, ArraySource) or not source.in_memory:
            return {}, {}  # a file, memory map or stream is no part of a model file
        X, y, weight = self._usable_rows()
        arrays = {"y": y, "weight": weight}
        if sp.issparse(X):
            arrays |= {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        else:
            arrays["X"] = X
        return {"n_rows": len(y), "ridge": self.ridge}, arrays

    def restore(self, record: Record, task: ScaledColumn, width: int) -> None:
        """Take back what :meth:`describe` gave."""
        self.ridge = record.take("ridge", or_none(partial(check_real, low=0.0)), None)
        if "n_blocks" in record:
            theta = record.array("theta", "operator", "operator")
            self.operator = room(_OPERATOR).PosteriorOperator.restored(
                self.function.stream, record.take("n_blocks", check_int), theta,
                self.problem.alpha, self.problem.seed,
            )  # fmt: skip
        elif "n_rows" in record:
            record.sizes["n"] = record.take("n_rows", check_int)
            if "X" in record:
                X = record.array("X", "n", "d", kinds="biuf")
            else:
                X = record.csr("", "n", width)
            y = record.array("y", "n", kinds="biuf")
            weight = record.array("weight", "n", least=0)
            source = ArraySource(X, y, weight, checked=True)
            self.rows = TrainingRows(source, task, is_internal=True)
