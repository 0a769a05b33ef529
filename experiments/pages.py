"""Pages of results, ``docs/reproduction/<paper>.md``, and the README's table of verdicts."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

from experiments.base import AGREES, DIFFERS, PAPERS, UNDECIDED, Experiment, discover
from experiments.runner import PAGES, ROOT, Result, finish

README = ROOT / "README.md"
HOW = (
    "`python -m experiments report` writes this page from the results beside it. The margin is "
    "by how much a claim holds: its median over repeats, and the standard error of its mean. A "
    "claim is decided where the mean is two standard errors from 0."
)
START, END = "<!-- verdicts -->", "<!-- end of verdicts -->"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _section(experiment: Experiment, result: Result) -> list[str]:
    title = inspect.cleandoc(type(experiment).__doc__ or "").partition("\n\n")
    lines = [f"## {experiment.label}: {title[0].rstrip('.')}", ""]
    if title[2]:
        lines += [title[2], ""]
    lines += ["```", f"python -m experiments run {experiment.name}", "```", ""]
    content = result.content
    if not content["cells"]:
        return [*lines, "Not run yet.", ""]
    lines += [f"**{content['verdict']}**", "", "| claim | paper | here | margin | verdict |"]
    lines += ["|---|---|---|---|---|"]
    for claim in content["claims"]:
        shown = [claim["text"], claim["theirs"], claim["ours"]]
        error = claim["standard_error"]
        margin = "-" if claim["median"] is None else f"{claim['median']:.3g}"
        margin += "" if error is None else f" ± {error:.2g}"
        shown += [f"{margin} (n = {claim['n']})", claim["verdict"]]
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
    seconds = sum(run["seconds"] for run in content["cells"])
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
    """Return the table of verdicts."""
    kinds = (AGREES, DIFFERS, UNDECIDED)
    lines = [
        f"| paper | {' | '.join(kinds)} | not run | no data |",
        "|---|---|---|---|---|---|",
    ]
    for paper in PAPERS:
        package = importlib.import_module(f"experiments.{paper}")
        found = [r.content.get("verdict", "not run") for _, r in _results(paper)]
        counts = [found.count(kind) for kind in (*kinds, "not run")]
        link = f"[{package.TITLE}](docs/reproduction/{paper}.md)"
        counts.append(len(package.WITHOUT_DATA))
        lines.append(f"| {link} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def files() -> dict[Path, str]:
    """Return all pages, and the README with the table between its marks."""
    out = {PAGES / f"{paper}.md": page(paper) for paper in PAPERS}
    text = README.read_text()
    between = re.compile(f"{START}.*?{END}", re.DOTALL)
    return out | {README: between.sub(lambda _: f"{START}\n{table()}\n{END}", text)}


def write(*, draw: bool = True) -> None:
    """Decide all verdicts anew, draw if asked, and write the pages."""
    for experiment in discover().values():
        result = Result(experiment, PAGES)
        if result.content["cells"] and draw:
            finish(result)
    PAGES.mkdir(parents=True, exist_ok=True)
    for path, text in files().items():
        path.write_text(text)
