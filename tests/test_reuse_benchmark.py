"""The benchmark of re-used blocks runs, its clock is honest and its SVRG is one."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from kernelgrad.losses import get_loss

ROOT = Path(__file__).parents[1]
SOLVERS = ["DSG", "UDSG(1,1)", "UDSG(1,3)", "CDSG", "CDSG, steps to 2", "SVRG"]


@pytest.fixture
def reuse(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.objectives.reuse")


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    runner = importlib.import_module("benchmarks.run")

    def call(*args):
        out = tmp_path / "result.json"
        assert runner.main(["reuse", *args, "--quick", "--json", str(out)]) == 0
        return json.loads(out.read_text())["tables"]

    return call


def test_both_modes(run, tmp_path):
    tables = run("--dataset", "digits")
    rows = tables["seconds and features to DSG's end"]
    assert [(r["mode"], r["solver"]) for r in rows] == [
        (mode, solver) for mode in ("plain", "preconditioned") for solver in SOLVERS
    ]
    for row in rows:
        dsg = next(r for r in rows if (r["mode"], r["solver"]) == (row["mode"], "DSG"))
        if row["solver"] == "DSG":
            assert (row["times faster"], row["share of features"]) == (1, 1)
            assert (row["iterations"], row["% re-used"]) == (8, 0)
            assert row["features at the end"] == 8 * 2 * 16
        elif row["solver"] == "SVRG":
            assert row["features at the end"] == 4 * 2 * 16
        else:  # a step that was begun is finished
            assert row["iterations"] == 64 or row["total s"] >= dsg["total s"]
    curve = [r for r in tables["curves"] if r["solver"] == "DSG"]
    assert curve[7]["objective"] < curve[0]["objective"] < np.log(10)
    assert (tmp_path / "result.png").exists()


def test_the_check(run, tmp_path):
    rows = run("--dataset", "digits", "--check")["the check of CDSG"]
    share = {(r["mode"], r["case"]): r["% re-used"] for r in rows}
    for mode in ("plain", "preconditioned"):
        assert share[mode, "DSG"] == 0
        assert share[mode, "UDSG(1,1)"] == 50
        assert share[mode, "CDSG, spread 100"] <= share[mode, "CDSG"]
    assert max(share.values()) > 50
    assert not (tmp_path / "result.png").exists()


@pytest.mark.parametrize("name", ["a9a", "protein"])
def test_files(run, name):
    archives = importlib.import_module("benchmarks.datasets.archives")
    if not (archives.data_folder() / f"{name}.npz").exists():
        pytest.skip("the data folder is absent; set KERNELGRAD_DATA")
    tables = run(
        "--dataset", name, "--mode", "plain", "--solver", "UDSG(1,1)", "--clock", "cpu"
    )
    rows = tables["seconds and features to DSG's end"]
    assert [r["solver"] for r in rows] == ["DSG", "UDSG(1,1)"]
    assert all(r["total CPU s"] > 0 for r in rows)


def test_evaluation_takes_no_time(reuse, monkeypatch):
    now = [0.0]
    task = reuse.Task(reuse.DATASETS["digits"], 500, 100)

    def slow_objective(f):
        now[0] += 1.0
        return 0.0

    monkeypatch.setattr(task, "objective", slow_objective)
    monkeypatch.setitem(reuse.CLOCKS, "steps", ("s", lambda: now[0]))
    problem = task.problem(0, intercept=False)
    solver = reuse.build("DSG", "plain", reuse.QUICK, "auto", 100.0)
    course = reuse.follow(solver, task, problem, iterations=3, clock="steps")
    assert now[0] == 3
    assert course.seconds == [0, 0, 0]

    kernel = problem.kernel.resolve(task.X, 0)
    fixed = reuse.FixedFeatures(task, 8, "steps", intercept=True)
    fixed.step = 1.0
    times = iter(range(100))
    monkeypatch.setitem(reuse.CLOCKS, "steps", ("s", lambda: now[0] + 10 * next(times)))
    course = fixed.follow(kernel, 0, seconds=50)
    # two looks at the clock a snapshot; the features were the first interval
    assert course.seconds == [20, 30, 40, 50]


def test_what_was_reached(reuse):
    course = reuse.Course()
    for i, value in enumerate([5.0, 1.0, 5.0, 4.0, 3.0, 2.0, 2.0, 2.0]):
        course.add(float(i), i, value, i)
    assert course.first(2.0) == 7  # one lucky snapshot does not count
    assert course.first(1.5) is None


def test_the_bound_of_the_penalty(reuse):
    task = reuse.Task(reuse.DATASETS["digits"], 500, 100)
    solver = reuse.build("DSG", "plain", reuse.QUICK, "auto", 100.0)
    batches = task.batches(256, 0)
    problem = task.problem(0, intercept=False)
    first, second = next(batches), next(batches)
    state = solver.init(problem, first)
    solver.step(problem, state, first)
    A = solver.expansion(state).coef
    assert reuse.penalty(solver.expansion(state)) == pytest.approx(0.5e-5 * np.sum(A**2))
    solver.step(problem, state, second)
    e = solver.expansion(state)
    norms = [np.linalg.norm(e.block(j)) for j in range(2)]
    q = norms[0] / sum(norms)
    best = norms[0] ** 2 / q + norms[1] ** 2 / (1 - q)
    assert reuse.penalty(e) == pytest.approx(0.5e-5 * best)


def test_svrg_finds_the_ridge_solution(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    svrg = importlib.import_module("benchmarks.solvers.svrg")
    random = np.random.default_rng(0)
    Phi = random.standard_normal((400, 6)).astype(np.float32)
    y = (Phi @ random.standard_normal((6, 2)) + 1 + random.standard_normal((400, 2))).astype(
        np.float32
    )
    loss, alpha = get_loss("squared", task="regression"), 0.1
    model = svrg.SVRG(Phi, y, loss, alpha, np.ones(2), batch_size=20)
    top = np.linalg.eigvalsh(Phi.T.astype(float) @ Phi / 400)[-1]
    assert model.curvature(rounds=200) == pytest.approx(top, rel=1e-3)
    for done in model.steps(0.1):
        if done == 10 * model.steps_per_round:
            break
    A = Phi.T.astype(float) @ Phi / 400 + alpha * np.eye(6)
    expected = np.linalg.solve(A, Phi.T @ (y - 1.0) / 400)
    # plain stochastic gradients of this step stay at their noise, about 0.1
    np.testing.assert_allclose(model.w, expected, atol=1e-4)


def test_modules_are_found(reuse):
    registry = sys.modules["benchmarks.registry"]
    objectives = importlib.import_module("benchmarks.objectives")
    assert "reuse" in registry.discover(objectives, registry.Objective)
