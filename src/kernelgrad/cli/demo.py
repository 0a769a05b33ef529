"""``kernelgrad demo``: runs the example of that name, which wheels hold as ``_demo``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import typer

from kernelgrad.cli import report
from kernelgrad.cli.options import AsJson, options

_ROOM = Path(__file__).parents[1]
_FOLDERS = (_ROOM / "_demo", _ROOM.parents[1] / "examples" / "demo")  # wheel, checkout


@options(
    output_dir="Existing folder for the page, its pictures and the models.",
    quick="Few rows: seconds instead of accuracy.",
)
def demo(output_dir: Path = Path(), quick: bool = False, as_json: AsJson = False) -> None:
    """Compare with other methods, on a page with pictures.

    Five small studies are made: a table with categories and gaps, digits, a stream from a
    Parquet file, few labels, and intervals of a Gaussian process. Support vector machines,
    boosted trees and others learn from the same rows, and the page says where they are better.
    The data come with scikit-learn or are generated. Each model is saved and loaded, and must
    predict exactly as before; otherwise the exit code is 1. The first run takes longer than
    later ones, as loops are compiled.
    """
    with report.reporting(as_json):
        report.check_writable(output_dir / "demo.html", "page")
        for module in ("matplotlib", "pandas", "pyarrow"):
            try:
                importlib.import_module(module)
            except ImportError:
                hint = f"The demo needs {module}: pip install 'kernelgrad[demo]'"
                raise ImportError(hint) from None
        result = load_example().run(output_dir, quick)
        if as_json:
            report.print_json(result)
        else:
            row = "{:8} {:40} {:>10} {:>8} {}".format
            report.say(row("study", "method", "test error", "seconds", "kernelgrad"))
            for study, each in result["studies"].items():
                for r in each["results"]:
                    numbers = f"{r['test_error']:.4f}", f"{r['fit_seconds']:.2f}"
                    report.say(row(study, r["name"], *numbers, r["verdict"]))
            seconds, page = result["seconds"], result["page"]
            report.say(f"All in {seconds:.0f} s; the page with pictures is {page}")
        if not all(each["identical_after_load"] for each in result["studies"].values()):
            report.note(
                "Error: a loaded model predicts differently from the one that was saved."
            )
            raise typer.Exit(1)


def load_example() -> Any:
    """Return the example as the module ``kernelgrad_demo``."""
    name = "kernelgrad_demo"
    for path in (folder / "__init__.py" for folder in _FOLDERS if name not in sys.modules):
        spec = importlib.util.spec_from_file_location(name, path)
        if path.exists() and spec and spec.loader:
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
    if name not in sys.modules:
        raise ImportError(
            f"This installation has no folder {_FOLDERS[0]} with the demo; install kernelgrad "
            "from a wheel, or run the demo in a checkout."
        )
    return sys.modules[name]
