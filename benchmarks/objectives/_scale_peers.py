"""Gradient boosting from a Parquet file, for ``scale``; kernelgrad need not be installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.objectives._scale_files import rmse
from benchmarks.objectives._shared import MIB, lowered_peak, peak, serve, timed
from benchmarks.registry import Row

BIN_ROWS = 2**15  # read at once


def boosting(case: Row) -> Row:
    """Fit LightGBM as it comes; rows are binned piece by piece and never all in memory."""
    import pyarrow.parquet as pq

    lgb = import_module("lightgbm")
    file = pq.ParquetFile(case["path"])
    starts = np.cumsum([0, *(file.metadata.row_group(g).num_rows for g in range(
        file.num_row_groups))])  # fmt: skip

    class Rows(lgb.Sequence):  # type: ignore[name-defined, misc]
        batch_size = BIN_ROWS

        def __init__(self) -> None:
            self._group, self._X = -1, np.empty((0, 0))

        def __len__(self) -> int:
            return int(starts[-1])

        def _of(self, group: int) -> Any:
            if group != self._group:
                table = file.read_row_group(group).drop_columns(["y", "c"])
                self._X = np.column_stack([c.to_numpy() for c in table.columns])
                self._group = group
            return self._X

        def __getitem__(self, rows: Any) -> Any:
            if not isinstance(rows, slice):
                group = int(np.searchsorted(starts, rows, "right")) - 1
                return self._of(group)[rows - starts[group]].astype(np.float64)
            low, high, _ = rows.indices(len(self))
            first, last = np.searchsorted(starts, [low, high - 1], "right") - 1
            parts = [
                self._of(g)[max(low, starts[g]) - starts[g] : high - starts[g]]
                for g in range(first, last + 1)
            ]
            return np.concatenate(parts).astype(np.float64)

    def fit() -> Any:
        target = file.read(["y"])["y"].to_numpy()
        params = {"verbosity": -1, "objective": "regression", "num_threads": case["threads"]}
        data = lgb.Dataset(Rows(), target, params={**params, "free_raw_data": True})
        return lgb.train(params, data, num_boost_round=100)

    baseline = lowered_peak()
    seconds, model = timed(fit)
    return {
        "fit s": seconds,
        "peak MB": (peak() - baseline) * MIB / 1e6,
        "RMSE": rmse(model.predict, case["function"], case["columns"]),
    }


def main(case: Row) -> Iterator[Row]:
    """Answer with a fit, or say what is not here."""
    absent = [name for name in ("lightgbm", "pyarrow") if not find_spec(name)]
    yield {"skipped": f"{absent[0]} is not installed"} if absent else boosting(case)


if __name__ == "__main__":
    serve(main)
