"""What linear solvers share: problem, rows, state, objective and optimality."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad._validation import CapabilityError, check_int
from kernelgrad.functions.expansions import LinearExpansion
from kernelgrad.losses import LOSSES, Loss
from kernelgrad.losses import scalar as linear
from kernelgrad.solvers.base import (
    Problem,
    RecomputedTracker,
    Solver,
    State,
    StepInfo,
    Tracker,
    TrainBatch,
    batch_digest,
    draws,
)
from kernelgrad.solvers.linear._dense import DenseRows
from kernelgrad.solvers.linear._sparse import SparseRows

_POWER_STEPS = 12
_SPECTRUM_ROWS = 4096
_TAG = 0x6C696E
_EPSILON = 1e-12
STREAM_ROWS = 4096
_FIXED_ROWS = 2**24  # rows in memory that are one batch; those on disk come in shuffled parts

CODES = frozenset(
    {
        linear.EPSILON, linear.HINGE, linear.HUBER, linear.LOGISTIC, linear.MULTINOMIAL,
        linear.QUANTILE, linear.SMOOTHED_HINGE, linear.SQUARED, linear.SQUARED_HINGE,
    }
)  # fmt: skip
_CURVATURE = {
    linear.SQUARED: 1.0,
    linear.LOGISTIC: 0.25,
    linear.MULTINOMIAL: 0.5,
    linear.SQUARED_HINGE: 2.0,
    linear.HUBER: 1.0,
}


@dataclass(frozen=True)
class LinearProblem(Problem):
    r"""``min_W sum_i p_i l(y_i, x_i W + b) + l1 |W|_1 + l2/2 |W|^2`` with p of sum 1.

    Attributes
    ----------
    l1_ratio : float in [0, 1]
        ``l1 = alpha l1_ratio`` and ``l2 = alpha (1 - l1_ratio)``.
    tol : float
        Converged where the largest entry of the least subgradient is at most this times that
        at zero.
    """

    l1_ratio: float = 0.0
    tol: float = 1e-4

    @property
    def l1(self) -> float:
        """Weight of the sum of absolute coefficients."""
        return self.alpha * self.l1_ratio

    @property
    def l2(self) -> float:
        """Weight of half the sum of squared coefficients."""
        return self.alpha * (1.0 - self.l1_ratio)

    def penalty(self, coef: Float64Array) -> float:
        """Return R(W)."""
        flat = coef.ravel()
        with np.errstate(over="ignore"):  # a step too long is named elsewhere
            return float(self.l1 * np.abs(flat).sum() + 0.5 * self.l2 * (flat @ flat))


def loss_names(codes: frozenset[int]) -> list[str]:
    """Return the names of the losses with one of these codes."""
    return sorted(cls.name for cls in LOSSES.values() if cls.code in codes)


def loss_kind(loss: Loss, n_outputs: int) -> tuple[int, Float64Array]:
    """Return the kind of the loops for `loss`, and the number of each output (C,)."""
    if loss.code not in CODES:
        raise CapabilityError(
            f"the linear solvers have no loops for loss {loss.name!r}; choose one of "
            f"{', '.join(loss_names(CODES))}."
        )
    return loss.code, loss.params(n_outputs)


@dataclass
class LinearMemory:
    """Rows as the loops want them.

    Attributes
    ----------
    batch : TrainBatch
    rows : DenseRows or SparseRows
    Y : float64 array (n, C)
    share : float64 array (n,)
        Weights over their sum, p.
    kind : int
    numbers : float64 array (C,)
    curvature : float
        Largest second derivative of the loss; where it has kinks, ``E[slope^2] / E[loss]`` at
        the best constant, which is right at the scale of the targets.
    here : Evaluation or None
        At the coefficients of the state, where the last step computed it.
    """

    batch: TrainBatch
    rows: Any
    Y: Float64Array
    share: Float64Array
    kind: int
    numbers: Float64Array
    curvature: float
    here: Evaluation | None = field(default=None, repr=False)
    _spectrum: float | None = field(default=None, repr=False)
    _uniform: bool | None = field(default=None, repr=False)
    _cumulative: Float64Array | None = field(default=None, repr=False)
    _spread: tuple[Float64Array, Float64Array] | None = field(default=None, repr=False)

    @classmethod
    def build(cls, problem: Problem, batch: TrainBatch) -> LinearMemory:
        """Prepare the rows of a batch."""
        kind, numbers = loss_kind(problem.loss, problem.n_outputs)
        if kind == linear.SMOOTHED_HINGE:
            curvature = 1.0 / float(numbers.min())
        else:
            curvature = _CURVATURE.get(kind, 1.0)
        weight = np.asarray(batch.sample_weight, np.float64)
        sparse = sp.issparse(batch.X)
        return cls(
            batch=batch,
            rows=SparseRows(batch.X) if sparse else DenseRows(np.asarray(batch.X)),
            Y=np.ascontiguousarray(batch.y, np.float64),
            share=weight / weight.sum(),
            kind=kind,
            numbers=numbers,
            curvature=curvature,
        )

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.Y)

    @property
    def is_uniform(self) -> bool:
        """Whether all rows weigh the same."""
        if self._uniform is None:
            self._uniform = bool(np.ptp(self.share) <= 1e-12 * self.share[0])
        return self._uniform

    @property
    def cumulative(self) -> Float64Array:
        """Running sum of the shares, (n,)."""
        if self._cumulative is None:
            self._cumulative = np.cumsum(self.share)
        return self._cumulative

    def spread(self, fit_bias: bool) -> tuple[Float64Array, Float64Array]:
        """Return mean and standard deviation of each column, (d,) each.

        Without a bias the mean counts as zero. The scale is 1 where nothing varies.
        """
        if self._spread is None:
            square = self.rows.column_squares(self.share)
            mean = np.zeros(self.rows.d)
            if fit_bias:
                mean = self.rows.public(self.rows.gradient(self.share[:, None]))[:, 0]
            variance = square - mean**2
            size = np.sqrt(np.where(variance > _EPSILON * square, variance, 1.0))
            self._spread = mean, size
        return self._spread

    def row_smoothness(self, fit_bias: bool) -> Float64Array:
        """Return the Lipschitz constant of each row's gradient, (n,)."""
        norms: Float64Array = self.rows.squared_norms()
        return self.curvature * (norms + float(fit_bias))

    def known_spectrum(self, value: float) -> None:
        """Take the eigenvalue that another batch had."""
        self._spectrum = value

    def spectrum(self, fit_bias: bool, seed: int) -> float:
        """Return the largest eigenvalue of ``sum_i p_i x_i x_i^T``, on at most 4,096 rows.

        By power iteration; with a column of ones if there is a bias. A few percent too small,
        as such estimates are.
        """
        if self._spectrum is None:
            rng = draws(seed, _TAG, 0)
            part = self
            if self.n > _SPECTRUM_ROWS:
                at = np.sort(rng.choice(self.n, _SPECTRUM_ROWS, replace=False))
                X, w = self.batch.X[at], self.share[at]
                if not w.sum() > 0:
                    w = np.ones(len(at))
                made = SparseRows(X) if sp.issparse(X) else DenseRows(np.asarray(X))
                part = replace(self, rows=made, Y=self.Y[at], share=w / w.sum())
            v = rng.standard_normal((self.rows.d, 1))
            b = rng.standard_normal(1) * float(fit_bias)
            found = 0.0
            for _ in range(_POWER_STEPS):
                norm = float(np.sqrt((v**2).sum() + (b**2).sum()))
                if not norm > 0:
                    break
                W, b = part.rows.native(v / norm), b / norm
                U = part.rows.responses(W, b) * part.share[:, None]
                v = part.rows.public(part.rows.gradient(U))
                b = U.sum(axis=0) * float(fit_bias)
                found = float(np.sqrt((v**2).sum() + (b**2).sum()))
            self._spectrum = found
        return self._spectrum

    def batch_smoothness(self, batch_size: int, fit_bias: bool, seed: int) -> float:
        r"""Return the expected smoothness of mini-batches of p rows.

        .. math:: L(p) = \frac{n - p}{p (n - 1)} \max_i L_i + \frac{n (p - 1)}{p (n - 1)} L

        with L_i of the rows and L of their mean (Gower et al., 2019): between the largest row
        for p = 1 and the full gradient for p = n.
        """
        n, p = self.n, min(batch_size, self.n)
        top = float(self.row_smoothness(fit_bias)[self.share > 0].max(initial=0.0))
        mean = self.curvature * self.spectrum(fit_bias, seed)
        if n == 1:
            return top
        if not self.is_uniform:  # rows are drawn with replacement
            return top / p + (p - 1) / p * mean
        return (n - p) / (p * (n - 1)) * top + n * (p - 1) / (p * (n - 1)) * mean


@dataclass(frozen=True)
class Evaluation:
    """Objective and gradient of all rows at one point.

    Attributes
    ----------
    loss, objective : float
    slopes : float64 array (n, C)
    gradient : float64 array in the layout of the loops
        Of the mean loss.
    gradient_bias : float64 array (C,)
    """

    loss: float
    objective: float
    slopes: Float64Array
    gradient: Float64Array
    gradient_bias: Float64Array

    def optimality(
        self, problem: LinearProblem, memory: LinearMemory, W: Float64Array
    ) -> float:
        """Return the largest entry of the least subgradient of the objective.

        That of the columns as they are from their means, if there is a bias, each divided by
        the column's standard deviation: it depends on neither units nor offsets.
        """
        g, size = self._seen_from_means(problem, memory)
        g = g + problem.l2 * W
        t = problem.l1
        least = np.where(W != 0, np.abs(g + t * np.sign(W)), np.maximum(np.abs(g) - t, 0.0))
        least = least / size
        bias = self.gradient_bias if problem.fit_intercept else np.zeros(1)
        return float(max(least.max(initial=0.0), np.abs(bias).max(initial=0.0)))

    def steepness(self, problem: LinearProblem, memory: LinearMemory) -> float:
        """Return the largest entry of the gradient as :meth:`optimality` scales it.

        At least what rounding makes of it.
        """
        g, size = self._seen_from_means(problem, memory)
        least = _EPSILON * float(memory.share @ np.abs(self.slopes).sum(axis=1))
        return max(float((np.abs(g) / size).max(initial=0.0)), least)

    def _seen_from_means(
        self, problem: LinearProblem, memory: LinearMemory
    ) -> tuple[Float64Array, Float64Array]:
        """Return the gradient of centred columns and the scale of each column."""
        mean, size = memory.spread(problem.fit_intercept)
        shift = memory.rows.native(np.outer(mean, self.gradient_bias))
        return self.gradient - shift, memory.rows.native(size[:, None])


def evaluate(
    problem: LinearProblem, memory: LinearMemory, W: Float64Array, b: Float64Array
) -> Evaluation:
    """Return objective, derivatives and gradient at coefficients in the layout of the loops."""
    U = memory.rows.responses(W, b)
    loss, slopes = linear.losses(memory.kind, memory.numbers, memory.Y, U, memory.share)
    weighted = slopes * memory.share[:, None]
    return Evaluation(
        loss=loss,
        objective=loss + problem.penalty(W),
        slopes=slopes,
        gradient=memory.rows.gradient(weighted),
        gradient_bias=weighted.sum(axis=0),
    )


@dataclass(kw_only=True)
class LinearState(State):
    """What a linear solver carries.

    Attributes
    ----------
    coef : float64 array (d, C)
    bias : float64 array (C,)
    digest : bytes
        Of the rows, which a continued fit must bring again; empty for solvers of streams.
    first : float
        Largest entry of the gradient at zero: the scale of the tolerance.
    curvature : float
        Of the loss, as the first batch shows it; 0 where it is known.
    spectrum : float
        Of the first batch of a stream; 0 without.
    first_loss : float
        Mean loss of the best constant, on the first batch.
    rows_unseen : int
        Rows visited since objective and gradient were last computed.
    memory : LinearMemory or None
        None after `release`, in pickles and in files, until the rows come again.
    """

    coef: Float64Array
    bias: Float64Array
    digest: bytes = b""
    first: float = np.inf
    first_loss: float = np.inf
    rows_unseen: int = 0
    curvature: float = 0.0
    spectrum: float = 0.0
    memory: LinearMemory | None = field(default=None, repr=False)

    def copy(self) -> Self:
        """Return a state with its own arrays; the rows are shared."""
        twin = replace(self)
        if self.memory is not None:
            twin.memory = replace(self.memory)  # each knows the gradient at its own point
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(twin, name, value.copy())
        return twin

    def release(self) -> None:
        """Let go of the rows: the next step brings them again."""
        self.memory = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"memory": None}

    @property
    def rows(self) -> Any:
        """The prepared rows; only between a step and `release`."""
        assert self.memory is not None
        return self.memory.rows


L = TypeVar("L", bound=LinearState)


class LinearSolver(Solver[L], Generic[L]):
    """Base of the linear solvers.

    ``losses`` are the kinds that the solver takes, ``takes_l1`` whether it takes an L1 part of
    the penalty, ``needs_l2`` whether it needs an L2 part.
    """

    requires: ClassVar[frozenset[str]] = frozenset()
    losses: ClassVar[frozenset[int]] = frozenset(
        {
            linear.SQUARED, linear.LOGISTIC, linear.MULTINOMIAL, linear.SQUARED_HINGE,
            linear.HUBER, linear.SMOOTHED_HINGE,
        }
    )  # fmt: skip
    takes_l1: ClassVar[bool] = True
    needs_l2: ClassVar[bool] = False
    streams: ClassVar[bool] = False
    _state_class: Any = LinearState

    def check_problem(self, problem: Problem) -> None:
        """Raise if loss or penalty are not for this solver.

        Raises
        ------
        CapabilityError
            The loss or an L1 penalty cannot be treated.
        ValueError
            The solver needs an L2 penalty and there is none.
        """
        assert isinstance(problem, LinearProblem)
        kind, _ = loss_kind(problem.loss, problem.n_outputs)
        if kind not in self.losses:
            names = loss_names(self.losses)
            raise CapabilityError(
                f"solver {self.name!r} does not take the loss {problem.loss.name!r}; choose "
                f"one of {', '.join(names)}, or another solver."
            )
        if problem.l1 > 0 and not self.takes_l1:
            raise CapabilityError(
                f"solver {self.name!r} has no L1 penalty; use penalty='l2', or a solver with "
                "proximal steps such as 'saga', 'svrg' or 's3gd'."
            )
        if self.needs_l2 and not problem.l2 > 0:
            raise ValueError(
                f"solver {self.name!r} needs an L2 penalty, got alpha={problem.alpha!r} with "
                f"l1_ratio={problem.l1_ratio!r}; choose a small positive alpha such as "
                "1 / n_samples, and l1_ratio below 1."
            )

    def resolve_batch_size(self, n_rows: int | None) -> int:
        """Return all rows that fit one batch; None asks about a stream."""
        if n_rows is None:
            return STREAM_ROWS
        return min(n_rows, _FIXED_ROWS) if self.streams else n_rows

    def _start(self, problem: Problem, batch: TrainBatch) -> dict[str, Any]:
        """Return what every state starts from: zero coefficients and the best constant."""
        self.check_problem(problem)
        bias = np.zeros(problem.n_outputs)
        if problem.fit_intercept:
            bias = problem.loss.intercept(batch.y, batch.sample_weight)
        memory = LinearMemory.build(problem, batch)
        coef = np.zeros((problem.n_features_in, problem.n_outputs))
        found = evaluate(as_linear(problem), memory, memory.rows.native(coef), bias)
        curvature = 0.0
        if memory.kind in linear.KINKED:
            slope = float(memory.share @ (found.slopes**2).sum(axis=1))
            curvature = slope / found.loss if slope > 0 and found.loss > 0 else 1.0
            memory.curvature = curvature
        return {
            "coef": coef,
            "bias": bias,
            "digest": b"" if self.streams else batch_digest(problem, batch),
            "first": found.steepness(as_linear(problem), memory),
            "curvature": curvature,
            "first_loss": found.loss,
            "memory": memory,
        }

    def init(self, problem: Problem, batch: TrainBatch) -> L:
        """Start from zero coefficients and the best constant."""
        state: L = self._state_class(**self._start(problem, batch))
        return state

    def _attach(self, problem: Problem, state: L, batch: TrainBatch) -> LinearMemory:
        """Return the prepared rows of `batch`."""
        memory = state.memory
        if memory is not None and memory.batch is batch:
            return memory
        if not self.streams and batch_digest(problem, batch) != state.digest:
            raise CapabilityError(
                f"solver {self.name!r} keeps what it knows of all its training rows: it can be "
                "continued with the same rows, targets, weights and loss only. Fit again, or "
                "take a solver for streams such as 'sgd'."
            )
        memory = state.memory = LinearMemory.build(problem, batch)
        if state.curvature > 0:
            memory.curvature = state.curvature
        if state.spectrum > 0 and not problem.fixed_rows:
            memory.known_spectrum(state.spectrum)
        return memory

    def _finish_round(
        self,
        problem: LinearProblem,
        state: L,
        memory: LinearMemory,
        W: Float64Array,
        b: Float64Array,
        n_rows: int,
        seen: float,
        step_size: float,
    ) -> StepInfo:
        """Make W and b the state's coefficients after `n_rows` visits with mean loss `seen`.

        Once as many rows were visited as there are, objective and gradient are computed and
        decide whether the fit has converged.
        """
        self._store(state, memory, W, b, n_rows)
        state.rows_unseen += n_rows
        found = None
        if state.rows_unseen >= memory.n:
            state.rows_unseen = 0
            found = memory.here = evaluate(problem, memory, W, b)
        converged = found is not None and found.optimality(problem, memory, W) <= (
            problem.tol * state.first
        )
        return StepInfo(
            train_loss=seen if found is None else found.loss,
            step_size=step_size,
            n_random_features=0,
            epoch=state.rows_seen / memory.n,
            objective=None if found is None else found.objective,
            converged=converged,
        )

    def _store(
        self, state: L, memory: LinearMemory, W: Float64Array, b: Float64Array, n_rows: int
    ) -> None:
        """Make W and b the state's coefficients after `n_rows` visits.

        Raises
        ------
        ValueError
            They are not finite: the step size given was too large.
        """
        if not (np.isfinite(W).all() and np.isfinite(b).all()):
            raise ValueError(
                f"solver {self.name!r} diverged in iteration {state.iteration + 1}; give a "
                "smaller step_size, or leave it at 'auto'."
            )
        memory.here = None
        state.coef, state.bias = memory.rows.public(W), b
        state.iteration += 1
        state.rows_seen += n_rows

    def solution(self, state: L) -> tuple[Float64Array, Float64Array]:
        """Return coefficients (d, C) and bias (C,) of the result."""
        return state.coef, state.bias

    def finish(self, problem: Problem, state: L, batch: TrainBatch) -> dict[str, Any] | None:
        """Return the objective of the result on the rows of the last batch."""
        if state.memory is None:
            return None
        memory = self._attach(problem, state, batch)
        coef, bias = self.solution(state)
        W = memory.rows.native(coef)
        found = evaluate(as_linear(problem), memory, W, bias)
        return {
            "objective": found.objective,
            "optimality": found.optimality(as_linear(problem), memory, W)
            / max(state.first, 1e-300),
            "rows": memory.n,
        }

    def expansion(self, state: L) -> LinearExpansion:
        """Return the fitted function."""
        coef, bias = self.solution(state)
        return LinearExpansion(coef.copy(), bias.copy())

    def track(self, state: L, X: Matrix) -> Tracker:
        """Return the responses of the rows of `X`."""
        return RecomputedTracker(self, state, X)

    def state_arrays(self, state: L) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return counters and arrays; not the rows."""
        values: dict[str, Any] = {"digest": state.digest.hex()}
        arrays: dict[str, AnyArray] = {}
        for name, value in vars(state).items():
            if isinstance(value, np.ndarray):
                arrays[name] = value
            elif isinstance(value, bool | int | float | str):
                values[name] = None if value == np.inf else value
        return values, arrays

    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, AnyArray]
    ) -> L:
        """Return the state that :meth:`state_arrays` described."""
        own = {k: np.inf if v is None else v for k, v in values.items() if k != "digest"}
        own |= {k: np.array(a) for k, a in arrays.items()}
        state: L = self._state_class(digest=bytes.fromhex(values["digest"]), **own)
        return state


def as_linear(problem: Problem) -> LinearProblem:
    """Return `problem`, which a linear estimator made."""
    assert isinstance(problem, LinearProblem)
    return problem


def steps_of_round(
    round_size: int | str, n_rows: int, batch_size: int, multiple: int = 1
) -> int:
    """Return the steps of one iteration of the loop: those given, or one pass over the rows.

    A multiple of `multiple`, at least one of them, unless it is a pass.
    """
    if round_size == "auto":
        return -(-n_rows // batch_size)
    return max(1, int(round_size) // multiple) * multiple


def visits(memory: LinearMemory, n_steps: int, batch_size: int) -> int:
    """Return the visits of a round; the last mini-batch of a pass may go beyond its end."""
    n = n_steps * batch_size
    return memory.n if 0 <= n - memory.n < batch_size else n


def check_round_size(round_size: int | str) -> None:
    """Raise if it is neither "auto" nor a positive integer."""
    if round_size != "auto":
        check_int(round_size, "round_size", low=1)


def draw_batches(
    memory: LinearMemory, n_steps: int, batch_size: int, rng: np.random.Generator
) -> tuple[IntArray, Float64Array]:
    """Return rows (T, p) of mini-batches and their shares (T, p).

    Rows of equal weight come in random orders of all of them, others are drawn in proportion
    to their weights; shares are 1 / p.
    """
    n, wanted = memory.n, n_steps * batch_size
    if memory.is_uniform and wanted < n:
        order: IntArray = rng.choice(n, wanted, replace=False)
    elif memory.is_uniform:
        passes = [rng.permutation(n) for _ in range(-(-wanted // n))]
        order = np.concatenate(passes)[:wanted]
    else:
        order = weighted_draws(memory.cumulative, wanted, rng)
    shape = (n_steps, batch_size)
    return order.reshape(shape).astype(np.int64), np.full(shape, 1.0 / batch_size)


def weighted_draws(cumulative: Float64Array, size: int, rng: np.random.Generator) -> IntArray:
    """Return `size` rows drawn with replacement, by the running sum of their weights."""
    # below the sum: the last row may have no weight
    at = np.minimum(rng.random(size), 1.0 - 2.0**-53) * cumulative[-1]
    found = np.searchsorted(cumulative, at, side="right")
    last = int(np.searchsorted(cumulative, cumulative[-1]))
    return np.asarray(np.minimum(found, last))


__all__ = [
    "Evaluation",
    "LinearMemory",
    "LinearProblem",
    "LinearSolver",
    "LinearState",
    "as_linear",
    "check_round_size",
    "draw_batches",
    "evaluate",
    "loss_kind",
    "steps_of_round",
    "visits",
    "weighted_draws",
]
