"""Whether all linear solvers reach the minimum, on dense and on CSR rows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from benchmarks.objectives._linear import Case, load, minimum, trace, warm_up
from benchmarks.registry import Objective, Row
from kernelgrad.solvers import LINEAR_SOLVERS

SETS = ["ijcnn1", "a9a", "cod_rna"]
PENALTIES = {"l2": (2e-3, 0.0), "elastic net": (1e-3, 0.5), "l1": (1e-3, 1.0)}
DECAYING = ("sgd", "ssgd", "scv", "pegasos", "sbmd")
PASSES = 300


class LinearOptimum(Objective):
    """Relative suboptimality against L-BFGS after at most 300 passes; supports with L1."""

    name: ClassVar[str] = "linear_optimum"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets and solvers."""
        parser.add_argument("--dataset", nargs="+", default=SETS, choices=SETS)
        names = [name for name in LINEAR_SOLVERS if name != "simba"]
        parser.add_argument("--solver", nargs="+", default=names, choices=names)
        parser.add_argument("--passes", type=int, default=PASSES)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Fit every solver on dense and on CSR rows."""
        for name in args.dataset:
            case = load(name, quick=args.quick, balanced=False)
            for penalty, (alpha, ratio) in PENALTIES.items():
                yield from self._penalty(args, case, penalty, alpha, ratio)

    def _penalty(
        self, args: argparse.Namespace, case: Case, penalty: str, alpha: float, ratio: float
    ) -> Iterator[tuple[str, Row]]:
        problem = case.problem(alpha, ratio, tol=1e-7)
        best, w = minimum(problem, case.batch())
        support = set(np.flatnonzero(np.abs(w[:-1]) > 1e-7).tolist())
        for name in args.solver:
            cls: Any = LINEAR_SOLVERS[name]
            if (ratio > 0 and not cls.takes_l1) or (ratio == 1 and cls.needs_l2):
                continue
            warm_up([cls()], case, problem)
            row: Row = {"data": case.name, "penalty": penalty, "solver": name}
            passes = min(args.passes, 60) if name in DECAYING else args.passes
            for sparse in (False, True):
                kind = "CSR" if sparse else "dense"
                found = trace(cls(), problem, case.batch(sparse=sparse), steps=passes)
                row[f"{kind} suboptimality"] = found.objective[-1] / best - 1
                row[f"{kind} s"] = found.seconds[-1]
                row[f"{kind} iterations"] = len(found.seconds)
                if ratio > 0:
                    mine = set(np.flatnonzero(cls().solution(found.state)[0][:, 0]).tolist())
                    row[f"{kind} support"] = f"{len(mine ^ support)} of {len(support)} differ"
            row["limit"] = 1e-2 if name in DECAYING else 1e-4
            row["reached"] = bool(
                max(row["dense suboptimality"], row["CSR suboptimality"]) <= row["limit"]
            )
            yield "suboptimality", row
