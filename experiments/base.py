"""What an experiment is: cells to measure, claims that their rows decide, and a picture."""

from __future__ import annotations

import importlib
import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.objectives._shared import picture, where
from benchmarks.registry import Row
from scipy import stats

PAPERS = ("dsg", "cdsg", "tsg", "sbp", "s3gd")
Cell = dict[str, Any]
Rows = Iterable[Row]
AGREES, DIFFERS, UNDECIDED = "agrees", "differs", "undecided"
# causes of a difference: an error of the paper, what is smaller or other here, not known
CAUSES = PAPERS_OWN, SETTING, OPEN = "the paper's", "setting", "open"
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Decision:
    """What rows say of a claim: the median of its margins, their mean and its interval."""

    verdict: str
    median: float
    mean: float
    half_width: float  # Student's t interval has this half width
    n: int


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that rows confirm or contradict.

    Attributes
    ----------
    text : str
        The sentence, with its tolerance.
    theirs : str
        The paper's number, or what its figure shows.
    ours : callable
        Returns our number of the same kind from all rows, as text.
    margins : callable
        Returns from all rows by how much the claim holds, one number for each independent
        repeat (a seed): above 0 where it is true.
    error : float, default=nan
        The standard error of a single margin: 0 for what is counted. Of several margins it is
        estimated; a single one without it decides nothing.
    kind, cause : str
        In place of those of the experiment.
    """

    text: str
    theirs: str
    ours: Callable[[list[Row]], str]
    margins: Callable[[list[Row]], Sequence[float]]
    error: float = math.nan
    kind: str = ""
    cause: str = ""

    def decide(self, rows: list[Row]) -> Decision:
        """Say "agrees" or "differs" where the interval of the mean margin leaves out 0."""
        values = np.asarray(self.margins(rows), np.float64)
        n = len(values)
        error = self.error
        if n > 1:  # the deviation of equal margins is rounded to 0 on any processor
            error = round(float(values.std(ddof=1) / math.sqrt(n)), 15)
        half = error * float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1 if n > 1 else math.inf))
        mean = round(float(values.mean()), 15) if n else math.nan
        verdict = UNDECIDED
        if mean - half > 0 or (half == 0 and mean == 0):
            verdict = AGREES
        elif mean + half < 0:
            verdict = DIFFERS
        return Decision(verdict, float(np.median(values)) if n else math.nan, mean, half, n)

    def decide_some(self, rows: list[Row]) -> Decision:
        """Decide while cells are missing: what is absent cannot agree."""
        try:
            decision = self.decide(rows)
        except (LookupError, ValueError):
            return Decision(UNDECIDED, math.nan, math.nan, math.nan, 0)
        absent = decision.verdict == AGREES
        return replace(decision, verdict=UNDECIDED) if absent else decision


class Experiment(ABC):
    """One figure or table of a paper; the first line of its docstring is its title."""

    label: ClassVar[str]  # as the paper names it: "Figure 4(2)"
    departures: ClassVar[str] = ""  # what is not the paper's setting, and why
    kind: ClassVar[str] = "ordering"  # what claims state: who is ahead, a number, or a growth
    cause: ClassVar[str] = OPEN  # why claims differ; "the paper's" has a proof in misprints.md
    explanation: ClassVar[str] = ""  # of a difference, and which experiment isolates its cause
    claims: ClassVar[tuple[Claim, ...]]

    @property
    def name(self) -> str:
        """Return the paper and the file: ``dsg.figure4_2``."""
        return type(self).__module__.removeprefix("experiments.")

    @abstractmethod
    def cells(self, quick: bool) -> list[Cell]:
        """Return what is measured one after another, each cell by its parameters.

        Their values are those of JSON; each has a ``seed``. A run that was interrupted goes on
        with the next cell, so that a cell should take minutes. `quick` cells take a second.
        """

    @abstractmethod
    def measure(self, cell: Cell) -> Rows:
        """Return the rows of one cell, without its parameters, or raise SkipError."""

    def methods(self, cell: Cell) -> set[str] | None:
        """Return the methods of the rows of a cell, None where they are not compared."""
        return None

    @abstractmethod
    def plot(self, rows: list[Row], path: Path) -> None:
        """Draw the paper's picture from all rows, cells' parameters included."""

    def verdict(self, rows: list[Row], *, whole: bool = True) -> tuple[str, list[Decision]]:
        """Return "differs" if one claim does, "agrees" if all do, and the decisions.

        `whole` is False while cells are missing.
        """
        decide = Claim.decide if whole else Claim.decide_some
        decisions = [decide(claim, rows) for claim in self.claims]
        verdicts = {decision.verdict for decision in decisions}
        overall = AGREES if verdicts == {AGREES} else UNDECIDED
        return DIFFERS if DIFFERS in verdicts else overall, decisions


def by_seed(rows: Iterable[Row], value: Callable[[list[Row]], float]) -> list[float]:
    """Return a value of the rows of each seed, in the order of seeds."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["seed"], []).append(row)
    return [value(groups[seed]) for seed in sorted(groups)]


def each_seed(
    value: Callable[[list[Row]], float], **columns: Any
) -> Callable[[list[Row]], list[float]]:
    """Return what takes `value` of the rows of each seed, of those with these columns alone."""
    return lambda rows: by_seed(where(rows, **columns), value)


def medians(rows: list[Row], by: Sequence[str], columns: Sequence[str]) -> list[Row]:
    """Return rows of the medians of columns, one for each group of the rows."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in by), []).append(row)
    return [
        dict(zip(by, key, strict=True)) | {c: np.median([row[c] for row in g]) for c in columns}
        for key, g in groups.items()
    ]


@contextmanager
def panel(path: Path, **options: Any) -> Iterator[Any]:
    """Give the axes of a picture of one panel, which is then written."""
    with picture(path, **options) as axes:
        yield axes[0][0]


def discover() -> dict[str, Experiment]:
    """Return all experiments by name, paper by paper."""
    found: dict[str, Experiment] = {}
    for paper in PAPERS:
        package = importlib.import_module(f"experiments.{paper}")
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
            if info.name.startswith("_"):
                continue
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            for cls in vars(module).values():
                own = isinstance(cls, type) and cls.__module__ == module.__name__
                if own and issubclass(cls, Experiment) and hasattr(cls, "label"):
                    experiment = cls()
                    if experiment.name in found:
                        raise ValueError(f"{experiment.name} holds two experiments.")
                    found[experiment.name] = experiment
    return found
