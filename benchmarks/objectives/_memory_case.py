"""What ``memory`` measures, one fit a process: warm, from arrays or from a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets.archives import Flights13
from benchmarks.objectives._shared import MIB, peak, serve
from benchmarks.registry import Row, SkipError
from kernelgrad import KernelRegressor, open_source
from kernelgrad.data import sample_batches


def main(case: Row) -> Iterator[Row]:
    """Fit, and for files also read one whole epoch of batches."""
    kind, max_iter, path = case["kind"], case["max_iter"], case.get("path")
    random = np.random.default_rng(0)
    X: Any = random.standard_normal((600, 8)).astype(np.float32)
    small = KernelRegressor(max_iter=2, random_state=0).fit(X, X[:, 0])
    small.predict(X)
    y: Any = None
    if path is not None:
        import pyarrow.parquet  # noqa: F401 - its code is not what is measured
    baseline = peak()
    if kind == "warm":
        yield {"baseline MiB": baseline}
        return
    model = KernelRegressor(max_iter=max_iter, random_state=0, standardize=True)
    if kind == "parquet":
        assert path is not None
        source = open_source(path, target="y")
        model.fit(source)
        n, data_bytes = source.n_rows, Path(path).stat().st_size
    else:
        try:
            data = Flights13().load()
        except SkipError as reason:
            yield {"skipped": str(reason)}
            return
        X, y = data.X_train, data.y_train
        model.fit(X, y)
        n, data_bytes = len(y), X.nbytes + y.nbytes
    result = {
        "rows": n,
        "data MiB": data_bytes / MIB,
        "baseline MiB": baseline,
        "fit MiB": peak() - baseline,
        "model KiB": model.model_info()["bytes"] / 1024,
    }
    if kind == "parquet":
        size = model.solver_.resolve_batch_size(n)
        read = sum(
            len(b.batch.rows) for b in sample_batches(source, size, seed=0, max_epochs=1)
        )
        result |= {"fit + epoch MiB": peak() - baseline, "rows in epoch": read}
    yield result


if __name__ == "__main__":
    serve(main)
