"""Centring, scaling and metric of the columns before a kernel, and kernels of scaled rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from kernelgrad.compute.backend import CPU, get_device
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.ranges import check_range
from kernelgrad.files.records import Record, anything
from kernelgrad.kernels import Kernel, describe_kernel, restore_kernel
from kernelgrad.kernels.rows import steady_centre
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import check_int

SCALINGS = ("robust", "ranks")
UNITS = "units"  # scales columns in different units, and only these
_FIT_ROWS = 8192  # rows converted to float64 at once
_SQUARES = 1e-150  # size of numbers below which their squares lose precision
_CENTRE_ROWS = 2000  # rows of the sample that tells whether outliers have moved the mean
_UNIT_ROWS = 10_000  # rows of the sample that tells whether columns are in different units
# A column ten times as wide as half of the others drowns these in distances, one a tenth as
# wide is drowned. Columns in one unit, such as pixels, differ less (at most 3 times in digits
# without the nearly constant ones, 390 times in wine), and their differences matter.
_UNEVEN = 10.0
_CAP = 3.0  # robust deviations; larger ones are made by a few values far out
_LIMIT, SCORE_LIMIT = 12.0, 3.0  # limits in robust deviations, and of normal scores
_KNOTS = 257
MOST_COLUMNS = 2**31 - 1
_LEAST = np.finfo(np.float64).tiny  # smallest divisor accepted from files
_QUARTILES = 1.3489795003921634  # distance of the quartiles of a normal law, in deviations


@dataclass(frozen=True)
class InputScaling:
    """Transformation of a row x before the kernel; parts that are None are left out.

    Each column becomes ``u = (x - centre) / scale`` and then ``u / sqrt(1 + (u / limit)^2)``,
    which limits large values, or instead the normal score of x relative to `knots`. Next comes
    the `warp`, a piecewise linear function that does not fall. Then the metric is applied, a
    weight for each column (d,) or a matrix (d, r).

    Centring does not change stationary kernels, and small inputs keep the phase ``w . x``
    accurate in float32. Sparse rows are only divided and weighted.
    """

    centre: Float64Array | None = None
    scale: Float64Array | None = None
    limit: Float64Array | None = None
    knots: Float64Array | None = None  # (257, d), increasing in each column
    metric: Float64Array | None = None
    warp: Float64Array | None = None  # (2, b, d): increasing edges, and the values there

    @classmethod
    def fit(
        cls, X: Matrix, kernel: Kernel, *, standardize: bool | str | InputScaling,
        sample_weight: Float64Array, metric: Float64Array | None = None,
    ) -> InputScaling:  # fmt: skip
        """Return the scaling for `kernel`, estimated from the weighted rows of a first batch.

        For stationary kernels dense rows are centred at their mean, or at their median if
        outliers have moved the mean. With `standardize` columns are divided by their standard
        deviation (by 1 if it is zero); for "robust" and "ranks" see :meth:`robust`. A scaling
        stays as it is.
        """
        if isinstance(standardize, InputScaling):
            scaling = standardize.checked(X.shape[1])
            return scaling if metric is None else scaling.with_metric(metric)
        if metric is not None:
            plain = cls.fit(X, kernel, standardize=standardize, sample_weight=sample_weight)
            return plain.with_metric(metric)
        if standardize == UNITS:
            return cls.units(X, kernel, sample_weight)
        if isinstance(standardize, str):
            return cls.robust(dense(X), sample_weight, ranks=standardize == "ranks")
        p = sample_weight / sample_weight.sum()
        centred = kernel.is_stationary and not sp.issparse(X)
        if not (centred or standardize):
            return cls()
        if sp.issparse(X):
            mean = np.asarray(p @ X).ravel()
            # the variance is what float32 squares would round away
            square = np.asarray(p @ X.astype(np.float64).power(2)).ravel()
            variance = square - mean**2
            most = np.abs(X).max(axis=0).toarray().ravel()
            rounding = np.sqrt(max(1e-14, len(p) * np.finfo(float).eps) * square)
        else:
            # converted to float64 in parts: rows are often float32 or small integers
            parts = [slice(a, a + _FIT_ROWS) for a in range(0, len(p), _FIT_ROWS)]
            mean = np.zeros(X.shape[1])
            for i in parts:
                mean += p[i] @ np.asarray(X[i], np.float64)
            if not standardize:
                sample = np.asarray(X[:: -(-len(p) // _CENTRE_ROWS)], np.float64)
                return cls(steady_centre(sample, mean))
            variance, off, most = np.zeros((3, X.shape[1]))
            for i in parts:
                D = X[i] - mean
                variance += p[i] @ D**2
                off += p[i] @ D
                most = np.maximum(most, np.abs(D).max(axis=0))
            variance -= off**2  # correction for the rounding of the mean
            rounding = 8 * np.finfo(float).eps * np.abs(mean)
        # squares of very small numbers vanish
        deviation = np.where(most < _SQUARES, most, np.sqrt(np.maximum(variance, 0.0)))
        centre = mean if centred else None
        return cls(centre, np.where(deviation <= rounding, 1.0, deviation))

    @classmethod
    def units(cls, X: Matrix, kernel: Kernel, weight: Float64Array) -> InputScaling:
        """Return a scaling of dense rows whose columns are in different units.

        These are columns of which one spreads more than ten times as wide as half of the
        others, or less than a tenth as wide although its quartiles differ. They are divided by
        their deviations, or by three robust deviations where a few values far out have made
        the former larger. Other columns, and sparse rows, are left as they are.
        """
        plain = cls.fit(X, kernel, standardize=False, sample_weight=weight)
        if sp.issparse(X):
            return plain
        every = -(-len(X) // _UNIT_ROWS)
        X, weight = np.asarray(X[::every]), weight[::every]
        X, weight = X[weight > 0], weight[weight > 0]
        if not len(X):
            return plain
        deviation = cls.fit(X, kernel, standardize=True, sample_weight=weight).scale
        robust = cls.robust(X, weight).scale
        assert deviation is not None
        assert robust is not None
        spread = np.minimum(deviation, np.where(deviation < _SQUARES, 1.0, _CAP) * robust)
        varied = (X[0] != X).any(axis=0)
        quartiles = np.array([_quantiles(x, weight, [0.25, 0.75]) for x in X.T])
        full = quartiles[:, 0] < quartiles[:, 1]
        wide = spread.max(where=varied, initial=0.0) > _UNEVEN * _middle(spread[varied])
        narrow = deviation.min(where=full, initial=np.inf)  # capped, many zeros make it less
        uneven = wide or _UNEVEN * narrow < _middle(deviation[varied])
        return replace(plain, scale=spread) if uneven else plain

    @classmethod
    def robust(cls, X: AnyArray, weight: Float64Array, *, ranks: bool = False) -> InputScaling:
        """Return a scaling of dense rows that is robust against outliers.

        The median becomes 0 and the quartiles those of the standard normal law. If both
        quartiles equal the median, as in columns of flags, the median distance of the other
        values from it becomes 1. Values are limited to twelve deviations. With `ranks` values
        become normal scores instead.
        """
        d = X.shape[1]
        levels = np.linspace(0, 1, _KNOTS)
        knots = np.empty((_KNOTS, d))
        scale, limit = np.ones(d), np.full(d, _LIMIT)
        for j in range(d):
            column = np.asarray(X[:, j], np.float64)
            knots[:, j] = _quantiles(column, weight, levels)
            low, centre, high = knots[[_KNOTS // 4, _KNOTS // 2, -1 - _KNOTS // 4], j]
            spread = (high - low) / _QUARTILES
            others = column != centre
            if not spread > 1e-9 * abs(centre) and others.any():
                spread = _quantiles(np.abs(column - centre)[others], weight[others], [0.5])[0]
            scale[j] = spread if spread > 0 else 1.0
        if ranks:
            return cls(knots=knots)
        return cls(knots[_KNOTS // 2].copy(), scale, limit)

    def checked(self, d: int) -> InputScaling:
        """Return this scaling; raise ValueError if it is not of rows with d columns."""
        for name, array in self.arrays().items():
            columns = len(array) if name == "metric" else array.shape[-1]
            if columns != d:
                raise ValueError(
                    f"standardize is a scaling of {columns} columns, but the rows have {d}; "
                    "fit without it, or give rows with the columns that it was learned from."
                )
        return self

    def with_metric(self, metric: Float64Array | None) -> InputScaling:
        """Return this scaling, followed by a metric."""
        return replace(self, metric=metric)

    def apply(self, X: Matrix) -> Matrix:
        """Return scaled rows, dense or CSR."""
        if sp.issparse(X):
            plain = (self.metric is None or self.metric.ndim == 1) and self.warp is None
            if plain and self.centre is None and self.knots is None:
                for factor in (None if self.scale is None else 1.0 / self.scale, self.metric):
                    X = X if factor is None else sp.csr_matrix(X.multiply(factor))
                return X
            X = X.toarray()
        if len(X) > _FIT_ROWS and self.arrays():  # keeps work arrays small
            first = self.apply(X[:_FIT_ROWS])
            out = np.empty((len(X), *first.shape[1:]), first.dtype)
            out[:_FIT_ROWS] = first
            for a in range(_FIT_ROWS, len(X), _FIT_ROWS):
                out[a : a + _FIT_ROWS] = self.apply(X[a : a + _FIT_ROWS])
            return out
        if self.knots is not None:
            X = self._scores(X)
        if self.centre is not None:
            X = X - self.centre
        if self.scale is not None:
            X = X / self.scale
        if self.limit is not None:
            X = X / np.hypot(1.0, X / self.limit)
        if self.warp is not None and len(X) == 1:
            X = _bent(X, *self.warp)
        elif self.warp is not None:
            columns = zip(X.T, *self.warp.transpose(0, 2, 1), strict=True)
            X = np.stack([np.interp(x, *warp) for x, *warp in columns], axis=1)
        if self.metric is None:
            return X
        return X * self.metric if self.metric.ndim == 1 else X @ self.metric

    def _scores(self, X: AnyArray) -> Float64Array:
        """Return the normal scores of values relative to the knots, within [-3, 3]."""
        assert self.knots is not None
        levels = np.linspace(0, 1, _KNOTS)
        level = np.empty(X.shape)
        for j, knots in enumerate(self.knots.T):
            # for equal knots the middle of their levels, on both sides
            up = np.interp(X[:, j], knots, levels)
            down = 1.0 - np.interp(-X[:, j], -knots[::-1], levels)
            level[:, j] = 0.5 * (up + down)
        return np.asarray(np.clip(ndtri(level), -SCORE_LIMIT, SCORE_LIMIT))

    def width(self, d: int) -> int:
        """Return the number of columns of transformed rows with `d` columns."""
        return d if self.metric is None or self.metric.ndim == 1 else self.metric.shape[1]

    @property
    def name(self) -> str:
        """The kind of scaling: "ranks", "robust", "deviations" or "none"."""
        parts = {"ranks": self.knots, "robust": self.limit, "deviations": self.scale}
        return next((name for name, part in parts.items() if part is not None), "none")

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays().values())

    def arrays(self) -> dict[str, Float64Array]:
        """Return the parts that are not None, for persistence."""
        return {name: a for name, a in vars(self).items() if a is not None}

    @classmethod
    def restore(cls, record: Record, d: int) -> InputScaling:
        """Return the scaling of `d` columns from the result of :meth:`arrays`."""
        centre = record.array("centre", d, optional=True)
        scale, limit = (
            record.array(name, d, least=_LEAST, optional=True) for name in ("scale", "limit")
        )
        knots = record.array("knots", _KNOTS, d, optional=True)
        if knots is not None and not (knots[1:] >= knots[:-1]).all():
            raise record.error("holds knots that do not rise")
        warp = record.array("warp", 2, "b", d, optional=True)
        if warp is not None and not (warp[:, 1:] >= warp[:, :-1]).all():
            raise record.error("holds a warp that falls")
        square = np.ndim(record.arrays.get("metric", ())) == 2
        metric = record.array("metric", d, *("r",) * square, optional=True)
        return cls(centre, scale, limit, knots, metric, warp)


class ScaledKernel:
    """A kernel of unscaled rows: the base of exact kernels and of streams of random features.

    The parameters of the kernel are numbers (see :meth:`Kernel.resolve`), `n_features_in` is
    the number of columns, and the scaling is applied to rows in their own precision. ``device``
    names what computes values, see `kernelgrad.compute.backend`; it is not part of a model.
    """

    device = CPU
    _counterpart: Any = None  # on the device

    def __init__(
        self, kernel: Kernel, n_features_in: int, scaling: InputScaling | None = None
    ) -> None:
        self.kernel = kernel
        self.n_features_in = n_features_in
        self.scaling = scaling if scaling is not None else InputScaling()

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_counterpart": None}  # without tensors on a device

    def _moved(self, device: Any) -> Any:
        """Return the counterpart of this object on a device."""
        raise NotImplementedError

    @property
    def on_device(self) -> Any:
        """The counterpart on the device; None for the CPU."""
        device = get_device(self.device)
        if device is None:
            return None
        if self._counterpart is None or self._counterpart.device is not device:
            self._counterpart = self._moved(device)
        return self._counterpart

    def scaled(self, X: Matrix, *, first: int = 0) -> Matrix:
        """Return scaled and checked rows; `first` is the number of the first, for messages."""
        X = self.scaling.apply(X)
        check_range(X, first=first)
        self.kernel.check_domain(X)
        return X

    def describe(self) -> dict[str, Any]:
        """Return a description without the scaling, for files."""
        kernel = describe_kernel(self.kernel)
        return {"kernel": kernel, "n_features_in": self.n_features_in}


def restored_kernel(record: Record, scaling: Record | None) -> tuple[Kernel, int, InputScaling]:
    """Read a resolved kernel, its number of columns, and their scaling from a record.

    The arrays of the scaling are in `scaling` if given, otherwise in `record`.
    """
    d = record.take("n_features_in", partial(check_int, low=1, high=MOST_COLUMNS))
    expected = record.sizes.setdefault("d", d)
    if d != expected:
        raise record.error(f"holds a function of {d} columns in a model of {expected}")
    transformation = InputScaling.restore(record if scaling is None else scaling, d)
    kernel = restore_kernel(record.take("kernel", anything))
    # a rule would use this row; numbers do not change
    resolved = kernel.resolve(sp.csr_matrix((1, transformation.width(d))), 0)
    if describe_kernel(resolved) != describe_kernel(kernel):
        raise record.error(f"holds the kernel {kernel!r}, of which a parameter is no number")
    return kernel, d, transformation


def _bent(row: AnyArray, edges: Float64Array, heights: Float64Array) -> Float64Array:
    """Return a row (1, d) after the warp, as np.interp does it for one column after another."""
    x = np.clip(row, edges[0], edges[-1])
    last, d = len(edges) - 1, edges.shape[1]
    low = (edges <= x).sum(axis=0) - 1
    left, right = (np.minimum(j, last) * d + np.arange(d) for j in (low, low + 1))
    x0, y0 = edges.take(left), heights.take(left)
    width, height = edges.take(right) - x0, heights.take(right) - y0
    slope = np.divide(height, width, out=np.zeros(d), where=width > 0)
    return np.asarray(slope * (x - x0) + y0)


def _middle(values: Float64Array) -> float:
    """Return the lower median, 0 of nothing."""
    return float(np.sort(values)[(len(values) - 1) // 2]) if len(values) else 0.0


def _quantiles(values: Float64Array, weight: Float64Array, levels: Any) -> Float64Array:
    """Return weighted quantiles, the smallest values of cumulative weight `levels`."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    # a rounding error must not move a quantile to the next value
    at = np.searchsorted(total, np.asarray(levels) * total[-1] * (1 - 1e-12))
    return np.asarray(values[order[np.minimum(at, len(order) - 1)]])
