"""The demo: its page, its models, and what it says while it works."""

import base64
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import kernelgrad
from kernelgrad.callbacks import progress
from kernelgrad.cli.demo import load_example


@pytest.fixture
def example(monkeypatch):
    """The example with its quickest study alone."""
    pytest.importorskip("matplotlib")
    example = load_example()
    monkeypatch.setattr(example, "STUDIES", example.STUDIES[-1:])
    return example


def check_demo(result, names):
    page = Path(result["page"])
    text = page.read_text()
    assert list(result["studies"]) == names
    assert "http" not in text
    assert "<script" not in text
    for name, found in result["studies"].items():
        assert found["identical_after_load"]
        assert kernelgrad.load(page.parent / f"{name}.kgm").random_state == 0
        ours, *rivals = found["results"]
        assert ours["verdict"] == ""
        for rival in rivals:
            better = ours["test_error"] < rival["test_error"]
            assert rival["verdict"] in ("even", "won" if better else "lost")
            assert rival["name"] in text
        pictures = sorted(page.parent.glob(f"{name}_*.png"))
        assert pictures
        assert all(base64.b64encode(each.read_bytes()).decode() in text for each in pictures)


def test_demo(tmp_path, example, cli, ok, monkeypatch):
    check_demo(ok("demo", "--quick", "--output-dir", tmp_path), ["process"])
    load = kernelgrad.load

    def altered(path):
        model = load(path)
        model.expansion_.coef[:] *= -1.5
        return model

    monkeypatch.setattr(f"{example.Work.__module__}.load", altered)
    code, out, err = cli("demo", "--quick", "--output-dir", tmp_path)
    assert code == 1
    assert "KernelGaussianProcessRegressor" in out
    assert "DIFFERENT" in (tmp_path / "demo.html").read_text()
    assert "Error: a loaded model" in err


@pytest.mark.slow
def test_the_whole_demo(tmp_path, ok):
    result = ok("demo", "--quick", "--output-dir", tmp_path)
    check_demo(result, ["table", "digits", "stream", "labels", "process"])
    stream = result["studies"]["stream"]["results"]
    assert stream[0]["test_error"] < stream[1]["test_error"]


def test_verdicts_are_those_of_the_losses(example):
    rng = np.random.default_rng(0)
    ours, work = rng.random(1000), sys.modules[example.Work.__module__]
    others = {"won": ours + 0.1, "lost": 0.8 * ours, "even": ours + rng.normal(0, 0.1, 1000)}
    results = [work.Result(name, losses, []) for name, losses in {"": ours, **others}.items()]
    assert work.Study("", "", "", results, {}, None, None).verdicts() == ["", *others]


def test_the_demo_is_never_silent(tmp_path, example, capsys, monkeypatch):
    module = example.Work.__module__
    monkeypatch.setattr(f"{module}.SILENCE", 0.01)
    monkeypatch.setattr(progress.compiling.watch, "name", "some_loop")
    with example.Work(tmp_path, quick=True) as work:
        work.say("fitting")
        deadline, printed = time.monotonic() + 30, ""
        while "compiling some_loop" not in printed and time.monotonic() < deadline:
            time.sleep(0.02)
            printed += capsys.readouterr().err
    assert "fitting: 0 s, compiling some_loop (once per machine)" in printed


def test_a_wheel_without_the_demo_says_so(tmp_path, cli, monkeypatch):
    monkeypatch.delitem(sys.modules, "kernelgrad_demo", raising=False)
    monkeypatch.setattr("kernelgrad.cli.demo._FOLDERS", (tmp_path / "_demo",))
    code, _, err = cli("demo", "--output-dir", tmp_path)
    assert code == 1
    assert f"no folder {tmp_path / '_demo'}" in err
