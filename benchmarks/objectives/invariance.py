"""Whether results depend on what they must not depend on."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

import kernelgrad
from benchmarks.registry import Objective, Row
from kernelgrad import DSG, KernelClassifier, KernelRegressor, set_num_threads
from kernelgrad.data import ArraySource, open_source, sample_batches

ESTIMATOR_MODULE = "kernelgrad.training_rows"


def compare(problem: str, check: str, variant: str, reference: Any, other: Any) -> Row:
    """Return one row: equal in every bit, and the largest difference."""
    return {
        "problem": problem,
        "check": check,
        "variant": variant,
        "bitwise equal": reference.tobytes() == other.tobytes(),
        "max abs difference": float(np.max(np.abs(reference - other))),
        "max abs value": float(np.max(np.abs(reference))),
    }


class Case:
    """A training set and the estimator to fit on it."""

    def __init__(self, name: str, cls: Any, X: Any, y: Any, batch: int, max_iter: int) -> None:
        self.name, self.cls, self.X, self.y = name, cls, X, y
        self.batch, self.max_iter = batch, max_iter
        self.limits: dict[str, Any] = {}

    def model(self, **params: Any) -> Any:
        """Return a new estimator with a fixed seed."""
        solver = DSG(batch_size=self.batch, block_size=self.batch // 8)
        given = {"solver": solver, "max_iter": self.max_iter, "random_state": 0} | params
        return self.cls(**given)

    def response(self, model: Any) -> Any:
        """Return raw predictions on the training rows, (n, C)."""
        return model.expansion_.raw_prediction(self.X)

    def batches(self, model: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the batches that `fit` of this fitted model has seen."""
        seed = model.expansion_.stream.seed
        sampled = sample_batches(ArraySource(self.X, self.y), self.batch, seed=seed)
        for _ in range(self.max_iter):
            batch = next(sampled).batch
            yield batch.X, batch.y


def make_cases(n: int, batch: int, max_iter: int) -> list[Case]:
    """Return a dense regression and a sparse three-class problem."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n, 8)).astype(np.float32)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    S = sp.random(n, 300, density=0.03, format="csr", dtype=np.float32, random_state=0)
    scores = S @ random.standard_normal((300, 3))
    return [
        Case("dense regression", KernelRegressor, X, y, batch, max_iter),
        Case("sparse, 3 classes", KernelClassifier, S, scores.argmax(1), batch, max_iter),
    ]


class Invariance(Objective):
    """Bitwise equality of predictions over threads, chunks, budgets and interruptions."""

    name: ClassVar[str] = "invariance"

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Compare everything with one fit on the defaults; repeats would change nothing."""
        n, batch, max_iter = (2000, 512, 4) if args.quick else (50_000, 2048, 30)
        cases = make_cases(n, batch, max_iter)
        for case in cases:
            reference = case.model().fit(case.X, case.y)
            expected = case.response(reference)
            row = partial(compare, case.name)
            for checks in (self.threads, self.predict_chunks, self.budgets, self.resumed):
                for check, variant, other in checks(case, reference):
                    yield "invariance", row(check, variant, expected, other)
        yield from self.files(cases[0])

    def threads(self, case: Case, reference: Any) -> Iterator[tuple[str, str, Any]]:
        """Fit and predict on one and on two threads."""
        for count in (1, 2):
            set_num_threads(count)
            try:
                response = case.response(case.model().fit(case.X, case.y))
            finally:
                set_num_threads(None)
            default = kernelgrad.get_num_threads()
            yield "threads", f"{count} against the default {default}", response

    def predict_chunks(self, case: Case, reference: Any) -> Iterator[tuple[str, str, Any]]:
        """Predict in pieces."""
        n = case.X.shape[0]
        for rows in (8192, 1000, 777):
            parts = [
                reference.expansion_.raw_prediction(case.X[a : a + rows])
                for a in range(0, n, rows)
            ]
            yield "predict chunks", f"{rows} rows", np.concatenate(parts)

    def budgets(self, case: Case, reference: Any) -> Iterator[tuple[str, str, Any]]:
        """Keep none, some or all of the frequencies between predictions."""
        for limit in (0, 2**18, 2**30):
            model = case.model(memory_limit=limit).fit(case.X, case.y)
            yield "memory_limit", f"{limit} bytes against the default", case.response(model)

    def resumed(self, case: Case, reference: Any) -> Iterator[tuple[str, str, Any]]:
        """Feed the same batches one by one, save and load in the middle, and warm-start."""
        half = case.max_iter // 2
        first = {} if case.cls is KernelRegressor else {"classes": np.unique(case.y)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.kg"
            for save in (False, True):
                model = case.model()
                for i, (X, y) in enumerate(case.batches(reference)):
                    if save and i == half:
                        model.save(path, resumable=True)
                        model = kernelgrad.load(path)
                    model.partial_fit(X, y, **first)
                name = "partial_fit, saved and loaded" if save else "partial_fit"
                yield name, "same batches as fit", case.response(model)
            model = case.model(max_iter=half, warm_start=True).fit(case.X, case.y)
            model.save(path, resumable=True)
            model = kernelgrad.load(path).set_params(max_iter=case.max_iter - half)
            model.fit(case.X, case.y)
            yield "warm start, saved and loaded", "half the steps twice", case.response(model)

    def files(self, case: Case) -> Iterator[tuple[str, Row]]:
        """Fit from files read in pieces of several sizes."""
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            print("Parquet left out: pyarrow is not installed", flush=True)
            pq = None
        columns = {f"x{k}": case.X[:, k] for k in range(case.X.shape[1])} | {"y": case.y}
        with tempfile.TemporaryDirectory() as folder:
            csv = Path(folder) / "rows.csv"
            table = np.column_stack(list(columns.values()))
            np.savetxt(
                csv, table, delimiter=",", header=",".join(columns), comments="", fmt="%.9g"
            )
            paths = [csv]
            if pq is not None:
                paths.append(Path(folder) / "rows.parquet")
                pq.write_table(pa.table(columns), paths[-1], row_group_size=len(case.y) // 4)
            for path in paths:
                responses = {}
                for rows in (65536, 1000, 97):
                    sampler = partial(sample_batches, chunk_rows=rows)
                    with patch(f"{ESTIMATOR_MODULE}.sample_batches", sampler):
                        model = case.model().fit(open_source(path, target="y"))
                    responses[rows] = case.response(model)
                for rows in (1000, 97):
                    variant = f"{rows} against 65536 rows"
                    check = f"{path.suffix[1:]} chunk_rows"
                    expected, other = responses[65536], responses[rows]
                    yield "invariance", compare(case.name, check, variant, expected, other)
