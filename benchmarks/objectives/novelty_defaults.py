"""Defaults of novelty detectors: each class of a set in turn is the ordinary one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from benchmarks.datasets.archives import A9a, CodRna, Covtype20k, Ijcnn1, Mnist
from benchmarks.objectives._shared import timed
from benchmarks.registry import Objective, Row, SkipError
from kernelgrad import KernelNoveltyDetector

BUNDLED = {
    "digits": load_digits, "wine": load_wine, "breast_cancer": load_breast_cancer,
    "iris": load_iris,
}  # fmt: skip
ARCHIVES = {each.name: each for each in (CodRna, Ijcnn1, Covtype20k, A9a, Mnist)}
ROWS, CLASSES = 3000, 3


def methods() -> dict[str, Any]:
    """Return ours with its defaults and with other ones, and the peers with theirs."""
    ours = {"random_state": 0}
    return {
        "ours": KernelNoveltyDetector(**ours),
        "ours, columns as they are": KernelNoveltyDetector(standardize=False, **ours),
        "ours, gamma='median'": KernelNoveltyDetector(gamma="median", **ours),
        "ours, gamma='scale'": KernelNoveltyDetector(gamma="scale", **ours),
        "ours, both": KernelNoveltyDetector(standardize=False, gamma="median", **ours),
        "ours, dsg": KernelNoveltyDetector(solver="dsg", **ours),
        "OneClassSVM": OneClassSVM(),
        "scaled OneClassSVM": make_pipeline(StandardScaler(), OneClassSVM()),
        "IsolationForest": IsolationForest(random_state=0),
        "scaled LocalOutlierFactor": make_pipeline(
            StandardScaler(), LocalOutlierFactor(novelty=True)
        ),
    }


def rows_of(name: str) -> tuple[Any, Any]:
    """Return dense rows and labels of a set, as they are."""
    if name in BUNDLED:
        X, y = BUNDLED[name](return_X_y=True)
        return X, y
    data = ARCHIVES[name]().load()
    X = data.X_train.toarray() if sp.issparse(data.X_train) else data.X_train
    return np.asarray(X), np.ravel(data.y_train)


class NoveltyDefaults(Objective):
    """Area under the ROC curve and seconds, means over up to three classes of a set.

    Two thirds of at most 3,000 rows of a class are learned; the others, and as many rows of
    the other classes as the class has, are told apart.
    """

    name: ClassVar[str] = "novelty_defaults"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add a choice of sets."""
        names = [*BUNDLED, *ARCHIVES]
        parser.add_argument("--set", nargs="+", choices=names, default=names)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Yield a row for each set and method."""
        for name in ["wine"] if args.quick else args.set:
            try:
                X, y = rows_of(name)
            except SkipError as reason:
                yield "novelty", {"set": name, "note": str(reason)}
                continue
            for method, model in methods().items():
                found = [measure(model, X, y == c) for c in np.unique(y)[:CLASSES]]
                area, seconds = np.mean(found, axis=0)
                yield (
                    "novelty",
                    {"set": name, "method": method, "AUROC": area, "fit s": seconds},
                )


def measure(model: Any, X: Any, ordinary: Any) -> tuple[float, float]:
    """Return the area under the ROC curve and the seconds of a fit."""
    rng = np.random.default_rng(0)
    inside = rng.permutation(np.flatnonzero(ordinary))[:ROWS]
    outside = rng.permutation(np.flatnonzero(~ordinary))[: len(inside)]
    known = len(inside) * 2 // 3
    seconds, _ = timed(model.fit, X[inside[:known]])
    new = np.concatenate([inside[known:], outside])
    return roc_auc_score(ordinary[new], model.score_samples(X[new])), seconds
