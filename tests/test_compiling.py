"""Compilation: not counted as time of a fit, kept on disk, and done beforehand."""

import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

import kernelgrad
from cases import raises
from kernelgrad.callbacks import Callback
from kernelgrad.compute import compiling
from kernelgrad.compute.rows import by_type
from kernelgrad.losses import scalar
from kernelgrad.solvers.block_descent.loops import _loop_of
from plain import plain_classifier

X = np.random.default_rng(0).random((40, 3))
Y = (X[:, 0] > 0.5).astype(int)


@pytest.fixture
def watch(monkeypatch):
    """Return the watch with a clock set by hand."""
    watch, now = compiling.Watch(), SimpleNamespace(seconds=0.0)
    watch.now = now
    monkeypatch.setattr(compiling, "watch", watch)
    monkeypatch.setattr(
        compiling, "time", SimpleNamespace(perf_counter=lambda: now.seconds), raising=True
    )
    return watch


def test_clock_stands_still_while_loops_are_compiled(watch):
    start = compiling.clock()
    for function in (run, test_sums_that_may_be_reordered_exist_once):  # one calls the other
        watch.start(function)
    watch.now.seconds += 5
    assert compiling.compile_seconds() == 5
    assert compiling.clock() == start
    watch.stop()
    watch.stop()
    watch.now.seconds += 1
    assert compiling.compile_seconds() == 5
    assert compiling.clock() == start + 1


class Compiles(Callback):
    def __init__(self, watch):
        self.watch = watch

    def on_iteration(self, event):
        self.watch.start(run)
        self.watch.now.seconds += 100
        self.watch.stop()


def test_history_tells_compilation_apart(watch):
    model = plain_classifier(
        solver="dsg", max_iter=3, warm_start=True, callbacks=Compiles(watch)
    )
    assert model.fit(X, Y).history_["compile_seconds"] == 300
    assert model.history_["seconds"] == [0, 0, 0]
    assert model.fit(X, Y).history_["compile_seconds"] == 600  # goes on
    assert model.set_params(warm_start=False).fit(X, Y).history_["compile_seconds"] == 300


def run(code, **environment):
    """Return what a process of its own prints, as JSON, and its stderr."""
    path = [environment.pop("PYTHONPATH", str(Path(kernelgrad.__file__).parents[1]))]
    keep = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=keep | {"PYTHONPATH": os.pathsep.join(path)} | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


class First(NamedTuple):
    x: float


class Second(NamedTuple):
    x: float


def test_what_a_room_adds_after_a_loop_has_run_is_compiled_too():
    table = {First: lambda pair: pair.x}
    of_table = by_type(table)
    loop = compiling.njit()(lambda pair: of_table(pair))
    assert loop(First(1.0)) == 1.0
    later = by_type({Second: lambda pair: -pair.x})
    table[Second] = lambda pair: later(pair)
    assert loop(Second(2.0)) == -2.0


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX folders of users")
def test_without_a_folder_to_write_loops_are_compiled_with_a_warning(tmp_path):
    (tmp_path / "loops.py").write_text(DOUBLE.format("One"))
    (tmp_path / "__pycache__").touch()  # a file: no folder of that name, not even for root
    code = f"""
        import json, sys
        sys.path.insert(0, {str(tmp_path)!r})
        from loops import One, double
        print(json.dumps(double(One(2))))
    """
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    doubled, stderr = run(code, PYTHONDONTWRITEBYTECODE="1", **nowhere)
    assert doubled == 4
    assert stderr.count("UserWarning") == 1
    assert "NUMBA_CACHE_DIR" in stderr


DOUBLE = """
from typing import NamedTuple
from kernelgrad.compute.compiling import njit


class {}(NamedTuple):
    x: int


@njit(cache=True)
def double(pair):
    return 2 * pair.x
"""


def test_loops_of_another_version_or_of_changed_files_are_compiled_again(tmp_path):
    code = """
        import json, sys
        sys.path.insert(0, {0!r})
        import kernelgrad.version
        kernelgrad.version.__version__ = {1!r}
        from kernelgrad.compute import caching
        assert caching._last_change() > 1e18
        caching._last_change = lambda: {2}
        import loops
        assert loops.double(loops.{3}(2)) == 4
        print(json.dumps(bool(loops.double.dispatcher.stats.cache_misses)))
    """

    def compiles(version, change, name):
        loops = tmp_path / "loops.py"
        if not loops.exists() or name not in loops.read_text():
            loops.write_text(DOUBLE.format(name))
        return run(code.format(str(tmp_path), version, change, name))[0]

    states = (
        ("1", 0, "One"), ("1", 0, "One"), ("2", 0, "One"), ("2", 1, "One"), ("2", 2, "Two"),
    )  # fmt: skip
    compiled = [compiles(*state) for state in states]
    assert compiled == [True, False, True, True, True]


@pytest.mark.slow
def test_after_a_warm_up_default_fits_compile_nothing():
    result, _ = run(
        """
        import gc, json, warnings
        import numpy as np
        import scipy.sparse as sp
        from numba.core.dispatcher import Dispatcher
        import kernelgrad
        from kernelgrad.testing.warmup import METHODS, default_fits

        def loops():
            return {
                f"{d.py_func.__module__}.{d.py_func.__qualname__}{signature}"
                for d in gc.get_objects() if isinstance(d, Dispatcher)
                if d.py_func.__module__.startswith("kernelgrad.") for signature in d.overloads
            }

        done = kernelgrad.warmup(["auto"])
        before = loops()
        rng = np.random.default_rng(1)
        X = rng.random((90, 11))
        y = X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(len(X))
        warnings.simplefilter("ignore")
        for rows in (np.asfortranarray(X, np.float32), sp.csr_matrix(X, dtype=np.float32)):
            for estimator, targets in default_fits(y):
                estimator.fit(rows, targets)
                for method in METHODS:
                    if hasattr(estimator, method):
                        getattr(estimator, method)(rows[:30])
                        getattr(estimator, method)(rows[:1])
        many = rng.random((2200, 4))  # in blocks, where the kernel matrix does not fit
        blocks = kernelgrad.KernelClassifier(max_iter=2, memory_limit=5e6, random_state=0)
        blocks.fit(many, many[:, 0] > many[:, 1])
        assert blocks.history_["solver"] == "block_descent"
        print(json.dumps([len(before), sorted(loops() - before)]))
        """
    )
    n_loops, new = result
    assert n_loops > 20
    assert new == []


def test_warm_up_tells_what_it_did():
    raises(ValueError, "solver or kernel 'nope'", kernelgrad.warmup, ["nope"])
    done = kernelgrad.warmup(["sbp", "rbf"])
    assert done.loops >= 0
    assert done.seconds > 0


def test_predictions_by_kernel_rows_compile_nothing(tmp_path):
    code = """
        import json
        import numpy as np
        import scipy.sparse as sp
        from kernelgrad.compute import compiling
        from kernelgrad.functions import SupportExpansion
        from kernelgrad.functions.exact import ExactKernel
        from kernelgrad.kernels import Cauchy, Gaussian, Laplacian, Matern, Polynomial

        X = np.random.default_rng(0).random((100, 5))
        kernels = [Gaussian(0.5), Laplacian(0.5), Cauchy(0.5), Polynomial(3)]
        kernels += [Gaussian() + Matern(), *(Matern(nu) for nu in (0.5, 1.5, 2.5))]
        for kernel in kernels:
            kernel = kernel.resolve(X, 0)
            for rows in (X, sp.csr_matrix(np.where(X < 0.2, X, 0.0))):
                exact = ExactKernel(kernel, 5)
                f = SupportExpansion(exact, exact.prepare(rows), np.ones((100, 2)), np.zeros(2))
                f.compact()
                f.raw_prediction(rows)
        print(json.dumps(compiling.watch.loops))
    """
    loops, _ = run(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert loops == 0


def test_sums_that_may_be_reordered_exist_once():
    # else the copy within a caller, optimised twice, adds in another order
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(kernelgrad.__path__, "kernelgrad.")
        if "__main__" not in info.name
    ]
    loops = {f for m in modules for f in vars(m).values() if isinstance(f, compiling.Loop)}
    loops.add(_loop_of(scalar.SQUARED))
    called = {}
    for loop in loops:
        names = (loop.py_func.__globals__.get(n) for n in loop.py_func.__code__.co_names)
        called[loop] = {f for f in names if isinstance(f, compiling.Loop)}
    callees = set().union(*called.values())
    reordered = {f for f in loops if "reassoc" in f.options.get("fastmath", set())}
    while callers := {f for f in loops - reordered if called[f] & reordered}:
        reordered |= callers  # callers have these sums in their own code
    assert len(reordered) >= 8
    assert len(loops & callees) >= 20
    assert not [f for f in reordered & callees if not f.options.get("forceinline")]
