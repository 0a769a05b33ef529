"""Pages of results, ``docs/reproduction/<paper>.md``, and the README's table of verdicts."""

from __future__ import annotations

import importlib
import inspect
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from experiments.base import AGREES, CAUSES, DIFFERS, PAPERS, UNDECIDED, Experiment, discover
from experiments.runner import PAGES, ROOT, Result, finish

README = ROOT / "README.md"
HOW = (
    "`python -m experiments report` writes this page from the results beside it, and "
    "`python -m experiments check` fails where it says something else. The margin is by how "
    "much a claim holds: its mean over repeats ± half the 95 % interval by Student's t, and "
    "its median where that is another. A claim is decided where the interval leaves out 0. A "
    "claim that differs has a cause: *the paper's* (an error there, see "
    "[misprints](misprints.md)), *setting* (what is smaller or other here), or *open*. Claims "
    "are levels, orderings or rates. Where seeds nearly decided a claim more were measured, in "
    "a number that was fixed before; so were the rules by which a control decides a cause."
)
BUT = "agrees but for the paper's errors"
START, END = "<!-- verdicts -->", "<!-- end of verdicts -->"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _verdict(claim: dict[str, Any]) -> str:
    cause = claim.get("cause")
    return f"{DIFFERS}: {cause}" if cause else str(claim["verdict"])


def _figure(content: dict[str, Any]) -> str:
    """Return the verdict of a figure, "agrees but for the paper's" where none else differs."""
    verdicts = {_verdict(claim) for claim in content.get("claims", [])}
    if verdicts - {AGREES} == {f"{DIFFERS}: {CAUSES[0]}"}:
        return BUT
    return str(content.get("verdict", "not run"))


def _section(experiment: Experiment, result: Result) -> list[str]:
    title = inspect.cleandoc(type(experiment).__doc__ or "").partition("\n\n")
    lines = [f"## {experiment.label}: {title[0].rstrip('.')}", ""]
    if title[2]:
        lines += [title[2], ""]
    lines += ["```", f"python -m experiments run {experiment.name}", "```", ""]
    content = result.content
    if not content["cells"]:
        return [*lines, "Not run yet.", ""]
    lines += [f"**{_figure(content)}**", ""]
    if content["missing"]:
        lines += [f"{content['missing']} cells are not measured: nothing can agree yet.", ""]
    lines += ["| claim | kind | paper | here | margin | verdict |", "|---|---|---|---|---|---|"]
    for claim in content["claims"]:
        shown = [claim[key] for key in ("text", "kind", "theirs", "ours")]
        half = claim["half_width"]
        mean, median = (_number(claim[key]) for key in ("mean", "median"))
        margin = mean + ("" if half is None else f" ± {half:.3g}")
        also = f"median {median}, " if median != mean else ""
        shown += [f"{margin} ({also}n = {claim['n']})", _verdict(claim)]
        lines.append("| " + " | ".join(map(_cell, shown)) + " |")
    picture = result.path.with_suffix(".png")
    if picture.exists():
        lines += ["", f"![{experiment.label}]({picture.relative_to(PAGES)})"]
    for heading, text in (
        ("Departures", experiment.departures), ("Explanation", experiment.explanation),
    ):  # fmt: skip
        if text:
            lines += ["", f"*{heading}.* {inspect.cleandoc(text)}"]
    commits = sorted({run["commit"] for run in content["cells"]})
    seconds = math.fsum(run["seconds"] for run in content["cells"])
    last = content["environment"]["cpu"]
    cpus = sorted({run.get("cpu", last) for run in content["cells"]})
    lines += [
        "",
        f"{len(content['cells'])} cells, {seconds:.0f} s on {' and '.join(cpus)}, "
        f"commit {', '.join(commits)}: [{result.path.name}]"
        f"({result.path.relative_to(PAGES)}).",
        "",
    ]
    return lines


def _results(paper: str) -> list[tuple[Experiment, Result]]:
    found = discover().items()
    return [(e, Result(e, PAGES)) for name, e in found if name.startswith(f"{paper}.")]


def page(paper: str) -> str:
    """Return the page of a paper."""
    package = importlib.import_module(f"experiments.{paper}")
    lines = [f"# {package.TITLE}", "", package.REFERENCE, "", HOW, ""]
    for experiment, result in _results(paper):
        lines += _section(experiment, result)
    if package.WITHOUT_DATA:
        lines += ["## Not reproduced", "", "| figure or table | reason |", "|---|---|"]
        lines += [f"| {label} | {why} |" for label, why in package.WITHOUT_DATA.items()]
        lines.append("")
    return "\n".join(lines)


def table() -> str:
    """Return the counts of claims and of figures."""
    kinds = (AGREES, *(f"{DIFFERS}: {cause}" for cause in CAUSES), UNDECIDED)
    figures = (AGREES, BUT, DIFFERS, UNDECIDED, "not run")
    lines = []
    for unit, columns in (("claims", kinds), ("figures and tables", figures)):
        more = ("no data",) * (unit != "claims")
        heads = (f"{unit} of", *columns, *more)
        lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        total = np.zeros(len(heads) - 1, int)
        for paper in PAPERS:
            package = importlib.import_module(f"experiments.{paper}")
            contents = [r.content for _, r in _results(paper)]
            each = [_verdict(c) for content in contents for c in content.get("claims", [])]
            verdicts = each if unit == "claims" else [_figure(c) for c in contents]
            counts = [verdicts.count(column) for column in columns]
            counts += [len(package.WITHOUT_DATA)] * len(more)
            total += counts
            link = f"[{package.TITLE}](docs/reproduction/{paper}.md)"
            lines.append(f"| {link} | {' | '.join(map(str, counts))} |")
        lines.append(f"| all | {' | '.join(map(str, total))} |")
    return "\n".join(lines[1:])


def files() -> dict[Path, str]:
    """Return all pages, and the README with the table between its marks."""
    out = {PAGES / f"{paper}.md": page(paper) for paper in PAPERS}
    text = README.read_text()
    between = re.compile(f"{START}.*?{END}", re.DOTALL)
    return out | {README: between.sub(lambda _: f"{START}\n{table()}\n{END}", text)}


def check() -> list[str]:
    """Return what results and pages say that the measured rows do not."""
    wrong = []
    for name, experiment in discover().items():
        result = Result(experiment, PAGES)
        content, cells = result.content, experiment.cells(quick=False)
        methods = [
            (experiment.methods(run["cell"]), {row.get("method") for row in run["rows"]})
            for run in content["cells"]
        ]
        if any(run["cell"] not in cells for run in content["cells"]):
            wrong.append(f"{name}: cells that are not of this experiment")
        elif any(names and names != own for names, own in methods):
            wrong.append(f"{name}: rows of methods that its code does not give")
        elif content["cells"] and content != content | result.decided():
            wrong.append(f"{name}: its verdicts do not follow from its rows")
    stale = [path for path, text in files().items() if path.read_text() != text]
    return wrong + [f"{path.name}: run `python -m experiments report`" for path in stale]


def write(*, draw: bool = True) -> None:
    """Decide all verdicts anew, draw if asked, and write the pages."""
    for experiment in discover().values():
        result = Result(experiment, PAGES)
        if result.content["cells"]:
            finish(result, draw=draw)
    PAGES.mkdir(parents=True, exist_ok=True)
    for path, text in files().items():
        path.write_text(text)
