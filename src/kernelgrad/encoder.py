"""Codes of the columns of a table as numbers without gaps.

The arithmetic is stated once, on an array namespace: NumPy for fits and predictions,
:mod:`kernelgrad.onnx.numerics` for ONNX graphs.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from kernelgrad.compute.threads import parallel_map, single_threaded_blas
from kernelgrad.files.records import Record
from kernelgrad.types import AnyArray, Float64Array, IntArray

MAX_LEVELS = 40
"""Columns of more levels are encoded by means of residuals, not by indicators."""

PARTS = ("month", "weekday", "hour")
_FOLDS = 5  # training rows get means over the rows of the other folds
_CENTRES, _FITTED, _CHUNK = 200, 4000, 10_000  # centres, rows to fit them, rows at a time
_LEAST = 2 * _CENTRES  # rows from which residuals take the place of targets
_DAY, _PERIOD = 86_400.0, 146_097.0  # seconds of a day, days of 400 years
_MARCH = 719_468.0  # days from March 1 of the year 0 to 1970


class Encoder:
    """The encoding of a table, learned by :meth:`fit`.

    Encoded columns are, in this order: numbers and dates, whose gaps hold medians; marks of the
    gaps of columns that had some in training; the parts of dates that vary; an indicator of
    each level, for columns of at most :data:`MAX_LEVELS`; for the other columns the means of
    residuals over the rows of a level, one output after another. They are what the encoded
    columns before them do not explain of the targets.

    A column is of a kind "number", "date" or "level". Codes of its `n_levels` levels are 0, 1,
    2, ..., and -1 for unknown levels.
    """

    ARRAYS = ("medians", "has_gaps", "is_flag", "parts", "means", "mean")

    def __init__(self, kinds: Sequence[str], n_levels: Sequence[int]) -> None:
        self.n_levels = np.array(n_levels, np.int64)
        is_level = np.array([kind == "level" for kind in kinds], bool)
        self.numbers: IntArray = np.flatnonzero(~is_level)  # dates are numbers, too
        self.dates: IntArray = np.flatnonzero([k == "date" for k in kinds if k != "level"])
        self.few: IntArray = np.flatnonzero(is_level & (self.n_levels <= MAX_LEVELS))
        self.many: IntArray = np.flatnonzero(self.n_levels > MAX_LEVELS)
        self.medians: AnyArray = np.empty(0)
        self.has_gaps: AnyArray = np.empty(0, bool)
        self.is_flag: AnyArray = np.empty(0, bool)
        self.parts: AnyArray = np.empty((0, len(PARTS)), bool)  # whether they vary, by date
        self.means: AnyArray = np.empty((0, 0))  # (outputs, levels of all columns by means)
        self.mean: AnyArray = np.empty(0)  # (outputs,)

    def fit(self, codes: AnyArray, Y: Float64Array | None, seed: int) -> AnyArray:
        """Fit the encoding to codes (n, d) and targets (n, outputs); return encoded rows."""
        numbers = codes[:, self.numbers]
        self.has_gaps = np.asarray(np.isnan(numbers).any(axis=0))
        flags = (numbers == 0) | (numbers == 1) | np.isnan(numbers)
        self.is_flag = np.asarray(flags.all(axis=0))
        if len(self.numbers):
            present = np.where(np.isnan(numbers).all(axis=0), 0.0, numbers)
            self.medians = np.nanmedian(present, axis=0).astype(codes.dtype)
            filled = np.where(np.isnan(numbers), self.medians, numbers)
            ranges = [np.ptp(part, axis=0) for part in _parts(np, filled[:, self.dates])]
            self.parts = np.stack(ranges, axis=1) > 0
        self.means, self.mean = np.empty((0, 0)), np.empty(0)
        blocks = self.blocks(np, numbers, self._levels(codes))
        if len(self.many) and Y is not None:
            from sklearn.model_selection import KFold

            folds = KFold(min(_FOLDS, len(codes)), shuffle=True, random_state=seed)
            others = _joined(blocks) if blocks else np.empty((len(codes), 0))
            Y = _residuals(others, Y, folds, seed)
            blocks += self._fit_means(codes[:, self.many], Y, folds)
        return _joined(blocks)

    def _fit_means(self, codes: AnyArray, Y: Float64Array, folds: Any) -> list[AnyArray]:
        from sklearn.preprocessing import TargetEncoder

        levels = [np.arange(float(n)) for n in self.n_levels[self.many]]
        encoder = TargetEncoder(categories=levels, target_type="continuous")
        means, overall, blocks = [], [], []
        for y in Y.T:
            block = np.empty(codes.shape)
            for others, fold in folds.split(codes):
                block[fold] = encoder.fit(codes[others], y[others]).transform(codes[fold])
            blocks.append(block)
            encoder.fit(codes, y)
            means.append(np.concatenate(encoder.encodings_))
            overall.append(float(encoder.target_mean_))
        self.means, self.mean = np.array(means), np.array(overall)
        return blocks

    def encode(self, codes: AnyArray) -> AnyArray:
        return _joined(self.blocks(np, codes[:, self.numbers], self._levels(codes)))

    def _levels(self, codes: AnyArray) -> dict[int, AnyArray]:
        return {j: codes[:, [j]] for j in (*self.few, *self.many)}

    def blocks(self, xp: Any, numbers: Any, levels: Mapping[int, Any]) -> list[Any]:
        """Return the encoded columns of rows, computed in the namespace `xp`.

        `numbers` (n, number of numeric columns) or None, `levels` the codes (n, 1) of the other
        columns by their number.
        """
        blocks = []
        if numbers is not None and len(self.numbers):
            missing = xp.isnan(numbers)
            filled = xp.where(missing, self.medians.astype(numbers.dtype), numbers)
            blocks.append(filled)
            if self.has_gaps.any():
                marks = missing.take(np.flatnonzero(self.has_gaps), axis=1)
                blocks.append(marks.astype(numbers.dtype))
            for date, varies in zip(self.dates, self.parts, strict=True):
                if varies.any():
                    parts = _parts(xp, filled.take([date], axis=1))
                    blocks += [part for part, vary in zip(parts, varies, strict=True) if vary]
        for j in self.few:
            indicators = xp.equal(levels[j], np.arange(self.n_levels[j]))
            blocks.append(indicators.astype(np.float64))
        ends = np.cumsum(self.n_levels[self.many])
        for means, mean in zip(self.means, self.mean, strict=True):
            for j, own in zip(self.many, np.split(means, ends[:-1]), strict=True):
                codes = levels[j].astype(np.int64)  # -1 is the last entry
                blocks.append(xp.take(np.append(own, mean), codes))
        return blocks

    @cached_property
    def _layout(self) -> tuple[IntArray, AnyArray]:
        """Column of the table and whether it is numeric, for each encoded column."""
        parts, n_outputs = self.parts.sum(axis=1), len(self.mean)
        pieces: list[tuple[IntArray, Any]] = [
            (self.numbers, ~self.is_flag),
            (self.numbers[self.has_gaps], False),
            (np.repeat(self.numbers[self.dates], parts), True),
            (np.repeat(self.few, self.n_levels[self.few]), False),
            (np.tile(self.many, n_outputs), True),
        ]
        numeric = [np.broadcast_to(flags, columns.shape) for columns, flags in pieces]
        groups = np.concatenate([columns for columns, _ in pieces])
        return groups.astype(np.int64), np.concatenate(numeric).astype(bool)

    @property
    def groups(self) -> IntArray:
        return self._layout[0]

    @property
    def is_numeric(self) -> AnyArray:
        """False for encoded columns of zeros and ones: indicators, booleans, marks of gaps."""
        return self._layout[1]

    @property
    def width(self) -> int:
        return len(self.groups)

    def read(self, record: Record) -> None:
        numbers = len(self.numbers)
        self.medians = record.array("medians", numbers, finite=False)
        self.has_gaps = record.array("has_gaps", numbers, kinds="b")
        self.is_flag = record.array("is_flag", numbers, kinds="b")
        self.parts = record.array("parts", len(self.dates), len(PARTS), kinds="b")
        self.means = record.array("means", "by means", int(self.n_levels[self.many].sum()))
        self.mean = record.array("mean", "by means")


def _residuals(X: AnyArray, Y: Float64Array, folds: Any, seed: int) -> Float64Array:
    """Return targets less the predictions of a small kernel machine of the other folds."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not X.shape[1] or len(X) < _LEAST:
        return Y
    out = np.empty(Y.shape)

    def predict(pair: tuple[IntArray, IntArray]) -> None:
        others, fold = pair
        sample = others[:: -(-len(others) // _FITTED)]
        model = make_pipeline(
            StandardScaler(),
            Nystroem(gamma=0.25 / X.shape[1], n_components=_CENTRES, random_state=seed),
            Ridge(0.3),
        ).fit(X[sample], Y[sample])
        for start in range(0, len(fold), _CHUNK):
            part = fold[start : start + _CHUNK]
            out[part] = Y[part] - model.predict(X[part]).reshape(len(part), -1)

    with single_threaded_blas():
        parallel_map(predict, list(folds.split(X)))
    return out


def _joined(blocks: list[AnyArray]) -> AnyArray:
    return np.ascontiguousarray(np.concatenate(blocks, axis=1))


def _parts(xp: Any, seconds: Any) -> list[Any]:
    """Return month (1 to 12), weekday (0 is Monday) and hour of seconds since 1970."""
    seconds = xp.floor(seconds)
    days = xp.floor(seconds / _DAY)
    weekday = days + 3.0 - 7.0 * xp.floor((days + 3.0) / 7.0)
    # Years begin in March here: a leap day is the last of its year. Periods are of 400 years.
    day = days + _MARCH
    day = day - _PERIOD * xp.floor(day / _PERIOD)
    leap_days = xp.floor(day / 1460.0) - xp.floor(day / 36524.0) + xp.floor(day / 146096.0)
    year = xp.floor((day - leap_days) / 365.0)
    day = day - (365.0 * year + xp.floor(year / 4.0) - xp.floor(year / 100.0))
    month = xp.floor((5.0 * day + 2.0) / 153.0) + 3.0
    month = month - 12.0 * xp.floor(month / 13.0)
    return [month, weekday, xp.floor((seconds - _DAY * days) / 3600.0)]
