r"""Stochastic dual coordinate ascent on exact kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelgrad._typing import Float64Array, IntArray
from kernelgrad._validation import CapabilityError, check_int, check_real
from kernelgrad.functions.exact import KernelRows
from kernelgrad.losses import Loss
from kernelgrad.losses import conjugate as dual
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch, batch_digest, draws
from kernelgrad.solvers.kernel.base import (
    RowsSolver,
    RowsState,
    SupportUpdate,
    build_exact,
    kernel_rows,
)

_TAG = 0x73646361
_BLOCK = 128
_AHEAD = 8  # rows looked at for each that may move
_SETTLED = 0.1  # of the tolerance: a row below it is left alone

# (epsilon, s, low, high) of the conjugate, see kernelgrad.losses.conjugate
_CONJUGATES: dict[str, tuple[int, Callable[[Any], tuple[float, float, float, float]]]] = {
    "absolute": (dual.RESIDUAL, lambda loss: (0.0, 0.0, -1.0, 1.0)),
    "epsilon_insensitive": (dual.RESIDUAL, lambda loss: (loss.epsilon, 0.0, -1.0, 1.0)),
    "hinge": (dual.MARGIN, lambda loss: (0.0, 0.0, -1.0, 0.0)),
    "huber": (dual.RESIDUAL, lambda loss: (0.0, 1.0, -loss.delta, loss.delta)),
    "logistic": (dual.LOGISTIC, lambda loss: (0.0, 0.0, 0.0, 0.0)),
    "quantile": (dual.RESIDUAL, lambda loss: (0.0, 0.0, -loss.quantile, 1.0 - loss.quantile)),
    "smoothed_hinge": (dual.MARGIN, lambda loss: (0.0, loss.width, -1.0, 0.0)),
    "squared": (dual.RESIDUAL, lambda loss: (0.0, 1.0, -np.inf, np.inf)),
    "squared_hinge": (dual.MARGIN, lambda loss: (0.0, 0.5, -np.inf, 0.0)),
}


@dataclass(kw_only=True)
class SDCAState(RowsState):
    """State of :class:`SDCA`.

    ``responses`` are f on the rows without the intercept; ``coef`` is ``-p_i u_i / alpha``.
    """

    alpha: float
    dual: Float64Array  # u, (C, n)
    primal: Float64Array  # objective of each output, (C,)
    gap: Float64Array  # of each output, (C,)


class SDCA(RowsSolver[SDCAState]):
    r"""Stochastic dual coordinate ascent on the exact kernel, with a duality gap to stop by.

    With weights ``p_i = w_i / sum_j w_j`` and a fixed intercept b, the dual of the objective is

    .. math:: D(u) = \sum_i p_i (u_i b - l_i^*(u_i))
              - \frac{1}{2 \alpha} \sum_{ij} p_i p_j u_i u_j k(x_i, x_j),
              \qquad a_i = -p_i u_i / \alpha

    Rows are taken in a new random order in each pass, and each moves its ``u_i`` to the maximum
    of D with all others fixed: in closed form, for the logistic loss by Newton's method. The
    outputs share the kernel rows and are otherwise apart.

    Rows are taken in blocks: kernel values among the rows of a block give the same steps as one
    row at a time, and full kernel rows are then needed only of the rows that moved. The
    responses of all rows are kept in float64, so that the gap
    ``P - D = sum_i p_i (l_i(f_i) + l_i^*(u_i) - u_i f_i)`` costs O(n) and does not drift. A row
    whose own term is at most a tenth of the tolerance times the objective is passed over: all
    such rows together cannot hold up the end.

    Losses: hinge, smoothed_hinge, squared_hinge, logistic, squared, epsilon_insensitive,
    absolute, quantile and huber.

    Parameters
    ----------
    tol : float >= 0, default=1e-3
        Converged when the gap of every output is at most ``tol`` times its objective: the
        objective is then within that of its minimum. 0 goes on while any gap is left.
    block_size : int or "auto", default="auto"
        Rows about to move that are taken at once, m. It changes rounding only. ``"auto"`` is
        128: larger blocks compute more kernel values, smaller ones run slower.
    round_size : int or "auto", default="auto"
        Rows visited in one step of the loop, between two looks at the gap. ``"auto"`` is one
        pass over all rows of positive weight.
    max_support : int or None, default=None
        Keep that many rows (see :meth:`~kernelgrad.functions.SupportExpansion.limited`). The
        gap is that of the function before.

    Notes
    -----
    The intercept is the loss's best constant and is not optimised further: its dual would be an
    equality constraint, which no single coordinate can keep. For a bias fitted with the
    function use ``solver="sbp"``; with ``fit_intercept=False`` there is none.

    Work per pass is at most n^2 kernel values. Kernel rows are kept up to the estimator's
    ``memory_limit``.

    References
    ----------
    Shalev-Shwartz and Zhang (2013), "Stochastic Dual Coordinate Ascent Methods for Regularized
    Loss Minimization"; Hsieh et al. (2008), "A Dual Coordinate Descent Method for Large-scale
    Linear SVM"; Cotter, Shalev-Shwartz and Srebro (2012), Section 4.4.
    """

    name: ClassVar[str] = "sdca"
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel"})
    _state_class = SDCAState

    def __init__(
        self,
        *,
        tol: float = 1e-3,
        block_size: int | str = "auto",
        round_size: int | str = "auto",
        max_support: int | None = None,
    ) -> None:
        self.tol = tol
        self.block_size = block_size
        self.round_size = round_size
        self.max_support = max_support

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_real(self.tol, "tol", low=0)
        if self.block_size != "auto":
            check_int(self.block_size, "block_size", low=1)
        self._check_common()

    def check_problem(self, problem: Problem) -> None:
        """Check loss and alpha.

        Raises
        ------
        CapabilityError
            The loss has no dual step here.
        ValueError
            alpha is 0: there is no dual function then.
        """
        _conjugate(problem)
        if not problem.alpha > 0.0:
            raise ValueError(
                f"solver {self.name!r} needs alpha > 0, got {problem.alpha!r}; choose a small "
                "positive alpha such as 1 / n_samples."
            )

    def init(self, problem: Problem, batch: TrainBatch) -> SDCAState:
        """Resolve the kernel and start from the intercept alone."""
        self.check_problem(problem)
        exact, rows = build_exact(problem, batch)
        C, n = problem.n_outputs, batch.n_rows
        intercept = np.zeros(C)
        if problem.fit_intercept:
            intercept = problem.loss.intercept(batch.y, batch.sample_weight)
        state = SDCAState(
            alpha=problem.alpha,
            exact=exact,
            digest=batch_digest(problem, batch),
            rows=kernel_rows(problem, exact, rows),
            coef=np.zeros((n, C)),
            responses=np.zeros((C, n)),
            intercept=intercept,
            dual=np.zeros((C, n)),
            primal=np.zeros(C),
            gap=np.zeros(C),
        )
        _measure(problem, state, _targets(batch), _shares(batch))
        return state

    def step(self, problem: Problem, state: SDCAState, batch: TrainBatch) -> StepInfo:
        """Visit `round_size` rows in blocks, then measure the gap."""
        rows = self._attach(problem, state, batch)
        evaluations = rows.n_evaluations
        conjugate = _conjugate(problem)
        y, p = _targets(batch), _shares(batch)
        size = _BLOCK if self.block_size == "auto" else int(self.block_size)
        reach = p / problem.alpha
        factor = state.alpha / problem.alpha
        if factor != 1.0:  # u is feasible for any alpha, and the function in proportion to it
            state.alpha = problem.alpha
            state.coef, state.responses = factor * state.coef, factor * state.responses
            _measure(problem, state, y, p)
        least = _SETTLED * self.tol * state.primal
        before = state.coef.copy()
        live = np.flatnonzero(p)
        n_visits = len(live) if self.round_size == "auto" else int(self.round_size)
        for order in _passes(problem.seed, state.rows_seen, n_visits, live):
            done = 0
            while done < len(order):
                ahead = order[done : done + _AHEAD * size]
                done += _ascend(state, rows, conjugate, y, reach, least, ahead, size)
        state.iteration += 1
        state.rows_seen += n_visits
        state.kernel_evaluations += rows.n_evaluations - evaluations
        loss = _measure(problem, state, y, p)
        change = state.coef - before
        index = np.flatnonzero(change.any(axis=1))
        C = problem.n_outputs
        return StepInfo(
            train_loss=loss,
            step_size=1.0,  # each coordinate goes all the way
            n_random_features=0,
            update=SupportUpdate(
                rows=rows.rows.take(index),
                scale=np.full(C, factor),
                moved=change[index],
                keep=np.zeros(C),
                blend=np.full(C, factor),
                drift=change[index],
            ),
            n_support=self.count_support(state),
            kernel_evaluations=state.kernel_evaluations,
            epoch=state.rows_seen / len(live),
            duality_gap=float(state.gap.sum()),
            converged=bool(np.all(state.gap <= self.tol * state.primal)),
        )

    def duality_gap(self, state: SDCAState) -> Float64Array:
        """Return, for each output, a bound on objective minus minimum, shape (C,)."""
        return state.gap.copy()


def _passes(seed: int, start: int, n_visits: int, live: IntArray) -> Iterator[IntArray]:
    """Yield the rows of visits ``start .. start + n_visits - 1``, pass by pass."""
    n, end = len(live), start + n_visits
    while start < end:
        epoch, first = divmod(start, n)
        last = min(n, end - epoch * n)
        yield live[draws(seed, _TAG, epoch).permutation(n)[first:last]]
        start = epoch * n + last


def _ascend(
    state: SDCAState,
    rows: KernelRows,
    conjugate: tuple[int, Float64Array],
    y: Float64Array,
    reach: Float64Array,
    least: Float64Array,
    index: IntArray,
    size: int,
) -> int:
    """Visit rows of `index` in order up to the `size`-th that moves; return how many.

    Rows that would stay now need no kernel values unless those before them change that.
    """
    u, f = state.dual[:, index], state.responses[:, index] + state.intercept[:, None]
    ready = np.flatnonzero(dual.unsettled(*conjugate, y[:, index], u, f, least))[:size]
    if len(ready) == 0:
        return len(index)
    w = int(ready[-1]) + 1 if len(ready) == size else len(index)
    index, u, f = index[:w], np.ascontiguousarray(u[:, :w]), np.ascontiguousarray(f[:, :w])
    K = np.empty((w, w), np.float32)
    place = np.full(w, -1)
    joined, done = 0, 0
    while len(ready):
        K[joined : joined + len(ready)] = rows.among(index[ready], index)
        place[ready] = np.arange(joined, joined + len(ready))
        joined += len(ready)
        done = dual.sweep(*conjugate, y[:, index], u, f, reach[index], place, K, least, done)
        ready = np.arange(done, min(done + 1, w))
    changed = np.flatnonzero((u != state.dual[:, index]).any(axis=0))
    moved = index[changed]
    state.dual[:, moved] = u[:, changed]
    coef = -reach[moved, None] * u[:, changed].T
    change = coef - state.coef[moved]
    for i in range(0, len(moved), size):  # no more rows at once, whatever the memory
        some = slice(i, i + size)
        slots = rows.load(moved[some])
        dual.add_rows(rows.buffer, slots, change[some], state.responses)
    state.coef[moved] = coef
    return w


def _conjugate(problem: Problem) -> tuple[int, Float64Array]:
    """Return the kind of the loss and the numbers of each output, (C, 4)."""
    loss = problem.loss
    if loss.name not in _CONJUGATES:
        raise CapabilityError(
            f"solver 'sdca' has no dual step for loss {loss.name!r}; choose one of "
            f"{', '.join(sorted(_CONJUGATES))}, or another solver."
        )
    kind, numbers = _CONJUGATES[loss.name]
    outputs: list[Loss] = [loss.for_output(c) for c in range(problem.n_outputs)]
    return kind, np.array([numbers(each) for each in outputs], np.float64)


def _targets(batch: TrainBatch) -> Float64Array:
    return np.ascontiguousarray(batch.y.T, np.float64)


def _shares(batch: TrainBatch) -> Float64Array:
    weight = np.asarray(batch.sample_weight, np.float64)
    return np.asarray(weight / weight.sum())


def _measure(problem: Problem, state: SDCAState, y: Float64Array, p: Float64Array) -> float:
    """Set objective and gap of each output; return the mean loss."""
    kind, numbers = _conjugate(problem)
    f = state.responses + state.intercept[:, None]
    loss, gap = dual.loss_and_gap(kind, numbers, y, state.dual, f, p)
    norm2 = np.einsum("nc,cn->c", state.coef, state.responses)
    state.primal = loss + 0.5 * problem.alpha * norm2
    state.gap = gap
    return float(loss.sum())
