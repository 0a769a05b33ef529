"""Every benchmark runs; what the numbers are is for the benchmarks themselves."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgrad.kernels import KERNELS, Gaussian

ROOT = Path(__file__).parents[1]


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    runner = importlib.import_module("benchmarks.run")

    def call(*args):
        out = tmp_path / "result.json"
        assert runner.main([*args, "--quick", "--json", str(out)]) == 0
        return json.loads(out.read_text()) if out.exists() else None

    return call


def test_roofline(run):
    result = run("roofline")
    for row in result["tables"]["ns per row and frequency"]:
        assert row["fused ns"] > 0
        assert row["fraction"] == pytest.approx(row["roofline ns"] / row["fused ns"])
    assert len(result["tables"]["generation of frequencies"]) == 2


def test_synthetic_rate(run, tmp_path):
    tables = run("synthetic_rate")["tables"]
    assert {row["variant"] for row in tables["slope of the squared error"]} == {
        "plain",
        "plain-auto",
        "preconditioned",
    }
    curve = [r for r in tables["RMSE to the true function"] if r["variant"] == "plain"]
    assert [row["iteration"] for row in curve] == [1, 2, 4, 8, 16]
    assert curve[-1]["averaged"] < curve[0]["averaged"]
    assert (tmp_path / "result.png").exists()


def test_time_to_error_without_files(run, tmp_path):
    tables = run("time_to_error", "--dataset", "digits")["tables"]
    assert len(tables["fits"]) >= 12  # not all peers need be installed
    assert all(row["test"] < 0.9 and row["fit s"] > 0 for row in tables["fits"])
    assert all("of 1,297 rows" in row["notes"] for row in tables["fits"])
    assert {row["method"] for row in tables["curve"]} == {"kernelgrad"}
    assert len(tables["ratio"]) == len(tables["fits"]) - 2
    assert (tmp_path / "result.png").exists()


def test_time_to_error_on_files(run):
    archives = importlib.import_module("benchmarks.datasets.archives")
    if not all(
        (archives.data_folder() / f"{name}.npz").exists() for name in ("a9a", "protein")
    ):
        pytest.skip("the data folder is absent; set KERNELGRAD_DATA")
    methods = ["kernelgrad", "SVC/SVR (LIBSVM)", "normal equations (2000)"]
    result = run("time_to_error", "--dataset", "a9a", "protein", "--method", *methods)
    rows = result["tables"]["fits"]
    assert [row["measure"] for row in rows] == 3 * ["error"] + 3 * ["RMSE"]
    assert [row["method"] for row in rows] == 2 * methods


def test_adult_one_pass(run):
    archives = importlib.import_module("benchmarks.datasets.archives")
    if not (archives.data_folder() / "a9a.npz").exists():
        pytest.skip("the data folder is absent; set KERNELGRAD_DATA")
    rows = run("adult_one_pass")["tables"]["one pass over Adult"]
    assert len(rows) == 3
    assert all(row["test error"] < 0.3 for row in rows)


def test_absent_data_are_skipped_with_a_message(run, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KERNELGRAD_DATA", str(tmp_path))
    assert run("time_to_error", "--dataset", "a9a") is None
    assert "a9a skipped: there is no a9a.npz" in capsys.readouterr().out


def test_memory(run):
    pytest.importorskip("pyarrow")
    rows = run("memory")["tables"]["peak memory"]
    assert rows[-1]["data"] == "Parquet, 5,000 rows"
    assert rows[-1]["rows in epoch"] == 5000
    assert all(row["model KiB"] > 0 for row in rows)


def test_startup(run):
    first, second = run("startup")["tables"]["startup"]
    assert first["process s"] > first["total s"] > 0
    assert second["cache misses"] == 0
    assert second["cache hit"]


def test_invariance_as_a_command_without_the_forced_core_type(tmp_path):
    out = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks.run", "invariance", "--quick"]
    done = subprocess.run(
        [*command, "--json", str(out)],
        cwd=ROOT,
        env=os.environ | {"OPENBLAS_CORETYPE": "Haswell"},
        check=True,
        capture_output=True,
        text=True,
    )
    result = json.loads(out.read_text())
    assert result["environment"]["removed_OPENBLAS_CORETYPE"] == "Haswell"
    assert str(ROOT) not in out.read_text()
    rows = result["tables"]["invariance"]
    assert all(row["bitwise equal"] for row in rows)
    assert "| dense regression | threads |" in done.stdout


def test_a_dropped_in_file_is_found(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    registry = importlib.import_module("benchmarks.registry")
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


def test_kernels(run, monkeypatch):
    rows = run("kernels")["tables"]["kernels against their random features"]
    assert {row["kernel"] for row in rows} == set(KERNELS) - {"precomputed"}
    for row in rows:
        assert row["max |z|"] < 5 < row["control |z|"]
        assert row["least / largest eigenvalue"] > -1e-10
        assert row["noise of a block"] > 0
    rows = run("kernels", "--kernel", "hellinger", "--blocks", "500")["tables"]
    (row,) = rows["kernels against their random features"]
    assert (row["kernel"], row["blocks"], row["pairs"]) == ("hellinger", 500, 13)
    monkeypatch.setitem(KERNELS, "forgotten", Gaussian)
    with pytest.raises(ValueError, match="registered kernels forgotten"):
        run("kernels")


def test_kernels_stop_at_a_biased_one(run, monkeypatch):
    monkeypatch.setattr("kernelgrad.kernels.Hellinger.amplitude", 1.1)
    with pytest.raises(AssertionError, match="standard errors"):
        run("kernels", "--kernel", "hellinger")


@pytest.mark.parametrize("objective", ["density_ratio", "gaussian_process", "one_class", "qm7"])
def test_the_experiments_of_the_paper_run(run, objective):
    result = run(objective)
    if result is None:
        pytest.skip(f"{objective} needs data that are absent here")
    assert all(len(rows) for rows in result["tables"].values())


def test_exact_blocks(run):
    tables = run("exact_blocks", "--d", "8", "--rows", "8", "--repeat", "1")["tables"]
    assert all(row["block ns"] > 0 for row in tables["Gaussian blocks"])
    assert all(row["error / max k"] < 2e-6 for row in tables["kernels"])
