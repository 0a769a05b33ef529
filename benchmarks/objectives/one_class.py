"""Novelty detection beside scikit-learn's one-class support vector machines."""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDOneClassSVM
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import OneClassSVM
from threadpoolctl import threadpool_limits

from benchmarks.datasets.archives import standardised
from benchmarks.objectives._shared import available, middle_row, timed
from benchmarks.objectives.time_to_error import DATASETS, bandwidths, choose_rows
from benchmarks.registry import Objective, Row, SkipError
from kernelgrad import KernelNoveltyDetector, get_num_threads, set_num_threads

# labels of the ordinary rows
ORDINARY = {"ijcnn1": -1, "cod_rna": -1, "mnist": 0, "digits": 0}
COMPONENTS = 1000
EXACT, OURS, NYSTROEM = "OneClassSVM", "kernelgrad", "Nystroem + SGDOneClassSVM"
METHODS = (OURS, EXACT, NYSTROEM)


@contextmanager
def one_thread() -> Iterator[None]:
    """Give every method one thread.

    OneClassSVM has no more, and OpenBLAS's threads wait for each other a hundred times longer
    than they work when another process takes a processor.
    """
    before = get_num_threads()
    set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        set_num_threads(before)


@dataclass
class Sample:
    """Training rows, ordinary and novel test rows; columns standardised by the first."""

    train: Any
    ordinary: Any
    novel: Any
    gamma: float


def load_sample(name: str, contamination: float, factor: float, rows: int | None) -> Sample:
    """Return ordinary training rows, mixed with a small share of novel ones."""
    data = DATASETS[name].load()
    ordinary = data.X_train[data.y_train == ORDINARY[name]]
    novel = data.X_train[data.y_train != ORDINARY[name]]
    ordinary = ordinary[choose_rows(len(ordinary), rows, seed=0)]
    novel = novel[choose_rows(len(novel), round(contamination * len(ordinary)), seed=0)]
    train = np.concatenate([ordinary, novel])
    train = train[choose_rows(len(train), None, seed=0)]
    parts = [train] + [
        X[choose_rows(len(X), 5000 if rows is None else rows, seed=0)]
        for X in (
            data.X_test[data.y_test == ORDINARY[name]],
            data.X_test[data.y_test != ORDINARY[name]],
        )
    ]
    if name != "mnist":  # pixels share one unit
        parts = [X.astype(np.float32) for X in standardised(*parts)]
    gamma = bandwidths(parts[0])[1.0] / factor**2
    return Sample(*parts, gamma)


def build(method: str, rows: int, nu: float, gamma: float, max_iter: int, seed: int) -> Any:
    """Return an estimator for so many rows; all have the same nu and kernel."""
    if method == OURS:
        return KernelNoveltyDetector(nu, gamma=gamma, max_iter=max_iter, random_state=seed)
    if method == EXACT:
        return OneClassSVM(nu=nu, gamma=gamma, cache_size=1000)
    return make_pipeline(
        Nystroem(gamma=gamma, n_components=min(COMPONENTS, rows), random_state=seed),
        SGDOneClassSVM(nu=nu, random_state=seed),
    )


def warm_up(method: str, X: Any, gamma: float) -> None:
    """Compile what there is to compile."""
    build(method, 100, 0.5, gamma, 2, 0).fit(X[:100])


def measure(
    method: str, nu: float, sample: Sample, most: int | None, max_iter: int, seed: int
) -> Row:
    """Fit on at most `most` rows and test once."""
    train = sample.train[choose_rows(len(sample.train), most, seed)] if most else sample.train
    model = build(method, len(train), nu, sample.gamma, max_iter, seed)
    fit_s, _ = timed(model.fit, train)
    predict_s, ordinary = timed(model.decision_function, sample.ordinary)
    ordinary, novel = np.ravel(ordinary), np.ravel(model.decision_function(sample.novel))
    truth = np.repeat([1, 0], [len(ordinary), len(novel)])
    some = train[choose_rows(len(train), 10_000, seed)]  # novel rows come last
    return {
        "train outliers": float(np.mean(np.ravel(model.decision_function(some)) < 0)),
        "test outliers": float(np.mean(ordinary < 0)),
        "AUROC": float(roc_auc_score(truth, np.concatenate([ordinary, novel]))),
        "fit s": fit_s,
        "predict s": predict_s,
        "rows": len(train),
    }


def many_rows(name: str, rows: int) -> Any:
    """Return `rows` standardised ordinary rows out of training and test part, repeated."""
    data = DATASETS[name].load()
    parts = ((data.X_train, data.y_train), (data.X_test, data.y_test))
    X = np.concatenate([X[y == ORDINARY[name]] for X, y in parts])
    return standardised(np.resize(X, (rows, X.shape[1])))[0].astype(np.float32)


def timed_case(
    connection: Any, method: str, name: str, rows: int, nu: float, max_iter: int, factor: float
) -> None:
    """Report the seconds of one fit and the share of outliers; runs in a process of its own."""
    X = many_rows(name, rows)
    gamma = bandwidths(X[choose_rows(rows, 10_000, seed=0)])[1.0] / factor**2
    warm_up(method, X, gamma)
    connection.send(None)
    with one_thread():
        seconds, model = timed(build(method, rows, nu, gamma, max_iter, 0).fit, X)
    few = choose_rows(rows, 10_000, seed=1)
    connection.send((seconds, float(np.mean(np.ravel(model.decision_function(X[few])) < 0))))


def limited(limit: float, case: Any, *args: Any) -> Any:
    """Return what `case` reports from a process of its own, or None after `limit` seconds.

    ``case(connection, *args)`` sends None when all is ready, and later its result.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=case, args=(sender, *args))
    process.start()
    sender.close()  # a process that dies ends the wait
    try:
        receiver.recv()
        return receiver.recv() if receiver.poll(limit) else None
    finally:
        process.terminate()
        process.join()
        receiver.close()


class OneClass(Objective):
    """Share of outliers, area under the ROC curve and seconds at the same nu and kernel.

    One class of a real set is ordinary, all others are novel; one training row in a hundred
    is novel too, unlabelled. scikit-learn's OneClassSVM solves the same problem exactly, with
    time and memory that grow faster than the rows, so it gets a part of them where that
    would take minutes; Nystroem + SGDOneClassSVM is scikit-learn's own way to many rows. The
    second table times one fit of many rows, each in a process of its own that is ended at
    the time limit.
    """

    name: ClassVar[str] = "one_class"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets and sizes."""
        sets = list(ORDINARY)
        parser.add_argument("--dataset", nargs="+", choices=sets, default=sets[:3])
        parser.add_argument("--nu", type=float, nargs="+", default=[0.05, 0.1, 0.2])
        parser.add_argument("--max-iter", type=int, default=100, help="kernelgrad's steps")
        parser.add_argument("--factor", type=float, default=1.0, help="of the bandwidth")
        parser.add_argument("--contamination", type=float, default=0.01)
        parser.add_argument("--exact-rows", type=int, default=20_000, help="of OneClassSVM")
        parser.add_argument("--many-rows", type=int, default=100_000, help="0: no second table")
        parser.add_argument("--many-nu", type=float, nargs="+", default=[0.1])
        parser.add_argument("--many-from", choices=sets, default="ijcnn1")
        parser.add_argument("--limit", type=float, default=300.0, help="seconds for one fit")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the methods in turn in every repeat."""
        max_iter = 10 if args.quick else args.max_iter
        nus = args.nu[:1] if args.quick else args.nu

        def sampled(name: str) -> Sample:
            rows = 300 if args.quick else None
            return load_sample(name, args.contamination, args.factor, rows)

        for name, sample in available(args.dataset, sampled):
            for method in METHODS:
                warm_up(method, sample.train, sample.gamma)
            for nu in nus:
                results: dict[str, list[Row]] = {method: [] for method in METHODS}
                total = len(sample.train)
                for seed in range(args.repeat):
                    for method, into in results.items():
                        less = method == EXACT and args.exact_rows < total
                        most = args.exact_rows if less else None
                        with one_thread():
                            into.append(measure(method, nu, sample, most, max_iter, seed))
                for method, measured in results.items():
                    row = {"dataset": name, "nu": nu, "method": method} | middle_row(measured)
                    rows = row["rows"]
                    part = f"{rows:,} of {total:,} rows" if rows < total else ""
                    yield "one class", row | {"gamma": sample.gamma, "notes": part}
        yield from self._many(args, max_iter)

    def _many(self, args: argparse.Namespace, max_iter: int) -> Iterator[tuple[str, Row]]:
        rows = min(args.many_rows, 600) if args.quick else args.many_rows
        name = args.dataset[0] if args.quick else args.many_from
        if not rows:
            return
        try:
            DATASETS[name].load()
        except SkipError as reason:
            print(f"many rows skipped: {reason}", flush=True)
            return
        for nu in args.many_nu:
            found: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
            late: set[str] = set()
            for _ in range(args.repeat):
                for method in METHODS:
                    if method in late:  # it would take as long again
                        continue
                    case = (method, name, rows, nu, max_iter, args.factor)
                    result = limited(args.limit, timed_case, *case)
                    if result is None:
                        late.add(method)
                    else:
                        found[method].append(result)
            for method, results in found.items():
                row: Row = {"data": name, "rows": rows, "nu": nu, "method": method}
                if method in late:
                    row |= {"fit s": None, "notes": f"over {args.limit:g} s"}
                else:
                    seconds, outliers = zip(*results, strict=True)
                    row |= {"fit s": median(seconds), "outliers": median(outliers)}
                yield "many rows", row
