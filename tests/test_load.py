"""Loaded models under load: many threads at once, many models one after another."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.testing.estimator import _outputs

slow = pytest.mark.slow
STATM = Path("/proc/self/statm")


def rows(n=200, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, 4))
    return X, np.sin(2 * X[:, 0]) + X[:, 1]


def saved(folder):
    """Return the files of models of every kind of function and output."""
    X, y = rows()
    k = np.digitize(y, (-0.5, 0.5))
    given = {"gamma": 0.3, "max_iter": 5, "random_state": 0}
    models = [
        kg.KernelClassifier(solver="dsg", **given).fit(X, k),
        kg.KernelClassifier("hinge", solver="working_set", multi_class="ovo", **given).fit(
            X, k
        ),
        kg.KernelRegressor(random_state=0).fit(X, y),
        kg.KernelGaussianProcessRegressor(gamma=0.3, random_state=0).fit(X, y),
        kg.LinearClassifier(random_state=0).fit(X, k),
        kg.KernelNoveltyDetector(**given).fit(X),
        kg.KernelDensityRatio(**given).fit(X, k == 0),
        kg.SemiSupervisedKernelClassifier(**given).fit(
            X, np.where(np.arange(200) % 3, -1, k > 0)
        ),
    ]
    for i, model in enumerate(models):
        model.save(folder / f"{i}.kgm")
    return sorted(folder.glob("*.kgm"))


def served(model, parts, start, seed):
    """Return, once all threads are there, the outputs of all parts in an order of their own."""
    start.wait()
    order = np.random.default_rng(seed).permutation(len(parts)).tolist()
    return {j: _outputs(model, parts[j]) for j in order}


@pytest.mark.parametrize(("n", "rounds"), [(8, 1), pytest.param(64, 20, marks=slow)])
def test_threads_share_a_loaded_model(tmp_path, n, rounds):
    parts = [rows(1 + 7 * i, seed=i)[0] for i in range(5)]
    with ThreadPoolExecutor(n) as pool:
        for path in saved(tmp_path):
            twin = kg.load(path)
            expected = [_outputs(twin, part) for part in parts]
            for _ in range(rounds):
                model, start = kg.load(path), threading.Barrier(n)  # nothing is cached yet
                waiting = [pool.submit(served, model, parts, start, i) for i in range(n)]
                for j, value in (pair for each in waiting for pair in each.result().items()):
                    for name, known in expected[j].items():
                        assert np.array_equal(value[name], known), (model, name, j)


@pytest.mark.skipif(not STATM.exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("n", [40, pytest.param(1000, marks=slow)])
def test_models_that_are_dropped_leave_nothing(tmp_path, n):
    X = np.random.default_rng(0).standard_normal((2000, 200))
    given = {"gamma": 0.01, "max_iter": 1, "random_state": 0, "alpha": 1e-3}
    for i, solver in enumerate(("cached", "pegasos")):
        kg.KernelRegressor(solver=solver, **given).fit(X, X[:, 0]).save(tmp_path / f"{i}.kgm")
    paths = sorted(tmp_path.glob("*.kgm"))

    def serve(times):
        for i in range(times):
            kg.load(paths[i % 2]).predict(X[:50])
        gc.collect()
        handles = len(list(Path("/proc/self/fd").iterdir()))
        return int(STATM.read_text().split()[1]) * 4096, handles

    serve(20)
    before, after = serve(2), serve(n)
    size = sum(path.stat().st_size for path in paths) / 2
    # much less than the files that were read; allocators keep some pages
    assert after[0] - before[0] < 0.2 * n * size
    assert after[1] == before[1]
