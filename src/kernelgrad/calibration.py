"""Probabilities of losses that have none: a map of responses to rows that were not fitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data.sampling import folds
from kernelgrad.files.records import Record
from kernelgrad.tasks import Task
from kernelgrad.types import AnyArray, Float64Array, FloatArray
from kernelgrad.validation import DataError

MOST_ROWS = 2000  # rows to calibrate on: the error of some parameters is then below 1e-3
KNOTS = (-0.75, 0.0, 0.75)  # bends of the map in units of the margin
# Matrix that gives slopes of z and of its parts from the positive slopes between the knots
_PARTS = np.array([[0.0, 0, 1, 0], [1, -1, 0, 0], [0, 1, -1, 0], [0, 0, -1, 1]])
_BENDS = 0.3  # precision of the prior of bends, and of slopes that differ between classes
_SHIFTS = 1.0  # precision of the prior of shifts
LESS = 1.0 - 1e-14  # factor that changes a logarithm by some rounding errors


# Responses of classes (n, K), codes (n,) and weights (n,) of rows to calibrate on
Responses = tuple[FloatArray, AnyArray, Float64Array]


@dataclass(frozen=True)
class Calibration:
    r"""Probabilities ``softmax(g_1(z_1), ..., g_K(z_K))`` of responses z of K classes.

    .. math:: g_k(z) = s_k + \sum_j a_{jk}\, h_j(z / u), \qquad
              h = (z,\ \min(z + .75, 0),\ \min(z, 0),\ \max(z - .75, 0))

    Each g is an increasing line with bends at 0 and before the margins. With one line, two
    classes and ``z = (0, f)`` this is Platt's sigmoid.
    """

    unit: float  # the margin u
    slopes: Float64Array  # (4, K)
    shifts: Float64Array  # (K,)

    @classmethod
    def fit(
        cls, z: FloatArray, codes: AnyArray, weight: Float64Array, *, unit: float | None = 1.0,
        start: Calibration | None = None,
    ) -> Calibration:  # fmt: skip
        """Return the map that minimises the penalised log loss of rows.

        Responses z (n, K) are of functions that have not seen the rows. Targets are Platt's
        (1999): of n_k rows, by weight, the class of a row counts as ``(n_k + 1) / (n_k + 2)``,
        the others share the rest. A Gaussian prior keeps bends, shifts and differences of
        slopes small if rows are few. `unit` is the margin, None the root mean square of the
        responses; `start` is a map of few steps ago, from which few steps lead on.
        """
        z64: Float64Array = np.asarray(z, np.float64)
        n, K = z64.shape
        w = weight * (n / weight.sum())
        counts = np.bincount(codes, w, minlength=K)[codes]
        target = np.repeat(1.0 / ((counts + 2.0) * (K - 1))[:, None], K, axis=1)
        target[np.arange(n), codes] = (counts + 1.0) / (counts + 2.0)
        if start is None:
            if unit is None:
                unit = float(np.sqrt(w @ (z64**2).sum(axis=1) / n)) or 1.0
            slopes = np.zeros((1 + len(KNOTS), K))
            slopes[0] = 1.0
            start = cls(unit, slopes, np.zeros(K))
            most = 500
        else:
            most = 10
        H = _bent(z64 / start.unit)

        def objective(v: Float64Array) -> tuple[float, Float64Array]:
            slopes, shifts = _PARTS @ v[:-K].reshape(-1, K), v[-K:]
            log_p = log_softmax(np.einsum("jnk,jk->nk", H, slopes) + shifts, axis=1)
            bends = slopes.copy()
            bends[0] -= bends[0].mean()
            prior = _BENDS * (bends**2).sum() + _SHIFTS * (shifts**2).sum()
            residual = w[:, None] * (np.exp(log_p) - target)
            slope = _PARTS.T @ (np.einsum("jnk,nk->jk", H, residual) + _BENDS * bends)
            value = 0.5 * prior - float(w @ (target * log_p).sum(axis=1))
            shift = residual.sum(axis=0) + _SHIFTS * shifts
            return value / n, np.append(slope.ravel(), shift) / n

        with single_threaded_blas():
            first = np.append(np.linalg.solve(_PARTS, start.slopes).ravel(), start.shifts)
            # slopes above 0 make the larger of two responses the more probable one
            bounds = [(1e-5, None)] * start.slopes.size + [(None, None)] * K
            options = {"maxiter": most, "ftol": 1e-6}
            v = minimize(
                objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options
            ).x
        return cls(start.unit, _PARTS @ v[:-K].reshape(-1, K), v[-K:])

    def proba(self, z: FloatArray) -> Float64Array:
        with np.errstate(over="ignore", invalid="ignore"):
            H = _bent(np.asarray(z, np.float64) / self.unit)
            g = np.einsum("jnk,jk->nk", H, self.slopes) + self.shifts
        if not np.isfinite(g).all():
            raise DataError(
                f"The responses, in units of {self.unit:g}, are too large for probabilities; "
                "fit the model again."
            )
        return np.asarray(softmax(g, axis=1))

    def arrays(self) -> dict[str, AnyArray]:
        return {
            "calibration.unit": np.array([self.unit]),
            "calibration.slopes": self.slopes,
            "calibration.shifts": self.shifts,
        }

    @classmethod
    def restore(cls, record: Record) -> Calibration:
        unit = record.array("calibration.unit", 1, least=1e-300)
        slopes = record.array("calibration.slopes", 1 + len(KNOTS), "K")
        return cls(float(unit[0]), slopes, record.array("calibration.shifts", "K"))


def margin(task: Task) -> float | None:
    """Return the margin of the loss, which is the unit of responses; None without one."""
    return None if task.loss.name == "perceptron" else 1.0


def crossed(
    z: FloatArray, codes: AnyArray, weight: Float64Array, *, unit: float | None = 1.0
) -> Float64Array:
    """Return probabilities (n, K) of rows, each half of them calibrated by the other half."""
    halves, p = folds(np.arange(len(codes)), 2), np.empty(z.shape)
    for own, other in (halves, halves[::-1]):
        fitted = Calibration.fit(z[other], codes[other], weight[other], unit=unit)
        p[own] = fitted.proba(z[own])
    return p


def _bent(z: Float64Array) -> Float64Array:
    """Return z and its parts beyond the knots, (4, n, K)."""
    parts = [
        np.minimum(z - knot, 0.0) if knot <= 0 else np.maximum(z - knot, 0.0) for knot in KNOTS
    ]
    return np.stack([z, *parts])


def keep_argmax(p: Float64Array, codes: AnyArray) -> Float64Array:
    """Return probabilities (n, K) of which the first largest is that of `codes`.

    Where it is not, that of the class in question and all above it become their mean, the
    nearest point in squares where it is no smaller than any, and the others a little less, so
    that their logarithms differ too.
    """
    wrong = np.flatnonzero(np.argmax(p, axis=1) != codes)
    if not len(wrong):
        return p
    p, changed, own = p.copy(), p[wrong], (np.arange(len(wrong)), codes[wrong])
    least = changed[own]
    changed[own] = -np.inf
    others = np.sort(changed, axis=1)[:, :0:-1]
    pooled = (least[:, None] + np.cumsum(others, axis=1)) / np.arange(2, p.shape[1] + 1)
    level = pooled.max(axis=1)
    changed = np.minimum(changed, (level * LESS)[:, None])
    changed[own] = level
    p[wrong] = changed
    return p


def restored_responses(record: Record, K: int, names: tuple[str, str, str]) -> Responses | None:
    """Take responses of K classes, codes and weights from a record; None without any."""
    z, y, w = names
    if z not in record:
        return None
    codes = record.array(y, "n", kinds="iu", least=0, most=K - 1)
    return record.array(z, "n", K), codes, record.array(w, "n", least=0.0)
