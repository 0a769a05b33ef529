r"""Doubly stochastic gradients with uniform re-use of blocks (Li and Póczos 2017)."""

from __future__ import annotations

from typing import ClassVar

from kernelgrad._params import integer, parameters
from kernelgrad.solvers.base import Problem
from kernelgrad.solvers.random_features.dsg import DSG, DSGState, Proposal, uniform_block


@parameters
class UDSG(DSG):
    r"""UDSG(G, U): in every cycle G steps on new blocks, then U steps on old ones.

    Old blocks are drawn uniformly; such a step changes their coefficients and adds nothing,
    so a fit of T iterations ends with about ``T G / (G + U)`` blocks and costs as much less
    in prediction. The bound of Theorem 4 is worse than that of DSG per iteration; in
    practice it is usually ahead per second.

    Parameters
    ----------
    new_blocks : int, default=1
        G, steps on new blocks per cycle. ``G = U = 1`` is the paper's setting.
    reused_blocks : int, default=1
        U, steps on old blocks per cycle; 0 is DSG.
    block_size, batch_size, preconditioned, step_size, decay, damping, momentum, average,
    max_blocks
        As in :class:`DSG`.

    References
    ----------
    Li and Póczos (2017), "Utilize Old Coordinates: Faster Doubly Stochastic Gradients for
    Kernel Methods", Algorithm 3, Theorem 4.
    """

    name: ClassVar[str] = "udsg"

    new_blocks: int = integer(default=1, low=1)
    reused_blocks: int = integer(default=1)

    def _choose_block(
        self, problem: Problem, state: DSGState, proposal: Proposal
    ) -> tuple[int, float]:
        place = state.iteration % (self.new_blocks + self.reused_blocks)
        if place < self.new_blocks:
            return state.iterates.x.n_blocks, 1.0
        return uniform_block(problem, state), 1.0
