"""What users get: the wheel, its types, and the workflows that check both."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_workflow_runs_what_the_project_claims():
    claimed = [re.fullmatch(r".* :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    pythons = re.search(r"python: \[(.*)\]", WORKFLOW)[1]
    assert re.findall(r"[\d.]+", pythons) == [match[1] for match in claimed if match]
    targets = re.findall(r"make ([a-z-]+)", WORKFLOW)
    makefile = (ROOT / "Makefile").read_text()
    assert set(targets) >= {"test", "test-slow", "test-minimal", "test-wheel"}
    assert [name for name in targets if f"\n{name}:" not in makefile] == []


@pytest.mark.slow
def test_wheel_in_an_environment_without_a_compiler(tmp_path):
    pytest.importorskip("hatchling")
    python = sys.executable
    run(python, "-m", "build", "--wheel", "--no-isolation", "-o", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    files = [p for p in source.rglob("*") if p.is_file() and p.suffix in (".py", ".typed")]
    demo = {f"kernelgrad/_demo/{path.name}" for path in (ROOT / "examples/demo").glob("*.py")}
    assert packed == {str(path.relative_to(source)) for path in files} | demo
    there = tmp_path / "fresh"
    run(python, "-m", "venv", "--without-pip", there)
    new = there / ("Scripts" if os.name == "nt" else "bin")
    pip = [python, "-m", "pip", "--python", new / "python", "install"]
    run(*pip, "--quiet", "--no-deps", "--no-index", wheel)
    # what the package depends on comes from here, the package itself from there
    seen = os.environ | {"PATH": str(new), "PYTHONPATH": str(Path(np.__file__).parents[1])}
    first = Path(__file__).parent / "release" / "first_steps.py"
    assert "fitted, saved and loaded" in run(new / "python", first, cwd=tmp_path, env=seen)


@pytest.mark.slow
def test_two_builds_have_the_same_bytes(tmp_path):
    pytest.importorskip("hatchling")
    ignored = shutil.ignore_patterns("__pycache__", "_build", "generated", "gallery")
    packed = SETTINGS["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    found = []
    for moment, mode in ((1.0e9, 0o755), (1.5e9, 0o700)):  # other folders, times and modes
        copy, out = tmp_path / f"at-{moment:g}", tmp_path / f"built-{moment:g}"
        for name in (*packed, "pyproject.toml", ".gitignore"):
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=ignored)
            else:
                copy.mkdir(exist_ok=True)
                shutil.copy(ROOT / name, copy)
        for path in copy.rglob("*"):
            path.chmod(mode if path.is_dir() else mode & 0o644)
            os.utime(path, (moment, moment))
        run(sys.executable, "-m", "build", "--no-isolation", "-o", out, copy)
        files = sorted(out.iterdir())
        found.append(
            {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        )
    assert len(found[0]) == 2
    assert found[0] == found[1]


@pytest.mark.slow
def test_types_of_a_users_script():
    pytest.importorskip("pyright")
    script = Path(__file__).parent / "typing" / "user_script.py"
    told = run(sys.executable, "-m", "pyright", "--pythonpath", sys.executable, script)
    assert "0 errors" in told
