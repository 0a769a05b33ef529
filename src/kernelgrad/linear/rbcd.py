r"""Randomised block coordinate descent on all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.files.records import Record, anything
from kernelgrad.linear import base
from kernelgrad.linear.column_blocks import ColumnBlocks, LossState, Targets
from kernelgrad.params import integer, parameters
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, draws, transient

_QUIET = 0.1  # share of the tolerance below which a block is left alone
# A block of all columns is a Newton step: up to a Cholesky factor of 512 columns, and
# curvature matrices of 8 MiB, it costs less than the passes that it saves.
WHOLE, WHOLE_ENTRIES = 512, 2**20
_DENSE_BLOCK, _SPARSE_BLOCK = 32, 64  # columns of a block of wider rows


@dataclass(kw_only=True)
class RBCDState(base.LinearState):
    blocks: ColumnBlocks | None = transient()

    @classmethod
    def restore_parts(cls, problem: Problem, record: Record) -> dict[str, Any]:
        record.take("steepness", anything, None)  # files of 0.1 and 0.2, equal to `first`
        return {}


@parameters
class RBCD(base.LinearSolver[RBCDState]):
    r"""Randomised block coordinate descent on all rows, by Newton steps on blocks of columns.

    A pass keeps the responses U of all rows up to date and visits every block B of adjacent
    columns once, in random order, moving it towards the minimum of the second-order model

    .. math:: \langle g, D \rangle + \tfrac12 \langle D, A D \rangle + R(W_B + D), \qquad
              g = X_B^T (p\, l'(U)), \quad A = X_B^T \operatorname{diag}(p\, l''(U)) X_B,

    with halvings until the objective falls by a tenth of what the slope predicts, so that no
    block raises it. For the multinomial loss l'' is replaced by ``2 q_c (1 - q_c)`` of the
    probabilities q, a bound without entries between outputs; where l'' is zero, a small
    curvature replaces it. Each block is solved together with the bias, and columns far from
    zero are shifted to about zero, so that neither units nor means of columns matter.

    A block whose least subgradient (of centred columns over their standard deviations) is below
    a tenth of the tolerance is skipped; after a pass without one above the tolerance all
    columns are checked at once. Memory: a copy of the rows by blocks of columns, nine float64
    arrays of (n, C), and ``72 k^2 C`` bytes of matrices A; with the squared loss ``8 d k``
    bytes more.

    Parameters
    ----------
    block_size : int >= 1 or "auto", default="auto"
        Columns of a block, k. ``"auto"`` takes all columns where there are at most 512 (and
        ``d^2 C`` at most 2^20): a pass is then a full proximal Newton step, and six or eight
        reach the minimum to rounding. Wider rows have blocks of 32, CSR rows of 64.

    References
    ----------
    Richtarik and Takac (2014); Tseng and Yun (2009) for steps with curvature; Dai et al.
    (2014), Section 7, for this method on random features.
    """

    name: ClassVar[str] = "rbcd"
    searches: ClassVar[bool] = True
    state_class: ClassVar[type[Any]] = RBCDState
    tag: ClassVar[int] = 0x726263

    block_size: int | str = integer(default="auto", low=1, words=("auto",))

    def resolve_block_size(self, data: base.PreparedRows) -> int:
        """Return the columns of a block for these rows."""
        d = data.d
        if self.block_size != "auto":
            return min(int(self.block_size), max(1, d))
        whole = d <= WHOLE and d**2 * data.Y.shape[1] <= WHOLE_ENTRIES
        wide = _SPARSE_BLOCK if data.is_sparse else _DENSE_BLOCK
        return max(1, d) if whole else wide

    def step(self, problem: Problem, state: RBCDState, batch: TrainBatch) -> StepInfo:
        own = base.as_linear(problem)
        data = self._attach(problem, state, batch)
        W, b, aim = state.coef.copy(), state.bias.copy(), own.tol * state.first
        with single_threaded_blas():
            if state.blocks is None:
                size = self.resolve_block_size(data)
                state.blocks = ColumnBlocks(data, size, own.fit_intercept)
            targets = Targets(data.code, data.numbers, data.Y, data.share)
            f = LossState(targets, data.responses(data.native(W), b))
            rng = draws(own.seed, self.tag, state.iteration)
            order = rng.permutation(len(state.blocks.blocks))
            violation, shortest = state.blocks.descend(own, f, W, b, order, _QUIET * aim)
            converged = violation <= aim
            if converged:  # each block was at rest when visited, but not all at once
                native = data.native(W)
                here = base.evaluate(own, data, native, b)
                converged = here.optimality(own, data, native) <= aim
        loss = float(f.losses().sum())
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
