"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernelgrad.data.columns import ColumnSource
from kernelgrad.data.damage import decoding
from kernelgrad.data.paged import import_pyarrow

_READ_ROWS = 65536
_DECODED = 6.0  # memory per byte of a row group, with pages, dictionaries and Arrow's buffers
_WHOLE_ROWS = 1 << 18  # groups up to this size take less memory than the decoder itself


class ParquetSource(ColumnSource):
    """A Parquet file.

    Only the needed columns are read. Large row groups are decoded in order, 65,536 rows at a
    time: consecutive reads continue where the last one ended, others start at the beginning of
    a row group. Features are float32 if float32 represents every feature column exactly
    (float16, float32, booleans and integers up to 16 bits), otherwise float64.

    Parameters
    ----------
    path : path
        The file.
    target, weight, drop, feature_names, as_frame, keys
        As in :class:`ColumnSource`.
    """

    def _open(self, drop: Sequence[str], feature_names: Sequence[str] | None) -> None:
        import_pyarrow()
        import pyarrow.parquet as pq

        with decoding(self._path, "is not a readable Parquet file", "write it again"):
            self._metadata = metadata = pq.read_metadata(self._path)
            self._schema = metadata.schema.to_arrow_schema()
            with pq.ParquetFile(self._path, metadata=metadata) as stream:
                # metadata.row_group(g) and its columns can crash the process if the footer is
                # damaged; the reader does not
                groups = range(metadata.num_row_groups)
                counts = [stream.read_row_group(g, columns=[]).num_rows for g in groups]
            if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
                raise ValueError(f"its row groups do not add up to {metadata.num_rows} rows")
        self._set_columns(self._schema.names, drop, feature_names)
        self._set_groups(counts)
        self._set_types()
        most = min(max(counts), _WHOLE_ROWS)
        self.reading_bytes = _DECODED * most * self.n_features * self._dtype.itemsize
        self.kept_bytes = self.reading_bytes  # the row group that is read

    def _tables(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield tables of some columns, from the given row group to the end."""
        pa = import_pyarrow()
        import pyarrow.parquet as pq

        # 64 KiB of a column at a time, not the whole row group
        options = {"buffer_size": 1 << 16, "pre_buffer": False}
        options |= {"page_checksum_verification": True}  # if the file has checksums
        with (
            decoding(self._path, "cannot be decoded", "it is damaged, write it again"),
            pq.ParquetFile(self._path, metadata=self._metadata, **options) as stream,
        ):
            for at, n_rows in enumerate(np.diff(self._groups)[group:].tolist(), group):
                batches = stream.iter_batches(
                    batch_size=_READ_ROWS,
                    row_groups=[at],  # no other group is decoded ahead
                    columns=self._stored(columns),
                    use_threads=False,
                )
                for batch in list(batches) if n_rows <= _WHOLE_ROWS else batches:
                    batch.validate(full=True)  # Arrow has not checked text and category codes
                    yield self._completed(pa.Table.from_batches([batch]), columns)
