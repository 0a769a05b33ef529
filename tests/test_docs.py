"""Every snippet, command, recipe and example of the documentation is run."""

import ast
import builtins
import dataclasses
import importlib
import inspect
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import types
from collections import defaultdict
from pathlib import Path
from typing import get_args
from urllib.parse import unquote

import pytest
from sklearn.utils.discovery import all_estimators

import kernelgrad
from cases import every
from kernelgrad import types as names_of_types
from kernelgrad.cli import main
from kernelgrad.cli.app import app
from kernelgrad.docstrings import parameter_texts
from kernelgrad.kernels import KERNELS
from kernelgrad.losses import LOSSES
from kernelgrad.params import outside_values
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS
from kernelgrad.tables import KINDS

ROOT = Path(__file__).parents[1]
ROOMS = ("data", "kernels", "losses", "solvers", "callbacks", "plotting", "features.base")
PUBLIC = [f"kernelgrad.{room}" for room in ROOMS]
FOREIGN = {name for name, _ in all_estimators()} | {  # names of Python and scikit-learn
    "None", "RBF", "ConstantKernel", "ScoringMonitor", "CalibrationDisplay", "Dataset",
    "ConvergenceWarning", "AbstractModel",
}  # fmt: skip


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


@pytest.fixture
def registries():
    """Leave the registries as they were: documentation registers its own parts."""
    saved = [(r, dict(r)) for r in (KERNELS, KINDS, LOSSES, SOLVERS)]
    yield
    for registry, before in saved:
        registry.clear()
        registry.update(before)


DOCS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
SLOW = {  # seconds each; the others run in the quick suite
    "docs/checkpoints.md", "docs/data.md", "docs/distributed.md", "docs/extend.md",
    "docs/lightgbm.md", "docs/losses.md", "docs/metric.md", "docs/semi_supervised.md",
    "docs/serving.md", "docs/streams.md", "docs/tutorial.md",
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in DOCS
        if blocks(text_of(name), "python") and name != "docs/recipes.md"
    ],
)
def test_python_snippets_run(name, registries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(text_of(name), "python")
    if any("distributed" in code for code in found):
        pytest.importorskip("distributed")
    run(found, name, monkeypatch)


def run(found, name, monkeypatch):
    module = types.ModuleType("documentation")  # a real module: its classes can be pickled
    monkeypatch.setitem(sys.modules, "documentation", module)
    for i, code in enumerate(found):
        exec(compile(code, f"{name}[{i}]", "exec"), module.__dict__)


RECIPES = dict(
    re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text_of("docs/recipes.md"), re.M | re.S)
)
NEEDS = {"mlflow": ["mlflow"], "SHAP": ["shap", "matplotlib"], "MAPIE": ["mapie"]}
NEEDS |= {"Optuna": ["optuna"], "FastAPI in a container": ["fastapi", "httpx"]}
NEEDS |= {"AutoGluon and TabArena": ["autogluon.tabular"]}


@pytest.mark.filterwarnings("ignore")  # other packages warn
@pytest.mark.parametrize("name", RECIPES)
def test_recipes_run(name, tmp_path, monkeypatch):
    for package in NEEDS.get(name, ()):  # `make test-recipes` installs them
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    run(blocks(RECIPES[name], "python"), f"docs/recipes.md: {name}", monkeypatch)


EXAMPLES = sorted((ROOT / "examples").glob("*/plot_*.py"))
QUICK = "plot_regression_curve"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.stem == QUICK else pytest.mark.slow, id=path.stem)
        for path in EXAMPLES
    ],
)
def test_an_example_draws_whole_pictures(path, tmp_path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    figures = [plt.figure(number) for number in plt.get_fignums()]
    assert figures
    for figure in figures:
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
        assert (box.min > -0.01).all(), "cut off at the left or below"
        assert (box.max < figure.get_size_inches() + 0.01).all(), "cut off at the right, above"
        assert any(ax.get_title() or ax.get_xlabel() for ax in figure.axes)
    plt.close("all")


def test_what_the_documentation_names_can_be_imported():
    """Classes in backticks are public: kernels, losses, solvers, estimators."""
    public = [builtins, kernelgrad, *map(importlib.import_module, PUBLIC)]
    unknown = {
        (name, word)
        for name in DOCS
        for word in re.findall(
            r"`([A-Z][A-Za-z0-9]*[a-z0-9][A-Za-z0-9]*|[A-Z]{3,5})[`(]", text_of(name)
        )
        if word not in FOREIGN and not any(hasattr(module, word) for module in public)
    }
    assert unknown == set()


@pytest.mark.parametrize(
    ("name", "registry"),
    [
        ("docs/kernels.md", KERNELS), ("docs/losses.md", LOSSES),
        ("docs/solvers.md", SOLVERS), ("docs/linear.md", LINEAR_SOLVERS),
    ],
)  # fmt: skip
def test_tables_name_what_is_registered(name, registry):
    """First column: the name; second: the class. All of them but for other documents."""
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text_of(name), re.M)
    assert rows
    for key, cls in rows:
        assert registry[key].__name__ == cls
    elsewhere = {"precomputed", *(name for name, each in SOLVERS.items() if each.marks)}
    assert set(registry) - elsewhere == {key for key, _ in rows}


def slug(heading):
    """Return the anchor of a heading, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.strip().replace(" ", "-")


def test_links_lead_somewhere():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")]
    broken = []
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in re.findall(r"(?<!`)\]\(([^)\s]+)\)", text):
            if link.startswith(("http", "mailto:")):
                continue
            where, _, anchor = link.partition("#")
            target = page.parent / where if where else page
            built = target.name == "index.rst" and target.parent.name == "gallery"
            if not (target.exists() or built):
                broken.append((page.name, link))
            elif anchor:
                headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
                if anchor not in map(slug, headings):
                    broken.append((page.name, link))
    assert broken == []


def public_objects():
    """Yield the full name and the object of each class and function of a public module."""
    pages = (ROOT / "docs" / "api").glob("*.rst")
    rooms = re.findall(
        r"^.. currentmodule:: (\S+)$", "\n".join(map(Path.read_text, pages)), re.M
    )
    for room in sorted({"kernelgrad", *rooms}):
        module = importlib.import_module(room)
        for name in getattr(module, "__all__", vars(module)):
            found = getattr(module, name)
            ours = str(getattr(found, "__module__", "")).startswith(room)
            what = inspect.isclass(found) or inspect.isroutine(found)
            if what and ours and not name.startswith("_"):
                yield f"{room}.{name}", found


def test_the_reference_lists_every_public_name():
    listed, pages = [], []
    for page in sorted((ROOT / "docs" / "api").glob("*.rst")):
        module = "kernelgrad"
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif re.fullmatch(r"   [A-Za-z]\w*", line) and page.stem != "index":
                listed.append(getattr(importlib.import_module(module), line.strip()))
                pages.append(f"{module}.{line.strip()}")
    assert [name for name, found in public_objects() if found not in listed] == []
    assert [name for name, found in zip(pages, listed, strict=True) if not found.__doc__] == []
    own = [each for each in zip(pages, listed, strict=True) if isinstance(each[1], type)]
    assert [
        f"{page}.{name}"
        for page, found in own
        for name, method in vars(found).items()
        if inspect.isfunction(method)
        and name[0] != "_"
        and not inspect.getdoc(getattr(found, name))
    ] == []
    assert len(set(map(id, listed))) == len(listed)  # each on one page


def test_what_stands_beside_the_pages(site):
    names = re.findall(r"\]\(([\w/]+)\.html\)", text_of("docs/llms.txt"))
    assert len(names) > 20
    pages = ["md", "rst"]
    assert [n for n in names if not any((ROOT / f"docs/{n}.{e}").exists() for e in pages)] == []
    needed = re.search(r"^dependencies = \[\n(.*?)^\]", text_of("pyproject.toml"), re.M | re.S)[
        1
    ]
    run = text_of("recipe/meta.yaml").partition("  run:")[2]
    for package, least in re.findall(r'"([\w-]+)>=([\d.]+)"', needed):
        assert f"    - {package} >={least}\n" in run
    assert site.ratios().count("<circle") > 100
    assert "<td>CatBoost</td><td></td><td>1</td>" in site.standing()


def test_the_page_of_the_command_line_has_every_command():
    commands = [c.callback.__name__ for c in app.registered_commands]
    text = text_of("docs/cli.md")
    assert re.findall(r"^## (\w+)$", text, re.M) == commands
    assert re.findall(r"^```\{help\} (\w+)$", text, re.M) == commands


@pytest.fixture
def site(monkeypatch):
    pytest.importorskip("numpydoc")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("_site")


def test_the_files_to_read_first_have_these_lines():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (\d+) \|", page, re.M)
    assert len(rows) == 10
    for name, lines in rows:
        text = (ROOT / "src" / "kernelgrad" / name).read_text("utf-8")
        assert abs(len(text.splitlines()) / int(lines) - 1) < 0.1, name


def test_pictures_show_what_there_is(site):
    public = [kernelgrad, *map(importlib.import_module, PUBLIC)]
    registered = {*KERNELS, *LOSSES, *SOLVERS, "auto"}
    for _, answer in (choice for part in site.CHOICES.values() for choice in part):
        for word in re.findall(r'"(\w+)"', answer):
            assert word in {*registered, "features"}, answer
        for word in re.findall(r"\b[A-Z]\w+", answer):
            assert any(hasattr(module, word) for module in public), answer
    rooms = {path.stem for path in (ROOT / "src" / "kernelgrad").glob("[!_]*") if path.is_dir()}
    page = text_of("docs/architecture.md")  # pictures are not drawn on GitHub
    assert all(f"`{room}`" in page for room in rooms)
    contracts = (
        "Layers: imports go one way",
        "Special kernels, devices and graphs know no solver",
    )
    drawn = "".join(map(site.layers, contracts))
    assert all(f"<dt>{room}</dt>" in drawn for room in rooms)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx_gallery")
    copy = tmp_path / "kernelgrad"  # generated pages stay out of the working tree
    skip = shutil.ignore_patterns("_build", "generated", "backreferences", "gallery")
    for part in ("docs", "examples", "src"):
        shutil.copytree(ROOT / part, copy / part, ignore=skip)
    for part in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / part, copy / part)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", "built"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outside = re.compile(r'(?:src="|<link[^>]+href="|url\(["\']?)https?:')
    pages = [page for page in (copy / "built").rglob("*.html") if "_static" not in page.parts]
    assert len(pages) > 200
    assert [page.name for page in pages if f"{copy}/" in page.read_text("utf-8")] == []
    assert [page.name for page in pages if outside.search(page.read_text("utf-8"))] == []
    missing = [
        (page.name, link)
        for page in pages
        for link in re.findall(
            r'<[^>]+\s(?:href|src)="(?!\w+:|#)([^"#?]+)', page.read_text("utf-8")
        )
        if not (page.parent / unquote(link)).exists()
    ]
    assert missing == []


@pytest.mark.slow
def test_commands_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "".join(blocks(text_of("README.md"), "console"))
    commands = [shlex.split(line) for line in re.findall(r"^\$ (.*)$", text, re.M)]
    targets = {words[1] for words in commands if words[0] == "make"}
    assert targets >= {"demo", "test"}
    assert targets <= set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    for program, *words in commands:
        if program == "python":
            runpy.run_path(str(ROOT / words[0]), run_name="__main__")
        elif program == "kernelgrad":
            assert main(words) == 0
        else:
            assert program == "make"


def test_one_version(capsys):
    version = re.escape(kernelgrad.__version__)
    released = version.removesuffix(r"\.dev0")
    for name, line in {
        "pyproject.toml": f'^version = "{version}"$', "CITATION.cff": f"^version: {version}$",
        "recipe/meta.yaml": f'version: "{version}"', "CHANGELOG.md": rf"^## {released} \(",
    }.items():  # fmt: skip
        assert re.search(line, text_of(name), re.M), name
    switcher = json.loads(text_of("docs/_static/switcher.json"))
    assert switcher[0]["version"] == kernelgrad.__version__
    kernelgrad.show_versions()
    shown = capsys.readouterr().out
    assert f"kernelgrad: {kernelgrad.__version__}\n" in shown
    assert "openblas" in shown or "mkl" in shown


CLASSES = [
    n for n in kernelgrad.__all__ if hasattr(getattr(kernelgrad, n), "__dataclass_fields__")
]


@every("name", CLASSES)
def test_documented_defaults_are_those_of_the_signature(name):
    cls = getattr(kernelgrad, name)
    given = inspect.signature(cls).parameters
    told = r'^(\w+(?:, \w+)*) : .*?default=("[^"]*"|\([^)]*\)|[^\s,;]+)'
    lines = inspect.getdoc(cls).split("\n\n")
    assert not any(part.startswith(" ") for part in lines[:2])  # no line stands further left
    for names, default in re.findall(told, inspect.getdoc(cls), re.M):
        for parameter in names.split(", "):
            assert given[parameter].default == ast.literal_eval(default), parameter


REGISTERED = [*KERNELS.values(), *LOSSES.values(), *SOLVERS.values(), *LINEAR_SOLVERS.values()]


def test_docstrings_describe_every_parameter_in_its_order():
    for cls in [*(getattr(kernelgrad, name) for name in CLASSES), *REGISTERED]:
        told, given = (
            list(parameter_texts(cls.__doc__)),
            list(inspect.signature(cls).parameters),
        )
        assert set(given) - set(told) == set(), cls
        assert "As in :class:" not in cls.__doc__
        assert len(cls.__doc__.split()) <= 1300
    for cls in (kernelgrad.KernelClassifier, kernelgrad.KernelRegressor):
        first = ["loss", "kernel", "C", "alpha", "gamma", "metric", "standardize"]
        assert list(inspect.signature(cls).parameters)[:7] == first


def test_names_that_editors_complete_are_those_registered():
    names = {n for n in KERNELS if n not in ("product", "sum")} | {"gaussian", "linear", "poly"}
    assert set(get_args(names_of_types.KernelName)) == names | {"auto"}
    tasks = {"classification", "regression"}
    assert set(get_args(names_of_types.LossName)) == {
        "auto", *(name for name, loss in LOSSES.items() if loss.tasks & tasks)
    }  # fmt: skip
    listed = {name for name, solver in SOLVERS.items() if not solver.marks}
    assert set(get_args(names_of_types.SolverName)) == listed | {"auto"}


@every("cls", [*(getattr(kernelgrad, name) for name in CLASSES), *REGISTERED])
def test_documented_bounds_are_those_that_are_checked(cls):
    refused = defaultdict(list)
    for name, value in outside_values(cls) if dataclasses.is_dataclass(cls) else ():
        refused[name].append(value)
    told = r"^(\w+(?:, \w+)*) : (?:int|float) (>=?) (-?[\d.e-]+)"
    for names, sign, low in re.findall(told, inspect.getdoc(cls), re.M):
        for name in refused.keys() & set(names.split(", ")):
            assert float(low) - (sign == ">=") in refused[name], name
