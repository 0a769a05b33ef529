"""Fits of a user who sets nothing, beside peers: error, log loss and seconds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from math import inf, isfinite
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.objectives._defaults_case import METHODS, OURS, main
from benchmarks.objectives._shared import distinct, draw_ratios, stream, where
from benchmarks.objectives._tables import TABLES
from benchmarks.registry import Objective, Row, SkipError

QUICK = ["iris", "diabetes_frame"]
NOISE = ["noise_classes", "noise_values"]
AIMS = {
    "covtype20k": 0.105, "flights13": 36.0, "protein": 3.40, "cod_rna": 0.040,
    "ijcnn1": 0.0110, "a9a": 0.148, "mnist": 0.0146, "qm7": 9.0, "ten_columns": 0.03,
}  # fmt: skip
# rows, columns and the seconds of a default fit up to there, on two cores
SECONDS = [
    (300, 30, 0.3), (2_000, 64, 1.0), (16_000, 54, 4.0), (50_000, 54, 12.0),
    (60_000, 784, 60.0),
]  # fmt: skip
LIMIT = 900.0
LOADING = 60.0


def allowed(rows: int, columns: int) -> float | None:
    """Return the seconds that a default fit may take, if there is an aim for the size."""
    fitting = [s for n, d, s in SECONDS if rows <= n and columns <= d]
    return min(fitting, default=None)


def measured(jobs: Sequence[tuple[str, str]], args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each job; all small tables share a process, others have one each."""
    case = {
        "rows": args.rows, "repeat": args.repeat, "params": json.loads(args.params),
        "draws": 1 if args.quick else 5, "warm": not args.quick,
    }  # fmt: skip
    if args.quick:
        yield from main(case | {"jobs": jobs})
        return
    small = [job for job in jobs if TABLES[job[0]].draws > 1]
    groups = [small, *([job] for job in jobs if job not in small)]
    for group in groups:
        yield from together(case, group, args.limit)


def together(
    case: Row, jobs: Sequence[Sequence[Any]], limit: float, module: str = "_defaults_case",
    columns: Sequence[str] = ("dataset", "method"), **options: Any,
) -> Iterator[Row]:  # fmt: skip
    """Yield the rows of one process; another one takes over after a job that ended it."""
    left = list(jobs)
    while left:
        todo = tuple(left)
        course = stream(module, case | {"jobs": todo}, limit=limit, loading=LOADING, **options)
        for job in todo:
            del left[0]
            try:
                yield next(course)
            except StopIteration as end:
                yield dict(zip(columns, job, strict=True)) | {"failed": end.value}
                break


def errors(rows: Sequence[Row], method: str, key: str = "error") -> dict[str, float]:
    """Return the error or log loss on each table, infinite where there is none."""
    return {row["dataset"]: row.get(key, inf) for row in where(rows, method=method)}


def against(
    rows: Sequence[Row], peers: Sequence[str], factor: float, share: float, key: str = "error"
) -> Row | None:
    """Return on how many tables ours is at most `factor` times the least of the peers.

    It should be on a `share` of the tables that both have; None where there are none.
    """
    ours = errors(rows, OURS, key)
    theirs: dict[str, float] = {}
    for peer in peers:
        for name, value in errors(rows, peer, key).items():
            theirs[name] = min(value, theirs.get(name, value))
    both = [name for name in ours if isfinite(theirs.get(name, inf))]
    if not both:
        return None
    # an average of shares of few rows may differ from an equal one in its last bit
    lost = [name for name in both if ours[name] > factor * theirs[name] * (1 + 1e-9)]
    lost.sort(key=lambda name: -ours[name] / max(theirs[name], 1e-300))
    return {
        "measured": f"{len(both) - len(lost)} of {len(both)}",
        "not on": ", ".join(f"{name} ({ours[name]:.3g}/{theirs[name]:.3g})" for name in lost),
        "reached": len(both) - len(lost) >= share * len(both),
    }


def aims(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield each aim with what was measured, as far as its tables are there."""
    telling = [row for row in rows if row["dataset"] not in NOISE]
    noisy = [row for row in rows if row["dataset"] in [*NOISE, "diabetes"]]
    useless = where(rows, dataset="friedman1_useless")
    for text, found in (
        ("error at most that of the tuned SVM", against(telling, ["SVM tuned"], 1, 1)),
        ("error at most 1.05 times LightGBM's", against(rows, ["LightGBM"], 1.05, 0.75)),
        ("error at most the constant's", against(telling, ["constant"], 1, 1)),
        (
            "noise, diabetes: error at most 1.02 times the linear model's and the constant's",
            against(noisy, ["linear", "constant"], 1.02, 1),
        ),
        (
            "noise: log loss at most 1.02 times the linear model's and the constant's",
            against(where(rows, dataset=NOISE[0]), ["linear", "constant"], 1.02, 1, "log loss"),
        ),
        ("useless columns: error below LightGBM's", against(useless, ["LightGBM"], 1, 1)),
        (
            "log loss at most that of the calibrated SVC",
            against(telling, ["SVC calibrated"], 1, 1, "log loss"),
        ),
    ):
        if found:
            yield {"aim": text} | found
    for row in where(rows, method=OURS):
        name, value = row["dataset"], row.get("error", inf)
        if name in AIMS:
            text = f"{name} at most {AIMS[name]:g}"
            yield {"aim": text, "measured": value, "reached": value <= AIMS[name]}
    seconds = [
        (row["dataset"], row["fit s"] / limit)
        for row in where(rows, method=OURS)
        if row.get("error") is not None
        and (limit := allowed(row["rows"], row["columns"])) is not None
    ]
    if seconds:
        late = sorted(((s, name) for name, s in seconds if s > 1), reverse=True)
        yield {
            "aim": "seconds at most those of the size",
            "measured": f"{len(seconds) - len(late)} of {len(seconds)}",
            "not on": ", ".join(f"{name} ({s:.3g} times)" for s, name in late),
            "reached": not late,
        }


def compared(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield a row for each table, with the errors of all methods beside each other."""
    for name in distinct(rows, "dataset"):
        some = where(rows, dataset=name)
        first = next((r for r in some if "rows" in r), {})
        row: Row = {"dataset": name} | {k: first.get(k) for k in ("rows", "columns", "measure")}
        yield row | {r["method"]: r.get("error", "failed") for r in some}


def read(paths: Sequence[str], names: Sequence[str], rows: int | None) -> list[Row]:
    """Return the peers' rows of earlier results on these tables, the last of each fit."""
    found: dict[tuple[str, str], Row] = {}
    for path in map(Path, paths):
        result = json.loads(path.read_text())
        was = result["options"]
        if was["rows"] != rows or was["quick"]:
            raise ValueError(
                f"{path.name} was measured with --rows {was['rows']} and --quick "
                f"{was['quick']}; give a result of --rows {rows} without --quick."
            )
        for row in result["tables"].get("fits", []):
            if row["dataset"] in names and row["method"] != OURS:
                found[row["dataset"], row["method"]] = row
    return sorted(found.values(), key=lambda row: names.index(row["dataset"]))


class Defaults(Objective):
    """Untuned fits of a user: rows as they come, nothing set but the random state.

    Ours and boosted trees get the rows themselves, unscaled, with categories and missing
    cells. Other peers have numbers of mean 0 and deviation 1 (one 0/1 column a level, medians
    for missing cells), SVR a standardised target. ``SVM tuned`` has the C and gamma of least
    error in three folds of at most 4,000 rows (and unscaled columns where these are better);
    its seconds include the search. Support vector machines are fitted on at most 20,000
    rows; tuned and calibrated ones are scikit-learn-intelex's where that is installed.
    Errors are error rates or RMSE in units of the target, of made functions to the function
    without noise. Small and made tables are split or made five times: means of errors,
    medians of seconds. Seconds are of a process that has fitted a few of the rows before.
    ``--peers-from FILE`` takes the figures of other libraries from FILE, an earlier output of
    ``--json``, and measures only those that it lacks. kernelgrad is always measured.
    """

    name: ClassVar[str] = "defaults"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--dataset", nargs="+", choices=list(TABLES), default=list(TABLES))
        parser.add_argument("--method", nargs="+", choices=METHODS, default=METHODS)
        parser.add_argument("--rows", type=int, default=None, help="most training rows")
        parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a fit")
        parser.add_argument("--params", default="{}", help="of our estimators, as JSON")
        parser.add_argument(
            "--peers-from", nargs="+", default=[], help="results with peers' rows"
        )

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Yield the rows of the file, those of the fits, then the errors and the aims."""
        names = QUICK if args.quick else args.dataset
        rows = read(args.peers_from, names, args.rows)
        for row in rows:
            yield "fits", row
        known = {(row["dataset"], row["method"]) for row in rows}
        jobs = [(n, m) for n in names for m in args.method if (n, m) not in known]
        for row in measured(jobs, args):
            if "skipped" in row:
                print(
                    f"{row['dataset']}, {row['method']} skipped: {row['skipped']}", flush=True
                )
                continue
            rows.append(row)
            yield "fits", row
        if not rows:
            raise SkipError("none of the data sets is here")
        for row in compared(rows):
            yield "errors", row
        for row in aims(rows):
            yield "aims", row

    def page(self, tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """Return errors and seconds of ours and of the main peers, and the aims."""
        rows, shown = tables["fits"], []
        for name in distinct(rows, "dataset"):
            some = where(rows, dataset=name)
            row: Row = {k: some[0].get(k) for k in ("dataset", "rows", "columns", "measure")}
            for method in (OURS, "LightGBM", "SVM tuned"):
                found = next(iter(where(some, method=method)), {})
                row[f"{method} error"] = found.get("error")
                if method != "SVM tuned":  # its seconds are those of a search
                    row[f"{method} s"] = found.get("fit s")
            shown.append(row)
        return {"errors and seconds": shown, "aims": tables["aims"]}

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw the peers' errors over ours, a line for each table; far ones at the edges."""
        rows = tables.get("fits", [])
        ours = errors(rows, OURS)
        names = [name for name in ours if 0 < ours[name] < inf]
        ratios = {
            method: {
                name: error / ours[name]
                for name, error in errors(rows, method).items()
                if name in names
            }
            for method in distinct(rows, "method")
            if method != OURS
        }
        return draw_ratios(path, names, ratios, f"error over that of {OURS}")
