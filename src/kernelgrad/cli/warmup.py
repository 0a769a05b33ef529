"""``kernelgrad warmup``."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelgrad.cli.report import print_json, reporting


def warmup(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Solvers and kernels; auto is for the defaults. All if left out."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress bar, which only terminals show.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compile all loops, once for this machine.

    First fits are then as fast as later ones. The loops are kept in a cache on disk, so that a
    second run takes seconds.
    """
    with reporting(as_json):
        import kernelgrad
        from kernelgrad.callbacks import progress

        shown = progress.shows_bars() and not quiet
        done = kernelgrad.warmup(names or None, progress=shown)
        if as_json:
            print_json(done._asdict())
        else:
            print(f"{done.loops} loops compiled in {done.seconds:.0f} s; cache: {done.cache}")
