"""Pegasos on linear functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from kernelgrad.linear.stochastic import AveragingSolver, StepRound
from kernelgrad.params import integer, parameters, real
from kernelgrad.types import Float64Array


@parameters
class LinearPegasos(AveragingSolver):
    r"""Pegasos: stochastic subgradients with steps ``1 / (l2 t)`` and a projection.

    .. math:: W \leftarrow \Pi\Bigl[\mathrm{prox}\Bigl(W - \frac{1}{l_2 (t + t_0)} \frac{1}{p}
              \sum_k l'(y_k, u_k)\, x_k\Bigr)\Bigr]

    where the projection, after each run of steps, is onto the ball of radius ``sqrt(2 P(0) /
    l2)``, which contains the minimum; P(0) is the mean loss of the best constant. Streams, of
    which it is unknown, have no projection. The result is
    the average of the iterates, weighted towards the last ones. The bias, which has no penalty,
    takes the same steps. Takes every loss; needs an L2 penalty and no L1.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p.
    offset : float >= 0 or "auto", default="auto"
        t_0. ``"auto"`` is ``L(p) / l2``, which makes the first step ``1 / L(p)``; 0 is the
        paper's, whose first steps are as large as ``1 / l2``.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop; "auto" is one pass over the rows.

    References
    ----------
    Shalev-Shwartz et al. (2011); Rakhlin, Shamir and Sridharan (2012) for averages of last
    iterates.
    """

    name: ClassVar[str] = "pegasos"
    removed = frozenset({"average", "project"})
    takes_l1: ClassVar[bool] = False
    needs_l2: ClassVar[bool] = True

    batch_size: int = integer(default=10, low=1)
    offset: float | str = real(default="auto", low=0, words=("auto",))
    round_size: int | str = integer(default="auto", low=1, words=("auto",))

    def _runs(self, r: StepRound[Any]) -> Iterator[tuple[int, int, float]]:
        l2, auto = r.problem.l2, self.offset == "auto"
        offset = self._smoothness(r) / l2 if auto else float(self.offset)
        first, start = 0, r.state.n_steps
        while first < r.n_steps:
            t = start + first + offset
            last = min(r.n_steps, first + max(1, int(0.05 * t)))
            middle = start + 0.5 * (first + last + 1) + offset
            yield first, last, 1.0 / (l2 * middle)
            first = last

    def _after(self, r: StepRound[Any], W: Float64Array, b: Float64Array, n: int) -> None:
        if r.problem.fixed_rows:
            radius = np.sqrt(2.0 * r.state.first_loss / r.problem.l2)
            norm = float(np.sqrt((W * W).sum()))
            if norm > radius:
                W *= radius / norm
        super()._after(r, W, b, n)
