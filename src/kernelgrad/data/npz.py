"""NumPy archives and arrays."""

from __future__ import annotations

import math
import os
import struct
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from kernelgrad.data.arrays import ArraySource
from kernelgrad.data.columns import missing_column
from kernelgrad.data.damage import decoding
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray, Matrix

_CSR_PARTS = ("data", "indices", "indptr", "shape")
_TARGET_KEYS = ("y", "y_train", "train_y")


def open_npz(
    path: str | os.PathLike[str],
    target_key: str | None = "y",
    data_key: str = "X",
    *,
    weight_key: str | None = None,
    feature_names: Sequence[str] | None = None,
) -> ArraySource:
    """Open an `.npz` archive.

    The features are the array `data_key`, otherwise ``X_train``, otherwise the parts of a CSR
    matrix named ``data``, ``indices``, ``indptr`` and ``shape``, possibly with the prefix
    ``train_``. An uncompressed dense array (as `numpy.savez` writes it) is memory-mapped;
    compressed and sparse arrays are loaded and must fit in memory.

    Parameters
    ----------
    path : path
        The archive.
    target_key : str or None, default="y"
        Name of the targets; None if there are none. If there is no ``y``, the default also
        finds ``y_train`` and ``train_y``.
    data_key : str, default="X"
        Name of the features.
    weight_key : str, optional
        Name of the sample weights.
    feature_names : sequence of str, optional
        Column names.

    Returns
    -------
    ArraySource
        The data.

    Raises
    ------
    DataError
        The archive is damaged or has no such array.
    """
    path = Path(path)
    with _archive(path) as archive:
        keys = _keys(archive)
        dense = next((k for k in dict.fromkeys((data_key, "X_train")) if k in keys), None)
        X: Matrix
        if dense is not None:
            X = _member(archive, dense, path, mapped=True)
        else:
            X = _csr(archive, data_key, path)
        y = w = None
        if target_key is not None:
            usual = _TARGET_KEYS if target_key == "y" else ()
            key = next((k for k in usual if k in keys), target_key)
            y = _member(archive, _need(keys, key, "target", path), path)
        if weight_key is not None:
            w = _member(archive, _need(keys, weight_key, "weight", path), path)
    return ArraySource.of_files([path], X, y, w, feature_names)


def open_npy(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    weight: str | os.PathLike[str] | None = None,
    feature_names: Sequence[str] | None = None,
) -> ArraySource:
    """Open an `.npy` array (n, d) as a memory map, with targets and weights from other files.

    Parameters
    ----------
    path : path
        File with the features.
    target, weight : path, optional
        Files with the targets and with the sample weights.
    feature_names : sequence of str, optional
        Column names.

    Returns
    -------
    ArraySource
        The data.

    Raises
    ------
    DataError
        A file is damaged, or the shapes do not match.
    """
    files = [None if p is None else Path(p) for p in (path, target, weight)]
    X, y, w = (None if file is None else _map_array(file) for file in files)
    return ArraySource.of_files([f for f in files if f is not None], X, y, w, feature_names)


def default_target(path: Path) -> str | None:
    """Return "y" if the archive has targets under one of the usual names."""
    with _archive(path) as archive:
        return "y" if set(_TARGET_KEYS).intersection(_keys(archive)) else None


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    remedy = "write it with numpy.savez"
    with decoding(path, "is not a readable .npz archive", remedy), zipfile.ZipFile(path) as it:
        yield it


def _keys(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _need(keys: Sequence[str], key: str, what: str, path: Path) -> str:
    if key not in keys:
        raise missing_column(key, keys, f"{what} array", path)
    return key


def _member(
    archive: zipfile.ZipFile, key: str, path: Path, *, mapped: bool = False
) -> AnyArray:
    """Return an array after verifying the checksum in the archive."""
    info = archive.getinfo(f"{key}.npy")
    remedy = "object arrays are not accepted, save strings with astype(str)"
    with decoding(path, f"has an array {key!r} that cannot be read", remedy):
        with archive.open(info) as stream:
            header = _header(stream, info.file_size)
            if mapped and info.compress_type == zipfile.ZIP_STORED and 0 not in header.shape:
                while stream.read(1 << 20):  # the last read compares the checksums
                    pass
                return _mapped(path, _content_start(path, info), header)
        with archive.open(info) as stream:  # seeking back would skip the checksum
            return _checked_text(np.lib.format.read_array(stream, allow_pickle=False))


def _csr(archive: zipfile.ZipFile, data_key: str, path: Path) -> Matrix:
    keys = _keys(archive)
    for prefix in ("", "train_"):
        if all(prefix + part in keys for part in _CSR_PARTS):
            break
    else:
        raise missing_column(data_key, keys, "data array", path)
    name = _member(archive, "format", path).item() if "format" in keys else "csr"
    if name not in (b"csr", "csr"):
        raise DataError(f"{path} holds a sparse matrix in format {name!r}; save it as CSR.")
    data, indices, indptr, shape = (_member(archive, prefix + p, path) for p in _CSR_PARTS)
    with decoding(path, "has CSR parts that do not fit together", "write the file again"):
        X = sp.csr_matrix((data, indices, indptr), shape=tuple(int(n) for n in shape))
        X.check_format(full_check=True)
    return X


def _map_array(file: Path) -> AnyArray:
    if not file.exists():
        raise FileNotFoundError(f"There is no file {file}; check the path.")
    remedy = "write it with numpy.save, text as astype(str)"
    with decoding(file, "is not a readable .npy array", remedy), file.open("rb") as stream:
        return _mapped(file, 0, _header(stream, file.stat().st_size))


class _Header(NamedTuple):
    """The header of an array in .npy format, and the offset of its numbers."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    size: int


def _header(stream: IO[bytes], n_bytes: int) -> _Header:
    """Read a header and check it against the number of bytes."""
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"version {version} is for structured arrays")
    shape, fortran, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    n_content = n_bytes - stream.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != n_content:
        raise ValueError(f"{n_content} bytes are no array of shape {shape} and dtype {dtype}")
    return _Header(shape, fortran, dtype, stream.tell())


def _mapped(path: Path, start: int, header: _Header) -> AnyArray:
    shape, fortran, dtype, size = header
    order: Literal["F", "C"] = "F" if fortran else "C"
    return _checked_text(np.memmap(path, dtype, "r", start + size, shape, order))


def _checked_text(array: AnyArray) -> AnyArray:
    """Return an array of text after checking that its characters exist."""
    if array.dtype.kind == "U":
        code = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
        if np.ascontiguousarray(array).view(code).max(initial=0) > sys.maxunicode:
            raise ValueError("it holds characters that do not exist")
    return array


def _content_start(path: Path, info: zipfile.ZipInfo) -> int:
    """Return the offset of the bytes of a member, which follow its own header."""
    with path.open("rb") as stream:
        stream.seek(info.header_offset + 26)
        lengths: tuple[int, int] = struct.unpack("<HH", stream.read(4))
        return stream.tell() + sum(lengths)
