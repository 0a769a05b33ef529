"""NORMA: gradient steps on one row at a time."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernelgrad.papers.online import OnlineSolver, OnlineState, Pair
from kernelgrad.params import choice, integer, parameters, real
from kernelgrad.solvers.contract import Problem
from kernelgrad.types import Float64Array


@parameters
class NORMA(OnlineSolver):
    r"""Gradient steps on the regularised risk of one row at a time.

    Visit t of row i moves ``f = w + b`` by the step ``eta_t = eta / t^decay``:

    .. math:: w \leftarrow (1 - \eta_t \alpha) w - \eta_t v_i l'(y_i, f(x_i))\, k(x_i, \cdot),
              \qquad b \leftarrow b - \eta_t v_i l'(y_i, f(x_i)).

    The bias, where the estimator fits one, starts from the best constant of the first batch.
    Losses and sample weights are as in :class:`Pegasos`.

    Parameters
    ----------
    step_size : float > 0 or "auto", default="auto"
        eta. ``"auto"`` is ``1 / (L kappa)`` for every output: L is the curvature of the loss
        (``E[l'^2] / E[l]`` for one with kinks: steps then have the scale of the targets) and
        kappa the mean of ``k(x, x)`` on the first batch, plus 1 with a bias.
    decay : float in [0, 1], default=0
        Exponent of t. A constant step makes the most progress in a few passes and follows a
        changing target; 0.5 is the rate of the paper's convergence theorem.
    average : {"auto", "linear", "uniform", None}, default="auto"
        Weights of the iterates in the result: growing as t, equal, or the last one alone.
        ``"auto"`` is ``"linear"``.
    radius : float > 0 or None, default=None
        Project every output on the ball of this radius B after each step. With ``alpha=0``,
        ``step_size=B``, ``decay=0.5`` and a uniform average this is stochastic gradient descent
        on the mean loss subject to ``|w| <= B`` (Section 4.2 of Cotter et al. 2012).
    rows_per_step : int >= 1, default=1
        Rows of a step, with the mean of their derivatives, as Section 7 of Dai et al. (2014)
        has it; t counts steps. Not with `radius`.

    References
    ----------
    Kivinen, Smola and Williamson (2004), "Online learning with kernels".
    """

    name: ClassVar[str] = "norma"
    pace_parameter: ClassVar[str] = "step_size"

    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    decay: float = real(default=0.0, low=0, high=1)
    average: str | None = choice(("auto", "linear", "uniform"), default="auto", words=(None,))
    radius: float | None = real(default=None, low=0, low_open=True, words=(None,))
    rows_per_step: int = integer(default=1, low=1)

    def check(self) -> None:
        super().check()
        if self.radius is not None and self.rows_per_step > 1:
            raise ValueError("NORMA takes radius or rows_per_step above 1, not both.")

    def _square_radius(self, problem: Problem) -> float:
        return np.inf if self.radius is None else float(self.radius) ** 2

    def _first_pace(self, problem: Problem, L: Float64Array, kappa: float) -> Float64Array:
        # the bias moves the response too, by one more
        return np.asarray(1.0 / (L * max(kappa + problem.fit_intercept, 1e-30)))

    def _schedule(self, problem: Problem, state: OnlineState, t: Float64Array) -> Pair:
        eta = state.pace / t[:, None] ** float(self.decay)
        return eta, np.maximum(0.0, 1.0 - eta * problem.alpha)
