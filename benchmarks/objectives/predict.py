"""Seconds of predictions: many rows beside a support vector machine, and one row."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import ClassVar

import numpy as np

from benchmarks.objectives._shared import in_turns
from benchmarks.registry import Objective, Row
from kernelgrad import KernelClassifier
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.kernels import Gaussian

ONE_ROW = {"block_descent": (2000, 30, 3), "dsg": (2000, 30, 8)}  # rows, columns, iterations


class Predict(Objective):
    """Values of all outputs for many rows, and the methods of estimators for one.

    The rows are Gaussian. The support vector machine, of scikit-learn-intelex where that is
    installed, learns random labels with a small C, so that nearly all of its rows are support
    vectors: two classes beside one output, and as many classes, in pairs, as outputs.
    """

    name: ClassVar[str] = "predict"
    repeat: ClassVar[int] = 5

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, default=100_000)
        parser.add_argument("--support", type=int, nargs="+", default=[500, 3000, 10_000])
        parser.add_argument("--columns", type=int, nargs="+", default=[10, 50, 300])
        parser.add_argument("--outputs", type=int, nargs="+", default=[1, 10])

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        rng = np.random.default_rng(0)
        n = 2000 if args.quick else args.rows
        supports = [200] if args.quick else args.support
        svm = import_module("sklearnex.svm" if find_spec("sklearnex") else "sklearn.svm").SVC
        for S, d, C in itertools.product(supports, args.columns, args.outputs):
            X, rows = rng.standard_normal((S, d)), rng.standard_normal((n, d))
            exact = ExactKernel(Gaussian(0.5 / d), d)
            coef = rng.standard_normal((S, C))
            ours = SupportExpansion(exact, exact.prepare(X), coef, np.zeros(C))
            machine = svm(gamma=0.5 / d, C=0.1).fit(X, rng.integers(0, max(2, C), S))
            calls = {
                "kernelgrad s": partial(ours.raw_prediction, rows),
                "SVC s": partial(machine.predict, rows),
            }
            seconds = {k: median(t) for k, t in in_turns(calls, args.repeat).items()}
            size = {"support": S, "support of SVC": len(machine.support_)}
            ratio = seconds["kernelgrad s"] / seconds["SVC s"]
            shape = {"rows": n, "columns": d, "outputs": C}
            yield "many rows", shape | size | seconds | {"ratio": ratio}
        for solver, (S, d, max_iter) in ONE_ROW.items():
            X, y = rng.standard_normal((S, d)), rng.integers(0, 2, S)
            model = KernelClassifier(solver=solver, max_iter=max_iter, random_state=0).fit(X, y)
            calls = {
                "predict ms": partial(model.predict, X[:1]),
                "f alone ms": partial(model.expansion_.raw_prediction, X[:1]),
            }
            times = in_turns(calls, 20 * args.repeat)
            size = {"support": model.n_support_, "features": model.n_random_features_}
            told = {name: 1e3 * median(seconds) for name, seconds in times.items()}
            yield "one row", {"solver": solver, "columns": d} | size | told
