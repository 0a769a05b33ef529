"""Seconds to the test error of a converged SVC, beside LIBSVM and oneDAL."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from benchmarks.objectives._shared import available, distinct, draw, picture, report, where
from benchmarks.objectives._svm import (
    DUAL,
    INTELEX,
    LIBSVM,
    OURS,
    SETS,
    SETTINGS,
    Point,
    geometric,
    has_intelex,
    lead_from,
    load,
    middle,
    seconds_to,
)
from benchmarks.registry import Objective, Row

CURVES, TARGET, LEAD = "error over seconds", "seconds to the target", "who is ahead"
MARGIN = 0.2  # points of error above the converged SVC


class SVMTime(Objective):
    """Seconds to within 0.2 points of the test error of a converged SVC, and the whole curve.

    C and gamma are of a grid; the timings of the SBP paper, with its own, are
    ``python -m experiments run sbp.section5``.

    All methods have the same rows, C, gamma and number of threads, and each runs in a process
    of its own, in turn within each repeat. A point of a curve is a fit from scratch, stopped
    after a number of iterations (SVC and scikit-learn-intelex: ``max_iter``, up to
    convergence) or of drawn rows (kernelgrad); its seconds are those of that fit alone, data
    in memory, code compiled. scikit-learn's SVC (LIBSVM) has one thread whatever is asked for,
    and 2 GB of cache, as has scikit-learn-intelex (oneDAL). SDCA is fitted without a bias,
    which it does not have, and stops at a relative duality gap of 1e-3. A method has reached
    the target at its first point from which on no point is worse. Medians over the repeats.
    """

    name: ClassVar[str] = "svm_time"
    repeat: ClassVar[int] = 3

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets, sizes and threads."""
        parser.add_argument("--dataset", nargs="+", choices=SETS, default=SETS[:4])
        parser.add_argument("--rows", type=int, default=None, help="all unless given")
        parser.add_argument("--test-rows", type=int, default=20_000)
        parser.add_argument("--threads", type=int, default=2)
        parser.add_argument("--epochs", type=float, default=2.0, help="rows drawn / rows")
        parser.add_argument("--points", type=int, default=9, help="of kernelgrad's curve")
        parser.add_argument("--limit", type=float, default=3600.0, help="seconds of a curve")
        parser.add_argument("--peer-factor", type=float, default=2.0, help="of max_iter")
        parser.add_argument(
            "--peer-repeat", type=int, default=None, help="of the curves of SVC and SDCA"
        )

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the methods in turn in every repeat."""
        peers = [LIBSVM, INTELEX] if has_intelex() else [LIBSVM]
        if INTELEX not in peers:
            print(f"{INTELEX} skipped: scikit-learn-intelex is not installed", flush=True)
        rows = 250 if args.quick else args.rows
        for name, problem in available(args.dataset, lambda name: load(name, rows, 1)):
            curves = self._curves(name, problem.n, peers, args)
            yield from self._tables(name, problem.n, curves)

    @staticmethod
    def _curves(
        name: str, n: int, peers: list[str], args: argparse.Namespace
    ) -> dict[str, list[list[Point]]]:
        last = 1.0 if args.quick else args.epochs
        points = 3 if args.quick else args.points
        case = {
            "kind": "curve",
            "dataset": name,
            "rows": n,
            "test_rows": 250 if args.quick else args.test_rows,
            "threads": args.threads,
            "budgets": geometric(last * n / 2 ** (points - 1), last * n),
            "limit": args.limit,
            "factor": 8.0 if args.quick else args.peer_factor,
        }
        curves: dict[str, list[list[Point]]] = {m: [] for m in (OURS, DUAL, *peers)}
        times = {m: args.repeat for m in curves}
        if args.peer_repeat is not None:
            times[LIBSVM] = times[DUAL] = args.peer_repeat
        for repeat in range(max(times.values())):
            for method, found in curves.items():
                if repeat < times[method]:
                    this = case | {"method": method, "seed": repeat}
                    points, end = report("_svm", this, limit=2 * args.limit)
                    found.append(points)
                    if end:
                        print(f"{name}, {method}: {end}", flush=True)
        return curves

    @staticmethod
    def _tables(
        name: str, n: int, curves: dict[str, list[list[Point]]]
    ) -> Iterator[tuple[str, Row]]:
        medians = {method: middle(found) for method, found in curves.items()}
        for method, points in medians.items():
            for p in points:
                yield CURVES, {"dataset": name, "method": method} | p
        exact = medians[LIBSVM][-1] if medians[LIBSVM] else None
        if exact is None or not exact["converged"]:
            print(f"{name}: {LIBSVM} did not converge within the limit: no target", flush=True)
            return
        target = exact["error %"] + MARGIN
        reached = {method: seconds_to(points, target) for method, points in medians.items()}
        for method, points in medians.items():
            mine, theirs = reached[OURS], reached[method]
            gamma, C = SETTINGS[name]
            yield TARGET, {
                "dataset": name, "rows": n, "gamma": gamma, "C": C, "method": method,
                "target %": target, "seconds": theirs,
                "ratio to ours": theirs / mine if theirs and mine else None,
                "converged %": points[-1]["error %"] if method not in (OURS, DUAL) else None,
                "converged s": points[-1]["seconds"] if method not in (OURS, DUAL) else None,
                "least %": min(p["error %"] for p in points),
                "repeats": len(curves[method]),
            }  # fmt: skip
        for method, points in medians.items():
            if method != OURS:
                yield LEAD, {
                    "dataset": name, "peer": method,
                    "kernelgrad from % down": lead_from(medians[OURS], points),
                    "peer from % down": lead_from(points, medians[OURS]),
                }  # fmt: skip

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw error against fit seconds, one panel for each data set."""
        rows, targets = tables[CURVES], tables.get(TARGET, [])
        names, labels = distinct(rows, "dataset"), distinct(rows, "method")
        with picture(path, 1, len(names), size=(3.8, 3.6)) as axes:
            for ax, name in zip(axes[0], names, strict=True):
                here = where(rows, dataset=name)
                draw(ax, here, "method", "seconds", "error %", labels)
                for row in where(targets, dataset=name, method=OURS):
                    ax.axhline(row["target %"], color="grey", lw=0.8, ls=":", label="target")
                low = min(r["error %"] for r in here)
                high = max(r["error %"] for r in where(here, method=OURS))
                ax.set(
                    ylim=(0.9 * low, max(2.5 * low, 1.1 * high)), xscale="log", title=name,
                    xlabel="fit seconds", ylabel="test error, %",
                )  # fmt: skip
            handles = axes[0][0].get_legend_handles_labels()
            ax.figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=8)
        return True
