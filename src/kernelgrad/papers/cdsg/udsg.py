"""UDSG: steps on new and on old coordinates in turn (Li and Póczos 2016, Algorithm 3)."""

from __future__ import annotations

from typing import ClassVar

from kernelgrad.kernels.stationary import Form
from kernelgrad.params import integer, parameters
from kernelgrad.solvers.contract import Problem
from kernelgrad.solvers.dsg import DSG, DSGState, Proposal, uniform_block


@parameters
class UDSG(DSG):
    """UDSG(G, U): in every cycle G steps on new blocks, then U steps on old ones.

    Old blocks are drawn uniformly. A step on one changes its coefficients and adds no block, so
    a fit of T iterations ends with about ``T G / (G + U)`` blocks and predicts faster in
    proportion. Per iteration the bound of Theorem 4 is worse than that of DSG; per second UDSG
    is usually ahead in practice.

    Parameters
    ----------
    new_blocks : int, default=1
        G, steps on new blocks per cycle. ``G = U = 1`` is the paper's setting.
    reused_blocks : int, default=1
        U, steps on old blocks per cycle; 0 is DSG.
    block_size, batch_size, preconditioned, decoupled, step_size, decay, damping, momentum,
    average, max_blocks, max_features
        As in :class:`DSG`.
    """

    name: ClassVar[str] = "udsg"
    _paper_form: ClassVar[Form] = "pair"

    new_blocks: int = integer(default=1, low=1)
    reused_blocks: int = integer(default=1)

    def _choose_block(
        self, problem: Problem, state: DSGState, proposal: Proposal
    ) -> tuple[int, float]:
        turn = state.iteration % (self.new_blocks + self.reused_blocks)
        if turn < self.new_blocks:  # Algorithm 3: a new feature
            return state.iterates.x.n_blocks, 1.0
        return uniform_block(problem, state), 1.0  # or a uniformly drawn old one
