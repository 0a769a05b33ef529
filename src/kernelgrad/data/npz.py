"""NumPy archives and arrays."""

from __future__ import annotations

import math
import os
import struct
import sys
import zipfile
from pathlib import Path
from typing import IO, Literal

import numpy as np
import scipy.sparse as sp

from kernelgrad.data.arrays import ArraySource
from kernelgrad.data.columns import missing_column
from kernelgrad.data.paged import decoding
from kernelgrad.exceptions import DataError
from kernelgrad.types import AnyArray, Matrix

_CSR_PARTS = ("data", "indices", "indptr", "shape")


def open_npz(
    path: str | os.PathLike[str], target_key: str | None = None, data_key: str = "X", *,
    weight_key: str | None = None,
) -> ArraySource:  # fmt: skip
    """Open an `.npz` archive.

    An uncompressed dense array (as `numpy.savez` writes it) is memory-mapped; compressed and
    sparse arrays are loaded and must fit in memory.

    Parameters
    ----------
    path : path
        The archive.
    target_key : str, optional
        Name of the targets, by default ``y``, ``y_train`` or ``train_y`` if there is one.
    data_key : str, default="X"
        Name of the features, otherwise ``X_train``, otherwise the parts of a CSR matrix named
        ``data``, ``indices``, ``indptr`` and ``shape``, possibly with the prefix ``train_``.
    weight_key : str, optional
        Name of the sample weights.
    """
    path, cannot = Path(path), "is not a readable .npz archive"
    with decoding(path, cannot, "write it with numpy.savez"), zipfile.ZipFile(path) as archive:
        keys = _keys(archive)
        X: Matrix
        if data_key in keys or "X_train" in keys:
            X = _member(archive, data_key if data_key in keys else "X_train", path, mapped=True)
        else:
            X = _csr(archive, data_key, path)
        if target_key is None:
            usual = ("y", "y_train", "train_y")
            target_key = next((key for key in usual if key in keys), None)
        columns = {"target array": target_key, "weight array": weight_key}
        for what, key in columns.items():
            if key is not None and key not in keys:
                raise missing_column(key, keys, what, path)
        y, w = (key and _member(archive, key, path) for key in columns.values())
    return ArraySource.of_files([path], X, y, w)


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


def _keys(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _member(archive: zipfile.ZipFile, key: str, path: Path, mapped: bool = False) -> AnyArray:
    info = archive.getinfo(f"{key}.npy")
    remedy = "object arrays are not accepted, save strings with astype(str)"
    with decoding(path, f"has an array {key!r} that cannot be read", remedy):
        with archive.open(info) as stream:
            if not mapped or info.compress_type != zipfile.ZIP_STORED:
                return _checked_text(np.lib.format.read_array(stream, allow_pickle=False))
            while stream.read(1 << 20):  # the last read compares the checksums
                pass
        with path.open("rb") as raw:
            raw.seek(info.header_offset + 26)
            lengths = struct.unpack(
                "<HH", raw.read(4)
            )  # lengths of the name and an extra field
            return _mapped(raw, raw.tell() + sum(lengths), info.file_size)


def _csr(archive: zipfile.ZipFile, data_key: str, path: Path) -> Matrix:
    keys = _keys(archive)
    names = [[prefix + part for part in _CSR_PARTS] for prefix in ("", "train_")]
    parts = next((group for group in names if set(group) <= set(keys)), None)
    if parts is None:
        raise missing_column(data_key, keys, "data array", path)
    name = _member(archive, "format", path).item() if "format" in keys else "csr"
    if name not in (b"csr", "csr"):
        raise DataError(f"{path} holds a sparse matrix in format {name!r}; save it as CSR.")
    data, indices, indptr, shape = (_member(archive, part, path) for part in parts)
    with decoding(path, "has CSR parts that do not fit together", "write the file again"):
        X = sp.csr_matrix((data, indices, indptr), shape=tuple(int(n) for n in shape))
        X.check_format(full_check=True)
    return X


def _map_array(file: Path | None) -> AnyArray | None:
    if file is None:
        return None
    if not file.exists():
        raise FileNotFoundError(f"There is no file {file}; check the path.")
    remedy = "write it with numpy.save, text as astype(str)"
    with decoding(file, "is not a readable .npy array", remedy), file.open("rb") as stream:
        return _mapped(stream, 0, file.stat().st_size)


def _mapped(stream: IO[bytes], start: int, n_bytes: int) -> AnyArray:
    """Map an array of a given size in .npy format, which begins at a position of a file."""
    stream.seek(start)
    lib = np.lib.format
    version = lib.read_magic(stream)
    if version > (2, 0):
        raise ValueError(f"version {version} is for structured arrays")
    read = lib.read_array_header_1_0 if version == (1, 0) else lib.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    rest, size = start + n_bytes - stream.tell(), math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or size != rest:
        raise ValueError(f"{rest} bytes are no array of shape {shape} and dtype {dtype}")
    if rest == 0:
        return np.empty(shape, dtype)
    order: Literal["F", "C"] = "F" if fortran else "C"
    return _checked_text(np.memmap(stream, dtype, "r", stream.tell(), shape, order))


def _checked_text(array: AnyArray) -> AnyArray:
    """Return an array of text after checking that its characters exist."""
    if array.dtype.kind == "U":
        code = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
        if np.ascontiguousarray(array).view(code).max(initial=0) > sys.maxunicode:
            raise ValueError("it holds characters that do not exist")
    return array
