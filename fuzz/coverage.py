"""The same attack led by coverage: ``python -m fuzz.coverage TARGET [options of libFuzzer]``.

Needs atheris, which has wheels for Linux and some versions of Python. It keeps inputs that
reach new lines of the readers, and changes these; `fuzz` itself runs everywhere. What falls is
left in the current folder, or where ``-artifact_prefix`` says.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

_TARGETS = (
    "csv",
    "libsvm",
    "npz",
    "parquet",
)  # others run compiled loops, which no tool traces


def main(argv: list[str]) -> None:
    """Attack one target until it falls, or as long as the options say."""
    if argv[1:2] == [] or argv[1] not in _TARGETS:
        raise SystemExit(f"Name one of: {', '.join(_TARGETS)}.")
    import atheris

    with atheris.instrument_imports(include=["kernelgrad", "zipfile"]):
        import zipfile  # noqa: F401

        from fuzz.runner import attempt
        from fuzz.target import Case, targets

        target = targets()[argv.pop(1)]
    warnings.simplefilter("ignore")
    target.prepare()
    names = sorted(target.inputs)
    folder = Path(tempfile.mkdtemp(prefix="kernelgrad-fuzz-"))
    (folder / "use").mkdir()
    (folder / "corpus").mkdir()
    # the first byte of an input is the number of its seed, which gives it its name
    for i, name in enumerate(names):
        (folder / "corpus" / str(i)).write_bytes(bytes([i]) + target.inputs[name])

    def changed(data: bytes, most: int, seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        i = data[0] % len(names) if data else 0
        return (bytes([i]) + target.mutate(names[i], data[1:], rng)[0])[:most]

    def one(data: bytes) -> None:
        if data:
            case = Case(names[data[0] % len(names)], data[1:], True)
            outcome, kind, detail = attempt(target, case, folder / "use")
            if outcome == "finding":
                print(kind, detail, sep="\n", file=sys.stderr)
                os.abort()

    options = [f"-timeout={target.seconds:.0f}", "-rss_limit_mb=4096", "-max_len=65536"]
    given = [*argv, *options, str(folder / "corpus")]
    atheris.Setup(given, one, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
