"""Does a test see a small fault? ``python -m fuzz.faults --count N --seed S --seconds CPU``.

Faults are put into a copy of the package, one at a time: another operator, a number that
is off by one, a sign, a line less. The quick tests that call the function of the fault run,
fast ones first, until one fails. Loops with a fault are compiled, in a copy of the cache.
A run that was ended goes on. ``--again FILE ...`` tries what no test saw with changed tests.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz.calls import Calls

Fault = tuple[int, int, bytes]
_OPERATORS = dict(
    Lt="< <=", LtE="<= <", Gt="> >=", GtE=">= >", Eq="== !=", NotEq="!= ==", In="in not~in",
    NotIn="not~in in", Is="is is~not", IsNot="is~not is", And="and or", Or="or and", Add="+ -",
    Sub="- +", Mult="* /", Div="/ *", FloorDiv="// *", Mod="% *", Pow="** *",
)  # fmt: skip
_DROPPED = (ast.Assign, ast.AugAssign, ast.Raise, ast.Return, ast.Continue, ast.Break)
_NAMES = ("__repr__", "__str__", "_repr_html_")
_LOADED = """numba.core.caching pandas scipy.optimize scipy.spatial sklearn.pipeline typer onnx
pyarrow.parquet pyarrow.csv onnxruntime matplotlib.figure dask.dataframe safetensors.numpy"""


def faults(path: Path) -> Iterator[Fault]:
    """Yield first and last offset in bytes, and what stands there instead."""
    data = path.read_bytes()
    starts = [0, *(m.end() for m in re.finditer(b"\n", data))]
    at = lambda n: starts[n.lineno - 1] + n.col_offset  # noqa: E731
    end = lambda n: starts[n.end_lineno - 1] + n.end_col_offset  # noqa: E731

    def swap(a: Any, operator: Any, b: Any) -> Iterator[Fault]:
        old, _, new = _OPERATORS.get(type(operator).__name__, "\0").encode().partition(b" ")
        match = re.search(re.escape(old).replace(b"\\~", rb"\s+"), data[end(a) : at(b)])
        if match:
            yield end(a) + match.start(), end(a) + match.end(), new.replace(b"~", b" ")

    def visit(node: Any, inside: bool) -> Iterator[Fault]:
        if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom) or (
            (isinstance(node, ast.Call) and "warn" in ast.unparse(node.func))
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
            or getattr(node, "name", "") in _NAMES
        ):
            return
        call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if inside and (call or isinstance(node, _DROPPED)):
            yield at(node), end(node), b"pass" + b"\n" * data[at(node) : end(node)].count(b"\n")
        if isinstance(node, ast.Raise) or (isinstance(node, ast.AnnAssign) and not node.value):
            return
        if isinstance(node, ast.BinOp):
            yield from swap(node.left, node.op, node.right)
        elif isinstance(node, ast.BoolOp):
            yield from swap(node.values[0], node.op, node.values[1])
        elif isinstance(node, ast.Compare):
            yield from swap(node.left, node.ops[0], node.comparators[0])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            yield at(node), at(node) + (1 if isinstance(node.op, ast.USub) else 3), b""
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            v = node.value
            new = (
                not v if isinstance(v, bool) else v + 1 if isinstance(v, int) else 2 * v or 1.0
            )
            yield at(node), end(node), repr(new).encode()
        for name, field in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "bases"):
                for child in field if isinstance(field, list) else [field]:
                    if isinstance(child, ast.AST):
                        yield from visit(child, inside or isinstance(node, ast.FunctionDef))

    yield from visit(ast.parse(data), False)


class Only:
    """A plugin of pytest that runs some tests in an order, and notes the first that fails."""

    def __init__(self, tests: list[str], log: Path) -> None:
        self.order, self.log = {test: i for i, test in enumerate(tests)}, log

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.order]
        items.sort(key=lambda item: self.order[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.log.write_text(report.nodeid)


class Stamp(tuple[Any, ...]):
    """The age of a loop in the cache, which is equal to all others."""

    __eq__, __ne__ = (lambda self, other: True), (lambda self, other: False)
    __hash__ = tuple.__hash__
    __reduce__ = lambda self: (tuple, (tuple(self),))  # noqa: E731


def forked(tree: Path, cache: Path, seconds: float, plugin: Any, *files: str) -> Any:
    """Return the exit code of pytest in a copy of the checkout, and its seconds of CPU."""
    pid = os.fork()
    if pid == 0:
        try:
            _child(tree, cache, seconds, plugin, files)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(70)
    stop = time.monotonic() + 10.0 * seconds  # others may use the cores
    while not (done := os.wait4(pid, os.WNOHANG))[0] and time.monotonic() < stop:
        time.sleep(0.05)
    if not done[0]:
        os.killpg(pid, signal.SIGKILL)
        done = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(done[1]), sum(done[2][:2])


def _child(tree: Path, cache: Path, seconds: float, plugin: Any, files: Any) -> None:
    from numba.core.caching import IndexDataCacheFile as File

    begin = File.__init__
    File.__init__ = lambda self, cache_path, filename_base, source_stamp: begin(
        self, cache_path, filename_base, Stamp(source_stamp)
    )
    importlib.import_module("numba").config.CACHE_DIR = str(cache)
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(tree)
    for name in [each for each in sys.modules if each.startswith("fuzz")]:
        del sys.modules[name]  # the copy has its own
    sys.path[:0] = [str(tree / "src"), str(tree), str(tree / "tests")]
    os.environ |= {"PYTHONPATH": f"{tree}/src:{tree}", "NUMBA_CACHE_DIR": str(cache)}
    os.environ["KERNELGRAD_NUM_THREADS"] = "1"
    if isinstance(plugin, Only):
        sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
    with (cache.parent / "log.txt").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    code = int(pytest.main(["-qx" if isinstance(plugin, Only) else "-q", *files], [plugin]))
    if isinstance(plugin, Calls):
        (cache.parent / "map.pickle").write_bytes(pickle.dumps(plugin.result(tree)))
    sys.stdout.flush()
    os._exit(code)


def importers(tree: Path, name: str) -> set[str]:
    """Return a file and all that import it, at any depth."""
    texts = {
        str(path.relative_to(tree)): path.read_text() for path in tree.glob("src/*/*/**/*.py")
    }
    out, new = {name}, [name]
    while new:
        module = new.pop()[4:-3].replace("/", ".").removesuffix(".__init__")
        package, _, stem = module.rpartition(".")
        names = rf"from {package} import (?:\([^)]*|[^\n(]*)\b{stem}\b"
        pattern = re.compile(f"from {module} import|{names}")
        users = {file for file, text in texts.items() if pattern.search(text)} - out
        out, new = out | users, [*new, *users]
    return out


def attempt(work: Path, name: str, fault: Fault, tests: Any) -> dict[str, Any]:
    """Put one fault there, run what calls it, and take it away."""
    tree, cache, log = work / "tree", work / "cache", work / "failed.txt"
    path, (a, b, new) = tree / name, fault
    data, times = path.read_bytes(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    line = data[:a].count(b"\n") + 1
    first = 0  # line of the innermost function, or of its decorator
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= line <= node.end_lineno:
            first = max(first, min(n.lineno for n in (node, *node.decorator_list)))
    loops = any(word in data for word in (b"njit(", b"by_type(", b"usable_in_loops"))
    calls = {
        test: (float(np.searchsorted([0.05, 0.5, 3.0], seconds)), test.split("::")[0], seconds)
        for test, (seconds, places) in tests.items()
        if any(f == name and (loops or not first or n == first) for f, n in places)
    }  # tests of one file together, so that fixtures are made few times
    order = sorted(calls, key=calls.__getitem__)
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(work / "base", cache, copy_function=os.link)
    for file in importers(tree, name) if loops or not first else ():
        for index in cache.glob(f"{Path(file).parent.name}_*/{Path(file).stem}.*.nbi"):
            index.unlink()
    spent, code = 0.0, 0
    log.unlink(missing_ok=True)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
    path.write_bytes(data[:a] + new + data[b:])
    os.utime(path, ns=times)
    try:
        for part in (order[:12], order[12:]):
            if code == 0 and part:
                limit = 300.0 + 10.0 * sum(max(0.0, calls[test][2]) for test in part)
                files = dict.fromkeys(test.split("::")[0] for test in part)
                code, seconds = forked(tree, cache, limit, Only(part, log), *files)
                spent += seconds
    finally:
        path.write_bytes(data)
        os.utime(path, ns=times)
    return {
        "file": name, "line": line, "old": data[a:b].decode(), "new": new.decode().strip(),
        "text": data.splitlines()[line - 1].decode().strip(), "killed": code not in (0, 5),
        "by": log.read_text() if log.exists() else f"exit {code}",
        "tests": len(order), "seconds": round(spent, 1),
    }  # fmt: skip


def core(tree: Path) -> Iterator[Path]:
    """Yield the files of the package outside of the optional rooms."""
    contracts = tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["importlinter"]
    rooms = [name.split(".")[1] for name in contracts["contracts"][0]["forbidden_modules"]]
    for path in sorted(tree.glob("src/kernelgrad/**/*.py")):
        if path.relative_to(tree / "src/kernelgrad").parts[0] not in rooms:
            yield path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=6000.0, help="of CPU")
    parser.add_argument("--output", type=Path, default=Path("out/faults"), help="goes on there")
    parser.add_argument("--again", nargs="*", default=[], help="changed files of tests")
    args = parser.parse_args()
    for module in _LOADED.split():
        importlib.import_module(module)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the fault is taken away
    work = args.output.resolve()
    tree, known, done = work / "tree", work / "map.pickle", work / f"faults-{args.seed}.json"
    if not known.exists():
        tree.mkdir(parents=True)
        subprocess.run(f"git archive HEAD | tar x -C '{tree}'", shell=True, check=True)
        forked(tree, work / "base", 7200.0, Calls(), "tests")
    tests = pickle.loads(known.read_bytes())
    every = [
        (str(path.relative_to(tree)), each) for path in core(tree) for each in faults(path)
    ]
    order = np.random.default_rng(args.seed).permutation(len(every))[: args.count]
    results = json.loads(done.read_text()) if done.exists() else []
    if args.again:
        for file in args.again:
            shutil.copy2(file, tree / file)
        forked(tree, work / "base", 7200.0, Calls(), *args.again)
        new = pickle.loads(known.read_bytes())
        old = {test: tests[test] for test in tests if test.split("::")[0] not in args.again}
        known.write_bytes(pickle.dumps(old | new))
        for i, result in zip(order, results, strict=False):
            result |= {} if result["killed"] else attempt(work, *every[i], new)
        done.write_text(json.dumps(results, indent=1) + "\n")
    for i in [] if args.again else order[len(results) :]:
        if sum(result["seconds"] for result in results) > args.seconds:
            break
        results.append(attempt(work, *every[i], tests))
        done.write_text(json.dumps(results, indent=1) + "\n")
        print(json.dumps(results[-1]), flush=True)
    alive = [result for result in results if not result["killed"]]
    print(f"{len(alive)} of {len(results)} faults are seen by no test, {len(every)} possible")
    return int(bool(alive))


if __name__ == "__main__":
    raise SystemExit(main())
