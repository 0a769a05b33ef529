"""The benchmarks of cached-response block descent: growth with rows, and where time goes."""

import importlib
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg

import kernelgrad.solvers.block_descent.coordinates
import kernelgrad.solvers.block_descent.solver
from kernelgrad import KernelClassifier, set_num_threads
from kernelgrad.compute import threads
from kernelgrad.kernels import _tiles as exact
from kernelgrad.solvers.block_descent.solver import CachedBlockDescent

ROOT = Path(__file__).parents[1]


@pytest.fixture
def growth(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.objectives.cached_growth")


@pytest.fixture
def fractions(growth):
    return importlib.import_module("benchmarks.objectives.cached_fractions")


@pytest.fixture
def clocks(growth):
    return importlib.import_module("benchmarks.objectives._cached_clock")


@pytest.fixture
def run(growth, tmp_path):
    runner = importlib.import_module("benchmarks.run")

    def call(*args):
        out = tmp_path / "result.json"
        assert runner.main([*args, "--quick", "--json", str(out)]) == 0
        return json.loads(out.read_text())["tables"], out.with_suffix(".png").exists()

    return call


# Growth


def test_growth(run):
    tables, picture = run("cached_growth", "--blocks", "2")
    rows = tables["blocks over rows"]
    assert picture
    assert [(r["rows"], r["values"]) for r in rows] == [
        (4000, "stored"),
        (4000, "tiled"),
        (16000, "stored"),
        (16000, "tiled"),
    ]
    assert all(r["same"] and r["blocks"] == 2 and r["s/block"] > 0 for r in rows)
    assert rows[0]["digest"] == rows[1]["digest"] != rows[2]["digest"] == rows[3]["digest"]
    assert [r["passes/block"] for r in rows[::2]] == [1, 1]  # kept after the first pass
    assert all(r["passes/block"] >= 2 for r in rows[1::2])
    kept = 4 * 16000 * 256 / 1e9
    assert rows[2]["peak GB"] > kept
    assert rows[3]["peak GB"] < rows[2]["peak GB"] - 0.7 * kept
    assert 5 < rows[0]["noise %"] < rows[2]["error %"] < rows[0]["error %"] < 30
    assert [(g["values"], g["from"], g["to"]) for g in tables["growth between sizes"]] == [
        ("stored", 4000, 16000),
        ("tiled", 4000, 16000),
    ]


def test_powers_of_growth(growth):
    fits = [
        {"rows": n, "values": "tiled", "s/block": 1e-5 * n, "peak GB": 0.1 * n**0.5}
        for n in (1000, 100, 30_000)
    ]
    found = growth.exponents([*fits, {"rows": 100, "values": "stored", "skipped": "large"}])
    assert [(g["values"], g["from"], g["to"]) for g in found] == [
        ("tiled", 100, 1000),
        ("tiled", 1000, 30_000),
    ]
    for g in found:
        assert g["power of s/block"] == pytest.approx(1.0)
        assert g["power of peak GB"] == pytest.approx(0.5)


def test_block_values_that_memory_cannot_keep(growth, monkeypatch, tmp_path):
    assert growth.too_large(1000, 1000, 7_000_000) is None
    assert "4.2 GB" in growth.too_large(1_048_576, 1000, 6_900_000_000)

    def spawn(case):
        base = {"digest": f"{case['rows']}-{case['rows'] > 5000 and case['stored']}"}
        return base | {"s/block": 1e-6 * case["rows"], "peak GB": 1e-9 * case["rows"]}

    monkeypatch.setattr(growth, "spawn", spawn)
    monkeypatch.setattr(growth, "physical_memory", lambda: 250_000_000)
    objective = growth.CachedGrowth()
    args = SimpleNamespace(
        quick=False, rows=[40_000, 1000, 8000], block_size=1024, blocks=3, threads=1, repeat=1
    )
    tables = {}
    for table, row in objective.run(args):
        tables.setdefault(table, []).append(row)
    small, small_tiled, middle, _, large, large_tiled = tables["blocks over rows"]
    assert (small["rows"], small["same"], small_tiled["same"]) == (1000, True, True)
    assert (middle["rows"], middle["same"]) == (8000, False)
    assert (large["rows"], large["values"]) == (40_000, "stored")
    assert "0.2 GB of block values are more than 60%" in large["skipped"]
    assert (large_tiled["s/block"], large_tiled["same"]) == (0.04, None)
    assert objective.plot(tables, tmp_path / "picture.png")


def test_memory_limit_of_the_cases_is_the_one_that_decides(growth):
    case = importlib.import_module("benchmarks.objectives._cached_case")
    X, y, _ = case.two_classes(900, 3)
    evaluations = {}
    for stored in (True, False):
        limit = case.memory_limit(900, 128, stored=stored)
        model = KernelClassifier(
            loss="log_loss", gamma=0.02, max_iter=1, memory_limit=limit, random_state=0,
            solver=CachedBlockDescent(block_size=128),
        ).fit(X, y)  # fmt: skip
        evaluations[stored] = model.history_["kernel_evaluations"][-1]
    assert evaluations[True] == 900 * 128 < evaluations[False]


# Fractions


def test_a_place_does_not_count_what_is_inside_it(clocks):
    clock = clocks.Clock()
    inner = clock.timed("inner", lambda: time.sleep(0.08))

    def outer():
        time.sleep(0.04)
        inner()
        inner()

    with pytest.raises(ZeroDivisionError):
        clock.timed("failing", lambda: 1 / 0)()
    clock.timed("outer", outer)()
    places = clock.places()
    assert places["inner"] == [pytest.approx(0.16, abs=0.03), 2]
    assert places["outer"] == [pytest.approx(0.04, abs=0.03), 1]
    assert places["failing"][1] == 1
    assert clock.innermost() is None


def test_tiles_are_charged_to_who_hands_them_out(clocks):
    set_num_threads(2)
    clock = clocks.Clock()
    module = kernelgrad.solvers.block_descent.coordinates

    def caller():
        module.parallel_for(4, lambda i: time.sleep(0.05))
        time.sleep(0.05)

    with clocks.instrumented(clock):
        start = time.perf_counter()
        clock.timed("fit", caller)()
        wall = time.perf_counter() - start
    places = clock.places()
    assert places["fit, tiles"] == [pytest.approx(0.2, abs=0.06), 4]
    assert places["fit"][0] == pytest.approx(0.05, abs=0.03)
    found = clocks.shares(places, 2, wall)
    assert sum(found.values()) == pytest.approx(100)
    assert found["waiting"] == pytest.approx(100 * 0.05 / 0.3, abs=10)  # of the serial part


def small_fit(n=700):
    random = np.random.default_rng(0)
    X = random.standard_normal((n, 5)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    return KernelClassifier(
        loss="log_loss", gamma=0.2, max_iter=2, random_state=0,
        solver=CachedBlockDescent(block_size=100, tol=0),
    ).fit(X, y).decision_function(X)  # fmt: skip


def functions(clocks):
    for owner, name, _, _ in clocks.PLACES:
        yield vars(owner)[name]
    for module in list(sys.modules.values()):
        if "parallel_for" in vars(module):
            yield module.parallel_for


def test_the_clock_changes_no_bit_and_leaves_nothing_behind(clocks):
    set_num_threads(2)
    expected = small_fit()
    before = [*functions(clocks)]
    clock = clocks.Clock()

    def fit_and_fail():
        with clocks.instrumented(clock):
            np.testing.assert_array_equal(small_fit(), expected)
            assert (
                kernelgrad.solvers.block_descent.newton.parallel_for is not threads.parallel_for
            )
            raise KeyError

    with pytest.raises(KeyError):
        fit_and_fail()
    assert all(a is b for a, b in zip(before, functions(clocks), strict=True))
    places = clock.places()
    assert places["BlockMatrix.product"][1] == places["BlockMatrix.responses"][1] >= 2
    assert places["CachedBlockDescent.step"][1] == 2
    assert set(places) <= set(clocks.CATEGORY)
    working = (
        "compute.exact._dense",
        "compute.exact._finish",
        "scipy.linalg.cho_factor",
        "compute.descent.along, tiles",
        "ExactKernel.prepare, tiles",
        "compute.linalg.gram, tiles",
    )
    assert all(places[p][0] > 0 for p in working)


@pytest.mark.parametrize(
    ("owner", "name", "category"),
    [
        (exact, "_finish", "vector functions"),
        (np, "matmul", "BLAS products"),  # as it is called inside kernel tiles
        (scipy.linalg, "cho_factor", "factorisation"),
        (kernelgrad.solvers.block_descent.solver, "row_hashes", "data movement"),
        (kernelgrad.solvers.block_descent.newton, "minimise_on_span", "python and rest"),
    ],
)
def test_time_lost_somewhere_is_found_there(clocks, monkeypatch, owner, name, category):
    set_num_threads(1)
    original, calls, pause = getattr(owner, name), 0, 0.0

    def delayed(*args, **kwargs):
        nonlocal calls
        calls += 1
        time.sleep(pause)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, delayed)
    small_fit()  # compiles
    found = []
    for lost in (0.0, 0.5):
        pause, calls = lost / max(1, calls), 0
        clock = clocks.Clock()
        with clocks.instrumented(clock):
            start = time.perf_counter()
            clock.timed("fit", small_fit)()
            wall = time.perf_counter() - start
        shares = clocks.shares(clock.places(), 1, wall)
        assert sum(shares.values()) == pytest.approx(100)
        found.append({key: share * wall / 100 for key, share in shares.items()})
    added = {key: seconds - found[0][key] for key, seconds in found[1].items()}
    assert calls > 0
    assert added[category] > 0.4
    assert max(added, key=added.get) == category
    assert found[1]["waiting"] < 0.1 * wall


def test_fractions(run):
    tables, _ = run("cached_fractions")
    rows = tables["percent of thread time"]
    assert [(r["dataset"], r["threads"], r["load"]) for r in rows] == [
        ("digits", 1, "idle"),
        ("digits", 2, "idle"),
    ]
    for r in rows:
        shares = [v for k, v in r.items() if k.endswith(" %") and k != "on a core %"]
        assert len(shares) == 7
        assert sum(shares) == pytest.approx(100)
        assert min(shares) > -1
        assert r["same"]
        assert r["fit s"] > 0
        assert 0 < r["on a core %"] < 105
    assert rows[0]["waiting %"] < 5 < rows[1]["waiting %"]
    assert rows[0]["BLAS products %"] > 10
    places = tables["places"]
    assert all(p["%"] >= 0.5 and p["calls"] > 0 for p in places)
    one = sum(p["%"] for p in places if p["threads"] == 1)
    assert 85 < one <= 100.5


def test_sets_that_are_absent_are_skipped(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELGRAD_DATA", str(tmp_path))
    runner = importlib.import_module("benchmarks.run")
    out = tmp_path / "none.json"
    args = ["cached_fractions", "--dataset", "ijcnn1", "--threads", "1", "--json", str(out)]
    assert runner.main(args) == 0
    assert "ijcnn1 skipped: there is no ijcnn1.npz" in capsys.readouterr().out


def test_the_busy_neighbour_ends_with_its_case(fractions):
    with fractions.neighbour(False) as process:
        assert process is None
    seen = []

    def fail():
        with fractions.neighbour(True) as process:
            os.kill(process, 0)  # is there
            seen.append(process)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)


def test_a_busy_machine_is_a_case_of_its_own(fractions, monkeypatch):
    seen, busy = [], []

    class Neighbour:
        def __init__(self, on):
            self.on = on

        def __enter__(self):
            busy.append(self.on)

        def __exit__(self, *error):
            busy.pop()

    def spawn(case):
        seen.append((case["threads"], busy[-1]))
        seconds = 2.0 + 2 * busy[-1]
        return {
            "rows": 5, "columns": 2, "blocks": 1, "fit s": seconds, "timed s": seconds,
            "cpu s": 2.0, "same": case["threads"] == 1,
            "places": {"compute.exact._finish": [1.0, 4], "parallel_for": [0.5, 1]},
        }  # fmt: skip

    monkeypatch.setattr(fractions, "spawn", spawn)
    monkeypatch.setattr(fractions, "neighbour", Neighbour)
    args = SimpleNamespace(quick=True, dataset=None, rows=None, blocks=1, factor=1.0, C=1.0,
                           threads=[1, 2], busy=True, repeat=2)  # fmt: skip
    rows = [row for table, row in fractions.CachedFractions().run(args) if "place" not in row]
    assert seen == 2 * [(1, False), (1, True), (2, False), (2, True)]
    assert [r["vector functions %"] for r in rows] == [50, 25, 25, 12.5]
    assert [r["waiting %"] for r in rows] == [50, 75, 75, 87.5]
    assert [r["on a core %"] for r in rows] == [100, 50, 50, 25]
    assert [r["same"] for r in rows] == [True, True, False, False]
