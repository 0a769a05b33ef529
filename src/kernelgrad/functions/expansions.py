"""Fitted functions, as expansions in random features, support rows or columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.backend import CPU
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.files.records import Record, one_of
from kernelgrad.functions.exact import PREDICT_COMPILED, ExactKernel, rows_to_arrays
from kernelgrad.functions.features import PREDICT_ROWS, FeatureStream
from kernelgrad.functions.scaling import InputScaling, ScaledKernel
from kernelgrad.kernels import ExactRows, Kernel, get_kernel
from kernelgrad.types import AnyArray, Float32Array, Float64Array, Matrix

DEVICE_NUMBERS = 2**24  # entries of rows that a device predicts at once, if these are more rows
WIDENED_BYTES = 2**26  # size of support rows up to which they stay in float64 too
_PROBES = 32  # support rows at which the rounding of float32 kernel values is measured
_ROUNDING = 2e-6  # rounding, in units of the largest response, from which values are float64


class Expansion(ABC):
    """A fitted function f with C outputs."""

    kind: ClassVar[str]
    coef: AnyArray
    intercept: Float64Array
    # the kernel in whose values or features f is expanded; None if it is linear
    basis: ScaledKernel | None = None

    @property
    def n_outputs(self) -> int:
        """Number of outputs C."""
        return len(self.intercept)

    @property
    def kernel(self) -> Kernel:
        """The kernel, with numbers for its parameters."""
        return get_kernel("linear") if self.basis is None else self.basis.kernel

    @property
    def scaling(self) -> InputScaling:
        """The scaling of rows before the kernel."""
        return InputScaling() if self.basis is None else self.basis.scaling

    def set_device(self, name: str) -> None:
        """Set the device that computes predictions."""
        if self.basis is not None:
            self.basis.device = name

    @property
    def n_random_features(self) -> int:
        """Number of random features in use."""
        return 0

    @property
    def n_support(self) -> int:
        """Number of support rows, 0 for functions without them."""
        return 0

    @property
    def nbytes(self) -> int:
        """Size of the arrays of the model in bytes."""
        return self.coef.nbytes + self.intercept.nbytes + self.scaling.nbytes

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return its size as plain JSON values, for display."""

    def describe(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return the function as plain values and arrays, for files."""
        arrays = {"intercept": self.intercept, "coef": np.ascontiguousarray(self.coef)}
        values = {} if self.basis is None else self.basis.describe()
        return values, arrays | self.scaling.arrays()

    @classmethod
    @abstractmethod
    def restore(cls, record: Record, cache_bytes: int) -> Self:
        """Return the function from the result of :meth:`describe`."""

    def compact(self) -> None:  # noqa: B027 - most functions need all they have
        """Prepare a fitted function for predictions: drop data that these do not need."""

    def copy(self) -> Self:
        """Return a function with coefficients of its own."""
        twin = copy(self)
        twin.coef, twin.intercept = self.coef.copy(), self.intercept.copy()
        return twin

    def raw_prediction(self, X: Matrix) -> Float64Array:
        """Return f(X), shape (n, C), float64, in chunks of rows with bounded memory.

        The same rows give the same bits for any number of threads; a row alone or among others
        has values that agree to rounding.
        """
        out, step = np.empty((X.shape[0], self.n_outputs)), PREDICT_ROWS
        if self.basis is not None and self.basis.device != CPU:
            step = max(step, DEVICE_NUMBERS // max(1, int(X.shape[1])))
        with single_threaded_blas():
            for start in range(0, len(out), step):
                rows = slice(start, min(len(out), start + step))
                out[rows] = self._chunk(X[rows], start, len(out)) + self.intercept
        return out

    @abstractmethod
    def _chunk(self, X: Matrix, first: int, n: int) -> AnyArray:
        """Return f without the intercept for some of n rows, whose numbers begin at `first`."""


class RandomFeatureExpansion(Expansion):
    r"""``f(x) = intercept + sum_j phi_j(x) A_j`` over the blocks of a feature stream.

    The memory is one float32 number per feature and output, independent of the number of
    columns.

    Parameters
    ----------
    stream : FeatureStream
        The random features phi_j.
    n_outputs : int
        Number of outputs C.
    intercept : float64 array (C,) or None, default=None
        The intercept; None is zero.
    """

    kind: ClassVar[str] = "random_features"

    def __init__(
        self, stream: FeatureStream, n_outputs: int, intercept: Float64Array | None = None
    ) -> None:
        self.basis = self.stream = stream
        self.intercept = np.array(
            np.zeros(n_outputs) if intercept is None else intercept, float
        )
        self.n_blocks = 0
        self._coef = np.zeros((stream.planes, 0, n_outputs), np.float32)

    @property
    def n_random_features(self) -> int:
        return self.n_blocks * self.stream.width

    @property
    def coef(self) -> Float32Array:
        """Coefficients in use, shape (planes, n_blocks * block_size, C); a view."""
        return self._coef[:, : self.n_blocks * self.stream.block_size]

    @coef.setter
    def coef(self, value: Float32Array) -> None:
        F = self.stream.block_size
        planes, used, C = value.shape
        if planes != self.stream.planes or used % F or self.n_outputs != C:
            raise ValueError(
                f"coefficients of shape {value.shape} do not fit {self.stream.planes} planes, "
                f"blocks of {F} and {self.n_outputs} outputs."
            )
        self.n_blocks = used // F
        self._coef = np.zeros((planes, self.stream.map.capacity(self.n_blocks), C), np.float32)
        self._coef[:, :used] = value

    def summary(self) -> dict[str, Any]:
        return {
            "n_random_features": self.n_random_features,
            "n_blocks": self.n_blocks,
            "block_size": self.stream.block_size,
            "seed": self.stream.seed,
        }

    @classmethod
    def restore(cls, record: Record, cache_bytes: int) -> Self:
        stream = FeatureStream.restore(record, cache_bytes)
        intercept = record.array("intercept", "C")
        self = cls(stream, len(intercept), intercept)
        self.coef = record.array("coef", stream.planes, "features", "C")
        return self

    def block(self, j: int) -> Float32Array:
        """Return the coefficients of block `j`, a view of shape (planes, block_size, C)."""
        F = self.stream.block_size
        return self._coef[:, j * F : (j + 1) * F]

    def add_block(self) -> int:
        """Append a block of zeros and return its number."""
        need = self.stream.map.capacity(self.n_blocks + 1)
        if need > self._coef.shape[1]:
            grown = self.stream.map.capacity(max(self.n_blocks + 1, 2 * self.n_blocks))
            coef = np.zeros((self._coef.shape[0], grown, self.n_outputs), np.float32)
            coef[:, : self._coef.shape[1]] = self._coef
            self._coef = coef
        self.n_blocks += 1
        return self.n_blocks - 1

    def average_towards(self, other: RandomFeatureExpansion, weight: float) -> None:
        """Set self to ``(1 - weight) self + weight other``; `other` may have more blocks."""
        while self.n_blocks < other.n_blocks:
            self.add_block()
        mine = self.coef
        mine *= np.float32(1.0 - weight)
        mine += np.float32(weight) * other.coef

    def _chunk(self, X: Matrix, first: int, n: int) -> AnyArray:
        # features and coefficients are float32
        out = np.zeros((X.shape[0], self.n_outputs), np.float32)
        self.add_prepared(self.stream.prepare(X, first=first), out)
        return out

    def add_prepared(self, X: Matrix, out: Float32Array) -> None:
        """Add the sum over blocks for rows prepared by ``stream.prepare``."""
        if self.n_blocks:
            self.stream.predict(X, self._coef, self.n_blocks, out)


class SupportExpansion(Expansion):
    r"""``f(x) = intercept + sum_s k(x, x_s) a_s`` over support rows x_s.

    Rows whose coefficients are all zero are dropped.

    Parameters
    ----------
    exact : ExactKernel
        The kernel k.
    support : ExactRows
        S rows, prepared by `exact`.
    coef : float64 array (S, C)
        The coefficients a_s.
    intercept : float64 array (C,)
        The intercept.
    """

    kind: ClassVar[str] = "support"
    # precision of kernel values: float64 if True, and as _needs_wide finds if None
    _wide: bool | None = False
    _widened: ExactRows | None = None  # the support rows for float64 values

    def __init__(
        self, exact: ExactKernel, support: ExactRows, coef: Float64Array,
        intercept: Float64Array,
    ) -> None:  # fmt: skip
        used = np.flatnonzero(coef.any(axis=1))
        if len(used) < len(coef):
            support, coef = support.take(used), coef[used]
        self.basis = self.exact = exact
        self.support = support.in_columns()
        self.coef = np.ascontiguousarray(coef)  # a fixed order of summation, also after loading
        self.intercept = np.array(intercept, np.float64)

    def _needs_wide(self) -> bool:
        """Return whether predictions need kernel values in float64.

        If f is the difference of much larger terms, the rounding of float32 values shows. This
        is measured at some of the support rows, in units of the largest response there, without
        the intercept, which may be set later.
        """
        if self.exact.precise or self.kernel.name == "precomputed" or not self.n_support:
            return False
        at = np.linspace(0, self.n_support - 1, min(self.n_support, _PROBES)).astype(int)
        probes, exact = self.support.take(at), copy(self.exact)
        exact.device = CPU  # the answer is the same on all devices
        with np.errstate(over="ignore", invalid="ignore"):  # predictions tell
            narrow, f = (
                exact.products(probes, self.support, self.coef, wide=wide)
                for wide in (False, True)
            )
            return bool(np.abs(narrow - f).max() > _ROUNDING * np.abs(f).max())

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_widened": None}

    @property
    def n_support(self) -> int:
        return len(self.coef)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.support.nbytes

    def summary(self) -> dict[str, Any]:
        return {"n_support": self.n_support}

    def describe(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        values, arrays = super().describe()
        return values, arrays | rows_to_arrays(self.support)

    @classmethod
    def restore(cls, record: Record, cache_bytes: int) -> Self:
        exact = ExactKernel.restore(record)
        rows = exact.restore_rows(record)
        coef, intercept = record.array("coef", "S", "C"), record.array("intercept", "C")
        coef = coef.astype(np.float64, copy=False)  # loops are compiled for float64 only
        function = cls(exact, rows, coef, intercept)
        function.compact()
        return function

    def _chunk(self, X: Matrix, first: int, n: int) -> AnyArray:
        if self._wide is None:
            self._wide = self._needs_wide()
        if self._wide and self._widened is None and self.support.nbytes <= WIDENED_BYTES:
            self._widened = self.kernel.widened(self.support)
        support = self.support if self._widened is None else self._widened
        how = {"wide": self._wide, "compiled": n * self.n_support >= PREDICT_COMPILED}
        return self.exact.products(
            self.exact.prepare(X, first=first), support, self.coef, **how
        )

    def compact(self) -> None:
        """Drop the values of a precomputed matrix and keep the row numbers.

        Predictions then take the precision that they need; in a fit float32 is enough.
        """
        self._wide = self._widened = None
        if self.support.ids is not None and self.kernel.name == "precomputed":
            self.support = ExactRows(
                np.empty((self.n_support, 0), np.float32), ids=self.support.ids
            )


class LinearExpansion(Expansion):
    """``f(x) = x W + intercept``.

    Parameters
    ----------
    coef : float64 array (d, C)
        The coefficients W.
    intercept : float64 array (C,)
        The intercept.
    """

    kind: ClassVar[str] = "linear"

    def __init__(self, coef: Float64Array, intercept: Float64Array) -> None:
        self.coef = np.ascontiguousarray(coef, np.float64)
        self.intercept = np.array(intercept, np.float64)

    def summary(self) -> dict[str, Any]:
        return {"n_columns_used": int(np.count_nonzero(self.coef.any(axis=1)))}

    @classmethod
    def restore(cls, record: Record, cache_bytes: int) -> Self:
        return cls(record.array("coef", "d", "C"), record.array("intercept", "C"))

    def _chunk(self, X: Matrix, first: int, n: int) -> AnyArray:
        # the order of a product's sums depends on the layout of its rows
        return (X if sp.issparse(X) else np.ascontiguousarray(X)) @ self.coef


EXPANSIONS: dict[str, type[Expansion]] = {
    cls.kind: cls for cls in (RandomFeatureExpansion, SupportExpansion, LinearExpansion)
}


def restored_expansion(record: Record, cache_bytes: int) -> Expansion:
    """Return the function from its kind and the result of :meth:`Expansion.describe`."""
    kind = record.take("kind", one_of(EXPANSIONS))
    expansion = EXPANSIONS[kind].restore(record, cache_bytes)
    record.close()
    return expansion
