"""Data files: CSV, LIBSVM, NumPy and Parquet."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fuzz.mutate import mutate_bytes, mutate_text
from fuzz.target import Finding, Target
from kernelgrad import DataError
from kernelgrad.data import Batch, open_source
from kernelgrad.data.base import is_frame
from kernelgrad.inputs import columns_of
from kernelgrad.tables import Table


class _Reader(Target):
    """Files that `open_source` opens."""

    clear = (DataError,)

    def use(self, path: Path) -> bytes:
        """Read the targets, all rows, and some rows at random."""
        digest = hashlib.sha256()
        source = open_source(path, **self.options(path.name))
        digest.update(repr((source.n_rows, source.n_features, source.feature_names)).encode())
        if source.has_target:
            digest.update(repr(source.summarize_target()).encode())
        for batch in source.chunks(1000):
            _add(digest, batch, path.name)
        rows = np.random.default_rng(0).integers(source.n_rows, size=min(20, source.n_rows))
        _add(digest, source.take(rows), path.name)
        return digest.digest()

    def options(self, name: str) -> dict[str, Any]:
        """Return the arguments of `open_source`, which depend on the name of the seed."""
        return {}


def _add(digest: Any, batch: Batch, name: str) -> None:
    if is_frame(batch.X):
        columns = columns_of(batch.X)
        assert columns is not None
        try:
            table = Table.learn(columns, None, targets=False, declared=True)
            codes = table.codes(columns)
        except DataError as error:  # it names the column
            raise DataError(f"{name}: {error}") from None
        encoded = table.fit(codes, None, 0)
        if not np.isfinite(encoded).all():
            raise Finding("a table whose encoding is not finite")
        digest.update(repr(table.columns).encode() + codes.tobytes() + encoded.tobytes())
    else:
        X = batch.X
        parts = (X.data, X.indices, X.indptr) if sp.issparse(X) else (np.asarray(X),)
        if not np.isfinite(parts[0]).all():
            raise Finding("features that are not finite")
        for part in parts:
            digest.update(f"{part.dtype} {part.shape}".encode() + part.tobytes())
    digest.update(repr(None if batch.y is None else batch.y.tolist()).encode())
    if batch.sample_weight is not None:
        if not (np.isfinite(batch.sample_weight) & (batch.sample_weight >= 0)).all():
            raise Finding("weights that are no weights")
        digest.update(batch.sample_weight.tobytes())


class _Text(_Reader):
    def mutate(self, name: str, data: bytes, rng: np.random.Generator) -> tuple[bytes, bool]:
        """Change the text, or the compressed bytes, whose checksum tells."""
        others = [text for other, text in self.inputs.items() if not other.endswith(".gz")]
        if not name.endswith(".gz"):
            return mutate_text(data, rng, others), True
        try:
            text = gzip.decompress(data) if rng.random() < 0.5 else None
        except (OSError, EOFError, zlib.error):  # damaged before
            text = None
        if text is None:
            changed = mutate_bytes(data, rng)
            return changed, changed.count(data[:3]) > 1  # another part is another file
        text = mutate_text(text, rng, others)
        return gzip.compress(text, compresslevel=1, mtime=0), True


class Csv(_Text):
    """Tables with a header, as numbers or (``frame``) as Arrow tables."""

    name = "csv"

    def options(self, name: str) -> dict[str, Any]:
        """Name the columns ``y`` and ``w``."""
        frame = "frame" in name
        return {"target": "y", "weight": None if frame else "w", "as_frame": frame}


class Libsvm(_Text):
    """Sparse rows."""

    name = "libsvm"


class Npz(_Reader):
    """Archives, whose checksums are made anew at times, and arrays."""

    name = "npz"

    def options(self, name: str) -> dict[str, Any]:
        """Name targets and weights: without a name, archives without them are read, too."""
        target = "y_train" if "packed" in name else "y"
        target = None if "array" in name or "sparse" in name else target
        return {"target": target, "weight": "w" if "weight" in name else None}

    def mutate(self, name: str, data: bytes, rng: np.random.Generator) -> tuple[bytes, bool]:
        """Change the bytes of the file, or of an array in it."""
        if name.endswith(".npy"):
            return _array(data, rng), True
        if rng.random() < 0.4:
            return mutate_bytes(data, rng), False
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                arrays = {item: archive.read(item) for item in archive.infolist()}
            chosen = list(arrays)[int(rng.integers(len(arrays)))]
        except Exception:  # a corpus file that is no archive any more, or an empty one
            return mutate_bytes(data, rng), True
        arrays[chosen] = _array(arrays[chosen], rng)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for item, content in arrays.items():
                archive.writestr(item, content, item.compress_type)
        return stream.getvalue(), True


def _array(data: bytes, rng: np.random.Generator) -> bytes:
    """Return an .npy array with changes of its header, whose length stays right, or others."""
    if len(data) < 10 or rng.random() < 0.4:
        return mutate_bytes(data, rng)
    (length,) = struct.unpack("<H", data[8:10])
    header = mutate_text(data[10 : 10 + length], rng)
    return data[:8] + struct.pack("<H", len(header) % 2**16) + header + data[10 + length :]


class Parquet(_Reader):
    """Parquet files, changed mostly in their footer."""

    name = "parquet"

    def options(self, name: str) -> dict[str, Any]:
        """Name the columns ``y`` and ``w``."""
        frame = "frame" in name
        return {"target": "y", "weight": None if frame else "w", "as_frame": frame}

    def mutate(self, name: str, data: bytes, rng: np.random.Generator) -> tuple[bytes, bool]:
        """Change bytes of the footer, whose length is made anew, or any bytes."""
        length = int.from_bytes(data[-8:-4], "little")
        if not 0 < length < len(data) - 8 or rng.random() < 0.3:
            return mutate_bytes(data, rng, list(self.inputs.values())), True
        start = len(data) - 8 - length
        footer = mutate_bytes(data[start:-8], rng)
        if rng.random() < 0.2:
            data = mutate_bytes(data[:start], rng) + data[start:]
            start = len(data) - 8 - length
        return data[:start] + footer + len(footer).to_bytes(4, "little") + data[-4:], True
