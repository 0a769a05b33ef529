"""Peak memory of fits from arrays and from files of growing length."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from benchmarks.objectives._shared import answer, middle_row
from benchmarks.registry import Objective, Row, SkipError

GROUP = 2**17


def write_parquet(path: Path, rows: int) -> None:
    """Write 8 float32 columns and a target, one row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    names = [f"x{k}" for k in range(8)]
    schema = pa.schema([(name, pa.float32()) for name in [*names, "y"]])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, GROUP):
            X = random.standard_normal((8, min(GROUP, rows - start)), np.float32)
            table = dict(zip(names, X, strict=True)) | {"y": np.sin(X[0]) + X[1] * X[2]}
            writer.write_table(pa.table(table, schema=schema))


class Memory(Objective):
    """Peak resident memory above a process that has imported and compiled everything.

    Every case has a process of its own. Files hold random rows, so that they do not
    compress; after the fit the process also draws every batch of one whole epoch, because a
    short fit touches only a part of a long file.
    """

    name: ClassVar[str] = "memory"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add lengths and iterations."""
        parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7])
        parser.add_argument("--max-iter", type=int, default=20)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the cases in turn in every repeat."""
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise SkipError("Parquet files need pyarrow") from error
        lengths = [5_000] if args.quick else args.rows
        max_iter = 2 if args.quick else args.max_iter
        if not args.quick:
            answer(
                "_memory_case", {"kind": "warm", "max_iter": 1}
            )  # fills the compiler's cache, so that no case compiles
        results: dict[str, list[Row]] = {}
        with tempfile.TemporaryDirectory() as folder:
            files = {}
            for rows in lengths:
                files[f"Parquet, {rows:,} rows"] = path = Path(folder) / f"{rows}.parquet"
                write_parquet(path, rows)
            for _ in range(args.repeat):
                case: Row = {"kind": "arrays", "max_iter": max_iter}
                arrays = answer("_memory_case", case)
                if "skipped" not in arrays:
                    results.setdefault("flights13 in memory", []).append(arrays)
                for name, path in files.items():
                    found = answer(
                        "_memory_case", case | {"kind": "parquet", "path": str(path)}
                    )
                    results.setdefault(name, []).append(found)
        if "skipped" in arrays:
            print(f"flights13 skipped: {arrays['skipped']}")
        for name, runs in results.items():
            yield "peak memory", {"data": name, **middle_row(runs), "iterations": max_iter}
