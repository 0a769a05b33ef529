r"""Kernel Pegasos (Shalev-Shwartz et al. 2011)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernelgrad._typing import Float64Array
from kernelgrad._validation import CapabilityError, check_bool, check_real
from kernelgrad.solvers.base import Problem, TrainBatch
from kernelgrad.solvers.kernel.online import OnlineSolver, OnlineState
from kernelgrad.solvers.schedules import smoothness


class Pegasos(OnlineSolver):
    r"""Stochastic subgradient steps of length ``1 / (alpha (t + t0))``, one row at a time.

    On ``alpha/2 |w|^2 + mean_i v_i loss(y_i, b + w(x_i))`` visit t of row i makes

    .. math:: w \leftarrow (1 - \tfrac{1}{t + t_0}) w
              - \tfrac{v_i}{\alpha (t + t_0)} l'(y_i, b + w(x_i))\, k(x_i, \cdot).

    The result is an average of the iterates; its objective is within ``O(log T / (alpha T))``
    (uniform) or ``O(1 / (alpha T))`` (linear) of the minimum. The bias b is the best constant
    of the first batch, where the estimator fits one, and stays.

    Parameters
    ----------
    average : {"auto", "linear", "uniform", None}, default="auto"
        Weights of the iterates in the result: growing as t, equal, or the last one alone.
        ``"auto"`` is ``"linear"`` (the best of the three in error and in objective, measured),
        or None where `max_support` is given: an average would need the rows that went.
    t0 : float >= 0 or "auto", default="auto"
        Visits that count as made before the first. 0 is the paper, with a first step of
        ``1 / alpha``. ``"auto"`` makes the first step ``1 / (L kappa)``, where L is the
        curvature of the loss (``E[l'^2] / E[l]`` for one with kinks) and kappa the mean of
        ``k(x, x)`` on the first batch: ``t0 = max(0, L kappa / alpha - 1)``. Smooth losses
        diverge without; for all, the first passes are not spent on forgetting the first rows.
    projection : bool, default=False
        After each step project every output on the ball of radius ``1 / sqrt(alpha)``, which
        holds the minimiser of the hinge loss (Section 2.2). Rarely changes a result.
    max_support : int or None, default=None
        Support rows to keep. When a group of 256 visits leaves more, those with the smallest
        ``k(x_s, x_s) max_c a_sc^2`` go, the oldest of equal ones first.

    Notes
    -----
    Sample weights are divided by their mean so far and multiply the derivative.
    Losses: hinge, squared and smoothed hinge, logistic, multinomial, perceptron, squared,
    Huber, epsilon-insensitive, absolute, quantile.

    References
    ----------
    Shalev-Shwartz, Singer, Srebro and Cotter (2011), "Pegasos: Primal estimated sub-gradient
    solver for SVM"; kernels in Section 4.
    """

    name: ClassVar[str] = "pegasos"

    def __init__(
        self,
        *,
        average: str | None = "auto",
        t0: float | str = "auto",
        projection: bool = False,
        max_support: int | None = None,
    ) -> None:
        self.average = average
        self.t0 = t0
        self.projection = projection
        self.max_support = max_support

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        if self.t0 != "auto":
            check_real(self.t0, "t0", low=0)
        check_bool(self.projection, "projection")
        self._check_common()

    def check_problem(self, problem: Problem) -> None:
        """Raise for alpha = 0, and with the projection for another loss than the hinge."""
        if problem.alpha <= 0:
            raise ValueError(
                f"solver 'pegasos' needs alpha > 0, got {problem.alpha:g}; its steps are "
                "1 / (alpha t)."
            )
        super().check_problem(problem)

    def _start(
        self, problem: Problem, batch: TrainBatch, kappa: float
    ) -> tuple[Float64Array, Float64Array]:
        bias = np.zeros(problem.n_outputs)
        if problem.fit_intercept:
            bias = problem.loss.intercept(batch.y, batch.sample_weight)
        if self.t0 != "auto":
            return bias, np.full(problem.n_outputs, float(self.t0))
        L = smoothness(problem.loss, batch.y, np.tile(bias, (batch.n_rows, 1)))
        return bias, np.maximum(0.0, L * kappa / problem.alpha - 1.0)

    def _learns_bias(self, problem: Problem) -> bool:
        return False

    def _square_radius(self, problem: Problem) -> float:
        if not self.projection:
            return float(np.inf)
        if problem.loss.name != "hinge":
            raise CapabilityError(
                f"the ball of projection=True is that of the hinge loss, not of "
                f"{problem.loss.name!r}; set projection=False."
            )
        return 1.0 / problem.alpha

    def _schedule(
        self, problem: Problem, state: OnlineState, t: Float64Array
    ) -> tuple[Float64Array, Float64Array]:
        share = 1.0 / (t[:, None] + state.pace)
        return share / problem.alpha, 1.0 - share
