"""Every benchmark runs; what the numbers are is for the benchmarks themselves."""

import functools
import importlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import objectives, registry
from benchmarks import run as runner

from kernelgrad.kernels import KERNELS
from kernelgrad.losses import LOSSES
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS

ROOT = Path(__file__).parents[1]
OBJECTIVES = registry.discover(objectives, registry.Objective)

# tiny sizes, beside --quick, of those that take long without
TINY = {
    "defaults": ["--method", "kernelgrad", "linear", "constant"],
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


def test_every_registered_name_is_a_golden_case():
    table = part("_golden_cases")
    words = {table.renamed(word) for name in table.cases() for word in re.split("[/ ]", name)}
    assert {*SOLVERS, *LINEAR_SOLVERS, *KERNELS, *LOSSES} - words == {"one_class"}
