"""Seconds of each primitive on the devices that are here: NumPy's path, torch's CPU, GPUs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, ClassVar

import numpy as np

from benchmarks.objectives._shared import where
from benchmarks.registry import Objective, Row
from kernelgrad import KernelRegressor, get_num_threads
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.device.backend import get_device
from kernelgrad.exceptions import CapabilityError
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.functions.features import FeatureStream
from kernelgrad.kernels import Gaussian, Laplacian
from kernelgrad.solvers import DSG, BlockDescent
from kernelgrad.solvers.block_descent.coordinates import Block


def present() -> list[str]:
    """Return the names of all devices that can be used here."""
    names = ["cpu"]
    for name in ("torch", *(f"cuda:{i}" for i in range(16))):
        try:
            get_device(name)
        except CapabilityError as reason:
            print(f"{name}: {reason}")
            break
        names.append(name)
    return names


def seconds(call: Callable[[], Any], device: str) -> float:
    """Return the seconds of a call, all work of the device included."""
    there = get_device(device)
    start = time.perf_counter()
    call()
    if there is not None and there.where.type == "cuda":
        there.torch.cuda.synchronize(there.where)
    return time.perf_counter() - start


class Device(Objective):
    """Seconds of the parts of fits and predictions on each device, and how results differ.

    Parts are of one block on 131,072 rows. Whole fits have 20 columns and given gamma and
    alpha: 20 blocks of 1,024 rows, or 50 steps of dsg. They predict 100,000 other rows; the
    rmse is the error on them, and ``same bits`` tells whether repeated fits predict the same.
    """

    name: ClassVar[str] = "device"
    repeat: ClassVar[int] = 5

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, default=131_072)
        parser.add_argument("--columns", type=int, nargs="+", default=[20, 200])
        parser.add_argument("--width", type=int, default=1024, help="of a block")
        parser.add_argument("--outputs", type=int, nargs="*", default=[1, 10])
        parser.add_argument("--fits", nargs="*", default=["blocks", "dsg", "default"])
        parser.add_argument("--device", nargs="+", default=None, help="names; all by default")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        n, M = (2500, 64) if args.quick else (args.rows, args.width)
        devices = args.device or present()
        for name in devices:
            if (there := get_device(name)) is not None:
                gpu = there.where.type == "cuda"
                what = there.torch.cuda.get_device_name(there.where) if gpu else "CPU"
                row = {"device": name, "what": what, "torch": there.torch.__version__}
                yield "devices", row
        for d in args.columns[: 1 if args.quick else None]:
            for C in args.outputs[: 1 if args.quick else None]:
                yield from self._case(devices, n, d, M, C, args.repeat)
        yield from self._fits(devices, args)

    def page(self, tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """Return one row for each part of one output, with the devices beside each other."""
        parts: dict[tuple[int, str], Row] = {}
        for row in where(tables["seconds"], outputs=1):
            key = row["columns"], row["part"]
            beside = parts.setdefault(key, {"columns": key[0], "part": key[1]})
            beside[f"{row['device']}, ms"] = 1e3 * row["seconds"]
        return tables | {"seconds": list(parts.values())}

    def _case(
        self, devices: list[str], n: int, d: int, M: int, C: int, repeat: int
    ) -> Iterator[tuple[str, Row]]:
        X = np.random.default_rng(0).standard_normal((n, d), np.float32)
        times: dict[tuple[str, str], list[float]] = {}
        answers: dict[tuple[str, str], Any] = {}
        with single_threaded_blas():
            parts = {name: dict(self._parts(name, X, M, C)) for name in devices}
            for turn in range(repeat + 1):  # the first one compiles, and sends rows
                for name in devices:
                    for part, call in parts[name].items():
                        spent = seconds(
                            lambda key=(part, name), call=call: answers.update({key: call()}),
                            name,
                        )
                        if turn:
                            times.setdefault((part, name), []).append(spent)
        for (part, name), spent in times.items():
            expected = np.asarray(answers[part, "cpu"]) if "cpu" in devices else None
            error = None
            if expected is not None and name != "cpu":
                largest = float(np.abs(answers[part, name] - expected).max())
                error = largest / max(float(np.abs(expected).max()), 1e-300)
            row = {"rows": n, "columns": d, "width": M, "outputs": C, "part": part}
            yield (
                "seconds",
                row
                | {
                    "device": name,
                    "seconds": median(spent),
                    "values per second": n * M / median(spent),
                    "largest difference from cpu": error,
                },
            )

    def _parts(
        self, name: str, X: Any, M: int, C: int
    ) -> Iterator[tuple[str, Callable[[], Any]]]:
        n, d = X.shape
        rng = np.random.default_rng(1)
        R = rng.standard_normal((C, n), np.float32)
        V = rng.standard_normal((C, M), np.float32)
        out = np.empty((C, n), np.float32)

        def responded(matrix: Any) -> Any:
            matrix.responses(V, out)
            return out.copy()

        def of_block(block: Block, rows: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
            buffer = np.empty(n * M, np.float32) if name == "cpu" else None
            kept = block.matrix(rows, buffer)
            kept.product(R)
            yield "values and product", lambda: block.matrix(rows, buffer).product(R)
            yield "product, values kept", lambda: kept.product(R)
            yield "responses, values kept", lambda: responded(kept)

        for kernel in (Gaussian(0.5 / d), Laplacian(0.5 / d)):
            exact = ExactKernel(kernel, d)
            exact.device = name
            rows = exact.prepare(X)
            block = Block(0, exact, rows.take(slice(0, M)), np.arange(M))
            for part, call in of_block(block, rows):
                yield f"{kernel.name}: {part}", call
            e = SupportExpansion(exact, block.centres, V.T.astype(np.float64), np.zeros(C))
            yield f"{kernel.name}: prediction", lambda e=e: e.raw_prediction(X)
        stream = FeatureStream(Gaussian(0.5 / d), d, 0, M // 2)
        stream.device = name
        prepared = stream.prepare(X)
        root = np.full((n, 1), n**-0.5, np.float32)
        every = max(1, n // (2 * M))
        yield (
            "features: covariance and gradient",
            lambda: stream.moments(prepared, 0, root, every, R.T, R.T)[2],
        )

    def _fits(self, devices: list[str], args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Yield seconds of whole fits and predictions, with errors on rows not fitted."""
        n, few = (1500, 500) if args.quick else (args.rows, 100_000)
        rng = np.random.default_rng(0)
        X = rng.standard_normal((8 * n + few, max(4, args.columns[0])), np.float32)
        y = np.sin(2.0 * X[:, 0] + X[:, 1]) + 0.5 * X[:, 2] * X[:, 3]
        y += 0.1 * rng.standard_normal(len(y), np.float32)
        params: dict[str, dict[str, Any]] = {
            "blocks": {"solver": BlockDescent(tol=0.0), "max_iter": 20},
            "dsg": {"solver": DSG(), "max_iter": 50},
        }
        for case, m in ("blocks", n), ("blocks", 8 * n), ("dsg", n), ("default", n):
            if case not in args.fits:
                continue
            given = {"gamma": 0.5 / X.shape[1], "alpha": 1e-6} if case in params else {}
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in devices}
            rows: dict[str, Row] = {}
            first: dict[str, Any] = {}
            for turn in range(args.repeat + 1):  # the first one, of few rows, compiles
                part = slice(0, m if turn else m // 8)
                for name in devices:
                    model = KernelRegressor(device=name, random_state=0, **given)
                    model.set_params(**params.get(case, {}))
                    fit = seconds(lambda f=model.fit, s=part: f(X[s], y[s]), name)
                    there: list[Any] = []
                    predict = seconds(
                        lambda f=model.predict, to=there: to.append(f(X[8 * n :])), name
                    )
                    if not turn:
                        continue
                    times[name].append((fit, predict))
                    f, e = first.setdefault(name, there[0]), model.expansion_
                    rows[name] = {
                        "rmse": float(np.sqrt(np.mean((f - y[8 * n :]) ** 2))),
                        "same bits": bool((f == there[0]).all()) if turn > 1 else None,
                        "centres or features": e.n_support or e.n_random_features,
                    }
            for name, row in rows.items():
                fit, predict = (median(t) for t in zip(*times[name], strict=True))
                how = {"device": name, "threads": get_num_threads(), "repeats": args.repeat}
                spent = {"fit seconds": fit, "prediction seconds": predict}
                yield "fits", {"fit": case, "rows": m} | how | spent | row
