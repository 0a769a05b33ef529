"""Data sources, in memory and on disk, and random batches from them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from kernelgrad.data._paged import damage_named, open_text
from kernelgrad.data.arrays import ArraySource
from kernelgrad.data.base import Batch, BatchSource, TargetSummary, check_batch
from kernelgrad.data.csv import CsvSource
from kernelgrad.data.libsvm import LibsvmSource
from kernelgrad.data.npz import default_target, open_npz
from kernelgrad.data.parquet import ParquetSource
from kernelgrad.data.sampling import EpochBatch, sample_batches, split_rows
from kernelgrad.exceptions import DataError

__all__ = [
    "ArraySource",
    "Batch",
    "BatchSource",
    "CsvSource",
    "EpochBatch",
    "LibsvmSource",
    "ParquetSource",
    "TargetSummary",
    "check_batch",
    "open_npz",
    "open_source",
    "sample_batches",
    "split_rows",
]

_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".dat": "text",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
}
_LIBSVM_LINE = re.compile(rb"\s*[^\s:,;]+(\s+(qid|\d+):\S+)+\s*(#.*)?$")


def open_source(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    weight: str | None = None,
    drop: Sequence[str] = (),
    n_features: int | None = None,
    feature_names: Sequence[str] | None = None,
    as_frame: bool = False,
) -> BatchSource:
    """Open a data file, in the format that its suffix tells.

    CSV is ``.csv`` or ``.tsv``; LIBSVM is ``.svm``, ``.libsvm`` or ``.svmlight``; ``.txt``
    and ``.dat`` are one of these two, told apart by their first line. All may be followed
    by ``.gz`` or ``.bz2``. Parquet is ``.parquet``, ``.pq`` or a directory of such files;
    NumPy archives are ``.npz``.

    Parameters
    ----------
    path : path
        The file or directory.
    target : str, optional
        Column with the targets; by default the source has none. For `.npz` the name of the
        array, by default ``y`` where there is one; LIBSVM lines carry their label, so there
        it is ignored.
    weight : str, optional
        Column (or array) with the sample weights.
    drop : sequence of str, default=()
        Columns to leave out, in CSV and Parquet.
    n_features : int, optional
        Number of features to expect; LIBSVM files may use fewer.
    feature_names : sequence of str, optional
        Columns to use as features, in order; others are ignored. Formats without column
        names must have as many columns.
    as_frame : bool, default=False
        Batches of CSV and Parquet hold Arrow tables instead of numbers: estimators take text,
        categories, dates and missing values as in frames.

    Returns
    -------
    BatchSource
        The data.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DataError
        If the format is unknown, a column is missing, or the data cannot be used.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}; check the path.")
    if feature_names is not None and n_features is None:
        n_features = len(feature_names)
    kind = format_of(path)
    source: BatchSource
    if kind in ("csv", "parquet"):
        opener = CsvSource if kind == "csv" else ParquetSource
        source = opener(
            path,
            target=target,
            weight=weight,
            drop=drop,
            feature_names=feature_names,
            as_frame=as_frame,
        )
    else:
        if len(drop):
            raise DataError(
                f"{path} has no column names, so {list(drop)!r} cannot be dropped; leave drop "
                "out."
            )
        if kind == "libsvm":
            if weight is not None:
                raise DataError(
                    f"{path}: LIBSVM files carry no weights, so leave weight={weight!r} out."
                )
            source = LibsvmSource(path, n_features=n_features)
        else:
            source = open_npz(
                path, default_target(path) if target is None else target, weight_key=weight
            )
    if n_features is not None and source.n_features != n_features:
        raise DataError(
            f"{path} has {source.n_features} features, but {n_features} are expected; give "
            "data with the columns the model was made for."
        )
    if source.feature_names is None and feature_names is not None:
        source.feature_names = list(feature_names)
    return source


def format_of(path: Path) -> str:
    if path.is_dir():
        return "parquet"
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in (".gz", ".bz2")
    if packed:
        suffixes.pop()
    kind = _FORMATS.get(suffixes[-1] if suffixes else "")
    if kind is None or (packed and kind in ("parquet", "npz")):
        raise DataError(
            f"{path}: unknown file format {''.join(path.suffixes[-2:])!r}; rename the "
            f"file to end in one of {', '.join(_FORMATS)} (text formats also with .gz or .bz2)."
        )
    return _sniff(path) if kind == "text" else kind


def _sniff(path: Path) -> str:
    with damage_named(path), open_text(path) as stream:
        for _ in range(100):
            line = stream.readline(1 << 26)
            if not line:
                break
            if line.strip() and not line.lstrip().startswith(b"#"):
                return "libsvm" if _LIBSVM_LINE.match(line) else "csv"
    return "csv"
