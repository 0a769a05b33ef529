"""What the pages need beside Sphinx: formulas as MathML, pictures drawn from the code."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import subprocess
import sys
import tomllib
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.util.docutils import SphinxDirective

import kernelgrad
from kernelgrad.kernels import KERNELS
from kernelgrad.losses import LOSSES
from kernelgrad.solvers import SOLVERS

ROOT = Path(__file__).parents[1]


# -- formulas ------------------------------------------------------------------------------


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(latex2mathml.tex2mathml(node.astext()))
    raise nodes.SkipNode


def _display(self: Any, node: nodes.math_block) -> None:
    formula = latex2mathml.tex2mathml(node.astext(), as_block=True)
    self.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode


# -- members -------------------------------------------------------------------------------


def _skip(_app: Any, _what: str, name: str, obj: Any, skip: bool, _options: Any) -> bool | None:
    """Leave out what scikit-learn documents: its own methods and requests of metadata."""
    foreign = (getattr(obj, "__module__", None) or "kernelgrad").split(".")[0] != "kernelgrad"
    return True if foreign or re.fullmatch(r"set_\w+_request", name) else None


def _link(
    _app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Make links of the pages that docstrings name."""
    lines[:] = [re.sub(r"docs/(\w+)\.md", r":doc:`/\1`", line) for line in lines]


# -- pictures ------------------------------------------------------------------------------

# What the picture of choices asks, in its order, and the answer where it is "yes".
CHOICES: dict[str, list[tuple[str, str]]] = {
    "1. The estimator": [
        ("Are most labels missing?", "SemiSupervisedKernelClassifier"),
        ("No target, but unusual rows to find?", "KernelNoveltyDetector"),
        ("Are there two samples to compare?", "KernelDensityRatio"),
        ("Are rows wide and sparse, such as words?", "LinearClassifier, LinearRegressor"),
        ("Few rows, a smooth function, intervals?", "KernelGaussianProcessRegressor"),
        ("Anything else", "KernelClassifier, KernelRegressor"),
    ],
    "2. The loss": [
        ("Do probabilities matter most?", '"log_loss"'),
        ("Do you want a quantile, or several?", "Quantile((0.1, 0.5, 0.9))"),
        ("Are there outliers in the target?", '"huber"'),
        ("Do you want the function of SVC, of SVR?", '"hinge", "epsilon_insensitive"'),
        ("Anything else", '"squared"'),
    ],
    "3. The kernel": [
        ("Are rows counts or histograms?", '"chi2"'),
        ("Are rows small images?", '"convolutional"'),
        ("Are rows something other than numbers?", '"precomputed"'),
        ("Anything else", '"auto"'),
    ],
    "4. The solver": [
        ("Do rows arrive in a stream?", '"dsg", by partial_fit'),
        ("Many rows, and cheap predictions?", '"dsg"'),
        ("Do rows live on a cluster?", "engine=DaskEngine(client)"),
        ("Anything else", '"auto"'),
    ],
}


def _linked(text: str) -> str:
    """Link the names of classes, and what they are registered by, to their pages."""
    registries = {
        "kernelgrad.solvers": SOLVERS,
        "kernelgrad.kernels": KERNELS,
        "kernelgrad.losses": {**LOSSES, **vars(kernelgrad.losses)},
        "kernelgrad": {name: getattr(kernelgrad, name) for name in kernelgrad.__all__},
    }

    def link(found: re.Match[str]) -> str:
        for module, classes in registries.items():
            if inspect.isclass(cls := classes.get(found[0])):
                page = f"api/generated/{module}.{cls.__name__}.html"
                return f'<a href="{page}">{found[0]}</a>'
        return found[0]

    return re.sub(r"\w+", link, escape(text, quote=False))


def _box(x: float, y: float, width: float, height: float, text: str, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        f'<text class="{kind}" x="{x + width / 2}" y="{y + height / 2}">{text}</text>'
    )


def _arrow(x: float, y: float, dx: float, dy: float, kind: str) -> str:
    return f'<path class="arrow" d="M{x} {y} l{dx} {dy}" marker-end="url(#tip-{kind})"/>'


def _svg(width: float, height: float, title: str, parts: list[str], kind: str) -> str:
    tip = (
        f'<defs><marker id="tip-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0 L8 4 L0 8 z"/>'
        "</marker></defs>"
    )
    return (
        f'<div class="picture {kind}"><svg viewBox="0 0 {width} {height}" role="img" '
        f'style="max-width: {width}px" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title>{tip}{''.join(parts)}</svg></div>"
    )


def decision(kind: str) -> str:
    """Draw :data:`CHOICES`: "yes" goes to the right if `kind` is "wide", else below."""
    parts, y = [], 0.0
    for heading, questions in CHOICES.items():
        parts.append(f'<text class="heading" x="0" y="{y + 18}">{escape(heading)}</text>')
        y += 36
        for i, (question, answer) in enumerate(questions):
            last = i == len(questions) - 1
            parts.append(_box(0, y, 330, 34, escape(question), "question"))
            if kind == "narrow":
                parts += [
                    _arrow(200, y + 34, 0, 20, kind),
                    _box(20, y + 56, 310, 34, _linked(answer), "answer"),
                ]
                yes, down, height = (220, y + 44), (8, 66), 102
            else:
                parts += [
                    _arrow(330, y + 17, 58, 0, kind),
                    _box(390, y, 310, 34, _linked(answer), "answer"),
                ]
                yes, down, height = (359, y + 9), (165, 20), 56
            if not last:
                parts.append(f'<text class="small" x="{yes[0]}" y="{yes[1]}">yes</text>')
                parts.append(_arrow(down[0], y + 34, 0, down[1], kind))
                parts.append(f'<text class="small" x="{down[0] + 15}" y="{y + 44}">no</text>')
            y += height - 12 if last else height
        y += 8
    title = "Which estimator, loss, kernel and solver to take"
    return _svg(332 if kind == "narrow" else 702, y, title, parts, kind)


METHODS = ("kernelgrad", "kernelgrad fast", "LightGBM")  # beside CatBoost


def _ratios() -> dict[str, dict[str, list[float]]]:
    """Return errors over CatBoost's on the benchmark's tables, by measure and method."""
    fits = json.loads((ROOT / "docs/benchmarks/tables.json").read_text("utf-8"))
    errors: dict[tuple[str, str], dict[str, float]] = {}
    for fit in fits["tables"]["fits"]:
        error = max(fit[fit["measure"]], 1e-4)  # as on the page of benchmarks
        errors.setdefault((fit["measure"], fit["dataset"]), {})[fit["method"]] = error
    ratios: dict[str, dict[str, list[float]]] = {"RMSE": {}, "log loss": {}}
    for (measure, _), by_method in errors.items():
        for method in METHODS:
            if method in by_method and "CatBoost" in by_method:
                ratio = by_method[method] / by_method["CatBoost"]
                ratios[measure].setdefault(method, []).append(ratio)
    return ratios


def ratios() -> str:
    """Draw errors over CatBoost's, each method's sorted by size; ends of the scale clip."""
    height, low, high = 250, math.log(0.3), math.log(2.0)
    parts = []
    for tick in (0.3, 0.5, 0.7, 1.0, 1.4, 2.0):
        y = 20 + (height - 40) * (high - math.log(tick)) / (high - low)
        kind = "reference" if tick == 1.0 else "grid"
        parts.append(f'<path class="{kind}" d="M40 {y:.1f} H450"/>')
        parts.append(f'<text class="small" x="20" y="{y:.1f}">{tick:g}</text>')
        if tick == 1.0:
            parts.append(f'<text class="small" x="415" y="{y + 11:.1f}">CatBoost</text>')
    for method, kind, x, y in (
        ("kernelgrad", "ours", 400, 200),
        ("LightGBM", "theirs", 90, 50),
    ):
        values = sorted(r for by_method in _ratios().values() for r in by_method[method])
        for i, ratio in enumerate(values):
            at = 20 + (height - 40) * (high - math.log(min(max(ratio, 0.3), 2.0))) / (
                high - low
            )
            place = 46 + 398 * i / (len(values) - 1)
            parts.append(f'<circle class="{kind}" cx="{place:.1f}" cy="{at:.1f}" r="3.5"/>')
        parts.append(f'<text class="{kind}" x="{x}" y="{y}">{method}</text>')
    title = "Errors over those of CatBoost, one point for each table, sorted by size"
    return _svg(460, height, title, parts, "ratios")


def standing() -> str:
    """Return the rows of a table of methods: tables ahead, median ratios, seconds."""
    fits = json.loads((ROOT / "docs/benchmarks/tables.json").read_text("utf-8"))
    by_measure, rows = _ratios(), []
    for method in (*METHODS, "CatBoost"):
        name = {"kernelgrad fast": 'kernelgrad, effort="fast"'}.get(method, method)
        cells = [escape(name, quote=False)]
        for each in by_measure.values():
            values = each.get(method, [])
            ahead = sum(v < 1 for v in values)
            cells += (
                [f"{ahead} of {len(values)}", f"{median(values):.2f}"] if values else ["", "1"]
            )
        seconds = [fit["fit s"] for fit in fits["tables"]["fits"] if fit["method"] == method]
        cells.append(f"{sum(seconds):.0f}")
        rows.append("".join(f"<td>{cell}</td>" for cell in cells))
    heads = (
        "untuned", "smaller RMSE", "median ratio", "smaller log loss", "median ratio",
        "seconds, all fits",
    )  # fmt: skip
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    table = f'<table class="table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="pst-scrollable-table-container">{table}</div>'


def contract(name: str) -> list[list[str]]:
    """Return the layers of a contract of ``pyproject.toml``, the highest first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (found,) = (c["layers"] for c in contracts if c["name"] == name)
    return [layer.split(" | ") for layer in found]


def _summary(module: str) -> str:
    """Return the first line of a module's docstring, without importing it."""
    path = ROOT / "src" / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return doc.partition("\n")[0].rstrip(".")


def layers(name: str) -> str:
    """Draw the layers of a contract: each imports from those below it alone."""
    drawn = []
    for modules in contract(name):
        rooms = [
            f"<dt>{module.split('.')[-1]}</dt><dd>{escape(_summary(module))}</dd>"
            for module in modules
        ]
        drawn.append(f"<dl>{''.join(rooms)}</dl>")
    return f'<div class="layers">{"".join(drawn)}</div>'


class Picture(SphinxDirective):
    """``decision``, ``ratios``, ``standing``, or ``layers`` and the name of a contract."""

    required_arguments, optional_arguments = 1, 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        kind, *names = self.arguments
        draw = {"layers": layers, "ratios": ratios, "standing": standing}
        both = decision("wide") + decision("narrow")
        svg = both if kind == "decision" else draw[kind](*names)
        for file in (__file__, ROOT / "pyproject.toml", ROOT / "docs/benchmarks/tables.json"):
            self.env.note_dependency(file)
        return [nodes.raw("", svg, format="html")]


class Help(SphinxDirective):
    """What a command prints about itself."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        command = [sys.executable, "-m", "kernelgrad.cli", self.arguments[0], "--help"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [nodes.literal_block(told, told.strip(), language="text")]


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _link)
    app.add_directive("help", Help)
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
