r"""Newton's method for smooth losses on a kernel matrix that fits in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from kernelgrad.callbacks import FOREVER, Deadline
from kernelgrad.compute.linalg import factor_damped
from kernelgrad.compute.threads import over_tiles, parallel_for
from kernelgrad.functions.exact import small_alpha
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import Kernel
from kernelgrad.losses import Loss, scalar
from kernelgrad.params import integer, parameters, real
from kernelgrad.solvers import support
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, draws, sized, transient
from kernelgrad.solvers.support import RowsSolver, RowsState, SupportUpdate
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad.validation import DataError

_TAG = 0x6E7774
_ROWS, _DEPTH = 512, 4096  # rows of one task of a product, and terms that float32 sums up
_TILE = 512  # of the half of a matrix: both products with it find it in the cache
_WIDE = 16  # BLAS is faster for that many outputs than for any other number from 3 on
_MOST_BYTES = 8 * 2**30  # unless a memory limit is given: 46,000 rows
_FORCING = 0.5  # the residual of a Newton system, in parts of the gradient
_SURE = 0.25  # of the tolerance, where the gain that is left is only an estimate
_MOST_INNER = 300
_PATIENCE = 32  # inner steps of one system after which a coarse space pays
_COARSE = 16.0  # factorisations of the coarse space may cost that many products
_HALVINGS = 30
_SHORT = 0.1  # part of a step: systems are better solved more exactly
_WHOLE = 2048  # rows times outputs up to which systems are factored as they are
_INDEFINITE = 1e-3  # of the parts of a squared norm: more than rounding makes negative
_SETTLED = 1e-10  # of the loss: a constant is moved for no less


def newton_bytes(n_rows: int, n_outputs: int, row_bytes: float) -> float:
    """Return the bytes that :class:`NewtonCG` takes, rows in both forms included."""
    r = _coarse_rows(n_rows, n_outputs)  # their kernel rows in three forms, their squares
    coarse = (12.0 * n_rows + 32.0 * r) * r
    return support.matrix_bytes(n_rows, n_outputs, row_bytes, np.float32) + coarse


def _coarse_rows(n: int, columns: int) -> int:
    r = int(np.sqrt(_COARSE * n * (8.0 if columns == 1 else 1.0)))
    return r if r < n else n // 2


class _Loss:
    """Sums of a loss over weighted rows, its slopes and curvatures, for outputs (A, C, n).

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
        values = [scalar.value.py_func(self.loss.code, self._params, self.y, f.T) for f in F]
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
        out = np.empty_like(F)
        for a, f in enumerate(F):
            if self.joint:
                out[a] = self.loss.curvature(self.y, f.T)
            else:
                none = np.float64(0)
                c = scalar.curvature.py_func(
                    self.loss.code, self._params, self.y, f.T, none, none
                )
                out[a] = np.transpose(c) if np.ndim(c) else c
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


@dataclass
class _Coarse:
    """Centres I, whose functions carry the large eigenvalues of K."""

    index: IntArray
    L: Float64Array  # L L^T = K_II
    U: AnyArray  # L^-1 K_I, and a row of ones for the constant
    rows: AnyArray  # K_I


@dataclass(frozen=True)
class NewtonPoint:
    """Functions ``K a + b`` and their gradients; the first axis is that of the penalties.

    The last four are (A, C), or (A, 1) where outputs are coupled.
    """

    a: Float64Array  # (A, C, n)
    b: Float64Array  # (A, C)
    f: Float64Array  # K a
    slope: Float64Array  # of the mean loss
    G: Float64Array  # gradient in coefficients, slope + alpha a
    KG: Float64Array
    objective: Float64Array
    gap: AnyArray = field(default_factory=lambda: np.array(np.inf))  # bounds its distance
    # of the step that led here
    length: AnyArray = field(default_factory=lambda: np.ones((1, 1)))
    done: AnyArray = field(default_factory=lambda: np.zeros(1, bool))
    M: _Preconditioner | None = None  # of the next system, where it is known


class NewtonDescent:
    r"""Functions ``f = K a + b`` of all penalties, and Newton steps on them.

    A Newton system ``(H K + alpha I) d = -(r + alpha a)``, H the Hessian of the mean loss and r
    its slopes, is self-adjoint in the inner product ``u^T K v``. Conjugate gradients in that
    inner product lower the quadratic model with every step, and take one product with K, which
    all penalties and outputs share. Once a system has taken 32 steps, a coarse space helps:
    with centres I and the functions ``phi = L^-1 k_I``, orthonormal in the kernel's space, the
    system is solved on their span by Cholesky, with the diagonal of H, and divided by alpha on
    what is orthogonal to it. Up to 2,048 rows, times outputs, the system of each output is
    factored instead.

    K is (n, n), float32 or float64; weights (n,) sum to 1. The seed is that of the centres, the
    deadline ends a system with the step so far.
    """

    def __init__(
        self, K: FloatArray, loss: Loss, y: AnyArray, weight: Float64Array,
        alphas: Float64Array, fit_intercept: bool, seed: int, deadline: Deadline = FOREVER,
    ) -> None:  # fmt: skip
        precise = float(alphas.min()) < small_alpha(K.diagonal())
        self.K, self.dtype = K, np.float64 if precise else np.float32
        self.loss, self.alpha = _Loss(loss, y, weight), alphas[:, None, None]
        self.fit_intercept, self.seed, self.deadline = fit_intercept, seed, deadline
        self.floor = np.where(self.alpha > 0, self.alpha, 1.0)  # divides, where alpha does not
        self.coarse: _Coarse | None = None
        self.whole = False  # systems of single outputs are factored
        self.excess = np.ones((1, 1))  # of what a step gained over what its slope told
        self.n_products = 0

    def keep(self, at: NewtonPoint, which: IntArray) -> NewtonPoint:
        """Go on with some of the penalties only; return the point of these."""
        self.alpha, self.floor = self.alpha[which], self.floor[which]
        self.excess = self.excess[which]
        arrays = [getattr(at, each.name) for each in fields(at)][:-1]
        return NewtonPoint(*(array[which] for array in arrays))

    def product(self, A: Float64Array, dtype: Any = None) -> Float64Array:
        """Return ``K A`` for outputs (..., n); sums of float32 go over 4,096 rows at most."""
        n = len(self.K)
        V = A.reshape(-1, n)
        self.n_products += 1
        dtype = self.dtype if dtype is None else dtype
        if len(V) <= 2:
            return self._product_by_halves(V.astype(dtype)).reshape(A.shape)
        right = np.zeros((n, -(-len(V) // _WIDE) * _WIDE), dtype)
        right[:, : len(V)] = V.T
        out = np.empty((len(V), n))

        def task(start: int, stop: int) -> None:
            total: Any = 0.0
            for a in range(0, n, _DEPTH):
                part = self.K[start:stop, a : a + _DEPTH].astype(dtype, copy=False)
                total = total + (part @ right[a : a + _DEPTH]).astype(np.float64, copy=False)
            out[:, start:stop] = total[:, : len(V)].T

        over_tiles(n, _ROWS, task)
        return out.reshape(A.shape)

    def _product_by_halves(self, V: AnyArray) -> Float64Array:
        """Return ``V K`` for one or two outputs: memory is the limit, so half of it is read."""
        n = len(self.K)
        starts = range(0, n, _TILE)
        parts = np.zeros((len(starts), len(V), n))

        def task(i: int) -> None:
            rows = slice(starts[i], starts[i] + _TILE)
            for a in starts[i:]:
                columns = slice(a, a + _TILE)
                tile = self.K[rows, columns].astype(V.dtype, copy=False)
                parts[i, :, rows] += V[:, columns] @ tile.T
                if a > starts[i]:
                    parts[i, :, columns] += V[:, rows] @ tile

        parallel_for(len(starts), task)
        return np.asarray(parts.sum(axis=0))

    def _apart(self, v: Float64Array) -> Float64Array:
        """Return sums over the outputs that are one problem, (A, C, 1) or (A, 1, 1)."""
        total = v.sum(axis=-1, keepdims=True)
        return np.asarray(total.sum(axis=1, keepdims=True) if self.loss.joint else total)

    @property
    def helped(self) -> bool:
        """Whether systems have more than their penalty for a preconditioner."""
        return self.whole or self.coarse is not None

    def make_coarse(self) -> None:
        """Draw centres and factor the kernel among them; few rows are solved as a whole."""
        n = len(self.K)
        columns = self.alpha.size * self.loss.y.shape[1]
        self.whole = n * columns <= _WHOLE
        if self.whole:
            return
        r = _coarse_rows(n, columns)
        index = np.sort(draws(self.seed, _TAG, 0).choice(n, r, replace=False))
        rows = self.K[index].astype(self.dtype, copy=False)
        among = rows[:, index].astype(np.float64)
        known: Any = self.K.dtype
        rounding = float(np.finfo(known).eps) * float(among.trace())
        L = np.tril(factor_damped(among, rounding)[0])
        U = np.ones((r + self.fit_intercept, n), self.dtype)
        inverse = scipy.linalg.solve_triangular(L, np.eye(r), lower=True, check_finite=False)
        U[:r] = inverse.astype(self.dtype) @ rows
        self.coarse = _Coarse(index, L, U, rows)

    def look(self, a: Float64Array, b: Float64Array, settled: bool = False) -> NewtonPoint:
        """Return what there is to know of coefficients a and the best constants, near b."""
        # large coefficients of both signs: float32 would leave an error of the size of r
        f = self.product(a, np.float64) if a.any() else np.zeros_like(a)
        slope = self.loss.slope(f + b[..., None])
        if self.fit_intercept and not settled:
            b, slope = self._settle(f, b, slope)
        G = slope + self.alpha * a
        return NewtonPoint(a, b, f, slope, G, self.product(G), self.objective(a, f, b))

    def _settle(
        self, f: Float64Array, b: Float64Array, slope: Float64Array
    ) -> tuple[Float64Array, Float64Array]:
        """Return the constants that minimise the loss, and the slopes there."""
        value = self.loss.value(f + b[..., None])
        length = np.ones_like(value)
        for _ in range(2 * _HALVINGS):
            step = self._constants_step(f + b[..., None], slope)
            fall = self._apart((slope.sum(axis=-1) * step)[..., None])[..., 0]
            moves = length * fall > _SETTLED * np.abs(value)
            if not moves.any():
                break
            trial = b - np.where(moves, length, 0.0) * step
            new = self.loss.value(f + trial[..., None])
            better = moves & (new < value)
            b, value = np.where(better, trial, b), np.where(better, new, value)
            length = np.where(better, 1.0, 0.5 * length)
            slope = self.loss.slope(f + b[..., None])
        return b, slope

    def _constants_step(self, F: Float64Array, slope: Float64Array) -> Float64Array:
        inverse = self.loss.constants(self.loss.bend(F, slope))
        return np.asarray(np.einsum("acd,ad->ac", inverse, slope.sum(axis=-1)))

    def objective(self, a: Float64Array, f: Float64Array, b: Float64Array) -> Float64Array:
        norm = self._apart(a * f)[..., 0]
        return np.asarray(self.loss.value(f + b[..., None]) + 0.5 * self.alpha[..., 0] * norm)

    def _solve(
        self, at: NewtonPoint, bend: Float64Array, M: _Preconditioner, tol: float
    ) -> tuple[Float64Array, Float64Array, Float64Array, int]:
        """Return a Newton step in coefficients, responses and constants, and inner steps.

        The constants follow the functions: of a direction KD they take what leaves the sum of
        slopes at 0.
        """
        loss, inverse = self.loss, self.loss.constants(bend)
        R, KR = -at.G, -at.KG
        if (self._apart(R * KR) < -_INDEFINITE * self._apart(np.abs(R * KR))).any():
            raise DataError(
                "The kernel matrix is not positive semi-definite: the objective of solver "
                "'newton' has no minimum. Use a positive semi-definite kernel, or "
                "solver='cached'."
            )
        D, KD = M(R, KR)
        rz = first = self._apart(KR * D)
        forcing = 0.0 if loss.quadratic else 0.1 * _FORCING if self.whole else _FORCING
        enough = np.maximum(forcing**2 * rz, _SURE * tol * np.abs(at.objective)[..., None])
        X, KX, xb = np.zeros_like(R), np.zeros_like(R), np.zeros_like(at.b)
        gain = np.zeros_like(rz)
        inner = 0
        while inner < (_MOST_INNER if self.helped else _PATIENCE):
            inner += 1
            HD, db = loss.hessian(bend, KD), np.zeros_like(at.b)
            if self.fit_intercept:
                db = -np.einsum("acd,ad->ac", inverse, HD.sum(axis=-1))
                HD += loss.hessian(bend, np.broadcast_to(db[..., None], KD.shape))
            along = self._apart(KD * (HD + self.alpha * D))
            length = np.where(rz > 0, rz, 0.0) / np.where(along > 0, along, np.inf)
            X, KX, xb = X + length * D, KX + length * KD, xb + length[..., 0] * db
            gain = gain + length * rz
            R = R - length * (HD + self.alpha * D)
            KR = self.product(R)
            Z, KZ = M(R, KR)
            new = self._apart(KR * Z)
            if (new <= enough).all() or self.deadline.over:
                break
            ratio = np.where(rz > 0, new / np.where(rz > 0, rz, 1.0), 0.0)
            D, KD, rz = Z + ratio * D, KZ + ratio * KD, new
        more = gain / np.where(first > 0, first, np.inf)
        self.excess = np.maximum(self.excess, more[..., 0])
        return X, KX, xb, inner

    def advance(self, at: NewtonPoint, tol: float) -> NewtonPoint:
        """Take one Newton step, shortened where it overshoots."""
        bend = self._bend(at)
        M = at.M if at.M is not None else _Preconditioner(self, self.loss.diagonal(bend))
        X, KX, xb, inner = self._solve(at, bend, M, tol)
        length, stuck = self._length(at, X, KX, xb)
        new = self.look(at.a + length[..., None] * X, at.b + length * xb)
        new = replace(new, length=length)
        stuck &= at.length == 0  # by rounding: the largest curvature did not help
        aim = tol * np.abs(new.objective)
        gap = 0.5 * self._apart(new.G * new.KG)[..., 0] / self.floor[..., 0]
        if not self.helped and (inner >= _PATIENCE or length.min() < _SHORT):
            self.make_coarse()
        done, following = stuck | (gap <= aim), None
        if self.helped and not done.all():
            following = _Preconditioner(self, self.loss.diagonal(self._bend(new)))
            norm = 0.5 * self._apart(new.KG * following(new.G, new.KG)[0])[..., 0]
            done |= (self.excess * norm <= _SURE * aim) & (gap <= 100 * aim)
        return replace(new, gap=gap, done=done, M=following)

    def _bend(self, at: NewtonPoint) -> Float64Array:
        """Return curvatures, the largest of the loss where they led nowhere."""
        bend = self.loss.bend(at.f + at.b[..., None], at.slope)
        nowhere = (at.length == 0)[..., None]
        if self.loss.joint or not nowhere.any():
            return bend
        return np.where(nowhere, float(self.loss.loss.smoothness or 1.0), bend)

    def _length(
        self, at: NewtonPoint, X: Float64Array, KX: Float64Array, xb: Float64Array
    ) -> tuple[Float64Array, AnyArray]:
        """Return how much of a step to take, and where no part of it gains.

        All of it where that gains a tenth of what its slope promises, else what bisection
        finds to be the minimum along it.
        """
        penalty = self.alpha * self._apart(at.a * KX)
        curve = self.alpha * self._apart(X * KX)

        def derivative(s: Float64Array) -> Float64Array:
            F = at.f + at.b[..., None] + s * (KX + xb[..., None])
            along = self.loss.slope(F) * (KX + xb[..., None])
            return np.asarray(self._apart(along) + penalty + s * curve)

        def gain(s: Float64Array) -> Float64Array:
            b = at.b + s[..., 0] * xb
            return np.asarray(at.objective - self.objective(at.a + s * X, at.f + s * KX, b))

        low, high = np.zeros_like(curve), np.ones_like(curve)
        with np.errstate(over="ignore", invalid="ignore"):
            long = ~(gain(high) >= -0.1 * derivative(low)[..., 0])[..., None]
            for _ in range(_HALVINGS if long.any() else 0):
                middle = 0.5 * (low + high)
                rises = long & ~(derivative(middle) < 0)
                low, high = np.where(long & ~rises, middle, low), np.where(rises, middle, high)
                if (high - low <= 0.1 * high)[long].all():
                    break
            s = np.where(long, low, high)
            stuck = ~(gain(s) > 0)
        return np.where(stuck, 0.0, s[..., 0]), stuck


class _Preconditioner:
    """What stands for the inverse of a Newton system; see :class:`NewtonDescent`."""

    def __init__(self, descent: NewtonDescent, diagonal: Float64Array) -> None:
        self.descent = descent
        self.factors: dict[tuple[int, int], Any] = {}
        A, C, n = diagonal.shape
        if descent.whole:
            K = np.asarray(descent.K, np.float64)
            for a, c in np.ndindex(A, C):
                h, m = diagonal[a, c], n + descent.fit_intercept
                system = np.empty((m, m))
                np.multiply(h[:, None], K, out=system[:n, :n])
                system[np.diag_indices(n)] += descent.alpha[a, 0, 0] + np.finfo(float).eps
                if descent.fit_intercept:  # the constant leaves the sum of slopes at 0
                    system[:n, n], system[n, :n] = h, h @ K
                    system[n, n] = h.sum() or 1.0  # and stays where no row bends
                self.factors[a, c] = scipy.linalg.lu_factor(system, True, False)
        coarse = descent.coarse
        if coarse is None:
            return
        r = len(coarse.index)

        def task(i: int) -> None:
            a, c = divmod(i, C)
            S = coarse.U * np.sqrt(diagonal[a, c]).astype(descent.dtype)
            H = (S @ S.T).astype(np.float64)
            # as far as it is rounded; and functions of all rows alike are the constant's
            rounding = float(np.finfo(descent.dtype).eps) * float(H.diagonal()[:r].sum())
            H[np.diag_indices(len(H))] += rounding
            H[np.diag_indices(r)] += float(descent.alpha[a, 0, 0])
            self.factors[a, c] = scipy.linalg.cho_factor(
                H, lower=True, overwrite_a=True, check_finite=False
            )

        parallel_for(A * C, task)

    def __call__(self, R: Float64Array, KR: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return ``Z = M^-1 R`` and ``K Z``."""
        descent, coarse = self.descent, self.descent.coarse
        if descent.whole:
            Z, n = np.empty_like(R), R.shape[-1]
            for (a, c), factor in self.factors.items():
                right = np.append(R[a, c], 0.0) if descent.fit_intercept else R[a, c]
                Z[a, c] = scipy.linalg.lu_solve(factor, right, check_finite=False)[:n]
            return Z, descent.product(Z)
        Z, KZ = R / descent.floor, KR / descent.floor
        if coarse is None:
            return Z, KZ
        A, C, n = R.shape
        r = len(coarse.index)
        right = KR[:, :, coarse.index].reshape(-1, r).T
        u = scipy.linalg.solve_triangular(coarse.L, right, lower=True, check_finite=False)
        more = np.empty_like(u)
        for (a, c), factor in self.factors.items():
            i = a * C + c
            wanted = np.zeros(len(coarse.U))  # nothing for the constant, which follows
            wanted[:r] = u[:, i]
            s = scipy.linalg.cho_solve(factor, wanted, check_finite=False)
            more[:, i] = s[:r] - u[:, i] / descent.floor[a, 0, 0]
        change = scipy.linalg.solve_triangular(
            coarse.L, more, lower=True, trans=1, check_finite=False
        ).T
        Z[:, :, coarse.index] += change.reshape(A, C, r)
        moved = change.astype(descent.dtype)
        spread = np.empty((A * C, n), descent.dtype)

        def task(a: int, z: int) -> None:
            spread[:, a:z] = moved @ coarse.rows[:, a:z]

        over_tiles(n, _DEPTH, task)
        return Z, KZ + spread.reshape(A, C, n)


@dataclass(kw_only=True)
class NewtonState(RowsState):
    """State of :class:`NewtonCG`; ``responses`` are f on the rows without the intercept."""

    alpha: float
    coarse: bool = False  # whether systems were hard
    length: Float64Array = sized("problem", empty=True)  # of the last step
    excess: Float64Array = sized("problem", empty=True)  # what steps gained beyond their slope
    descent: NewtonDescent | None = transient()
    point: NewtonPoint | None = transient()


@parameters
class NewtonCG(RowsSolver[NewtonState]):
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
    state_class = NewtonState

    tol: float = real(default=1e-4, low=0, low_open=True)
    max_support: int | None = integer(default=None, low=1, words=(None,))

    def init(self, problem: Problem, batch: TrainBatch) -> NewtonState:
        """Start from the best constant; CapabilityError where the matrix exceeds the limit."""
        self._check_memory(problem, batch)
        return self._new_state(problem, batch, alpha=problem.alpha)

    def _check_memory(self, problem: Problem, batch: TrainBatch) -> None:
        support.check_matrix(self.name, problem, batch, newton_bytes, _MOST_BYTES)

    def path(
        self, problem: Problem, batch: TrainBatch, alphas: Sequence[float], X: Matrix,
        max_iter: int,
    ) -> tuple[Kernel, list[Float64Array]]:  # fmt: skip
        """Return what :meth:`RowsSolver.path` does; the penalties share the products."""
        state = self.init(problem, batch)
        descent = self.start(problem, state, batch, np.array(alphas))
        shape = len(alphas), problem.n_outputs
        at = descent.look(
            np.zeros((*shape, batch.n_rows)), np.tile(state.intercept, (shape[0], 1))
        )
        a, b, live = at.a.copy(), at.b.copy(), np.arange(len(alphas))
        for _ in range(max_iter):
            at = descent.advance(at, self.tol)
            a[live], b[live] = at.a, at.b
            going = np.flatnonzero(~at.done.all(axis=1))
            if not len(going):
                break
            live = live[going]
            at = descent.keep(at, going)
        found = []
        for coef, intercept in zip(a, b, strict=True):
            e = SupportExpansion(state.exact, state.prepared, coef.T, intercept)
            found.append(e.raw_prediction(X))
        return state.exact.kernel, found

    def start(
        self, problem: Problem, state: NewtonState, batch: TrainBatch, alphas: Float64Array
    ) -> NewtonDescent:
        """Return what descends for the penalties `alphas`; makes the kernel matrix."""
        rows = self._attach(problem, state, batch)
        weight = np.asarray(batch.sample_weight, np.float64)
        exact = state.exact
        n = batch.n_rows
        narrow = newton_bytes(n, problem.n_outputs, support.sizes(batch.X))
        fits = narrow + 4.0 * n**2 <= support.matrix_limit(problem, _MOST_BYTES)
        K = exact.gram(rows.rows, wide=fits and exact.is_small(min(alphas), rows.rows))
        state.kernel_evaluations += K.size
        return NewtonDescent(
            K, problem.loss, batch.y, weight / weight.sum(), alphas, problem.fit_intercept,
            problem.seed, problem.resources.deadline,
        )  # fmt: skip

    def step(self, problem: Problem, state: NewtonState, batch: TrainBatch) -> StepInfo:
        """Solve a Newton system, or several until one leads on."""
        if state.descent is None or state.point is None or state.alpha != problem.alpha:
            self._check_memory(problem, batch)
            same, state.alpha = state.alpha == problem.alpha, problem.alpha
            state.descent = self.start(problem, state, batch, np.array([problem.alpha]))
            if state.coarse:
                state.descent.make_coarse()
            a = np.ascontiguousarray(state.coef.T)[None]
            settled = state.iteration > 0  # a state from a file goes on to the same bit
            state.point = state.descent.look(a, state.intercept[None], settled)
            if state.length.size and same:
                state.point = replace(state.point, length=state.length[None])
                state.descent.excess = state.excess[None]
        before = state.coef
        at = state.point
        for _ in range(8):  # where the curvature jumps, many lead not far
            at = state.descent.advance(at, self.tol)
            long = at.done.all() or at.length[~at.done].min() >= _SHORT
            if long or problem.resources.deadline.over:
                break
        state.point = at
        state.coef = np.ascontiguousarray(at.a[0].T)
        state.responses, state.intercept = at.f[0], at.b[0]
        state.coarse = state.descent.helped
        state.length, state.excess = at.length[0], state.descent.excess[0]
        state.iteration += 1
        state.rows_seen += batch.n_rows
        objective = float(at.objective.sum())
        return self._info(
            state,
            objective - 0.5 * problem.alpha * float((at.a * at.f).sum()),
            SupportUpdate.without_average(state.prepared, state.coef - before),
            step_size=float(at.length.min()),
            epoch=float(state.iteration),
            objective=objective,
            duality_gap=float(at.gap.sum()) if problem.alpha > 0 else None,
            converged=bool(at.done.all()),
        )
