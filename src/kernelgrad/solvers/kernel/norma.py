r"""NORMA: online learning with kernels (Kivinen, Smola and Williamson 2004)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernelgrad._typing import Float64Array
from kernelgrad._validation import check_real
from kernelgrad.solvers.base import Problem, TrainBatch
from kernelgrad.solvers.kernel.online import OnlineSolver, OnlineState
from kernelgrad.solvers.schedules import smoothness


class NORMA(OnlineSolver):
    r"""Gradient steps on the regularised risk of one row at a time, with bounded memory.

    Visit t of row i moves ``f = w + b`` by the step ``eta_t = eta / t^decay``:

    .. math:: w \leftarrow (1 - \eta_t \alpha) w - \eta_t v_i l'(y_i, f(x_i))\, k(x_i, \cdot),
              \qquad b \leftarrow b - \eta_t v_i l'(y_i, f(x_i)).

    The bias, where the estimator fits one, starts from the best constant of the first batch.

    Terms shrink by ``1 - eta_t alpha`` with each visit, so that old ones may be dropped:
    before a term would be one more than `max_support` the one moved longest ago goes. With a
    derivative of at most G, a dropped term has a coefficient of at most
    ``eta_s G prod_{r > s} (1 - eta_r alpha)``; for a constant step (``decay=0``) it is at
    least tau = `max_support` visits old if each visit is a new row, and all dropped terms
    together have a norm of at most

    .. math:: \sum_{r \ge \tau} (1 - \eta \alpha)^r \eta G \sqrt{\kappa}
              = (1 - \eta \alpha)^\tau\, G \sqrt{\kappa} / \alpha

    with ``k(x, x) <= kappa`` (Section IV of the paper): small when
    ``max_support >> 1 / (eta alpha)``. Values of f differ by at most ``sqrt(kappa)`` times it.

    Parameters
    ----------
    step_size : float > 0 or "auto", default="auto"
        eta. ``"auto"`` is ``1 / (L kappa)`` for every output: L is the curvature of the loss
        (``E[l'^2] / E[l]`` for one with kinks: steps then have the scale of the targets) and
        kappa the mean of ``k(x, x)`` on the first batch, plus 1 with a bias. A step on the
        squared loss then meets its target.
    decay : float in [0, 1], default=0
        Exponent of t. A constant step goes furthest in a few passes and follows a target that
        moves; its noise is what the average is for. 0.5 is the rate of the paper's convergence
        theorem.
    average : {"auto", "linear", "uniform", None}, default="auto"
        Weights of the iterates in the result: growing as t, equal, or the last one alone.
        ``"auto"`` is ``"linear"`` (the best of the three in error and in objective, measured),
        or None where `max_support` is given: an average would need the rows that went.
    max_support : int or None, default=None
        Support rows to keep; a visit costs as many kernel values. None keeps all, which is far
        more accurate unless alpha is large enough for the bound above, but grows for ever on
        an endless stream.

    Notes
    -----
    Sample weights are divided by their mean so far and multiply the derivative.
    Losses: hinge, squared and smoothed hinge, logistic, multinomial, perceptron, squared,
    Huber, epsilon-insensitive, absolute, quantile.

    References
    ----------
    Kivinen, Smola and Williamson (2004), "Online learning with kernels", IEEE Transactions on
    Signal Processing 52(8).
    """

    name: ClassVar[str] = "norma"
    drops_oldest: ClassVar[bool] = True

    def __init__(
        self,
        *,
        step_size: float | str = "auto",
        decay: float = 0.0,
        average: str | None = "auto",
        max_support: int | None = None,
    ) -> None:
        self.step_size = step_size
        self.decay = decay
        self.average = average
        self.max_support = max_support

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        if self.step_size != "auto":
            check_real(self.step_size, "step_size", low=0, low_open=True)
        check_real(self.decay, "decay", low=0, high=1)
        self._check_common()

    def _start(
        self, problem: Problem, batch: TrainBatch, kappa: float
    ) -> tuple[Float64Array, Float64Array]:
        bias = np.zeros(problem.n_outputs)
        if problem.fit_intercept:
            bias = problem.loss.intercept(batch.y, batch.sample_weight)
        if self.step_size != "auto":
            return bias, np.full(problem.n_outputs, float(self.step_size))
        L = smoothness(problem.loss, batch.y, np.tile(bias, (batch.n_rows, 1)))
        # the bias moves the response too, by one more
        return bias, 1.0 / (L * max(kappa + problem.fit_intercept, 1e-30))

    def _schedule(
        self, problem: Problem, state: OnlineState, t: Float64Array
    ) -> tuple[Float64Array, Float64Array]:
        eta = state.pace / t[:, None] ** float(self.decay)
        return eta, np.maximum(0.0, 1.0 - eta * problem.alpha)
