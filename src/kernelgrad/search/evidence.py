r"""Hyperparameters of a Gaussian process that maximise the marginal likelihood.

For ``y_i = f(x_i) + e_i`` with ``f ~ GP(0, s^2 k)``, noise of variance ``sigma^2`` and rows
that were observed ``w_i`` times, N times in all, the logarithm of the likelihood is, with
``C = K + (sigma^2 / s^2) diag(w)^-1``,

.. math::
    -\frac{y^\top C^{-1} y}{2 s^2} - \frac{N}{2} \log(2 \pi s^2) - \frac12 \log|C|
    - \frac{N - n}{2} \log\frac{\sigma^2}{s^2} - \frac12 \sum_i \log w_i .

Given C, the best ``s^2`` is ``y^T C^-1 y / N``: only the ratio of the variances and the
bandwidths are searched. With ``A`` the slope by C, and ``k`` a function of
``u = sum_k (x_ik - x_jk)^2 / (2 l_k^2)``, the slope by ``log l_k`` is
``-sum_ij (A . k'(u))_ij (x_ik - x_jk)^2 / l_k^2``, which products with the rows give.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from scipy.linalg import lapack

from kernelgrad.callbacks import FOREVER, Deadline, TimeIsUp
from kernelgrad.compute import linalg
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import parallel_map, single_threaded_blas
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Kernel
from kernelgrad.kernels.profiles import profile
from kernelgrad.search.machine import smoothness
from kernelgrad.solvers.kernel_matrix import KernelMatrix
from kernelgrad.types import Float64Array, Matrix

MOST_ROWS = 2000  # rows of the last search, whose evaluation takes three factorisations
NOISE_ROWS = 5000  # rows for the noise given bandwidths; an evaluation takes a factorisation
_LEVELS = 120, 400, 1000  # rows of the searches before, where starts are cheap
_MOST_COLUMNS = 100  # columns up to which each has a bandwidth
_SURE = 2.0  # ratio of a gain to its price that leaves no doubt, either way
# Logarithms of the ratio of variances. Noise below 1e-4 of the deviation of f is rounding to a
# factorisation of some 1,000 rows; beyond 1e4 times its variance f is not seen.
_RATIO = np.log(1e-8), np.log(1e4)


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters by `n_rows` rows; variances are in squared units of the targets."""

    kernel: Kernel  # without rules, of columns divided by `bandwidths` where there are any
    noise_variance: float
    signal_variance: float
    bandwidths: Float64Array | None = None
    log_marginal_likelihood: float = np.nan
    n_rows: int = 0
    total: float = 0.0  # weight of the rows

    def summary(self, scale: float) -> dict[str, Any]:
        """Return an entry of ``history_["search"]``; targets were divided by `scale`."""
        gamma: Any = getattr(self.kernel, "gamma", None)
        each = self.bandwidths
        return {
            "n_rows": self.n_rows,
            "log_marginal_likelihood": self.log_marginal_likelihood
            - self.total * float(np.log(scale)),
            "noise_variance": self.noise_variance * scale**2,
            "signal_variance": self.signal_variance * scale**2,
            "gamma": gamma if each is None else (gamma / each**2).tolist(),
        }


class Evidence:
    """The marginal likelihood of n rows, as a function of K (n, n) and the ratio of variances.

    ``noise`` and ``signal`` are the variances, or None where they are free.
    """

    def __init__(
        self, y: Float64Array, weight: Float64Array, noise: float | None, signal: float | None
    ) -> None:
        self.y, self.weight = y, weight
        self.noise, self.signal = noise, signal
        self.total = float(weight.sum())
        self.constant = -0.5 * float(np.log(weight).sum() + self.total * np.log(2 * np.pi))

    @property
    def fixed_ratio(self) -> float | None:
        if self.noise is None or self.signal is None:
            return None
        return float(np.log(self.noise / self.signal))

    def variance(self, square: float, ratio: float) -> float:
        """Return the signal variance; `square` is ``y^T C^-1 y``."""
        if self.signal is not None:
            return self.signal
        return square / self.total if self.noise is None else self.noise / ratio

    def likelihood(self, square: float, log_determinant: float, ratio: float) -> float:
        """Return the log likelihood; `square` is ``y^T C^-1 y``."""
        s2 = self.variance(square, ratio)
        copies = (self.total - len(self.y)) * np.log(ratio)
        value = square / s2 + self.total * np.log(s2) + log_determinant + copies
        return float(self.constant - 0.5 * value)

    def look(self, K: Float64Array, log_ratio: float) -> tuple[float, float]:
        """Return the log likelihood and the signal variance."""
        value, square, ratio, *_ = self._solved(K, log_ratio)
        return value, self.variance(square, ratio)

    def slope(self, K: Float64Array, log_ratio: float) -> tuple[float, float, Float64Array]:
        """Return the log likelihood and its slopes by the log ratio and by C.

        Of the entries (i, j) and (j, i) of the latter (n, n) only the sum has a meaning. Its
        diagonal is 0, as the diagonal of a stationary K is constant.
        """
        value, square, ratio, L, a = self._solved(K, log_ratio)
        s2 = self.variance(square, ratio)
        inverse, _ = lapack.dpotri(L, lower=1, overwrite_c=1)
        by_ratio = 0.5 * float((a * a / s2 - inverse.diagonal()) @ (ratio / self.weight))
        A = np.outer(a, 0.5 / s2 * a)
        A -= inverse  # twice half of it: the other triangle is zero
        np.fill_diagonal(A, 0.0)
        by_ratio -= 0.5 * (self.total - len(a))
        if self.signal is None and self.noise is not None:  # a larger ratio is a smaller signal
            by_ratio -= 0.5 * (square / s2 - self.total)
        return value, by_ratio, A

    def _solved(
        self, K: Float64Array, log_ratio: float
    ) -> tuple[float, float, float, Float64Array, Float64Array]:
        """Return the log likelihood, ``y^T a``, the ratio, L and ``a = C^-1 y``."""
        ratio = float(np.exp(log_ratio))
        L = linalg.damped_cholesky(K, ridge=ratio / self.weight)[0]  # zeros above the diagonal
        a: Float64Array = lapack.dpotrs(L, self.y, lower=1)[0]
        square = float(self.y @ a)
        value = self.likelihood(square, 2.0 * float(np.log(L.diagonal()).sum()), ratio)
        return value, square, ratio, L, a


class Radial:
    """Evidence of a Gaussian or Matern kernel, as a function of theta.

    theta holds the logarithms of the bandwidths, in units of ``units`` ((1,) if all columns
    share one, otherwise (d,)), and that of the ratio of variances unless both are given.
    """

    def __init__(
        self, X: Matrix, nu: float, evidence: Evidence, units: Float64Array, *, each: bool
    ) -> None:
        self.evidence, self.nu, self.units, self.each = evidence, nu, units, each
        self.X = sp.csr_matrix(X / units[0]) if sp.issparse(X) else X / units
        self.fixed = evidence.fixed_ratio
        self.half = None if each else _half_squares(self.X)

    def bounds(self) -> list[tuple[float, float]]:
        shortest = float(np.log(0.02))
        if self.half is not None:
            # rows that nearly all are without a neighbour tell nothing of the bandwidth
            distances = np.sqrt(2.0 * self.half)
            np.fill_diagonal(distances, np.inf)
            near = distances.min(axis=1)
            near = near[(near > 0) & np.isfinite(near)]
            if len(near):
                shortest = min(0.0, float(np.log(0.5 * np.median(near))))
        columns = [(shortest, float(np.log(1e3)))] * len(self.units)
        return columns if self.fixed is not None else [*columns, _RATIO]

    def log_ratio(self, theta: Float64Array) -> float:
        return float(theta[-1]) if self.fixed is None else self.fixed

    def _scaled(self, theta: Float64Array) -> tuple[Any, Float64Array]:
        """Return the scaled rows and u (n, n)."""
        if self.half is not None:
            return self.X, self.half * np.exp(-2.0 * theta[0])
        Z = self.X * np.exp(-theta[: len(self.units)])
        return Z, _half_squares(Z)

    def look(self, theta: Float64Array) -> tuple[float, float]:
        """Return the log likelihood and the signal variance."""
        K = profile(2.0 * self._scaled(theta)[1], self.nu)[0]
        return self.evidence.look(K, self.log_ratio(theta))

    def __call__(self, theta: Float64Array) -> tuple[float, Float64Array]:
        Z, u = self._scaled(theta)
        K, W = profile(2.0 * u, self.nu)
        value, by_ratio, A = self.evidence.slope(K, self.log_ratio(theta))
        W *= 2.0 * A
        if self.half is not None:
            by_columns = np.array([-2.0 * float(np.vdot(W, u))])
        else:
            squares = (W.sum(axis=0) + W.sum(axis=1)) @ (Z * Z)
            by_columns = 2.0 * (Z * (W @ Z)).sum(axis=0) - squares
        return value, by_columns if self.fixed is not None else np.append(by_columns, by_ratio)

    def starts(self, deadline: Deadline, best: Float64Array | None) -> list[Float64Array]:
        """Return the best points of a coarse grid; raise TimeIsUp past the deadline.

        `best` is the best point for fewer rows, if there is one: it is tried with shorter
        bandwidths too, because more rows resolve shorter ones.
        """
        d = len(self.units)
        if best is None:
            ratios = (1e-4, 1e-2, 0.1, 1.0) if self.fixed is None else (1.0,)
            factors = (0.125, 0.25, 0.5, 1.0, 2.0)
            points = [np.log([*[f] * d, r]) for f in factors for r in ratios]
        else:
            # a column that was useless to few rows starts again with more
            columns = np.arange(len(best)) < d
            longest = np.minimum(best, np.where(columns, np.log(10.0), _RATIO[1]))
            points = [longest + k * np.where(columns, np.log(0.5), 0.0) for k in range(3)]

        def value(point: Float64Array) -> float:
            deadline.check()
            return self.look(point)[0]

        ends = np.array(self.bounds()).T
        points = [np.clip(point[: ends.shape[1]], *ends) for point in points]
        return sorted(points, key=value, reverse=True)[: 2 if best is None else 1]

    def climb(
        self, start: Float64Array, tolerance: float, deadline: Deadline
    ) -> tuple[float, Float64Array]:
        """Return the largest log likelihood that L-BFGS finds in time, and its theta."""
        scale, best = self.evidence.total, (-np.inf, start)

        def negative(theta: Float64Array) -> tuple[float, Float64Array]:
            nonlocal best
            deadline.check()
            value, slope = self(theta)
            best = max(best, (value, theta.copy()), key=lambda item: item[0])
            return -value / scale, -slope / scale

        ends = self.bounds()
        start = np.clip(start, *np.array(ends).T)
        options = {"maxiter": 60, "ftol": tolerance, "gtol": tolerance}
        with suppress(TimeIsUp):
            scipy.optimize.minimize(
                negative, start, jac=True, method="L-BFGS-B", bounds=ends, options=options
            )
        return best


def _half_squares(Z: Matrix) -> Float64Array:
    """Return ``|z_i - z_j|^2 / 2`` (n, n), with zeros on the diagonal."""
    u: Float64Array = (Z @ Z.T).toarray() if sp.issparse(Z) else Z @ Z.T
    half = 0.5 * u.diagonal()
    np.subtract(half[:, None], u, out=u)
    u += half
    np.maximum(u, 0.0, out=u)
    np.fill_diagonal(u, 0.0)
    return u


def has_rule(kernel: Kernel) -> bool:
    return isinstance(getattr(kernel, "gamma", None), str) and hasattr(
        kernel, "bandwidth_factor"
    )


@dataclass(frozen=True)
class EvidenceSearch:
    """Rows X (n, d), targets y (n,) of mean about 0, and the settings of a search.

    ``noise`` and ``signal`` are the variances, or None where they are searched.
    """

    X: Matrix
    y: Float64Array
    weight: Float64Array
    kernel: Kernel
    noise: float | None
    signal: float | None
    seed: int
    deadline: Deadline = FOREVER

    def first(self, n: int) -> EvidenceSearch:
        return replace(self, X=self.X[:n], y=self.y[:n], weight=self.weight[:n])

    def evidence(self, n: int) -> Evidence:
        return Evidence(self.y[:n], self.weight[:n], self.noise, self.signal)

    def at(
        self, kernel: Kernel, n: int, bandwidths: Float64Array | None = None,
        near: float | None = None,
    ) -> Hyperparameters:  # fmt: skip
        """Return the best variances for a kernel on the first n rows, `near` a log ratio."""
        exact = ExactKernel(
            kernel, self.X.shape[1], InputScaling(None, bandwidths), precise=True
        )
        rows = exact.prepare(self.X[:n])
        K = KernelMatrix(n, lambda i, j: exact.values(rows.take(i), rows.take(j))).rows(
            np.arange(n), np.float64
        )
        evidence = self.evidence(n)
        log_ratio, seen = evidence.fixed_ratio, {}

        def negative(t: float) -> float:
            self.deadline.check()
            seen[t] = evidence.look(K, t)
            return -seen[t][0]

        with suppress(TimeIsUp):
            if log_ratio is not None:
                negative(log_ratio)
            else:
                step = np.log(2.0)
                if near is None:
                    near = min(np.linspace(*_RATIO, 13), key=negative)
                    step = (_RATIO[1] - _RATIO[0]) / 12
                ends = np.clip([near - step, near + step], *_RATIO)
                options = {"xatol": 0.02, "maxiter": 6}
                scipy.optimize.minimize_scalar(
                    negative, bounds=ends, method="bounded", options=options
                )
        if not seen:
            raise TimeIsUp
        log_ratio = max(seen, key=lambda t: seen[t][0])
        value, signal = seen[log_ratio]
        noise = float(np.exp(log_ratio)) * signal
        return Hyperparameters(kernel, noise, signal, bandwidths, value, n, evidence.total)

    def radial(self, trials: list[Hyperparameters], nu: float, each: bool | None) -> None:
        """Insert trials on more and more rows; the first is the best one on the most rows."""
        gamma = self.kernel.resolve(self.X, self.seed).gamma_value
        n, d = self.X.shape
        spread = np.ones(d) if sp.issparse(self.X) else self.X.std(axis=0)
        units = {
            False: np.array([1.0 / np.sqrt(2.0 * gamma)]),
            True: np.sqrt(2.0 * d) * np.where(spread > 0, spread, 1.0),
        }
        kinds = [False, True] if each is None else [each]
        best: dict[bool, tuple[float, Float64Array]] = {}
        for m in [size for size in _LEVELS if 1.5 * size < n] + [n]:
            families = {
                kind: Radial(self.X[:m], nu, self.evidence(m), units[kind], each=kind)
                for kind in kinds
            }
            # the tolerance is that of the log likelihood of a row
            best = self._climbs(families, best, 1e-5 if m == n else 1e-4)
            if any(value == -np.inf for value, _ in best.values()):
                return
            level = [self._trial(families[kind], *best[kind]) for kind in kinds]
            if len(level) > 1:
                one, many = level
                gain = many.log_marginal_likelihood - one.log_marginal_likelihood
                price = gain + self.merit(one) - self.merit(many)
                # more rows gain more, at hardly another price
                most = _SURE * gain * min(n, _LEVELS[-1]) / m
                if m >= _LEVELS[-1] or gain > _SURE * price or most < price:
                    kinds = [gain > price]
            level.sort(key=self.merit, reverse=True)
            trials[:0] = level

    def _climbs(
        self, families: dict[bool, Radial], before: dict[bool, tuple[float, Float64Array]],
        tolerance: float,
    ) -> dict[bool, tuple[float, Float64Array]]:  # fmt: skip
        """Return the largest log likelihood of each family and its theta."""
        tasks = [
            (kind, start)
            for kind, family in families.items()
            for start in family.starts(self.deadline, before.get(kind, (0.0, None))[1])
        ]
        climbs = parallel_map(
            lambda task: families[task[0]].climb(task[1], tolerance, self.deadline), tasks
        )
        best: dict[bool, tuple[float, Float64Array]] = {}
        for (kind, _), climb in zip(tasks, climbs, strict=True):
            best[kind] = max(best.get(kind, climb), climb, key=lambda pair: pair[0])
        return best

    def merit(self, trial: Hyperparameters) -> float:
        """Return Schwarz's criterion: one more bandwidth must gain ``log(total) / 2``."""
        n_bandwidths = 1 if trial.bandwidths is None else len(trial.bandwidths)
        penalty = 0.5 * n_bandwidths * float(np.log(trial.total))
        return trial.log_marginal_likelihood - penalty

    def _trial(self, family: Radial, value: float, theta: Float64Array) -> Hyperparameters:
        _, signal = family.look(theta)
        lengths = family.units * np.exp(theta[: len(family.units)])
        noise = float(np.exp(family.log_ratio(theta))) * signal
        bandwidths = lengths if family.each else None
        gamma = 0.5 if family.each else 0.5 / float(lengths[0]) ** 2
        kernel, evidence = self.kernel._with_gamma(gamma), family.evidence
        return Hyperparameters(
            kernel, noise, signal, bandwidths, value, len(evidence.y), evidence.total
        )

    def maximise(self, *, searched: bool, each: bool | None) -> list[Hyperparameters]:
        """Return what maximises the marginal likelihood, followed by the other trials.

        The bandwidth is searched if it is `searched` and the kernel has a rule for it. `each`
        says whether columns have bandwidths of their own; None takes the better by `merit`.
        """
        kernel, seed, d = self.kernel, self.seed, self.X.shape[1]
        order = draws(seed, 0x65766964).permutation(len(self.y))
        X = self.X[order]
        if sp.issparse(X) and d <= _MOST_COLUMNS:
            X = X.toarray()
        if not sp.issparse(X):
            X = np.asarray(X, np.float64)
            X = X - X.mean(axis=0) if kernel.is_stationary else X
        mixed = replace(self, X=X, y=self.y[order], weight=self.weight[order])
        rows, part = mixed.first(NOISE_ROWS), mixed.first(MOST_ROWS)
        few = len(part.y)
        nu = smoothness(kernel)
        if each is None and (d == 1 or d > min(_MOST_COLUMNS, few / 5)):
            each = False
        trials: list[Hyperparameters] = []
        with single_threaded_blas(), suppress(TimeIsUp):
            if searched and nu is not None:
                part.radial(trials, nu, each)
            elif searched and has_rule(kernel):
                for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
                    factor *= kernel.bandwidth_factor
                    candidate = kernel._replaced(bandwidth_factor=factor).resolve(X, seed)
                    trials.append(part.at(candidate, min(few, _LEVELS[-1])))
                trials.sort(key=part.merit, reverse=True)
            else:
                trials.append(part.at(kernel.resolve(X, seed), few))
            if trials and trials[0].n_rows < len(rows.y):
                best = trials[0]  # its variances are searched once more on all rows
                near = float(np.log(best.noise_variance / best.signal_variance))
                trials.insert(0, rows.at(best.kernel, len(rows.y), best.bandwidths, near))
        return trials
