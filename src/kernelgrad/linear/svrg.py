r"""Stochastic gradients with reduced variance (Prox-SVRG)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from kernelgrad.linear import loops
from kernelgrad.linear.base import LinearState, evaluate
from kernelgrad.linear.stochastic import Round, StochasticSolver
from kernelgrad.params import integer, parameters, real
from kernelgrad.types import Float64Array


@parameters
class SVRG(StochasticSolver[LinearState]):
    r"""Proximal stochastic variance-reduced gradients (Prox-SVRG).

    An outer loop stores the gradient of all rows at a snapshot; inner steps use

    .. math:: g = \frac{1}{p} \sum_{k \in I} \bigl(l'(y_k, u_k) - l'(y_k, \tilde u_k)\bigr)
              x_k + \nabla P(\tilde W)

    whose noise vanishes as W and the snapshot approach the minimum, so that a constant step
    converges geometrically. The snapshot's derivatives are kept, one number per row and output,
    so that an inner step needs no second product.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p, that of Mu, Liu and Fan (2015, Section 4.3).
    inner_steps : int >= 1 or "auto", default="auto"
        Steps per snapshot; ``"auto"`` is ``n / p``, one pass over the rows. The paper has 50.
    step_size : float > 0 or "auto", default="auto"
        ``"auto"`` is ``1 / (2 L(p))`` with the expected smoothness L(p) of a mini-batch.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop, in whole outer loops; "auto" is one pass.

    References
    ----------
    Johnson and Zhang (2013); Xiao and Zhang (2014); Mu, Liu and Fan (2015), Equation (4).
    """

    name: ClassVar[str] = "svrg"
    tag: ClassVar[int] = 0x737672

    batch_size: int = integer(default=10, low=1)
    inner_steps: int | str = integer(default="auto", low=1, words=("auto",))
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))

    def _inner(self, r: Round[LinearState]) -> int:
        return -(-r.data.n // r.p) if self.inner_steps == "auto" else int(self.inner_steps)

    def _n_steps(self, r: Round[LinearState]) -> int:
        inner, T = self._inner(r), super()._n_steps(r)
        return max(inner, T if self.round_size == "auto" else T // inner * inner)

    def _runs(self, r: Round[LinearState]) -> Iterator[tuple[int, int, float]]:
        inner, eta = self._inner(r), self._first_step(r)
        for start in range(0, r.n_steps, inner):
            yield start, min(start + inner, r.n_steps), eta

    def _reference(self, r: Round[LinearState], W: Float64Array, b: Float64Array) -> Any:
        return snapshot(r, W, b)


def snapshot(r: Round[Any], W: Float64Array, b: Float64Array) -> loops.Table:
    """Return the derivatives of all rows at W and b as references."""
    here = evaluate(r.problem, r.data, W, b) if r.data.here is None else r.data.here
    return loops.Table(loops.FOREVER, here.gradient, here.gradient_bias, here.slopes)
