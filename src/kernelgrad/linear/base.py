"""What linear solvers share: problem, rows, state, objective, optimality, and their steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from kernelgrad.compute.rng import draws
from kernelgrad.compute.rows import Csr, Rows, as_rows
from kernelgrad.data.sampling import random_rows
from kernelgrad.functions.expansions import LinearExpansion
from kernelgrad.linear import loops
from kernelgrad.linear.loops import native
from kernelgrad.losses import LOSSES, Loss
from kernelgrad.solvers import contract
from kernelgrad.types import Float64Array, IntArray
from kernelgrad.validation import CapabilityError

STREAM_ROWS = 4096  # rows of a batch from a stream, and of the shortest pass that steps fall by
_FIXED_ROWS = 2**24  # rows in memory that are one batch; those on disk come in shuffled parts
_POWER_STEPS, _SPECTRUM_ROWS = 12, 4096  # enough for some percent of the largest eigenvalue
_TAG = 0x6C696E  # tag of the draws
_EPSILON = 1e-12  # relative rounding of a sum over many rows
_TINY = 1e-300


@dataclass(frozen=True)
class LinearProblem(contract.Problem):
    """``min_W sum_i p_i l(y_i, x_i W + b) + l1 |W|_1 + l2/2 |W|^2`` with p of sum 1.

    ``l1 = alpha l1_ratio`` and ``l2 = alpha (1 - l1_ratio)``. A fit has converged where the
    largest entry of the least subgradient is at most `tol` times that at zero.
    """

    l1_ratio: float = 0.0
    tol: float = 1e-4

    @property
    def l1(self) -> float:
        return self.alpha * self.l1_ratio

    @property
    def l2(self) -> float:
        return self.alpha * (1.0 - self.l1_ratio)

    def penalty(self, coef: Float64Array) -> float:
        """Return ``l1 |W|_1 + l2 / 2 |W|^2``."""
        flat = coef.ravel()
        with np.errstate(over="ignore"):  # a step too long is named elsewhere
            return float(self.l1 * np.abs(flat).sum() + 0.5 * self.l2 * (flat @ flat))


class ColumnMoments(NamedTuple):
    """Stored entries, weighted means and standard deviations of columns, all (d,).

    ``scale`` is 1 for columns that are constant, else the standard deviation.
    """

    stored: IntArray
    mean: Float64Array
    spread: Float64Array
    scale: Float64Array


@dataclass
class PreparedRows:
    """Rows as the loops want them, with their targets and what is known of them.

    ``curvature`` is the largest second derivative of the loss; where it has kinks,
    ``E[slope^2] / E[loss]`` at the best constant, which is right at the scale of the targets.
    """

    batch: contract.TrainBatch
    rows: Rows
    Y: Float64Array  # (n, C)
    share: Float64Array  # weights over their sum, p, (n,)
    loss: Loss
    code: int  # the loss's in compiled loops
    numbers: Float64Array  # parameters of the loss, one for each output, (C,)
    curvature: float
    # the evaluation at the coefficients of the state, if the last step computed it
    here: Evaluation | None = field(default=None, repr=False)
    known_spectrum: float | None = field(default=None, repr=False)
    _columns: ColumnMoments | None = field(default=None, repr=False)

    @classmethod
    def build(cls, problem: contract.Problem, batch: contract.TrainBatch) -> PreparedRows:
        loss = problem.loss
        assert loss.code is not None
        weight = np.asarray(batch.sample_weight, np.float64)
        return cls(
            batch=batch, rows=as_rows(batch.X), Y=np.ascontiguousarray(batch.y, np.float64),
            share=weight / weight.sum(), loss=loss, code=loss.code,
            numbers=loss.params(problem.n_outputs), curvature=loss.smoothness or 1.0,
        )  # fmt: skip

    def copy(self) -> PreparedRows:
        return replace(self)

    @property
    def n(self) -> int:
        return len(self.Y)

    @property
    def d(self) -> int:
        return int(self.batch.X.shape[1])

    @property
    def is_sparse(self) -> bool:
        return isinstance(self.rows, Csr)

    @property
    def row_size(self) -> float:
        """Mean number of stored entries of a row."""
        return self.rows[0].size / float(max(1, self.n))

    def native(self, coef: Float64Array) -> Float64Array:
        """Return a copy of coefficients (d, C) in the layout of the loops, or of those back."""
        return np.asarray(native(self.rows, coef))

    def responses(self, W: Float64Array, b: Float64Array) -> Float64Array:
        """Return ``X W + b``, (n, C)."""
        return loops.all_responses(self.rows, self.n, W, b)

    def gradient(self, G: Float64Array) -> Float64Array:
        """Return ``sum_i x_i G_i`` for G (n, C), in the layout of the loops."""
        return loops.column_sums(self.rows, self.d, G)

    def squares(self) -> Float64Array:
        """Return ``|x_i|^2``, (n,)."""
        out = np.empty(self.n)
        loops.row_squares(self.rows, out)
        return out

    def longest(self) -> float:
        """Return the length of the longest row over that of the median one that is not 0."""
        squares = self.squares()[self.share > 0]
        squares = squares[squares > 0]
        return float(np.sqrt(squares.max() / np.median(squares))) if len(squares) else 0.0

    def losses(self, U: Float64Array) -> tuple[float, Float64Array]:
        """Return ``sum_i p_i l(y_i, u_i)`` and the derivatives (n, C)."""
        return loops.losses(self.code, self.numbers, self.Y, U, self.share)

    def descend(
        self, problem: LinearProblem, W: Float64Array, b: Float64Array, order: IntArray,
        share: Float64Array, eta: float, reference: Any = None,
    ) -> float:  # fmt: skip
        """Take proximal steps in place; return the sum of ``share`` times losses seen.

        See :func:`~kernelgrad.linear.loops.descend`; without a `reference` they are
        plain stochastic gradients.
        """
        r = reference
        if r is None:
            r = loops.RowReferences(np.zeros_like(W), np.zeros_like(b), np.zeros((0, 0)))
        prox = loops.Prox.make(min(len(order), r.every), eta, problem.l1, problem.l2)
        tail = self.Y, W, b, order, share, prox, problem.fit_intercept, r
        return float(loops.descend(self.code, self.numbers, self.rows, *tail))

    @cached_property
    def is_uniform(self) -> bool:
        return bool(np.ptp(self.share) <= 1e-12 * self.share[0])

    @cached_property
    def cumulative(self) -> Float64Array:
        return np.cumsum(self.share)

    def columns(self, fit_bias: bool) -> ColumnMoments:
        """Return the moments of the columns; without a bias their means count as zero."""
        if self._columns is None:
            stored = np.zeros(self.d, np.int64)
            mean, spread = np.zeros(self.d), np.zeros(self.d)
            loops.moments(self.rows, self.share, fit_bias, stored, mean, spread)
            varies = spread > _EPSILON * np.abs(mean)
            self._columns = ColumnMoments(stored, mean, spread, np.where(varies, spread, 1.0))
        return self._columns

    def sample(self, rng: np.random.Generator) -> PreparedRows:
        if self.n <= _SPECTRUM_ROWS:
            return self
        at = random_rows(self.n, _SPECTRUM_ROWS, rng)
        X, w = self.batch.X[at], self.share[at]
        if not w.sum() > 0:
            w = np.ones(len(at))
        batch = contract.TrainBatch(X, self.batch.y[at], w)
        return replace(self, batch=batch, rows=as_rows(X), Y=self.Y[at], share=w / w.sum())

    def spectrum(self, fit_bias: bool, seed: int) -> float:
        """Return the largest eigenvalue of ``sum_i p_i x_i x_i^T``, on at most 4,096 rows.

        By power iteration; with a column of ones if there is a bias. A few percent too small,
        as such estimates are.
        """
        if self.known_spectrum is None:
            rng = draws(seed, _TAG, 0)
            part = self.sample(rng)
            v = rng.standard_normal((self.d, 1))
            b = rng.standard_normal(1) * float(fit_bias)
            value = 0.0
            for _ in range(_POWER_STEPS):
                norm = float(np.sqrt((v**2).sum() + (b**2).sum()))
                if not norm > 0:
                    break
                U = part.responses(part.native(v / norm), b / norm) * part.share[:, None]
                v = part.native(part.gradient(U))
                b = U.sum(axis=0) * float(fit_bias)
                value = float(np.sqrt((v**2).sum() + (b**2).sum()))
            self.known_spectrum = value
        return self.known_spectrum

    def batch_smoothness(self, batch_size: int, fit_bias: bool, seed: int) -> float:
        r"""Return the expected smoothness of mini-batches of p rows.

        .. math:: L(p) = \frac{n - p}{p (n - 1)} \max_i L_i + \frac{n (p - 1)}{p (n - 1)} L

        with L_i of the rows and L of their mean (Gower et al., 2019): between the largest row
        for p = 1 and the full gradient for p = n.
        """
        n, p = self.n, min(batch_size, self.n)
        norms = self.squares()[self.share > 0] + float(fit_bias)
        top = self.curvature * float(norms.max(initial=0.0))
        mean = self.curvature * self.spectrum(fit_bias, seed)
        if n == 1:
            return top
        if not self.is_uniform:  # rows are drawn with replacement
            return top / p + (p - 1) / p * mean
        return (n - p) / (p * (n - 1)) * top + n * (p - 1) / (p * (n - 1)) * mean


def least_subgradient(W: Float64Array, g: Float64Array, problem: LinearProblem) -> Float64Array:
    """Return the sizes of the least subgradients, for the gradient g of the loss at W."""
    g = g + problem.l2 * W
    at_zero = np.maximum(np.abs(g) - problem.l1, 0.0)
    return np.where(W != 0, np.abs(g + problem.l1 * np.sign(W)), at_zero)


@dataclass(frozen=True)
class Evaluation:
    loss: float
    objective: float
    slopes: Float64Array  # (n, C)
    gradient: Float64Array  # the mean loss's, in the layout of the loops
    gradient_bias: Float64Array  # (C,)

    def optimality(self, problem: LinearProblem, data: PreparedRows, W: Float64Array) -> float:
        """Return the largest entry of the least subgradient of the objective.

        That of the columns as they are from their means, if there is a bias, each divided by
        the column's standard deviation: it depends on neither units nor offsets.
        """
        g, size = self._seen_from_means(problem, data)
        least = least_subgradient(W, g, problem) / size
        bias = self.gradient_bias if problem.fit_intercept else np.zeros(1)
        return float(max(least.max(initial=0.0), np.abs(bias).max(initial=0.0)))

    def steepness(self, problem: LinearProblem, data: PreparedRows) -> float:
        """Return the largest entry of the gradient as :meth:`optimality` scales it.

        At least what rounding makes of it.
        """
        g, size = self._seen_from_means(problem, data)
        least = _EPSILON * float(data.share @ np.abs(self.slopes).sum(axis=1))
        return max(float((np.abs(g) / size).max(initial=0.0)), least)

    def _seen_from_means(
        self, problem: LinearProblem, data: PreparedRows
    ) -> tuple[Float64Array, Float64Array]:
        columns = data.columns(problem.fit_intercept)
        shift = data.native(np.outer(columns.mean, self.gradient_bias))
        return self.gradient - shift, data.native(columns.scale[:, None])


def evaluate(
    problem: LinearProblem, data: PreparedRows, W: Float64Array, b: Float64Array
) -> Evaluation:
    """Return objective, derivatives and gradient at coefficients in the layout of the loops."""
    loss, slopes = data.losses(data.responses(W, b))
    weighted = slopes * data.share[:, None]
    return Evaluation(
        loss=loss, objective=loss + problem.penalty(W), slopes=slopes,
        gradient=data.gradient(weighted), gradient_bias=weighted.sum(axis=0),
    )  # fmt: skip


@dataclass(kw_only=True)
class LinearState(contract.State):
    coef: Float64Array = contract.sized("d", "C")
    bias: Float64Array = contract.sized("C")
    # the rows', which a continued fit must bring again; empty for solvers of streams
    digest: bytes = b""
    first: float = np.inf  # largest entry of the gradient at zero: the tolerance's scale
    first_loss: float = np.inf  # mean loss of the best constant, on the first batch
    rows_unseen: int = 0  # visited since objective and gradient were last computed
    curvature: float = 0.0  # the loss's, as the first batch shows it; 0 where it is known
    spectrum: float = 0.0  # the first batch's of a stream; 0 without
    data: PreparedRows | None = contract.transient()  # until the rows come again


L = TypeVar("L", bound=LinearState)


class LinearSolver(contract.Solver[L], Generic[L]):
    """Base of the linear solvers.

    ``takes_kinks`` tells whether it takes losses without a bounded second derivative;
    ``searches`` whether it shortens steps until they gain, so that a second derivative need
    not have a bound; ``takes_l1`` whether it takes an L1 part of the penalty, ``needs_l2``
    whether it needs an L2 part.
    """

    part: ClassVar[str] = "linear solver"
    requires: ClassVar[frozenset[str]] = frozenset()
    takes_kinks: ClassVar[bool] = False
    searches: ClassVar[bool] = False
    takes_l1: ClassVar[bool] = True
    needs_l2: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    state_class: ClassVar[type[Any]] = LinearState

    @classmethod
    def takes(cls, loss: Loss) -> bool:
        if loss.code is None or not {"classification", "regression"} & loss.tasks:
            return False
        takes = loss.is_smooth if cls.searches else loss.smoothness is not None
        return cls.takes_kinks or takes

    def check_loss(self, loss: Loss) -> None:
        """Raise CapabilityError unless the solver takes the loss."""
        if not self.takes(loss):
            names = sorted(name for name, cls in LOSSES.items() if self.takes(cls()))
            raise CapabilityError(
                f"solver {self.name!r} does not take the loss {loss.name!r}; choose one of "
                f"{', '.join(names)}, or another solver."
            )

    def check_problem(self, problem: contract.Problem) -> None:
        """Raise if loss or penalty are not for this solver."""
        own = as_linear(problem)
        self.check_loss(problem.loss)
        if own.l1 > 0 and not self.takes_l1:
            raise CapabilityError(
                f"solver {self.name!r} has no L1 penalty; use penalty='l2', or a solver with "
                "proximal steps such as 'svrg' or 's3gd'."
            )
        if self.needs_l2 and not own.l2 > 0:
            raise ValueError(
                f"solver {self.name!r} needs an L2 penalty, got alpha={problem.alpha!r} with "
                f"l1_ratio={own.l1_ratio!r}; choose a small positive alpha such as "
                "1 / n_samples, and l1_ratio below 1."
            )

    def resolve_batch_size(self, n_rows: int | None) -> int:
        if n_rows is None:
            return STREAM_ROWS
        return min(n_rows, _FIXED_ROWS) if self.streams else n_rows

    def init(self, problem: contract.Problem, batch: contract.TrainBatch) -> L:
        self.check_problem(problem)
        own = as_linear(problem)
        bias = contract.first_constant(problem, batch)
        data = PreparedRows.build(problem, batch)
        coef = np.zeros((problem.n_features_in, problem.n_outputs))
        start = evaluate(own, data, data.native(coef), bias)
        curvature = 0.0
        if problem.loss.smoothness is None:
            slope = float(data.share @ (start.slopes**2).sum(axis=1))
            curvature = slope / start.loss if slope > 0 and start.loss > 0 else 1.0
            data.curvature = curvature
        state: L = self.state_class(
            coef=coef,
            bias=bias,
            digest=b"" if self.streams else contract.batch_digest(problem, batch),
            first=start.steepness(own, data),
            curvature=curvature,
            first_loss=start.loss,
            data=data,
        )
        return state

    def _attach(
        self, problem: contract.Problem, state: L, batch: contract.TrainBatch
    ) -> PreparedRows:
        """Return the prepared rows of `batch`."""
        data = state.data
        if data is not None and data.batch is batch:
            return data
        if not self.streams:
            digest, what = contract.batch_digest(problem, batch), "what it knows"
            contract.check_same_rows(self, state, digest, batch.n_rows, what, "'sgd'")
        data = state.data = PreparedRows.build(problem, batch)
        if state.curvature > 0:
            data.curvature = state.curvature
        if state.spectrum > 0 and not problem.fixed_rows:
            data.known_spectrum = state.spectrum
        return data

    def _store(
        self, state: L, data: PreparedRows, W: Float64Array, b: Float64Array, n_rows: int
    ) -> None:
        """Make W and b the coefficients after `n_rows` visits; raise if the steps diverged."""
        if not (np.isfinite(W).all() and np.isfinite(b).all()):
            raise ValueError(
                f"solver {self.name!r} diverged in iteration {state.iteration + 1}; give a "
                "smaller step_size, or leave it at 'auto'."
            )
        data.here = None
        state.coef, state.bias = data.native(W), b
        state.iteration += 1
        state.rows_seen += n_rows

    def solution(self, state: L) -> tuple[Float64Array, Float64Array]:
        """Return coefficients (d, C) and bias (C,) of the result."""
        return state.coef, state.bias

    def finish(
        self, problem: contract.Problem, state: L, batch: contract.TrainBatch
    ) -> dict[str, Any] | None:
        if state.data is None:
            return None
        own, data = as_linear(problem), self._attach(problem, state, batch)
        coef, bias = self.solution(state)
        W = data.native(coef)
        end = evaluate(own, data, W, bias)
        return {
            "objective": end.objective,
            "optimality": end.optimality(own, data, W) / max(state.first, _TINY),
            "rows": data.n,
            "longest": data.longest(),
        }

    def expansion(self, state: L) -> LinearExpansion:
        coef, bias = self.solution(state)
        return LinearExpansion(coef.copy(), bias.copy())


def as_linear(problem: contract.Problem) -> LinearProblem:
    assert isinstance(problem, LinearProblem)
    return problem
