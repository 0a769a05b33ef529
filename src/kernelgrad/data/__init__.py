"""Rows: arrays and files come in, batches in bounded memory go out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelgrad.data.arrays import ArraySource, open_npy, open_npz
from kernelgrad.data.base import Batch, BatchSource, TargetSummary, check_batch, prefetched
from kernelgrad.data.columns import ParquetSource
from kernelgrad.data.files import (
    MultiSource,
    common_format,
    find_files,
    format_of,
    joined_source,
)
from kernelgrad.data.sampling import EpochBatch, sample_batches, split_rows
from kernelgrad.data.text import CsvSource, LibsvmSource
from kernelgrad.exceptions import DataError

__all__ = [
    "ArraySource", "Batch", "BatchSource", "CsvSource", "EpochBatch", "LibsvmSource",
    "MultiSource", "ParquetSource", "TargetSummary", "check_batch", "format_of", "open_npy",
    "open_npz", "open_source", "prefetched", "sample_batches", "split_rows",
]  # fmt: skip


def open_source(
    path: Any, *, target: str | None = None, weight: str | None = None,
    drop: Sequence[str] = (), n_features: int | None = None,
    feature_names: Sequence[str] | None = None, as_frame: bool = False,
) -> BatchSource:  # fmt: skip
    """Open data files; the format follows from the suffix.

    The rows of several files are concatenated, and columns are matched by name. Text is
    converted once to an Arrow file. Files must not change while they are read.
    :doc:`/data` lists the formats and the rules.

    Parameters
    ----------
    path : path or list of paths
        A file, a folder, or a pattern such as ``"rows/**/*.csv.gz"``.
    target : str, optional
        Column with the targets; by default the source has none. For `.npz` the name of the
        array, by default ``y`` if it exists; for `.npy` the file with the targets. It is
        ignored for LIBSVM, whose lines contain the label.
    weight : str, optional
        Column (array, file) with the sample weights.
    drop : sequence of str, default=()
        Columns of CSV and Parquet files to leave out.
    n_features : int, optional
        Expected number of features; LIBSVM files may use fewer.
    feature_names : sequence of str, optional
        Columns to use as features, in order. Files without names must have as many columns.
    as_frame : bool, default=False
        Whether batches of CSV and Parquet files are Arrow tables, in which estimators encode
        text, categories, dates and missing values, instead of arrays of numbers.
    """
    files = find_files(path)
    kind = common_format(files)
    if kind not in ("csv", "parquet"):
        if len(drop):
            raise DataError(
                f"{path} has no column names, so {list(drop)!r} cannot be dropped; leave drop "
                "out."
            )
        if kind == "libsvm" and weight is not None:
            raise DataError(
                f"{path}: LIBSVM files carry no weights, so leave weight={weight!r} out."
            )
        if kind in ("npy", "npz") and len(files) > 1:
            raise DataError(
                f"{path} has {len(files)} NumPy files; join their arrays, or write Parquet."
            )
    if feature_names is not None and n_features is None:
        n_features = len(feature_names)

    columns: Any = {"target": target, "weight": weight, "drop": drop, "as_frame": as_frame}

    def opened(file: Path, names: Sequence[str] | None) -> BatchSource:
        if kind in ("csv", "parquet"):
            source = CsvSource if kind == "csv" else ParquetSource
            return source(file, feature_names=names, **columns)
        if kind == "libsvm":
            return LibsvmSource(file, n_features=n_features)
        if kind == "npy":
            return open_npy(file, target, weight=weight)
        return open_npz(file, target, weight_key=weight)

    source = joined_source(files, opened, feature_names)
    if n_features is not None and source.n_features != n_features:
        raise DataError(
            f"{path} has {source.n_features} features, but {n_features} are expected; give "
            "data with the columns the model was made for."
        )
    if source.feature_names is None and feature_names is not None:
        source.feature_names = list(feature_names)
    return source
