"""What the objectives about support vector machines share; one case a process when run."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations, pairwise
from statistics import median
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from benchmarks.objectives._shared import MIB, middle_row, serve, timed, timed_peak
from benchmarks.objectives.time_to_error import DATASETS, choose_rows
from kernelgrad import KernelClassifier, set_num_threads
from kernelgrad.solvers import SDCA, StochasticBatchPerceptron

Point = dict[str, Any]

# gamma and C; of ijcnn1 and MNIST within 0.02 points of the best of a grid on held-out rows
SETTINGS = {
    "a9a": (1 / 20, 1.0),
    "ijcnn1": (0.1, 16.0),
    "mnist8": (1 / 50, 5.0),
    "mnist": (1 / 50, 5.0),
    "digits8": (1 / 50, 1.0),
    "digits": (1 / 50, 5.0),
}
SETS = list(SETTINGS)
LIBSVM, INTELEX = "SVC", "SVC (intelex)"
OURS, DUAL = "kernelgrad", "kernelgrad (sdca)"
DUAL_PASSES = 8  # of SDCA for one of the perceptron: rows at a bound cost little


@dataclass
class Problem:
    """Training and test rows, and the machine that all methods fit."""

    name: str
    X: Any
    y: Any
    X_test: Any
    y_test: Any
    gamma: float
    C: float

    @property
    def n(self) -> int:
        """Number of training rows."""
        return len(self.y)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(np.unique(self.y))


def load(name: str, rows: int | None = None, test_rows: int | None = None) -> Problem:
    """Return a problem on random rows of the data; the same for every call."""
    base = name.removesuffix("8")
    data = DATASETS[base].load()
    train = choose_rows(len(data.y_train), rows, seed=0)
    test = choose_rows(len(data.y_test), test_rows, seed=0)
    y, y_test = data.y_train[train], data.y_test[test]
    if name != base:
        y, y_test = (np.where(v == 8, 1, -1) for v in (y, y_test))
    return Problem(name, data.X_train[train], y, data.X_test[test], y_test, *SETTINGS[name])


def geometric(first: float, last: float, factor: float = 2.0) -> list[int]:
    """Return distinct growing integers from `first` to `last`, which is always the last."""
    values, value = [], float(first)
    while value < last:
        values.append(max(1, round(value)))
        value *= factor
    return list(dict.fromkeys([*values, max(1, round(last))]))


def rounds(rows: int, n: int) -> tuple[int, int]:
    """Return steps and rows of a step that draw about `rows` of n rows.

    Below a fortieth of the n rows a single step; else steps of a fortieth, as is the default
    of ``solver="sbp"``.
    """
    if rows * 40 <= n:
        return 1, max(1, rows)
    return round(rows * 40 / n), -(-n // 40)


def ours(problem: Problem, rows: int, solver: Any, **params: Any) -> tuple[Any, Any, Any]:
    """Return an estimator of ours that draws about `rows` rows, and the rows to fit.

    Solvers that visit rows one by one make a pass in 20 steps. They get a random part of the
    rows for less than a pass: the visits that a longer fit begins with.
    """
    given = {"loss": "hinge", "gamma": problem.gamma, "random_state": 0} | params
    if "alpha" not in given:
        given["alpha"] = 1 / (problem.C * problem.n)
    X, y = problem.X, problem.y
    chosen = solver.get_params()
    if "round_size" in chosen:
        max_iter, chosen["round_size"] = rounds(rows, problem.n)
    elif rows < problem.n:
        max_iter = 20
        part = choose_rows(problem.n, rows, seed=given["random_state"])
        X, y = X[part], y[part]
    else:
        max_iter = round(20 * rows / problem.n)
    return KernelClassifier(solver=type(solver)(**chosen), max_iter=max_iter, **given), X, y


def fit_seconds(model: Any, X: Any, y: Any) -> float:
    """Fit and return the seconds; a peer that was told to stop early may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return timed(model.fit, X, y)[0]


def percent(y: Any, predicted: Any) -> float:
    """Return the share of wrong labels in percent."""
    return 100 * float(np.mean(predicted != y))


def predict_libsvm(model: Any, X: Any, chunk: int = 2048) -> Any:
    """Return ``model.predict(X)`` of a fitted Gaussian SVC, from float32 matrix products.

    LIBSVM itself takes one row at a time, longer than many of its fits. One vote for each pair
    of classes.
    """
    S = model.support_vectors_.astype(np.float32)
    edges = np.concatenate([[0], np.cumsum(model.n_support_)])
    parts = [slice(a, b) for a, b in pairwise(edges)]
    pairs = list(combinations(range(len(model.classes_)), 2))
    gamma = np.float32(model._gamma)
    dual = model.dual_coef_
    if hasattr(dual, "toarray"):
        dual = dual.toarray()

    def norms(A: Any) -> Any:
        square = A.multiply(A) if hasattr(A, "multiply") else A * A
        return np.asarray(square.sum(axis=1), np.float32).reshape(-1)

    s = norms(S)
    out = []
    for start in range(0, X.shape[0], chunk):
        A = X[start : start + chunk].astype(np.float32)
        P = A @ S.T
        P = P.toarray() if hasattr(P, "toarray") else P
        K = np.exp(-gamma * np.maximum(norms(A)[:, None] + s - 2 * P, 0))
        votes = np.zeros((A.shape[0], len(model.classes_)), int)
        for k, (i, j) in enumerate(pairs):
            f = K[:, parts[i]] @ dual[j - 1, parts[i]] + K[:, parts[j]] @ dual[i, parts[j]]
            # intercept_ and dual_coef_ of two classes have the sign of the second one
            first = (f + model.intercept_[k]) * (-1 if len(pairs) == 1 else 1) > 0
            votes[first, i] += 1
            votes[~first, j] += 1
        out.append(model.classes_[votes.argmax(axis=1)])
    return np.concatenate(out)


def libsvm_rows(n_iter: Any, n: int) -> int:
    """Return a lower bound of the kernel rows that LIBSVM computed for two classes.

    An iteration looks at two rows, and a cache of all of them keeps each from being computed
    twice: min(2 iterations, n). It is no exact count, because an iteration may find both rows
    in the cache before n of them have been seen, and because shrinking computes parts of rows;
    the gradient's reconstruction at the end may need others.
    """
    return min(2 * int(np.sum(n_iter)), n)


def peer(method: str, problem: Problem, max_iter: int) -> Any:
    """Return LIBSVM's or oneDAL's estimator, stopped after `max_iter` of its iterations."""
    cls: Any = SVC
    if method == INTELEX:
        import sklearnex.svm

        cls = sklearnex.svm.SVC
    return cls(C=problem.C, gamma=problem.gamma, cache_size=2000, max_iter=max_iter)


def peer_curve(
    method: str, problem: Problem, *, factor: float, limit: float, first: int | None = None
) -> Iterator[Point]:
    """Yield a point for each of a growing number of iterations until the peer converges.

    Every point is a fit from scratch. The series also ends when the fits took `limit` seconds.
    """
    if first is None:
        first = 1 if method == INTELEX else max(4, problem.n // (50 * problem.n_classes))
    counted = method == LIBSVM and problem.n_classes == 2  # pairs of classes have short rows
    spent, k = 0.0, 0
    while spent < limit:
        iterations = round(first * factor**k)
        k += 1
        model = peer(method, problem, iterations)
        seconds = fit_seconds(model, problem.X, problem.y)
        spent += seconds
        predict = (
            model.predict if method == INTELEX else lambda X, m=model: predict_libsvm(m, X)
        )
        converged = bool(np.max(model.n_iter_) < iterations)
        yield {
            "budget": iterations,
            "seconds": seconds,
            "error %": percent(problem.y_test, predict(problem.X_test)),
            "converged": converged,
            "support rows": len(model.support_),
            "kernel rows": libsvm_rows(model.n_iter_, problem.n) if counted else None,
        }
        if converged:
            return


def our_curve(
    problem: Problem, solver: Any, budgets: Sequence[int], limit: float = np.inf, **params: Any
) -> Iterator[Point]:
    """Yield a point for each number of drawn rows, a fit from scratch each.

    Ends early when the fits took `limit` seconds, or when one ended before its budget.
    """
    spent = 0.0
    for rows in budgets:
        model, X, y = ours(problem, rows, solver, **params)
        if len(np.unique(y)) < 2:
            continue  # so few rows are of one class
        seconds = fit_seconds(model, X, y)
        spent += seconds
        history = model.history_
        evaluations = int(history["kernel_evaluations"][-1])
        yield {
            "budget": rows,
            "seconds": seconds,
            "error %": percent(problem.y_test, model.predict(problem.X_test)),
            "converged": model.max_iter > history["iteration"][-1],
            "support rows": int(history["n_support"][-1]),
            "kernel rows": evaluations / problem.n,
            "rows drawn": int(history["rows_seen"][-1]),
        }
        if model.max_iter > history["iteration"][-1] or spent > limit:
            return


def warm_up(method: str, problem: Problem, **params: Any) -> None:
    """Compile and start threads on a few rows of the same problem."""
    few = np.concatenate([np.flatnonzero(problem.y == c)[:20] for c in np.unique(problem.y)])
    if method not in (OURS, DUAL):
        fit_seconds(peer(method, problem, 10), problem.X[few], problem.y[few])
        return
    solver = StochasticBatchPerceptron() if method == OURS else SDCA()
    model, *_ = ours(problem, problem.n, solver, **params)
    model.set_params(max_iter=2)
    model.fit(problem.X[few], problem.y[few]).predict(problem.X[few])


def use_threads(method: str, threads: int) -> None:
    """Give a method so many threads; its process was started with as many for its BLAS."""
    set_num_threads(threads)
    if method == INTELEX:
        import daal4py

        daal4py.daalinit(threads)


def has_intelex() -> bool:
    """Tell whether scikit-learn-intelex is installed."""
    return find_spec("sklearnex") is not None


def seconds_to(points: Sequence[Point], target: float, x: str = "seconds") -> float | None:
    """Return `x` of the first point from which on none is above `target` percent, or None."""
    reached: float | None = None
    for point in reversed(points):
        if point["error %"] > target:
            break
        reached = point[x]
    return reached


def lead_from(one: Sequence[Point], other: Sequence[Point], x: str = "seconds") -> float | None:
    """Return the largest error from which on down `one` is ahead of `other`, or None.

    Ahead at an error is who gets there, and stays, with less `x`. Errors that neither reaches
    do not count; None says that `other` is as fast or faster at the least error reached.
    """
    lead = None
    for level in sorted({p["error %"] for p in (*one, *other)}):
        mine, theirs = seconds_to(one, level, x), seconds_to(other, level, x)
        if mine is None and theirs is None:
            continue
        if mine is None or (theirs is not None and theirs <= mine):
            break
        lead = level
    return lead


def middle(curves: Sequence[Sequence[Point]], average: Any = median) -> list[Point]:
    """Return the medians (or another average) over repeats, budget by budget.

    Points that only some of the repeats reached are left out.
    """
    found: dict[Any, list[Point]] = {}
    for curve in curves:
        for point in curve:
            found.setdefault(point["budget"], []).append(point)
    every = [points for points in found.values() if len(points) == len(curves)]
    return [middle_row(points, average) for points in every]


def memory_rows(rows: int) -> tuple[Any, Any]:
    """Return generated rows of 50 columns in float32, and two classes with a curved border."""
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, 50), np.float32)
    f = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * random.standard_normal(rows)
    return X, np.where(f > 0, 1, -1)


def memory_case(rows: int, limit: float, max_iter: int) -> Point:
    """Return peak memory, seconds and a digest of a model that may hold `limit` bytes."""
    X, y = memory_rows(rows)
    solver = StochasticBatchPerceptron()
    model = KernelClassifier(
        "hinge", gamma=1 / 100, C=1.0, random_state=0, solver=solver, memory_limit=int(limit)
    )
    model.set_params(max_iter=2).fit(X[:600], y[:600])
    seconds, megabytes = timed_peak(model.set_params(max_iter=max_iter).fit, X, y)
    f = np.ascontiguousarray(model.decision_function(X[:2000]))
    return {
        "limit MB": limit / 1e6,
        "data MiB": (X.nbytes + y.nbytes) / MIB,
        "fit MB": megabytes,
        "fit s": seconds,
        "kernel rows": model.history_["kernel_evaluations"][-1] / rows,
        "rows drawn": int(model.history_["rows_seen"][-1]),
        "train error %": percent(y[:2000], model.predict(X[:2000])),
        "digest": hashlib.sha256(f.tobytes()).hexdigest()[:16],
    }


def main(case: dict[str, Any]) -> Iterator[Point]:
    """Run one case."""
    if case["kind"] == "memory":
        set_num_threads(case["threads"])
        yield memory_case(case["rows"], case["limit"], case["max_iter"])
        return
    method = case["method"]
    use_threads(method, case["threads"])
    problem = load(case["dataset"], case["rows"], case["test_rows"])
    warm_up(method, problem)
    if method == OURS:
        yield from our_curve(
            problem, StochasticBatchPerceptron(), case["budgets"], case["limit"],
            random_state=case["seed"],
        )  # fmt: skip
    elif method == DUAL:
        budgets = [DUAL_PASSES * rows for rows in case["budgets"]]
        yield from our_curve(
            problem, SDCA(), budgets, case["limit"], random_state=case["seed"],
            fit_intercept=False,
        )  # fmt: skip
    else:
        yield from peer_curve(method, problem, factor=case["factor"], limit=case["limit"])


if __name__ == "__main__":
    serve(main)
