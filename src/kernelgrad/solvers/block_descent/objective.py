"""The objective of a problem on the responses of all rows, and its minimum on a small span."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kernelgrad.compute import linalg
from kernelgrad.losses import Loss, OneClass, scalar
from kernelgrad.solvers.block_descent import loops
from kernelgrad.solvers.block_descent.loops import MOMENTUM, SCALE, STEP
from kernelgrad.types import Float32Array, Float64Array

_LONGEST = np.array([0.9, 8.0, 8.0])  # steps along scale, step and momentum
_RIDGE = 1e-6  # damping of a scaled Hessian of unit diagonal


class Objective:
    r"""The objective: the mean loss of n rows with C outputs, with smoothed kinks.

    ``sum_i w_i l_delta(y_i, u_i) / n + sum_c linear_c b_c`` with weights of mean 1. A loss
    that this library has no loops for goes through its methods, with its majorising curvature
    in place of second derivatives. Some of the n rows contribute by their targets Y (C, m),
    weights w (m,) and responses U (C, m).
    """

    def __init__(self, loss: Loss, n_outputs: int, n: int) -> None:
        self.loss = loss
        self.C, self.n = n_outputs, n
        # smoothing leads the perceptron away from its minimum, the kink of all rows
        self.code = None if loss.code == scalar.PERCEPTRON else loss.code
        self.params = loss.params(self.C)
        # outputs of a row that the loss couples are searched together, others apart
        self.joint = self.code in (None, scalar.MULTINOMIAL)
        self.n_groups = 1 if self.joint else self.C
        self.kinked = self.code in scalar.KINKED  # which are smoothed over a width
        # the loss grows as the exponential of f, and so do errors of f
        self.exponential = self.code in (
            scalar.KL, scalar.POISSON, scalar.GAMMA, scalar.TWEEDIE,
        )  # fmt: skip
        # gradient of the part that is linear in the bias
        self.linear = np.full(self.C, loss.nu if isinstance(loss, OneClass) else 0.0)

    def initial_widths(self, scale: float, spread: Float64Array) -> Float64Array:
        """Return the first widths of smoothing, (C,).

        `scale` is that of the kernel, `spread` the mean size of the targets, (C,).
        """
        if self.code == scalar.ONE_CLASS:
            return np.full(self.C, 0.1 * scale)
        if self.code == scalar.HINGE or not self.kinked:
            return np.full(self.C, 0.5)  # part of the margin, or of the targets' spread
        return np.where(spread > 0, 0.5 * spread, 1.0)

    def largest_gap(self, widths: Float64Array) -> float:
        """Return the largest difference that smoothing can make to the mean loss."""
        kinks = 2.0 if self.code == scalar.EPSILON else 1.0
        return 0.25 * kinks * float(widths.sum())

    def derivatives(
        self, Y: Float32Array, w: Float32Array, widths: Float64Array, U: Float32Array,
        R: Float32Array, W: Float32Array,
    ) -> tuple[float, float]:  # fmt: skip
        """Write weighted slopes and majorising curvatures; return mean losses.

        The first is smoothed, the second exact.
        """
        if self.code is not None:
            sums = loops.weighted_sums(self.code, self.params, widths, U, Y, w, (R, W))
            smooth, exact = sums[:, :2].sum(axis=0).tolist()
            return smooth / self.n, exact / self.n
        total = 0.0
        for rows in _chunks(len(w)):
            y, u, part = Y[:, rows].T, U[:, rows].T.astype(np.float64), w[rows]
            R[:, rows] = (part[:, None] * self.loss.gradient(y, u)).T
            W[:, rows] = part * self.loss.curvature(y, u)
            total += float(part.astype(np.float64) @ self.loss.value(y, u))
        return (total / self.n,) * 2

    def along(
        self, Y: Float32Array, w: Float32Array, widths: Float64Array, U: Float32Array,
        base: Float64Array, D: Float32Array, P: Float32Array, steps: Float64Array,
        directions: int,
    ) -> Float64Array:  # fmt: skip
        """Return mean loss and its derivatives at ``U + s0 (U - base) + s1 D + s2 P``.

        The result, (groups, 10), is value, gradient and upper triangle of the Hessian in (s0,
        s1, s2).
        """
        if self.code is not None:
            table = self.code, self.params, widths
            sums = loops.weighted_sums(*table, U, Y, w, None, base, D, P, steps, directions)
            return (sums.sum(axis=0, keepdims=True) if self.joint else sums) / self.n
        out = np.zeros((1, 10))
        for rows in _chunks(len(w)):
            X = np.stack([U[:, rows] - base[:, None], D[:, rows], P[:, rows]]).astype(float)
            u = U[:, rows] + np.einsum("ck,kcn->cn", steps, X)
            y, part = Y[:, rows].T, w[rows].astype(np.float64)
            out[0, 0] += part @ self.loss.value(y, u.T)
            slope = self.loss.gradient(y, u.T).T * part
            bend = self.loss.curvature(y, u.T) * part
            out[0, 1:4] += np.einsum("cn,kcn->k", slope, X)
            H = np.einsum("n,kcn,lcn->kl", bend, X, X)
            out[0, 4:] += H[np.triu_indices(3)]
        return np.asarray(out / self.n)


def _chunks(m: int) -> Iterator[slice]:
    return (slice(a, min(m, a + 65_536)) for a in range(0, m, 65_536))


class Search(NamedTuple):
    """The result of :func:`minimise_on_span`.

    ``steps`` are (C, 3), zero where nothing was gained (``moved`` is False there); ``before``
    and ``after`` are the smoothed objective.
    """

    steps: Float64Array
    moved: Any
    before: float
    after: float


Along = Callable[[Float64Array], Float64Array]


def minimise_on_span(
    objective: Objective, along: Along, bias: Float64Array, bias_steps: Float64Array,
    gram: Float64Array, alpha: float, directions: int,
) -> Search:  # fmt: skip
    """Minimise the objective over ``(1 + s0) f + s1 D + s2 P``, each output apart if it can be.

    Newton's method with backtracking in up to three dimensions; it never returns a larger
    objective. `along` gives the sums of :meth:`Objective.along` over all rows for steps
    (C, 3). `bias` (C,) is the constant in f, `bias_steps` (C, 3) those in the three directions,
    the first of which is 0; `gram` (C, 3, 3) are inner products of (f, D, P) in the kernel's
    space, `directions` a bit mask of SCALE, STEP and MOMENTUM.
    """
    C, G = objective.C, objective.n_groups
    linear = objective.linear[:, None] * bias_steps
    constant = objective.linear * bias
    if objective.joint:
        gram = gram.sum(axis=0, keepdims=True)
        linear, constant = linear.sum(axis=0, keepdims=True), constant.sum(keepdims=True)

    def evaluate(s: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        t = along(np.ascontiguousarray(np.broadcast_to(s, (C, 3))))
        u = s + np.array([1.0, 0.0, 0.0])
        norm = np.einsum("gij,gj->gi", gram, u)
        value = t[:, 0] + 0.5 * alpha * np.einsum("gi,gi->g", u, norm)
        value += constant + np.einsum("gi,gi->g", linear, s)
        H = np.empty((G, 3, 3))
        upper = np.triu_indices(3)
        H[:, upper[0], upper[1]] = H[:, upper[1], upper[0]] = t[:, 4:]
        return value, t[:, 1:4] + alpha * norm + linear, H + alpha * gram

    def shortened(at: list[Any], newton: Float64Array, fall: Any, first: Any) -> list[Any]:
        """Return the point after what gains enough of the steps, of `first` times newton."""
        trial = at

        def gain(t: Any) -> Any:
            nonlocal trial
            s = np.where(first[:, None] > 0, at[3] + t[:, None] * newton, at[3])
            trial = [*evaluate(s), s]
            return np.where(first > 0, at[0] - trial[0], np.inf)

        t = linalg.backtracked(gain, fall, 1e-4, first=first, factor=0.3, tries=12)
        moves = [(t > 0).reshape(-1, *[1] * (old.ndim - 1)) for old in at]
        return [np.where(*part) for part in zip(moves, trial, at, strict=True)]

    with np.errstate(over="ignore", invalid="ignore"):
        at = [*evaluate(np.zeros((G, 3))), np.zeros((G, 3))]
        start, going = at[0], np.isfinite(at[0])
        usable = np.array([bool(directions & bit) for bit in (SCALE, STEP, MOMENTUM)])
        for iteration in range(6):
            value, slope, H, s = at
            newton = _newton_step(slope, H, usable)
            fall = -np.einsum("gi,gi->g", slope, newton)
            least = (3e-7 if iteration == 0 else 1e-7) * np.abs(value)
            going = going & np.isfinite(fall) & (fall > least)
            room = np.where(newton > 0, _LONGEST - s, _LONGEST + s)
            length = np.min(room / np.maximum(np.abs(newton), 1e-300), axis=1)
            going = going & (length > 0)
            if not going.any():
                break
            first = np.where(going, np.minimum(length, 1.0), 0.0)
            at = shortened(at, newton, np.where(going, fall, 0.0), first)
            going = going & (value - at[0] > 1e-3 * (start - at[0]))
    value, s = at[0], at[3]
    moved = value < start
    s = np.where(moved[:, None], s, 0.0)
    return Search(
        steps=np.ascontiguousarray(np.broadcast_to(s, (C, 3))),
        moved=np.broadcast_to(moved, (C,)),
        before=float(start.sum()),
        after=float(np.where(moved, value, start).sum()),
    )


def _newton_step(slope: Float64Array, H: Float64Array, usable: Any) -> Float64Array:
    """Return ``-H^-1 slope`` over usable directions, scaled to a unit diagonal and damped."""
    diagonal = np.einsum("gii->gi", H)
    on = usable & (diagonal > 1e-290) & np.isfinite(diagonal)
    size = np.where(on, np.sqrt(np.where(on, diagonal, 1.0)), 1.0)
    both = on[:, :, None] & on[:, None, :]
    scaled = np.where(both, H / (size[:, :, None] * size[:, None, :]), 0.0)
    scaled = np.nan_to_num(scaled, posinf=0.0, neginf=0.0)
    right = np.nan_to_num(np.where(on, slope / size, 0.0), posinf=0.0, neginf=0.0)
    values, vectors = np.linalg.eigh(scaled)
    values = np.maximum(values, 0.0) + _RIDGE
    values = np.where(values < 1e-5, np.inf, values)  # nothing along what counts twice
    step = -np.einsum("gik,gk,gjk,gj->gi", vectors, 1.0 / values, vectors, right)
    return np.where(on, step / size, 0.0)
