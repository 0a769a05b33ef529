"""Fifty tables as they come: errors over CatBoost's and seconds, models by their defaults."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import ClassVar

import numpy as np

from benchmarks.objectives._shared import ROOT, distinct, draw_ratios, where
from benchmarks.objectives._tables_case import EFFORTS, METHODS, index, target
from benchmarks.objectives.defaults import together
from benchmarks.registry import Objective, Row, SkipError

QUICK = ["space_ga", "hpc_jobs"]
QUICK_ROWS = 300
SMALL = 2_000  # rows of a table that has all splits; larger ones have two
MANY_CLASSES = 10
WORSE = 1.15  # times the reference's error
LEAST = 1e-3  # log loss or error rate in ratios: no table that is solved outweighs all others
LIMIT = 3_600.0
KEY = ("dataset", "split", "method", "most rows")
SECONDS = ("fit s", "predict s", "fit CPU s", "predict CPU s")


def jobs(
    names: Sequence[str], methods: Sequence[str], splits: int
) -> list[tuple[str, int, str]]:
    """Return table, split and method of all fits: first splits and few classes first."""

    def late(name: str) -> bool:
        return index()[name]["task"] == "multiclass" and len(set(target(name))) > MANY_CLASSES

    ordered = sorted(names, key=late)
    return [
        (name, split, method)
        for split in range(splits)
        for name in ordered
        if split < 2 or index()[name]["rows"] <= SMALL
        for method in methods
    ]


def read(path: Path, names: Sequence[str], rows: int) -> list[Row]:
    """Return the last row of each fit in a file of JSON lines."""
    lines = path.read_text().splitlines() if path.exists() else []
    last = {tuple(row[key] for key in KEY): row for row in map(json.loads, lines)}
    return [r for r in last.values() if r["dataset"] in names and r["most rows"] == rows]


def means(rows: Sequence[Row]) -> Row:
    """Return the means over splits of all measures."""
    keys = ("RMSE", "log loss", "error", "AUC", *SECONDS)
    return {k: float(np.mean([row[k] for row in rows])) for k in keys if k in rows[0]}


def ratio(mine: Row, theirs: Row, measure: str) -> float:
    """Return the ratio of a measure; log losses and error rates count from `LEAST` on."""
    least = 0.0 if measure == "RMSE" else LEAST
    return float(max(mine[measure], least) / max(theirs[measure], least))


def compared(rows: Sequence[Row], reference: str) -> Iterator[Row]:
    """Yield means over the splits that a method and the reference have in common."""
    fits = [row for row in rows if "fit s" in row]
    for name in distinct(fits, "dataset"):
        base = {row["split"]: row for row in where(fits, dataset=name, method=reference)}
        for method in distinct(fits, "method"):
            pairs = [
                (row, base[row["split"]])
                for row in where(fits, dataset=name, method=method)
                if row["split"] in base
            ]
            if not pairs:
                continue
            mine, theirs = (means(part) for part in zip(*pairs, strict=True))
            first = {k: pairs[0][0][k] for k in ("dataset", "rows", "columns", "measure")}
            row: Row = first | {"method": method, "splits": len(pairs)} | mine
            row["ratio"] = ratio(mine, theirs, row["measure"])
            if "error" in mine:
                row["error ratio"] = ratio(mine, theirs, "error")
            yield row


def summary(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield a row for each method and kind of table, from those of `compared`."""
    for kind, key, measures in (
        ("all, RMSE and log loss", "ratio", ("RMSE", "log loss")),
        ("regression, RMSE", "ratio", ("RMSE",)),
        ("classes, log loss", "ratio", ("log loss",)),
        ("classes, error rate", "error ratio", ("log loss",)),
    ):
        for method in distinct(rows, "method"):
            part = [r for r in where(rows, method=method) if r["measure"] in measures]
            if not part:
                continue
            ratios = np.array([r[key] for r in part])
            yield {
                "tables": kind,
                "method": method,
                "number": len(part),
                "geometric mean": float(np.exp(np.log(ratios).mean())),
                "median": float(np.median(ratios)),
                "share ahead": float(np.mean(ratios < 1)),
                f"above {WORSE:g}": int(np.sum(ratios > WORSE)),
                "median fit s": float(np.median([r["fit s"] for r in part])),
                "all fits s": float(np.sum([r["fit s"] for r in part])),
                "all fits CPU s": float(np.sum([r["fit CPU s"] for r in part])),
                "all predictions s": float(np.sum([r["predict s"] for r in part])),
            }


class Tables(Objective):
    """Fifty tables as they come: errors over CatBoost's and seconds, models by their defaults.

    The tables have text, categories, dates and missing cells. A fifth of the rows, at most
    5,000, is for the test, and at most ``--rows`` others are for training. Splits are random:
    five of tables of up to 2,000 rows, two of larger ones. Ours gets the frames themselves.
    Peers get dates as seconds; CatBoost text, booleans and categories as its ``cat_features``
    (gaps are the text "nan"), LightGBM and xgboost pandas categories, HistGradientBoosting
    those of at most 255 levels and numbers of the levels of others. The ratio of a table is
    that of mean errors over splits; log losses and error rates below 0.001 count as 0.001.
    Seconds are wall-clock and CPU seconds of a process that has fitted a few rows before.
    Each fit is appended to the file ``--lines``, and a fit that this file has is not done
    again. ``kernelgrad fast`` and ``kernelgrad best`` are the other values of `effort`.
    ``--python`` measures with another environment's interpreter, which needs no
    kernelgrad for the peers.
    """

    name: ClassVar[str] = "tables"
    repeat: ClassVar[int] = 5

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--dataset", nargs="+", metavar="NAME")
        parser.add_argument("--method", nargs="*", choices=METHODS + EFFORTS, default=METHODS)
        parser.add_argument("--rows", type=int, default=12_000, help="most training rows")
        parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a fit")
        parser.add_argument("--python", default=sys.executable, help="interpreter of the fits")
        parser.add_argument("--lines", type=Path, help="file of fits, one JSON object a line")
        parser.add_argument("--reference", choices=METHODS + EFFORTS, default="CatBoost")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Yield the fits of the file and new ones, means over splits and the summary."""
        rows_limit = min(args.rows, QUICK_ROWS) if args.quick else args.rows
        chosen = args.dataset or (QUICK if args.quick else list(index()))
        names = [name for name in chosen if name in index()]
        default = Path(os.devnull if args.quick else ROOT / "benchmarks/results/tables.jsonl")
        lines = args.lines or default
        rows = read(lines, names, rows_limit)
        done = {tuple(r[k] for k in KEY[:3]) for r in rows if "failed" not in r}
        todo = [job for job in jobs(names, args.method, args.repeat) if job not in done]
        for row in rows:
            yield "fits", row
        case = {"rows": rows_limit}
        for row in together(
            case, todo, args.limit, "_tables_case", KEY[:3], python=args.python
        ):
            row = row | {"most rows": rows_limit}
            if "skipped" in row:
                print(
                    f"{row['dataset']}, {row['method']} skipped: {row['skipped']}", flush=True
                )
                continue
            with lines.open("a") as file:
                file.write(json.dumps(row) + "\n")
            rows.append(row)
            yield "fits", row
        if not rows:
            raise SkipError("there are no tables, or none of the methods is installed")
        table = list(compared(rows, args.reference))
        yield from (("ratios", row) for row in table)
        yield from (("summary", row) for row in summary(table))

    def page(self, tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """Return the summary, and the errors of all methods beside each other."""
        rows, shown = tables["ratios"], []
        for name in distinct(rows, "dataset"):
            part = where(rows, dataset=name)
            row = {k: part[0][k] for k in ("dataset", "rows", "columns", "splits", "measure")}
            row |= {r["method"]: r[r["measure"]] for r in part}
            shown.append(row | {f"{r['method']} s": r["fit s"] for r in part})
        return {"errors over the reference's": tables["summary"], "errors and seconds": shown}

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw the errors over the reference's, a line for each table."""
        rows = tables.get("ratios", [])
        ratios = {
            method: {r["dataset"]: r["ratio"] for r in where(rows, method=method)}
            for method in distinct(rows, "method")
        }
        others = {m: v for m, v in ratios.items() if any(x != 1 for x in v.values())}
        names = sorted({n for v in others.values() for n in v if isfinite(v[n])})
        return draw_ratios(path, names, others, "RMSE or log loss over that of the reference")
