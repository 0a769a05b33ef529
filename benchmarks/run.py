"""Run one objective: ``python -m benchmarks.run OBJECTIVE [options]``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import benchmarks.objectives
from benchmarks import environment
from benchmarks.registry import Objective, Row, SkipError, discover

RESULTS = Path(__file__).parent / "results"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"{len(value)} entries"
    if isinstance(value, dict):
        return ", ".join(f"{k}={_text(v)}" for k, v in value.items())
    return str(value)


def markdown(rows: list[Row]) -> str:
    """Return rows as a Markdown table; columns in order of their first appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_text(row.get(c)) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def _parser(objectives: dict[str, Objective]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    commands = parser.add_subparsers(dest="objective", required=True)
    for name, objective in objectives.items():
        sub = commands.add_parser(name, description=type(objective).__doc__)
        sub.add_argument("--repeat", type=int, default=None, help="repeats or seeds")
        sub.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
        sub.add_argument("--json", type=Path, default=None, help="where the result goes")
        objective.arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print and write; a benchmark that cannot run here says so and is no failure."""
    objectives: dict[str, Objective] = discover(benchmarks.objectives, Objective)
    args = _parser(objectives).parse_args(argv)
    objective = objectives[args.objective]
    if args.repeat is None:
        args.repeat = 1 if args.quick else objective.repeat
    path = args.json or RESULTS / f"{args.objective}{'-quick' if args.quick else ''}.json"
    path.parent.mkdir(parents=True, exist_ok=True)

    env = environment.describe()
    print("\n".join(environment.lines(env)), flush=True)
    tables: dict[str, list[Row]] = {}
    given = {k: v for k, v in vars(args).items() if k != "json"}
    options = {k: v for k, v in given.items() if not Path(str(v)).is_absolute()}
    options |= {
        k: [Path(path).name for path in v] for k, v in options.items() if k == "peers_from"
    }
    result = {"options": options, "environment": env, "tables": tables}
    try:
        for table, row in objective.run(args):
            tables.setdefault(table, []).append(row)
            print(f"[{table}] {_text(row)}", flush=True)
            path.write_text(json.dumps(result, indent=1, default=float) + "\n")
    except SkipError as reason:
        print(f"{args.objective} skipped: {reason}")
    if not tables:
        return 0
    env["load_average_at_end"] = environment.load_average()
    path.write_text(json.dumps(result, indent=1, default=float) + "\n")
    for table, rows in tables.items():
        print(f"\n### {table}\n\n{markdown(rows)}")
    print(f"\nload average at the end: {env['load_average_at_end']}\nwritten: {path.name}")
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed")
    else:
        matplotlib.use("Agg")
        picture = path.with_suffix(".png")
        if objective.plot(tables, picture):
            print(f"written: {picture.name}")
    return objective.status


if __name__ == "__main__":
    raise SystemExit(main())
