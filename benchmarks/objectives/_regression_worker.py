"""Times fits of one tree: names of cases on standard input, seconds as JSON on standard output.

Started by `regression` with the tree's source on ``PYTHONPATH``; it takes nothing from this
package, so that an older tree runs the same code.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

import kernelgrad as kg
from kernelgrad.kernels import KERNELS
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS

PREDICTIONS = 3
FEW_LABELS = ("tsg", "fr_s3vm", "bgs3vm", "cccp_s3vm", "s3vm_light", "soft_labels")
NO_REGRESSION = ("sbp", "perceptron", "simba", "pegasos")
LOSSES = {"direct": "squared", "perceptron": "perceptron", "simba": "hinge"}
# the same work in a tree whose defaults search
PLAIN = {
    "kernel": "gaussian", "gamma": "median", "metric": None, "standardize": False,
    "probability": False,
}  # fmt: skip
NEED_OBJECTS = ("sum", "product", "dot_product", "convolutional", "precomputed")


def cases(n: int) -> dict[str, tuple[Callable[[], Any], Any, Any]]:
    """Return (make, X, y) by name; n is the number of rows of fits with kernels."""
    rng = np.random.default_rng(0)
    X = rng.random((10 * n, 20)).astype(np.float32) + 0.05
    y = np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * rng.standard_normal(len(X))
    label = (y > np.median(y)).astype(int)
    marked = np.where(np.arange(n) < n // 10, label[:n], -1)
    sparse = sp.csr_matrix(np.where(rng.random(X.shape) < 0.2, X, 0))
    found: dict[str, tuple[Callable[[], Any], Any, Any]] = {}

    def add(name: str, cls: Any, X: Any, y: Any, *args: Any, **options: Any) -> None:
        known = cls().get_params()
        options = {k: v for k, v in PLAIN.items() if k in known} | {"random_state": 0} | options
        found[name] = (lambda: cls(*args, **options), X, y)

    options: dict[str, Any] = {"max_iter": 10, "alpha": 1e-3}
    for name in SOLVERS:
        if name in FEW_LABELS:
            cls = kg.SemiSupervisedKernelClassifier
            add(f"few labels/{name}", cls, X[:n], marked, solver=name, max_iter=10)
            continue
        loss = LOSSES.get(name, "hinge")
        kernel = {"solver": name} | options
        add(f"kernel/{name}/{loss}", kg.KernelClassifier, X[:n], label[:n], loss, **kernel)
        if name not in NO_REGRESSION:
            add(f"kernel/{name}/huber", kg.KernelRegressor, X[:n], y[:n], **kernel)
    for name in KERNELS:
        if name not in NEED_OBJECTS:
            for solver in ("dsg", "cached"):
                add(
                    f"kernel {name}/{solver}", kg.KernelClassifier, X[:n], label[:n],
                    kernel=name, solver=solver, max_iter=6, alpha=1e-6,
                )  # fmt: skip
    for name in LINEAR_SOLVERS:
        for rows, A in (("dense", X), ("csr", sparse)):
            loss = LOSSES.get(name, "logistic")
            linear = {"solver": name} | options
            add(f"linear/{name}/{rows}", kg.LinearClassifier, A, label, loss, **linear)
    add("novelty", kg.KernelNoveltyDetector, X[:n], None, max_iter=10)
    add("density ratio", kg.KernelDensityRatio, X[:n], label[:n], max_iter=10)
    add("gaussian process", kg.KernelGaussianProcessRegressor, X[:n], y[:n], max_iter=10)
    add("random features", kg.RandomFeatures, X, None)
    return found


def measure(make: Callable[[], Any], X: Any, y: Any) -> dict[str, float]:
    """Return the seconds of a fit, and the least of some predictions."""
    model = make()
    start = time.perf_counter()
    model.fit(X, y)
    seconds = {"fit": time.perf_counter() - start, "predict": np.inf}
    predict = model.predict if hasattr(model, "predict") else model.transform
    for _ in range(PREDICTIONS):
        start = time.perf_counter()
        predict(X)
        seconds["predict"] = min(seconds["predict"], time.perf_counter() - start)
    return seconds


def main(n: int) -> None:
    """Answer with the names of all cases, then with the seconds of each that is asked for."""
    warnings.simplefilter("ignore")
    known = cases(n)
    print(json.dumps({"from": kg.__file__, "cases": list(known)}), flush=True)
    for line in sys.stdin:
        try:
            answer = measure(*known[line.strip()])
        except (ValueError, TypeError, FloatingPointError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
