r"""Stochastic gradients from stratified mini-batches, for linear functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from kernelgrad._typing import Float64Array, IntArray
from kernelgrad.solvers.base import Problem, TrainBatch, draws
from kernelgrad.solvers.linear.anchors import check_points, cluster_rows
from kernelgrad.solvers.linear.base import (
    LinearMemory,
    LinearProblem,
    as_linear,
    weighted_draws,
)
from kernelgrad.solvers.linear.sgd import SGD, SGDState

_TAG = 0x737367


@dataclass(kw_only=True)
class SSGDState(SGDState):
    """State of :class:`SSGD`: the stratum of each row, (n,), and what draws need of it."""

    stratum: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    members: list[tuple[IntArray, Float64Array]] = field(default_factory=list, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"members": []}


class SSGD(SGD):
    r"""Stratified stochastic gradient descent: one row of each cluster in every mini-batch.

    The rows are cut into p strata by k-means, p being the batch size. A step draws one row of
    each, in proportion to the weights within it, and counts it by the weight of its stratum:

    .. math:: g = \sum_{s=1}^{p} P_s\, l'(y_{k_s}, u_{k_s})\, x_{k_s}, \qquad
              P_s = \sum_{i \in s} p_i

    which is unbiased, and less noisy where rows of a stratum are alike. All else is as in
    :class:`~kernelgrad.solvers.linear.sgd.SGD`.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p: rows of a step, and strata.
    step_size : float > 0 or "auto", default="auto"
    round_size : int >= 1 or "auto", default="auto"
        Steps of one iteration of the loop; "auto" is one pass over the rows.
    average : bool, default=True

    Notes
    -----
    Needs all rows at once. Clusters are those of a sample; every row joins the nearest centre.

    References
    ----------
    Zhao and Zhang (2014), "Accelerating Minibatch Stochastic Gradient Descent using Stratified
    Sampling"; Mu, Liu and Fan (2015), Section 4.2.
    """

    name: ClassVar[str] = "ssgd"
    streams: ClassVar[bool] = False
    _state_class: Any = SSGDState

    def init(self, problem: Problem, batch: TrainBatch) -> SSGDState:
        """Start from zero coefficients and the best constant; cut the rows into strata."""
        start = self._start(problem, batch)
        memory: LinearMemory = start["memory"]
        k = min(self.batch_size, memory.n)
        check_points(as_linear(problem), k, memory.rows.d, self.name)
        _, stratum = cluster_rows(memory, k, problem.seed)
        return SSGDState(
            average=start["coef"].copy(),
            average_bias=start["bias"].copy(),
            stratum=stratum,
            **start,
        )

    def _draw(
        self, problem: LinearProblem, state: SGDState, memory: LinearMemory, T: int, p: int
    ) -> tuple[IntArray, Float64Array]:
        assert isinstance(state, SSGDState)
        rng = draws(problem.seed, _TAG, state.iteration)
        order = np.empty((T, p), np.int64)
        share = np.zeros((T, p))
        strata = self._members(state, memory)
        for place, (members, cumulative) in enumerate(strata):
            order[:, place] = members[weighted_draws(cumulative, T, rng)]
            share[:, place] = cumulative[-1]
        order[:, len(strata) :] = order[:, :1]  # fewer strata than rows: the rest is nothing
        return order, share

    @staticmethod
    def _members(state: SSGDState, memory: LinearMemory) -> list[tuple[IntArray, Float64Array]]:
        """Return the rows of each stratum that has a weight, and running sums of shares."""
        if not state.members:
            for s in range(int(state.stratum.max()) + 1):
                rows = np.flatnonzero(state.stratum == s)
                cumulative = np.cumsum(memory.share[rows])
                if len(rows) and cumulative[-1] > 0:
                    state.members.append((rows, cumulative))
        return state.members

    def _smoothness(
        self, problem: LinearProblem, state: SGDState, memory: LinearMemory, p: int
    ) -> float:
        """Return that of as many rows as the largest stratum lets count."""
        assert isinstance(state, SSGDState)
        largest = max(float(c[-1]) for _, c in self._members(state, memory))
        return super()._smoothness(problem, state, memory, max(1, int(1.0 / largest)))
