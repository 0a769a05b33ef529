"""Seconds of linear solvers to a relative suboptimality, beside other libraries."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.linear_model import LogisticRegression, SGDClassifier

from benchmarks.objectives._linear import Case, load, minimum, trace, warm_up
from benchmarks.objectives._shared import available, distinct, picture, timed, where
from benchmarks.registry import Objective, Row
from kernelgrad import LinearClassifier
from kernelgrad.solvers import LINEAR_SOLVERS, LinearProblem, TrainBatch
from kernelgrad.solvers.linear.base import PreparedRows, evaluate

SETS = ["ijcnn1", "a9a", "cod_rna", "covtype20k", "news20_bydate", "mnist"]
OURS = ["svrg", "s3gd", "sdca", "rbcd", "sgd"]
PENALTIES = {"l2": 0.0, "l1": 1.0}
LEVELS = (1e-3, 1e-6)
SECONDS = 60.0
NOISY = {"scikit-learn SGDClassifier"}  # more iterations need not be better
BUDGETS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048]

Fit = Callable[[int], Any]
Bracket = tuple[int, int]  # the largest number known to fail, 0 if none, and one that passes


def peers(case: Case, problem: LinearProblem, X: Any) -> dict[str, Fit]:
    """Return functions from a number of iterations to coefficients, on rows with a constant.

    All get the same objective: the column of ones is penalised, and there is no intercept.
    `LinearClassifier` is among them, with the solver of its choice.
    """
    n = len(case.y)
    l1 = problem.l1 > 0
    penalty = "l1" if l1 else "l2"
    C = 1.0 / (problem.alpha * n)

    def logistic(solver: str) -> Fit:
        def fit(iterations: int) -> Any:
            model = LogisticRegression(
                C=C, solver=solver, max_iter=iterations, tol=1e-14, fit_intercept=False,
                random_state=0, **logistic_penalty(penalty),
            )  # fmt: skip
            return model.fit(X, case.y).coef_[0]

        return fit

    def sgd(iterations: int) -> Any:
        model = SGDClassifier(
            "log_loss", penalty=penalty, alpha=problem.alpha, max_iter=iterations, tol=None,
            fit_intercept=False, average=True, random_state=0,
        )  # fmt: skip
        return model.fit(X, case.y).coef_[0]

    def whole(iterations: int) -> Any:
        model = LinearClassifier(
            penalty=penalty, alpha=problem.alpha, max_iter=iterations, tol=0.0,
            fit_intercept=False, random_state=0,
        )  # fmt: skip
        return model.fit(X, case.y).coef_[0]

    found: dict[str, Fit] = {
        "LinearClassifier": whole,
        "scikit-learn saga": logistic("saga"),
        "scikit-learn liblinear": logistic("liblinear"),
        "scikit-learn SGDClassifier": sgd,
    }
    if not l1:
        found["scikit-learn lbfgs"] = logistic("lbfgs")
        found["scikit-learn newton-cholesky"] = logistic("newton-cholesky")
        if X.shape[1] > 2000:
            del found["scikit-learn newton-cholesky"]
    glm = _skglm(case, problem, X)
    return found if glm is None else found | {"skglm": glm}


def logistic_penalty(penalty: str, version: str = sklearn.__version__) -> dict[str, Any]:
    """Return how LogisticRegression is told its penalty.

    Before 1.8 `l1_ratio` alone leaves it at L2; since then `penalty` warns.
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < (1, 8):
        return {"penalty": penalty}
    return {"l1_ratio": PENALTIES[penalty]}


def _skglm(case: Case, problem: LinearProblem, X: Any) -> Fit | None:
    """Return skglm's conversion and solver without compilation, which its fits repeat."""
    try:
        from skglm.datafits import Logistic
        from skglm.penalties import L1, L2
        from skglm.solvers import LBFGS, ProxNewton
        from skglm.utils.jit_compilation import compiled_clone
    except ImportError:
        return None
    datafit = compiled_clone(Logistic())
    penalty = compiled_clone((L1 if problem.l1 > 0 else L2)(problem.alpha))

    def fit(iterations: int) -> Any:
        if sp.issparse(X):
            rows = sp.csc_matrix(X)
            datafit.initialize_sparse(rows.data, rows.indptr, rows.indices, case.y)
        else:
            rows = np.asfortranarray(X)
            datafit.initialize(rows, case.y)
        if problem.l1 > 0:
            solver = ProxNewton(max_iter=iterations, tol=1e-12, fit_intercept=False)
        else:
            solver = LBFGS(max_iter=iterations, tol=1e-12)
        return solver._solve(rows, case.y, datafit, penalty)[0]

    return fit


class LinearTime(Objective):
    """Seconds to relative suboptimalities of 1e-3 and 1e-6 of the same objective.

    The clocks hold:

    - solvers by name (``"svrg"``): preparation of rows and steps up to the first that reaches
      the level. No validation of parameters or rows, no computation of the objective;
    - ``"LinearClassifier"``, scikit-learn: a whole ``fit``, with validation, of the least
      number of iterations that reaches the level; no tolerance ends it earlier;
    - ``"skglm"``: conversion of the rows to columns, ``initialize`` and the solver, for the
      least number of iterations. No validation and no compilation.

    Before the clocks start every side has been run, so that nothing is compiled. The least
    number is found on a ladder and by bisection between its last number that fails and its
    first that passes, except for `NOISY` sides; where the time limit ends that early,
    ``iterations`` is the range that is left, and its upper end is timed. All use the threads
    that they take by default.
    """

    name: ClassVar[str] = "linear_time"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets, penalties and sides."""
        parser.add_argument("--dataset", nargs="+", default=SETS, choices=SETS)
        parser.add_argument("--penalty", nargs="+", default=list(PENALTIES), choices=PENALTIES)
        parser.add_argument("--alpha", type=float, nargs="+", default=[1e-4])
        parser.add_argument("--solver", nargs="+", default=OURS, choices=list(LINEAR_SOLVERS))
        parser.add_argument("--limit", type=float, default=SECONDS, help="seconds a fit")

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take all sides in turn within each repeat."""

        def loaded(name: str) -> Case:
            return load(name, quick=args.quick, balanced=False)

        for _, case in available(args.dataset, loaded):
            ones = np.ones((len(case.y), 1))
            if sp.issparse(case.X):
                case.X = sp.csr_matrix(sp.hstack([case.X, ones]))
            else:
                case.X = np.hstack([case.X, ones])
            for penalty in args.penalty:
                for alpha in args.alpha:
                    yield from self._compare(args, case, penalty, alpha)

    def _compare(
        self, args: argparse.Namespace, case: Case, penalty: str, alpha: float
    ) -> Iterator[tuple[str, Row]]:
        problem = case.problem(alpha, PENALTIES[penalty], fit_intercept=False, tol=1e-12)
        batch = case.batch()
        best, _ = minimum(problem, batch)
        chosen = [
            name
            for name in args.solver
            if not (problem.l1 > 0 and not LINEAR_SOLVERS[name].takes_l1)
            and not (problem.l2 == 0 and LINEAR_SOLVERS[name].needs_l2)
        ]
        warm_up([LINEAR_SOLVERS[name]() for name in chosen], case, problem)
        others = peers(case, problem, case.X)
        seconds: dict[str, list[list[float | None]]] = {}
        budgets: dict[str, list[Bracket | None]] = {}
        for repeat in range(args.repeat):
            for name in chosen:
                seconds.setdefault(name, []).append(
                    _ours(name, problem, batch, best, repeat, args.limit)
                )
            for name, fit in others.items():
                if name not in budgets:
                    budgets[name] = least_iterations(
                        fit, problem, batch, best, args.limit, bisect=name not in NOISY
                    )
                seconds.setdefault(name, []).append([_clock(fit, b) for b in budgets[name]])
        for name, runs in seconds.items():
            row: Row = {"data": case.name, "penalty": penalty, "alpha": alpha, "side": name}
            for k, level in enumerate(LEVELS):
                got = [run[k] for run in runs if run[k] is not None]
                row[f"s to {level:g}"] = median(got) if len(got) == len(runs) else None
            if name in budgets:
                row["iterations"] = ", ".join(_range(b) for b in budgets[name])
            yield "seconds", row

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw bars of seconds, a panel for each data set and penalty."""
        rows = [r | {"case": f"{r['data']}, {r['penalty']}"} for r in tables.get("seconds", [])]
        cases = distinct(rows, "case")
        if not cases:
            return False
        across = min(3, len(cases))
        with picture(path, -(-len(cases) // across), across, size=(6, 3.2)) as axes:
            for axis in axes.flat[len(cases) :]:
                axis.axis("off")
            for axis, case in zip(axes.flat, cases, strict=False):
                some = where(rows, case=case)
                place = np.arange(len(some))
                for k, level in enumerate(LEVELS):
                    values = [r[f"s to {level:g}"] or np.nan for r in some]
                    axis.barh(place + 0.2 - 0.4 * k, values, 0.4, label=f"to {level:g}")
                axis.set_yticks(place, [r["side"] for r in some], fontsize=7)
                axis.invert_yaxis()
                axis.set(xscale="log", title=case, xlabel="seconds (no bar: not reached)")
            axes.flat[0].legend(fontsize=7)
        return True


def _ours(
    name: str, problem: LinearProblem, batch: TrainBatch, best: float, seed: int, limit: float
) -> list[float | None]:
    """Return the seconds to each level, with the preparation of rows."""
    own = LinearProblem(**{**vars(problem), "seed": seed})
    target = best * (1 + min(LEVELS))
    found = trace(LINEAR_SOLVERS[name](), own, batch, steps=2000, seconds=limit, target=target)
    return [found.first_below(best * (1 + level)) for level in LEVELS]


def _clock(fit: Fit, bracket: Bracket | None) -> float | None:
    if bracket is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return timed(fit, bracket[1])[0]


def _range(bracket: Bracket | None) -> str:
    if bracket is None:
        return "none"
    low, high = bracket
    return str(high) if high - low == 1 else f"{low + 1} to {high}"


def least_iterations(
    fit: Fit,
    problem: LinearProblem,
    batch: TrainBatch,
    best: float,
    limit: float,
    *,
    bisect: bool = True,
) -> list[Bracket | None]:
    """Return brackets of the least numbers of iterations that reach each level.

    First a ladder, up to a fit of more than `limit` seconds; then, for each level, bisection
    for at most about as long. The first fit of all is a warm-up: it may compile.
    """
    data = PreparedRows.build(problem, batch)
    values: dict[int, float] = {}

    def look(iterations: int) -> float:
        spent, coef = timed(fit, iterations)
        w = np.asarray(coef, float)[:, None]
        found = evaluate(problem, data, data.native(w), np.zeros(1))
        values[iterations] = found.objective
        return spent

    def bracket(level: float) -> Bracket | None:
        passed = [i for i, value in values.items() if value <= best * (1 + level)]
        if not passed:
            return None
        high = min(passed)
        return max((i for i in values if i < high), default=0), high

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(1)
        for iterations in BUDGETS:
            if look(iterations) > limit or bracket(min(LEVELS)):
                break
        for level in LEVELS if bisect else ():
            left = limit
            while (found := bracket(level)) and found[1] - found[0] > 1 and left > 0:
                left -= look(sum(found) // 2)
    return [bracket(level) for level in LEVELS]
