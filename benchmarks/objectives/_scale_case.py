"""What ``scale`` measures, one case a process: the machine, fits from files, streams, dask."""

from __future__ import annotations

import hashlib
import inspect
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDRegressor
from threadpoolctl import threadpool_limits

from benchmarks.environment import load_average
from benchmarks.objectives._scale_files import rmse
from benchmarks.objectives._shared import MIB, lowered_peak, peak, serve, timed
from benchmarks.registry import Row
from kernelgrad import (
    BatchSource,
    KernelClassifier,
    KernelRegressor,
    open_source,
    set_num_threads,
)
from kernelgrad.callbacks import Callback, Checkpoint
from kernelgrad.kernels import get_kernel
from kernelgrad.solvers import DSG, BlockDescent

TILE = 512  # rows whose values of a block stay in a cache
DISK_BYTES, DECODED_ROWS = 2**30, 2**22
FEATURES = 2**14  # of streams, as solver="auto" has them
OF_WHAT = {"products": 0, "rows_at": 0, "draw": 1}  # block and bundle; else each shard
SGD_ROWS, SGD_FEATURES, SGD_STEPS = 2**14, 2048, (0.1, 0.3, 1.0)


def opened(case: Row) -> BatchSource:
    """Return the rows of a case with the target, or with its classes."""
    target, other = ("c", "y") if case.get("classes") else ("y", "c")
    return open_source(case["path"], target=target, drop=[other])


def machine(case: Row) -> Row:
    """Measure sgemm, exp and two thin products on a slice of rows, on all threads by tiles.

    Seconds are of one block and of the rows of the slice; each part at its best repeat.
    """
    n, d, M, C = case["slice"], case["columns"], case["block"], case["outputs"]
    rng = np.random.default_rng(0)
    X, W = (rng.standard_normal(shape, np.float32) for shape in ((n, d), (d, M)))
    R, A = (rng.standard_normal(shape, np.float32) for shape in ((n, C), (M, C)))
    K = np.empty((case["threads"], TILE, M), np.float32)
    parts: dict[str, Callable[[Any, slice], Any]] = {
        "sgemm": lambda T, rows: np.matmul(X[rows], W, out=T),
        "exp": lambda T, rows: np.exp(T, out=T),
        "K^T r": lambda T, rows: T.T @ R[rows],
        "K a": lambda T, rows: T @ A,
    }

    def worker(i: int, part: Callable[[Any, slice], Any]) -> None:
        for a in range(i * TILE, n, case["threads"] * TILE):
            K[i] = 0.0  # exp of what exp gave would overflow
            start = time.perf_counter()
            part(K[i][: min(n, a + TILE) - a], slice(a, a + TILE))
            spent[i] += time.perf_counter() - start

    best = dict.fromkeys(parts, np.inf)
    with threadpool_limits(1), ThreadPoolExecutor(case["threads"]) as pool:
        for _ in range(case["repeat"]):
            for name, part in parts.items():
                spent = [0.0] * case["threads"]
                list(pool.map(worker, range(case["threads"]), [part] * case["threads"]))
                best[name] = min(best[name], max(spent))
        H = np.eye(M) + 0.5
        solve = min(timed(scipy.linalg.cho_factor, H)[0] for _ in range(3))
    return {"slice": n, **{f"{name} s": s for name, s in best.items()}} | {
        "all s": sum(best.values()), "solve s": solve,
    }  # fmt: skip


def control(case: Row) -> Row:
    """Return what two processes of one thread get done in the time of one, times."""
    one = case | {"threads": 1}
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(machine, 2 * [one]))  # imports
        alone = pool.submit(machine, one).result()["all s"]
        both = max(row["all s"] for row in pool.map(machine, 2 * [one]))
    return {"two processes, times": 2 * alone / both}


def disk(case: Row) -> Row:
    """Read the file once past the page cache, where the system lets go of it, and decode it."""
    path, size = Path(case["path"]), 0
    with open(path, "rb", buffering=0) as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        while size < DISK_BYTES and (piece := file.read(2**23)):
            size += len(piece)
        seconds = time.perf_counter() - start
    source, decoded = opened(case), 0
    start = time.perf_counter()
    for batch in source.chunks():
        decoded += len(batch.rows)
        if decoded >= DECODED_ROWS:
            break
    decoding = time.perf_counter() - start
    return {
        "file GB": path.stat().st_size / 1e9, "read MB/s": size / seconds / 1e6,
        "decoded rows/s": decoded / decoding,
    }  # fmt: skip


def estimator(case: Row, **more: Any) -> Any:
    """Return the estimator of a case: as it comes, fast, or with its number of blocks."""
    given: Row = {"random_state": 0, "memory_limit": case["memory"]} | more
    if case["estimator"] == "fast":
        given["effort"] = "fast"
    elif case["estimator"] != "defaults":
        solver = BlockDescent(block_size=case["block"], tol=0.0, **case["solver"])
        given |= {
            "solver": solver, "max_iter": case["blocks"], "gamma": "median", "alpha": 1e-6,
            "early_stopping": False, "metric": None,
        }  # fmt: skip
    return (KernelClassifier if case.get("classes") else KernelRegressor)(**given)


def fitted(case: Row, model: Any, seconds: float) -> Row:
    """Return what a fit took and gave; loops are compiled off the clock."""
    error = None
    if not case.get("classes"):
        error = rmse(model.predict, case["function"], case["columns"])
    seconds -= model.history_["compile_seconds"]
    seen = model.history_["rows_seen"][-1]
    return {
        "fit s": seconds, "solver": model.history_["solver"], "status": model.fit_status_,
        "iterations": model.n_iter_, "rows seen / rows": seen / case["rows"],
        "ns per row and iteration": 1e9 * seconds / case["rows"] / max(1, model.n_iter_),
        "RMSE": error,
    }  # fmt: skip


def fit(case: Row) -> Row:
    """Fit from the file; memory is the peak above what imports had taken."""
    import pyarrow.parquet  # noqa: F401

    baseline = lowered_peak()
    model = estimator(case)
    seconds, _ = timed(lambda: model.fit(opened(case)))
    memory = (peak() - baseline) * MIB / 1e6
    return fitted(case, model, seconds) | {"peak MB": memory, "import MB": baseline * MIB / 1e6}


def pieces(case: Row, size: int) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of the file in pieces, in their order."""
    source = opened(case)
    for a in range(0, source.n_rows, size):
        batch = source.read(a, min(a + size, source.n_rows))
        yield batch.X, batch.y


def course(
    case: Row, size: int, learn: Callable[[Any, Any], Any], predict: Callable[[Any], Any]
) -> Iterator[Row]:
    """Learn the pieces in turn; yield seconds and error whenever the rows have doubled."""
    seconds, rows, told = 0.0, 0, 0
    for X, y in pieces(case, size):
        seconds += timed(learn, X, y)[0]
        rows += len(y)
        over = seconds >= case["seconds"]
        if rows >= 2 * told or over or rows == case["rows"]:
            told = rows
            error = rmse(predict, case["function"], case["columns"])
            yield {"rows seen": rows, "seconds": seconds, "RMSE": error}
        if over:
            return


def stream(case: Row) -> Iterator[Row]:
    """Follow doubly stochastic gradients by `partial_fit`, with and without a bound."""
    given = case["solver"] | ({"max_features": FEATURES} if case["bounded"] else {})
    model = KernelRegressor(solver=DSG(**given), random_state=0)
    yield from course(case, 2**17, model.partial_fit, model.predict)


def sgd(case: Row) -> Iterator[Row]:
    """Follow scikit-learn's SGD on its random features, the first step by some first rows."""
    X, y = next(pieces(case, SGD_ROWS))
    gamma = get_kernel("rbf", gamma="median").resolve(X, 0).gamma_value
    features = RBFSampler(gamma=gamma, n_components=SGD_FEATURES, random_state=0).fit(X)
    half = len(y) // 2
    tried = {}
    for step in SGD_STEPS:
        one = machine_of_sgd(step).partial_fit(features.transform(X[:half]), y[:half])
        tried[step] = float(
            np.mean((one.predict(features.transform(X[half:])) - y[half:]) ** 2)
        )
    model = machine_of_sgd(min(tried, key=lambda step: tried[step]))
    yield from course(
        case, SGD_ROWS,
        lambda X, y: model.partial_fit(features.transform(X), y),
        lambda X: model.predict(features.transform(X)),
    )  # fmt: skip


def machine_of_sgd(step: float) -> SGDRegressor:
    """Return the linear model with averaged iterates."""
    return SGDRegressor(alpha=1e-8, eta0=step, average=SGD_ROWS, random_state=0)


def digest(model: Any) -> str:
    _, arrays = model.expansion_.describe()
    hashed = hashlib.sha256()
    for name in ("rows", "coef", "intercept"):
        hashed.update(np.ascontiguousarray(arrays.get(name, 0)).tobytes())
    return hashed.hexdigest()[:16]


def kill(local: Any, pauses: Sequence[float]) -> None:
    """Kill one worker after each pause, in turn; its nanny starts another."""
    for i, pause in enumerate(pauses):
        time.sleep(pause)
        nanny = list(local.workers.values())[i % len(local.workers)]
        os.kill(nanny.pid, signal.SIGKILL)


class Messages(Callback):
    """Counts what a driver and its workers exchange while this context is open.

    Totals are calls, tasks, MB of arguments for every worker and MB of answers and of arguments
    of single shards, these in three parts: those of the size of a block and its sample, those
    of each bundle of shards, and those of each shard. All of these are pickled sizes; the last
    total is MB that all processes write to sockets.
    """

    def __init__(self) -> None:
        self.sent: dict[str, Any] = {}
        self.marks: list[Any] = []
        self.wire: Callable[[], int] = lambda: 0

    def on_iteration(self, event: Any) -> bool:
        self.marks.append(self.totals())
        return False

    def totals(self) -> Any:
        wire = np.array([0, 0, 0, 0, 0, 0, 1e-6 * self.wire()])
        return sum(self.sent.values(), wire)

    def per_block(self) -> Any:
        """Return the mean totals of a block, of all but the first."""
        return (self.marks[-1] - self.marks[0]) / max(1, len(self.marks) - 1)

    def __enter__(self) -> Messages:
        from kernelgrad.cluster.engine import DaskTeam

        self._ask = ask = DaskTeam.ask

        def counted(team: Any, method: str, *args: Any, **more: Any) -> Any:
            answers = ask(team, method, *args, **more)
            told = list(answers)
            if method in team._summed:  # what all but the first have stays with the workers
                told[1:] = [None if a is None else a[1:] for a in told[1:]]
            once, each = (1e-6 * len(pickle.dumps(x, protocol=5)) for x in (args, (more, told)))
            parts = each * np.eye(3)[OF_WHAT.get(method, 2)]
            summed, changed = method in team._summed, method in team._changes
            tasks = len(team._spans) * (1 + changed + 2 * summed)
            self.sent[method] = self.sent.get(method, 0) + np.array([1, tasks, once, *parts, 0])
            return answers

        DaskTeam.ask = counted  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        from kernelgrad.cluster.engine import DaskTeam

        DaskTeam.ask = self._ask  # type: ignore[method-assign]


def count_writes() -> None:
    """Count what this process writes to other processes of a cluster."""
    from distributed.comm.tcp import TCP

    write: Any = TCP.write

    async def counted(self: Any, *args: Any, **more: Any) -> Any:
        n = await write(self, *args, **more)
        TCP.written += n  # type: ignore[attr-defined]
        return n

    TCP.written, TCP.write = 0, counted  # type: ignore[attr-defined, method-assign]


def written() -> int:
    from distributed.comm.tcp import TCP

    return int(getattr(TCP, "written", 0))  # a worker that was started again does not count


def cluster(case: Row) -> Row:
    """Fit on workers of one thread, or here without any; count what would go by wire."""
    set_num_threads(1)
    if case["workers"] == 0:
        model = estimator(case)
        seconds, _ = timed(lambda: model.fit(opened(case)))
        return fitted(case, model, seconds) | {"digest": digest(model)}
    if "engine" not in inspect.signature(KernelRegressor).parameters:
        return {"skipped": "estimators have no engine="}
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        return {"skipped": "distributed is not installed"}
    from kernelgrad.cluster import engine as workers

    watch = Messages()
    count_writes()
    with (
        LocalCluster(
            n_workers=case["workers"], threads_per_worker=1, host="127.0.0.1",
            dashboard_address=None,
        ) as local,
        Client(local) as client,
    ):  # fmt: skip
        if "kills" not in case:
            client.run(count_writes)
            watch.wire = lambda: sum([written(), *client.run(written).values()])
        killer = threading.Thread(target=kill, args=(local, case.get("kills", [])), daemon=True)
        killer.start()
        model = estimator(case, engine=workers.DaskEngine(client), callbacks=[watch])
        with watch:
            cpu = time.process_time()
            seconds, _ = timed(lambda: model.fit(opened(case)))
            cpu = time.process_time() - cpu
        whole = watch.totals()
    calls, tasks, to_worker, of_block, of_bundles, of_shards, wire = watch.per_block()
    n = case["workers"]
    return fitted(case, model, seconds) | {
        "digest": digest(model), "outputs": model.expansion_.n_outputs, "driver CPU s": cpu,
        "calls per block": calls, "tasks per block": tasks, "MB to a worker": to_worker,
        "MB of a block": of_block, "MB of bundles": of_bundles, "MB of shards": of_shards,
        "MB per block": n * to_worker + of_block + of_bundles + of_shards,
        "wire MB per block": wire, "MB of the fit": n * whole[2] + sum(whole[3:6]),
    }  # fmt: skip


def checkpoint(case: Row) -> Row:
    """Fit with and without checkpoints in turn; the overhead is what they say that they took.

    The difference of two long fits is no smaller than the noise of either.
    """
    seconds: dict[bool, list[float]] = {False: [], True: []}
    source = opened(case)
    for _ in range(case["repeat"]):
        for saves in seconds:
            with tempfile.TemporaryDirectory(dir=case["scratch"]) as folder:
                saver = Checkpoint(folder, every=case["every"])
                model = estimator(case, callbacks=[saver] if saves else [])
                seconds[saves].append(timed(model.fit, source)[0])
    return {
        "every": case["every"], "fit s": min(seconds[False]),
        "with checkpoints s": min(seconds[True]), "written": saver.n_written,
        "writing s": saver.seconds, "overhead": saver.seconds / min(seconds[False]),
    }  # fmt: skip


KINDS: dict[str, Callable[[Row], Any]] = {
    "machine": machine, "disk": disk, "fit": fit, "stream": stream, "sgd": sgd,
    "dask": cluster, "checkpoint": checkpoint, "control": control,
}  # fmt: skip


def main(case: Row) -> Iterator[Row]:
    set_num_threads(case["threads"])
    load = {"load": (load_average() or [None])[0]}
    found = KINDS[case["kind"]](case)
    for row in [found] if isinstance(found, dict) else found:
        yield row | load


if __name__ == "__main__":
    serve(main)
