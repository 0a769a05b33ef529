"""The command line: arguments and files come in; models and reports go out."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on the arguments, those of the process if None, for an exit code."""
    try:
        import typer  # noqa: F401
    except ImportError:
        print(
            "Error: the command line needs typer: pip install kernelgrad[cli]", file=sys.stderr
        )
        return 2
    from kernelgrad.cli.app import run

    return run(list(sys.argv[1:] if argv is None else argv))
