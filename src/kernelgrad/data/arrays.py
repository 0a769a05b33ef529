"""Arrays, memory maps and sparse matrices as sources, and NumPy's files of them."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.data import base
from kernelgrad.data.base import Batch, BatchSource
from kernelgrad.data.columns import missing_column
from kernelgrad.data.paged import Stamp, decoding, spread, within
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad.validation import check_compressed


class ArraySource(BatchSource):
    """A source of rows in an array, a memory map or a sparse matrix.

    Parameters
    ----------
    X : ndarray, memmap or sparse matrix of shape (n, d)
        Features. They are not copied, except that sparse formats other than CSR are converted.
        A memory map is read page by page, like files.
    y : array of shape (n,) or (n, k), optional
        Targets.
    sample_weight : array of shape (n,), optional
        Weights.
    feature_names : sequence of str, optional
        Column names.
    checked : bool, default=False
        Whether the values are known to be finite, so that batches need not be checked.
    """

    _stamps: tuple[Stamp, ...] = ()  # one for each mapped file

    def __init__(
        self, X: Matrix, y: Any = None, sample_weight: Any = None,
        feature_names: Sequence[str] | None = None, *, checked: bool = False,
    ) -> None:  # fmt: skip
        self.is_sparse = bool(sp.issparse(X))
        self.in_memory = not isinstance(X, np.memmap)
        if not checked:
            check_compressed(X)
        X = X.tocsr() if self.is_sparse else np.asarray(X)
        if X.ndim != 2:
            raise ValueError(
                f"X must have two dimensions, got shape {X.shape}; use X.reshape(-1, 1) for "
                "a single feature."
            )
        if X.dtype.kind not in "biuf":
            raise TypeError(f"X must be numeric, got dtype {X.dtype}; encode it as numbers.")
        self.n_rows, self.n_features = int(X.shape[0]), int(X.shape[1])
        if self.n_rows == 0 or self.n_features == 0:
            raise (DataError if self.n_rows else base.NoRows)(
                f"X has shape {X.shape}; give at least one row and one feature column."
            )
        if X.dtype.kind == "b":
            X = X.astype(np.uint8) if self.is_sparse else X.view(np.uint8)
        y = None if y is None else np.asarray(y)
        w = None if sample_weight is None else np.asarray(sample_weight)
        self._X, self._y, self._w, self._checked = X, y, w, checked
        self._parts = (X.data, X.indices, X.indptr) if self.is_sparse else (X,)
        self.nbytes = float(sum([part.nbytes for part in self._parts]))
        self.has_target, self.has_weight = y is not None, w is not None
        if y is not None:
            if y.ndim not in (1, 2) or len(y) != self.n_rows:
                raise ValueError(
                    f"y has shape {y.shape} but X has {self.n_rows} rows; give one target per "
                    "row."
                )
            if y.dtype.kind not in "biufOU":
                raise TypeError(
                    f"y must hold numbers or strings, got dtype {y.dtype}; convert it."
                )
        if w is not None and (w.shape != (self.n_rows,) or w.dtype.kind not in "biuf"):
            raise ValueError(
                f"sample_weight has shape {w.shape} and dtype {w.dtype}; give one number for "
                f"each of the {self.n_rows} rows."
            )
        if feature_names is not None and len(feature_names) != self.n_features:
            raise ValueError(
                f"feature_names has {len(feature_names)} names but X has {self.n_features} "
                "columns; give one name per column."
            )
        self.feature_names = None if feature_names is None else list(feature_names)

    @property
    def sample_weight(self) -> Float64Array:
        """The weight of every row; ones if none were given."""
        return np.ones(self.n_rows) if self._w is None else np.asarray(self._w, np.float64)

    def read(self, start: int, stop: int) -> Batch:
        start, stop = base.check_row_range(start, stop, self.n_rows)
        return self._batch(slice(start, stop), np.arange(start, stop))

    def take(self, rows: IntArray) -> Batch:
        rows = base.check_rows(rows, self.n_rows)
        # adjacent rows need no copy
        together = self.in_memory and len(rows) and (np.diff(rows) == 1).all()
        return self._batch(slice(rows[0], rows[-1] + 1) if together else rows, rows)

    def target_chunks(self) -> Iterator[AnyArray]:
        self._require_target()
        assert self._y is not None
        for start in range(0, self.n_rows, 65536):
            y = self._y[start : start + 65536]
            if self._checked:
                yield y
                continue
            with within(*(stamp.path for stamp in self._stamps)):
                yield base.checked_targets(y, start)

    def digest(self) -> bytes:
        """Return a digest of all values, but of at most 256 MiB of the rows of a map."""
        digest, X = hashlib.blake2b(super().digest(), digest_size=16), self._X
        blocks = self._parts
        if not self.in_memory:
            step = max(1, 2**20 // max(1, X.nbytes // self.n_rows))
            blocks = tuple(X[start : start + step] for start in spread(self.n_rows, step))
        for part in (*blocks, self._y, self._w):
            if part is not None:
                base.feed(digest, part)
        return digest.digest()

    @classmethod
    def of_files(cls, paths: Sequence[Path], *arrays: Any) -> ArraySource:
        with within(*paths):
            source, y = cls(*arrays), arrays[1]
            if y is not None and y.dtype.kind == "U":
                codes = np.array(y.ravel(), y.dtype.newbyteorder("=")).view(np.uint32)
                if codes.max(initial=0) > sys.maxunicode:
                    raise DataError("The targets hold no text; write the file again.")
        source._stamps = tuple(Stamp.of(path) for path in paths)
        return source

    def _batch(self, index: IntArray | slice, rows: IntArray) -> Batch:
        with ExitStack() as files:
            for stamp in () if self.in_memory else self._stamps:
                files.enter_context(stamp.unchanged())
            everything = isinstance(index, slice) and len(rows) == self.n_rows
            X = self._X if everything and self.is_sparse else self._X[index]  # without a copy
            batch = Batch(
                X,
                None if self._y is None else self._y[index],
                None if self._w is None else self._w[index].astype(np.float64, copy=False),
                rows,
            )
            if self._checked:
                return batch
            files.enter_context(within(*(stamp.path for stamp in self._stamps)))
            return base.check_batch(batch, self.feature_names)


_REMEDY = "write it with numpy.save or savez, text as astype(str), and CSR matrices by parts"


def open_npz(
    path: str | os.PathLike[str], target_key: str | None = None, *,
    weight_key: str | None = None,
) -> ArraySource:  # fmt: skip
    """Load an `.npz` archive with features ``X``, ``X_train`` or the parts of a CSR matrix.

    Parts are named ``data``, ``indices``, ``indptr`` and ``shape``, as by
    `scipy.sparse.save_npz`.

    Parameters
    ----------
    path : path
        The archive.
    target_key : str, optional
        Name of the targets, by default ``y`` or ``y_train`` if there is one.
    weight_key : str, optional
        Name of the sample weights.
    """
    path = Path(path)
    with (
        decoding(path, "is not a readable .npz archive", _REMEDY),
        np.load(path, allow_pickle=False) as archive,
    ):
        keys = list(archive.files)
        if target_key is None:
            target_key = next((key for key in ("y", "y_train") if key in keys), None)
        columns = {"target array": target_key, "weight array": weight_key}
        for what, key in columns.items():
            if key is not None and key not in keys:
                raise missing_column(key, keys, what, path)
        key = next((key for key in ("X", "X_train") if key in keys), None)
        X: Matrix = _csr(archive, path) if key is None else archive[key]
        y, w = (None if key is None else archive[key] for key in columns.values())
    return ArraySource.of_files([path], X, y, w)


def _csr(archive: Any, path: Path) -> Matrix:
    parts = ("data", "indices", "indptr", "shape")
    if not set(parts) <= set(archive.files):
        raise missing_column("X", archive.files, "data array", path)
    if "format" in archive.files and archive["format"].item() not in (b"csr", "csr"):
        raise ValueError("its sparse matrix is not CSR")
    data, indices, indptr, shape = (archive[part] for part in parts)
    X = sp.csr_matrix((data, indices, indptr), shape=tuple(int(n) for n in shape))
    X.check_format(full_check=True)
    return X


def open_npy(
    path: str | os.PathLike[str], target: str | os.PathLike[str] | None = None, *,
    weight: str | os.PathLike[str] | None = None,
) -> ArraySource:  # fmt: skip
    """Open an `.npy` array (n, d) as a memory map, with targets and weights from other files.

    Parameters
    ----------
    path : path
        File with the features.
    target, weight : path, optional
        Files with the targets and with the sample weights.
    """
    files = [None if p is None else Path(p) for p in (path, target, weight)]
    arrays = map(_map_array, files)
    return ArraySource.of_files([file for file in files if file is not None], *arrays)


def _map_array(file: Path | None) -> AnyArray | None:
    if file is None:
        return None
    if not file.exists():
        raise FileNotFoundError(f"There is no file {file}; check the path.")
    with decoding(file, "is not a readable .npy array", _REMEDY):
        array: AnyArray = np.load(file, mmap_mode="r", allow_pickle=False)
        return array
