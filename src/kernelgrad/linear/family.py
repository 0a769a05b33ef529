"""Linear functions: the penalty, and the choice of a solver."""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelgrad.choice import Choice
from kernelgrad.families.base import Spec
from kernelgrad.families.kernel import alpha_of_cost, check_one_penalty
from kernelgrad.families.reading import Run
from kernelgrad.kernels import Kernel, Polynomial
from kernelgrad.linear.base import STREAM_ROWS, LinearProblem, LinearSolver
from kernelgrad.linear.rbcd import RBCD, WHOLE, WHOLE_ENTRIES
from kernelgrad.linear.sdca import LinearSDCA
from kernelgrad.linear.stochastic import SGD, SVRG
from kernelgrad.losses import Loss
from kernelgrad.model import Fit
from kernelgrad.solvers import LINEAR_SOLVERS, FitResult, Problem, Solver, get_linear_solver
from kernelgrad.solvers.history import left_over
from kernelgrad.training_rows import TrainingRows
from kernelgrad.validation import warn_caller

_INNER_PRODUCT = Polynomial(degree=1, gamma=1.0, coef0=0.0)
_RESPONSE_BYTES = 120  # Bytes for each response, of which RBCD keeps the most.
_STEEP = 0.1  # Slope of a fit that ended too early, relative to the first one.
_LONG = 300.0  # Length of a row, in median rows, beyond which it can be all the loss sees.
_COPIES = 3.0  # Copies of the rows in a fit: as given, as a batch, by columns.
_DISK_CELLS, _DISK_ROWS = 2**24, (4096, 65_536)  # Cells and rows of a batch from disk.


def choose_linear_solver(
    loss: Loss, *, rows: str, n_rows: int = 0, n_features: int, n_outputs: int = 1, l2: float
) -> tuple[LinearSolver[Any], str]:
    """Return the solver that ``solver="auto"`` of linear estimators stands for, and the reason.

    The first rule that applies decides; docs/linear.md has them as a table. `l2` is the weight
    of the L2 part of the penalty. Raises CapabilityError where no linear solver takes the loss.
    """
    SGD().check_loss(loss)
    if rows != "memory":
        why = {
            "disk": "the rows are on disk",
            "stream": "the rows are a stream",
            "large": "the rows do not fit in memory three times",
        }
        return SGD(), why[rows]
    if RBCD.takes(loss):
        if n_features <= WHOLE and n_features**2 * n_outputs <= WHOLE_ENTRIES:
            return RBCD(), f"the loss is smooth and there are at most {WHOLE} columns"
        if LinearSDCA.takes(loss) and l2 * n_rows >= 1.0:
            return LinearSDCA(), "many columns, and the penalty has an L2 part"
        return SVRG(), "the loss is smooth and the rows are in memory"
    if loss.smoothness is not None and SVRG.takes(loss):
        return SVRG(), "the loss is smooth and the rows are in memory"
    fast = "classification" in loss.tasks or l2 * n_rows >= 1.0
    if LinearSDCA.takes(loss) and l2 > 0 and fast:
        return LinearSDCA(), "the loss has kinks and the penalty an L2 part"
    return SGD(), "the loss has kinks and the penalty no L2 part, or a very small one"


class LinearSpec(Spec):
    """Linear functions with an elastic penalty, and solvers for many rows."""

    solvers = LINEAR_SOLVERS
    streaming = ", or fit with solver='sgd'", "'sgd'"
    problem_type = LinearProblem

    def check(self) -> None:
        p = self.params
        check_one_penalty(self, 1e-4)
        if p.penalty is None and p.C is not None:
            raise ValueError("penalty=None has no strength; leave C out, or name a penalty.")
        ratio = float(p.l1_ratio)
        self.l1_share = {None: 0.0, "l2": 0.0, "l1": 1.0, "elasticnet": ratio}[p.penalty]

    def make_kernel(self) -> Kernel:
        return _INNER_PRODUCT

    def make_solver(self, chosen: Any) -> LinearSolver[Any]:
        return get_linear_solver(chosen)  # type: ignore[no-any-return]

    def automatic(self, rows: TrainingRows, run: Run) -> tuple[Solver[Any], str]:
        # equal rows count once, and rows without weight not at all
        p, where, n = self.params, "disk", rows.ordered(STREAM_ROWS).source.n_rows
        if run.stream:
            where = "stream"
        elif rows.in_memory:
            where = "memory" if self._fits(rows) else "large"
        # rows count as if their weights were equal
        alpha = self._fixed_alpha() if p.C is None else 1.0 / (float(p.C) * max(1, n))
        return choose_linear_solver(
            rows.task.loss, rows=where, n_rows=n, n_features=rows.inputs.width,
            n_outputs=rows.task.n_outputs, l2=alpha * (1.0 - self.l1_share),
        )  # fmt: skip

    def _fixed_alpha(self) -> float:
        return 0.0 if self.params.penalty is None else float(self.params.alpha)

    def _fits(self, rows: TrainingRows) -> bool:
        responses = _RESPONSE_BYTES * rows.source.n_rows * rows.task.n_outputs
        needed = _COPIES * rows.nbytes + responses
        return needed <= self.resources.usable

    def alpha(self, rows: TrainingRows) -> float:
        C = self.params.C
        return self._fixed_alpha() if C is None else alpha_of_cost(C, rows)

    def make_problem(self, *args: Any, **options: Any) -> Problem:
        tol = float(self.params.tol)
        return super().make_problem(*args, l1_ratio=self.l1_share, tol=tol, **options)

    def ordered_rows(self, rows: TrainingRows, choice: Choice) -> TrainingRows:
        """Return the rows in their order, and the size of batches from disk."""
        rows = super().ordered_rows(rows, choice)
        in_memory = rows.in_memory and not (self.is_auto and not self._fits(rows))
        if in_memory or not choice.solver.streams:
            return rows
        size = int(np.clip(_DISK_CELLS // max(1, rows.source.n_features), *_DISK_ROWS))
        return replace(rows, batch_size=size)

    def warn(self, fit: Fit, rows: TrainingRows, result: FitResult, run: Run) -> None:
        super().warn(fit, rows, result, run)
        audit = fit.history.get("audit", {})
        objective = audit.get("objective", 0.0)
        slope = audit.get("optimality") or 0.0
        if not np.isfinite(objective):
            raise ValueError(
                f"solver {fit.choice.solver.name!r} diverged: the objective is {objective!r} "
                f"after {fit.n_iter} iterations; give a smaller step_size, or leave it at "
                "'auto'."
            )
        # on columns of very different scales each iteration gains next to nothing
        is_smooth = rows.task.loss.is_smooth
        ended = fit.status == "max_iter" and is_smooth and not run.stream
        if ended and slope > _STEEP and not (left_over(dict(fit.history)) or 0.0) > _STEEP:
            warn_caller(
                f"The fit ended after max_iter={self.params.max_iter} iterations with a slope "
                f"of {slope:.0%} of the first one; scale the columns, take solver='auto', or "
                "raise max_iter.",
                ConvergenceWarning,
            )

        if audit.get("longest", 0.0) > _LONG:
            warn_caller(
                f"The longest row is {audit['longest']:.3g} times as long as the median one "
                "and may decide the model alone; correct or drop such rows, or scale the "
                "columns by scikit-learn's RobustScaler and clip them."
            )

    def attributes(self, fit: Fit) -> dict[str, Any]:
        function: Any = fit.model.function
        coef, intercept = np.array(function.coef.T, order="C"), function.intercept
        if getattr(fit.model.task, "ndim", 2) == 1:
            coef, intercept = coef[0], float(intercept[0])
        return {"alpha_": fit.choice.alpha, "coef_": coef, "intercept_": intercept}

    def info(self, fit: Fit) -> dict[str, Any]:
        return {"penalty": self.params.penalty, "l1_ratio": self.l1_share}
