r"""Semi-supervised support vector machines by switching labels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernelgrad.papers.dual_ascent import PseudoSolver, Subproblem
from kernelgrad.params import integer, parameters, real
from kernelgrad.solvers.contract import Problem
from kernelgrad.types import AnyArray, IntArray


@parameters
class S3VMLight(PseudoSolver):
    """Transductive machine on the exact kernel: guessed labels, switched in pairs.

    The machine on labels alone gives +1 to the unlabelled rows with the highest responses, as
    many as the share of the labelled ones, and -1 to the others. Each then has the hinge loss
    of its guess with weight ``c ratio p_i``, where c doubles from ``start`` to 1. For
    every c the machine is trained, and the guesses of two rows of opposite sign are exchanged
    if that lowers their loss. With slacks ``x_i = max(0, 1 - t_i f_i) > 0`` a switch takes
    ``x_i - max(0, 2 - x_i)`` off the loss of a row; for rows of equal weight the two gain if
    ``x_i + x_j > 2``. A round of switches that does not lower the objective at this c is undone
    and ends the search at this c. At c = 1 the objective bounds that of the symmetric hinge
    from above. The first step is the machine on labels, each later one a value of c: about 19
    in all.

    Losses: hinge for labelled rows, symmetric_hinge for the others. The bias is the best
    constant of the labelled rows; for classes of about equal weight prefer
    ``fit_intercept=False``.

    Parameters
    ----------
    tol : float > 0, default=1e-3
        Gap of a machine, relative to its objective. Switches end when all of them together
        would lower the objective by no more than this part.
    start : float in (0, 1], default=1e-5
        The first c.
    max_passes : int, default=1000
        Largest number of passes over the rows for a machine.

    References
    ----------
    Joachims (1999); Sindhwani and Keerthi (2006) for many pairs at once.
    """

    name: ClassVar[str] = "s3vm_light"
    removed = frozenset({"max_switches", "positive_fraction"})
    unlabelled: ClassVar[frozenset[str]] = frozenset({"symmetric_hinge"})

    tol: float = real(default=1e-3, low=0, low_open=True)
    start: float = real(default=1e-5, low=0, high=1, low_open=True)
    max_passes: int = integer(default=1000, low=1)

    def _advance(self, problem: Problem, sub: Subproblem) -> None:
        """Raise the weight of the guesses, train, and switch labels until none gains."""
        state = sub.state
        C = problem.n_outputs
        if state.share == 0.0:
            self._guess(sub)
            state.share = float(self.start)
        else:
            state.share = min(1.0, 2.0 * state.share)
        sub.align()
        sub.solve(np.full(C, np.inf))
        active = np.ones(C, bool)
        while active.any():
            active = self._round(sub, active)
        state.done[:] = state.share == 1.0

    def _guess(self, sub: Subproblem) -> None:
        """Give a label to the unlabelled rows of positive weight by their responses."""
        state = sub.state
        rows = np.flatnonzero(~sub.has_label & (sub.p > 0.0))
        weight = sub.p[sub.has_label]
        labelled = weight @ (sub.labels[sub.has_label] > 0) / weight.sum()
        for c, part in enumerate(labelled):
            count = int(np.floor(part * len(rows) + 0.5))
            order = np.argsort(-sub.responses[c, rows], kind="stable")
            state.side[c, rows] = -1.0
            state.side[c, rows[order[:count]]] = 1.0

    def _round(self, sub: Subproblem, active: AnyArray) -> AnyArray:
        """Switch pairs and train again; return the outputs in which that was of use."""
        state = sub.state
        snapshot, before = sub.snapshot(), state.primal.copy()
        switched = np.zeros_like(active)
        for c in np.flatnonzero(active).tolist():
            pairs, gain = self._pairs(sub, c)
            if gain <= self.tol * abs(before[c]):
                continue
            switched[c] = True
            state.side[c, pairs] *= -1.0
            state.dual[c, pairs] *= -1.0  # rows with a slack still have one, most often
        if not switched.any():
            return switched
        sub.align()
        out = sub.solve(before, snapshot, among=switched)
        sub.measure()
        return np.asarray(switched & (out > 0))

    def _pairs(self, sub: Subproblem, c: int) -> tuple[IntArray, float]:
        """Return the rows to switch in output `c`, and what all pairs together would gain."""
        side = sub.state.side[c]
        slack = 1.0 - side * sub.responses[c]
        gain = sub.weights * (slack - np.maximum(0.0, 2.0 - slack))
        free = ~sub.has_label & (slack > 0.0) & (sub.weights > 0.0)
        positive, negative = (np.flatnonzero(free & (side == t)) for t in (1.0, -1.0))
        positive, negative = (
            rows[np.argsort(-gain[rows], kind="stable")] for rows in (positive, negative)
        )
        m = min(len(positive), len(negative))
        both = gain[positive[:m]] + gain[negative[:m]]
        n_pairs = int(np.count_nonzero(both > 0.0))  # they come in falling order
        gained = float(both[:n_pairs].sum())
        return np.concatenate([positive[:n_pairs], negative[:n_pairs]]), gained
