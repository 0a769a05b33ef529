"""Finds the files of a source and their format."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from kernelgrad.data.text import OPENERS, read_lines
from kernelgrad.exceptions import DataError
from kernelgrad.files.disk import special

PathLike: TypeAlias = str | os.PathLike[str]

_FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".txt": "text", ".dat": "text", ".svm": "libsvm",
    ".libsvm": "libsvm", ".svmlight": "libsvm", ".parquet": "parquet", ".pq": "parquet",
    ".npz": "npz", ".npy": "npy",
}  # fmt: skip
_LIBSVM_LINE = re.compile(rb"\s*[^\s:,;]+(\s+(qid|\d+):\S+)+\s*(#.*)?$")
_MISSING = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class DataFile:
    """A file, and the columns given by names of its folders, such as ``year=2020``.

    Each of these columns has an Arrow type, or the name of one, and a value.
    """

    path: Path
    keys: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


def find_files(path: Any) -> list[DataFile]:
    """Return the files of a path, a pattern, a list of these, or an Arrow dataset.

    Files of folders and patterns are sorted by name within each folder; lists keep their order.
    """
    if hasattr(path, "get_fragments"):
        return _of_dataset(path)
    if isinstance(path, str | os.PathLike):
        root, files = _expand(path)
    else:
        files = [file for one in path for file in _expand(one)[1]]
        if not files:
            raise FileNotFoundError("The list of files is empty; name at least one.")
        root = Path(os.path.commonpath([os.path.abspath(file.parent) for file in files]))
    for file in files:
        kind = special(file)
        if kind is not None:
            raise DataError(
                f"{file} is {kind}, which cannot be read twice; write the data to a file."
            )
    keys = [_keys(Path(os.path.relpath(file.parent, root)).parts) for file in files]
    texts = {name for own in keys for name, value in own.items() if not _is_integer(value)}

    def typed(name: str, value: str | None) -> tuple[str, Any]:
        if name in texts:
            return "string", value
        return "int64", None if value is None else int(value)

    return [
        DataFile(file, {name: typed(name, value) for name, value in own.items()})
        for file, own in zip(files, keys, strict=True)
    ]


def _expand(path: PathLike) -> tuple[Path, list[Path]]:
    """Return the root folder for columns from folder names, and the files of a path."""
    text, root = os.fspath(path), Path(path)
    if root.is_dir():
        return root, _inside(root)
    if root.exists():
        return root.parent, [root]
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
    return root, files


def _inside(folder: Path) -> list[Path]:
    files = sorted(
        file
        for file in folder.rglob("*")
        if _suffix_format(file) and file.is_file() and not _is_hidden(file, folder)
    )
    # notes next to data are not data
    files = [file for file in files if _suffix_format(file) != "text"] or files
    if not files:
        raise DataError(
            f"Folder {folder} holds no data file; name a file, or a folder of files that end "
            f"in one of {', '.join(_FORMATS)}."
        )
    return files


def _is_hidden(file: Path, root: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(root).parts)


def _keys(folders: Sequence[str]) -> dict[str, str | None]:
    pairs = (folder.split("=", 1) for folder in folders if "=" in folder)
    return {unquote(k): None if v == _MISSING else unquote(v) for k, v in pairs}


def _is_integer(text: str | None) -> bool:
    return text is None or re.fullmatch(r"-?\d{1,18}", text) is not None


def _of_dataset(dataset: Any) -> list[DataFile]:
    from pyarrow.dataset import get_partition_keys

    if getattr(dataset, "_scan_options", None):
        raise DataError(
            "The Arrow dataset has a filter, which sources do not apply; write the filtered "
            "rows to files of their own."
        )
    files = []
    for part in dataset.get_fragments():
        values = get_partition_keys(part.partition_expression)
        keys = {
            field.name: (getattr(field.type, "value_type", field.type), values[field.name])
            for field in dataset.schema
            if field.name in values
        }
        files += [DataFile(Path(part.path), keys)] if hasattr(part, "path") else []
    if not files:
        raise DataError("The Arrow dataset has no files; give one that is made of files.")
    return sorted(files, key=lambda file: file.path)


def format_of(path: Any) -> str:
    """Return the format of the files of a path, a pattern, a list or an Arrow dataset."""
    return common_format(find_files(path))


def common_format(files: Sequence[DataFile]) -> str:
    first = {_file_format(file.path): file.path for file in reversed(files)}
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
    return _sniff(path) if kind == "text" else kind


def _sniff(path: Path) -> str:
    for line in islice(read_lines(path), 100):
        if line.strip() and not line.lstrip().startswith(b"#"):
            return "libsvm" if _LIBSVM_LINE.match(line) else "csv"
    return "csv"
