r"""The exact minimum of smooth losses over one kernel matrix: Newton's method.

The squared loss needs one Newton system, which :class:`DirectSolve` solves to rounding by a
Cholesky factor; :class:`NewtonCG` solves systems as exactly as its steps deserve. Both run
preconditioned conjugate gradients on the same equations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from kernelgrad.callbacks import FOREVER, Deadline
from kernelgrad.compute import linalg
from kernelgrad.compute.threads import over_tiles, parallel_for
from kernelgrad.functions.exact import GRAM_TILE, small_alpha
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import Kernel
from kernelgrad.losses import Loss, scalar
from kernelgrad.params import integer, parameters, real
from kernelgrad.solvers import contract, support
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, draws, sized, transient
from kernelgrad.solvers.kernel_matrix import KernelMatrix, kernel_matrix
from kernelgrad.solvers.support import RowsSolver, RowsState, SupportUpdate
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad.validation import DataError

_AUDIT_TAG, _CENTRES_TAG = 0x646972, 0x6E7774
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Settings:
    """Numbers of the exact solvers, by which the tests tell the ways to a solution apart."""

    # bytes of a kernel matrix without a memory limit: 32,000 rows in float64, 46,000 in float32
    matrix_bytes: float = 8.0 * 2**30
    single_rows: int = 2048  # rows from which a float32 factor is worth its more iterations
    # steps of conjugate gradients with a factor of either precision, the residual relative to
    # the right-hand side at which they end, and the largest one of a solution
    single: tuple[int, float, float] = (25, 1e-11, 1e-9)
    double: tuple[int, float, float] = (5, 1e-13, 1e-6)
    astray: float = 100.0  # growth of the residual over the least one: rounding has won
    # largest ridge that rounding may require, relative to the trace: it moves no eigenvalue by
    # more than eps times the trace, and kernel values are good to some eps
    indefinite: float = 1e-5
    forcing: float = 0.5  # residual of a Newton system relative to the gradient
    sure: float = 0.25  # part of the tolerance if the gain that is left is only an estimate
    inner_steps: int = 300  # steps of conjugate gradients on one Newton system
    patience: int = 32  # steps on one system after which a better preconditioner pays
    coarse_products: float = 16.0  # products that factors of the coarse space may cost
    short: float = 0.1  # part of a step below which systems are better solved more exactly
    whole: int = 2048  # rows times outputs up to which systems are factored as they are
    negative: float = 1e-3  # largest part of a squared norm that rounding makes negative
    settled: float = 1e-14  # sum of slopes at the best constant, relative to their sizes


SETTINGS = Settings()


def direct_bytes(n_rows: int, n_outputs: int, row_bytes: float) -> float:
    """Return the bytes that :class:`DirectSolve` needs, including both forms of the rows."""
    return support.matrix_bytes(n_rows, n_outputs, row_bytes, np.float64)


def newton_bytes(n_rows: int, n_outputs: int, row_bytes: float) -> float:
    """Return the bytes that :class:`NewtonCG` takes, rows in both forms included."""
    r = _coarse_rows(n_rows, n_outputs)  # their kernel rows in three forms, their squares
    coarse = (12.0 * n_rows + 32.0 * r) * r
    return support.matrix_bytes(n_rows, n_outputs, row_bytes, np.float32) + coarse


def _coarse_rows(n: int, columns: int) -> int:
    r = int(np.sqrt(SETTINGS.coarse_products * n * (8.0 if columns == 1 else 1.0)))
    return r if r < n else n // 2


class _MeanLoss:
    """The mean of a loss over weighted rows, for outputs (A, C, n); weights sum to 1.

    The A functions differ in their penalties only. Unless the loss couples the outputs of a
    row (`joint`), each output is a problem of its own.
    """

    def __init__(self, loss: Loss, y: AnyArray, weight: Float64Array) -> None:
        self.loss, self.y, self.weight = loss, np.asarray(y, np.float64), weight
        self.joint = loss.code is None or loss.is_multinomial
        self.quadratic = loss.code == scalar.SQUARED
        self._params = loss.params(y.shape[1])

    def value(self, F: Float64Array) -> Float64Array:
        if self.joint:
            return np.array([[self.weight @ self.loss.value(self.y, f.T)] for f in F])
        values = [scalar.value(self.loss.code, self._params, self.y, f.T) for f in F]
        return np.array([self.weight @ v for v in values])

    def slope(self, F: Float64Array) -> Float64Array:
        return np.stack([self.loss.gradient(self.y, f.T).T for f in F]) * self.weight

    def bend(self, F: Float64Array, slope: Float64Array) -> Float64Array:
        """Return second derivatives without weights, or what majorises them, (A, C, n).

        For the multinomial loss these are probabilities pi: the Hessian of a row is
        ``diag(pi) - pi pi^T``.
        """
        if self.loss.is_multinomial:
            safe = np.where(self.weight > 0, self.weight, 1.0)
            return np.clip(slope / safe + self.y.T, 0.0, 1.0)
        code, params, none = self.loss.code, self._params, np.float64(0)
        out = np.empty_like(F)
        for a, f in enumerate(F):
            if self.joint:
                out[a] = self.loss.curvature(self.y, f.T)
            else:
                bend = scalar.curvature(code, params, self.y, f.T, none, none)
                out[a] = np.transpose(bend)
        return out

    def hessian(self, bend: Float64Array, D: Float64Array) -> Float64Array:
        if self.loss.is_multinomial:
            D = D - (bend * D).sum(axis=1, keepdims=True)
        return bend * D * self.weight

    def diagonal(self, bend: Float64Array) -> Float64Array:
        return self.weight * (bend * (1.0 - bend) if self.loss.is_multinomial else bend)

    def constants(self, bend: Float64Array) -> Float64Array:
        """Return the inverse Hessian of the constants, (A, C, C)."""
        H = (bend @ self.weight)[..., None] * np.eye(bend.shape[1])
        if self.loss.is_multinomial:
            H = H - (self.weight * bend) @ bend.transpose(0, 2, 1)
        if not np.isfinite(H).all():
            raise FloatingPointError(
                "solver 'newton' diverged: responses are no finite numbers; raise alpha, or "
                "scale the targets."
            )
        return np.asarray(np.linalg.pinv(H, rcond=1e-10, hermitian=True), np.float64)


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


Pair = tuple[Float64Array, Float64Array]
# takes R and ``K R``, None if that is not computed; returns ``Z = M^-1 R`` and ``K Z``
Preconditioner = Callable[[Float64Array, Float64Array | None], Pair]


class Factor:
    r"""The inverse of ``H K + alpha I``, H diagonal, with a constant that follows.

    With ``S = H^(1/2)`` and ``solve(v) = (S K S + alpha I)^-1 v`` the inverse of R is
    ``S solve(S^-1 R)``. A row where H is 0 has ``R / alpha``, and changes the others' R. The
    constant leaves the sum of slopes at 0, and the coefficients then sum to 0.
    """

    def __init__(
        self, K: KernelMatrix, scale: Float64Array, alpha: float, fit_intercept: bool,
        solve: Callable[[Float64Array], Float64Array],
    ) -> None:  # fmt: skip
        self.K, self.scale, self.alpha, self.solve = K, scale, alpha or 1.0, solve
        self.z = solve(scale[None]) if fit_intercept else np.zeros((1, K.n))

    def __call__(self, R: Float64Array) -> Float64Array:
        """Return the coefficients (m, n) for R (m, n)."""
        s, live = self.scale, self.scale > 0
        D = np.where(live, 0.0, R / self.alpha)
        if D.any():
            R = R - s**2 * self.K.product(D)
        u = self.solve(R * np.divide(1.0, s, out=np.zeros_like(s), where=live))
        total = u @ s + D.sum(axis=1)
        u = u - self.z * (total / (float(s @ self.z[0]) or 1.0))[:, None]
        return np.asarray(D + s * u)


class Descent:
    r"""Functions ``f = K a + b`` of all penalties, and Newton steps on them.

    A Newton system ``(H K + alpha I) d = -(r + alpha a)``, H the Hessian of the mean loss and r
    its slopes, is self-adjoint in the inner product ``u^T K v``. Conjugate gradients in that
    inner product lower the quadratic model with every step, and take one product with K, which
    all penalties and outputs share. Once a system has taken 32 steps, a coarse space helps:
    with centres I and the functions ``phi = L^-1 k_I``, orthonormal in the kernel's space, the
    system is solved on their span by Cholesky, with the diagonal of H, and divided by alpha on
    what is orthogonal to it. Up to 2,048 rows, times outputs, the system of each output is
    factored instead.

    Weights (n,) sum to 1. The seed is that of the centres, the deadline ends a system with the
    step so far.
    """

    def __init__(
        self, K: KernelMatrix, loss: Loss, y: AnyArray, weight: Float64Array,
        alphas: Float64Array, fit_intercept: bool, seed: int = 0, deadline: Deadline = FOREVER,
    ) -> None:  # fmt: skip
        precise = float(alphas.min()) < small_alpha(K.diagonal)
        self.K, self.dtype = K, np.float64 if precise else np.float32
        self.loss, self.alpha = _MeanLoss(loss, y, weight), alphas[:, None, None]
        self.fit_intercept, self.seed, self.deadline = fit_intercept, seed, deadline
        self.coarse: CoarseSpace | None = None
        self.whole = False  # systems of single outputs are factored
        self.excess = np.ones((1, 1))  # ratio of the gain of a step to what its slope promised
        self.n_products = 0

    @property
    def floor(self) -> Float64Array:
        """The penalties (A, 1, 1) as divisors: 1 in place of 0."""
        return np.where(self.alpha > 0, self.alpha, 1.0)

    def only(self, at: Point, which: IntArray) -> Point:
        """Go on with the penalties of these numbers; return the point of these."""
        self.alpha, self.excess = self.alpha[which], self.excess[which]
        arrays = [getattr(at, each.name) for each in fields(at)][:-1]
        return Point(*(array[which] for array in arrays))

    def product(self, A: Float64Array, dtype: Any = None) -> Float64Array:
        """Return ``K A`` for outputs (..., n)."""
        self.n_products += 1
        rows = A.reshape(-1, self.K.n)
        return np.asarray(self.K.product(rows, dtype or self.dtype).reshape(A.shape))

    def _apart(self, v: Float64Array) -> Float64Array:
        """Return sums over the outputs that are one problem, (A, C, 1) or (A, 1, 1)."""
        total = v.sum(axis=-1, keepdims=True)
        return np.asarray(total.sum(axis=1, keepdims=True) if self.loss.joint else total)

    @property
    def helped(self) -> bool:
        """Whether systems have more than their penalty for a preconditioner."""
        return self.whole or self.coarse is not None

    def help(self) -> None:
        """Factor systems from now on: whole ones of few rows, else on a coarse space."""
        columns = self.alpha.size * self.loss.y.shape[1]
        self.whole = self.K.n * columns <= SETTINGS.whole
        if self.whole:
            self.dense = self.K.rows(np.arange(self.K.n), np.float64)
        else:
            self.coarse = CoarseSpace(self, columns)

    def look(self, a: Float64Array, b: Float64Array, *, settled: bool = False) -> Point:
        """Return the point of coefficients a and the best constants, near b."""
        # large coefficients of both signs: float32 would leave an error of the size of r
        f = self.product(a, np.float64) if a.any() else np.zeros_like(a)
        return self._point(a, f, b, settled=settled)

    def _point(
        self, a: Float64Array, f: Float64Array, b: Float64Array, *, settled: bool = False
    ) -> Point:
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
            F, total = f + b[..., None], slope.sum(axis=-1)
            waits = ~(np.abs(total) <= SETTINGS.settled * np.abs(slope).sum(axis=-1))
            if not waits.any():
                break
            bend = self.loss.bend(F, slope)
            if self.loss.joint:
                step = np.einsum("acd,ad->ac", self.loss.constants(bend), total)
                size = (total**2).sum(axis=-1, keepdims=True)

                def gain(s: Any, b: Any = b, step: Any = step, size: Any = size) -> Any:
                    trial = self.loss.slope(f + (b - s * step)[..., None]).sum(axis=-1)
                    return size - (trial**2).sum(axis=-1, keepdims=True)

                new = b - linalg.backtracked(gain, 2.0 * size, 1e-4) * step
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
        norm = self._apart(a * f)[..., 0]
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
            return AD, self._apart(KD * AD)

        X, KX = linalg.conjugate_gradients(product, precondition, right, most)
        return X, KX, follow(loss.hessian(bend, KX))

    def advance(self, at: Point, tol: float) -> Point:
        """Take one Newton step, shortened where it overshoots."""
        terms = at.G * at.KG
        if (self._apart(terms) < -SETTINGS.negative * self._apart(np.abs(terms))).any():
            raise DataError(
                "The kernel matrix is not positive semi-definite: the objective of solver "
                "'newton' has no minimum. Use a positive semi-definite kernel, or "
                "solver='block_descent'."
            )
        bend = self._bend(at)
        M = self._preconditioner(bend) if at.M is None else at.M
        forcing = SETTINGS.forcing * (0.1 if self.whole else 1.0) * (not self.loss.quadratic)
        least = SETTINGS.sure * tol * np.abs(at.objective)[..., None]
        squares: list[Float64Array] = []  # squared norms of the residuals

        def precondition(x: Any, R: Float64Array) -> Pair | None:
            Z, KZ = M(R, None if squares else -at.KG)
            squares.append(self._apart(R * KZ))
            enough = (squares[-1] <= np.maximum(forcing**2 * squares[0], least)).all()
            if x is not None and (enough or self.deadline.over):
                return None
            return np.stack([Z, KZ]), squares[-1]

        most = SETTINGS.inner_steps if self.helped else SETTINGS.patience
        X, KX, xb = self.solve(-at.G, bend, most, precondition)
        hard = len(squares) >= most
        more = self._apart(-at.G * KX) / np.where(squares[0] > 0, squares[0], np.inf)
        self.excess = np.maximum(self.excess, more[..., 0])
        length, stuck = self._length(at, X, KX, xb)
        new = self.look(at.a + length[..., None] * X, at.b + length * xb)
        # rounding in f = K a may take more than the step gained
        worse = ~stuck & ~(new.objective < at.objective)
        if worse.any():
            names = "a", "b", "f", "slope", "G", "KG", "objective"
            pairs = [(getattr(at, name), getattr(new, name)) for name in names]
            masks = [worse.reshape(worse.shape + (1,) * (old.ndim - 2)) for old, _ in pairs]
            new = Point(*(np.where(m, *pair) for m, pair in zip(masks, pairs, strict=True)))
            stuck, length = stuck | worse, np.where(worse, 0.0, length)
        stuck &= at.length == 0  # the largest curvature did not help
        gap = 0.5 * self._apart(new.G * new.KG)[..., 0] / self.floor[..., 0]
        new = replace(new, length=length, gap=gap)
        aim = tol * np.abs(new.objective)
        if not self.helped and (hard or length.min() < SETTINGS.short):
            self.help()
        finished, following = stuck | (gap <= aim), None
        if self.helped and not finished.all():
            following = self._preconditioner(self._bend(new))
            norm = 0.5 * self._apart(new.G * following(new.G, new.KG)[1])[..., 0]
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
        penalty = self.alpha * self._apart(at.a * KX)
        curve = self.alpha * self._apart(X * KX)

        def derivative(s: Float64Array) -> Float64Array:
            slope = self.loss.slope(at.f + at.b[..., None] + s * move)
            return np.asarray(self._apart(slope * move) + penalty + s * curve)

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
        diagonal = self.loss.diagonal(bend)
        if self.coarse is not None:
            return self.coarse.preconditioner(self, diagonal)
        if self.whole:
            factors = [
                self._factor(diagonal[i], float(self.alpha[i[0], 0, 0]))
                for i in np.ndindex(*diagonal.shape[:2])
            ]

            def inverse(R: Float64Array, KR: Any = None) -> Pair:
                parts = R.reshape(-1, 1, self.K.n)
                Z = np.concatenate([f(r) for f, r in zip(factors, parts, strict=True)])
                Z = Z.reshape(R.shape)
                return Z, self.product(Z)

            return inverse

        def penalty(R: Float64Array, KR: Any = None) -> Pair:
            return R / self.floor, (self.product(R) if KR is None else KR) / self.floor

        return penalty

    def _factor(self, h: Float64Array, alpha: float) -> Factor:
        """Return the factor of the system of one output, whose Hessian is ``diag(h)``."""
        ridge = alpha + _EPS
        s = np.sqrt(np.where(h * self.K.diagonal > _EPS * ridge, h, 0.0))
        system = s[:, None] * self.dense * s
        rounding = _EPS * float(system.trace())
        L, _ = linalg.damped_cholesky(system, rounding, ridge=ridge)

        def solve(v: Float64Array) -> Float64Array:
            return np.asarray(scipy.linalg.cho_solve((L, True), v.T, check_finite=False).T)

        return Factor(self.K, s, alpha, self.fit_intercept, solve)


class CoarseSpace:
    """Centres I, whose functions carry the large eigenvalues of K."""

    def __init__(self, descent: Descent, columns: int) -> None:
        K, n = descent.K, descent.K.n
        r = _coarse_rows(n, columns)
        self.index = np.sort(draws(descent.seed, _CENTRES_TAG, 0).choice(n, r, replace=False))
        self.rows = K.rows(self.index, descent.dtype)  # K_I
        among = self.rows[:, self.index].astype(np.float64)
        rounding = float(np.finfo(K.dtype).eps) * float(among.trace())
        self.L = linalg.damped_cholesky(among, rounding)[0]  # L L^T = K_II
        # L^-1 K_I, and a row of ones for the constant
        self.U = np.ones((r + descent.fit_intercept, n), descent.dtype)
        inverse = scipy.linalg.solve_triangular(
            self.L, np.eye(r), lower=True, check_finite=False
        )
        self.U[:r] = inverse.astype(descent.dtype) @ self.rows

    def preconditioner(self, descent: Descent, diagonal: Float64Array) -> Preconditioner:
        """Return the inverse on the span of the centres, and that of alpha beside it."""
        A, C, n = diagonal.shape
        r = len(self.index)
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
            Z, KZ = R / descent.floor, KR / descent.floor
            u = scipy.linalg.solve_triangular(
                self.L, KR[:, :, self.index].reshape(-1, r).T, lower=True, check_finite=False
            )
            more = np.empty_like(u)
            for i, L in enumerate(factors):
                right = np.zeros(len(self.U))  # nothing for the constant, which follows
                right[:r] = u[:, i]
                s = scipy.linalg.cho_solve((L, True), right, check_finite=False)
                more[:, i] = s[:r] - u[:, i] / descent.floor[i // C, 0, 0]
            change = scipy.linalg.solve_triangular(
                self.L, more, lower=True, trans=1, check_finite=False
            ).T
            Z[:, :, self.index] += change.reshape(A, C, r)
            moved, spread = change.astype(descent.dtype), np.empty((A * C, n), descent.dtype)

            def spread_tile(a: int, z: int) -> None:
                spread[:, a:z] = moved @ self.rows[:, a:z]

            over_tiles(n, 4096, spread_tile)
            return Z, KZ + spread.reshape(A, C, n)

        return inverse


@dataclass(kw_only=True)
class ExactState(RowsState):
    """State of the exact solvers; ``responses`` are f on the rows without the intercept."""

    alpha: float  # penalty that `coef` is for
    objective: float = np.nan  # objective of the problem, NaN before the first step
    matrix: KernelMatrix | None = transient(released=False)  # factor, if a posterior is wanted
    coarse: bool = False  # whether systems were hard
    length: Float64Array = sized("problem", empty=True)  # part of the last step
    excess: Float64Array = sized("problem", empty=True)  # ratio of gains to promises
    descent: Descent | None = transient()
    point: Point | None = transient()


class ExactSolver(RowsSolver[ExactState]):
    """Base of the solvers of smooth losses over a kernel matrix that fits in memory."""

    state_class = ExactState
    bytes_of: ClassVar[Callable[..., float]]  # bytes for n rows, C outputs, and bytes of rows

    def init(self, problem: Problem, batch: TrainBatch) -> ExactState:
        """Start from the best constant; CapabilityError where the matrix exceeds the limit."""
        self._check_memory(problem, batch)
        return self._new_state(problem, batch, alpha=problem.alpha)

    def _check_memory(self, problem: Problem, batch: TrainBatch) -> None:
        most = SETTINGS.matrix_bytes
        support.check_matrix(self.name, problem, batch, type(self).bytes_of, most)

    def _report(
        self, problem: Problem, state: ExactState, at: Point, n_rows: int,
        update: SupportUpdate, **own: Any,
    ) -> StepInfo:  # fmt: skip
        """Note a point of one penalty in the state, and return the report of the step."""
        state.coef, state.responses = np.ascontiguousarray(at.a[0].T), at.f[0]
        state.intercept, state.objective = at.b[0], float(at.objective.sum())
        state.iteration += 1
        state.rows_seen += n_rows
        gap = 0.5 * max(0.0, float((at.G * at.KG).sum())) / (problem.alpha or 1.0)
        return self._info(
            state,
            state.objective - 0.5 * problem.alpha * float((at.a * at.f).sum()),
            update,
            epoch=float(state.iteration),
            objective=state.objective,
            duality_gap=gap if problem.alpha > 0 else None,
            **own,
        )


@parameters
class DirectSolve(ExactSolver):
    r"""The exact solution for the squared loss, in one step.

    .. math:: \min_{f, b}\ \frac{1}{\sum_i w_i} \sum_i \frac{w_i}{2} (y_i - f(x_i) - b)^2
              + \frac{\alpha}{2} \|f\|^2

    With weights of mean 1, ``S = diag(sqrt(w))`` and ``f = sum_i c_i k(x_i, .)``, ``c = S u``,

    .. math:: (S K S + \alpha n I)\, u = S (y - b 1), \qquad 1^T c = 0

    where the second equation, which belongs to the unpenalised constant b, is eliminated. One
    factorisation serves all outputs. It preconditions conjugate gradients on these equations in
    float64: some two iterations where the factor is float64 too. Beyond 2,048 rows it is
    float32, which takes half the time, unless the matrix is then indefinite or more than 25
    iterations were needed to a residual of 1e-9. Then b is the mean of ``y - f``.

    ``history_["duality_gap"]`` bounds how far the objective is from its minimum for these
    kernel values: with ``e = alpha c - w (y - f - b) / n``, it is ``e^T K e / (2 alpha)``.

    Kernel values are float32, or float64 where alpha is below ``6e-5 / sqrt(n)`` times the
    mean of ``k(x, x)``: there rounding would raise the objective by more than 1e-5 of itself.
    If the equations are indefinite by rounding, eps / n (1.2e-7 / n, or 2.2e-16 / n) times the
    mean of ``k(x, x)`` is added to alpha, then ten times as much, and so on until they are
    positive definite; ``history_["audit"]["alpha"]`` is the alpha used. The reported objective
    is always that of the given alpha. A matrix that needs more than ``1e-5`` of its trace
    raises an error.

    Notes
    -----
    The solution takes ``8 n^2`` bytes and ``n^3 / 3`` operations; further outputs cost next to
    nothing. A matrix beyond the memory limit, 8 GiB without one, raises an error.

    References
    ----------
    Saunders, Gammerman and Vovk (1998), "Ridge Regression Learning Algorithm in Dual
    Variables".
    """

    name: ClassVar[str] = "direct"
    requires: ClassVar[frozenset[str]] = frozenset({"gradient", "exact_kernel", "squared_loss"})
    bytes_of = staticmethod(direct_bytes)
    max_support = None  # all rows are support

    def step(self, problem: Problem, state: ExactState, batch: TrainBatch) -> StepInfo:
        """Solve; raise as `init` does, and DataError if K is not positive semi-definite."""
        self._check_memory(problem, batch)
        rows = self._attach(problem, state, batch).rows
        exact, n, deadline = state.exact, batch.n_rows, problem.resources.deadline
        small = exact.is_small(problem.alpha, rows)
        single = n > SETTINGS.single_rows and not problem.posterior
        K = at = None
        if single and not small:
            K = kernel_matrix(exact, rows, deadline, np.float32)
            at = self._solved(K, problem, batch, 0.0, single=True)
        if K is None or at is None:
            K = K.wide() if K is not None and self._holds_both(problem, batch) else None
            K = K or kernel_matrix(exact, rows, deadline, wide=small)
            if single and small:
                at = self._solved(K, problem, batch, 0.0, single=True)
        ridges = _ridges(K, batch, problem.alpha, precise=exact.precise or small)
        while at is None:
            at = self._solved(K, problem, batch, next(ridges))
        state.alpha = K.ridge / n
        state.matrix = K if problem.posterior else None
        state.kernel_evaluations += K.n_values
        update = SupportUpdate.of(rows, np.ascontiguousarray(at.a[0].T), 0.0)
        return self._report(problem, state, at, n, update, converged=True)

    def _holds_both(self, problem: Problem, batch: TrainBatch) -> bool:
        """Whether a float32 matrix fits in memory beside the float64 one made from it.

        If not, its values are computed again; they are the same, so no result depends on
        memory.
        """
        needed = direct_bytes(batch.n_rows, problem.n_outputs, support.sizes(batch.X))
        return 1.5 * needed <= support.matrix_limit(problem, np.inf)

    @staticmethod
    def _solved(
        K: KernelMatrix, problem: Problem, batch: TrainBatch, ridge: float, *,
        single: bool = False,
    ) -> Point | None:  # fmt: skip
        """Return the solution with `ridge` more penalty, None if rounding makes K indefinite.

        The factor is float32 if `single`.
        """
        most, settled, solved = SETTINGS.single if single else SETTINGS.double
        weight, alpha, n = _weights(batch), problem.alpha + ridge, K.n
        scale = np.sqrt(weight)
        try:
            K.factor(scale, alpha * n, np.float32 if single else np.float64)
        except np.linalg.LinAlgError:
            return None
        descent = Descent(
            K, problem.loss, batch.y, weight / n, np.array([alpha]), problem.fit_intercept
        )
        descent.dtype = np.float64
        # S K S + n alpha I, with weights of mean 1, is n times the system
        factor = Factor(K, scale, alpha * n, problem.fit_intercept, lambda v: K.solve(v.T).T)

        y = batch.y.astype(np.float64)
        start = weight @ y / n if problem.fit_intercept else np.zeros(problem.n_outputs)
        right = ((weight / n)[:, None] * (y - start)).T[None]
        inverse_scale = np.divide(1.0, scale, out=np.zeros(n), where=scale > 0)
        size = np.linalg.norm(right * inverse_scale, axis=-1)
        size[size == 0.0] = 1.0
        best, least = None, np.inf

        def precondition(x: Any, R: Float64Array) -> Pair | None:
            nonlocal best, least
            if x is not None:
                left = float((np.linalg.norm(R * inverse_scale, axis=-1) / size).max())
                if left < least:
                    best, least = x, left
                if not left <= SETTINGS.astray * least or left <= settled:
                    return None
            Z = n * factor(R[0])[None]
            KZ = descent.product(Z)
            return np.stack([Z, KZ]), (R * KZ).sum(axis=-1, keepdims=True)

        descent.solve(right, np.ones_like(right), most + 1, precondition)
        if best is None or least > solved:
            # rows that are all alike have K r = 0, where the inner product of K sees nothing
            D = n * factor(right[0])[None]
            best = np.stack([D, descent.product(D)])
            mean = best[1] @ weight[:, None] / n if problem.fit_intercept else 0.0
            left = right - alpha * D - weight / n * (best[1] - mean)
            if not (np.linalg.norm(left * inverse_scale, axis=-1) / size).max() <= solved:
                return None
        descent.alpha = np.full((1, 1, 1), problem.alpha)
        return descent._point(best[0], best[1], start[None])

    def finish(self, problem: Problem, state: ExactState, batch: TrainBatch) -> dict[str, Any]:
        """Return the objective claimed, and the one computed anew from kernel values.

        The latter uses the responses of all rows or, if that takes long, of a sample. The alpha
        that was solved for is returned too.
        """
        prepared = self._attach(problem, state, batch).rows
        n = batch.n_rows
        price = max(1, n) * (2 * problem.n_features_in + 30)
        m = max(contract.AUDIT_LEAST, contract.AUDIT_WORK // price)
        rows = np.arange(n)
        if m < n:
            rows = np.sort(draws(problem.seed, _AUDIT_TAG, state.iteration).choice(n, m, False))
        true = np.zeros((len(rows), problem.n_outputs))
        small = state.exact.is_small(problem.alpha, prepared)
        for start in range(0, len(rows), GRAM_TILE):
            tile = prepared.take(rows[start : start + GRAM_TILE])
            K = state.exact.values(tile, prepared, wide=small)
            true[start : start + GRAM_TILE] = K.astype(np.float64) @ state.coef
        cached = state.responses[:, rows].T
        weight, y = _weights(batch)[rows], batch.y[rows].astype(np.float64)
        losses = [problem.loss.value(y, f + state.intercept) for f in (true, cached)]
        change = float(weight @ (losses[0] - losses[1])) / len(rows)
        norm = float((state.coef[rows] * (true - cached)).sum()) * n / len(rows)
        claimed = state.objective
        objective = claimed + change + 0.5 * problem.alpha * norm
        drift = abs(objective - claimed) / abs(claimed) if claimed else 0.0
        audit = contract.Audit(claimed, objective, drift, len(rows))
        return asdict(audit) | {"alpha": state.alpha}


def _weights(batch: TrainBatch) -> Float64Array:
    weight = np.asarray(batch.sample_weight, np.float64)
    return np.asarray(weight / weight.mean())


def _ridges(
    K: KernelMatrix, batch: TrainBatch, alpha: float, *, precise: bool
) -> Iterator[float]:
    """Yield what is added to alpha: 0, then as much as rounding may require.

    It is that of float32 values unless they are `precise`.
    """
    trace = float(_weights(batch) @ np.maximum(K.diagonal, 0.0)) / K.n or 1.0
    rounding = float(np.finfo(np.float64 if precise else np.float32).eps) * trace / K.n
    yield from linalg.dampings(0.0, rounding, SETTINGS.indefinite * trace)
    raise DataError(
        f"The kernel matrix is not positive semi-definite: with alpha = {alpha:.3g} the "
        "objective of solver 'direct' has no minimum. Use a positive semi-definite kernel, a "
        "larger alpha, or solver='block_descent'."
    )


@parameters
class NewtonCG(ExactSolver):
    r"""The minimum of a smooth loss on the whole kernel matrix, by Newton's method.

    .. math:: \min_{f, b}\ \frac{1}{\sum_i w_i} \sum_i w_i\, l(y_i, f(x_i) + b)
              + \frac{\alpha}{2} \|f\|^2

    Each step solves a Newton system by conjugate gradients in the inner product of the kernel's
    space, to half of its residual, and halves the step while it raises the objective. The
    kernel matrix is computed once, in float32, or in float64 for penalties below
    ``6e-5 / sqrt(n)`` times the mean of ``k(x, x)`` if the memory limit, or 8 GiB, allows. An
    inner step costs one product with it, of ``2 n^2`` operations for each output. Sums are in
    float64.

    The loss must be twice differentiable or have a majorising curvature: log_loss, logistic,
    squared, squared_hinge, smoothed_hinge, modified_logistic, huber and your own. It may have
    any number of outputs; penalties of a path share the products.

    The work is done by BLAS, LAPACK and NumPy alone: nothing is compiled.

    Parameters
    ----------
    tol : float > 0, default=1e-4
        The fit has converged when the next step is predicted to lower the objective by less
        than `tol` times its value; errors of predictions settle from 1e-3 on.
    max_support : int or None, default=None
        Keep that many rows (see :meth:`~kernelgrad.functions.SupportExpansion.limited`).

    Notes
    -----
    The kernel matrix takes ``4 n^2`` bytes. A matrix beyond the memory limit, 8 GiB without
    one, raises an error.

    Where the curvature of the loss jumps (squared hinge, smoothed hinge, Huber) and the penalty
    is very small, many steps are short; one iteration takes up to 8 of these.

    ``history_["duality_gap"]`` is ``g^T K g / (2 alpha)`` with ``g = r + alpha a`` the gradient
    in coefficients: at the best constants the objective is no further above its minimum, as it
    is strongly convex. It is None with ``alpha=0``.

    References
    ----------
    Chapelle (2007), "Training a Support Vector Machine in the Primal"; Nocedal and Wright
    (2006), "Numerical Optimization", chapter 7 (inexact Newton methods).
    """

    name: ClassVar[str] = "newton"
    requires: ClassVar[frozenset[str]] = frozenset(
        {"exact_kernel", "smooth_loss", "fixed_intercept"}
    )
    bytes_of = staticmethod(newton_bytes)

    tol: float = real(default=1e-4, low=0, low_open=True)
    max_support: int | None = integer(default=None, low=1, words=(None,))

    def path(
        self, problem: Problem, batch: TrainBatch, alphas: Sequence[float], X: Matrix,
        max_iter: int,
    ) -> tuple[Kernel, list[Float64Array]]:  # fmt: skip
        """Return what :meth:`RowsSolver.path` does; the penalties share the products."""
        state = self.init(problem, batch)
        descent = self._descent(problem, state, batch, np.array(alphas))
        shape = len(alphas), problem.n_outputs
        b = np.tile(state.intercept, (shape[0], 1))
        at = descent.look(np.zeros((*shape, batch.n_rows)), b)
        a, b, live = at.a.copy(), at.b.copy(), np.arange(len(alphas))
        for _ in range(max_iter):
            at = descent.advance(at, self.tol)
            a[live], b[live] = at.a, at.b
            going = np.flatnonzero(~at.done.all(axis=1))
            if not len(going):
                break
            live = live[going]
            at = descent.only(at, going)
        expansions = [
            SupportExpansion(state.exact, state.prepared, coef.T, intercept)
            for coef, intercept in zip(a, b, strict=True)
        ]
        return state.exact.kernel, [e.raw_prediction(X) for e in expansions]

    def _descent(
        self, problem: Problem, state: ExactState, batch: TrainBatch, alphas: Float64Array
    ) -> Descent:
        """Return what descends for the penalties `alphas`; makes the kernel matrix."""
        rows = self._attach(problem, state, batch).rows
        weight = np.asarray(batch.sample_weight, np.float64)
        n, deadline = batch.n_rows, problem.resources.deadline
        narrow = newton_bytes(n, problem.n_outputs, support.sizes(batch.X))
        limit = support.matrix_limit(problem, SETTINGS.matrix_bytes)
        wide = narrow + 4.0 * n**2 <= limit and state.exact.is_small(min(alphas), rows)
        dtype = np.float64 if wide else state.exact.dtype
        K = kernel_matrix(state.exact, rows, deadline, dtype, wide=wide)
        state.kernel_evaluations += n**2
        return Descent(
            K, problem.loss, batch.y, weight / weight.sum(), alphas, problem.fit_intercept,
            problem.seed, deadline,
        )  # fmt: skip

    def step(self, problem: Problem, state: ExactState, batch: TrainBatch) -> StepInfo:
        """Solve a Newton system, or several until one leads on."""
        at, descent = state.point, state.descent
        if descent is None or at is None or state.alpha != problem.alpha:
            self._check_memory(problem, batch)
            same, state.alpha = state.alpha == problem.alpha, problem.alpha
            descent = self._descent(problem, state, batch, np.array([problem.alpha]))
            if state.coarse:
                descent.help()
            a = np.ascontiguousarray(state.coef.T)[None]
            # a state from a file goes on to the same bit
            at = descent.look(a, state.intercept[None], settled=state.iteration > 0)
            if state.length.size and same:
                at = replace(at, length=state.length[None])
                descent.excess = state.excess[None]
        before = state.coef
        for _ in range(8):  # many steps lead not far if the curvature jumps
            at = descent.advance(at, self.tol)
            long = at.done.all() or at.length[~at.done].min() >= SETTINGS.short
            if long or problem.resources.deadline.over:
                break
        state.descent, state.point = descent, at
        state.coarse, state.length = descent.helped, at.length[0]
        state.excess = descent.excess[0]
        change = np.ascontiguousarray(at.a[0].T) - before
        return self._report(
            problem, state, at, batch.n_rows,
            SupportUpdate.of(state.prepared, change),
            step_size=float(at.length.min()), converged=bool(at.done.all()),
        )  # fmt: skip
