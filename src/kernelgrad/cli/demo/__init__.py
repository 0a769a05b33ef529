"""``kernelgrad demo``: five small studies, and a page that shows them."""

from __future__ import annotations

import importlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kernelgrad.cli.report import check_writable, note, print_json, print_table, reporting

_NEEDED = ("matplotlib", "pandas", "pyarrow")


def demo(
    output_dir: Annotated[
        Path, typer.Option(help="Existing folder for the page, its pictures and the models.")
    ] = Path(),
    quick: Annotated[
        bool, typer.Option("--quick", help="Few rows: seconds instead of accuracy.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare with other methods, on a page with pictures.

    Five small studies are made: a table with categories and gaps, digits, a stream from a
    Parquet file, few labels, and intervals of a Gaussian process. Support vector machines,
    boosted trees and others learn from the same rows, and the page says where they are better.
    The data come with scikit-learn or are generated. Each model is saved and loaded, and must
    predict exactly as before; otherwise the exit code is 1. The first run takes longer than
    later ones, as loops are compiled.
    """
    with reporting(as_json):
        for name in ("demo.html", "demo.kgm"):
            check_writable(output_dir / name, "page")
        for module in _NEEDED:
            _require(module)
        from kernelgrad.cli.demo.page import write_page
        from kernelgrad.cli.demo.studies import STUDIES
        from kernelgrad.cli.demo.work import Work

        start = time.perf_counter()
        done = []
        with Work(output_dir, quick) as work:
            for number, study in enumerate(STUDIES, 1):
                work.say(f"{number} of {len(STUDIES)}: {(study.__doc__ or '').rstrip('.')}")
                found = study(work)
                same = work.same_after_load(found.name, found.model, found.X_test)
                done.append(replace(found, same_after_load=same))
        seconds = time.perf_counter() - start
        page = write_page(output_dir, done, seconds)
        if as_json:
            print_json(
                {
                    "seconds": seconds,
                    "page": str(page),
                    "studies": {study.name: study.told() for study in done},
                }
            )
        else:
            rows = [
                (study.name, each.name, study.shown(each.error), f"{each.seconds:.2f}", verdict)
                for study in done
                for each, verdict in zip(study.results, study.verdicts(), strict=True)
            ]
            print_table(("study", "method", "test error", "seconds", ""), rows, left=2)
            print(f"All in {seconds:.0f} s; the page with pictures is {page}")
        if not all(study.same_after_load for study in done):
            note("Error: a loaded model predicts differently from the one that was saved.")
            raise typer.Exit(1)


def _require(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError:
        raise ImportError(f"The demo needs {module}: pip install 'kernelgrad[demo]'") from None
