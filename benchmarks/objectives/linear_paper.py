"""The S3GD paper's Figures 3 to 6: time per step, objective, and correlation of gradients."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np

from benchmarks.objectives._linear import SETS, Case, Trace, load, minimum, trace, warm_up
from benchmarks.objectives._shared import available, distinct, picture, timed, where
from benchmarks.registry import Objective, Row
from kernelgrad._validation import CapabilityError
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.solvers import S3GD, SCV, SGD, SSGD, SVRG, LinearProblem, TrainBatch
from kernelgrad.solvers.linear.anchors import build_graph, cluster_rows
from kernelgrad.solvers.linear.base import (
    PreparedRows,
    draw_batches,
    evaluate,
    weighted_draws,
)
from kernelgrad.solvers.linear.variance_reduced import group_moments

ALPHA = 2e-3  # the paper's lambda = 1e-3 for lambda |w|^2
STEPS = (0.1, 1.0, 5.0, 10.0)
BATCH, INNER, SVRG_INNER = 10, 20, 50  # Section 4.3
STABLE = 1.01  # Equation (47)
TIMED = 50
ITERATIONS = 40_000  # as many as the paper's runs have
AVERAGED = 5000
BURN_IN = 10_000  # steps that do not count for stability
NAMES = ("SGD", "SSGD", "SVRG", "SCV", "S3GD")
ROUND = 100  # steps between looks: a multiple of both numbers of inner steps
# steps at which gradients are compared: a reference is new there, and no two windows overlap
CORRELATED = (0, 100, 500, 2000, 8000)


def solver(name: str, step: float, round_size: int) -> Any:
    """Return a method with a constant step, as the paper runs it: no switch, no averages."""
    common: dict[str, Any] = {
        "batch_size": BATCH, "step_size": step, "round_size": round_size,
    }  # fmt: skip
    made: dict[str, Any] = {
        "SGD": lambda: SGD(**common),
        "SSGD": lambda: SSGD(**common),
        "SVRG": lambda: SVRG(inner_steps=SVRG_INNER, **common),
        "SCV": lambda: SCV(**common),
        "S3GD": lambda: S3GD(inner_steps=INNER, switch=False, **common),
    }
    return made[name]()


class LinearPaper(Objective):
    """Figures 3 to 6 of the S3GD paper: logistic loss, lambda = 1e-3, p = 10, m = 100."""

    name: ClassVar[str] = "linear_paper"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets and limits."""
        parser.add_argument("--dataset", nargs="+", default=SETS, choices=SETS)
        parser.add_argument("--iterations", type=int, default=ITERATIONS)
        parser.add_argument("--limit", type=float, default=20.0, help="seconds of a run")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the methods in turn within each repeat."""
        for _, case in available(args.dataset, lambda name: load(name, quick=args.quick)):
            yield from self._times(args, case)
            yield from self._objectives(args, case)
            yield from self._correlations(args, case)

    def _times(self, args: argparse.Namespace, case: Case) -> Iterator[tuple[str, Row]]:
        """Figure 3: seconds of 50 steps, and of what comes before the first."""
        problem, batch = case.problem(ALPHA), case.batch()
        spent: dict[str, list[float]] = {}
        before: dict[str, list[float]] = {}
        for _ in range(args.repeat):
            for name in NAMES:
                one = solver(name, 1.0, ROUND)
                try:
                    warm_up([one], case, problem)
                    with single_threaded_blas():
                        started, state = timed(one.init, problem, batch)
                        rounds = [timed(one.step, problem, state, batch)[0] for _ in range(6)]
                except CapabilityError as reason:
                    print(f"{case.name} {name}: {reason}")
                    continue
                each = median(rounds[1:])
                spent.setdefault(name, []).append(each * TIMED / ROUND)
                before.setdefault(name, []).append(max(0.0, started + rounds[0] - each))
        for name, values in spent.items():
            yield (
                "seconds per 50 steps",
                {
                    "data": case.name,
                    "rows": len(case.y),
                    "columns": case.X.shape[1],
                    "method": name,
                    "s": median(values),
                    "times SGD": median(values) / median(spent["SGD"]),
                    "preparation s": median(before[name]),
                },
            )

    def _objectives(self, args: argparse.Namespace, case: Case) -> Iterator[tuple[str, Row]]:
        """Figures 4 and 5: the objective over seconds at the largest stable step."""
        problem, batch = case.problem(ALPHA), case.batch()
        test = TrainBatch(case.X_test, case.y_test[:, None], case.weight_test)
        best, _ = minimum(problem, batch)
        least: dict[str, float] = {}
        steps_only: dict[str, float] = {}
        for name in NAMES:
            found, unjudged = None, []
            for step in sorted(STEPS, reverse=True):
                try:
                    run = self._run(args, problem, batch, test, name, step)
                except (CapabilityError, ValueError) as reason:
                    print(f"{case.name} {name} step {step:g}: {reason}")
                    continue
                level, why = tail_mean(run, self._most(args))
                if level is None:
                    unjudged.append(f"step {step:g}: {why}")
                elif level <= STABLE * best:
                    found = step, run, level
                    break
            row: Row = {"data": case.name, "method": name, "minimum": best}
            row["not judged"] = "; ".join(unjudged) or None
            if found is None:
                yield "objective", row | {"step": None}
                continue
            step, run, level = found
            row |= {"step": step, "tail / minimum - 1": level / best - 1}
            for error in (1e-1, 1e-2, 1e-3):
                row[f"s to {error:g}"] = run.first_below(best * (1 + error))
            if row["s to 0.01"] is not None:
                least[name] = row["s to 0.01"]
                steps_only[name] = run.steps_below(best * 1.01)
                row["s to 0.01, steps only"] = steps_only[name]
            shown = np.unique(np.geomspace(1, len(run.seconds), 120).astype(int)) - 1
            row["curve"] = [
                [run.seconds[i], run.objective[i] / best - 1, run.test[i]] for i in shown
            ]
            yield "objective", row
        for what, found_by in (("with preparation", least), ("steps only", steps_only)):
            first = min(found_by, key=lambda n: found_by[n]) if found_by else None
            row = {"data": case.name, "clock": what, "first": first} | found_by
            yield "seconds to one percent", row

    def _most(self, args: argparse.Namespace) -> int:
        return 2000 if args.quick else int(args.iterations)

    def _run(
        self,
        args: argparse.Namespace,
        problem: LinearProblem,
        batch: TrainBatch,
        test: TrainBatch,
        name: str,
        step: float,
    ) -> Any:
        one = solver(name, step, ROUND)
        most = max(1, self._most(args) // ROUND)
        few = min(len(test.y), 5000)
        some = TrainBatch(test.X[:few], test.y[:few], test.sample_weight[:few])
        return trace(one, problem, batch, steps=most, seconds=args.limit, test=some, every=1)

    def _correlations(self, args: argparse.Namespace, case: Case) -> Iterator[tuple[str, Row]]:
        """Figure 6: correlation of gradients with the exact one along each method's path."""
        problem = case.problem(ALPHA)
        data = PreparedRows.build(problem, case.batch())
        most = 200 if args.quick else max(CORRELATED)
        with single_threaded_blas():
            for name in NAMES:
                try:
                    found = correlations(name, problem, data, 0.1, most)
                except CapabilityError as reason:
                    print(f"{case.name} {name}: {reason}")
                    continue
                row: Row = {"data": case.name, "method": name}
                for at, value in found.items():
                    row[f"after {at}"] = value
                yield "correlation with the exact gradient", row

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw a row of panels for each data set: times, objective, test, correlation."""
        times = tables.get("seconds per 50 steps", [])
        names = distinct(times, "data")
        if not names:
            return False
        colours = {name: f"C{i}" for i, name in enumerate(NAMES)}
        with picture(path, len(names), 4, size=(4.5, 3.1)) as axes:
            for data, row in zip(names, axes, strict=True):
                for r in where(times, data=data):
                    row[0].bar(r["method"], r["s"], color=colours[r["method"]])
                row[0].set(yscale="log", title=f"{data}: seconds per 50 steps")
                for r in where(tables.get("objective", []), data=data):
                    if "curve" not in r:
                        continue
                    seconds, above, test = np.array(r["curve"], float).T
                    colour, label = colours[r["method"]], f"{r['method']}, step {r['step']:g}"
                    row[1].plot(seconds, np.maximum(above, 1e-12), color=colour, label=label)
                    row[2].plot(seconds, test, color=colour)
                row[1].set(yscale="log", title="relative suboptimality")
                row[2].set(title="objective on test rows")
                for ax in row[1:3]:
                    ax.set(xscale="log", xlabel="seconds with preparation")
                if row[1].get_lines():
                    row[1].legend(fontsize=6)
                for r in where(
                    tables.get("correlation with the exact gradient", []), data=data
                ):
                    points = [(int(k[6:]), v) for k, v in r.items() if k.startswith("after ")]
                    row[3].plot(
                        *zip(*points, strict=True), "o-", color=colours[r["method"]], ms=3
                    )
                row[3].set(xscale="symlog", xlabel="steps", ylim=(-0.1, 1.05))
                row[3].set_title("correlation with the exact gradient")
        return True


def tail_mean(run: Trace, steps: int) -> tuple[float | None, str]:
    """Return the mean objective of the last steps, or None and why there is none.

    That of the last `AVERAGED` steps of a run of `steps`, which all have to come after the
    first `BURN_IN`, or both after half of a short run. A run that converged stays where it is.
    """
    if run.stopped == "converged":
        return run.objective[-1], ""
    averaged = max(1, min(AVERAGED, steps // 2) // ROUND)
    burn_in = min(BURN_IN, steps // 2) // ROUND
    done = len(run.objective)
    if done < burn_in + averaged:
        needed = (burn_in + averaged) * ROUND
        return None, f"{done * ROUND} of {needed} steps in {run.seconds[-1]:.1f} s"
    return float(np.mean(run.objective[-averaged:])), ""


def correlations(
    name: str, problem: LinearProblem, data: PreparedRows, step: float, most: int
) -> dict[int, float]:
    """Return the mean correlation over the inner steps that follow each of some steps.

    Steps are taken one at a time, so that the gradient estimate can be read off the move:
    ``g = (W - (1 + step l2) W') / step``.
    """
    W, b = data.native(np.zeros((data.d, 1))), np.zeros(1)
    rng = np.random.default_rng(0)
    inner = SVRG_INNER if name == "SVRG" else INNER
    strata = cluster_rows(data, BATCH, 0)[1] if name == "SSGD" else None
    graph = build_graph(problem, data, 100, 10) if name == "S3GD" else None
    moments = None
    if name == "SCV":
        if data.d > 4000:
            raise CapabilityError(f"SCV keeps {data.d}^2 covariances: left out.")
        moments = group_moments(data, True)
    found: dict[int, float] = {}
    marks = [m for m in CORRELATED if m <= most]
    reference: Any = None
    values: list[float] = []
    last = max(marks) + inner
    for t in range(last):
        if t % inner == 0 and name in ("SVRG", "S3GD"):
            reference = references(data, graph, problem, W, b)
        order, share = draw_batches(data, 1, BATCH, rng)
        if strata is not None:
            order, share = stratified(data, strata, rng)
        old, old_b = W.copy(), b.copy()
        if moments is not None:
            reference = moments.references(W, b)
        data.descend(problem, W, b, order, share, step, reference)
        inside = [m for m in marks if m <= t < m + inner]
        if inside:
            g = np.append((old - (1 + step * problem.l2) * W) / step, (old_b - b) / step)
            exact = evaluate(problem, data, old, old_b)
            values.append(pearson(g, np.append(exact.gradient, exact.gradient_bias)))
            if t == inside[0] + inner - 1 or t == last - 1:
                found[inside[0]] = float(np.mean(values))
                values = []
    return found


def pearson(a: Any, b: Any) -> float:
    """Return the correlation of two vectors; 0 where one is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def references(data: PreparedRows, graph: Any, problem: LinearProblem, W: Any, b: Any) -> Any:
    """Return table and means of SVRG, or of S3GD where there is a graph."""
    here = evaluate(problem, data, W, b)
    table = here.slopes
    if graph is not None:
        rows = data.responses(W, b)[graph.anchors]
        at = problem.loss.gradient(np.repeat(graph.targets, len(rows), axis=0), rows)
        near = at[graph.near][:, :, 0]
        table = graph.spread + (graph.gamma * near).sum(axis=1)[:, None]
    return data.table(W, b, table)


def stratified(data: PreparedRows, strata: Any, rng: Any) -> tuple[Any, Any]:
    """Return one row of each stratum and the shares of the strata."""
    rows, share = [], []
    for s in np.unique(strata):
        members = np.flatnonzero(strata == s)
        rows.append(members[weighted_draws(np.cumsum(data.share[members]), 1, rng)[0]])
        share.append(data.share[members].sum())
    return np.array([rows]), np.array([share])
