"""The command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        0, or 1 for data or a model that cannot be used, 2 for a wrong command line, 130 for
        an interruption, 143 for SIGTERM.
    """
    try:
        import typer  # noqa: F401
    except ImportError:
        print(
            "Error: the command line needs typer: pip install kernelgrad[cli]", file=sys.stderr
        )
        return 2
    from kernelgrad.cli.app import run

    return run(list(sys.argv[1:] if argv is None else argv))
