"""Loaded models under load: many threads at once, many models one after another."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.testing.warmup import default_fits

slow = pytest.mark.slow
STATM = Path("/proc/self/statm")
X = np.random.default_rng(0).standard_normal((100, 4))
Y = np.sin(2 * X[:, 0]) + X[:, 1]
CORE = [kg.KernelClassifier, kg.LinearRegressor]


def used(model, parts, start, seed):
    """Return, once all threads are there, predictions of all parts in an order of their own."""
    start.wait()
    method = getattr(model, "transform" if hasattr(model, "transform") else "predict")
    return {j: method(parts[j]) for j in np.random.default_rng(seed).permutation(len(parts))}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("n", "rounds", "classes"), [(8, 1, CORE), pytest.param(64, 20, None, marks=slow)]
)
def test_threads_share_a_loaded_model(tmp_path, n, rounds, classes):
    parts = [np.random.default_rng(i).standard_normal((1 + 7 * i, 4)) for i in range(5)]
    with ThreadPoolExecutor(n) as pool:
        for estimator, y in default_fits(Y, classes):
            estimator.fit(X, y).save(tmp_path / "m.kgm")
            expected = used(kg.load(tmp_path / "m.kgm"), parts, threading.Barrier(1), 0)
            for _ in range(rounds):
                # nothing is cached yet
                model, start = kg.load(tmp_path / "m.kgm"), threading.Barrier(n)
                waiting = [pool.submit(used, model, parts, start, i) for i in range(n)]
                for j, value in (pair for each in waiting for pair in each.result().items()):
                    assert np.array_equal(value, expected[j]), (model, j)


@pytest.mark.skipif(not STATM.exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("n", [20, pytest.param(1000, marks=slow)])
def test_models_that_are_dropped_leave_nothing(tmp_path, n):
    rows = np.random.default_rng(0).standard_normal((1000, 200))
    model = kg.KernelRegressor(solver="block_descent", gamma=0.01, max_iter=1, alpha=1e-3)
    model.fit(rows, rows[:, 0]).save(tmp_path / "m.kgm")

    def serve(times):
        for _ in range(times):
            kg.load(tmp_path / "m.kgm").predict(rows[:50])
        gc.collect()
        handles = len(list(Path("/proc/self/fd").iterdir()))
        return int(STATM.read_text().split()[1]) * 4096, handles

    serve(20)
    before, after = serve(2), serve(n)
    # much less than the files that were read; allocators keep some pages
    assert after[0] - before[0] < 0.2 * n * (tmp_path / "m.kgm").stat().st_size
    assert after[1] == before[1]
