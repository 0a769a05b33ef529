"""The recipes of the manual; each needs packages that `make test-recipes` installs."""

import re
import sys
import types
import warnings
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
NEEDS = {"mlflow": ["mlflow"], "SHAP": ["shap", "matplotlib"], "MAPIE": ["mapie"]}
NEEDS |= {"Optuna": ["optuna"], "FastAPI in a container": ["fastapi", "httpx"]}
NEEDS |= {"AutoGluon and TabArena": ["autogluon.tabular"]}


@pytest.mark.parametrize("name", SECTIONS)
def test_recipes_run(name, tmp_path, monkeypatch):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("recipe")
    monkeypatch.setitem(sys.modules, "recipe", module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other packages warn
        for code in re.findall(r"^```python\n(.*?)^```", SECTIONS[name], re.M | re.S):
            exec(compile(code, f"docs/recipes.md: {name}", "exec"), module.__dict__)
