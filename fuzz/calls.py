"""Which functions each test calls, and how long it takes: a plugin of pytest."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest


class Calls:
    """Notes the functions of each test that passes; those of fixtures concern all users."""

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
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        before, self.now = self.now, set()
        try:
            return (yield)
        finally:
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
            test: (seconds, sorted({each for i in ids for each in called(self.codes[i], tree)}))
            for test, (seconds, ids) in self.tests.items()
            if test not in self.failed
        }


def called(function: Any, tree: Path, out: set[tuple[str, int]] | None = None) -> Any:
    """Return the file and line of a code object, or of a loop and all that it calls."""
    out = set() if out is None else out
    code = getattr(function, "__code__", function)
    name = getattr(code, "co_filename", "").removeprefix(f"{tree}/")
    if not name.startswith("src/kernelgrad/") or (name, code.co_firstlineno) in out:
        return out
    out.add((name, code.co_firstlineno))
    if code is not function:
        empty = type((lambda: out).__closure__[0])()
        cells = [cell.cell_contents for cell in function.__closure__ or () if cell != empty]
        for each in cells + [function.__globals__.get(each) for each in code.co_names]:
            for part in each.values() if isinstance(each, dict) else [each]:
                called(getattr(part, "py_func", part), tree, out)
    return out
