"""Newton's method for smooth losses on a kernel matrix, for all penalties of a path at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

from kernelgrad.callbacks import FOREVER, Deadline
from kernelgrad.compute import linalg
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import over_tiles, parallel_for
from kernelgrad.data.sampling import random_rows
from kernelgrad.functions.exact import small_alpha
from kernelgrad.losses import Loss
from kernelgrad.solvers.kernel_matrix import KernelMatrix
from kernelgrad.solvers.mean_loss import MeanLoss
from kernelgrad.types import AnyArray, Float64Array, IntArray
from kernelgrad.validation import DataError

_CENTRES_TAG = 0x6E7774
_TILE = 4096  # rows that a task takes
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class NewtonSettings:
    """Numbers of Newton's method on a kernel matrix."""

    forcing: float = 0.5  # residual of a Newton system relative to the gradient
    sure: float = 0.25  # part of the tolerance if the gain that is left is only an estimate
    inner_steps: int = 300  # steps of conjugate gradients on one Newton system
    patience: int = 32  # steps on one system after which a better preconditioner pays
    coarse_products: float = 16.0  # products that factors of the coarse space may cost
    all: int = 1024  # rows up to which all are centres for a squared loss
    centres: float = 8.0  # centres for a squared loss, over the root of the number of rows
    short: float = 0.1  # part of a step below which systems are better solved more exactly
    whole: int = 2048  # rows times outputs up to which systems are factored as they are
    negative: float = 1e-3  # largest part of a squared norm that rounding makes negative
    settled: float = 1e-14  # sum of slopes at the best constant, relative to their sizes
    # factor on penalties below which float64 pays: float32 raises the objective by up to 1e-3
    precise: float = 30.0
    sharp: float = 1e-6  # penalty over the trace below which preconditioners are float64


SETTINGS = NewtonSettings()

Pair = tuple[Float64Array, Float64Array]
# takes R and ``K R``, None if that is not computed; returns ``Z = M^-1 R`` and ``K Z``
Preconditioner = Callable[[Float64Array, Float64Array | None], Pair]


@dataclass(frozen=True)
class Point:
    """Functions ``K a + b`` and their gradients; the first axis is that of the penalties.

    Gap, length and `done` are (A, C), or (A, 1) where outputs are coupled.
    """

    a: Float64Array  # (A, C, n)
    b: Float64Array  # (A, C)
    f: Float64Array  # K a
    slope: Float64Array  # slopes of the mean loss
    G: Float64Array  # gradient in coefficients, slope + alpha a
    KG: Float64Array
    objective: Float64Array
    gap: AnyArray = field(default_factory=lambda: np.array(np.inf))  # bounds its distance
    length: AnyArray = field(default_factory=lambda: np.ones((1, 1)))  # part of the last step
    done: AnyArray = field(default_factory=lambda: np.zeros(1, bool))
    M: Preconditioner | None = None  # for the next system, if it is computed already


def factored_inverse(
    K: KernelMatrix, scale: Float64Array, alpha: float, fit_intercept: bool,
    solve: Callable[[Float64Array], Float64Array],
) -> Callable[[Float64Array], Float64Array]:  # fmt: skip
    r"""Return the inverse of ``H K + alpha I``, H diagonal, with a constant that follows.

    With ``S = H^(1/2)`` and ``solve(v) = (S K S + alpha I)^-1 v`` the inverse of R (m, n) is
    ``S solve(S^-1 R)``. A row where H is 0 has ``R / alpha``, and changes the others' R. The
    constant leaves the sum of slopes at 0, and the coefficients then sum to 0.
    """
    z = solve(scale[None]) if fit_intercept else np.zeros((1, K.n))
    live = scale > 0

    def inverse(R: Float64Array) -> Float64Array:
        D = np.where(live, 0.0, R / (alpha or 1.0))
        if D.any():
            R = R - scale**2 * K.product(D)
        u = solve(R * np.divide(1.0, scale, out=np.zeros_like(scale), where=live))
        total = u @ scale + D.sum(axis=1)
        u = u - z * (total / (float(scale @ z[0]) or 1.0))[:, None]
        return np.asarray(D + scale * u)

    return inverse


class Descent:
    r"""Functions ``f = K a + b`` of all penalties, and Newton steps on them.

    A Newton system ``(H K + alpha I) d = -(r + alpha a)``, H the Hessian of the mean loss and r
    its slopes, is self-adjoint in the inner product ``u^T K v``. Conjugate gradients in that
    inner product lower the quadratic model with every step, and take one product with K, which
    all penalties and outputs share. Once a system has taken 32 steps, a coarse space helps: see
    :class:`CoarseSpace`. Up to 2,048 rows, times outputs, the system of each output is factored
    instead.

    The squared loss takes one symmetric system, see :meth:`_least_squares`.

    Weights (n,) sum to 1. The seed is that of the centres, the deadline ends a system with the
    step so far.
    """

    def __init__(
        self, K: KernelMatrix, loss: Loss, y: AnyArray, weight: Float64Array,
        alphas: Float64Array, fit_intercept: bool, seed: int = 0, deadline: Deadline = FOREVER,
    ) -> None:  # fmt: skip
        precise = SETTINGS.precise * float(alphas.min()) < small_alpha(K.diagonal)
        self.K, self.dtype = K, np.float64 if precise else np.float32
        self.loss, self.alpha = MeanLoss(loss, y, weight), alphas[:, None, None]
        self.fit_intercept, self.seed, self.deadline = fit_intercept, seed, deadline
        # makes the preconditioner for the diagonal of a Hessian; None is the penalty alone
        self.helper: Callable[[Float64Array], Preconditioner] | None = None
        # the inverse that preconditions a squared loss
        self.inverse: Callable[[Float64Array], Float64Array] | None = None
        self.whole = False  # whether systems of single outputs are factored
        self.excess = np.ones((1, 1))  # ratio of the gain of a step to what its slope promised
        self.n_products = 0

    @property
    def floor(self) -> Float64Array:
        """The penalties (A, 1, 1) as divisors: 1 in place of 0."""
        return np.where(self.alpha > 0, self.alpha, 1.0)

    def only(self, at: Point, which: IntArray) -> Point:
        """Go on with the penalties of these numbers; return the point of these."""
        self.alpha, self.excess = self.alpha[which], self.excess[which]
        self.inverse = None
        arrays = [getattr(at, each.name) for each in fields(at)][:-1]
        return Point(*(array[which] for array in arrays))

    def product(self, A: Float64Array, dtype: Any = None) -> Float64Array:
        """Return ``K A`` for outputs (..., n)."""
        self.n_products += 1
        rows = A.reshape(-1, self.K.n)
        return np.asarray(self.K.product(rows, dtype or self.dtype).reshape(A.shape))

    def _sums(self, v: Float64Array) -> Float64Array:
        """Return sums over the outputs that are one problem, (A, C, 1) or (A, 1, 1)."""
        total = v.sum(axis=-1, keepdims=True)
        return np.asarray(total.sum(axis=1, keepdims=True) if self.loss.joint else total)

    def help(self) -> None:
        """Factor systems from now on: whole ones of few rows, else on a coarse space."""
        columns = self.alpha.size * self.loss.y.shape[1]
        self.whole = self.K.n * columns <= SETTINGS.whole
        if self.whole:
            self.helper = partial(self._factors, self.K.rows(np.arange(self.K.n), np.float64))
        else:
            self.helper = CoarseSpace(self, coarse_rows(self.K.n, columns)).preconditioner

    def point(
        self, a: Float64Array, b: Float64Array, f: Float64Array | None = None, *,
        settled: bool = False,
    ) -> Point:  # fmt: skip
        """Return the point of coefficients a and the best constants, near b."""
        if f is None:
            # large coefficients of both signs: float32 would leave an error of the size of r
            f = self.product(a, np.float64) if a.any() else np.zeros_like(a)
        slope = self.loss.slope(f + b[..., None])
        if self.fit_intercept and not settled:
            b, slope = self._settle(f, b, slope)
        G = slope + self.alpha * a
        return Point(a, b, f, slope, G, self.product(G), self.objective(a, f, b))

    def _settle(self, f: Float64Array, b: Float64Array, slope: Float64Array) -> Pair:
        """Return the constants where slopes sum to 0, and the slopes.

        The gap counts on it: along a constant the objective has no strong convexity, so no
        sum of slopes but 0 bounds what a better constant would gain. Newton's method stays
        between constants whose sums have both signs; before these are known, and no row bends,
        strides grow. Coupled outputs take shorter steps until the sums are smaller.
        """
        low, high = np.full_like(b, -np.inf), np.full_like(b, np.inf)
        stride, last = 1.0, np.full_like(b, np.inf)
        for _ in range(200):
            F, total, size = f + b[..., None], slope.sum(axis=-1), np.abs(slope).sum(axis=-1)
            if self.loss.joint:  # those of sure classes have rounding errors of probabilities
                size = np.maximum(
                    size.sum(axis=-1, keepdims=True), 0.1 * self.loss.weight.sum()
                )
            waits = ~(np.abs(total) <= SETTINGS.settled * size)
            if not waits.any():
                break
            bend = self.loss.bend(F, slope)
            if self.loss.joint:
                step = np.einsum("acd,ad->ac", self.loss.constants(bend), total)
                square = (total**2).sum(axis=-1, keepdims=True)

                def gain(s: Any, b: Any = b, step: Any = step, square: Any = square) -> Any:
                    trial = self.loss.slope(f + (b - s * step)[..., None]).sum(axis=-1)
                    return square - (trial**2).sum(axis=-1, keepdims=True)

                new = b - linalg.backtracked(gain, 2.0 * square, 1e-4) * step
            else:
                low, high = np.where(total < 0, b, low), np.where(total > 0, b, high)
                with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                    new, middle = b - total / (bend @ self.loss.weight), 0.5 * (low + high)
                slow = np.isfinite(middle) & ~(np.abs(total) < 0.5 * last)
                good = (new > low) & (new < high) & np.isfinite(new) & ~slow
                far = np.where(np.isfinite(middle), middle, b - np.sign(total) * stride)
                new, last, stride = np.where(good, new, far), np.abs(total), 4.0 * stride
                new = np.where(waits, new, b)
            if (new == b).all():
                break
            b, slope = new, self.loss.slope(f + new[..., None])
        return b, slope

    def objective(self, a: Float64Array, f: Float64Array, b: Float64Array) -> Float64Array:
        norm = self._sums(a * f)[..., 0]
        return np.asarray(self.loss.value(f + b[..., None]) + 0.5 * self.alpha[..., 0] * norm)

    def solve(
        self, right: Float64Array, bend: Float64Array, most: int,
        precondition: Callable[[Any, Float64Array], tuple[Any, Any] | None],
    ) -> tuple[Float64Array, Float64Array, Float64Array]:  # fmt: skip
        """Return x with ``(H K + alpha I) x = right``, K x, and its constants, (A, C).

        ``precondition(x, R)`` is that of :func:`linalg.conjugate_gradients` on ``[D, K D]``.
        The constants follow the functions: of a direction KD they take what leaves the sum of
        slopes at 0.
        """
        loss, inverse = self.loss, self.loss.constants(bend)

        def follow(HD: Float64Array) -> Float64Array:
            if not self.fit_intercept:
                return np.zeros(HD.shape[:2])
            return np.asarray(-np.einsum("acd,ad->ac", inverse, HD.sum(axis=-1)))

        def product(p: Float64Array) -> Pair:
            D, KD = p
            HD = loss.hessian(bend, KD)
            if self.fit_intercept:
                HD += loss.hessian(bend, np.broadcast_to(follow(HD)[..., None], KD.shape))
            AD = HD + self.alpha * D
            return AD, self._sums(KD * AD)

        X, KX = linalg.conjugate_gradients(product, precondition, right, most)
        return X, KX, follow(loss.hessian(bend, KX))

    def _least_squares(self, at: Point, tol: float) -> Point:
        r"""Return the minimum of the squared loss, by conjugate gradients from a point.

        They solve ``(S K S + alpha I) u = S (y - b)``, with the weights on the diagonal of
        ``S^2`` and coefficients ``S u``. Half the square of the residual bounds how far the
        objective is above its minimum: it is the duality gap.
        """
        weight, alpha = self.loss.weight, self.alpha
        scale = np.sqrt(weight)
        unscale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        if self.inverse is None:
            n = self.K.n
            centres = n if n <= SETTINGS.all else int(SETTINGS.centres * np.sqrt(n))
            self.inverse = CoarseSpace(self, centres).by_weights(scale)
        inverse, right, own = self.inverse, -at.G * unscale, at.a * unscale
        ones = inverse(np.broadcast_to(scale, (len(alpha), 1, len(scale))))

        def precondition(x: Any, r: Float64Array) -> tuple[Any, Any] | None:
            if self.fit_intercept:  # the constant follows
                r = r - (r @ scale)[..., None] * scale
            gap = 0.5 * self._sums(r * r)
            if x is not None:
                u = own + x
                f = at.f * scale + (right - r - alpha * x)
                value = 0.5 * self._sums((alpha * u + r) ** 2) + 0.5 * alpha * self._sums(u * f)
                if (gap <= 0.5 * tol * value).all() or self.deadline.over:
                    return None
            z = inverse(r)
            if self.fit_intercept:  # sums of coefficients stay 0
                z -= ones * ((z @ scale) / (ones @ scale))[..., None]
            return z, self._sums(r * z)

        def product(p: Float64Array) -> Pair:
            Ap = scale * self.product(scale * p) + alpha * p
            return Ap, self._sums(p * Ap)

        x = linalg.conjugate_gradients(product, precondition, right, SETTINGS.inner_steps)
        new = self.point(at.a + scale * x, at.b)
        stuck = ~(new.objective < at.objective)  # rounding takes more than was gained
        if stuck.any():
            new = self.point(at.a + np.where(stuck[..., None], 0.0, scale * x), at.b)
        gap = 0.5 * self._sums((new.G * unscale) ** 2)[..., 0]
        aim = tol * np.abs(new.objective)
        if self.dtype == np.float32 and (stuck & (gap > 100 * aim)).any():
            self.dtype, self.inverse, stuck = np.float64, None, np.zeros_like(stuck)
        done = stuck | (gap <= aim)
        self.excess = np.ones_like(gap)
        return replace(new, gap=gap, length=np.ones_like(gap), done=done)

    def advance(self, at: Point, tol: float) -> Point:
        """Take one Newton step, shortened where it overshoots."""
        terms = at.G * at.KG
        if (self._sums(terms) < -SETTINGS.negative * self._sums(np.abs(terms))).any():
            raise DataError(
                "The kernel matrix is not positive semi-definite: the objective of solver "
                "'newton' has no minimum. Use a positive semi-definite kernel, or "
                "solver='block_descent'."
            )
        if self.loss.quadratic:
            return self._least_squares(at, tol)
        bend = self._bend(at)
        M = at.M or self._preconditioner(bend)
        forcing = SETTINGS.forcing * (0.1 if self.whole else 1.0)
        least = SETTINGS.sure * tol * np.abs(at.objective)[..., None]
        squares: list[Float64Array] = []  # squared norms of the residuals

        def precondition(x: Any, R: Float64Array) -> Pair | None:
            Z, KZ = M(R, None if squares else -at.KG)
            squares.append(self._sums(R * KZ))
            enough = (squares[-1] <= np.maximum(forcing**2 * squares[0], least)).all()
            if x is not None and (enough or self.deadline.over):
                return None
            return np.stack([Z, KZ]), squares[-1]

        most = SETTINGS.inner_steps if self.helper else SETTINGS.patience
        X, KX, xb = self.solve(-at.G, bend, most, precondition)
        more = self._sums(-at.G * KX) / np.where(squares[0] > 0, squares[0], np.inf)
        self.excess = np.maximum(self.excess, more[..., 0])
        length, stuck = self._length(at, X, KX, xb)
        for _ in range(2):
            new = self.point(at.a + length[..., None] * X, at.b + length * xb)
            worse = ~stuck & ~(new.objective < at.objective)
            if not worse.any():
                break
            # rounding in f = K a takes more than the step gained
            stuck, length = stuck | worse, np.where(worse, 0.0, length)
        stuck &= at.length == 0  # the largest curvature did not help
        gap = 0.5 * self._sums(new.G * new.KG)[..., 0] / self.floor[..., 0]
        new = replace(new, length=length, gap=gap)
        aim = tol * np.abs(new.objective)
        if not self.helper and (len(squares) >= most or length.min() < SETTINGS.short):
            self.help()
        finished, following = stuck | (gap <= aim), None
        if self.helper and not finished.all():
            following = self._preconditioner(self._bend(new))
            norm = 0.5 * self._sums(new.G * following(new.G, new.KG)[1])[..., 0]
            finished |= (self.excess * norm <= SETTINGS.sure * aim) & (gap <= 100 * aim)
        return replace(new, done=finished, M=following)

    def _bend(self, at: Point) -> Float64Array:
        """Return curvatures, the largest of the loss where they led nowhere."""
        bend = self.loss.bend(at.f + at.b[..., None], at.slope)
        nowhere = (at.length == 0)[..., None]
        if self.loss.joint or not nowhere.any():
            return bend
        return np.where(nowhere, float(self.loss.loss.smoothness or 1.0), bend)

    def _length(
        self, at: Point, X: Float64Array, KX: Float64Array, xb: Float64Array
    ) -> tuple[Float64Array, AnyArray]:
        """Return how much of a step to take, and where no part of it gains.

        All of it where that gains a tenth of what its slope promises, else what bisection
        finds to be the minimum along it.
        """
        move = KX + xb[..., None]
        penalty = self.alpha * self._sums(at.a * KX)
        curve = self.alpha * self._sums(X * KX)

        def derivative(s: Float64Array) -> Float64Array:
            slope = self.loss.slope(at.f + at.b[..., None] + s * move)
            return np.asarray(self._sums(slope * move) + penalty + s * curve)

        def gain(s: Float64Array) -> Float64Array:
            b = at.b + s[..., 0] * xb
            return np.asarray(at.objective - self.objective(at.a + s * X, at.f + s * KX, b))

        low, high = np.zeros_like(curve), np.ones_like(curve)
        with np.errstate(over="ignore", invalid="ignore"):
            long = ~(gain(high) >= -0.1 * derivative(low)[..., 0])[..., None]
            for _ in range(30 if long.any() else 0):
                middle = 0.5 * (low + high)
                rises = long & ~(derivative(middle) < 0)
                low, high = np.where(long & ~rises, middle, low), np.where(rises, middle, high)
                if (high - low <= 0.1 * high)[long].all():
                    break
            s = np.where(long, low, high)
            stuck = ~(gain(s) > 0)
        return np.where(stuck, 0.0, s[..., 0]), stuck

    def _preconditioner(self, bend: Float64Array) -> Preconditioner:
        """Return what stands for the inverse of a Newton system with these curvatures."""
        if self.helper:
            return self.helper(self.loss.diagonal(bend))

        def penalty(R: Float64Array, KR: Any = None) -> Pair:
            return R / self.floor, (self.product(R) if KR is None else KR) / self.floor

        return penalty

    def _factors(self, dense: AnyArray, diagonal: Float64Array) -> Preconditioner:
        """Return the inverse of the system of each output, whose Hessian is diagonal."""

        def factor(h: Float64Array, alpha: float) -> Callable[[Float64Array], Float64Array]:
            ridge = alpha + _EPS
            s = np.sqrt(np.where(h * self.K.diagonal > _EPS * ridge, h, 0.0))
            system = s[:, None] * dense * s
            L, _ = linalg.damped_cholesky(system, _EPS * float(system.trace()), ridge=ridge)

            def solve(v: Float64Array) -> Float64Array:
                return np.asarray(scipy.linalg.cho_solve((L, True), v.T, check_finite=False).T)

            return factored_inverse(self.K, s, alpha, self.fit_intercept, solve)

        alphas = self.alpha[:, 0, 0]
        factors = [factor(h, alphas[a]) for a, part in enumerate(diagonal) for h in part]

        def inverse(R: Float64Array, KR: Any = None) -> Pair:
            parts = R.reshape(-1, 1, self.K.n)
            Z = np.concatenate([f(r) for f, r in zip(factors, parts, strict=True)])
            Z = Z.reshape(R.shape)
            return Z, self.product(Z)

        return inverse


def coarse_rows(n: int, columns: int) -> int:
    """Return the number of centres for that many rows and functions."""
    r = int(np.sqrt(SETTINGS.coarse_products * n * (8.0 if columns == 1 else 1.0)))
    return r if r < n else n // 2


class CoarseSpace:
    """Centres I, whose functions carry the large eigenvalues of K.

    On the span of ``phi = L^-1 k_I``, orthonormal in the kernel's space, a system is solved by
    Cholesky, with the diagonal of H; what is orthogonal to it is divided by the mean eigenvalue
    there: alpha, and what the centres leave of ``k(x, x)``.
    """

    def __init__(self, descent: Descent, r: int) -> None:
        K, n, dtype = descent.K, descent.K.n, descent.dtype
        self.descent = descent
        self.index = random_rows(n, r, draws(descent.seed, _CENTRES_TAG, 0))
        self.rows = K.rows(self.index, dtype)  # K_I
        among = self.rows[:, self.index].astype(np.float64)
        rounding = float(np.finfo(K.dtype).eps) * float(among.trace())
        self.L = linalg.damped_cholesky(among, rounding)[0]  # L L^T = K_II
        # L^-1 K_I, and a row of ones for the constant
        self.U = np.ones((r + descent.fit_intercept, n), dtype)
        inverse, self.left = self._solve_lower(np.eye(r)).astype(dtype), np.empty(n)

        def tile(a: int, z: int) -> None:
            np.matmul(inverse, self.rows[:, a:z], out=self.U[:r, a:z])
            squares = np.einsum("in,in->n", self.U[:r, a:z], self.U[:r, a:z])
            self.left[a:z] = np.maximum(K.diagonal[a:z] - squares, 0.0)

        over_tiles(n, _TILE, tile)

    def _solve_lower(self, B: Float64Array, *, transposed: bool = False) -> Float64Array:
        """Return ``L^-1 B``, or ``L^-T B``."""
        options = {"lower": True, "trans": int(transposed), "check_finite": False}
        return np.asarray(scipy.linalg.solve_triangular(self.L, B, **options))

    def preconditioner(self, diagonal: Float64Array) -> Preconditioner:
        descent, (A, C, n), r = self.descent, diagonal.shape, len(self.index)
        floor = descent.floor + (diagonal @ self.left / (n - r))[..., None]
        factors: list[Any] = [None] * (A * C)

        def task(i: int) -> None:
            a, c = divmod(i, C)
            S = self.U * np.sqrt(diagonal[a, c]).astype(descent.dtype)
            H = (S @ S.T).astype(np.float64)
            # functions of all rows alike are the constant's
            rounding = float(np.finfo(descent.dtype).eps) * float(H.diagonal()[:r].sum())
            ridge = np.append(np.full(r, descent.alpha[a, 0, 0]), np.zeros(len(H) - r))
            factors[i] = linalg.damped_cholesky(H, rounding, ridge=ridge)[0]

        parallel_for(A * C, task)

        def inverse(R: Float64Array, KR: Any = None) -> Pair:
            KR = descent.product(R) if KR is None else KR
            Z, KZ = R / floor, KR / floor
            u = self._solve_lower(KR[:, :, self.index].reshape(-1, r).T)
            more = np.empty_like(u)
            for i, L in enumerate(factors):
                right = np.zeros(len(self.U))  # nothing for the constant, which follows
                right[:r] = u[:, i]
                s = scipy.linalg.cho_solve((L, True), right, check_finite=False)
                more[:, i] = s[:r] - u[:, i] / floor[divmod(i, C)]
            change = self._solve_lower(more, transposed=True).T
            Z[:, :, self.index] += change.reshape(A, C, r)
            moved, spread = change.astype(descent.dtype), np.empty((A * C, n), descent.dtype)

            def spread_tile(a: int, z: int) -> None:
                spread[:, a:z] = moved @ self.rows[:, a:z]

            over_tiles(n, _TILE, spread_tile)
            return Z, KZ + spread.reshape(A, C, n)

        return inverse

    def by_weights(self, scale: Float64Array) -> Callable[[Float64Array], Float64Array]:
        r"""Return what stands for the inverse of ``S K S + alpha I`` of each alpha, S diagonal.

        S K S is that of the centres, ``S U^T U S``, and the mean of the diagonal that is left.
        """
        n, alpha = len(scale), self.descent.alpha
        floor = alpha + scale**2 @ self.left / n + _EPS
        # float32 takes 1.2e-7 of the largest eigenvalue for the floor
        total, dtype = float(scale**2 @ self.descent.K.diagonal), self.descent.dtype
        if floor.min() < SETTINGS.sharp * total:
            dtype = np.float64
        B = self.U[: len(self.index)] * scale.astype(dtype)
        squares = np.tril(linalg.gram(B.T))
        squares += np.tril(squares, -1).T
        factors = [linalg.damped_cholesky(squares, ridge=m)[0] for m in floor[:, 0, 0]]

        def inverse(V: Float64Array) -> Float64Array:
            W = V.astype(B.dtype).reshape(-1, n)
            parts, out = np.zeros((-(-n // _TILE), len(B), len(W))), np.empty(W.shape)

            def into(a: int, z: int) -> None:
                parts[a // _TILE] = B[:, a:z] @ W[:, a:z].T

            over_tiles(n, _TILE, into)
            u = parts.sum(axis=0).reshape(len(B), len(alpha), -1)
            solved = [
                scipy.linalg.cho_solve((L, True), u[:, a], check_finite=False)
                for a, L in enumerate(factors)
            ]
            w = np.concatenate(solved, axis=1).T.astype(B.dtype)

            def back(a: int, z: int) -> None:
                out[:, a:z] = w @ B[:, a:z]

            over_tiles(n, _TILE, back)
            return np.asarray((V - out.reshape(V.shape)) / floor)

        return inverse
