"""Newton steps of one function on one block of coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from scipy.special import softmax

from kernelgrad.compute import lapack, linalg
from kernelgrad.compute.threads import parallel_for
from kernelgrad.losses import scalar
from kernelgrad.solvers.block_descent.coordinates import EPSILON, Block
from kernelgrad.solvers.block_descent.loops import MOMENTUM, SCALE, STEP
from kernelgrad.solvers.block_descent.objective import Objective, Search, minimise_on_span
from kernelgrad.solvers.block_descent.shards import (
    Constants,
    HessianSample,
    Path,
    Response,
    Slopes,
    Team,
)  # fmt: skip
from kernelgrad.solvers.contract import sized
from kernelgrad.types import Float32Array, Float64Array

STORE_BYTES = 2 * 2**30  # bytes of stored block values unless a memory limit is given
MOMENTUM_WEIGHT = 0.7  # weight of the earlier momentum in that of the next block
DAMPING = 1e-2  # damping of the first step, in units of the block's mean curvature
_MOST_DAMPING = 1e3  # largest damping, in the same unit
_LEAST_SHARE = 1e-2  # least part of the first objective that tolerances refer to
_TASK = 512  # sampled rows that one task takes

# Jitter of coefficients, in units of the Hessian's mean diagonal. The Hessian squares the
# condition of the kernel values: summed in float32 it would need 1e-5, which hides all but the
# smoothest part of a smooth kernel from every block. Summed in float64 it takes the least, and
# more, up to the safe one, where rounding could cost more of the objective than is allowed: in
# the responses, or in the norm, where steps on few blocks, visited again and again, exploit it.
JITTER, _MOST_JITTER = 1e-11, 1e-3


@dataclass
class Iterate:
    """The function of a fit; the shards hold its responses.

    f is kept without the constant b, whose rounding it would carry. Between blocks a momentum
    is all steps of the last block and, less and less, of those before. The jitter grows when
    coefficients were so large that rounding belied the slope of a step.
    """

    alpha: float
    bias: Float64Array = sized("C")  # constant b
    bias_momentum: Float64Array = sized("C")  # part of the momentum that belongs to b
    widths: Float64Array = sized("C")  # widths of the smoothed kinks, in units of the targets
    damping: float = DAMPING
    jitter: float = 0.0  # jitter of coefficients, in units of the Hessian's mean diagonal
    claim: float = np.inf  # smoothed objective that the last step promised
    rejected: int = 0  # blocks in a row without a step
    moves: int = 0  # steps taken
    recent: Float64Array = sized("recent", empty=True)  # gains of the last blocks
    loss: float = np.inf
    objective: float = np.inf
    start: float = 0.0  # objective before the first step
    constant: float = np.inf  # objective of the best constant
    first_bias: Float64Array = sized("C", empty=True)  # best constant
    result_bias: Float64Array = sized("C", empty=True)  # constant of the result
    moving: bool = False  # whether there is a momentum

    @property
    def is_poor(self) -> bool:
        """True if the constant model beats this iterate; it then is the result.

        While kinks are smoothed a function may be worse, and few blocks may not mend it.
        """
        return self.objective > self.constant


@dataclass
class Workspace:
    """Data computed from the rows, which can be computed again."""

    team: Team
    objective: Objective
    spread: Float64Array  # mean size of the targets, (C,)
    scale: float  # mean of k(x, x)
    peak: float  # largest length of a row's coordinates
    n_features: int
    max_width: int  # coordinates of a block at most
    n_blocks: int  # blocks that have all coordinates once

    @property
    def too_many(self) -> bool:
        """Whether the values of a block are too many to be stored with any memory."""
        return 4 * self.objective.n * self.max_width > STORE_BYTES


def _positive(G: Float64Array) -> Float64Array:
    """Return inner products as they can be: symmetric and without negative eigenvalues.

    Rounding in cached responses would otherwise offer directions of negative norm.
    """
    diagonal = np.einsum("cii->ci", G)
    # a squared norm below 0 is a direction lost in rounding: so are its other products, which
    # would be taken for correlations of 1 and lengthen the other directions
    true = diagonal > 0
    G = np.where(true[:, :, None] & true[:, None, :], G, 0.0)
    size = np.sqrt(np.where(true, diagonal, 1.0))
    outer = size[:, :, None] * size[:, None, :]
    scaled = np.clip(G / outer, -1.0, 1.0)
    scaled = 0.5 * (scaled + scaled.transpose(0, 2, 1))
    values, vectors = np.linalg.eigh(scaled)
    product = np.einsum("cik,ck,cjk->cij", vectors, np.maximum(values, 0.0), vectors)
    return np.asarray(product * outer)


class _Curvature:
    """Products with the Hessian of the mean loss on sampled rows, outputs coupled or not."""

    def __init__(
        self, values: Float32Array, sample: HessianSample, W: Float32Array, objective: Objective
    ) -> None:
        self.sample = values
        self.weights = W * sample.share
        self.share = sample.share * sample.weight
        self.probabilities: Float32Array | None = None
        if objective.code == scalar.MULTINOMIAL:
            self.probabilities = softmax(sample.responses, axis=0)

    def product(self, V: Float64Array, fit_bias: bool) -> Float64Array:
        """Return the Hessian times V (C, M + 1), the last column of which is the bias."""
        sample = self.sample
        m, M = sample.shape
        with np.errstate(over="ignore"):  # a step that long is refused afterwards
            V32 = V.astype(np.float32)
        kv = np.empty((len(V), m), np.float32)
        tiles = -(-m // _TASK)

        def forward(i: int) -> None:
            part = slice(i * _TASK, (i + 1) * _TASK)
            kv[:, part] = V32[:, :M] @ sample[part].T

        parallel_for(tiles, forward)
        if fit_bias:
            kv += V32[:, M:]
        if self.probabilities is None:
            kv *= self.weights
        else:
            p = self.probabilities
            kv = self.share * p * (kv - np.einsum("cm,cm->m", p, kv))
        parts = np.zeros((tiles, len(V), M))

        def backward(i: int) -> None:
            part = slice(i * _TASK, (i + 1) * _TASK)
            parts[i] = kv[:, part] @ sample[part]

        parallel_for(tiles, backward)
        out = np.zeros(V.shape)
        out[:, :M] = parts.sum(axis=0) / m
        if fit_bias:
            out[:, M] = kv.sum(axis=1, dtype=np.float64) / m
        else:
            out[:, M] = V[:, M]
        return out


class BlockSteps:
    """Newton steps on one block after another."""

    def __init__(self, it: Iterate, workspace: Workspace) -> None:
        self.it, self.workspace = it, workspace
        self.objective, self.team = workspace.objective, workspace.team
        self.live = True
        self.last_step = 0.0
        self.gains: list[float] = []
        self._set_slopes(self.team.ask("derive", self._point))
        if not np.isfinite(it.constant) and not it.moves:
            it.first_bias = it.bias.copy()
            it.constant = self.exact + float(self.objective.linear @ it.bias)

    @property
    def _point(self) -> Constants:
        return Constants(self.it.bias, self.it.widths)

    def _set_slopes(self, answers: list[Slopes]) -> None:
        self.smooth = sum(a.smooth for a in answers)
        self.exact = sum(a.exact for a in answers)
        self.total = np.sum([a.total for a in answers], axis=0)
        self.curved = [a.curved for a in answers]

    def enter(self, block: Block, fit_bias: bool) -> None:
        """Begin a block, with an update that holds f and p in terms of themselves before it.

        The coordinates of the update are f, p and the block's coefficients.
        """
        self.block, self.fit_bias = block, fit_bias
        it, C = self.it, len(self.it.bias)
        # along the path of several blocks there is more to gain than along the last inner step
        weight = None
        if self.workspace.n_blocks > 1:  # responses computed anew have forgotten it
            weight = MOMENTUM_WEIGHT if it.moving else 0.0
        before = np.zeros((2, C, 2 + block.width))
        before[0, :, 0] = before[1, :, 1] = 1.0
        self.update = Path(before[0], before[1])
        self._bias = Path(it.bias[:, None], it.bias_momentum[:, None])
        self._coef = np.concatenate(self.team.ask("enter", block, weight), axis=1)
        self._paths = [self.update, self._bias]
        for path in self._paths:
            path.enter(weight)
        self._factor: Any = None
        self._factored = np.full(2, np.nan)
        self._safe = 1e-5 if self.workspace.n_blocks > 1 else 1e-6

    def _set_bias(self) -> None:
        self.it.bias, self.it.bias_momentum = self._bias.value[:, 0], self._bias.momentum[:, 0]

    def slopes(
        self, requests: list[tuple[Any]] | None = None
    ) -> tuple[Float64Array, list[HessianSample]]:
        """Return ``R K`` and the sample for the Hessian if asked for; set f at the centres.

        By the reproducing property f there is its inner products with the coordinates.
        """
        answers = self.team.ask("products", each=requests)
        self._f_at = self._gathered([a[1] for a in answers])
        return np.sum([a[0] for a in answers], axis=0), [a[2] for a in answers]

    def _gathered(self, parts: list[Float32Array]) -> Float64Array:
        """Return the values of all shards at the block's centres, which are sorted."""
        return np.concatenate(parts, axis=1).astype(np.float64)

    def curve(self, sample: HessianSample) -> None:
        """Estimate the block's Hessian of the mean loss on sampled rows."""
        W, share, weight = sample.curvature, sample.share, sample.weight
        if self.objective.kinked:
            W = self._sharpened(W, weight)
        w = W.max(axis=0)
        # no row is quite without curvature, but none of weight zero has any
        each = w / np.maximum(weight, np.float32(1e-30))
        w = (w + np.float32(1e-4) * each.max(initial=0.0) * weight) * share
        root = np.sqrt(w)[:, None]
        m, M = len(w), self.block.width
        self._sample, values = None, None
        if m == M == self.objective.n:  # all rows are centres
            values = self.block.gram
        if self.objective.C > 1 and self.objective.code != scalar.SQUARED:
            values = self.block.sample(sample.rows) if values is None else values
            self._sample = _Curvature(values, sample, W, self.objective)
        self.H = self.block.squares(sample.rows, root, values)
        self.H /= m
        self._diagonal = self.H.diagonal().copy()
        self.level = float(self._diagonal[:M].mean())
        self.size = max(float(self.block.gram.diagonal().mean()), 1e-30)

    def _sharpened(self, W: Float32Array, weight: Float32Array) -> Float32Array:
        """Return curvatures that fall with the square of the distance to a kink.

        The majorising curvature falls with the distance itself, which makes steps safe but
        short; the second derivative is zero outside the width.
        """
        share = W / np.maximum(weight, np.float32(1e-30))
        top = share.max(axis=1, keepdims=True)
        return np.asarray(W * (share / np.maximum(top, np.float32(1e-30))))

    def _factorise(self) -> bool:
        it, gram, M = self.it, self.block.gram, self.block.width
        ridge = it.alpha + it.damping * self.level / self.size
        it.jitter = max(it.jitter, JITTER)
        # the kernel's own part, of float32 values, may have negative eigenvalues
        part = max(it.jitter, 1e-5) * ridge * self.size
        least, at = it.jitter * self.level + part, np.arange(M)
        for jitter in islice(linalg.dampings(least, 0.0), 12):
            H = linalg.folded(self.H, self._diagonal, gram, ridge)
            H[at, at] += jitter
            H[M, M] = H[M, M] * (1 + 1e-6) + 1e-30
            if not self.fit_bias:
                H[M, :M] = 0.0
                H[M, M] = 1.0
            if lapack.factor(H.T):
                self._factor, self._ridge, self._jitter = H.T, ridge, jitter
                self._factored = np.array([it.damping, it.jitter])
                return True
        return False

    def solve(self, products: Float64Array) -> None:
        """Set the move of the block's coefficients, (C, M) float32, and of the bias."""
        it, C, n = self.it, len(self.it.bias), self.objective.n
        self.gradient = products / n + it.alpha * self._f_at
        slope = np.zeros(C)
        if self.fit_bias:
            slope = self.total / n + self.objective.linear
        self.bias_slope = slope
        right = np.concatenate([self.gradient, slope[:, None]], axis=1)
        move = np.zeros((C, self.block.width + 1))
        while self.live:
            needed = np.array([it.damping, it.jitter])
            serves = (needed <= self._factored) & (self._factored <= 10.0 * needed)
            if not serves.all() and not self._factorise():
                self.live = False
                break
            move = -self._apply(right)
            if self._factored[1] >= _MOST_JITTER or self._keeps(move):
                break
            it.jitter = min(10 * self._factored[1], _MOST_JITTER)
        if self.live and self._sample is not None:
            move = self._refine(right, move)
        with np.errstate(over="ignore"):
            self.move = np.ascontiguousarray(move[:, :-1], np.float32)
        self.bias_move = move[:, -1] if self.fit_bias else np.zeros(C)

    def _keeps(self, move: Float64Array) -> bool:
        """Return whether rounding costs no more of the objective than it may.

        Large coefficients of opposite signs are a small function with large rounding errors:
        those of a move change the responses, those of all the block's coefficients the norm.
        """
        it, size = self.it, max(abs(self.smooth), _LEAST_SHARE * abs(self.it.start))
        new = float(np.linalg.norm(move[:, :-1]))
        error = self.block.rounding * new
        bend, n = sum(self.curved) / self.objective.n, self.objective.n
        # errors of rows have other signs than their slopes, whose size is that of a square loss
        rows = 0.5 * bend * error**2 + error * np.sqrt(2.0 * bend * abs(self.smooth) / n)
        if self._factored[1] >= self._safe:
            return bool(rows <= 1e-3 * size)
        own = self.update.value
        coef = own[:, :1] * self._coef + own[:, 2:] + move[:, :-1]
        norm = it.alpha * self.block.rounding * np.sqrt(self.block.width) * (coef**2).sum()
        lost = min(1e-7 * self.workspace.n_blocks, 1e-5)  # share of the norm
        return bool(rows <= 1e-4 * size and norm <= lost * size)

    def _apply(self, right: Float64Array) -> Float64Array:
        """Return the inverse of the damped Hessian times `right` (C, M + 1)."""
        return lapack.solve(self._factor, right.T).T

    def _refine(self, right: Float64Array, start: Float64Array) -> Float64Array:
        """Return the Newton step of the coupled Hessian, by conjugate gradients from zero.

        The shared factor, of the largest curvature over the outputs, preconditions.
        """
        curvature, M, gram = self._sample, self.block.width, self.block.gram
        assert curvature is not None
        exact = curvature.sample.shape[0] >= self.objective.n
        most, tol = (20, 1e-3) if exact else (5, 1e-2)  # steps, squared residual left
        first = going = np.ones((len(right), 1))

        def inner(a: Float64Array, b: Float64Array) -> Float64Array:
            each = np.einsum("cm,cm->c", a, b)[:, None]
            return np.full_like(each, each.sum()) if self.objective.joint else each

        def product(V: Float64Array) -> tuple[Float64Array, Float64Array]:
            nonlocal going
            out = curvature.product(V, self.fit_bias)
            with np.errstate(over="ignore"):
                coef = V[:, :M].astype(np.float32)
            out[:, :M] += self._ridge * (coef @ gram)
            out[:, :M] += self._jitter * V[:, :M]
            bend = inner(V, out)
            going = going * (bend > 0)
            return out, bend

        def precondition(x: Any, r: Float64Array) -> tuple[Float64Array, Float64Array] | None:
            nonlocal first, going
            z = start if x is None else self._apply(r)
            rz = inner(r, z)
            first = rz if x is None else first
            going = going * (rz > (0.0 if x is None else tol * first))
            return (z, going * rz) if going.any() else None

        x = linalg.conjugate_gradients(product, precondition, -right, most)
        if x is None:
            return start
        good = np.isfinite(x).all(axis=1) & (inner(x, right)[:, 0] < 0)
        return np.where(good[:, None], x, start)

    def search(self) -> None:
        """Minimise along the move, the last step and the scale; then take the step."""
        it = self.it
        if not self.live or not np.isfinite(self.move).all():
            self._reject()
            return
        answers: list[Response] = self.team.ask("respond", self.move, self.bias_move)
        largest = np.max([a.largest for a in answers], axis=0)
        if not np.isfinite(largest[1]).all():
            self._reject()
            return
        gram = self._gram(answers)
        alpha = it.alpha
        moves = self.move.astype(np.float64)
        expected = float((self.gradient * moves).sum() + self.bias_slope @ self.bias_move)
        slope = sum(a.slope for a in answers)
        slope += alpha * gram[:, 0, 1].sum() + self.objective.linear @ self.bias_move
        if not (slope < 0 and abs(slope - expected) <= 0.3 * abs(expected)):
            self._reject()
            return
        size = self.smooth + 0.5 * alpha * gram[:, 0, 0].sum()
        size += float(np.abs(self.objective.linear * it.bias).sum())
        if -expected <= 5e-7 * abs(size):  # rounding of the terms of the objective
            self._settle()
            return
        directions = STEP
        if it.moves and self._is_true(largest[2], gram[:, 2, 2]):
            directions |= MOMENTUM
        if it.moves and self._is_true(largest[0], gram[:, 0, 0]):
            directions |= SCALE
        bias_steps = np.stack([np.zeros_like(it.bias), self.bias_move, it.bias_momentum], 1)

        def along(steps: Float64Array) -> Float64Array:
            asked = self.bias_move, it.bias_momentum, steps, directions
            return np.asarray(np.sum(self.team.ask("along", *asked), axis=0))

        result = minimise_on_span(
            self.objective, along, it.bias, bias_steps, gram, alpha, directions
        )
        if result.before > it.claim + max(1e-3 * abs(it.claim), 1e-6 * abs(it.start)):
            self._roll_back()
            return
        if not result.moved.any():
            self._settle()
            return
        if self.objective.exponential and self._noise(result, answers) > 1e-3:
            self._reject()
            return
        self._take(result, moves)

    def _noise(self, result: Search, answers: list[Response]) -> float:
        """Return what float32 responses and kernel values would lose of f after a step."""
        s = np.abs(result.steps).max(axis=0)
        largest = [float(a.max()) for a in np.max([a.largest for a in answers], axis=0)]
        lengths = np.sqrt(np.sum([a.squares for a in answers], axis=0))
        norms = lengths[0], float(np.linalg.norm(self.move)), lengths[1]
        s[0] += 1.0
        return EPSILON * float(s @ largest + self.workspace.peak**2 * (s @ norms))

    def _is_true(self, largest: Float32Array, square_norm: Float64Array) -> bool:
        """Return whether responses are those of a function: ``|g(x)| <= |g| sqrt(k(x, x))``.

        Differences of large responses are nothing but rounding when the function is small;
        along them the objective would fall without end.
        """
        bound = 1.1 * np.sqrt(np.maximum(square_norm, 0.0)) * self.workspace.peak
        return bool(np.all(largest <= bound))

    def _gram(self, answers: list[Response]) -> Float64Array:
        """Return inner products of (f, D, p), (C, 3, 3), within Cauchy and Schwarz."""
        moves = self.move.astype(np.float64)
        G = np.empty((len(moves), 3, 3))
        norms = np.sum([a.norms for a in answers], axis=0)
        own = self._gathered([a.move for a in answers])
        last = self._gathered([a.momentum for a in answers])
        G[:, 1, 1] = (moves * own).sum(axis=1)
        G[:, 0, 1] = G[:, 1, 0] = (moves * self._f_at).sum(axis=1)
        G[:, 2, 1] = G[:, 1, 2] = (moves * last).sum(axis=1)
        G[:, 0, 0], G[:, 0, 2], G[:, 2, 2] = norms
        G[:, 2, 0] = G[:, 0, 2]
        return _positive(G)

    def _take(self, result: Search, moves: Float64Array) -> None:
        it, s, moved = self.it, result.steps, np.asarray(result.moved)
        self.update.take(s, moved, moves, slice(2, None))
        self._bias.take(s * [0.0, 1.0, 1.0], moved, self.bias_move[:, None])
        self._set_bias()
        answers = self.team.ask("take", s, moved, self._point)
        it.moving = True
        typical = float(np.median(s[moved, 1]))
        self.last_step = typical
        if typical < 0.5:
            it.damping = min(4 * it.damping, _MOST_DAMPING)
        elif typical < 0.75:
            it.damping = min(2 * it.damping, _MOST_DAMPING)
        elif typical > 1.0:
            it.damping = max(it.damping / 3, 1e-9)
        if not it.moves:
            it.start = result.before
        it.claim, it.rejected = result.after, 0
        it.jitter /= 3
        it.moves += 1
        self.gains.append(result.before - result.after)
        self._set_slopes(answers)

    def _reject(self) -> None:
        it = self.it
        it.jitter = min(10 * it.jitter, _MOST_JITTER)
        it.damping = min(max(10 * it.damping, 1e-6), _MOST_DAMPING)
        it.rejected += 1
        self.live = False

    def _settle(self) -> None:
        """Leave the block when rounding limits it, without increasing the damping."""
        it = self.it
        it.rejected += 1
        if it.damping > 1:
            it.damping = 0.1 * it.damping
        self.live = False

    def _roll_back(self) -> None:
        it = self.it
        for path in self._paths:
            path.undo()
        self._set_bias()
        it.damping = min(max(100 * it.damping, 1e-4), _MOST_DAMPING)
        it.claim, it.moving, self.live = np.inf, False, False
        self._set_slopes(self.team.ask("roll_back", self._point))

    def worth(self, number: int, n: int, M: int) -> bool:
        """Return whether one more step gains as much for its price as the block so far."""
        if not self.gains:
            return False
        C = len(self.it.bias)
        step = n * M * max(4.0 * C, 24.0)
        block = n * M * (2.0 * self.workspace.n_features + 30) + 4.0 * M**3
        return self.gains[-1] / step >= sum(self.gains) / (block + (number + 1) * step)

    def leave(self, tol: float, pace: int) -> None:
        """Finish the block: measure loss and objective, and narrow the smoothing.

        Where the gain of recent blocks is small against the error of smoothing it is narrowed;
        so it is where a block gains no more than `tol` times the objective, until the largest
        error it could make anywhere is as small: at the smoothed minimum no row may be at a
        kink, and many at the true one. The block is `still` where `pace` blocks of its gain
        would make no more than that part.
        """
        it, objective = self.it, self.objective
        for path in self._paths:
            path.leave()
        self._set_bias()
        left = self.team.ask("leave")
        norms = np.sum([norm for norm, *_ in left], axis=0)
        norm2 = float(norms.sum())
        self.n_values, self.n_centres = (sum(a[i] for a in left) for i in (2, 3))
        it.loss = sum(mean for _, mean, *_ in left)
        it.objective = it.loss + 0.5 * it.alpha * max(norm2, 0.0)
        it.objective += float(objective.linear @ it.bias)
        it.result_bias = it.bias.copy()
        if self.fit_bias and objective.loss.adaptive_intercept:
            self._level(0.5 * it.alpha * max(norm2, 0.0))
        size = max(abs(it.objective), _LEAST_SHARE * abs(it.start))
        gain, least = sum(self.gains), tol * size
        narrowed = False
        if objective.kinked:
            gap = max(self.smooth - self.exact, 0.0)
            widths = objective.initial_widths(self.workspace.scale, self.workspace.spread)
            floor = 1e-6 * widths
            window = min(self.workspace.n_blocks, 4)
            it.recent = np.append(it.recent, gain)[-window:]
            progress = float(it.recent.sum()) if len(it.recent) == window else np.inf
            settled = gain <= least and objective.largest_gap(it.widths) > least
            if (gap > 0.5 * progress or settled) and np.any(it.widths > floor):
                factor = 0.3 if settled or gap > 10 * progress else 0.5
                it.damping = min(it.damping, DAMPING)
                it.recent = it.recent[:0]
                it.widths = np.maximum(factor * it.widths, floor)
                it.claim, it.rejected, narrowed = np.inf, 0, True
        self.still = pace * gain <= least and not narrowed

    def _level(self, penalty: float) -> None:
        """Use the best constant of the loss if it lowers the exact objective."""
        it, objective = self.it, self.objective
        parts = self.team.ask("responses", slice(None))
        f, Y = (np.concatenate([a[i] for a in parts], axis=1).T for i in (0, 1))
        f = f.astype(np.float64)
        w = np.concatenate([a[2] for a in parts]).astype(np.float64)
        bias, _ = objective.loss.best_intercept(f, w)
        level = float(w @ objective.loss.value(Y, f + bias)) / objective.n + penalty
        level += float(objective.linear @ bias)
        if level < it.objective:
            it.objective, it.result_bias = level, np.asarray(bias, np.float64)
