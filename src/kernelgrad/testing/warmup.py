"""Small fits that pass through the loops of the library, for their compilation and tests."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.validation import has_fit_parameter

from kernelgrad.compute.compiling import watch
from kernelgrad.estimators.classifier import KernelClassifier
from kernelgrad.estimators.files import ESTIMATORS
from kernelgrad.estimators.regressor import KernelRegressor
from kernelgrad.estimators.semi_supervised import SemiSupervisedKernelClassifier
from kernelgrad.kernels import KERNELS
from kernelgrad.linear import LinearClassifier, LinearRegressor
from kernelgrad.losses import LOSSES
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS, Solver
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import check_name

METHODS = ("predict", "decision_function", "predict_proba", "score_samples", "transform")
_FEW, _MANY, _COLUMNS = 200, 2500, 6  # up to 2,048 rows a block holds all rows
# options of block descent, which defaults take for large kernel matrices; nothing to search
_BLOCKS: dict[str, Any] = {"max_iter": 3, "memory_limit": 8e6, "gamma": 0.5, "alpha": 1e-6}


def small_fits(
    solver: Solver[Any] | str, target: Float64Array, *, linear: bool
) -> Iterator[tuple[Any, AnyArray]]:
    """Yield (estimator, y) for each loss and each estimator of a family of functions."""
    labels = (target > 0).astype(np.int64)
    marked = np.where(np.arange(len(labels)) % 3 == 0, labels, -1)
    options: dict[str, Any] = {"solver": solver, "max_iter": 3, "random_state": 0}
    penalty: dict[str, Any] = {}
    if not linear:  # nothing to search
        options["gamma"], penalty["alpha"] = 0.5, 1e-6
    classifier = LinearClassifier if linear else KernelClassifier
    regressor = LinearRegressor if linear else KernelRegressor
    for name, cls in sorted(LOSSES.items()):
        if "classification" in cls.tasks:
            yield classifier(name, **options, **penalty), labels
            if not linear:
                yield SemiSupervisedKernelClassifier(name, **options), marked
        if "regression" in cls.tasks:
            yield regressor(name, **options, **penalty), target


def default_fits(
    signal: Float64Array, classes: Iterable[Any] | None = None, **options: Any
) -> Iterator[tuple[Any, AnyArray]]:
    """Yield (estimator, y) for each estimator, or those of `classes`, with its defaults."""
    for cls in ESTIMATORS.values() if classes is None else classes:
        estimator = cls(random_state=0, **options)
        if is_regressor(estimator):
            yield estimator, signal
            continue
        for n_classes in (2, 3) if is_classifier(estimator) else (2,):
            cuts = np.quantile(signal, np.arange(1, n_classes) / n_classes)
            y = np.digitize(signal, cuts)
            if has_fit_parameter(estimator, "X_unlabelled"):
                y[np.arange(len(y)) % 3 > 0] = -1
            yield estimator, y


class WarmUp(NamedTuple):
    """Number of loops compiled, 0 if all were cached, and the seconds that it took."""

    loops: int
    seconds: float


def _cases(names: Iterable[str]) -> Iterator[tuple[str, Any, Matrix, AnyArray]]:
    """Yield (what, estimator, X, y) for the defaults, solvers and kernels that are named."""
    rng = np.random.default_rng(0)
    X = 2.0 * rng.random((_MANY, _COLUMNS))
    X[rng.random(X.shape) < 0.3] = 0.0
    signal = np.sin(3.0 * X[:, 0]) + X[:, 1] - X[:, 2] + 0.3 * rng.standard_normal(_MANY)
    few = signal[:_FEW] - np.median(signal[:_FEW])
    for name in names:
        fits: list[tuple[Any, AnyArray]] = []
        if name == "auto":
            fits += default_fits(few)
            fits += default_fits(signal, (KernelClassifier, KernelRegressor), **_BLOCKS)
        for linear, solvers in ((False, SOLVERS), (True, LINEAR_SOLVERS)):
            if name in solvers:
                fits += small_fits(name, few, linear=linear)
        if name in KERNELS:  # exact values, and random features
            for solver in ("auto", "dsg"):
                fits.append((KernelRegressor(kernel=name, solver=solver, max_iter=3), few))
        for estimator, y in fits:
            what = f"{type(estimator).__name__}({name})"
            own_precision = not hasattr(estimator, "kernel")
            for dtype in (np.float64, np.float32) if own_precision else (np.float64,):
                rows = X[: len(y)].astype(dtype)
                yield what, estimator, rows, y
                yield what, estimator, sp.csr_matrix(rows), y


def warmup(names: Iterable[str] | None = None, *, progress: bool = False) -> WarmUp:
    """Compile the loops of the library, once for this machine, and keep them on disk.

    A first fit then takes no seconds longer than later ones, in any process that finds the same
    cache. The loops are those that small fits and predictions pass through: of every estimator
    as it is by default, of every solver with every loss that it takes, and of every kernel, on
    dense and on sparse rows. Returns their number and the seconds.

    Parameters
    ----------
    names : iterable of str or None
        Names of solvers and kernels; "auto" are the defaults of all estimators. None is all
        of them, also those that were registered.
    progress : bool, default=False
        Draw a progress bar on stderr.
    """
    wanted: Iterable[str] = dict.fromkeys(("auto", *SOLVERS, *LINEAR_SOLVERS, *KERNELS))
    if names is not None:
        wanted = [check_name(name, wanted, "solver or kernel") for name in names]
    from tqdm import tqdm

    loops, start = watch.loops, time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits end early
        bar = tqdm(list(_cases(wanted)), "Compiling", disable=not progress, dynamic_ncols=True)
        for what, estimator, X, y in bar:
            bar.set_postfix_str(what)
            with suppress(ValueError):  # a solver that does not take this loss or these rows
                estimator.fit(X, y)
                for method in (*METHODS, "explain"):
                    if hasattr(estimator, method):
                        getattr(estimator, method)(X[:20])
    return WarmUp(watch.loops - loops, time.perf_counter() - start)
