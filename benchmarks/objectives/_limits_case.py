"""What ``limits`` measures, one case a process: the peak above the data of one call.

Data are what a call is given and what it returns.

The call was made before on few rows, so that the code of the loops is there: what is measured
is what a call takes besides its data, the interpreter, the libraries and the loops.
"""

from __future__ import annotations

import ctypes
import gc
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import kernelgrad as kg
from benchmarks.objectives._shared import MIB, lowered_peak, peak, serve, timed
from benchmarks.registry import Row
from kernelgrad.compute.compiling import compile_seconds
from kernelgrad.losses import Quantile
from kernelgrad.solvers import LINEAR_SOLVERS
from kernelgrad.solvers.block_descent.solver import WHOLE
from kernelgrad.solvers.exact import direct_bytes, newton_bytes

Call = Callable[[], Any]
# Prepares a call: options of the limit, rows, labels, numbers. What preparing takes, such as
# another fit or a file, is not measured.
Case = Callable[[dict[str, Any], Any, Any, Any], Call]

GIVEN: dict[str, Any] = {"gamma": 0.05, "random_state": 0, "max_iter": 4, "time_limit": 20.0}
RIDGE = GIVEN | {"alpha": 1e-5}
SEARCHED: dict[str, Any] = {"random_state": 0, "max_iter": 4}
LONG = 120.0  # seconds after which the longest fits have taken all their memory
FEW, LITTLE = 2500, 8e6  # rows, and a limit with which "auto" takes block descent
FOLDER = tempfile.TemporaryDirectory()


def classes(cls: Any, **options: Any) -> Case:
    return lambda limit, X, labels, y: lambda: cls(**limit, **options).fit(X, labels)


def numbers(cls: Any, **options: Any) -> Case:
    return lambda limit, X, labels, y: lambda: cls(**limit, **options).fit(X, y)


def one_block(limit: dict[str, Any], X: Any, labels: Any, y: Any) -> Call:
    """Return a fit of as many rows as one block of block descent holds."""
    model = kg.KernelRegressor(**limit, **RIDGE, solver="block_descent")
    return lambda: model.fit(X[:WHOLE], y[:WHOLE])


def rows_alone(cls: Any, **options: Any) -> Case:
    return lambda limit, X, labels, y: lambda: cls(**limit, **options).fit(X)


def outputs(count: int, **options: Any) -> Case:
    Y = "Y"

    def case(limit: dict[str, Any], X: Any, labels: Any, y: Any) -> Call:
        data = {Y: np.tile(y[:, None], count)}
        return lambda: kg.KernelRegressor(**limit, **options).fit(X, data[Y])

    return case


def at_the_edge(solver: str, needed: Callable[[int, int, float], float]) -> Case:
    """Return a fit to as many rows as the limit has room for."""

    def case(limit: dict[str, Any], X: Any, labels: Any, y: Any) -> Call:
        n = len(X)
        while n > 1 and needed(n, 1, 8.0 * X.shape[1] * n) > limit["memory_limit"]:
            n = int(0.99 * n)
        some = X[:n].copy()
        return lambda: kg.KernelRegressor(**limit, **RIDGE, solver=solver).fit(some, y[:n])

    return case


def then(method: str, cls: Any, **options: Any) -> Case:
    """Return a method of a model of few rows, on all of them."""

    def case(limit: dict[str, Any], X: Any, labels: Any, y: Any) -> Call:
        targets = labels if cls is kg.KernelClassifier else y
        model = cls(**limit, **options).fit(X[:3000], targets[:3000])
        return lambda: getattr(model, method)(X)

    return case


def ratio(limit: dict[str, Any], X: Any, labels: Any, y: Any) -> Call:
    p, q = X[: len(X) // 2], X[len(X) // 2 :]
    return lambda: kg.KernelDensityRatio(**limit, **GIVEN).fit(p, denominator=q)


def unlabelled(**options: Any) -> Case:
    """Return a fit to rows of which a tenth has labels."""

    def case(limit: dict[str, Any], X: Any, labels: Any, y: Any) -> Call:
        some = np.where(np.arange(len(y)) % 10 == 0, labels, -1)
        cls = kg.SemiSupervisedKernelClassifier
        return lambda: cls(**limit, **options).fit(X, some)

    return case


def of_file(kind: str, cls: Any, **options: Any) -> Case:

    def case(limit: dict[str, Any], X: Any, labels: Any, y: Any) -> Call:
        path = written(kind, X, y)
        target = {} if kind == "libsvm" else {"target": "y"}
        return lambda: cls(**limit, **options).fit(kg.open_source(path, **target))

    return case


def written(kind: str, X: Any, y: Any) -> Path:
    path = Path(FOLDER.name) / f"{len(y)}.{kind}"
    if kind == "npz":
        np.savez(path, X=X, y=y)
    elif kind == "libsvm":
        from sklearn.datasets import dump_svmlight_file

        dump_svmlight_file(X, y, str(path))
    else:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        table = pa.table({f"x{k}": x for k, x in enumerate(X.T)} | {"y": y})
        if kind == "csv":
            pyarrow.csv.write_csv(table, path)
        else:
            pyarrow.parquet.write_table(table, path)
    return path


def all_cases() -> dict[str, Case]:
    C, R = kg.KernelClassifier, kg.KernelRegressor
    found: dict[str, Case] = {
        "direct, at the edge": at_the_edge("direct", direct_bytes),
        "newton, at the edge": at_the_edge("newton", newton_bytes),
        "perceptron": classes(C, **GIVEN, loss="perceptron", solver="perceptron"),
        "block_descent, one block": one_block,
        "working_set, absolute": numbers(R, **RIDGE, solver="working_set", loss="absolute"),
        "logistic": classes(C, **RIDGE, loss="logistic"),
        "hinge": classes(C, **RIDGE, loss="hinge"),
        "one against one": classes(C, **RIDGE, loss="hinge", multi_class="ovo"),
        "quantiles": numbers(R, **RIDGE, loss=Quantile((0.1, 0.5, 0.9))),
        "20 outputs": outputs(20, **RIDGE),
        "early stopping": classes(C, **RIDGE, early_stopping=True),
        "default classifier": classes(C, **SEARCHED),
        "default classifier, logistic": classes(C, **SEARCHED, loss="logistic"),
        "default regressor": numbers(R, **SEARCHED),
        "default regressor, 20 outputs": outputs(20, **SEARCHED),
        "full metric": numbers(R, **SEARCHED, metric="full"),
        "default gaussian process": numbers(kg.KernelGaussianProcessRegressor, **SEARCHED),
        "default novelty": rows_alone(kg.KernelNoveltyDetector, **SEARCHED, time_limit=LONG),
        "density ratio": ratio,
        "predict": then("predict", R, **RIDGE),
        "predict, dsg": then("predict", R, **RIDGE, solver="dsg"),
        "predict_proba": then("predict_proba", C, **RIDGE, loss="logistic"),
        "transform": then("transform", kg.RandomFeatures, n_components=512, random_state=0),
        "partial_fit": lambda limit, X, labels, y: (
            lambda: R(**limit, **RIDGE).partial_fit(X, y)
        ),
        "default linear regressor": numbers(kg.LinearRegressor, **SEARCHED),
        "parquet, default": of_file("parquet", R, **SEARCHED),
        "parquet, block_descent": of_file("parquet", R, **RIDGE, solver="block_descent"),
        "parquet, dsg": of_file("parquet", R, **RIDGE, solver="dsg"),
        "parquet, linear": of_file("parquet", kg.LinearRegressor, **SEARCHED),
        "csv, dsg": of_file("csv", R, **RIDGE, solver="dsg"),
        "npz, block_descent": of_file("npz", R, **RIDGE, solver="block_descent"),
        "libsvm, block_descent": of_file("libsvm", R, **RIDGE, solver="block_descent"),
    }
    for name in ("block_descent", "direct", "newton", "dsg", "udsg", "cdsg", "sdca", "norma"):
        found[name] = numbers(R, **RIDGE, solver=name)
    for name in ("sbp", "working_set", "pegasos"):
        found[name] = classes(C, **GIVEN, C=1.0, loss="hinge", solver=name)
    for name in ("tsg", "fr_s3vm", "bgs3vm", "cccp_s3vm", "s3vm_light", "soft_labels"):
        # no more steps than take all their memory
        few = {"max_iter": 1 if name == "s3vm_light" else 2, "time_limit": LONG}
        found[name] = unlabelled(**GIVEN | few, solver=name)
    for name in LINEAR_SOLVERS:
        found[f"linear {name}"] = classes(kg.LinearClassifier, **SEARCHED, solver=name)
    return found


CASES = all_cases()


def data(n: int, d: int) -> tuple[Any, Any, Any]:
    """Return normal rows in float64, labels and numbers."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(n)
    return X, (y > 0.0).astype(int), y


def main(case: Row) -> Iterator[Row]:
    """Measure one call; what it raises before it starts is its answer."""
    import_module("numba")  # a small fit may not need its 50 MB, while a large one does

    warnings.simplefilter("ignore")
    if "threads" in case:
        kg.set_num_threads(case["threads"])
    make, limit = CASES[case["name"]], {"memory_limit": case["limit"] * 1e6}
    for small in (limit, {"memory_limit": LITTLE}):
        with suppress(kg.CapabilityError):
            make(small, *data(min(FEW, case["rows"]), case["columns"]))()
    rows = data(case["rows"], case["columns"])
    call = make(limit, *rows)
    del rows
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    compiled = compile_seconds()
    try:
        before = lowered_peak()
        seconds, result = timed(call)
        MB = (peak() - before) * MIB / 1e6
    except kg.CapabilityError as error:
        yield {"MB": None, "seconds": None, "refused": str(error)}
    else:
        MB -= result.nbytes / 1e6 if isinstance(result, np.ndarray) else 0.0
        yield {"MB": MB, "seconds": seconds, "compiled": compile_seconds() - compiled}


if __name__ == "__main__":
    serve(main)
