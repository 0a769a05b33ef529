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


def test_real_sets_have_rows_of_mean_norm_one(part, real_data):
    real_data("a9a")
    found = part("_linear").load("a9a", quick=True)
    assert sp.issparse(found.X)
    assert found.X.multiply(found.X).sum() / found.X.shape[0] == pytest.approx(1.0)
    assert set(np.unique(found.y)) == {-1.0, 1.0}


def test_linear_optimum(run):
    solvers = ["svrg", "rbcd", "sgd", "pegasos"]
    rows = run("linear_optimum", "--dataset", "ijcnn1", "--solver", *solvers)["suboptimality"]
    assert {r["solver"] for r in rows} == set(solvers)
    assert all(r["reached"] for r in rows)
    support = [
        r["dense support"] for r in rows if r["solver"] == "svrg" and "dense support" in r
    ]
    assert len(support) == 2
    assert all(text.startswith("0 of") for text in support)


def test_linear_paper(run, tmp_path):
    tables = run("linear_paper", "--dataset", "ijcnn1", "--iterations", "400")
    methods = {"SGD", "SSGD", "SVRG", "SCV", "S3GD"}
    assert {r["method"] for r in tables["seconds per 50 steps"]} == methods
    close = {r["method"]: r for r in tables["correlation with the exact gradient"]}
    assert close["SVRG"]["after 100"] > 0.9 > close["SGD"]["after 100"]
    assert close["S3GD"]["after 0"] > close["SGD"]["after 0"]
    assert (tmp_path / "result.png").exists()


def test_linear_time(run, tmp_path):
    rows = run("linear_time", "--dataset", "ijcnn1", "--solver", "svrg", "rbcd")["seconds"]
    sides = {r["side"]: r for r in rows if r["penalty"] == "l2"}
    assert {"svrg", "rbcd", "scikit-learn lbfgs"} <= set(sides)
    assert all(sides[name]["s to 1e-06"] > 0 for name in ("svrg", "rbcd"))
    assert (tmp_path / "result.png").exists()


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
