"""NumPy archives and arrays."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from kernelgrad._typing import AnyArray, Matrix
from kernelgrad.data._columns import missing_column
from kernelgrad.data.arrays import ArraySource
from kernelgrad.exceptions import DataError

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

    The features are the array `data_key`, or else ``X_train``, or else CSR parts named
    ``data``, ``indices``, ``indptr`` and ``shape``, bare or after ``train_``. An
    uncompressed dense array (as `numpy.savez` writes it) is memory-mapped; compressed and
    sparse ones are loaded and must fit in memory.

    Parameters
    ----------
    path : path
        The archive.
    target_key : str or None, default="y"
        Name of the targets; None for data without. Where there is no ``y``, the default
        also stands for ``y_train`` and ``train_y``.
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
        If the archive is damaged or holds no such array.
    """
    path = Path(path)
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not a readable .npz archive; write it with numpy.savez.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            keys = list(archive.files)
            dense = next((k for k in dict.fromkeys((data_key, "X_train")) if k in keys), None)
            X: Matrix
            if dense is not None:
                mapped = _map_member(path, f"{dense}.npy")
                X = _member(archive, dense, path) if mapped is None else mapped
            else:
                X = _csr(archive, data_key, path)
            y = w = None
            if target_key is not None:
                usual = _TARGET_KEYS if target_key == "y" else ()
                key = next((k for k in usual if k in keys), target_key)
                y = _member(archive, _need(keys, key, "target", path), path)
            if weight_key is not None:
                w = _member(archive, _need(keys, weight_key, "weight", path), path)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(
            f"{path} is not a readable .npz archive ({error}); write it again."
        ) from None
    return ArraySource(X, y, w, feature_names).of_files(path)


def open_npy(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    weight: str | os.PathLike[str] | None = None,
    feature_names: Sequence[str] | None = None,
) -> ArraySource:
    """Open an `.npy` array (n, d), memory-mapped, with targets and weights from others.

    Parameters
    ----------
    path : path
        The features.
    target, weight : path, optional
        The targets, and the sample weights.
    feature_names : sequence of str, optional
        Column names.

    Returns
    -------
    ArraySource
        The data.

    Raises
    ------
    DataError
        If a file is damaged, or the shapes do not fit.
    """
    files = [None if p is None else Path(p) for p in (path, target, weight)]
    X, y, w = (None if file is None else _map_array(file) for file in files)
    try:
        source = ArraySource(X, y, w, feature_names)
    except (ValueError, TypeError) as error:
        named = " and ".join(str(file) for file in files if file is not None)
        raise type(error)(f"{named}: {error}") from None
    return source.of_files(*(file for file in files if file is not None))


def _map_array(file: Path) -> AnyArray:
    if not file.exists():
        raise FileNotFoundError(f"There is no file {file}; check the path.")
    try:
        return np.asanyarray(np.load(file, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise DataError(
            f"{file} is not a readable .npy array ({error}); write it with numpy.save, text as "
            "astype(str)."
        ) from None


def default_target(path: Path) -> str | None:
    """Return "y" if the archive has targets under one of the usual names."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return None  # open_npz tells what is wrong
    return "y" if any(f"{key}.npy" in names for key in _TARGET_KEYS) else None


def _need(keys: Sequence[str], key: str, what: str, path: Path) -> str:
    if key not in keys:
        raise missing_column(key, keys, f"{what} array", path)
    return key


def _member(archive: np.lib.npyio.NpzFile, key: str, path: Path) -> AnyArray:
    try:
        return np.asarray(archive[key])
    except ValueError as error:
        raise DataError(
            f"{path}: array {key!r} cannot be read ({error}); object arrays are not accepted, "
            "save strings with astype(str)."
        ) from None


def _csr(archive: np.lib.npyio.NpzFile, data_key: str, path: Path) -> Matrix:
    keys = archive.files
    for prefix in ("", "train_"):
        if all(prefix + part in keys for part in _CSR_PARTS):
            break
    else:
        raise missing_column(data_key, keys, "data array", path)
    name = _member(archive, "format", path).item() if "format" in keys else "csr"
    if name not in (b"csr", "csr"):
        raise DataError(f"{path} holds a sparse matrix in format {name!r}; save it as CSR.")
    data, indices, indptr, shape = (_member(archive, prefix + p, path) for p in _CSR_PARTS)
    try:
        X = sp.csr_matrix((data, indices, indptr), shape=tuple(int(n) for n in shape))
        X.check_format(full_check=True)
    except ValueError as error:
        raise DataError(
            f"{path}: the CSR parts do not fit together ({error}); write the file again."
        ) from None
    return X


def _map_member(path: Path, name: str) -> AnyArray | None:
    """Memory-map an array stored without compression; None if that cannot be done."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
        info = archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        stream.seek(info.header_offset + 26)
        name_length, extra_length = struct.unpack("<HH", stream.read(4))
        stream.seek(name_length + extra_length, os.SEEK_CUR)
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            return None
        reader = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        shape, fortran, dtype = reader(stream)
        if dtype.hasobject or 0 in shape:
            return None
        return np.memmap(path, dtype, "r", stream.tell(), shape, "F" if fortran else "C")
