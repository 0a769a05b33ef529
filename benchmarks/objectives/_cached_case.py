"""What ``cached_growth`` and ``cached_fractions`` measure, one case a process."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from benchmarks.objectives._cached_clock import Clock, instrumented
from benchmarks.objectives._curves import DATASETS
from benchmarks.objectives._shared import serve, timed, timed_peak
from benchmarks.registry import Row, SkipError
from kernelgrad import KernelClassifier, KernelRegressor, set_num_threads
from kernelgrad.kernels import get_kernel
from kernelgrad.solvers.block_descent.solver import CachedBlockDescent

COLUMNS = 20
HELD_OUT = 10_000
WARM_ROWS = 600
BYTES_A_ROW = 300  # rows as given and as prepared, responses and work arrays
WORK_BYTES = 64 * 2**20  # that a fit reserves for its Hessian and tiles


def digest(values: Any) -> str:
    """Return a few letters that stand for the bits of an array."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


# Growth


def two_classes(rows: int, seed: int) -> tuple[Any, Any, Any]:
    """Return float32 rows of normal numbers, noisy labels, and what they are without noise."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((rows, COLUMNS), np.float32)
    f = X[:, 0] * X[:, 1] + X[:, 2]
    noisy = f + 0.3 * random.standard_normal(rows, np.float32)
    return X, np.where(noisy > 0, 1, -1), np.where(f > 0, 1, -1)


def memory_limit(rows: int, width: int, *, stored: bool) -> int:
    """Return bytes that leave room for rows and responses, and for block values if asked."""
    return WORK_BYTES + rows * (BYTES_A_ROW + (4 * width if stored else 0))


def growth(rows: int, stored: bool, blocks: int, width: int) -> Row:
    """Return seconds per block, peak memory, error and a digest of the model."""
    X_test, y_test, clean = two_classes(HELD_OUT, 1)
    X, y, _ = two_classes(rows, 0)

    def machine(n: int, max_iter: int) -> KernelClassifier:
        return KernelClassifier(
            loss="log_loss",
            gamma=1 / 80,
            C=1.0,
            solver=CachedBlockDescent(block_size=width, tol=0),
            max_iter=max_iter,
            memory_limit=memory_limit(n, width, stored=stored),
            random_state=0,
        )

    # as many rows as keep the block narrower than the rows: the code of the true fit
    n_warm = min(rows, max(WARM_ROWS, 2 * width))
    machine(n_warm, 2).fit(X[:n_warm], y[:n_warm]).decision_function(X_test[:WARM_ROWS])
    model = machine(rows, blocks)
    seconds, megabytes = timed_peak(model.fit, X, y)
    f = model.decision_function(X_test)
    history = model.history_
    each = np.diff(history["seconds"], prepend=0.0)
    return {
        "data GB": (X.nbytes + y.nbytes) / 1e9,
        "blocks": model.n_iter_,
        "s/block": median(each[1:]) if len(each) > 1 else None,
        "first block s": each[0],
        "fit s": seconds,
        "peak GB": megabytes / 1e3,
        "passes/block": history["kernel_evaluations"][-1] / (rows * width * model.n_iter_),
        "objective": history["objective"][-1],
        "support rows": model.n_support_,
        "error %": 100 * float(np.mean(y_test != np.where(f > 0, 1, -1))),
        "noise %": 100 * float(np.mean(y_test != clean)),
        "digest": digest(f),
    }


# Fractions


def fractions(dataset: str, rows: int | None, blocks: int, factor: float, C: float) -> Row:
    """Return seconds of a plain fit, and of one under a clock the seconds of every place."""
    source = DATASETS[dataset]
    try:
        data = source.load()
    except SkipError as error:
        return {"skipped": str(error)}
    chosen = np.random.default_rng(0).permutation(len(data.y_train))[:rows]
    X, y = data.X_train[chosen], data.y_train[chosen]
    gamma = get_kernel("rbf", gamma="median", bandwidth_factor=factor).resolve(X, 0).gamma_value
    estimator = KernelRegressor if source.task == "regression" else KernelClassifier

    def machine(max_iter: int) -> Any:
        return estimator(
            loss=source.loss, gamma=gamma, C=C, solver=CachedBlockDescent(),
            max_iter=max_iter, random_state=0,
        )  # fmt: skip

    def responses(model: Any) -> Any:
        return (model.predict if estimator is KernelRegressor else model.decision_function)(
            data.X_test[:WARM_ROWS]
        )

    n_warm = min(len(y), 4 * WARM_ROWS)
    responses(machine(2).fit(X[:n_warm], y[:n_warm]))
    model = machine(blocks)
    plain, _ = timed(model.fit, X, y)
    clock = Clock()
    again = machine(blocks)
    with instrumented(clock):
        cpu = time.process_time()
        wall, _ = timed(clock.timed("fit", again.fit), X, y)
        cpu = time.process_time() - cpu
    return {
        "rows": len(y),
        "columns": X.shape[1],
        "blocks": model.n_iter_,
        "fit s": plain,
        "timed s": wall,
        "cpu s": cpu,
        "same": digest(responses(model)) == digest(responses(again)),
        "places": clock.places(),
    }


def main(case: Row) -> Iterator[Row]:
    """Run one case."""
    kind, threads = case.pop("kind"), case.pop("threads")
    set_num_threads(threads)
    yield growth(**case) if kind == "growth" else fractions(**case)


if __name__ == "__main__":
    serve(main)
