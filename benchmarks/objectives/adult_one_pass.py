"""Adult with the hinge loss in one pass, the setting of the DSG paper's Figure 6 (1)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from benchmarks.datasets.archives import A9a
from benchmarks.objectives._shared import timed
from benchmarks.registry import Objective, Row
from kernelgrad import DSG, KernelClassifier

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "batch 512, block 128, damping 10": {
        "batch_size": 512,
        "block_size": 128,
        "damping": 10.0,
    },
    "paper: batch 64, block 32, plain": {
        "batch_size": 64,
        "block_size": 32,
        "preconditioned": False,
    },
}


class AdultOnePass(Objective):
    """Test error after one pass; the paper reports 15.3 % (alpha = 1 / (100 n))."""

    name: ClassVar[str] = "adult_one_pass"

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Fit every setting once for each seed."""
        data = A9a().load()
        X, y = data.X_train, data.y_train
        if args.quick:
            X, y = X[:2000], y[:2000]
        n = X.shape[0]
        for name, params in SETTINGS.items():
            solver = DSG(**params)
            batch = solver.resolve_batch_size(n)
            errors, seconds = [], []
            for seed in range(args.repeat):
                model = KernelClassifier(
                    "hinge",
                    alpha=1 / (100 * n),
                    solver=solver,
                    max_iter=max(1, n // batch),
                    random_state=seed,
                )
                seconds.append(timed(model.fit, X, y)[0])
                errors.append(1 - model.score(data.X_test, data.y_test))
            yield (
                "one pass over Adult",
                {
                    "setting": name,
                    "iterations": model.n_iter_,
                    "test error": float(np.median(errors)),
                    "min": min(errors),
                    "max": max(errors),
                    "fit s": float(np.median(seconds)),
                },
            )
