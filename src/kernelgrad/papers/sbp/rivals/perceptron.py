"""The kernel perceptron."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernelgrad.papers.online import OnlineSolver, OnlineState, Pair
from kernelgrad.params import boolean, integer, parameters
from kernelgrad.solvers.contract import Problem, TrainBatch
from kernelgrad.types import Float64Array


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
        noisy than the last one. ``"auto"`` is True, or False if `max_support` is given, since
        the mean would need the dropped rows.
    max_support : int or None, default=None
        Support rows to keep: those with the largest ``k(x_s, x_s) max_c a_sc^2``.
    """

    name: ClassVar[str] = "perceptron"
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel", "perceptron_loss"})

    average: bool | str = boolean(default="auto", words=("auto",))
    max_support: int | None = integer(default=None, low=1, words=(None,))

    @property
    def _averaging(self) -> str | None:
        means = self.max_support is None if self.average == "auto" else self.average
        return "uniform" if means else None

    def _start(self, problem: Problem, batch: TrainBatch, kappa: float) -> Pair:
        return np.zeros(problem.n_outputs), np.ones(problem.n_outputs)

    def _schedule(self, problem: Problem, state: OnlineState, t: Float64Array) -> Pair:
        ones = np.ones((len(t), len(state.bias)))
        return ones, ones
