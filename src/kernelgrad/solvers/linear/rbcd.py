r"""Randomised block coordinate descent for linear functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from kernelgrad._typing import Float64Array
from kernelgrad._validation import check_int
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.solvers.base import Problem, StepInfo, TrainBatch, draws
from kernelgrad.solvers.linear._blocks import DenseBlocks, Fields, SparseBlocks
from kernelgrad.solvers.linear.base import (
    Evaluation,
    LinearMemory,
    LinearProblem,
    LinearSolver,
    LinearState,
    as_linear,
    evaluate,
)

_TAG = 0x726263
_QUIET = 0.1  # of the tolerance: a block below it is left alone
_WHOLE = 512  # columns that are one block
_WHOLE_ENTRIES = 2**20  # of the curvature matrices of one block
_DENSE_BLOCK, _SPARSE_BLOCK = 32, 64
_EPSILON = 1e-12


@dataclass(kw_only=True)
class RBCDState(LinearState):
    """State of :class:`RBCD`: the rows by columns, and the scale of the tolerance.

    ``steepness`` is the largest entry of the gradient at zero, of standardised columns.
    """

    steepness: float = np.inf
    blocks: DenseBlocks | SparseBlocks | None = field(default=None, repr=False)

    def release(self) -> None:
        """Let go of the rows and of their copy by columns."""
        super().release()
        self.blocks = None

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"blocks": None}


class RBCD(LinearSolver[RBCDState]):
    r"""Randomised block coordinate descent on all rows, by Newton steps on blocks of columns.

    A pass computes the responses U of all rows and keeps them up to date. It visits every block
    B of adjacent columns once, in random order, and moves it towards the minimum of the
    second-order model

    .. math:: \langle g, D \rangle + \tfrac12 \langle D, A D \rangle + R(W_B + D), \qquad
              g = X_B^T (p\, l'(U)), \quad A = X_B^T \operatorname{diag}(p\, l''(U)) X_B,

    with halvings until the objective falls by a tenth of what the slope promises: no block
    raises it. One column and a squared loss are the exact minimum over that coefficient. For
    the multinomial loss ``2 q_c (1 - q_c)`` of the probabilities q stands for l'': a bound that
    has no entries between outputs. On flat pieces of a loss, where l'' is zero, a small
    curvature stands for it. Neither the units of columns nor their means matter: each block is
    solved with the bias, in columns that are moved to about zero where they are far from it.

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
    Memory: besides the rows a copy of them by blocks of columns, of the same size (of CSR rows
    also their numbers, 4 + 8 bytes for each row of each block), and nine float64 arrays of
    (n, C); the matrices A take ``8 k^2 C`` bytes, times 9 for dense rows. With the squared loss
    the A of all blocks are kept, ``8 d k C`` bytes. Nothing checks that this fits.

    The bias, without penalty, moves with every block of dense rows, and of CSR rows with blocks
    that have entries in half of the rows; if there is none, it is a block of its own, visited
    whenever the others have moved four times as many rows as there are.

    A block whose least subgradient is below a tenth of the tolerance is left alone. The
    objective is exact after every pass; the fit has converged when a look at all columns at
    once agrees, which is taken after a pass that met no larger subgradient than the tolerance.
    Both take subgradients with respect to columns less their means, over their standard
    deviations (without a bias: over their root mean squares), and compare them with the
    largest at zero.

    References
    ----------
    Richtarik and Takac (2014), "Iteration Complexity of Randomized Block-Coordinate Descent
    Methods for Minimizing a Composite Function"; Tseng and Yun (2009), "A Coordinate Gradient
    Descent Method for Nonsmooth Separable Minimization", for steps with curvature; Dai et al.
    (2014), Section 7, for this method on random features.
    """

    name: ClassVar[str] = "rbcd"
    _state_class: Any = RBCDState

    def __init__(self, *, block_size: int | str = "auto") -> None:
        self.block_size = block_size

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        if self.block_size != "auto":
            check_int(self.block_size, "block_size", low=1)

    def resolve_block_size(self, memory: LinearMemory) -> int:
        """Return the columns of a block."""
        rows, d = memory.rows, int(memory.rows.d)
        if self.block_size != "auto":
            return min(int(self.block_size), max(1, d))
        if d <= _WHOLE and d**2 * memory.Y.shape[1] <= _WHOLE_ENTRIES:
            return max(1, d)
        if not rows.is_sparse:
            return _DENSE_BLOCK
        return int(np.clip(2.0 * np.sqrt(len(rows.data) / d), 1, _SPARSE_BLOCK))

    def _blocks(
        self, problem: LinearProblem, state: RBCDState, memory: LinearMemory
    ) -> DenseBlocks | SparseBlocks:
        """Return the rows by columns, made once."""
        if state.blocks is None:
            rows, size = memory.rows, self.resolve_block_size(memory)
            if rows.is_sparse:
                state.blocks = SparseBlocks(
                    rows.data, rows.indices, rows.indptr, rows.d, size, problem.fit_intercept,
                    memory.share,
                )  # fmt: skip
            else:
                state.blocks = DenseBlocks(rows.X, size, problem.fit_intercept, memory.share)
        return state.blocks

    @staticmethod
    def _gradient(
        memory: LinearMemory, blocks: DenseBlocks | SparseBlocks, found: Evaluation
    ) -> Float64Array:
        """Return the gradient (d, C) with respect to columns less their means."""
        g = memory.rows.public(found.gradient)
        return np.asarray(g - blocks.mean[:, None] * found.gradient_bias)

    def _steepness(
        self, memory: LinearMemory, blocks: DenseBlocks | SparseBlocks, found: Evaluation
    ) -> float:
        """Return the largest entry of the gradient, at least what rounding makes of it."""
        g = np.abs(self._gradient(memory, blocks, found)) / blocks.scale[:, None]
        least = _EPSILON * float(memory.share @ np.abs(found.slopes).sum(axis=1))
        return max(float(g.max(initial=0.0)), least)

    def _unrest(
        self,
        problem: LinearProblem,
        memory: LinearMemory,
        blocks: DenseBlocks | SparseBlocks,
        found: Evaluation,
        W: Float64Array,
    ) -> float:
        """Return the largest entry of the least subgradient of all columns at once."""
        g = self._gradient(memory, blocks, found) + problem.l2 * W
        at_zero = np.maximum(np.abs(g) - problem.l1, 0.0)
        least = np.where(W != 0, np.abs(g + problem.l1 * np.sign(W)), at_zero)
        worst = float((least / blocks.scale[:, None]).max(initial=0.0))
        if not problem.fit_intercept:
            return worst
        return max(worst, float(np.abs(found.gradient_bias).max()))

    def step(self, problem: Problem, state: RBCDState, batch: TrainBatch) -> StepInfo:
        """Visit every block once."""
        own = as_linear(problem)
        memory = self._attach(problem, state, batch)
        with single_threaded_blas():
            blocks = self._blocks(own, state, memory)
            W, b = state.coef.copy(), state.bias.copy()
            U = memory.rows.responses(memory.rows.native(W), b)
            f = Fields(memory.kind, memory.numbers, memory.Y, U, memory.share)
            if state.iteration == 0:
                found = evaluate(own, memory, memory.rows.native(W), b)
                state.steepness = self._steepness(memory, blocks, found)
            aim = own.tol * state.steepness
            rng = draws(own.seed, _TAG, state.iteration)
            violation, shortest = blocks.descend(
                f, W, b, rng.permutation(blocks.n_blocks), own.l1, own.l2,
                _QUIET * aim,
            )  # fmt: skip
            loss = float(f.losses().sum())
            converged = violation <= aim
            if converged:  # each block was at rest when visited, but not all at once
                here = evaluate(own, memory, memory.rows.native(W), b)
                converged = self._unrest(own, memory, blocks, here, W) <= aim
        state.coef, state.bias = W, b
        state.iteration += 1
        state.rows_seen += memory.n
        return StepInfo(
            train_loss=loss,
            step_size=shortest,
            n_random_features=0,
            objective=loss + own.penalty(W),
            converged=converged,
        )
