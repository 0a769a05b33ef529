"""One fit in a process of its own; prints its memory as JSON.

``python -m benchmarks.objectives._memory_case warm|arrays|parquet MAX_ITER [PATH]``
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets.archives import Flights13
from benchmarks.registry import SkipError
from kernelgrad import KernelRegressor, open_source
from kernelgrad.data import sample_batches

MIB = 2**20


def peak() -> float:
    """Return this program's peak resident MiB.

    ``VmHWM`` where the system has it: ``getrusage`` counts what the parent held before exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / MIB if sys.platform == "darwin" else used / 1024


def main(kind: str, max_iter: int, path: str | None) -> dict[str, Any]:
    """Fit, and for files also read one whole epoch of batches."""
    random = np.random.default_rng(0)
    X: Any = random.standard_normal((600, 8)).astype(np.float32)
    small = KernelRegressor(max_iter=2, random_state=0).fit(X, X[:, 0])
    small.predict(X)
    y: Any = None
    if path is not None:
        import pyarrow.parquet  # noqa: F401 - its code is not what is measured
    baseline = peak()
    if kind == "warm":
        return {"baseline MiB": baseline}
    model = KernelRegressor(max_iter=max_iter, random_state=0, standardize=True)
    if kind == "parquet":
        assert path is not None
        source = open_source(path, target="y")
        model.fit(source)
        n, data_bytes = source.n_rows, Path(path).stat().st_size
    else:
        data = Flights13().load()
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
    return result


if __name__ == "__main__":
    try:
        print(json.dumps(main(sys.argv[1], int(sys.argv[2]), (sys.argv[3:] or [None])[0])))
    except SkipError as reason:
        print(json.dumps({"skipped": str(reason)}))
