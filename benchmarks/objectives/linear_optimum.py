"""Whether all linear solvers reach the minimum, on dense and on CSR rows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from sklearn.svm import SVC

from benchmarks.objectives._linear import Case, load, minimum, trace, warm_up
from benchmarks.objectives._shared import available
from benchmarks.registry import Objective, Row
from kernelgrad.losses import Hinge, Logistic
from kernelgrad.solvers import LINEAR_SOLVERS, LinearSDCA

SETS = ["ijcnn1", "a9a", "cod_rna"]
PENALTIES = {"l2": (2e-3, 0.0), "elastic net": (1e-3, 0.5), "l1": (1e-3, 1.0)}
DECAYING = ("sgd", "ssgd", "scv", "pegasos", "sbmd", "simba")
PASSES = 300
HINGE_ALPHA = 2e-3
HINGE_ROWS = 2000  # of the comparison that has SIMBA and LIBSVM, both slow on many rows
SIMBA_STEPS = 200
GAP = 1e-6
GAP_PASSES = 5000


class LinearOptimum(Objective):
    """Relative suboptimality after at most 300 passes; supports with L1.

    The minimum is that of L-BFGS for the logistic loss. For the hinge it is the objective at a
    relative duality gap of 1e-6, or what dual ascent comes to, with the gap in the row; on the
    first 2,000 rows there are also SIMBA, which follows alpha, and LIBSVM's objective.
    """

    name: ClassVar[str] = "linear_optimum"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets and solvers."""
        parser.add_argument("--dataset", nargs="+", default=SETS, choices=SETS)
        names = list(LINEAR_SOLVERS)
        parser.add_argument("--solver", nargs="+", default=names, choices=names)
        parser.add_argument("--passes", type=int, default=PASSES)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Fit every solver on dense and on CSR rows."""

        def loaded(name: str) -> Case:
            return load(name, quick=args.quick, balanced=False)

        for _, case in available(args.dataset, loaded):
            for penalty, (alpha, ratio) in PENALTIES.items():
                yield from self._penalty(args, case, penalty, alpha, ratio)
            yield from self._hinge(args, case.head(HINGE_ROWS), few=True)
            if len(case.y) > HINGE_ROWS:
                yield from self._hinge(args, case, few=False)

    def _penalty(
        self, args: argparse.Namespace, case: Case, penalty: str, alpha: float, ratio: float
    ) -> Iterator[tuple[str, Row]]:
        problem = case.problem(alpha, ratio, tol=1e-7)
        best, w = minimum(problem, case.batch())
        support = np.abs(w[:-1]) > 1e-7 if ratio > 0 else None
        for name in args.solver:
            cls: Any = LINEAR_SOLVERS[name]
            if not cls.takes(Logistic()):
                continue
            if (ratio > 0 and not cls.takes_l1) or (ratio == 1 and cls.needs_l2):
                continue
            row: Row = {"data": case.name, "penalty": penalty, "solver": name}
            self._measure(row, cls, case, problem, best, args.passes, support)
            yield "suboptimality", row

    def _hinge(
        self, args: argparse.Namespace, case: Case, *, few: bool
    ) -> Iterator[tuple[str, Row]]:
        problem = case.problem(HINGE_ALPHA, loss="hinge", tol=1e-7)
        best, gap = certified(case)
        reference = libsvm(case) if few else None
        for name in args.solver:
            cls: Any = LINEAR_SOLVERS[name]
            if not cls.takes(Hinge()) or (name == "simba" and not few):
                continue
            row: Row = {
                "data": case.name, "rows": len(case.y), "solver": name, "minimum": best,
                "relative gap": gap,
            }  # fmt: skip
            if reference is not None:
                row["LIBSVM / minimum - 1"] = reference / best - 1
            passes = SIMBA_STEPS if name == "simba" else args.passes
            self._measure(row, cls, case, problem, best, passes, None)
            yield "hinge suboptimality", row

    @staticmethod
    def _measure(
        row: Row, cls: Any, case: Case, problem: Any, best: float, passes: int, support: Any
    ) -> None:
        """Add what a solver reaches on dense and CSR rows; `support` is that of the minimum."""
        decaying = cls.name in DECAYING
        if decaying and cls.name != "simba":
            passes = min(passes, 150)
        for kind in ("dense", "CSR"):
            sparse = kind == "CSR"
            warm_up([cls()], case, problem, sparse=sparse)
            found = trace(cls(), problem, case.batch(sparse=sparse), steps=passes)
            row[f"{kind} suboptimality"] = found.objective[-1] / best - 1
            row[f"{kind} s"] = found.seconds[-1]
            row[f"{kind} iterations"] = len(found.seconds)
            if support is not None:
                others = int(np.sum((cls().solution(found.state)[0][:, 0] != 0) != support))
                row[f"{kind} support"] = f"{others} of {support.sum()} differ"
        row["limit"] = 1e-2 if decaying else 1e-4
        worst = max(row["dense suboptimality"], row["CSR suboptimality"])
        row["reached"] = bool(worst <= row["limit"])


def certified(case: Case) -> tuple[float, float]:
    """Return the objective of dual ascent with the hinge loss and its relative duality gap."""
    problem = case.problem(HINGE_ALPHA, loss="hinge", tol=GAP, seed=1)
    solver = LinearSDCA()
    found = trace(solver, problem, case.batch(), steps=GAP_PASSES, every=GAP_PASSES)
    best = found.objective[-1]
    return best, float(solver.duality_gap(found.state)[0]) / best


def libsvm(case: Case) -> float:
    """Return the objective of SVC's function, which has an unpenalised intercept as well."""
    p = case.weight / case.weight.sum()
    model = SVC(kernel="linear", C=1.0 / HINGE_ALPHA, tol=1e-6)
    model.fit(case.X, case.y, sample_weight=p)
    w, f = model.coef_, model.decision_function(case.X)
    norm = float(w.multiply(w).sum()) if hasattr(w, "multiply") else float((w * w).sum())
    return float(p @ np.maximum(0.0, 1.0 - case.y * f)) + 0.5 * HINGE_ALPHA * norm
