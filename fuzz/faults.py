"""``python -m fuzz.faults [--count N] [--seed S] [--seconds CPU]``: does a test see a fault?

Small faults are put into a copy of the package, one at a time: another operator, a number that
is off by one, a sign, a line less. The quick tests that call the function of the fault run,
fast ones first, until one fails. Faults of loops are compiled, in a copy of the cache.
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
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PACKAGE = "src/kernelgrad/"
_OPERATORS = dict(
    Lt="< <=", LtE="<= <", Gt="> >=", GtE=">= >", Eq="== !=", NotEq="!= ==", In="in not~in",
    NotIn="not~in in", Is="is is~not", IsNot="is~not is", And="and or", Or="or and", Add="+ -",
    Sub="- +", Mult="* /", Div="/ *", FloorDiv="// *", Mod="% *", Pow="** *",
)  # fmt: skip
_DROPPED = (ast.Assign, ast.AugAssign, ast.Raise, ast.Return, ast.Continue, ast.Break)
_PRELOADED = "numba.core.caching pandas scipy.optimize scipy.spatial sklearn.pipeline"


def faults(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield first and last offset in bytes, and what stands there instead."""
    data = path.read_bytes()
    starts = [0, *(m.end() for m in re.finditer(b"\n", data))]
    at = lambda n: starts[n.lineno - 1] + n.col_offset  # noqa: E731
    end = lambda n: starts[n.end_lineno - 1] + n.end_col_offset  # noqa: E731

    def swap(a: Any, operator: Any, b: Any) -> Iterator[tuple[int, int, bytes]]:
        old, _, new = _OPERATORS.get(type(operator).__name__, "\0").encode().partition(b" ")
        match = re.search(
            re.escape(old).replace(b"\\~", rb"\s+").replace(b"~", rb"\s+"), data[end(a) : at(b)]
        )
        if match:
            yield end(a) + match.start(), end(a) + match.end(), new.replace(b"~", b" ")

    def visit(node: Any, inside: bool) -> Iterator[tuple[int, int, bytes]]:
        if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.Call) and "warn" in ast.unparse(node.func):
            return
        if getattr(node, "name", "") in ("__repr__", "__str__", "_repr_html_"):
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if inside and (call or isinstance(node, _DROPPED)):
            lines = data[at(node) : end(node)].count(b"\n")
            yield at(node), end(node), b"pass" + b"\n" * lines
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
        inside |= isinstance(node, ast.FunctionDef)
        for name, field in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "bases"):
                for child in field if isinstance(field, list) else [field]:
                    if isinstance(child, ast.AST):
                        yield from visit(child, inside)

    yield from visit(ast.parse(data), False)


def scope(path: Path, line: int) -> int:
    """Return the first line, with decorators, of the innermost function around a line."""
    around = [
        min([node.lineno, *(d.lineno for d in node.decorator_list)])
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= line <= node.end_lineno
    ]
    return max(around, default=0)


class Map:
    """A plugin of pytest that notes seconds and called functions of each test that passes."""

    def __init__(self) -> None:
        self.depth, self.listener = 0, None
        self.codes: dict[int, Any] = {}
        self.now: set[int] = set()
        self.shared: dict[str, set[int]] = defaultdict(set)
        self.tests: dict[str, tuple[float, set[int]]] = {}
        self.failed: set[str] = set()

    def compiles(self, change: int) -> None:
        self.depth += change
        sys.settrace(None if self.depth else self.trace)

    def trace(self, frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if code.co_name == "__call__" and code.co_filename.endswith("compute/compiling.py"):
            code = frame.f_locals["self"].py_func
        self.codes.setdefault(id(code), code)
        self.now.add(id(code))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
        before, self.now = self.now, set()
        try:
            return (yield)
        finally:  # what a module's fixture has called concerns all of its tests
            self.shared[f"{fixturedef.baseid}::{fixturedef.argname}"] |= self.now
            self.now |= before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        from kernelgrad.compute import caching
        from kernelgrad.compute.compiling import compile_seconds

        # compilation calls much, but not us
        more, less = (lambda function: self.compiles(1)), (lambda: self.compiles(-1))
        self.listener = self.listener or caching.Listener(more, less)
        self.now, start = set(), time.process_time() - compile_seconds()
        sys.settrace(self.trace)
        threading.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            for name, definitions in item._fixtureinfo.name2fixturedefs.items():
                self.now |= self.shared[f"{definitions[-1].baseid}::{name}"]
            seconds = time.process_time() - compile_seconds() - start
            self.tests[item.nodeid] = seconds, self.now

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)

    def result(self, tree: Path) -> dict[str, tuple[float, list[tuple[str, int]]]]:
        """Return seconds, and the file and line of each function, of the tests that passed."""
        return {
            test: (
                seconds,
                sorted({place for i in ids for place in called(self.codes[i], tree)}),
            )
            for test, (seconds, ids) in self.tests.items()
            if test not in self.failed
        }


def called(function: Any, tree: Path, known: Any = None) -> set[tuple[str, int]]:
    """Return the file and line of a code object, or of a loop and all that it calls."""
    out: set[tuple[str, int]] = set() if known is None else known
    code = getattr(function, "__code__", function)
    name = getattr(code, "co_filename", "").removeprefix(f"{tree}/")
    if not name.startswith(PACKAGE) or (name, code.co_firstlineno) in out:
        return out
    out.add((name, code.co_firstlineno))
    if code is not function:
        cells = [
            cell.cell_contents for cell in function.__closure__ or () if cell != type(cell)()
        ]
        names = [function.__globals__.get(each) for each in code.co_names]
        for each in cells + names:
            for part in each.values() if isinstance(each, dict) else [each]:
                called(getattr(part, "py_func", part), tree, out)
    return out


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

    __eq__ = lambda self, other: True  # noqa: E731
    __ne__ = lambda self, other: False  # noqa: E731
    __hash__ = tuple.__hash__
    __reduce__ = lambda self: (tuple, (tuple(self),))  # noqa: E731


def child(tree: Path, cache: Path, plugin: Any, *arguments: str) -> None:
    """Run pytest in a copy of the checkout; end this process."""
    from numba.core.caching import IndexDataCacheFile

    begin = IndexDataCacheFile.__init__
    IndexDataCacheFile.__init__ = lambda self, cache_path, filename_base, source_stamp: begin(
        self, cache_path, filename_base, Stamp(source_stamp)
    )
    importlib.import_module("numba").config.CACHE_DIR = str(cache)
    resource.setrlimit(resource.RLIMIT_DATA, (12 << 30, 12 << 30))
    os.setpgid(0, 0)
    os.chdir(tree)
    sys.path[:0] = [str(tree / "src"), str(tree), str(tree / "tests")]
    os.environ |= {"PYTHONPATH": f"{tree}/src:{tree}", "NUMBA_CACHE_DIR": str(cache)}
    os.environ["KERNELGRAD_NUM_THREADS"] = "1"
    sys.dont_write_bytecode = not isinstance(plugin, Map)
    with (cache.parent / "log.txt").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    code = 70
    try:
        code = int(pytest.main(["-q", "-p", "no:cacheprovider", *arguments], [plugin]))
        if isinstance(plugin, Map):
            (cache.parent / "map.pickle").write_bytes(pickle.dumps(plugin.result(tree)))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def forked(seconds: float, *arguments: Any) -> tuple[int | None, float]:
    """Return the exit code of such a run, or None after too many seconds, and its CPU time."""
    pid = os.fork()
    if pid == 0:
        child(*arguments)
    stop = time.monotonic() + seconds
    while not (done := os.wait4(pid, os.WNOHANG))[0] and time.monotonic() < stop:
        time.sleep(0.05)
    late = not done[0]
    if late:
        os.killpg(pid, signal.SIGKILL)
        done = os.wait4(pid, 0)
    return None if late else os.waitstatus_to_exitcode(done[1]), sum(done[2][:2])


def importers(tree: Path, name: str) -> set[str]:
    """Return a file and all that import it, at any depth."""
    files = {str(p.relative_to(tree)): p.read_text() for p in tree.glob(f"{PACKAGE}**/*.py")}
    out, before = {name}, set()
    while out != before:
        before = set(out)
        parts = {f.removeprefix("src/").removesuffix(".py").replace("/", ".") for f in before}
        modules = {part.removesuffix(".__init__") for part in parts}
        for file, text in files.items():
            named = re.findall(
                r"^(?:from (\S+) )?import \(?\s*([^)\n]*(?:\n    .*)*)", text, re.M
            )
            names = {m for m, _ in named} | {
                f"{m}.{x}" for m, xs in named for x in re.findall(r"\w+", xs)
            }
            if names & modules:
                out.add(file)
    return out


def attempt(
    tree: Path, work: Path, name: str, fault: tuple[int, int, bytes], tests: Any
) -> dict[str, Any]:
    """Put one fault there, run what calls it, and take it away."""
    path = tree / name
    data, status = path.read_bytes(), path.stat()
    a, b, new = fault
    line = data[:a].count(b"\n") + 1
    first = scope(path, line)
    loops = any(word in data for word in (b"njit(", b"by_type(", b"usable_in_loops"))
    touching = {
        test: seconds
        for test, (seconds, places) in tests.items()
        if any(f == name and (loops or not first or n == first) for f, n in places)
    }
    # tests of one file together, so that fixtures are made few times
    key = lambda t: (
        np.searchsorted([0.05, 0.5, 3.0], touching[t]),
        t.split("::")[0],
        touching[t],
    )  # noqa: E731
    order = sorted(touching, key=key)
    cache = work / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(work / "base", cache, copy_function=os.link)
    if loops or not first:
        stale = importers(tree, name)
        for index in cache.glob("*/*.nbi"):
            folder = index.parent.name.rsplit("_", 1)[0]
            if any(
                f"{Path(f).parent.name}/{Path(f).stem}." in f"{folder}/{index.name}"
                for f in stale
            ):
                index.unlink()
    spent, code, run = 0.0, 0, 0
    (work / "failed.txt").unlink(missing_ok=True)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
    path.write_bytes(data[:a] + new + data[b:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    try:
        for part in (order[:12], order[12:]):
            if code == 0 and part:
                files = dict.fromkeys(test.split("::")[0] for test in part)
                limit = 120 + 6 * sum(touching[t] for t in part)
                code, seconds = forked(
                    limit, tree, cache, Only(part, work / "failed.txt"), "-x", *files
                )
                spent, run = spent + seconds, run + len(part)
    finally:
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    failed = work / "failed.txt"
    return {
        "file": name, "line": line, "old": data[a:b].decode(), "new": new.decode().strip(),
        "text": data.splitlines()[line - 1].decode().strip(), "killed": code != 0,
        "by": failed.read_text() if failed.exists() else f"exit {code}",
        "tests": run, "seconds": round(spent, 1), "loops": loops,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=4000.0, help="of CPU")
    parser.add_argument("--output", type=Path, default=Path("out/faults"), help="goes on there")
    args = parser.parse_args()
    for module in _PRELOADED.split():
        importlib.import_module(module)
    work = args.output.resolve()
    tree = work / "tree"
    if not (work / "map.pickle").exists():
        shutil.rmtree(work, ignore_errors=True)
        tree.mkdir(parents=True)
        files = subprocess.run(["git", "archive", "HEAD"], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "x", "-C", tree], input=files.stdout, check=True)
        print("map", forked(7200, tree, work / "base", Map(), "tests"), flush=True)
    tests = pickle.loads((work / "map.pickle").read_bytes())
    every = [
        (str(path.relative_to(tree)), fault)
        for path in sorted(tree.glob(f"{PACKAGE}**/*.py"))
        for fault in faults(path)
    ]
    order = np.random.default_rng(args.seed).permutation(len(every))[: args.count]
    done = work / f"faults-{args.seed}.json"
    results = json.loads(done.read_text()) if done.exists() else []
    for i in order[len(results) :]:
        if sum(result["seconds"] for result in results) > args.seconds:
            break
        results.append(attempt(tree, work, *every[i], tests))
        done.write_text(json.dumps(results, indent=1) + "\n")
        print(json.dumps(results[-1]), flush=True)
    killed = sum(result["killed"] for result in results)
    print(f"{killed} of {len(results)} faults, {len(every)} possible")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
