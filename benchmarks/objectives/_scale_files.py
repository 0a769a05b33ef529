"""Files of ``scale`` and the functions behind them, for peers without kernelgrad too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

GROUP = 2**17  # rows of a row group
NOISE, TEST_ROWS = 0.1, 20_000


def ten_columns(X: Any) -> Any:
    """Return ``sin(2 x_0 + x_1) + x_2 cos x_3`` of columns first."""
    return np.sin(2 * X[0] + X[1]) + X[2] * np.cos(X[3])


def fine(X: Any) -> Any:
    """Return products of sines, each with two turns within two deviations of its column."""
    return np.sin(3 * X[0]) * np.sin(3 * X[1]) + np.sin(3 * X[2]) * np.cos(3 * X[3])


FUNCTIONS: dict[str, Callable[[Any], Any]] = {"ten columns": ten_columns, "fine": fine}


def write(path: Path, function: str, rows: int, columns: int) -> None:
    """Write normal float32 columns, a target with noise and ten classes of it by row groups.

    Longer files begin with the rows of shorter ones. A whole file that is there is kept.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.exists() and pq.read_metadata(path).num_rows == rows:
        return
    names = [f"x{k}" for k in range(columns)]
    schema = pa.schema([(name, pa.float32()) for name in [*names, "y"]] + [("c", pa.int8())])
    part = path.with_suffix(".part")
    with pq.ParquetWriter(part, schema, use_dictionary=False) as writer:
        for group, start in enumerate(range(0, rows, GROUP)):
            rng = np.random.default_rng([0, columns, group])
            X = rng.standard_normal((columns, GROUP), np.float32)[:, : rows - start]
            noise = rng.standard_normal(GROUP, np.float32)[: rows - start]
            y = FUNCTIONS[function](X) + np.float32(NOISE) * noise
            c = np.clip(np.floor(2 * y) + 5, 0, 9).astype(np.int8)
            table = dict(zip(names, X, strict=True)) | {"y": y, "c": c}
            writer.write_table(pa.table(table, schema=schema))
    part.rename(path)


def rmse(predict: Callable[[Any], Any], function: str, columns: int) -> float:
    """Return the error of predictions of other rows to the function without noise."""
    X = np.random.default_rng([1, columns]).standard_normal((columns, TEST_ROWS), np.float32)
    f = FUNCTIONS[function](X)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        found = predict(np.ascontiguousarray(X.T))
    return float(np.sqrt(np.mean((np.ravel(found) - f) ** 2)))
