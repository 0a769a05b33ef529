"""The benchmarks of exact machines run, and their helpers are right."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import SVC

ROOT = Path(__file__).parents[1]


@pytest.fixture
def svm(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.objectives._svm")


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    runner = importlib.import_module("benchmarks.run")

    def call(*args):
        out = tmp_path / "result.json"
        assert runner.main([*args, "--quick", "--json", str(out)]) == 0
        assert out.with_suffix(".png").exists() or args[0] == "svm_memory"
        return json.loads(out.read_text())["tables"]

    return call


def curve(*points):
    return [{"budget": i, "seconds": s, "error %": e} for i, (s, e) in enumerate(points)]


def test_seconds_to_reach_a_target_and_stay(svm):
    points = curve((1.0, 5.0), (2.0, 3.0), (4.0, 4.0), (8.0, 3.0), (16.0, 2.5))
    assert svm.seconds_to(points, 5.0) == 1.0
    assert svm.seconds_to(points, 4.9) == 2.0
    assert svm.seconds_to(points, 3.0) == 8.0  # 2.0 was left again
    noisy = curve((1.0, 5.0), (3.0, 2.0), (2.9, 2.0))  # budgets order the points, not clocks
    assert svm.seconds_to(noisy, 2.0) == 3.0
    assert svm.seconds_to(points, 2.4) is None
    assert svm.seconds_to([], 9.0) is None


def test_who_leads_from_which_error_down(svm):
    early = curve((1.0, 5.0), (2.0, 3.0), (9.0, 2.0))
    late = curve((3.0, 8.0), (4.0, 3.5), (5.0, 2.0))
    assert svm.lead_from(late, early) == 2.0
    assert svm.lead_from(early, late) is None
    assert svm.lead_from(early[:2], late) is None  # never gets to 2 %
    assert svm.lead_from(curve((1.0, 5.0), (2.0, 3.0), (4.9, 1.9)), late) == 8.0
    assert svm.lead_from(early, early) is None


def test_medians_are_taken_budget_by_budget(svm):
    curves = [curve((1.0, 5.0), (2.0, 3.0)), curve((3.0, 4.0)), curve((2.0, 9.0), (7.0, 1.0))]
    (only,) = svm.middle(curves)  # one of the three has no second point
    assert (only["seconds"], only["error %"]) == (2.0, 5.0)
    assert [p["error %"] for p in svm.middle(curves[:1])] == [5.0, 3.0]


def test_series_and_budgets(svm):
    assert svm.geometric(3, 30) == [3, 6, 12, 24, 30]
    assert svm.geometric(0.2, 4) == [1, 2, 3, 4]
    assert svm.geometric(7, 7) == [7]
    assert svm.rounds(10, 1000) == (1, 10)
    assert svm.rounds(500, 1000) == (20, 25)
    assert svm.libsvm_rows(np.array([30]), 100) == 60
    assert svm.libsvm_rows(np.array([80]), 100) == 100


@pytest.mark.parametrize("name", ["digits8", "digits"])
@pytest.mark.parametrize("max_iter", [7, -1])
@pytest.mark.filterwarnings("ignore:Solver terminated early")
def test_fast_predictions_are_those_of_libsvm(svm, name, max_iter):
    p = svm.load(name, 600, 400)
    model = SVC(C=p.C, gamma=p.gamma, max_iter=max_iter).fit(p.X, p.y)
    exact = model.predict(p.X_test)
    np.testing.assert_array_equal(svm.predict_libsvm(model, p.X_test, chunk=150), exact)
    assert len(np.unique(exact)) == p.n_classes


def test_a_budget_draws_that_many_rows(svm):
    p = svm.load("digits8", 400, 100)
    solver = svm.StochasticBatchPerceptron(batch_size=8)
    points = list(svm.our_curve(p, solver, [8, 100, 400]))
    assert [q["budget"] for q in points] == [8, 100, 400]
    assert all(0.5 * q["budget"] <= q["rows drawn"] <= 2 * q["budget"] for q in points[1:])
    assert all(0 < q["kernel rows"] <= min(400, q["rows drawn"]) for q in points)
    assert points[-1]["error %"] < 10 < points[0]["error %"]


def test_svm_evaluations(run):
    tables = run("svm_evaluations", "--dataset", "digits8")
    assert len(tables["kernel rows to a target"]) == 6
    rows = tables["error over kernel evaluations"]
    assert all(0 < r["evaluations"] == pytest.approx(r["kernel rows"] * 250) for r in rows)
    by_method = {r["method"]: r["error %"] for r in rows}  # the last point of each
    assert max(by_method.values()) < 13
    assert 0 < tables["chosen"][0]["nu of the optimum"] < 1


def test_svm_time(run, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    tables = run("svm_time", "--dataset", "digits8")
    rows = tables["seconds to the target"]
    methods = [r["method"] for r in rows]
    assert methods[:3] == ["kernelgrad", "kernelgrad (sdca)", "SVC"]
    svc = rows[2]
    assert svc["seconds"] is not None
    assert svc["target %"] == pytest.approx(svc["converged %"] + 0.2)
    assert all(r["seconds"] > 0 for r in tables["error over seconds"])
    lead = tables["who is ahead"][0]
    assert None in (lead["kernelgrad from % down"], lead["peer from % down"])


def test_svm_batch(run):
    rows = run("svm_batch", "--dataset", "digits8")["rows and seconds to the target"]
    assert [(r["bias"], r["m"]) for r in rows] == [
        ("with bias", 1),
        ("with bias", 8),
        ("without", 1),
        ("without", 8),
    ]
    assert all(r["last s"] > 0 and r["last %"] < 13 for r in rows)


def test_svm_memory(run):
    rows = run("svm_memory")["peak memory"]
    assert [r["limit MB"] for r in rows] == [60, 8]
    assert all(r["same"] and r["fit MB"] > 0 for r in rows)
    assert rows[1]["kernel rows"] > rows[0]["kernel rows"]  # what was not kept is made again
    assert rows[1]["fit MB"] < rows[0]["fit MB"]
