"""The commands by name, and errors of the command line."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.main import get_command

from kernelgrad.cli.apply import compress, export, inspect, predict, score
from kernelgrad.cli.cv import cv
from kernelgrad.cli.demo import demo
from kernelgrad.cli.fit import fit
from kernelgrad.cli.options import parameter_options, set_options
from kernelgrad.cli.report import print_error
from kernelgrad.cli.tune import tune
from kernelgrad.cli.warmup import warmup
from kernelgrad.version import __version__

# The name and the place of these classes differ between versions of typer.
_CommandLineError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="kernelgrad", add_completion=False, rich_markup_mode=None, no_args_is_help=False
)
for _command in (fit, cv, tune, predict, score, inspect, export, compress, demo, warmup):
    app.command()(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelgrad {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Fit kernel models to data files, and use them.

    Exit codes: 0 done, 1 data or a model cannot be used, 2 wrong command line, 130 interrupted,
    143 terminated.
    """


def run(argv: list[str]) -> int:
    """Run one command and return its exit code; no arguments print the help."""
    for name, taking in (("fit", fit), ("cv", cv), ("tune", tune)):  # others need no estimators
        if argv[:1] == [name]:
            set_options(taking, parameter_options())
    try:
        result = get_command(app).main(
            args=argv or ["--help"], prog_name="kernelgrad", standalone_mode=False
        )
    except _CommandLineError as error:
        context = getattr(error, "ctx", None)
        command = "kernelgrad" if context is None else context.command_path
        message = error.format_message()  # type: ignore[attr-defined]
        message = message.removeprefix("Invalid value: ")
        message += "" if message.endswith((".", "?", ")")) else "."
        print_error(f"{message} See: {command} --help", "UsageError", as_json="--json" in argv)
        return 2
    return result if isinstance(result, int) else 0
