"""Every benchmark runs; what the numbers are is for the benchmarks themselves."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import SVC

from kernelgrad.kernels import KERNELS, Gaussian
from kernelgrad.losses import LOSSES
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
objectives = importlib.import_module("benchmarks.objectives")
registry = importlib.import_module("benchmarks.registry")
runner = importlib.import_module("benchmarks.run")
OBJECTIVES = registry.discover(objectives, registry.Objective)

# tiny sizes, beside --quick, of those that take long without
TINY = {
    "defaults": ["--method", "kernelgrad", "SVM tuned", "linear", "constant"],
    "exact_blocks": ["--d", "8", "--rows", "8"],
    "golden": ["--only", "exact/direct/Regressor squared"],
    "kernels": ["--kernel", "hellinger", "--blocks", "300"],
    "svm_batch": ["--dataset", "digits8"],
    "svm_time": ["--dataset", "digits8"],
    "time_to_error": ["--dataset", "digits", "--method", "SVC/SVR (LIBSVM)"],
}
QUICK = ["defaults", "exact_blocks", "kernels", "learning_curves"]


@pytest.fixture
def run(tmp_path):
    def call(*args):
        out = tmp_path / "result.json"
        assert runner.main([*args, "--quick", "--json", str(out)]) == 0
        return json.loads(out.read_text()) if out.exists() else None

    return call


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in OBJECTIVES
    ],
)
def test_every_objective_runs(run, name, capsys):
    result = run(name, "--repeat", "1", *TINY.get(name, ()))
    if result is None:
        pytest.skip(f"{name}: {capsys.readouterr().out.splitlines()[-1]}")
    assert all(result["tables"].values())
    numbers = [
        value
        for rows in result["tables"].values()
        for row in rows
        for value in row.values()
        if isinstance(value, float)
    ]
    assert numbers
    assert not any(math.isnan(value) for value in numbers)
    assert str(ROOT) not in json.dumps(result["environment"])


def test_the_pages_are_those_of_the_committed_results():
    pages = importlib.import_module("benchmarks.pages")
    for path, text in pages.files().items():
        assert path.read_text() == text, f"{path.name}: run `python -m benchmarks.pages`"
        assert text.count("| ") > 20


@pytest.mark.parametrize("name", ["time_to_error", "linear_time"])
def test_absent_data_are_skipped_with_a_message(run, name, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KERNELGRAD_DATA", str(tmp_path))
    assert run(name, "--dataset", "a9a") is None
    assert "a9a skipped: there is no a9a.npz" in capsys.readouterr().out


def test_a_forced_core_type_is_removed(tmp_path):
    command = "import benchmarks, os; assert 'OPENBLAS_CORETYPE' not in os.environ"
    environment = os.environ | {"OPENBLAS_CORETYPE": "Haswell"}
    subprocess.run([sys.executable, "-c", command], cwd=ROOT, env=environment, check=True)


def test_a_dropped_in_file_is_found(monkeypatch, tmp_path):
    package = tmp_path / "dropped_in_objectives"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_child.py").write_text("raise RuntimeError\n")
    (package / "hello.py").write_text(
        "from benchmarks.registry import Objective\n\n\n"
        "class Hello(Objective):\n    name = 'hello'\n\n"
        "    def run(self, args):\n        yield 'greeting', {'hello': 1}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = registry.discover(importlib.import_module(package.name), registry.Objective)
    assert list(found) == ["hello"]
    assert list(found["hello"].run(None)) == [("greeting", {"hello": 1})]


def test_a_forgotten_kernel_stops_the_benchmark(run, monkeypatch):
    monkeypatch.setitem(KERNELS, "forgotten", Gaussian)
    with pytest.raises(ValueError, match="registered kernels forgotten"):
        run("kernels")


# what tables are made of


def part(name):
    return importlib.import_module(f"benchmarks.objectives.{name}")


def test_powers_of_growth():
    fits = [
        {"rows": n, "values": "tiled", "s/block": 1e-5 * n, "peak GB": 0.1 * n**0.5}
        for n in (1000, 100, 30_000)
    ]
    skipped = {"rows": 100, "values": "stored", "skipped": "large"}
    found = part("cached_growth").exponents([*fits, skipped])
    assert [(g["from"], g["to"]) for g in found] == [(100, 1000), (1000, 30_000)]
    for g in found:
        assert g["power of s/block"] == pytest.approx(1.0)
        assert g["power of peak GB"] == pytest.approx(0.5)


@pytest.mark.parametrize(("alpha", "ratio"), [(0.05, 0.0), (0.02, 0.5), (0.02, 1.0)])
def test_the_minimum_has_no_descent_direction(alpha, ratio):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6)) / np.sqrt(6)
    y = np.where(X @ rng.standard_normal(6) + 0.2 * rng.standard_normal(300) > 0, 1.0, -1.0)
    tools = part("_linear")
    case = tools.Case("made", X, y, np.ones(300), X[:100], y[:100], np.ones(100))
    problem = case.problem(alpha, ratio)
    least, w = tools.minimum(problem, case.batch())
    margin = y * (X @ w[:-1] + w[-1])
    slope = -y / (1 + np.exp(margin)) / 300
    g = X.T @ slope + problem.l2 * w[:-1]
    on = np.abs(w[:-1]) > 1e-8
    np.testing.assert_allclose(g[on], -problem.l1 * np.sign(w[:-1][on]), atol=2e-6)
    assert (np.abs(g[~on]) <= problem.l1 + 2e-6).all()
    value = np.logaddexp(0, -margin).mean() + problem.penalty(w[:-1])
    assert least == pytest.approx(value, rel=1e-9)
    found = tools.trace(
        importlib.import_module("kernelgrad.solvers").SVRG(), problem, case.batch(), steps=60
    )
    assert found.objective[-1] == pytest.approx(least, rel=1e-6)
    assert found.first_below(least * 0.99) is None


def test_what_was_reached_and_when():
    trace = part("_linear").Trace([5.0, 5.1, 5.2, 5.4], [4.0, 3.0, 2.0, 1.0], None)
    assert trace.first_below(2.5) == 5.2
    points = [
        {"dataset": "d", "method": "kernelgrad", "steps": k, "fit s": float(k), "test": e}
        for k, e in enumerate([0.5, 0.2, 0.3, 0.2, 0.1], 1)
    ]
    seconds_to = part("time_to_error").seconds_to
    assert [seconds_to(points, e) for e in (0.2, 0.4, 0.6, 0.05)] == [4, 2, 1, None]


@pytest.mark.parametrize("name", ["digits8", "digits"])
@pytest.mark.filterwarnings("ignore:Solver terminated early")
def test_fast_predictions_are_those_of_libsvm(name):
    svm = part("_svm")
    p = svm.load(name, 300, 200)
    model = SVC(C=p.C, gamma=p.gamma, max_iter=7).fit(p.X, p.y)
    found = svm.predict_libsvm(model, p.X_test, chunk=150)
    np.testing.assert_array_equal(found, model.predict(p.X_test))


def test_normal_equations_against_float64(monkeypatch):
    nystroem = importlib.import_module("benchmarks.solvers.nystroem")
    monkeypatch.setattr(nystroem, "TILE", 256)  # more than one tile, the last one short
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((700, 3)) + 5).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(700) + 3
    model = nystroem.NormalEquations(0.3, 10.0, 60, 0, classify=False).fit(X, y)
    Z = model.Z.astype(float)

    def gaussian(A, B):
        return np.exp(-0.3 * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    K = gaussian(X - X.mean(axis=0), Z)
    A = K.T @ K + gaussian(Z, Z) / 10.0
    expected = K @ np.linalg.lstsq(A, K.T @ (y - y.mean()), rcond=1e-15)[0] + y.mean()
    assert np.abs(model.predict(X) - expected).max() < 5e-3 * y.std()


class Here:
    """Runs cases of `golden` in this process."""

    def __init__(self, *args):
        self.run = functools.partial(part("_golden_worker").answer, 60)


def test_a_perturbed_record_is_seen(monkeypatch, tmp_path):
    monkeypatch.setattr(part("golden"), "Worker", Here)
    folder, out = tmp_path / "record", tmp_path / "out.json"
    options = ["--only", "resume/Kernel direct", "--json", str(out)]

    def call(what):
        status = runner.main(["golden", what, str(folder), "--repeat", "1", *options])
        return status, json.loads(out.read_text())["tables"]["cases"][0]

    assert call("--record")[0] == 0
    status, row = call("--compare")
    assert (status, row["verdict"], row["history"]) == (0, "same bits", 0.0)
    (path,) = folder.rglob("*.npz")
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"resumed decision_function": arrays["decision_function"] + 2e-6})
    status, row = call("--compare")
    assert (status, row["fails"], row["old file"]) == (1, True, 0.0)
    assert row["verdict"].startswith("differs by ")


def test_a_slower_tree_is_seen():
    pair = part("golden").Golden.pair

    class Tree:
        def __init__(self, seconds):
            self.seconds = seconds

        def run(self, case):
            return {"fit s": self.seconds, "predict s": 1.0}

    row = pair("case", Tree(2.0), Tree(3.0), 3)
    assert (row["fit old s"], row["fit new s"], row["fit new / old"]) == (2.0, 3.0, 1.5)
    assert row["predict new / old"] == 1.0
    failing = Tree(1.0)
    failing.run = lambda case: {"verdict": "error: no"}
    assert "no" in pair("case", failing, Tree(1.0), 3)["note"]


def test_every_registered_name_is_a_golden_case():
    table = part("_golden_cases")
    words = {table.renamed(word) for name in table.cases() for word in re.split("[/ ]", name)}
    assert {*SOLVERS, *LINEAR_SOLVERS, *KERNELS, *LOSSES} - words == {"one_class"}


def test_groups_of_columns_are_found_and_become_categories():
    tables = part("_tables")
    rng = np.random.default_rng(0)
    levels = rng.integers(0, [3, 2, 5], size=(200, 3))
    X = np.hstack([np.eye(k)[levels[:, j]] for j, k in enumerate((3, 2, 5))])
    X[:20, :3] = 0  # missing
    assert tables.exclusive_groups(X) == [[0, 1, 2], [3, 4], [5, 6, 7, 8, 9]]
    found = tables.category(X[:, :3])
    assert found[:20].tolist() == [None] * 20
    assert found[20:].tolist() == [f"level {j}" for j in levels[20:, 0]]


def test_frames_have_the_levels_of_training_rows_and_missing_cells():
    pytest.importorskip("pandas")
    X = np.arange(600.0).reshape(300, 2)
    train, test = np.array(["a", "b", "c"] * 100, object), np.array(["a", "new"] * 150, object)
    data = registry.Data(X, X[:, 0], -X, X[:, 0])
    found = part("_tables").as_frames(
        data, lambda Z: {"n": Z[:, 0], "t": train if Z is X else test}, 0.2, 0
    )
    assert list(found.X_train["t"].cat.categories) == ["a", "b", "c"]
    assert found.X_test["t"].dtype == found.X_train["t"].dtype
    assert found.X_train.isna().to_numpy().mean() == pytest.approx(0.2, abs=0.04)
    assert found.X_test["t"][1::2].isna().all()
    assert found.X_test["t"][::2].isna().mean() == pytest.approx(0.2, abs=0.08)


def test_aims_count_what_failed_and_what_lost():
    values = {
        "kernelgrad": {"a": 0.1, "b": 0.105, "c": None, "noise_values": 1.03, "protein": 3.3},
        "SVM tuned": {"a": 0.1, "b": 0.1, "c": 0.5, "protein": None},
        "LightGBM": {"a": 0.2, "b": 0.1, "c": 0.6, "protein": 3.2},
        "linear": {"noise_values": 1.0},
    }
    rows = [
        {"dataset": d, "method": m, "rows": 300, "columns": 5, "fit s": 0.6}
        | ({"error": e} if e is not None else {"failed": "why"})
        for m, part_of in values.items()
        for d, e in part_of.items()
    ]
    found = {row["aim"]: row for row in part("defaults").aims(rows)}
    svm = found["error at most that of the tuned SVM"]
    assert (svm["measured"], svm["not on"], svm["reached"]) == (
        "1 of 3", "c (inf/0.5), b (0.105/0.1)", False,
    )  # fmt: skip
    trees = found["error at most 1.05 times LightGBM's"]
    assert (trees["measured"], trees["reached"]) == ("3 of 4", True)
    noise = [row for aim, row in found.items() if aim.startswith("noise")]
    assert [row["not on"] for row in noise] == ["noise_values (1.03/1)"]
    assert found["protein at most 3.4"]["reached"]
    assert found["seconds at most those of the size"]["measured"] == "0 of 4"


def test_peers_of_an_earlier_result_are_kept(tmp_path):
    read, path = part("defaults").read, tmp_path / "old.json"
    for name, error in ((path, 0.1), (tmp_path / "new.json", 0.2)):
        rows = [
            {"dataset": d, "method": m, "error": error}
            for d in ("wine", "iris")
            for m in ("kernelgrad", "LightGBM", str(error))
        ]
        result = {"options": {"rows": 500, "quick": False}, "tables": {"fits": rows}}
        name.write_text(json.dumps(result))
    found = read([str(path), str(name)], ["iris", "digits"], 500)
    assert {row["method"]: row["error"] for row in found} == {
        "LightGBM": 0.2, "0.1": 0.1, "0.2": 0.2,
    }  # fmt: skip
    assert {row["dataset"] for row in found} == {"iris"}
    with pytest.raises(ValueError, match="give a result of --rows None"):
        read([str(path)], ["iris"], None)


def test_a_job_that_ends_its_process_is_one_failure(monkeypatch):
    defaults = part("defaults")

    def stream(module, case, **options):
        for name, method in case["jobs"]:
            if name == "deadly":
                return "exit status 9"
            yield {"dataset": name, "method": method, "error": 0.0}
        return ""

    monkeypatch.setattr(defaults, "stream", stream)
    jobs = [(name, "m") for name in ("first", "deadly", "third", "deadly", "last")]
    found = list(defaults.together({}, jobs, 1.0))
    assert [row["dataset"] for row in found] == [name for name, _ in jobs]
    assert [row.get("failed") for row in found] == [None, "exit status 9"] * 2 + [None]


def test_the_peer_is_tuned_beyond_its_grid(monkeypatch):
    case = part("_defaults_case")
    monkeypatch.setattr(case, "COST", (1.0,))
    monkeypatch.setattr(case, "GAMMA", (1.0,))
    X = np.random.default_rng(0).integers(250, size=(300, 1), dtype=np.uint8)
    y = (np.sin(0.096 * X[:, 0]) > 0).astype(int)
    model, found = case.tuned(X, y, classify=True)
    assert found["gamma / scale"] > 2
    assert found["gamma"] == model[-1].gamma
    assert model.fit(X, y).score(X, y) > 0.9


def test_a_curve_ends_with_all_rows_once(monkeypatch, tmp_path):
    asked = []

    def measured(jobs, args):
        asked.append(args.rows)
        for name, method in jobs:
            row = {"dataset": name, "method": method, "measure": "RMSE", "error": 0.5}
            yield row | {"rows": min(args.rows, 294)}

    monkeypatch.setattr(part("learning_curves"), "measured", measured)
    out, sizes = tmp_path / "curve.json", ["600", "50", "294", "400"]
    args = ["learning_curves", "--dataset", "diabetes", "--method", "linear", "constant"]
    assert runner.main([*args, "--sizes", *sizes, "--json", str(out)]) == 0
    rows = json.loads(out.read_text())["tables"]["curve"]
    assert [row["rows"] for row in rows] == [50, 50, 294, 294]
    assert asked == [50, 294, 400, 600]
