"""``python -m fuzz TARGET... [--minutes M | --executions N] [--seed S] [--output DIR]``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fuzz.runner import State, run
from fuzz.target import targets


def main(argv: Sequence[str] | None = None) -> int:
    """Attack the targets in turn, print what came of it; 1 if there are findings."""
    known = targets()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", nargs="+", choices=[*sorted(known), "all"])
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--minutes", type=float, help="for all targets together")
    how_long.add_argument("--executions", type=int, help="of each target, with earlier ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("out/fuzz"), help="goes on there")
    args = parser.parse_args(argv)
    names = sorted(known) if "all" in args.target else list(dict.fromkeys(args.target))
    minutes = None if args.minutes is None else args.minutes / len(names)
    if minutes is None and args.executions is None:
        args.executions = 10_000
    states = []
    for name in names:
        options = {"executions": args.executions, "minutes": minutes}
        states.append(run(known[name], seed=args.seed, output=args.output, **options))
        print(_line(states[-1]), flush=True)
        for found in states[-1].findings:
            print(f"  {found['count']} x {found['kind']}: {', '.join(found['files'])}")
    return int(any(state.findings for state in states))


def _line(state: State) -> str:
    counts = ", ".join(f"{n:,} {what}" for what, n in sorted(state.outcomes.items()))
    return f"{state.target}: {state.executions:,} executions ({counts}), {state.seconds:.0f} s"


if __name__ == "__main__":
    raise SystemExit(main())
