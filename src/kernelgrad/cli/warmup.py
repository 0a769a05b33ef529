"""``kernelgrad warmup``."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelgrad.cli import report
from kernelgrad.cli.options import AsJson, options


@options(quiet="No progress bar, which only terminals show.")
def warmup(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Solvers and kernels; auto is for the defaults. All if left out."),
    ] = None,
    quiet: bool = False,
    as_json: AsJson = False,
) -> None:
    """Compile all loops, once for this machine.

    First fits are then as fast as later ones. The loops are kept in a cache on disk, so that a
    second run takes seconds.
    """
    with report.reporting(as_json):
        import kernelgrad
        from kernelgrad.callbacks import progress

        shown = progress.shows_bars() and not quiet
        done = kernelgrad.warmup(names or None, progress=shown)
        if as_json:
            report.print_json(done._asdict())
        else:
            print(f"{done.loops} loops compiled in {done.seconds:.0f} s")
