"""``python -m experiments list | run NAME... | run --all [--quick] | report | check``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from experiments import base, pages, runner


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name all experiments and their verdicts")
    run = commands.add_parser("run", help="run experiments; finished cells are kept")
    run.add_argument("names", nargs="*", metavar="NAME", help="such as dsg.figure4_2 or dsg")
    run.add_argument("--all", action="store_true", help="run every experiment")
    run.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    run.add_argument("--again", action="store_true", help="measure finished cells again")
    run.add_argument("--output", type=Path, default=None, help="where results go")
    commands.add_parser("report", help="decide, draw and write all pages again")
    commands.add_parser("check", help="recompute all verdicts; fail where a page differs")
    return parser


def chosen(names: Sequence[str], everything: bool) -> list[base.Experiment]:
    """Return the experiments of these names; the name of a paper stands for all of its own."""
    found = base.discover()
    if everything:
        return list(found.values())
    out = []
    for name in names:
        matching = [e for key, e in found.items() if key == name or key.startswith(f"{name}.")]
        if not matching:
            raise SystemExit(f"There is no experiment {name!r}; there are {', '.join(found)}.")
        out += matching
    if not out:
        raise SystemExit("Name experiments, or run --all.")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line names."""
    args = _parser().parse_args(argv)
    if args.command == "list":
        for name, experiment in base.discover().items():
            verdict = runner.Result(experiment, runner.PAGES).content.get("verdict", "not run")
            print(f"{name:28} {experiment.label:18} {verdict}")
        return 0
    if args.command == "check":
        wrong = pages.check()
        print("\n".join(wrong) or "Results and pages say what the rows say.")
        return int(bool(wrong))
    if args.command == "report":
        pages.write()
        return 0
    experiments = chosen(args.names, args.all)
    folder = args.output or (Path(tempfile.mkdtemp()) if args.quick else runner.PAGES)
    for experiment in experiments:
        outcome = runner.attempt(experiment, folder, quick=args.quick, again=args.again)
        note = " (quick: sizes too small to mean anything)" if args.quick else ""
        print(f"{experiment.name}: {outcome}{note}", flush=True)
    if folder == runner.PAGES:
        pages.write(draw=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
