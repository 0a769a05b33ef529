"""``docs/benchmarks.md`` and tables of other pages, from the results in ``docs/benchmarks/``.

``python -m benchmarks.run OBJECTIVE --json docs/benchmarks/OBJECTIVE.json`` makes a result,
``python -m benchmarks.pages`` writes the pages.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import benchmarks.objectives
from benchmarks import environment
from benchmarks.objectives._shared import where
from benchmarks.registry import Objective, Row, discover
from benchmarks.run import markdown

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "benchmarks"
PAGE, README = ROOT / "docs" / "benchmarks.md", ROOT / "README.md"
RELIABILITY = ROOT / "docs" / "reliability.md"
SHOWN = [  # the README's tables: real ones, from few rows to many
    "iris", "wine", "breast_cancer", "digits", "diabetes", "qm7", "covtype20k", "a9a_frame",
    "protein", "cod_rna", "ijcnn1", "mnist", "flights13",
]  # fmt: skip


def results() -> dict[str, dict[str, Any]]:
    """Return the committed results by the names of their objectives."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def _section(name: str, objective: Objective, result: dict[str, Any]) -> str:
    title, _, rest = inspect.cleandoc(type(objective).__doc__ or "").partition("\n\n")
    parts = [f"## {title.rstrip('.')}", rest, f"```\npython -m benchmarks.run {name}\n```"]
    parts.append("\n".join(f"- {line}" for line in environment.lines(result["environment"])))
    picture = RESULTS / f"{name}.png"
    if picture.exists():
        parts.append(f"![{title}](benchmarks/{picture.name})")
    for heading, rows in objective.page(result["tables"]).items():
        parts += [f"### {name}: {heading}", markdown(rows)]
    parts.append(f"All figures: [{name}.json](benchmarks/{name}.json).")
    return "\n\n".join(filter(None, parts))


def table(rows: Sequence[Row]) -> str:
    """Return the README's table, with the least error of each data set in bold."""
    shown = [row for name in SHOWN for row in where(rows, dataset=name)]
    out = []
    for row in shown:
        values = [v for k, v in row.items() if k.endswith("error") and isinstance(v, float)]
        out.append(
            {
                k: f"**{v:.4g}**" if k.endswith("error") and v == min(values) else v
                for k, v in row.items()
            }
        )
    return markdown(out)


def _between(text: str, marks: re.Match[str]) -> str:
    return f"{marks[1]}{text}\n{marks[2]}"


def files() -> dict[Path, str]:
    """Return the page and the README with what lies between their marks made anew."""
    objectives, found = discover(benchmarks.objectives, Objective), results()
    limits = objectives["limits"].page(found.pop("limits")["tables"])
    sections = [_section(name, objectives[name], result) for name, result in found.items()]
    defaults = objectives["defaults"].page(found["defaults"]["tables"])
    parts = {
        PAGE: ("results", "\n\n".join(sections)),
        README: ("defaults", table(next(iter(defaults.values())))),
        RELIABILITY: ("limits", markdown(next(iter(limits.values())))),
    }
    out = {}
    for path, (mark, text) in parts.items():
        between = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
        out[path] = between.sub(partial(_between, text), path.read_text())
    return out


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
