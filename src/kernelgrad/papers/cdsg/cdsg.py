"""UDSG and CDSG: steps on old coordinates (Li and Póczos 2016, Algorithms 3 and 4)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from kernelgrad.kernels.stationary import Form
from kernelgrad.params import integer, parameters, real
from kernelgrad.solvers.contract import Problem
from kernelgrad.solvers.dsg import DSG, DSGState, uniform_block
from kernelgrad.types import Float64Array, FloatArray


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
        self, problem: Problem, state: DSGState, gamma: Float64Array, p: Float64Array,
        r: FloatArray,
    ) -> tuple[int, float]:  # fmt: skip
        turn = state.iteration % (self.new_blocks + self.reused_blocks)
        if turn < self.new_blocks:  # Algorithm 3: a new feature
            return state.iterates.x.n_blocks, 1.0
        return uniform_block(problem, state), 1.0  # or a uniformly drawn old one


@parameters
class CDSG(DSG):
    r"""CDSG: steps on an old block where its expected descent is at least that of a new one.

    Every block keeps one number per output, ``beta``: minus the sum of its steps times the
    batch means g of the loss derivative, shrunk like its coefficients. With the step gamma,
    ``M`` the largest derivative of the batch and B its rows, an old block j may be moved by
    any eta that satisfies Eq. (9),

    .. math::
        2 |\beta_j + \eta g|^2 + 2 \eta^2 |M|^2 \sigma^2 / B^2 \le |\beta_j|^2 + \gamma^2 |g|^2

    (sums over outputs, each with its own gamma). If the most negative such eta over all
    blocks is below ``-gamma``, that block is moved by ``min(|eta|, max_step gamma)``; else a
    new block is added. In the printed Algorithm 4 the last two lines hold alpha for beta.

    Parameters
    ----------
    max_step : float >= 1, default=1.0
        Bound of the expected line search in units of gamma. 1 means no line search: larger
        steps are faster at first and worse later. inf is Algorithm 4 as printed.
    spread : float >= 0, default=1.0
        sigma of Eq. (9), the spread of a feature's product over rows; 1 bounds that of cosine
        features. It matters for small batches only.
    block_size, batch_size, preconditioned, decoupled, step_size, decay, damping, momentum,
    average, max_blocks, max_features
        As in :class:`DSG`.
    """

    name: ClassVar[str] = "cdsg"
    _paper_form: ClassVar[Form] = "pair"
    _paper: ClassVar[dict[str, Any]] = {"max_step": np.inf}

    max_step: float = real(default=1.0, low=1, words=(np.inf,))
    spread: float = real(default=1.0, low=0)

    def _choose_block(
        self, problem: Problem, state: DSGState, gamma: Float64Array, p: Float64Array,
        r: FloatArray,
    ) -> tuple[int, float]:  # fmt: skip
        n = state.iterates.x.n_blocks
        if n == 0:
            return 0, 1.0
        g, rows = gamma * (p @ r), 1.0 / float(p @ p)  # rows: their effective number
        noise = gamma * np.abs(r).max(axis=0) * self.spread / rows
        # eta_1, ..., eta_m by Equation (9), and the largest
        eta = allowed_steps(state.beta, g, float(noise @ noise), float(self.max_step))
        best = int(np.argmax(eta))
        if eta[best] <= 1.0:  # |eta_k| <= gamma_t: alpha_{m+1}, beta_{m+1}
            return n, 1.0
        # else alpha_k, beta_k
        return best, min(float(eta[best]), float(self.max_step))

    def _after_step(
        self, state: DSGState, block: int, keep: Float64Array, move: Float64Array
    ) -> None:
        if block == len(state.beta):
            state.beta = np.vstack([state.beta.reshape(-1, len(move)), np.zeros_like(move)])
        state.beta *= keep  # beta_j = (1 - gamma lambda) beta_j
        state.beta[block] -= move


def allowed_steps(
    beta: Float64Array, g: Float64Array, noise: float, bound: float = np.inf
) -> Float64Array:
    """Return the largest step of every block that Eq. (9) allows, 0 if none up to `bound`.

    `g` is the step times the mean derivative of every output, so steps are in units of gamma;
    `noise` is ``|gamma M sigma / B|^2``. The result is ``-eta`` for the smaller root eta of
    ``2 (|g|^2 + noise) eta^2 + 4 (beta . g) eta + |beta|^2 - |g|^2``, clipped at 0.
    """
    a = 2.0 * (float(g @ g) + noise)
    b = 4.0 * (beta @ g)
    c = np.einsum("jc,jc->j", beta, beta) - float(g @ g)
    discriminant = b * b - 4.0 * a * c
    if a == 0.0:
        return np.zeros(len(beta))
    half = np.sqrt(np.maximum(discriminant, 0.0))
    allowed = (discriminant >= 0.0) & ((b - half) / (2.0 * a) <= bound)
    result: Float64Array = np.where(allowed, np.maximum((b + half) / (2.0 * a), 0.0), 0.0)
    return result
