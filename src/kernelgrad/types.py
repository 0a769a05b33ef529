"""Array types shared by every layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
AnyArray: TypeAlias = npt.NDArray[Any]
# A dense ndarray or a scipy CSR matrix/array; scipy ships no types.
Matrix: TypeAlias = Any
# What becomes a file: plain values, and arrays.
Contents: TypeAlias = tuple[dict[str, Any], dict[str, AnyArray]]


class HasShape(Protocol):
    """Arrays, sparse matrices and frames."""

    @property
    def shape(self) -> Any: ...


class HasRows(Protocol):
    """A :class:`~kernelgrad.data.BatchSource`."""

    n_features: int

    @property
    def n_rows(self) -> Any: ...


Rows: TypeAlias = HasShape | HasRows | Sequence[Any] | Mapping[str, Any]
Values: TypeAlias = HasShape | Sequence[Any] | None
Function: TypeAlias = Callable[[Any, Any], Any]  # a kernel function
# Names of parameters. Parts that users register have others, hence also `str`.
Gamma: TypeAlias = float | Literal["auto", "median", "scale"]
Metric: TypeAlias = Literal["auto", "diagonal", "full"] | Values
KernelName: TypeAlias = Literal[
    "auto", "arc_cosine", "cauchy", "chi2", "convolutional", "dot_product",
    "exponential_semigroup", "gaussian", "hellinger", "intersection", "jensen_shannon",
    "laplacian", "linear", "matern", "poly", "polynomial", "precomputed", "rbf",
    "reciprocal_semigroup", "root_laplacian", "skewed_chi2", "skewed_intersection",
]  # fmt: skip
LossName: TypeAlias = Literal[
    "auto", "absolute", "epsilon_insensitive", "gamma", "hinge", "huber", "log_loss",
    "log_squared", "logistic", "modified_logistic", "perceptron", "poisson", "quantile",
    "smoothed_hinge", "squared", "squared_hinge", "tweedie",
]  # fmt: skip
SolverName: TypeAlias = Literal[
    "auto", "block_descent", "cdsg", "direct", "dsg", "newton", "norma", "pegasos",
    "perceptron", "sbp", "sdca", "udsg", "working_set",
]  # fmt: skip
