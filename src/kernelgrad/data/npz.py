"""NumPy archives and arrays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.data.arrays import ArraySource
from kernelgrad.data.columns import missing_column
from kernelgrad.data.paged import decoding
from kernelgrad.types import AnyArray, Matrix

_REMEDY = "write it with numpy.save or savez, text as astype(str), and CSR matrices by parts"


def open_npz(
    path: str | os.PathLike[str], target_key: str | None = None, data_key: str = "X", *,
    weight_key: str | None = None,
) -> ArraySource:  # fmt: skip
    """Load an `.npz` archive.

    Parameters
    ----------
    path : path
        The archive.
    target_key : str, optional
        Name of the targets, by default ``y`` or ``y_train`` if there is one.
    data_key : str, default="X"
        Name of the features, otherwise ``X_train``, otherwise the parts of a CSR matrix named
        ``data``, ``indices``, ``indptr`` and ``shape``, as `scipy.sparse.save_npz` writes them.
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
        key = next((key for key in (data_key, "X_train") if key in keys), None)
        X: Matrix = _csr(archive, data_key, path) if key is None else archive[key]
        y, w = (None if key is None else archive[key] for key in columns.values())
    return ArraySource.of_files([path], X, y, w)


def _csr(archive: Any, data_key: str, path: Path) -> Matrix:
    parts = ("data", "indices", "indptr", "shape")
    if not set(parts) <= set(archive.files):
        raise missing_column(data_key, archive.files, "data array", path)
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
