"""Random features as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from kernelgrad.compute import rng
from kernelgrad.compute.ranges import check_sizes
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.data import ArraySource, BatchSource, sample_batches
from kernelgrad.data.base import is_collection
from kernelgrad.estimators import files, support
from kernelgrad.families.unlabelled import NoTargets
from kernelgrad.files.container import Place, write_container
from kernelgrad.files.records import Record
from kernelgrad.functions.features import (
    CACHE_BYTES,
    MOST_FEATURES,
    PREDICT_ROWS,
    FeatureStream,
)
from kernelgrad.inputs import Inputs, as_numpy, check_values
from kernelgrad.kernels import Kernel, get_kernel, kernel_summary
from kernelgrad.losses import SquaredError
from kernelgrad.params import (
    Documented,
    anything,
    boolean,
    check_params,
    integer,
    parameters,
    size,
)
from kernelgrad.registry import room
from kernelgrad.solvers import Problem, TrainBatch
from kernelgrad.solvers.dsg import MAX_WIDTH, ROWS_PER_FEATURE
from kernelgrad.solvers.feature_blocks import build_stream
from kernelgrad.tasks import weights_of
from kernelgrad.training_rows import TrainingRows, canonical_rows
from kernelgrad.types import AnyArray, Float32Array, IntArray, Matrix, Rows, Values
from kernelgrad.validation import CapabilityError, bytes_of, check_int

# The first batch of the estimators, so that bandwidth and scaling are theirs.
SAMPLE_ROWS = ROWS_PER_FEATURE * MAX_WIDTH
_MEMORY = 4 * CACHE_BYTES
_ROW_STEP = 512  # a multiple of the row tiles: other chunks of it give the same bits
TAG_CHOICE = 15


@dataclass(frozen=True)
class RowFeatures:
    """Random features of rows: `n_features` columns of the blocks of a stream, scaled.

    ``chunk_bytes`` are those of the rows that are transformed at once.
    """

    inputs: Inputs
    stream: FeatureStream
    n_features: int
    chunk_bytes: float = 4.0 * CACHE_BYTES

    @property
    def n_blocks(self) -> int:
        return -(-self.n_features // self.stream.width)

    @property
    def last(self) -> IntArray:
        """The columns of the last block that are features."""
        before = self.n_blocks - 1
        return _choice(self.stream, before, self.n_features - before * self.stream.width)

    def apply(self, X: Rows) -> Float32Array:
        """Return the features (n, n_features) of rows or of a source."""
        if not isinstance(X, BatchSource):
            rows = self.inputs.numbers(X)
            out = np.empty((rows.shape[0], self.n_features), np.float32)
            self._apply_into(rows, out)
            return out
        self.inputs.check_source(X)
        out = np.empty((X.n_rows, self.n_features), np.float32)
        for batch in X.chunks():
            start = int(batch.rows[0])
            self._apply_into(batch.X, out[start : start + len(batch.rows)])
        return out

    def _apply_into(self, X: Matrix, out: Float32Array) -> None:
        stream, width, last = self.stream, self.stream.width, self.last
        factor = np.float32(np.sqrt(width / out.shape[1]))
        step = self._chunk_rows(X)
        # checked below; beyond float32 a kernel has no features
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(out), step):
                part = out[start : start + step]
                rows = stream.prepare(X[start : start + step])
                for j in range(self.n_blocks):
                    block = stream.transform(rows, j)
                    if j == self.n_blocks - 1 and len(last) < width:
                        block = block[:, last]
                    np.multiply(block, factor, out=part[:, j * width : (j + 1) * width])
                check_values(part, "The random features are not finite", start)

    def _chunk_rows(self, X: Matrix) -> int:
        cells = X.nnz / X.shape[0] if sp.issparse(X) else X.shape[1]
        per_row = 24 * cells + 4 * self.stream.width  # scaled, embedded, rounded; a block
        rows = int(min(self.chunk_bytes / per_row, PREDICT_ROWS))
        return max(_ROW_STEP, rows - rows % _ROW_STEP)


@parameters
class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Documented):
    """Random features of any kernel: rows whose inner products estimate it.

    The output Z is float32, (n, n_components): blocks ``phi_0(x), phi_1(x), ...`` of the seeded
    stream of features that the estimators of this package use, side by side and divided by the
    square root of their number. ``E[Z Z^T] = K``, so that a linear model of Z approximates a
    kernel machine (Rahimi and Recht 2007; Dai et al. 2014, Section 2). The last block may give
    some of its columns only, drawn at random with equal probability; all features but one give
    either all planes (cosine and sine) or none.

    With the same int `random_state`, kernel and block size, the blocks are those of
    :class:`KernelClassifier` and :class:`KernelRegressor`, provided that bandwidth and scaling
    come from the same rows: a first batch of all rows, or of 8,192 rows as here. There is no
    ``partial_fit``: fit this transformer on the first rows of a stream, and transform every
    chunk.

    Parameters
    ----------
    kernel : str or Kernel, default="rbf"
        As in :class:`KernelClassifier`.
    n_components : int, default=1024
        Columns of the output. The standard deviation of an entry of ``Z Z^T`` falls as
        ``1 / sqrt(n_components)``: with 1,024 it is at most 1/32 for the Gaussian kernel.
    gamma : float > 0, "median" or "scale", default="median"
        Inverse bandwidth, or a rule resolved on at most 8,192 random rows (see
        :class:`~kernelgrad.kernels.Gaussian`); for kernels that have a gamma.
    bandwidth_factor : float > 0, default=1.0
        Multiplies the bandwidth that a rule finds.
    block_size : int or "auto", default="auto"
        Features per block and plane. ``"auto"`` makes the fewest equal blocks of at most 2,048
        columns.
    standardize : bool, default=False
        Divide columns by their standard deviation over the sample.
    memory_limit : float, str or None, default=None
        Bytes, or "2 GB", that a transform may use beside its input, its output and the weights
        of one block (256 MiB when None): rows are transformed in chunks of at least 512.
    random_state : int, RandomState or None, default=0
        Seed of the features; None draws one.

    Attributes
    ----------
    n_blocks_ : int
        Blocks in the output; the last one may give only a part of its columns.
    stream_ : FeatureStream
        The blocks themselves: seed, kernel, input scaling.
    kernel_ : Kernel
        With numbers for its parameters.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from kernelgrad import RandomFeatures
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(RandomFeatures(random_state=0), RidgeClassifier())
    >>> bool(model.fit(X[:1200], y[:1200]).score(X[1200:], y[1200:]) > 0.9)
    True
    """

    kernel: Any = anything(default="rbf", kw_only=False)
    n_components: int = integer(default=1024, low=1, kw_only=False)
    gamma: float | str = anything(default="median")
    bandwidth_factor: float = anything(default=1.0)
    block_size: int | str = integer(default="auto", low=1, words=("auto",))
    standardize: bool = boolean(default=False)
    memory_limit: float | str | None = size(default=None)
    random_state: Any = anything(default=0)

    if TYPE_CHECKING:  # what fits set, and scikit-learn's mixin gives
        _map: ClassVar[RowFeatures]
        n_features_in_: ClassVar[int]
        feature_names_in_: ClassVar[AnyArray]

        def fit_transform(self, X: Rows, y: Values = None, **fit_params: Any) -> Float32Array:
            """Fit to the rows and return their features."""

    def _check_parameters(self) -> Kernel:
        check_params(self)
        kernel = get_kernel(
            self.kernel, gamma=self.gamma, bandwidth_factor=self.bandwidth_factor
        )
        if not kernel.has_random_features:
            raise CapabilityError(
                f"The {kernel.name} kernel has no random features; choose another kernel, or "
                "sklearn.kernel_approximation.Nystroem."
            )
        return kernel

    @support.fitting
    def fit(self, X: Rows, y: Values = None) -> Self:
        """Fix the seed, and the bandwidth and input scaling from a sample of the rows.

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), memory map, DataFrame, or BatchSource
            From a :class:`~kernelgrad.data.BatchSource` only the first random batch is read,
            with its weights.
        y : ignored
            Present for the API's sake.
        """
        kernel = self._check_parameters()
        with single_threaded_blas():
            seed = int(check_random_state(self.random_state).randint(0, 2**31 - 1))
            inputs, batch = self._sample(X, kernel, seed)
            self._set(self._built(inputs, kernel, batch, seed))
        return self

    @as_numpy
    def _sample(self, X: Any, kernel: Kernel, seed: int) -> tuple[Inputs, TrainBatch]:
        """Return the columns, and rows and weights of an estimator's first batch."""
        name = type(self).__name__
        if is_collection(X):
            X = room("cluster").DaskSource(X)
        source, few = X, None  # rows in the estimators' order, so that sums are the same bits
        if isinstance(X, BatchSource):
            inputs = Inputs.of_source(X, name)
            if X.n_rows <= SAMPLE_ROWS:
                batch = X.read(0, X.n_rows)
                few = batch.X, weights_of(batch)
        else:
            inputs, rows = Inputs.of_numbers(X, name)
            check_sizes(rows, scaled=self.standardize)
            if not self.standardize:
                kernel.check_domain(rows)
            weight = np.ones(rows.shape[0])
            source = ArraySource(
                X if isinstance(X, np.memmap) else rows, None, weight, checked=True
            )
            if rows.shape[0] <= SAMPLE_ROWS:
                few = rows, weight
        if few is not None and few[1].any():
            rows, weight = few
            numbers = np.arange(len(weight))
            rows, _, weight, _ = canonical_rows(rows, numbers, weight, merge=True)
            source = ArraySource(rows, None, weight, checked=True)
        training = TrainingRows(source, NoTargets(SquaredError()), is_internal=True)
        if source.n_rows <= SAMPLE_ROWS:
            return inputs, training.take(training.train)
        sampled = sample_batches(source, SAMPLE_ROWS, seed=seed)
        return inputs, next(training.sampled(sampled))[0]

    def _built(
        self, inputs: Inputs, kernel: Kernel, batch: TrainBatch, seed: int
    ) -> RowFeatures:
        problem = Problem(
            SquaredError(), kernel, 0.0, 1, inputs.n_features, seed,
            standardize=bool(self.standardize),
        )  # fmt: skip
        n = int(self.n_components)
        stream = build_stream(
            problem, batch, lambda planes: self._resolve_block_size(n, planes)
        )
        stream.kernel.check_domain(stream.scaling.apply(batch.X))
        return RowFeatures(inputs, stream, n)

    def _set(self, value: RowFeatures) -> None:
        """Set the fitted attributes."""
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(value.inputs.attributes(), _map=value)
        self.stream_, self.kernel_ = value.stream, value.stream.kernel
        self.n_blocks_, self._n_features_out = value.n_blocks, value.n_features

    def _file_attributes(self) -> dict[str, Any]:
        return self._map.inputs.attributes() | {
            "_seed": self.stream_.seed, "_n_features_out": self._map.n_features,
            "n_blocks_": self.n_blocks_,
        }  # fmt: skip

    def _restore_stream(self, inputs: Inputs, stream: FeatureStream, fitted: Record) -> None:
        """Take back the features of a file."""
        fitted.take("_seed", partial(check_int, high=2**32))
        fitted.take("n_blocks_", check_int, None)
        n = fitted.take("_n_features_out", partial(check_int, low=1, high=MOST_FEATURES))
        self._set(RowFeatures(inputs, stream, n))

    def _resolve_block_size(self, n: int, planes: int) -> int:
        if self.block_size != "auto":
            return int(self.block_size)
        blocks = -(-n // MAX_WIDTH)
        return -(-n // (blocks * planes))

    @as_numpy
    def transform(self, X: Rows) -> Float32Array:
        """Return the random features, a float32 array (n, n_components).

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), memory map, DataFrame, or BatchSource
            A source is read in chunks; the output is in memory as a whole.
        """
        check_is_fitted(self, "stream_")
        limit = _MEMORY if self.memory_limit is None else bytes_of(self.memory_limit)
        features = replace(self._map, chunk_bytes=limit)
        return support.by_blocks(features.apply, X)  # type: ignore[no-any-return]

    def save(self, path: Place, *, key: bytes | None = None) -> None:
        """Write the fitted transformer to one file, as :meth:`KernelClassifier.save`."""
        check_is_fitted(self, "stream_")
        files.check_registered(self)
        write_container(path, *files.contents_of(self), key=key)

    def model_info(self) -> dict[str, Any]:
        """Return a summary of the fitted transformer with plain JSON values."""
        check_is_fitted(self, "stream_")
        names = getattr(self, "feature_names_in_", None)
        return {
            "estimator": type(self).__name__,
            "kernel": self.kernel_.name,
            "kernel_params": kernel_summary(self.kernel_),
            "n_features_in": int(self.n_features_in_),
            "feature_names": None if names is None else [str(name) for name in names],
            "n_random_features": self._n_features_out,
            "block_size": self.stream_.block_size,
            "seed": self.stream_.seed,
            "bytes": self.stream_.scaling.nbytes,
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _choice(stream: FeatureStream, block: int, n: int) -> IntArray:
    """Return n columns of a block, sorted: whole features, and some planes of one more.

    Each column is equally likely over seeds.
    """
    planes, F = stream.planes, stream.block_size
    whole, rest = divmod(n, planes)
    chosen = np.zeros((planes, F), bool)
    features = np.argsort(rng.uniforms(stream.seed, block * F, F, TAG_CHOICE))
    chosen[:, features[:whole]] = True
    if rest:
        order = np.argsort(rng.uniforms(stream.seed, block * planes, planes, TAG_CHOICE, 1))
        chosen[order[:rest], features[whole]] = True
    return np.flatnonzero(chosen)
