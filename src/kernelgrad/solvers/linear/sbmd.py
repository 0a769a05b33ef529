r"""Stochastic block mirror descent for linear functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import Float64Array, IntArray
from kernelgrad._validation import check_int, check_real
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch, draws
from kernelgrad.solvers.linear._mirror import block_norms, mirror
from kernelgrad.solvers.linear.base import (
    CODES,
    STREAM_ROWS,
    LinearMemory,
    LinearSolver,
    LinearState,
    as_linear,
    draw_batches,
)

_TAG = 0x73626D
_PARTS = 32  # step sizes and averages are renewed so often in a pass
_FORGET = 8.0  # power with which averages forget early iterates
_BLOCKS = 8
_SPECTRUM_ROWS = 4096
_SHARE = 0.5  # of 1 / L_B(p), the automatic first step
_POWER = 0.75
_LEAST = 1e-3  # of the largest L_B(p): blocks of nearly empty columns step no further


@dataclass(kw_only=True)
class SBMDState(LinearState):
    """State of :class:`SBMD`: the current iterate, the average and the scale of the blocks.

    ``top`` and ``mean`` belong to the columns of each block, (B,): the largest squared norm of
    a row seen so far, and the largest eigenvalue of the second moments of the first batch.
    ``n_drawn`` counts rows drawn, ``pass_rows`` is t_0 in rows.
    """

    average: Float64Array = field(default_factory=lambda: np.zeros(0))
    average_bias: Float64Array = field(default_factory=lambda: np.zeros(0))
    top: Float64Array = field(default_factory=lambda: np.zeros(0))
    mean: Float64Array = field(default_factory=lambda: np.zeros(0))
    n_drawn: int = 0
    pass_rows: int = 0


class SBMD(LinearSolver[SBMDState]):
    r"""Stochastic block mirror descent: a mini-batch of rows and one block of columns a step.

    .. math:: W_B \leftarrow \mathrm{prox}_{\eta_{B,t} R}\Bigl(W_B - \eta_{B,t} \frac{1}{p}
              \sum_{k \in I_t} l'(y_k, x_k W + b)\, x_{k,B}\Bigr), \qquad
              \eta_{B,t} = \frac{\eta_{B,0}}{(1 + t / t_0)^{3/4}}

    with mini-batches of p rows in random order (rows of unequal weight are drawn in proportion
    to it), blocks B of adjacent columns drawn uniformly, and t_0 of one pass; of a
    stream, of its largest batch so far and at least 4,096 rows. The bias moves in every step,
    with a B-th of the step that is given, or ``4 / B`` over the curvature of the loss. The
    result is the average of the iterates, taken 32 times a pass and weighted towards the last
    ones.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p.
    n_blocks : int >= 1 or "auto", default="auto"
        Blocks, at most one a column. ``"auto"`` is 8; 1 is stochastic gradient descent.
    step_size : float > 0 or "auto", default="auto"
        The first step of every block. ``"auto"`` is ``1 / (2 L_B(p))`` with the expected
        smoothness of a mini-batch in the columns of the block: narrow blocks step further.

    Notes
    -----
    Takes every loss, with subgradients at kinks, and rows one batch at a time. A step on dense
    rows costs the responses of p rows and the update of one block; on CSR rows the stored
    entries of p rows, as columns take the penalties that they have missed at once.

    A row moves one block each time that it is drawn, so that an order without replacement helps
    little: ``"sgd"`` comes much closer to the minimum in as many passes. This is a method to
    compare with: it takes some tens of passes to come within a percent.

    References
    ----------
    Dang and Lan (2015), "Stochastic Block Mirror Descent Methods for Nonsmooth and Stochastic
    Optimization", with the Euclidean mirror map; Dai et al. (2014), Section 7, for this method
    on random features.
    """

    name: ClassVar[str] = "sbmd"
    losses: ClassVar[frozenset[int]] = CODES
    streams: ClassVar[bool] = True
    _state_class: Any = SBMDState

    def __init__(
        self,
        *,
        batch_size: int = 10,
        n_blocks: int | str = "auto",
        step_size: float | str = "auto",
    ) -> None:
        self.batch_size = batch_size
        self.n_blocks = n_blocks
        self.step_size = step_size

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_int(self.batch_size, "batch_size", low=1)
        if self.n_blocks != "auto":
            check_int(self.n_blocks, "n_blocks", low=1)
        if self.step_size != "auto":
            check_real(self.step_size, "step_size", low=0, low_open=True)

    def cuts(self, d: int) -> IntArray:
        """Return (B + 1,): block i has the columns ``cuts[i], ..., cuts[i + 1] - 1``."""
        wanted = _BLOCKS if self.n_blocks == "auto" else int(self.n_blocks)
        B = max(1, min(wanted, d))
        return np.arange(B + 1, dtype=np.int64) * d // B

    def init(self, problem: Problem, batch: TrainBatch) -> SBMDState:
        """Start from zero coefficients and the best constant."""
        start = self._start(problem, batch)
        state = SBMDState(
            average=start["coef"].copy(), average_bias=start["bias"].copy(), **start
        )
        if self.step_size == "auto":
            first = self.cuts(problem.n_features_in)
            state.top = block_norms(start["memory"].rows, start["memory"].share, first)
            state.mean = self._spectra(problem, batch)
        return state

    def _spectra(self, problem: Problem, batch: TrainBatch) -> Float64Array:
        """Return the largest eigenvalue of the second moments of each block, (B,).

        On at most 4,096 rows, as :meth:`LinearMemory.spectrum`.
        """
        X, y, weight = batch.X, batch.y, batch.sample_weight
        if len(y) > _SPECTRUM_ROWS:
            at = draws(problem.seed, _TAG, 0).choice(len(y), _SPECTRUM_ROWS, replace=False)
            at.sort()
            X, y, weight = X[at], y[at], weight[at]
        if not weight.sum() > 0:
            weight = np.ones(len(y))
        if sp.issparse(X):
            X = X.tocsc()
        found = []
        for a, z in pairwise(self.cuts(problem.n_features_in).tolist()):
            part = X[:, a:z].tocsr() if sp.issparse(X) else X[:, a:z]
            memory = LinearMemory.build(problem, TrainBatch(part, y, weight))
            found.append(memory.spectrum(False, problem.seed))
        return np.array(found)

    def _attach(self, problem: Problem, state: SBMDState, batch: TrainBatch) -> LinearMemory:
        """Return the prepared rows; those that were not there before may be larger."""
        known = state.memory is not None and state.memory.batch is batch
        memory = super()._attach(problem, state, batch)
        if not known and len(state.top):
            new = block_norms(memory.rows, memory.share, self.cuts(problem.n_features_in))
            state.top = np.maximum(state.top, new)
        return memory

    def first_steps(
        self, state: SBMDState, memory: LinearMemory, batch_size: int, n_blocks: int
    ) -> tuple[Float64Array, float]:
        """Return the first step of each block (B,) and of the bias."""
        if self.step_size != "auto":
            eta = float(self.step_size)
            return np.full(n_blocks, eta), eta / n_blocks
        n, p = memory.n, batch_size
        # see LinearMemory.batch_smoothness
        rest = (n - p) / max(1, n - 1) if memory.is_uniform else 1.0
        L = memory.curvature * (rest * state.top + (p - rest) * state.mean) / p
        L = np.maximum(L, max(_LEAST * L.max(), 1e-300))
        return _SHARE / L, _BLOCKS * _SHARE / (n_blocks * memory.curvature)

    def draw(
        self, problem: Problem, state: SBMDState, memory: LinearMemory
    ) -> tuple[IntArray, Float64Array, IntArray]:
        """Return rows (T, p), shares (T, p) and blocks (T,) of the steps of one pass."""
        p = min(self.batch_size, memory.n)
        T = -(-memory.n // p)
        rng = draws(problem.seed, _TAG, state.iteration)
        order, share = draw_batches(memory, T, p, rng)
        n_blocks = len(self.cuts(problem.n_features_in)) - 1
        return order, share, rng.integers(0, n_blocks, T)

    def step(self, problem: Problem, state: SBMDState, batch: TrainBatch) -> StepInfo:
        """Take one pass over the batch."""
        own = as_linear(problem)
        memory = self._attach(problem, state, batch)
        order, share, chosen = self.draw(problem, state, memory)
        T, p = order.shape
        blocks = self.cuts(own.n_features_in)
        eta, eta_bias = self.first_steps(state, memory, p, len(blocks) - 1)
        eta_bias *= float(own.fit_intercept)
        W, b = memory.rows.native(state.coef), state.bias.copy()
        least = 0 if own.fixed_rows else STREAM_ROWS
        state.pass_rows = max(state.pass_rows, T * p, least)
        seen, fall = 0.0, 1.0
        cuts = np.unique(np.linspace(0, T, min(T, _PARTS) + 1).astype(int))
        for first, last in pairwise(cuts.tolist()):
            fall = (1.0 + state.n_drawn / state.pass_rows) ** -_POWER
            seen += mirror(
                memory.rows, memory.kind, memory.numbers, memory.Y, W, b, order[first:last],
                share[first:last], chosen[first:last], blocks, fall * eta, fall * eta_bias,
                own.l1, own.l2,
            )  # fmt: skip
            if not (np.isfinite(W).all() and np.isfinite(b).all()):
                break
            drawn = (last - first) * p
            state.n_drawn += drawn
            part = (1.0 + _FORGET) * drawn / (state.n_drawn + _FORGET * drawn)
            state.average += part * (memory.rows.public(W) - state.average)
            state.average_bias += part * (b - state.average_bias)
        self._store(state, memory, W, b, memory.n)
        return StepInfo(
            train_loss=seen / T, step_size=float(fall * eta.max()), n_random_features=0
        )

    def solution(self, state: SBMDState) -> tuple[Float64Array, Float64Array]:
        """Return the average."""
        return state.average, state.average_bias
