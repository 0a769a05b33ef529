r"""Pegasos for linear functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from kernelgrad._typing import Float64Array
from kernelgrad._validation import check_bool, check_int, check_real
from kernelgrad.solvers.linear.base import LinearMemory, LinearProblem, check_round_size
from kernelgrad.solvers.linear.sgd import SGD, SGDState

_LONGER = 0.05  # growth of a run of steps with one step size: 1 / t changes as much


class LinearPegasos(SGD):
    r"""Pegasos: stochastic subgradients with steps ``1 / (l2 t)`` and a projection.

    .. math:: W \leftarrow \Pi\Bigl[\mathrm{prox}\Bigl(W - \frac{1}{l_2 (t + t_0)} \frac{1}{p}
              \sum_k l'(y_k, u_k)\, x_k\Bigr)\Bigr]

    where the projection, after each run of steps, is onto the ball of radius
    ``sqrt(2 P(0) / l2)``, which holds the minimum, P(0) being the mean loss of the best
    constant. The result is the average of the iterates, weighted towards the last ones.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p.
    offset : float >= 0 or "auto", default="auto"
        t_0. ``"auto"`` is ``L(p) / l2``, which makes the first step ``1 / L(p)``; 0 is the
        paper's, whose first steps are as large as ``1 / l2``.
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop; "auto" is one pass over the rows.
    average : bool, default=True
    project : bool, default=True
        On rows that are known as a whole; a stream does not tell P(0).

    Notes
    -----
    The bias, which has no penalty, takes the same steps. Takes every loss, with subgradients
    at kinks; needs an L2 penalty and no L1.

    References
    ----------
    Shalev-Shwartz, Singer, Srebro and Cotter (2011), "Pegasos: Primal Estimated sub-GrAdient
    SOlver for SVM"; Rakhlin, Shamir and Sridharan (2012) for averages of the last iterates.
    """

    name: ClassVar[str] = "pegasos"
    takes_l1: ClassVar[bool] = False
    needs_l2: ClassVar[bool] = True
    step_size: float | str = "auto"

    def __init__(
        self,
        *,
        batch_size: int = 10,
        offset: float | str = "auto",
        round_size: int | str = "auto",
        average: bool = True,
        project: bool = True,
    ) -> None:
        self.batch_size = batch_size
        self.offset = offset
        self.round_size = round_size
        self.average = average
        self.project = project

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_int(self.batch_size, "batch_size", low=1)
        if self.offset != "auto":
            check_real(self.offset, "offset", low=0)
        check_round_size(self.round_size)
        check_bool(self.average, "average")
        check_bool(self.project, "project")

    def _parts(
        self, problem: LinearProblem, state: SGDState, memory: LinearMemory, T: int, p: int
    ) -> Iterator[tuple[int, int, float]]:
        if self.offset == "auto":
            offset = self._smoothness(problem, state, memory, p) / problem.l2
        else:
            offset = float(self.offset)
        first, start = 0, state.n_steps
        while first < T:
            t = start + first + offset
            last = min(T, first + max(1, int(_LONGER * t)))
            middle = start + 0.5 * (first + last + 1) + offset
            yield first, last, 1.0 / (problem.l2 * middle)
            first = last

    def _after(
        self,
        problem: LinearProblem,
        state: SGDState,
        memory: LinearMemory,
        W: Float64Array,
        b: Float64Array,
        n_steps: int,
    ) -> None:
        if self.project and problem.fixed_rows:
            radius = np.sqrt(2.0 * state.first_loss / problem.l2)
            norm = float(np.sqrt((W * W).sum()))
            if norm > radius:
                W *= radius / norm
        super()._after(problem, state, memory, W, b, n_steps)
