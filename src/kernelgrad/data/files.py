"""The files of a source, their format, and the concatenation of several."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import chain
from pathlib import Path
from threading import RLock
from typing import Any, TypeAlias

import numpy as np

from kernelgrad.data.base import Batch, BatchSource, NoRows, concat_batches
from kernelgrad.data.columns import ColumnSource
from kernelgrad.data.paged import PagedSource, within
from kernelgrad.data.text import PACKED
from kernelgrad.exceptions import DataError
from kernelgrad.files.disk import special
from kernelgrad.types import AnyArray, IntArray

PathLike: TypeAlias = str | os.PathLike[str]

_FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".svm": "libsvm", ".libsvm": "libsvm",
    ".svmlight": "libsvm", ".parquet": "parquet", ".pq": "parquet", ".npz": "npz",
    ".npy": "npy",
}  # fmt: skip


def find_files(path: Any) -> list[Path]:
    """Return the files of a path, a pattern, or a list of these.

    Files of folders and patterns are sorted by name within each folder; lists keep their order.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else path
    files = [file for one in paths for file in _expand(one)]
    if not files:
        raise FileNotFoundError("The list of files is empty; name at least one.")
    for file in files:
        kind = special(file)
        if kind is not None:
            raise DataError(
                f"{file} is {kind}, which cannot be read twice; write the data to a file."
            )
    return files


def _expand(path: PathLike) -> list[Path]:
    text, root = os.fspath(path), Path(path)
    if root.is_dir():
        return _inside(root)
    if root.exists():
        return [root]
    if not glob.has_magic(text):
        raise FileNotFoundError(f"There is no file {path}; check the path.")
    while glob.has_magic(str(root)):
        root = root.parent
    matches = sorted(map(Path, glob.glob(text, recursive=True)))
    shown = (match for match in matches if not _is_hidden(match, root))
    groups = (_inside(match) if match.is_dir() else [match] for match in shown)
    files = list(dict.fromkeys(chain.from_iterable(groups)))
    if not files:
        raise FileNotFoundError(f"No file matches {text}; check the pattern.")
    return files


def _inside(folder: Path) -> list[Path]:
    files = sorted(
        file
        for file in folder.rglob("*")
        if _suffix_format(file) and file.is_file() and not _is_hidden(file, folder)
    )
    if not files:
        raise DataError(
            f"Folder {folder} holds no data file; name a file, or a folder of files that end "
            f"in one of {', '.join(_FORMATS)}."
        )
    return files


def _is_hidden(file: Path, root: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(root).parts)


def format_of(path: Any) -> str:
    """Return the format of the files of a path, a pattern or a list."""
    return common_format(find_files(path))


def common_format(files: Sequence[Path]) -> str:
    first = {_file_format(file): file for file in reversed(files)}
    if len(first) > 1:
        two, one = list(first.values())[-2:]
        raise DataError(
            f"{one} and {two} have different formats; name files of one format, for example "
            f"by the pattern '{two.parent / ('*' + two.suffix)}'."
        )
    return next(iter(first))


def _suffix_format(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in PACKED
    kind = _FORMATS.get(suffixes[-1 - packed] if len(suffixes) > packed else "")
    return None if packed and kind in ("parquet", "npz", "npy") else kind


def _file_format(path: Path) -> str:
    kind = _suffix_format(path)
    if kind is None:
        raise DataError(
            f"{path}: unknown file format {''.join(path.suffixes[-2:])!r}; rename the "
            f"file to end in one of {', '.join(_FORMATS)} (text formats also with "
            f"{', '.join(PACKED)})."
        )
    return kind


class MultiSource(PagedSource):
    """The concatenated rows of several sources of one class with the same columns.

    Different types of numbers are converted to a common type that holds all values. A column
    must not mix text and numbers.
    """

    def __init__(self, parts: Sequence[Any], files: Sequence[Path]) -> None:
        self._parts, self._files = list(parts), list(files)
        first = self._parts[0]
        type(first).agree(self._parts)
        self._like(first)
        self.reading_bytes = max(part.reading_bytes for part in parts)
        self.kept_bytes = max(part.kept_bytes for part in parts)
        counts = [part.n_rows for part in parts]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.n_rows = int(self._starts[-1])
        self._lock = RLock()
        self._share()

    def _share(self) -> None:
        """Make all files share one pool of decoded data, whatever their number."""
        for part in self._parts:
            part._pool = self.pool

    def digest(self) -> bytes:
        return b"".join(part.digest() for part in self._parts)

    def block_starts(self) -> IntArray:
        firsts = zip(self._starts.tolist(), self._parts, strict=False)
        return np.concatenate([at + part.block_starts() for at, part in firsts])

    def target_chunks(self) -> Iterator[AnyArray]:
        self._require_target()
        for part in self._parts:
            yield from part.target_chunks()

    def _rows(self, start: int, stop: int) -> Batch:
        first = int(np.searchsorted(self._starts[1:-1], start, side="right"))
        last = max(int(np.searchsorted(self._starts, stop)), first + 1)
        batches = []
        for i in range(first, last):
            at, part = int(self._starts[i]), self._parts[i]
            with within(self._files[i]):
                batch = part.read(max(start - at, 0), min(stop - at, part.n_rows))
            batches.append(batch._replace(rows=batch.rows + at))
        return concat_batches(batches)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_parts": [copy(part) for part in self._parts]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()


def joined_source(
    files: Sequence[Path], opened: Callable[[Path, Sequence[str] | None], BatchSource],
    feature_names: Sequence[str] | None,
) -> BatchSource:  # fmt: skip
    """Return one source of all files; files without rows are left out.

    `opened` takes a file and the names of its features. By default these are the names in the
    first file.
    """
    parts: list[BatchSource] = []
    used: list[Path] = []
    for file in files:
        try:
            part = opened(file, parts[0].feature_names if parts else feature_names)
        except NoRows:
            if len(files) == 1:
                raise
            continue
        parts.append(part)
        used.append(file)
        if isinstance(part, ColumnSource) and isinstance(parts[0], ColumnSource):
            more = sorted(part.columns - parts[0].columns)
            if more and feature_names is None:
                raise DataError(
                    f"{file} has columns that {used[0]} lacks: "
                    f"{', '.join(map(repr, more[:10]))}; write them to all files, or name the "
                    "features (feature_names=)."
                )
    if not parts:
        raise NoRows(f"None of {len(files)} files such as {files[0]} has a data row.")
    return parts[0] if len(parts) == 1 else MultiSource(parts, used)
