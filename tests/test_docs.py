"""Every snippet and command of the documentation is run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest

from kernelgrad.kernels import KERNELS
from kernelgrad.losses import LOSSES
from kernelgrad.solvers import SOLVERS

ROOT = Path(__file__).parents[1]


def blocks(name, language):
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


@pytest.fixture
def registries():
    """Leave the registries as they were: documentation registers its own parts."""
    saved = [(r, dict(r)) for r in (KERNELS, LOSSES, SOLVERS)]
    yield
    for registry, before in saved:
        registry.clear()
        registry.update(before)


@pytest.mark.parametrize(
    "name", ["docs/extend.md", "docs/linear.md", "docs/semi_supervised.md", "README.md"]
)
def test_python_snippets_run(name, registries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(name, "python")
    assert found
    module = types.ModuleType("documentation")  # a real module: its classes can be pickled
    monkeypatch.setitem(sys.modules, "documentation", module)
    for i, code in enumerate(found):
        exec(compile(code, f"{name}[{i}]", "exec"), module.__dict__)


def test_commands_of_the_readme_run(tmp_path):
    lines = [line for block in blocks("README.md", "console") for line in block.splitlines()]
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    make = [c for c in commands if c.startswith("make ")]
    ours = [c for c in commands if c.startswith("kernelgrad ")]
    assert {"make demo", "make test"} <= set(make)
    example = [c for c in commands if c.startswith("python examples/")]
    assert sorted(commands) == sorted(make + example + ours)
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in make:
        assert re.search(rf"^{command.split()[1]}:", targets, re.M), command
    for command in example:
        script = str(ROOT / command.split()[1])
        subprocess.run([sys.executable, script], cwd=tmp_path, check=True)
    for command in ours:
        done = subprocess.run(
            [sys.executable, "-m", "kernelgrad.cli", *shlex.split(command)[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
