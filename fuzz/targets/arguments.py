"""The arguments of the command line, as JSON lists."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tempfile
from functools import cached_property
from pathlib import Path

import numpy as np
from typer.main import get_command

from fuzz.mutate import NUMBERS, TOKENS, mutate_bytes, pick
from fuzz.target import CORPUS, Finding, Target
from kernelgrad import KernelClassifier
from kernelgrad.cli import main
from kernelgrad.cli.app import app
from kernelgrad.cli.fit import fit
from kernelgrad.cli.options import parameter_options, set_options
from kernelgrad.kernels import KERNELS
from kernelgrad.losses import LOSSES

_FILES = (
    "data.csv", "data.svm", "data.npz", "data.parquet", "model.kg", "notes.txt", "folder",
    "missing.csv", "out.kg", "out.csv", "out.npy", "out.png", "*.csv", "-", ".", "",
)  # fmt: skip
_WORDS = (
    "y", "w", "a,b", "nobody", "auto", "none", "direct", "newton", "dsg", "sbp", "median",
    "classification", "regression", "balanced", "5 s", "2 h", "-1 min", "é", "\udcff", "--",
    "demo", "warmup", "diagonal", "3", "-h",
)  # fmt: skip


class _Refused(Exception):  # noqa: N818 (what it should be)
    """The command ended as it should where it cannot work."""


class Arguments(Target):
    """Every command line ends in 0, 1 or 2, and in one line that says why."""

    name = "arguments"
    clear = (_Refused,)
    named = False
    quick = 10
    seconds = 120.0  # a first use of a kernel or a solver compiles
    memory = 16 << 30  # threads reserve some

    def prepare(self) -> None:
        """Make the files that the arguments name, among them a model."""
        tables = {p.name: p.read_bytes() for p in (CORPUS / "csv").glob("numbers.csv")}
        self._files = {
            "data.csv": tables["numbers.csv"],
            "data.svm": (CORPUS / "libsvm/rows.svm").read_bytes(),
            "data.npz": (CORPUS / "npz/weights.npz").read_bytes(),
            "data.parquet": (CORPUS / "parquet/numbers.parquet").read_bytes(),
            "notes.txt": b"no data\n",
        }
        rng = np.random.default_rng(0)
        X = rng.standard_normal((30, 3))
        model = KernelClassifier(solver="direct", random_state=0).fit(X, X[:, 0] > 0)
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model.kg")
            self._files["model.kg"] = (Path(folder) / "model.kg").read_bytes()

    @cached_property
    def _words(self) -> tuple[str, ...]:
        set_options(fit, parameter_options())
        options = [
            name
            for command in get_command(app).commands.values()  # type: ignore[attr-defined]
            for parameter in command.params
            for name in parameter.opts
            if name.startswith("-")
        ]
        return (*_FILES, *_WORDS, *options, *options, *NUMBERS, *TOKENS, *LOSSES, *KERNELS)

    def mutate(self, name: str, data: bytes, rng: np.random.Generator) -> tuple[bytes, bool]:
        argv = json.loads(data)
        for _ in range(int(rng.choice([1, 1, 2, 3]))):
            at = int(rng.integers(len(argv) + 1))
            how = int(rng.integers(5))
            if how == 0:
                argv[at : at + 1] = []
            elif how == 1:
                argv.insert(at, pick(self._words, rng))
            elif how == 2:
                argv[at : at + 1] = [pick(self._words, rng)]
            elif how == 3 and at < len(argv):
                text = mutate_bytes(argv[at].encode(errors="surrogateescape"), rng)
                argv[at] = text.decode(errors="surrogateescape")
            else:
                argv[at:at] = [pick(self._words, rng), pick(self._words, rng)]
        return json.dumps(argv).encode(), True

    def use(self, path: Path) -> bytes:
        argv = _tamed(json.loads(path.read_bytes()))
        folder = path.parent / "here"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "folder").mkdir(parents=True)
        for name, content in self._files.items():
            (folder / name).write_bytes(content)
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
        given, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(self._files["data.csv"]))
        try:
            with (
                contextlib.chdir(folder),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                code = main(argv)
        finally:
            sys.stdin = given
        if code == 0:
            return b"done"
        last = (err.getvalue().splitlines() or [""])[-1]
        told = out.buffer.getvalue().splitlines()  # type: ignore[attr-defined]
        if "--json" in argv and told:
            last = "Error: " + json.loads(told[-1])["error"]
        if code not in (1, 2) or "Traceback" in err.getvalue():
            raise Finding(f"exit {code}")
        ends = last.endswith((".", "?", "--help")) or "[Errno" in last or "pip install" in last
        if not (last.startswith("Error: ") and len(last) > 20 and ends):
            raise Finding(f"an error that says nothing: {last[:60]}")
        raise _Refused(last)


def _tamed(argv: list[str]) -> list[str]:
    """Return arguments of a short run that writes nothing elsewhere."""
    inside = [arg.replace("/", "").replace("..", "").replace("\0", "") for arg in argv]
    if {"demo", "warmup"} & set(inside):
        inside.append("--no-such-option")
    if "fit" in inside and not any(arg.startswith("--max-iter") for arg in inside):
        inside += ["--max-iter", "3"]
    elif "fit" in inside and not any(arg.startswith("--time-limit") for arg in inside):
        inside += ["--time-limit", "2"]
    return inside
