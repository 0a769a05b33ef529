"""The benchmark of seconds and test errors: its peers, its limits, its tables."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

ROOT = Path(__file__).parents[1]
LIBSVM, EQUATIONS = "SVC/SVR (LIBSVM)", "normal equations (2000)"
BOOSTING, OURS = "gradient boosting", "kernelgrad"


@pytest.fixture
def objective(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.objectives.time_to_error")


@pytest.fixture
def curves(objective):
    return importlib.import_module("benchmarks.objectives._curves")


@pytest.fixture
def nystroem(objective):
    return importlib.import_module("benchmarks.solvers.nystroem")


@pytest.fixture
def run(objective, tmp_path):
    runner = importlib.import_module("benchmarks.run")

    def call(*args):
        out = tmp_path / "result.json"
        given = ["time_to_error", "--dataset", "digits", "--quick", "--json", str(out)]
        assert runner.main([*given, *args]) == 0
        return json.loads(out.read_text())["tables"] if out.exists() else None

    return call


def regularised_least_squares(K_nm, K_mm, y, C):
    """Return the coefficients of the centres: sum of squares + a' K_mm a / C, in float64."""
    A = K_nm.T @ K_nm + K_mm / C
    return np.linalg.lstsq(A, K_nm.T @ y, rcond=1e-15)[0]


def gaussian(A, B, gamma):
    return np.exp(-gamma * ((A[:, None] - B[None]) ** 2).sum(axis=2))


@pytest.mark.parametrize("centres", [60, 1000])
def test_normal_equations_against_float64(nystroem, centres):
    random = np.random.default_rng(0)
    X = (random.standard_normal((700, 3)) + 5).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * random.standard_normal(700) + 3
    nystroem_tile, nystroem.TILE = nystroem.TILE, 256  # more than one tile, the last one short
    try:
        model = nystroem.NormalEquations(0.3, 10.0, centres, 0, classify=False).fit(X, y)
        found = model.predict(X)
    finally:
        nystroem.TILE = nystroem_tile
    Z = model.Z.astype(float)
    assert len(Z) == min(centres, 700)
    assert len(np.unique(Z, axis=0)) == len(Z)
    D = X - X.mean(axis=0)
    K, K_mm = gaussian(D, Z, 0.3), gaussian(Z, Z, 0.3)
    expected = K @ regularised_least_squares(K, K_mm, y - y.mean(), 10.0) + y.mean()
    assert np.abs(found - expected).max() < 5e-3 * y.std()
    other = K @ regularised_least_squares(K, K_mm, y - y.mean(), 5.0) + y.mean()
    assert np.abs(found - other).max() > 2e-2 * y.std()


def test_normal_equations_take_classes_and_sparse_rows(nystroem):
    random = np.random.default_rng(1)
    X = random.standard_normal((600, 2)).astype(np.float32)
    three = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    for y in (three, np.where(X[:, 0] > 0, 7, 3)):
        fit = nystroem.NormalEquations(1.0, 100.0, 200, 0, classify=True).fit
        dense = fit(X[:400], y[:400]).predict(X[400:])
        assert np.mean(dense != y[400:]) < 0.05
        sparse = fit(sp.csr_matrix(X[:400]), y[:400]).predict(sp.csr_matrix(X[400:]))
        assert np.array_equal(dense, sparse)


def test_c_is_the_same_penalty_in_all_methods(objective, curves):
    budget = importlib.import_module("benchmarks.registry").Budget(10, 50, 400)
    digits = objective.DATASETS["digits"]

    def build(name, **params):
        return objective.SOLVERS[name].build(digits, {"C": 20.0, **params}, 0.1, budget, 0)

    sgd = build("RBFSampler(2000)+SGD")[-1]
    assert sgd.alpha == pytest.approx(1 / (20 * 400))
    assert build(LIBSVM).C == build(OURS, loss="hinge").C == build(EQUATIONS).C == 20
    protein = objective.DATASETS["protein"]
    ridge = objective.SOLVERS["Nystroem(1000)+LR/Ridge"].build(
        protein, {"C": 20.0}, 0.1, budget, 0
    )
    assert ridge[-1].alpha == pytest.approx(1 / 20)


def test_tuning_reads_training_rows_alone(objective, curves):
    digits = objective.DATASETS["digits"]
    data = digits.load()
    data.X_test = data.y_test = None
    train, held = curves.split(len(data.y_train), 300)
    assert (len(train), len(held)) == (200, 100)
    assert not set(train) & set(held)
    candidates = [{"bandwidth_factor": f, "C": 10.0} for f in (1.0, 0.5)]
    solver = objective.SOLVERS[LIBSVM]
    wide, narrow = curves.validate(solver, digits, data, candidates, 300, 50)
    assert narrow["gamma"] == pytest.approx(4 * wide["gamma"])
    assert wide["rows"] == 200
    assert 0 < wide["error"] < 0.2
    model = solver.build(digits, candidates[0], wide["gamma"], None, 0)
    model.fit(data.X_train[train], data.y_train[train])
    share = np.mean(model.predict(data.X_train[held]) != data.y_train[held])
    assert wide["error"] == pytest.approx(share)


def test_the_search_leaves_the_grid_where_that_helps(objective, monkeypatch):
    benchmark = objective.TimeToError()
    benchmark.args = importlib.import_module("argparse").Namespace(quick=False)

    def errors(name, method, candidates):
        out = []
        for p in candidates:
            miss = abs(np.log10(p["C"]) - 4) + abs(np.log2(p["bandwidth_factor"]) - 2)
            bad = p["bandwidth_factor"] == 0.25
            out.append({"params": p, "error": float("inf") if bad else miss, "gamma": 1.0})
        return out

    monkeypatch.setattr(benchmark, "_errors", errors)
    digits = objective.DATASETS["digits"]
    found = benchmark._search(digits, objective.SOLVERS[LIBSVM])
    assert found["params"] == {"bandwidth_factor": 4.0, "C": 1e4}
    assert found["failed"] == 3
    monkeypatch.setattr(
        benchmark, "_errors", lambda n, m, c: [{"params": p, "error": float("inf")} for p in c]
    )
    with pytest.raises(RuntimeError, match="could be fitted"):
        benchmark._search(digits, objective.SOLVERS[LIBSVM])


def test_tuning_and_measuring_are_separate(run, tmp_path, capsys):
    assert run("--method", LIBSVM, "--tune") is None  # nothing is measured
    file = tmp_path / "result_settings.json"
    settings = json.loads(file.read_text())
    assert settings["digits"]["support vectors"]["rows"] == 333
    settings["digits"]["support vectors"]["params"]["C"] = 3.25
    file.write_text(json.dumps(settings))
    capsys.readouterr()
    (row,) = run("--method", LIBSVM)["fits"]
    assert row["parameters"]["C"] == 3.25
    assert "candidates" not in capsys.readouterr().out


def test_a_run_in_pieces(run, tmp_path):
    first = run("--method", LIBSVM)["runs"]
    assert [(r["method"], r["seed"]) for r in first] == [(LIBSVM, 0)]
    both = run("--method", LIBSVM, EQUATIONS, "--merge", "--repeat", "2")
    assert both["runs"][0] == first[0]  # as it was, not measured again
    assert [(r["method"], r["seed"]) for r in both["runs"]] == [
        (LIBSVM, 0),
        (EQUATIONS, 0),
        (LIBSVM, 1),
        (EQUATIONS, 1),
    ]
    assert [r["runs"] for r in both["fits"]] == [2, 2]
    for row in both["fits"]:
        runs = [r for r in both["runs"] if r["method"] == row["method"]]
        assert row["fit s"] == pytest.approx(np.mean([r["fit s"] for r in runs]))
        assert (row["min"], row["max"]) == tuple(sorted(r["test"] for r in runs))
        assert row["notes"] == "500 of 1,297 rows"
    again = run("--method", LIBSVM, "--merge", "--again", "--repeat", "2")["runs"]
    assert [r for r in again if r["method"] == EQUATIONS] == [
        r for r in both["runs"] if r["method"] == EQUATIONS
    ]
    assert again[-2]["fit s"] != first[0]["fit s"]
    assert (tmp_path / "result.png").exists()


def test_the_curve_is_of_fits_from_scratch(run):
    tables = run("--method", OURS, LIBSVM)
    assert [p["steps"] for p in tables["curve"]] == [1, 2, 3]
    assert [p["fit s"] for p in tables["curve"]] == [
        r["fit s"] for r in tables["runs"] if r["method"] == OURS
    ]
    last = next(r for r in tables["fits"] if r["method"] == OURS)
    assert last["test"] == tables["curve"][-1]["test"] < 0.5
    (ratio,) = tables["ratio"]
    assert ratio["peer"] == LIBSVM


def test_seconds_to_an_error_are_until_it_stays(objective):
    errors = [0.5, 0.2, 0.3, 0.2, 0.1]
    points = [
        {"dataset": "digits", "method": OURS, "steps": k, "fit s": float(k), "test": e}
        for k, e in enumerate(errors, 1)
    ]
    assert objective.seconds_to(points[::-1], 0.2) == 4
    assert objective.seconds_to(points, 0.4) == 2
    assert objective.seconds_to(points, 0.6) == 1
    assert objective.seconds_to(points, 0.05) is None

    def peer(name, test, dataset="digits"):
        row = {"dataset": dataset, "method": name, "notes": ""}
        return row if test is None else row | {"test": test, "fit s": 8.0}

    peers = [
        peer(LIBSVM, 0.2),
        peer(EQUATIONS, 0.05),
        peer(OURS, 0.1),
        peer(BOOSTING, None),
        peer(LIBSVM, 0.2, "a9a"),
    ]
    rows = objective.ratios(peers, points)
    assert [(r["peer"], r["ratio"]) for r in rows] == [(LIBSVM, 0.5), (EQUATIONS, None)]


def test_points_that_a_repeat_did_not_reach_are_left_out(objective):
    def point(seed, steps, test):
        return {
            "dataset": "digits", "method": OURS, "seed": seed, "steps": steps,
            "fit s": seed + steps, "test": test,
        }  # fmt: skip

    runs = [point(0, 1, 0.4), point(0, 2, 0.2), point(1, 1, 0.6), point(1, 2, None)]
    assert objective.curve(runs) == [
        {"dataset": "digits", "method": OURS, "steps": 1, "fit s": 1.5, "test": 0.5}
    ]


def test_a_process_of_its_own_and_its_limit(objective, curves):
    case = {
        "kind": "fit", "dataset": "digits", "method": LIBSVM, "threads": 1, "steps": [1],
        "params": {"C": 10.0, "bandwidth_factor": 1.0}, "gamma": 0.05, "seed": 0, "rows": None,
        "n_components": 100, "limit": 100,
    }  # fmt: skip
    lines, end = curves.spawn(case, 100)
    assert (len(lines), end) == (3, "")
    assert lines[1]["fit s"] > 0
    assert lines[2]["test"] < 0.06
    slow = {"learning_rate": 0.1, "max_leaf_nodes": 31, "max_iter": 100_000}
    more = {"method": BOOSTING, "params": slow, "n_components": 100_000}
    lines, end = curves.spawn(case | more, 0.5)
    assert (len(lines), end) == (1, "> 0.5 s")
    lines, end = curves.spawn(case | {"params": {}}, 100)
    assert (len(lines), end) == (1, "exit status 1") or (lines, end) == ([], "exit status 1")


def test_over_the_limit_is_reported_and_not_repeated(objective, monkeypatch):
    benchmark = objective.TimeToError()
    benchmark.args = importlib.import_module("argparse").Namespace(
        quick=False, max_steps=64, limit=7, threads=1, slow_repeat=1
    )
    benchmark.settings = {
        "digits": {
            "support vectors": {"params": {"C": 1.0}, "gamma": 0.1},
            OURS: {"params": {"C": 1.0}, "gamma": 0.1},
        }
    }
    head, fit, test = {"load": 0.0}, {"fit s": 40.0, "notes": ""}, {"predict s": 1, "test": 0.1}
    reply = []
    monkeypatch.setattr(benchmark, "_call", lambda case, limit: reply)
    reply[:] = [head], "> 7 s"
    (row,) = benchmark._measure("digits", LIBSVM, 0)
    assert (row["test"], row["notes"]) == (None, "> 7 s")
    (summary,) = objective.fits([row])
    assert (summary["runs"], summary["notes"]) == (0, "> 7 s")
    assert "test" not in summary
    assert benchmark._enough([row], "digits", LIBSVM, 1)
    reply[:] = [head, fit], "> 7 s"  # fitted, but not predicted
    (row,) = benchmark._measure("digits", LIBSVM, 0)
    assert (row["fit s"], row["notes"]) == (40.0, "predictions > 7 s")
    reply[:] = [head, fit, test, fit, test], "> 7 s"
    rows = list(benchmark._measure("digits", OURS, 0))
    assert [(r["steps"], r["test"]) for r in rows] == [(1, 0.1), (2, 0.1), (3, None)]
    assert benchmark._enough(rows, "digits", OURS, 1)  # slow: one repeat
    assert not benchmark._enough(rows, "digits", LIBSVM, 0)
    benchmark.args.slow_repeat = 2
    assert not benchmark._enough(rows, "digits", OURS, 1)


def test_a_method_that_is_not_installed_is_skipped(objective, run, monkeypatch, capsys):
    monkeypatch.setattr(type(objective.SOLVERS[LIBSVM]), "module", "no_such_module")
    assert run("--method", LIBSVM, EQUATIONS)["fits"][0]["method"] == EQUATIONS
    assert f"{LIBSVM} skipped: no_such_module is not installed" in capsys.readouterr().out
