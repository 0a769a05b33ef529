"""Seconds and test error of kernelgrad, of exact kernel machines and of approximations."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from threadpoolctl import threadpool_limits

from benchmarks.objectives._curves import (
    DATASETS,
    FACTORS,
    START_SECONDS,
    main,
)
from benchmarks.objectives._shared import ROOT, available, distinct, picture, report, where
from benchmarks.registry import Dataset, Objective, Row, SkipError
from benchmarks.solvers.methods import METHODS
from kernelgrad import get_num_threads, set_num_threads

RESULTS = ROOT / "benchmarks" / "results"
SETS = ["a9a", "ijcnn1", "cod_rna", "mnist", "covtype20k", "protein", "flights13", "qm7"]
OURS = "kernelgrad"
STEPS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
TUNING_ROWS, QUICK_ROWS = 12_000, 500
SLOW_SECONDS = 30.0
MOVES = {"bandwidth_factor": 2.0, "C": 10.0}  # from the best candidate of the grid
MOST_MOVES = 12
Params = dict[str, Any]


def neighbours(params: Params) -> list[Params]:
    """Return the settings one step away in the bandwidth or in C."""
    return [
        params | {key: value}
        for key, factor in MOVES.items()
        if key in params
        for value in (params[key] / factor, params[key] * factor)
    ]


def seconds_to(points: Sequence[Row], target: float) -> float | None:
    """Return the seconds of the first point from which on no error is above `target`."""
    reached: float | None = None
    for point in sorted(points, key=lambda p: p["steps"], reverse=True):
        if point["test"] > target:
            break
        reached = point["fit s"]
    return reached


def medians(rows: Sequence[Row], keys: Sequence[str]) -> Row:
    return {key: median([row[key] for row in rows]) for key in keys}


def finished(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["test"] is not None]


def fits(runs: Sequence[Row]) -> list[Row]:
    """Return a row for each data set and method; of a curve, its longest fit."""
    out = []
    for (dataset, method), rows in _groups(runs):
        done = finished(rows)
        if METHODS[method].curve:
            last = max((r["steps"] for r in done), default=None)
            done = [r for r in done if r["steps"] == last]
        row = {"dataset": dataset, "method": method, "parameters": rows[-1]["parameters"]}
        if done:
            row |= medians(done, ["fit s", "predict s"])
            errors = [r["test"] for r in done]
            row |= {"measure": done[0]["measure"], "test": median(errors)}
            row |= {"min": min(errors), "max": max(errors)}
        row["runs"] = len(done)
        notes = [r["notes"] for r in (done or rows) if r["notes"]]
        row["notes"] = "; ".join(dict.fromkeys(notes))
        out.append(row)
    return out


def curve(runs: Sequence[Row]) -> list[Row]:
    """Return medians over repeats of every number of steps that all repeats reached."""
    out = []
    for (dataset, method), rows in _groups(runs):
        if not METHODS[method].curve:
            continue
        done = finished(rows)
        seeds = {r["seed"] for r in done}
        for steps in sorted({r["steps"] for r in done}):
            points = [r for r in done if r["steps"] == steps]
            if len({r["seed"] for r in points}) == len(seeds):
                head = {"dataset": dataset, "method": method, "steps": steps}
                out.append(head | medians(points, ["fit s", "test"]))
    return out


def ratios(table: Sequence[Row], points: Sequence[Row]) -> list[Row]:
    """Return kernelgrad's seconds to every peer's final error, over the peer's seconds."""
    out = []
    for peer in table:
        mine = [p for p in points if p["dataset"] == peer["dataset"] and p["method"] == OURS]
        if not mine or "test" not in peer or peer["method"].startswith(OURS):
            continue
        seconds = seconds_to(mine, peer["test"])
        out.append(
            {
                "dataset": peer["dataset"],
                "peer": peer["method"],
                "peer's error": peer["test"],
                "peer s": peer["fit s"],
                f"{OURS} s": seconds,
                "ratio": None if seconds is None else seconds / peer["fit s"],
                f"{OURS}'s least error": min(p["test"] for p in mine),
                "notes": peer["notes"],
            }
        )
    return out


def _groups(runs: Sequence[Row]) -> list[tuple[tuple[str, str], list[Row]]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in runs:
        found.setdefault((row["dataset"], row["method"]), []).append(row)
    order = {name: i for i, name in enumerate(dict.fromkeys([*SETS, *DATASETS]))}
    return sorted(found.items(), key=lambda item: order[item[0][0]])


class TimeToError(Objective):
    """Fit seconds, predict seconds and test error, with tuned hyper-parameters.

    Two commands: with --tune, every family of methods chooses its settings on at most 8,000
    training and 4,000 validation rows of the training part, the same for all, and writes them
    to a file; else the settings of that file are fitted on all rows (what is absent in it is
    tuned first). The search is the same for all kernel methods: a grid of bandwidths (times
    the median distance) and C, then steps by factors 2 and 10 as long as they help. C is kept
    for the full number of rows, alpha = 1/(C n) follows. SVC is tuned by scikit-learn-intelex
    where it is installed, being the same model; Nystroem features and normal equations are
    tuned with 1,000 and 2,000 centres for all sizes. Targets of regression are standardised
    for all, errors are in their own units. One fit is a process of its own; kernelgrad's curve
    is a series of fits from scratch with more and more steps, without predictions in between.
    """

    name: ClassVar[str] = "time_to_error"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        names = list(METHODS)
        usual = [name for name, method in METHODS.items() if method.default]
        parser.add_argument("--dataset", nargs="+", choices=list(DATASETS), default=SETS)
        parser.add_argument("--method", nargs="+", choices=names, default=usual)
        parser.add_argument("--tune", action="store_true", help="choose settings, fit nothing")
        parser.add_argument("--settings", default=None, help="file of the chosen settings")
        parser.add_argument("--limit", type=float, default=300, help="seconds of a fit")
        parser.add_argument("--tune-limit", type=float, default=60, help="of a candidate's fit")
        parser.add_argument("--slow-repeat", type=int, default=1, help="of fits above 30 s")
        parser.add_argument("--max-steps", type=int, default=STEPS[-1], help="of the curve")
        parser.add_argument("--threads", type=int, default=os.cpu_count())
        parser.add_argument(
            "--merge", action="store_true", help="keep the runs of the file, add what lacks"
        )

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Tune what is not tuned; take the methods in turn in every repeat."""
        self.args = args
        stem = f"{self.name}-quick" if args.quick else self.name
        path = args.json or RESULTS / f"{stem}.json"
        self.path = Path(args.settings or path.with_name(f"{path.stem}_settings.json"))
        self.settings = self._read()
        present = self._present(args.dataset)
        methods = self._installed(args.method)
        kept = self._kept(path)
        for row in kept:
            yield "runs", row
        runs = list(kept)
        for name in present:
            dataset = DATASETS[name]
            classify = dataset.task == "classification"
            chosen = [m for m in methods if METHODS[m].grid(classify, FACTORS)]
            for family in dict.fromkeys(METHODS[m].family for m in chosen):
                known = family in self.settings.get(name, {})
                if not known or (args.tune and not args.merge):
                    self._tune(dataset, family)
            if args.tune:
                continue
            for seed in range(args.repeat):
                for method in chosen:
                    if self._enough(runs, name, method, seed):
                        continue
                    for row in self._measure(name, method, seed):
                        runs.append(row)
                        yield "runs", row
        if args.tune:
            return
        table, points = fits(runs), curve(runs)
        for key, rows in (("fits", table), ("curve", points), ("ratio", ratios(table, points))):
            for row in rows:
                yield key, row

    def _read(self) -> dict[str, dict[str, Row]]:
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def _present(self, names: Sequence[str]) -> list[str]:
        try:
            return [name for name, _ in available(names, lambda name: DATASETS[name].load())]
        except SkipError:
            if self.args.merge:
                return []
            raise

    def _installed(self, names: Sequence[str]) -> list[str]:
        found = []
        for name in names:
            reason = METHODS[name].missing()
            if reason is None:
                found.append(name)
            else:
                print(f"{name} skipped: {reason}", flush=True)
        return found

    def _kept(self, path: Path) -> list[Row]:
        """Return the runs of an earlier result."""
        if not self.args.merge or self.args.tune or not path.exists():
            return []
        rows: list[Row] = json.loads(path.read_text())["tables"].get("runs", [])
        return rows

    def _enough(self, runs: Sequence[Row], name: str, method: str, seed: int) -> bool:
        """Tell whether this repeat was done, or is one too many of a slow method."""
        rows = [r for r in runs if (r["dataset"], r["method"]) == (name, method)]
        if any(r["seed"] == seed for r in rows):
            return True
        if any(r["test"] is None for r in rows if not METHODS[method].curve):
            return True  # over the limit, or failed
        first = [r["fit s"] for r in rows if r["seed"] == 0 and r["fit s"] is not None]
        return max(first, default=0.0) > SLOW_SECONDS and seed >= self.args.slow_repeat

    def _case(self, name: str, method: str, **more: Any) -> Row:
        quick = self.args.quick
        return {
            "dataset": name,
            "method": method,
            "threads": 1 if quick else self.args.threads,
            "n_components": 20 if quick else 10**6,
            **more,
        }

    def _call(self, case: Row, limit: float) -> tuple[list[Row], str]:
        """Run one case: in a process of its own, or here where seconds do not matter."""
        if not self.args.quick:
            return report("_curves", case, limit=limit, loading=START_SECONDS)
        before = get_num_threads()
        try:
            with threadpool_limits(1):
                return list(main(case)), ""
        finally:
            set_num_threads(before)

    def _tune(self, dataset: Dataset, family: str) -> None:
        """Write the best settings of the family into the file."""
        able = [m for m, own in METHODS.items() if own.family == family and not own.missing()]
        method = max(able, key=lambda m: METHODS[m].rank)
        candidates = METHODS[method].grid(dataset.task == "classification", FACTORS)
        found: Row = {"params": {}, "gamma": None}
        if candidates != [{}]:
            found = self._search(dataset.name, method, candidates)
        self.settings = self._read()  # another process may have added to it
        self.settings.setdefault(dataset.name, {})[family] = found
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.settings, indent=1) + "\n")
        print(f"{dataset.name}, {family}: {found}", flush=True)

    def _search(self, name: str, method: str, candidates: list[Params]) -> Row:
        """Return the settings of least validation error on the grid and around its best."""
        start = time.perf_counter()
        most = len(candidates) + MOST_MOVES
        if self.args.quick:
            candidates, most = candidates[:2], 2
        tried: list[Row] = []
        while candidates and len(tried) < most:
            tried += self._errors(name, method, candidates)
            best = min(tried, key=lambda row: row["error"])
            known = [row["params"] for row in tried]
            candidates = [p for p in neighbours(best["params"]) if p not in known]
        failed = sum(row["error"] == float("inf") for row in tried)
        if failed == len(tried):
            raise RuntimeError(f"No settings of {method} on {name} could be fitted.")
        return best | {
            "tuned by": method,
            "candidates": len(tried),
            "failed": failed,
            "tuning s": time.perf_counter() - start,
        }

    def _errors(self, name: str, method: str, candidates: Sequence[Params]) -> list[Row]:
        """Return gamma and validation error; infinite where a fit took too long or failed."""
        out: list[Row] = []
        while len(out) < len(candidates):
            left = list(candidates[len(out) :])
            rows = QUICK_ROWS if self.args.quick else TUNING_ROWS
            case = self._case(name, method, kind="tune", candidates=left, rows=rows)
            lines, end = self._call(case, self.args.tune_limit)
            if not lines:
                raise RuntimeError(f"{case} ended before its first fit: {end}.")
            out += [{"params": p} | line for p, line in zip(left, lines[1:], strict=False)]
            if end and len(out) < len(candidates):
                out.append({"params": candidates[len(out)], "error": float("inf")})
        return out

    def _measure(self, name: str, method: str, seed: int) -> Iterator[Row]:
        """Yield a row for each fit that was begun: one, or those of a curve."""
        own, args = METHODS[method], self.args
        chosen = self.settings[name][own.family]
        steps = [k for k in STEPS if k <= args.max_steps] if own.curve else [STEPS[-1]]
        if args.quick:
            steps = steps[:3]
        case = self._case(
            name, method, kind="fit", params=chosen["params"], gamma=chosen["gamma"], seed=seed,
            rows=QUICK_ROWS if args.quick else None, steps=steps, limit=args.limit,
        )  # fmt: skip
        lines, end = self._call(case, args.limit)
        regression = DATASETS[name].task == "regression"
        head = {
            "dataset": name,
            "method": method,
            "seed": seed,
            "parameters": chosen["params"]
            | ({"gamma": chosen["gamma"]} if chosen["params"] else {}),
            "measure": "RMSE" if regression else "error",
            "load": lines[0]["load"] if lines else None,
        }
        body = lines[1:]
        empty = {"fit s": None, "predict s": None, "test": None}
        pairs = list(zip(steps, body[::2], body[1::2], strict=False))
        for k, fit, test in pairs:
            yield head | {"steps": k if own.curve else None} | fit | test
        if end:
            part = body[-1] if len(body) % 2 else {}
            notes = "; ".join(v for v in (part.get("notes"), f"predictions {end}") if v)
            k = steps[len(pairs)] if own.curve and len(pairs) < len(steps) else None
            yield head | {"steps": k} | empty | part | {"notes": notes if part else end}

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        if "fits" not in tables:
            return False
        table = [row for row in tables["fits"] if "test" in row]
        names = distinct(table, "dataset")
        methods = [m for m in METHODS if where(table, method=m)]
        methods.sort(key=lambda m: not m.startswith(OURS))
        across = min(4, len(names))
        handles: dict[str, Any] = {}
        with picture(path, -(-len(names) // across), across, size=(3.7, 3.7)) as axes:
            for ax, name in zip(axes.flat, names, strict=False):
                points = where(tables.get("curve", []), dataset=name)
                handles |= self._panel(ax, name, where(table, dataset=name), points, methods)
            for ax in axes.flat[len(names) :]:
                ax.set_axis_off()
            shown = [m for m in methods if m in handles]
            ax.figure.legend(
                [handles[m] for m in shown], shown,
                loc="outside lower center", ncols=min(5, across + 1), fontsize=7,
            )  # fmt: skip
        return True

    @staticmethod
    def _panel(
        ax: Any, name: str, rows: list[Row], points: list[Row], methods: list[str]
    ) -> dict[str, Any]:
        """Draw one data set; errors far above the others are numbers at the upper edge."""
        from matplotlib.ticker import NullFormatter

        handles = {}
        low = min(row["test"] for row in [*rows, *points])
        top = min(max(row["test"] for row in rows), 2 * low)
        top += 0.08 * (top - low) or 0.1 * low
        for row in rows:
            i, inside = methods.index(row["method"]), row["test"] <= top
            (handles[row["method"]],) = ax.plot(
                row["fit s"], min(row["test"], top), marker=MARKERS[i % 16],
                color="k" if row["method"] == OURS else f"C{i % 10}", linestyle="",
                clip_on=False, zorder=3, markerfacecolor=None if inside else "none",
            )  # fmt: skip
            if not inside:
                ax.annotate(
                    f"{row['test']:.3g}", (row["fit s"], top), fontsize=6, ha="center",
                    xytext=(0, 5), textcoords="offset points",
                )  # fmt: skip
        for method in distinct(points, "method"):
            some = sorted(where(points, method=method), key=lambda p: p["steps"])
            color = "k" if method == OURS else "0.7"
            ax.plot([p["fit s"] for p in some], [p["test"] for p in some], color=color, lw=1)
        ax.set_ylim(low - 0.08 * (top - low), top)
        ax.set(xscale="log", xlabel="fit seconds", ylabel=rows[0]["measure"])
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.grid(alpha=0.3)
        ax.set_title(name, fontsize=10, pad=14)
        return handles


MARKERS = "osD^v<>pP*Xhd8Hs"
