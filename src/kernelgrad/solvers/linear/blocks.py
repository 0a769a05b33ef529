r"""Linear solvers that move blocks of columns: RBCD on all rows, SBMD on mini-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from kernelgrad._params import integer, parameters, real
from kernelgrad._typing import Float64Array, IntArray
from kernelgrad.compute.rows import as_rows
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch, draws, sized, transient
from kernelgrad.solvers.linear import _loops as loops
from kernelgrad.solvers.linear._blocks import ColumnBlocks, LossState, cut_into_blocks
from kernelgrad.solvers.linear.base import (
    STREAM_ROWS,
    Evaluation,
    LinearProblem,
    LinearSolver,
    LinearState,
    PreparedRows,
    as_linear,
    draw_batches,
    evaluate,
    falling_runs,
    least_subgradient,
)
from kernelgrad.solvers.linear.sgd import AveragingSolver, SGDState

_QUIET = 0.1  # of the tolerance: a block below it is left alone
# A block of all columns is a Newton step: up to a Cholesky factor of 512 columns, and
# curvature matrices of 8 MiB, it costs less than the passes that it saves.
_WHOLE, _WHOLE_ENTRIES = 512, 2**20
_DENSE_BLOCK, _SPARSE_BLOCK = 32, 64
_EPSILON = 1e-12  # relative rounding of a sum over many rows
_BLOCKS = 8  # of SBMD
_LEAST = 1e-3  # of the largest L_B(p): blocks of nearly empty columns step no further


@dataclass(kw_only=True)
class RBCDState(LinearState):
    """State of :class:`RBCD`: the rows by columns, and the scale of the tolerance.

    ``steepness`` is the largest entry of the gradient at zero, of standardised columns.
    """

    steepness: float = np.inf
    blocks: ColumnBlocks | None = transient()


@parameters
class RBCD(LinearSolver[RBCDState]):
    r"""Randomised block coordinate descent on all rows, by Newton steps on blocks of columns.

    A pass computes the responses U of all rows and keeps them up to date. It visits every block
    B of adjacent columns once, in random order, and moves it towards the minimum of the
    second-order model

    .. math:: \langle g, D \rangle + \tfrac12 \langle D, A D \rangle + R(W_B + D), \qquad
              g = X_B^T (p\, l'(U)), \quad A = X_B^T \operatorname{diag}(p\, l''(U)) X_B,

    with halvings until the objective falls by a tenth of what the slope predicts, so that no
    block raises it. For one column and the squared loss this is the exact minimum over that
    coefficient. For the multinomial loss l'' is replaced by ``2 q_c (1 - q_c)`` of the
    probabilities q, a bound without entries between outputs. On flat pieces of a loss, where
    l'' is zero, a small curvature replaces it. Neither the units of columns nor their means
    matter: each block is solved together with the bias, and columns far from zero are shifted
    to about zero.

    Parameters
    ----------
    block_size : int >= 1 or "auto", default="auto"
        Columns of a block, k. ``"auto"`` takes all columns where there are at most 512 (and
        ``d^2 C`` at most 2^20): a pass is then a full proximal Newton step, and six or eight
        reach the minimum to rounding. Wider dense rows have blocks of 32; wider CSR rows of
        ``2 sqrt(m)`` columns for m stored entries a column, between 1 and 64, so that solving
        for a block costs no more than reading it.

    Notes
    -----
    Memory: a copy of the rows by blocks of columns, of the same size (for CSR rows also their
    numbers, 4 + 8 bytes for each row of each block), and nine float64 arrays of (n, C); the
    matrices A take ``8 k^2 C`` bytes, times 9 for dense rows. With the squared loss the
    matrices A of all blocks are kept, ``8 d k C`` bytes. Nothing checks that this fits.

    The bias, which has no penalty, moves with every block of dense rows, and for CSR rows with
    blocks that have entries in half of the rows; if no block has, the bias is a block of its
    own, visited whenever the others have moved four times as many rows as there are.

    A block whose least subgradient is below a tenth of the tolerance is skipped. The objective
    is exact after every pass. After a pass without a subgradient above the tolerance all
    columns are checked at once, and the fit has converged if the check agrees. Subgradients are
    taken with respect to centred columns, divided by their standard deviations (without a bias
    by their root mean squares), and compared with the largest one at zero.

    References
    ----------
    Richtarik and Takac (2014), "Iteration Complexity of Randomized Block-Coordinate Descent
    Methods for Minimizing a Composite Function"; Tseng and Yun (2009), "A Coordinate Gradient
    Descent Method for Nonsmooth Separable Minimization", for steps with curvature; Dai et al.
    (2014), Section 7, for this method on random features.
    """

    name: ClassVar[str] = "rbcd"
    searches: ClassVar[bool] = True
    state_class: ClassVar[type[Any]] = RBCDState
    tag: ClassVar[int] = 0x726263

    block_size: int | str = integer(default="auto", low=1, words=("auto",))

    def resolve_block_size(self, data: PreparedRows) -> int:
        """Return the columns of a block."""
        d = data.d
        if self.block_size != "auto":
            return min(int(self.block_size), max(1, d))
        if d <= _WHOLE and d**2 * data.Y.shape[1] <= _WHOLE_ENTRIES:
            return max(1, d)
        if not data.is_sparse:
            return _DENSE_BLOCK
        return int(np.clip(2.0 * np.sqrt(data.rows[0].size / d), 1, _SPARSE_BLOCK))

    def step(self, problem: Problem, state: RBCDState, batch: TrainBatch) -> StepInfo:
        """Visit every block once."""
        own = as_linear(problem)
        data = self._attach(problem, state, batch)
        with single_threaded_blas():
            if state.blocks is None:
                size = self.resolve_block_size(data)
                state.blocks = cut_into_blocks(
                    data.rows, data.d, size, own.fit_intercept, data.share
                )
            blocks = state.blocks
            W, b = state.coef.copy(), state.bias.copy()
            f = LossState(
                data.code, data.numbers, data.Y, data.responses(data.native(W), b), data.share
            )
            if state.iteration == 0:
                g, found = self._gradient(own, data, blocks, W, b)
                least = _EPSILON * float(data.share @ np.abs(found.slopes).sum(axis=1))
                top = np.abs(g) / blocks.scale[:, None]
                state.steepness = max(float(top.max(initial=0.0)), least)
            aim = own.tol * state.steepness
            rng = draws(own.seed, self.tag, state.iteration)
            violation, shortest = blocks.descend(
                f, W, b, rng.permutation(blocks.n_blocks), own.l1, own.l2, _QUIET * aim
            )
            loss = float(f.losses().sum())
            converged = violation <= aim
            if converged:  # each block was at rest when visited, but not all at once
                g, found = self._gradient(own, data, blocks, W, b)
                worst = (least_subgradient(W, g, own) / blocks.scale[:, None]).max(initial=0.0)
                bias = np.abs(found.gradient_bias).max() if own.fit_intercept else 0.0
                converged = bool(max(worst, bias) <= aim)
        state.coef, state.bias = W, b
        state.iteration += 1
        state.rows_seen += data.n
        return StepInfo(
            train_loss=loss,
            step_size=shortest,
            n_random_features=0,
            objective=loss + own.penalty(W),
            converged=converged,
        )

    @staticmethod
    def _gradient(
        problem: LinearProblem, data: PreparedRows, blocks: ColumnBlocks, W: Any, b: Any
    ) -> tuple[Float64Array, Evaluation]:
        """Return the gradient (d, C) with respect to columns less their means."""
        found = evaluate(problem, data, data.native(W), b)
        g = data.native(found.gradient) - blocks.mean[:, None] * found.gradient_bias
        return np.asarray(g), found


@dataclass(kw_only=True)
class SBMDState(SGDState):
    """State of :class:`SBMD`: the current iterate, the average and the scale of the blocks.

    ``top`` and ``mean`` belong to the columns of each block, (B,): the largest squared norm of
    a row seen so far, and the largest eigenvalue of the second moments of the first batch.
    ``n_drawn`` counts rows drawn, ``pass_rows`` is t_0 in rows.
    """

    top: Float64Array = sized("B", later=True)
    mean: Float64Array = sized("B", later=True)
    n_drawn: int = 0


@parameters
class SBMD(AveragingSolver):
    r"""Stochastic block mirror descent: each step takes a mini-batch and one block of columns.

    .. math:: W_B \leftarrow \mathrm{prox}_{\eta_{B,t} R}\Bigl(W_B - \eta_{B,t} \frac{1}{p}
              \sum_{k \in I_t} l'(y_k, x_k W + b)\, x_{k,B}\Bigr), \qquad
              \eta_{B,t} = \frac{\eta_{B,0}}{(1 + t / t_0)^{3/4}}

    with mini-batches of p rows in random order (rows of unequal weight are drawn in proportion
    to it), blocks B of adjacent columns drawn uniformly, and t_0 of one pass (for a stream, the
    largest batch so far and at least 4,096 rows). The bias moves in every step, with a B-th of
    the given step size, or ``4 / B`` over the curvature of the loss. The result is the average
    of the iterates, taken 32 times a pass and weighted towards the last ones.

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
    rows costs the responses of p rows and the update of one block; on CSR rows it costs the
    stored entries of p rows, since columns take the penalties that they have missed at once.

    A row moves only one block each time that it is drawn, so that an order without replacement
    helps little: ``"sgd"`` comes much closer to the minimum in as many passes. Use this method
    for comparisons: it takes some tens of passes to come within a percent.

    References
    ----------
    Dang and Lan (2015), "Stochastic Block Mirror Descent Methods for Nonsmooth and Stochastic
    Optimization", with the Euclidean mirror map; Dai et al. (2014), Section 7, for this method
    on random features.
    """

    name: ClassVar[str] = "sbmd"
    state_class: ClassVar[type[Any]] = SBMDState
    tag: ClassVar[int] = 0x73626D

    batch_size: int = integer(default=10, low=1)
    n_blocks: int | str = integer(default="auto", low=1, words=("auto",))
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))

    def cuts(self, d: int) -> IntArray:
        """Return (B + 1,): block i has the columns ``cuts[i], ..., cuts[i + 1] - 1``."""
        wanted = _BLOCKS if self.n_blocks == "auto" else int(self.n_blocks)
        B = max(1, min(wanted, d))
        return np.arange(B + 1, dtype=np.int64) * d // B

    def init(self, problem: Problem, batch: TrainBatch) -> SBMDState:
        """Start from zero coefficients and the best constant."""
        state: SBMDState = super().init(problem, batch)
        if self.step_size == "auto":
            data = self._attach(problem, state, batch)
            state.mean = np.array(list(self._spectra(problem, data)))
            state.top = self._largest_norms(data)
        return state

    def _spectra(self, problem: Problem, data: PreparedRows) -> Iterator[float]:
        """Yield the largest eigenvalue of the second moments of each block.

        On at most 4,096 rows, as :meth:`PreparedRows.spectrum`.
        """
        some = data.sample(draws(problem.seed, self.tag, 0))
        X = some.batch.X.tocsc() if data.is_sparse else some.batch.X
        for a, z in pairwise(self.cuts(data.d).tolist()):
            part = X[:, a:z].tocsr() if data.is_sparse else X[:, a:z]
            one = replace(some, batch=replace(some.batch, X=part), rows=as_rows(part))
            yield one.spectrum(False, problem.seed)

    def _largest_norms(self, data: PreparedRows) -> Float64Array:
        """Return the largest squared norm of a row in each block of columns, (B,)."""
        first = self.cuts(data.d)
        of = np.repeat(np.arange(len(first) - 1), np.diff(first))
        largest = np.zeros(len(first) - 1)
        loops.block_norms(data.rows, data.share, of, largest)
        return largest

    def _attach(self, problem: Problem, state: SBMDState, batch: TrainBatch) -> PreparedRows:
        """Return the prepared rows; those that were not there before may be larger."""
        known = state.data is not None and state.data.batch is batch
        data = super()._attach(problem, state, batch)
        if not known and len(state.top):
            state.top = np.maximum(state.top, self._largest_norms(data))
        return data

    def first_steps(
        self, state: SBMDState, data: PreparedRows, batch_size: int, n_blocks: int
    ) -> tuple[Float64Array, float]:
        """Return the first step of each block (B,) and of the bias."""
        if self.step_size != "auto":
            eta = float(self.step_size)
            return np.full(n_blocks, eta), eta / n_blocks
        n, p = data.n, batch_size
        # see PreparedRows.batch_smoothness
        rest = (n - p) / max(1, n - 1) if data.is_uniform else 1.0
        L = data.curvature * (rest * state.top + (p - rest) * state.mean) / p
        L = np.maximum(L, max(_LEAST * L.max(), 1e-300))
        return 0.5 / L, 0.5 * _BLOCKS / (n_blocks * data.curvature)

    def step(self, problem: Problem, state: SBMDState, batch: TrainBatch) -> StepInfo:
        """Take one pass over the batch."""
        own = as_linear(problem)
        data = self._attach(problem, state, batch)
        p = min(self.batch_size, data.n)
        T = -(-data.n // p)
        rng = draws(own.seed, self.tag, state.iteration)
        order, share = draw_batches(data, T, p, rng)
        first = self.cuts(data.d)
        chosen = rng.integers(0, len(first) - 1, T)
        eta, eta_bias = self.first_steps(state, data, p, len(first) - 1)
        eta_bias *= float(own.fit_intercept)
        W, b = data.native(state.coef), state.bias.copy()
        least = 0 if own.fixed_rows else STREAM_ROWS
        state.pass_rows = max(state.pass_rows, T * p, least)
        seen, fall = 0.0, 1.0
        for start, stop, fall in falling_runs(T, p, 1.0, state.n_drawn, state.pass_rows):
            now, some = slice(start, stop), chosen[start:stop]
            waiting = some if data.is_sparse else some[:0]
            blocks = loops.Blocks.make(first, fall * eta, own.l1, own.l2, waiting)
            seen += loops.descend_on_blocks(
                data.code, data.numbers, data.rows, data.Y, W, b, order[now], share[now], some,
                blocks, fall * eta_bias,
            )  # fmt: skip
            if not (np.isfinite(W).all() and np.isfinite(b).all()):
                break
            state.n_drawn += (stop - start) * p
            state.take_average(data.native(W), b, (stop - start) * p, state.n_drawn)
        self._store(state, data, W, b, data.n)
        return StepInfo(
            train_loss=seen / T, step_size=float(fall * eta.max()), n_random_features=0
        )
