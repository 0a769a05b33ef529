"""The benchmarks of linear models: their minimum, their traces, and that each of them runs."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

ROOT = Path(__file__).parents[1]


@pytest.fixture
def part(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.objectives.{name}")


@pytest.fixture
def case(part):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6)) / np.sqrt(6)
    y = np.where(X @ rng.standard_normal(6) + 0.2 * rng.standard_normal(300) > 0, 1.0, -1.0)
    return part("_linear").Case("made", X, y, np.ones(300), X[:100], y[:100], np.ones(100))


@pytest.fixture
def run(part, case, monkeypatch, tmp_path):
    """Run an objective on the made rows, whatever data set it asks for."""
    runner = importlib.import_module("benchmarks.run")

    def call(name, *args):
        monkeypatch.setattr(part(name), "load", lambda *a, **k: case)
        out = tmp_path / "result.json"
        assert runner.main([name, *args, "--quick", "--json", str(out)]) == 0
        return importlib.import_module("json").loads(out.read_text())["tables"]

    return call


@pytest.mark.parametrize(("alpha", "ratio"), [(0.05, 0.0), (0.02, 0.5), (0.02, 1.0)])
def test_the_minimum_has_no_descent_direction(part, case, alpha, ratio):
    problem = case.problem(alpha, ratio)
    least, w = part("_linear").minimum(problem, case.batch())
    margin = case.y * (case.X @ w[:-1] + w[-1])
    slope = -case.y / (1 + np.exp(margin)) / 300
    g = case.X.T @ slope + problem.l2 * w[:-1]
    on = np.abs(w[:-1]) > 1e-8
    np.testing.assert_allclose(g[on], -problem.l1 * np.sign(w[:-1][on]), atol=2e-6)
    assert (np.abs(g[~on]) <= problem.l1 + 2e-6).all()
    assert abs(slope.sum()) < 2e-6
    value = np.logaddexp(0, -margin).mean() + problem.penalty(w[:-1])
    assert least == pytest.approx(value, rel=1e-9)


def test_a_trace_has_the_objective_of_the_result(part, case):
    tools = part("_linear")
    from kernelgrad.solvers import SVRG

    problem = case.problem(0.05)
    least, _ = tools.minimum(problem, case.batch())
    for sparse in (False, True):
        found = tools.trace(SVRG(), problem, case.batch(sparse=sparse), steps=60)
        assert found.seconds == sorted(found.seconds)
        assert found.objective[-1] == pytest.approx(least, rel=1e-8)
        assert found.first_below(least * 1.01) is not None
        assert found.first_below(least * 0.99) is None


def test_seconds_of_steps_leave_out_what_comes_before(part):
    found = part("_linear").Trace([5.0, 5.1, 5.2, 5.4], [4.0, 3.0, 2.0, 1.0], [], None)
    assert found.first_below(2.5) == 5.2
    assert found.steps_below(2.5) == pytest.approx(0.3)


def test_real_sets_have_rows_of_mean_norm_one(part, real_data):
    real_data("a9a")
    found = part("_linear").load("a9a", quick=True)
    assert sp.issparse(found.X)
    assert found.X.multiply(found.X).sum() / found.X.shape[0] == pytest.approx(1.0)
    assert set(np.unique(found.y)) == {-1.0, 1.0}


def test_what_ended_a_trace(part, case):
    from kernelgrad.solvers import RBCD

    problem = case.problem(0.05)
    limits = {
        "steps": {"steps": 1},
        "seconds": {"steps": 9, "seconds": 0.0},
        "target": {"steps": 9, "target": 1.0},
        "converged": {"steps": 500},
    }
    for why, limit in limits.items():
        assert part("_linear").trace(RBCD(), problem, case.batch(), **limit).stopped == why


def test_linear_optimum(run):
    solvers = ["svrg", "rbcd", "sgd", "pegasos", "sdca", "simba"]
    tables = run("linear_optimum", "--dataset", "ijcnn1", "--solver", *solvers)
    rows = tables["suboptimality"]
    assert {r["solver"] for r in rows} == set(solvers) - {"simba"}
    for row in rows:  # decaying steps are slow without an L2 part
        slow = row["solver"] == "sgd" and row["penalty"] == "l1"
        assert row["reached"] or (slow and row["dense suboptimality"] < 0.02)
    support = [
        r["dense support"] for r in rows if r["solver"] == "svrg" and "dense support" in r
    ]
    assert len(support) == 2
    assert all(text.startswith("0 of") for text in support)
    hinge = {r["solver"]: r for r in tables["hinge suboptimality"]}
    assert set(hinge) == {"sgd", "pegasos", "sdca", "simba"}
    for row in hinge.values():
        assert row["reached"]
        assert 0 <= row["relative gap"] <= 1e-6
        assert abs(row["LIBSVM / minimum - 1"]) < 1e-5
        assert row["dense suboptimality"] >= -row["relative gap"]


@pytest.mark.parametrize("name", ["linear_optimum", "linear_paper", "linear_time"])
def test_an_absent_file_skips_its_set(part, name, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KERNELGRAD_DATA", str(tmp_path))
    runner = importlib.import_module("benchmarks.run")
    runner.main([name, "--dataset", "ijcnn1", "a9a", "--quick"])
    said = capsys.readouterr().out
    assert "ijcnn1 skipped" in said
    assert "a9a skipped" in said


def test_linear_paper(run, tmp_path):
    tables = run("linear_paper", "--dataset", "ijcnn1", "--iterations", "400")
    methods = {"SGD", "SSGD", "SVRG", "SCV", "S3GD"}
    assert {r["method"] for r in tables["seconds per 50 steps"]} == methods
    close = {r["method"]: r for r in tables["correlation with the exact gradient"]}
    assert close["SVRG"]["after 100"] > 0.9 > close["SGD"]["after 100"]
    assert close["S3GD"]["after 0"] > close["SGD"]["after 0"]
    assert {r["method"]: r["not judged"] for r in tables["objective"]} == dict.fromkeys(methods)
    assert (tmp_path / "result.png").exists()


def test_runs_cut_early_are_not_judged(run):
    rows = run("linear_paper", "--dataset", "ijcnn1", "--limit", "0")["objective"]
    assert len(rows) == 5
    for row in rows:
        assert row["step"] is None
        assert "step 0.1: 100 of 2000 steps" in row["not judged"]


def test_the_tail_leaves_out_the_first_steps(part):
    paper, trace = part("linear_paper"), part("_linear").Trace
    values = [9.0] * 100 + [1.0] * 50  # looks, 100 steps each

    def tail(n, stopped, steps=40_000):
        run = trace([float(i) for i in range(n)], values[:n], [], None, stopped)
        return paper.tail_mean(run, steps)

    assert tail(150, "seconds") == (1.0, "")
    level, reason = tail(149, "seconds")
    assert level is None
    assert reason == "14900 of 15000 steps in 148.0 s"
    assert tail(120, "converged") == (1.0, "")
    assert tail(20, "steps", 2000) == (9.0, "")
    assert tail(19, "seconds", 2000)[0] is None


def test_windows_of_correlations_are_apart(part):
    paper = part("linear_paper")
    for inner in (paper.INNER, paper.SVRG_INNER):
        assert all(mark % inner == 0 for mark in paper.CORRELATED)
        assert min(np.diff(paper.CORRELATED)) >= inner


def test_linear_time(run, tmp_path):
    rows = run("linear_time", "--dataset", "ijcnn1", "--solver", "svrg", "rbcd")["seconds"]
    sides = {r["side"]: r for r in rows if r["penalty"] == "l2"}
    assert {"svrg", "rbcd", "LinearClassifier", "scikit-learn lbfgs"} <= set(sides)
    for name in ("svrg", "rbcd", "LinearClassifier", "scikit-learn lbfgs"):
        assert sides[name]["s to 1e-06"] > 0
    assert all(n.isdigit() for n in sides["LinearClassifier"]["iterations"].split(", "))
    sparse = {r["side"]: r for r in rows if r["penalty"] == "l1"}
    for name in ("svrg", "LinearClassifier", "scikit-learn saga", "scikit-learn liblinear"):
        assert sparse[name]["s to 1e-06"] > 0
    assert (tmp_path / "result.png").exists()


@pytest.mark.parametrize("bisect", [True, False])
def test_the_least_iterations_reach_the_level(part, case, bisect):
    tool = part("linear_time")
    problem = case.problem(0.05, fit_intercept=False)
    best, w = part("_linear").minimum(problem, case.batch())
    calls = []

    def fit(iterations):
        calls.append(iterations)
        return w[:-1] * (1 - 0.97**iterations)

    def error(iterations):
        v = w[:-1] * (1 - 0.97**iterations)
        value = np.logaddexp(0, -case.y * (case.X @ v)).mean() + 0.025 * v @ v
        return value / best - 1

    found = tool.least_iterations(fit, problem, case.batch(), best, 60.0, bisect=bisect)
    for (low, high), level in zip(found, tool.LEVELS, strict=True):
        assert error(high) <= level < error(low)
        assert (high - low == 1) is bisect
    assert bisect or set(calls) <= set(tool.BUDGETS)
    slow = tool.least_iterations(fit, problem, case.batch(), best, 0.0, bisect=bisect)
    assert slow == [None, None]


def test_the_penalty_of_old_and_new_scikit_learn(part):
    penalty = part("linear_time").logistic_penalty
    assert penalty("l1", "1.7.2") == {"penalty": "l1"}
    assert penalty("l1", "1.8.0") == {"l1_ratio": 1.0}
    assert penalty("l2", "1.10.dev0") == {"l1_ratio": 0.0}


def test_adult_rivals(part, monkeypatch, tmp_path, real_data):
    real_data("a9a")
    runner = importlib.import_module("benchmarks.run")
    out = tmp_path / "result.json"
    args = ["adult_rivals", "--features", "64", "--quick", "--json", str(out)]
    assert runner.main(args) == 0
    rows = importlib.import_module("json").loads(out.read_text())["tables"][
        "Adult, 64 features"
    ]
    assert len(rows) == 12
    assert all(10 < r["SC1 error %"] < 60 for r in rows)
