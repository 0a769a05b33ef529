"""A memory limit is a bound: measured in processes of their own, above the data."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.objectives import limits
from benchmarks.objectives._limits_case import CASES

import kernelgrad as kg
from kernelgrad import CapabilityError, KernelRegressor
from kernelgrad.compute import memory
from kernelgrad.compute.threads import one_thread
from kernelgrad.search.leave_one_out import inverse
from kernelgrad.search.machine import Machine, Sample
from kernelgrad.solvers import DSG, BlockDescent
from kernelgrad.solvers import contract as base

measured = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the system tells no memory"
)


def test_a_limit_leaves_fewer_threads():
    kg.set_num_threads(8)
    with memory.within(2e8):
        assert kg.get_num_threads() == 3
        with memory.within(1.0), one_thread():
            assert kg.get_num_threads() == 1
    with memory.within(None):
        assert kg.get_num_threads() == 8


def test_matrices_of_a_search_are_made_in_place():
    rng = np.random.default_rng(0)
    rows = Sample(rng.standard_normal((2000, 3)), rng.standard_normal((2000, 1)), np.ones(2000))
    theta = {"smooth": np.zeros(1), "ridge": np.log([1e-3])}  # in float64
    machine = Machine(2.5, np.zeros(3, np.intp), theta)
    tracemalloc.start()
    try:
        K = machine.matrix(rows)
        assert tracemalloc.get_traced_memory()[1] < 2.0 * K.nbytes
        tracemalloc.reset_peak()
        C = inverse(K, np.full(2000, 0.1))
        assert tracemalloc.get_traced_memory()[1] < 1.5 * K.nbytes
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(C, C.T)
    again = C @ machine.matrix(rows)[:, :3] + 0.1 * C[:, :3]
    np.testing.assert_allclose(again, np.eye(2000, 3), atol=1e-9)


@measured
@pytest.mark.slow
@pytest.mark.parametrize("limit", [100.0, 300.0, 1000.0])
@pytest.mark.parametrize("name", sorted(CASES))
def test_everything_holds_its_limit_or_refuses(name, limit):
    case = {"name": name, "rows": 100_000, "columns": 30, "limit": limit, "threads": 2}
    result = limits.measured(case)
    assert result["holds"], result
    assert 0.0 < memory.available_bytes() <= memory.system_bytes()


def test_what_cannot_hold_a_limit_says_the_least_that_would_do(monkeypatch):
    monkeypatch.setattr(base, "available_bytes", lambda: 1e8)
    monkeypatch.setattr("kernelgrad.families.kernel.search", None)  # nothing is searched before
    for rows, columns, C, limit, options in (
        (200_000, 2, 1, 1e8, {"solver": "sdca"}),
        (80_000, 2, 20, 1e8, {"solver": "block_descent"}),
        # rows beside those held out are a copy
        (160_000, 30, 1, 1e8, {"solver": "block_descent", "early_stopping": True}),
        # without a limit there is what is free
        (2000, 2, 1, None, {"solver": DSG(block_size=1600), "alpha": "auto"}),
        (3000, 2, 1, None, {"solver": BlockDescent(block_size=3000)}),
    ):
        X = np.linspace(0.0, 1.0, columns * rows).reshape(rows, columns)
        options = {"gamma": 1.0, "alpha": 1e-4} | options
        model = KernelRegressor(memory_limit=limit, **options)
        with pytest.raises(CapabilityError, match="needs at least") as error:
            model.fit(X, np.tile(X[:, :1], C))
        least = float(str(error.value).split(" bytes")[0].split()[-1])
        assert 1e8 < least < 3e8


def test_row_groups_too_large_for_a_limit_are_not_read(tmp_path):
    path, names = tmp_path / "wide.parquet", [f"x{k}" for k in range(100)]
    table = pa.table(dict.fromkeys([*names, "y"], np.zeros(10_000)))
    pq.write_table(table, path)
    model = KernelRegressor(memory_limit=1e8, gamma=1.0, alpha=1e-3, max_iter=1, solver="dsg")
    with pytest.raises(CapabilityError, match=r"needs at least .* smaller row groups"):
        model.fit(kg.open_source(path, target="y"))
    pq.write_table(table, path, row_group_size=1000)
    assert model.fit(kg.open_source(path, target="y")).n_iter_ == 1
    assert model.expansion_.stream.cache_bytes == 1e8 / 4
