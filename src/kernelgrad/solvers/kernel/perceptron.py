r"""The kernel perceptron, and the average of its iterates."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernelgrad._typing import Float64Array
from kernelgrad._validation import check_bool
from kernelgrad.solvers.base import Problem, TrainBatch
from kernelgrad.solvers.kernel.online import OnlineSolver, OnlineState


class KernelPerceptron(OnlineSolver):
    r"""The perceptron: a mistake adds its row, ``w <- w + y_i v_i k(x_i, .)``.

    A visit with ``y_i f(x_i) <= 0`` is a mistake, for each class against the rest by itself.
    The problem's alpha plays no part. On rows that some u separates with margin gamma,
    ``y_i u(x_i) >= gamma |u|``, there are at most ``kappa / gamma^2`` mistakes in all, with
    ``k(x, x) <= kappa``; elsewhere the number is bounded by the hinge loss of any u (Section
    4.5 and Appendix D.3 of [1]_). These guarantees are for one pass; more may overfit.

    Where the estimator fits an intercept it is the coefficient of a constant feature 1: each
    mistake adds ``y_i v_i`` to it, from 0.

    Parameters
    ----------
    average : bool or "auto", default="auto"
        Return the mean of the iterates after each visit [2]_, far less noisy than the last
        one. ``"auto"`` is True, or False where `max_support` is given: the mean would need the
        rows that went.
    max_support : int or None, default=None
        Support rows to keep. When a group of 256 visits leaves more, those with the smallest
        ``k(x_s, x_s) max_c a_sc^2`` go, the oldest of equal ones first.

    Notes
    -----
    Needs the loss "perceptron", ``max(0, -y f)``. Sample weights are divided by their mean
    so far; an update counts as many times.

    References
    ----------
    .. [1] Cotter, Shalev-Shwartz and Srebro (2012), "The Kernelized Stochastic Batch
       Perceptron".
    .. [2] Freund and Schapire (1999), "Large margin classification using the perceptron
       algorithm".
    """

    name: ClassVar[str] = "perceptron"
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel", "perceptron_loss"})

    def __init__(self, *, average: bool | str = "auto", max_support: int | None = None) -> None:
        self.average = average
        self.max_support = max_support

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        if self.average != "auto":
            check_bool(self.average, "average")
        self._check_support()

    @property
    def _averaging(self) -> str | None:
        means = self.max_support is None if self.average == "auto" else self.average
        return "uniform" if means else None

    def _start(
        self, problem: Problem, batch: TrainBatch, kappa: float
    ) -> tuple[Float64Array, Float64Array]:
        return np.zeros(problem.n_outputs), np.ones(problem.n_outputs)

    def _schedule(
        self, problem: Problem, state: OnlineState, t: Float64Array
    ) -> tuple[Float64Array, Float64Array]:
        ones = np.ones((len(t), len(state.bias)))
        return ones, ones
