"""Every benchmark runs; what the numbers are is for the benchmarks themselves."""

import functools
import importlib
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from kernelgrad.kernels import KERNELS
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
    "golden": ["--only", "exact/direct/Regressor squared"],
    "tables": ["--method", "kernelgrad", "LightGBM", "--reference", "LightGBM"],
    "time_to_error": ["--dataset", "digits", "--method", "SVC/SVR (LIBSVM)"],
}


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
        pytest.param(name, marks=() if name == "defaults" else pytest.mark.slow)
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


def test_absent_data_are_skipped_with_a_message(run, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KERNELGRAD_DATA", str(tmp_path))
    assert run("time_to_error", "--dataset", "a9a") is None
    assert "a9a skipped: there is no a9a.npz" in capsys.readouterr().out


def part(name):
    return importlib.import_module(f"benchmarks.objectives.{name}")


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


def test_tables_are_measured_once_and_compared(run, monkeypatch, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rng, n = np.random.default_rng(0), 100
    frame = pandas.DataFrame({
        "text": rng.choice(["a", "b"], n), "number": rng.standard_normal(n),
        "date": pandas.Timestamp(0) + pandas.to_timedelta(np.arange(n), unit="D"),
        "class": np.where(rng.random(n) < 0.5, "yes", "no"), "value": rng.standard_normal(n),
    })  # fmt: skip
    frame.loc[3, "text"] = None
    (tmp_path / "tables").mkdir()
    index = {
        name: {"task": task, "target": name, "rows": n}
        for name, task in (("class", "binary"), ("value", "regression"))
    }
    (tmp_path / "tables" / "index.json").write_text(json.dumps(index))
    for name in index:
        frame.to_parquet(tmp_path / "tables" / f"{name}.parquet")
    monkeypatch.setenv("KERNELGRAD_DATA", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    lines = tmp_path / "lines.jsonl"
    options = ["--dataset", *index, "--method", "HistGradientBoosting", "--lines", str(lines)]
    tables = run("tables", *options, "--reference", "HistGradientBoosting")["tables"]
    first = lines.read_text()
    assert [(r["dataset"], r["rows"]) for r in tables["fits"]] == [("class", 80), ("value", 80)]
    assert {"log loss", "error", "AUC", "fit CPU s"} <= set(tables["fits"][0])
    # errors of another method that are twice as large, and no new fit
    others = [json.loads(line) | {"method": "CatBoost"} for line in first.splitlines()]
    for row in others:
        row[row["measure"]] *= 2
    lines.write_text(first + "\n".join(map(json.dumps, others)) + "\n")
    tables = run("tables", *options, "--reference", "HistGradientBoosting")["tables"]
    assert len(lines.read_text().splitlines()) == 4
    (row,) = (r for r in tables["summary"] if r["method"] == "CatBoost" and r["number"] == 2)
    assert row["geometric mean"] == pytest.approx(2)
    assert (row["median"], row["share ahead"], row["above 1.15"]) == (2, 0, 2)


def test_peers_get_text_categories_and_seconds():
    pandas = pytest.importorskip("pandas")
    case = part("_tables_case")
    train = pandas.DataFrame({
        "text": ["a", None, "b"], "flag": [True, False, True],
        "date": pandas.to_datetime(["1970-01-02", None, "1970-01-01"]), "x": [1, 2, 3],
    })  # fmt: skip
    test = train.assign(text=["a", "new", None])
    data = registry.Data(train, None, test, None)
    text, _ = case.coded(data, case.text)
    assert text["x0"].tolist() == ["a", "nan", "b"]
    assert text["x1"].tolist() == ["True", "False", "True"]
    np.testing.assert_array_equal(text["x2"], [86400, np.nan, 0])
    assert text.dtypes[["x0", "x1"]].tolist() == [object, object]
    _, category = case.coded(data, case.category)
    assert category["x0"].cat.codes.tolist() == [0, -1, -1]
