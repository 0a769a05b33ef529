"""Stochastic block mirror descent on blocks of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from kernelgrad.compute import rows as layouts
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.rng import draws
from kernelgrad.compute.rows import as_rows, column, entries, entry
from kernelgrad.linear import base
from kernelgrad.linear.loops import loss_of_row, responses, shrink
from kernelgrad.linear.stochastic import AveragingSolver, SGDState, draw_batches, falling_runs
from kernelgrad.params import integer, parameters, real
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, sized
from kernelgrad.types import Float64Array, IntArray

_BLOCKS = 8
_LEAST = 1e-3  # share of the largest L_B(p): blocks of nearly empty columns step no further


@dataclass(kw_only=True)
class SBMDState(SGDState):
    """State of :class:`SBMD`: the current iterate, the average and the scale of the blocks.

    ``top`` and ``mean`` belong to the columns of each block, (B,): the largest squared norm of
    a row seen so far, and the largest eigenvalue of the second moments of the first batch.
    ``n_drawn`` counts rows drawn, ``pass_rows`` is t_0 in rows.
    """

    top: Float64Array = sized("B", later=True)
    mean: Float64Array = sized("B", later=True)
    n_drawn: int = 0


@parameters
class SBMD(AveragingSolver):
    r"""Stochastic block mirror descent: each step takes a mini-batch and one block of columns.

    .. math:: W_B \leftarrow \mathrm{prox}_{\eta_{B,t} R}\Bigl(W_B - \eta_{B,t} \frac{1}{p}
              \sum_{k \in I_t} l'(y_k, x_k W + b)\, x_{k,B}\Bigr), \qquad
              \eta_{B,t} = \frac{\eta_{B,0}}{(1 + t / t_0)^{3/4}}

    with mini-batches and t_0 as those of :class:`~kernelgrad.linear.stochastic.SGD`, and blocks
    B of adjacent columns drawn uniformly. The bias moves in every step, with a B-th of
    the given step size, or ``4 / B`` over the curvature of the loss. The result is the average
    of the iterates, taken 32 times a pass and weighted towards the last ones. Takes every loss
    and rows one batch at a time. Use it for comparisons: ``"sgd"`` comes closer in as many
    passes.

    Parameters
    ----------
    batch_size : int >= 1, default=10
        p.
    n_blocks : int >= 1 or "auto", default="auto"
        Blocks, at most one a column. ``"auto"`` is 8; 1 is stochastic gradient descent.
    step_size : float > 0 or "auto", default="auto"
        The first step of every block. ``"auto"`` is ``1 / (2 L_B(p))`` with the expected
        smoothness of a mini-batch in the columns of the block: narrow blocks step further.

    References
    ----------
    Dang and Lan (2015), with the Euclidean mirror map; Dai et al. (2014), Section 7.
    """

    name: ClassVar[str] = "sbmd"
    state_class: ClassVar[type[Any]] = SBMDState
    tag: ClassVar[int] = 0x73626D

    batch_size: int = integer(default=10, low=1)
    n_blocks: int | str = integer(default="auto", low=1, words=("auto",))
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))

    def cuts(self, d: int) -> IntArray:
        """Return (B + 1,): block i has the columns ``cuts[i], ..., cuts[i + 1] - 1``."""
        wanted = _BLOCKS if self.n_blocks == "auto" else int(self.n_blocks)
        B = max(1, min(wanted, d))
        return np.arange(B + 1, dtype=np.int64) * d // B

    def init(self, problem: Problem, batch: TrainBatch) -> SBMDState:
        state: SBMDState = super().init(problem, batch)
        if self.step_size == "auto":
            data = self._attach(problem, state, batch)
            state.mean = np.array(list(self._spectra(problem, data)))
            state.top = self._largest_norms(data)
        return state

    def _spectra(self, problem: Problem, data: base.PreparedRows) -> Iterator[float]:
        """Yield the largest eigenvalue of the second moments of each block.

        On at most 4,096 rows, as :meth:`PreparedRows.spectrum`.
        """
        sample = data.sample(draws(problem.seed, self.tag, 0))
        X = sample.batch.X.tocsc() if data.is_sparse else sample.batch.X
        for a, z in pairwise(self.cuts(data.d).tolist()):
            part = X[:, a:z].tocsr() if data.is_sparse else X[:, a:z]
            one = replace(sample, batch=replace(sample.batch, X=part), rows=as_rows(part))
            yield one.spectrum(False, problem.seed)

    def _largest_norms(self, data: base.PreparedRows) -> Float64Array:
        first = self.cuts(data.d)
        of = np.repeat(np.arange(len(first) - 1), np.diff(first))
        largest = np.zeros(len(first) - 1)
        block_norms(data.rows, data.share, of, largest)
        return largest

    def _attach(
        self, problem: Problem, state: SBMDState, batch: TrainBatch
    ) -> base.PreparedRows:
        """Return the prepared rows; those that were not there before may be larger."""
        new = state.data is None or state.data.batch is not batch
        data = super()._attach(problem, state, batch)
        if new and len(state.top):
            state.top = np.maximum(state.top, self._largest_norms(data))
        return data

    def first_steps(
        self, state: SBMDState, data: base.PreparedRows, batch_size: int, n_blocks: int
    ) -> tuple[Float64Array, float]:
        """Return the first step of each block (B,) and of the bias."""
        if self.step_size != "auto":
            eta = float(self.step_size)
            return np.full(n_blocks, eta), eta / n_blocks
        n, p = data.n, batch_size
        # see PreparedRows.batch_smoothness
        rest = (n - p) / max(1, n - 1) if data.is_uniform else 1.0
        L = data.curvature * (rest * state.top + (p - rest) * state.mean) / p
        L = np.maximum(L, max(_LEAST * L.max(), 1e-300))
        return 0.5 / L, 0.5 * _BLOCKS / (n_blocks * data.curvature)

    def step(self, problem: Problem, state: SBMDState, batch: TrainBatch) -> StepInfo:
        own = base.as_linear(problem)
        data = self._attach(problem, state, batch)
        p = min(self.batch_size, data.n)
        T = -(-data.n // p)
        rng = draws(own.seed, self.tag, state.iteration)
        order, share = draw_batches(data, T, p, rng)
        first = self.cuts(data.d)
        chosen = rng.integers(0, len(first) - 1, T)
        eta, eta_bias = self.first_steps(state, data, p, len(first) - 1)
        eta_bias *= float(own.fit_intercept)
        W, b = data.native(state.coef), state.bias.copy()
        least = 0 if own.fixed_rows else base.STREAM_ROWS
        state.pass_rows = max(state.pass_rows, T * p, least)
        seen, fall = 0.0, 1.0
        for start, stop, fall in falling_runs(T, p, 1.0, state.n_drawn, state.pass_rows):
            now = slice(start, stop)
            seen += descend_on_blocks(
                data.code, data.numbers, data.rows, data.Y, W, b, order[now], share[now],
                chosen[now], first, fall * eta, fall * eta_bias, own.l1, own.l2,
            )  # fmt: skip
            if not (np.isfinite(W).all() and np.isfinite(b).all()):
                break
            state.n_drawn += (stop - start) * p
            state.take_average(data.native(W), b, (stop - start) * p, state.n_drawn)
        self._store(state, data, W, b, data.n)
        return StepInfo(train_loss=seen / T, step_size=float(fall * eta.max()))


# -- loops ---------------------------------------------------------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def block_norms(rows: Any, share: Float64Array, block: IntArray, largest: Float64Array) -> None:
    """Raise `largest` to the squared norms of rows with a share in each block of columns."""
    total = np.zeros(len(largest))
    for i in range(len(share)):
        if share[i] > 0.0:
            total[:] = 0.0
            for q in entries(rows, i):
                total[block[column(rows, q)]] += np.float64(entry(rows, i, q)) ** 2
            for a in range(len(largest)):
                largest[a] = max(largest[a], total[a])


def _dense_move(
    rows: Any, batch: Any, V: Any, W: Any, low: int, high: int, eta: float, l1: float, l2: float
) -> None:
    for c in range(len(W)):
        w = W[c, low:high]
        for k in range(len(batch)):
            s = eta * V[k, c]
            if s != 0.0:
                x = rows.values[batch[k], low:high]
                for j in range(high - low):
                    w[j] -= s * x[j]
        for j in range(high - low):
            w[j] = shrink(w[j], eta, l1, l2)


def _csr_move(
    rows: Any, batch: Any, V: Any, W: Any, low: int, high: int, eta: float, l1: float, l2: float
) -> None:
    for k in range(len(batch)):
        i = batch[k]
        for q in range(rows.indptr[i], rows.indptr[i + 1]):
            j = rows.indices[q]
            if low <= j < high:
                for c in range(W.shape[1]):  # no views of W: each would count references
                    W[j, c] -= eta * rows.data[q] * V[k, c]
    for j in range(low, high):
        for c in range(W.shape[1]):
            W[j, c] = shrink(W[j, c], eta, l1, l2)


_move = layouts.by_type({layouts.Dense: _dense_move, layouts.Csr: _csr_move})


@njit(nogil=True, cache=True, error_model="numpy")
def descend_on_blocks(
    code: int, numbers: Any, rows: Any, Y: Any, W: Any, b: Any, order: Any, share: Any,
    chosen: Any, first: Any, eta: Any, eta_bias: float, l1: float, l2: float,
) -> float:  # fmt: skip
    """Take T steps in place, each on block ``chosen[t]``; return the sum of losses seen.

    Arguments are as in :func:`kernelgrad.linear.loops.descend`; first (B + 1,), eta (B,).
    """
    T, p = order.shape
    C = len(b)
    V, u = np.zeros((p, C)), np.zeros(C)
    seen = 0.0
    for t in range(T):
        batch, a = order[t], chosen[t]
        for k in range(p):
            i = batch[k]
            responses(rows, i, W, b, u)
            seen += share[t, k] * loss_of_row(code, numbers, Y[i], u, V[k])
            for c in range(C):
                V[k, c] *= share[t, k]
        for c in range(C):
            total = 0.0
            for k in range(p):
                total += V[k, c]
            b[c] -= eta_bias * total
        _move(rows, batch, V, W, first[a], first[a + 1], eta[a], l1, l2)
    return seen
