"""Stochastic gradients with one row from each stratum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from kernelgrad.compute.rng import draws
from kernelgrad.linear import base
from kernelgrad.linear.stochastic import SGD, SGDState, StepRound, weighted_draws
from kernelgrad.papers.s3gd.anchors import check_points, cluster_rows
from kernelgrad.params import parameters
from kernelgrad.solvers.contract import Problem, TrainBatch, sized, transient
from kernelgrad.types import Float64Array, IntArray


@dataclass(kw_only=True)
class SSGDState(SGDState):
    """State of :class:`SSGD`: the stratum of each row, (n,), and what draws need of it."""

    stratum: IntArray = sized("n", kinds="i", into="n", later=True)
    members: list[tuple[IntArray, Float64Array]] = transient(default_factory=list)


@parameters
class SSGD(SGD):
    r"""Stratified stochastic gradient descent: one row of each cluster in every mini-batch.

    The rows are cut into p strata by k-means on a sample, where p is the batch size. A step
    draws one row of each stratum, in proportion to the weights within it, and weights it by its
    stratum:

    .. math:: g = \sum_{s=1}^{p} P_s\, l'(y_{k_s}, u_{k_s})\, x_{k_s}, \qquad
              P_s = \sum_{i \in s} p_i

    which is unbiased, and less noisy if the rows of a stratum are alike. Everything else is as
    in :class:`SGD`, but that all rows are needed at once.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p: rows of a step, and strata.
    step_size, round_size
        As in :class:`SGD`.

    References
    ----------
    Zhao and Zhang (2014); Mu, Liu and Fan (2015), Section 4.2.
    """

    name: ClassVar[str] = "ssgd"
    streams: ClassVar[bool] = False
    state_class: ClassVar[type[Any]] = SSGDState
    tag: ClassVar[int] = 0x737367

    def init(self, problem: Problem, batch: TrainBatch) -> Any:
        state = super().init(problem, batch)
        data: base.PreparedRows = state.data
        k = min(self.batch_size, data.n)
        check_points(base.as_linear(problem), k, data.d, self.name)
        state.stratum = cluster_rows(data, k, problem.seed)
        return state

    def _draw(self, r: StepRound[Any]) -> tuple[IntArray, Float64Array]:
        T, rng = r.n_steps, draws(r.problem.seed, self.tag, r.state.iteration)
        order, share = np.empty((T, r.p), np.int64), np.zeros((T, r.p))
        strata = self._members(r.state, r.data)
        for s, (members, cumulative) in enumerate(strata):
            order[:, s] = members[weighted_draws(cumulative, T, rng)]
            share[:, s] = cumulative[-1]
        order[:, len(strata) :] = order[:, :1]  # fewer strata than rows: the rest is nothing
        return order, share

    @staticmethod
    def _members(
        state: SSGDState, data: base.PreparedRows
    ) -> list[tuple[IntArray, Float64Array]]:
        if not state.members:
            for s in range(int(state.stratum.max()) + 1):
                rows = np.flatnonzero(state.stratum == s)
                cumulative = np.cumsum(data.share[rows])
                if len(rows) and cumulative[-1] > 0:
                    state.members.append((rows, cumulative))
        return state.members

    def _smoothness(self, r: StepRound[Any]) -> float:
        largest = max(float(c[-1]) for _, c in self._members(r.state, r.data))
        return super()._smoothness(replace(r, p=max(1, int(1.0 / largest))))
