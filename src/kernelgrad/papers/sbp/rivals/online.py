"""Pegasos with kernels, and the kernel perceptron."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernelgrad.papers.online import OnlineSolver, OnlineState, Pair
from kernelgrad.params import boolean, choice, parameters, real
from kernelgrad.solvers.contract import Problem, TrainBatch
from kernelgrad.solvers.support import check_alpha
from kernelgrad.types import Float64Array


@parameters
class Pegasos(OnlineSolver):
    r"""Stochastic subgradient steps of length ``1 / (alpha (t + t0))``, one row at a time.

    On ``alpha/2 |w|^2 + mean_i v_i loss(y_i, b + w(x_i))`` visit t of row i makes

    .. math:: w \leftarrow (1 - \tfrac{1}{t + t_0}) w
              - \tfrac{v_i}{\alpha (t + t_0)} l'(y_i, b + w(x_i))\, k(x_i, \cdot).

    The result is an average of the iterates; its objective is within ``O(log T / (alpha T))``
    (uniform) or ``O(1 / (alpha T))`` (linear) of the minimum. The bias b is the best constant
    of the first batch, where the estimator fits one, and stays. Sample weights are divided by
    their mean so far and multiply the derivative; a step of a weight v above 1 is ``ceil(v)``
    equal ones, each with the derivative where the last led.

    Parameters
    ----------
    average : {"auto", "linear", "uniform", None}, default="auto"
        Weights of the iterates in the result: growing as t, equal, or the last one alone.
        ``"auto"`` is ``"linear"``, the best of the three in error and in objective (measured).
    t0 : float >= 0 or "auto", default="auto"
        Number of visits assumed before the first. 0 is the paper, with a first step of
        ``1 / alpha``. ``"auto"`` makes the first step ``1 / (L kappa)``, where L is the
        curvature of the loss (``E[l'^2] / E[l]`` for one with kinks) and kappa the mean of
        ``k(x, x)`` on the first batch. Smooth losses diverge with 0.

    References
    ----------
    Shalev-Shwartz, Singer, Srebro and Cotter (2011); kernels in Section 4.
    """

    name: ClassVar[str] = "pegasos"
    learns_bias: ClassVar[bool] = False
    pace_parameter: ClassVar[str] = "t0"

    average: str | None = choice(("auto", "linear", "uniform"), default="auto", words=(None,))
    t0: float | str = real(default="auto", low=0, words=("auto",))

    def check_problem(self, problem: Problem) -> None:
        check_alpha(self.name, problem.alpha)
        super().check_problem(problem)

    def _first_pace(self, problem: Problem, L: Float64Array, kappa: float) -> Float64Array:
        return np.maximum(0.0, L * kappa / problem.alpha - 1.0)

    def _schedule(self, problem: Problem, state: OnlineState, t: Float64Array) -> Pair:
        share = 1.0 / (t[:, None] + state.pace)
        return share / problem.alpha, 1.0 - share


@parameters
class KernelPerceptron(OnlineSolver):
    """The perceptron: a mistake adds its row, ``w <- w + y_i v_i k(x_i, .)``.

    A visit with ``y_i f(x_i) <= 0`` is a mistake, counted separately for each class against the
    rest. The problem's alpha has no effect. On rows that some u separates with margin gamma,
    ``y_i u(x_i) >= gamma |u|``, one pass makes at most ``kappa / gamma^2`` mistakes, with
    ``k(x, x) <= kappa``; elsewhere the number is bounded by the hinge loss of any u (Cotter et
    al. 2012, Section 4.5 and Appendix D.3). Needs the loss "perceptron", ``max(0, -y f)``.
    Sample weights are divided by their mean so far; an update counts as many times. Where the
    estimator fits an intercept it is the coefficient of a constant feature 1.

    Parameters
    ----------
    average : bool or "auto", default="auto"
        Return the mean of the iterates after each visit (Freund and Schapire 1999), far less
        noisy than the last one. ``"auto"`` is True.
    """

    name: ClassVar[str] = "perceptron"
    counts_all_rows: ClassVar[bool] = True
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel", "perceptron_loss"})

    average: bool | str = boolean(default="auto", words=("auto",))

    @property
    def _averaging(self) -> str | None:
        return "uniform" if self.average else None

    def _start(self, problem: Problem, batch: TrainBatch, kappa: float) -> Pair:
        return np.zeros(problem.n_outputs), np.ones(problem.n_outputs)

    def _schedule(self, problem: Problem, state: OnlineState, t: Float64Array) -> Pair:
        ones = np.ones((len(t), len(state.bias)))
        return ones, ones
