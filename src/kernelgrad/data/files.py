"""Finds the files of a source and their format."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from kernelgrad.data.text import OPENERS
from kernelgrad.exceptions import DataError
from kernelgrad.files.disk import special

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
    packed = bool(suffixes) and suffixes[-1] in OPENERS
    kind = _FORMATS.get(suffixes[-1 - packed] if len(suffixes) > packed else "")
    return None if packed and kind in ("parquet", "npz", "npy") else kind


def _file_format(path: Path) -> str:
    kind = _suffix_format(path)
    if kind is None:
        raise DataError(
            f"{path}: unknown file format {''.join(path.suffixes[-2:])!r}; rename the "
            f"file to end in one of {', '.join(_FORMATS)} (text formats also with "
            f"{', '.join(OPENERS)})."
        )
    return kind
