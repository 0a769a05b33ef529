"""Single rows beside their kernel values, and compressed models beside whole ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from benchmarks.objectives import _tables, _tables_case
from benchmarks.objectives._curves import error
from benchmarks.objectives._shared import timed
from benchmarks.registry import Data, Objective, Row, SkipError
from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import Gaussian, Kernel, Matern, RootLaplacian

MADE = ("friedman1_useless", "ten_columns")
REAL = ("cpu_act", "telco_churn", "protein", "flights13", "cod_rna", "electricity")
KERNELS: dict[str, Kernel] = {
    "rbf": Gaussian(0.01),
    "sum": 0.7 * Matern(2.5, 0.01) + 0.3 * RootLaplacian(0.01),
}


class Predict(Objective):
    """Microseconds of single rows, and what `compress` leaves of default models.

    Part ``rows``: `overhead` is what `predict` takes beyond the kernel values. Part
    ``compressed``: default fits to `--rows` rows, compressed to the tolerance and to fractions
    of the support rows; `change` at the test rows is over the spread of f, `error times` is
    the test error over that of the whole model, `times` how much faster test rows and one row
    are predicted.
    """

    name: ClassVar[str] = "predict"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--part", nargs="+", default=["rows", "compressed"])
        parser.add_argument("--rows", type=int, default=8_000)
        parser.add_argument("--data", nargs="+", default=[*MADE, *REAL])
        parser.add_argument("--fractions", type=int, nargs="+", default=[20, 10, 5])

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        if "rows" in args.part:
            for kernel in KERNELS:
                for d in (8, 20, 50):
                    for n in (100,) if args.quick else (100, 2_000, 20_000):
                        yield "rows", single(kernel, d, n)
        for name in args.data if "compressed" in args.part else ():
            if args.quick and name != MADE[0]:
                continue
            try:
                task, data = loaded(name, 400 if args.quick else args.rows)
            except (SkipError, KeyError) as reason:
                print(f"{name} skipped: {reason}", flush=True)
                continue
            for row in compressed(task, data, args.fractions):
                yield "compressed", {"data": name, **row}


def microseconds(call: Callable[[], Any], seconds: float = 0.5) -> float:
    """Return the median microseconds of a call, after two calls that warm up."""
    times: list[float] = []
    call()
    end = perf_counter() + seconds
    while len(times) < 2 or (perf_counter() < end and len(times) < 2_000):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return 1e6 * median(times[1:])


def single(name: str, d: int, n: int) -> Row:
    """Return the microseconds of one row in a model of n random support rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, d))
    model: Any = KernelRegressor(kernel=KERNELS[name], alpha=1.0).fit(X, np.sin(X[:, 0]))
    done, old = model._fitted, model._fitted.model.function
    rows = old.exact.prepare(rng.standard_normal((n, d)))
    function = SupportExpansion(old.exact, rows, rng.standard_normal((n, 1)), old.intercept)
    model._fitted = replace(done, model=replace(done.model, function=function))
    x = rng.standard_normal((1, d))
    prepared = function.exact.prepare(x)
    total = microseconds(lambda: model.predict(x))
    with single_threaded_blas():
        values = microseconds(lambda: function.exact.values(prepared, function.support))
    return {
        "kernel": name, "columns": d, "support rows": n, "predict us": total,
        "kernel values us": values, "overhead us": total - values,
    }  # fmt: skip


def loaded(name: str, rows: int) -> tuple[str, Data]:
    """Return the task of a data set, and some of its rows."""
    if name not in MADE:
        return _tables_case.index()[name]["task"], _tables_case.load(name, 0, rows)
    data = _tables.TABLES[name].load(0)
    return "regression", replace(data, X_train=data.X_train[:rows], y_train=data.y_train[:rows])


def compressed(task: str, data: Data, fractions: list[int]) -> Iterator[Row]:
    classify = task in _tables_case.CLASSES
    model: Any = (KernelClassifier if classify else KernelRegressor)()
    seconds = timed(model.fit, data.X_train, data.y_train)[0]
    model_rows = model._model.inputs.read(data.X_test)
    f = model._model.values(model_rows)
    whole = error(classify, data.y_test, model.predict(data.X_test))

    def speeds(each: Any) -> list[float]:
        values = each._model.values
        return [microseconds(lambda x=x: values(x)) for x in (model_rows, model_rows[:1])]

    before, n = speeds(model), model.n_support_
    for limit, tol in ((n // 2, 0.01), *((max(1, n // k), 1e-3) for k in fractions)):
        spent, small = timed(model.compress, limit, tol=tol)
        report, after = small.history_["compression"], speeds(small)
        change = np.sqrt(np.mean((small._model.values(model_rows) - f) ** 2, axis=0))
        part = error(classify, data.y_test, small.predict(data.X_test))
        yield {
            "kernel": model.kernel_.name, "fit s": seconds, "compress s": spent,
            "support rows": n, "rows": small.n_support_, "stopped by": report["stopped_by"],
            "change at support rows": report["relative_change"],
            "change": float(np.mean(change / f.std(axis=0))),
            "error": whole, "error times": part / whole if whole else None,
            "batch times": before[0] / after[0], "row times": before[1] / after[1],
        }  # fmt: skip
