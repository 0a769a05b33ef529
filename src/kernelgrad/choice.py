"""What a fit decides before its first iteration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from kernelgrad.calibration import Responses, restored_responses
from kernelgrad.files.container import prefixed
from kernelgrad.files.records import Record, anything, check_text
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Kernel, describe_kernel, restore_kernel
from kernelgrad.losses import Loss
from kernelgrad.packing import pack, unpack
from kernelgrad.quality import Unseen
from kernelgrad.solvers import Problem, Solver, check_history
from kernelgrad.tasks import Classification, Task
from kernelgrad.types import AnyArray, Contents
from kernelgrad.validation import check_bool, check_int, check_real

GIVEN, SUPERVISED = "given as a parameter", "no unlabelled rows"
_RESPONSES = ("responses", "codes", "weights")  # names of the arrays in checkpoints


@dataclass(frozen=True)
class Choice:
    """Solver, kernel, scaling and penalty of a fit; a checkpoint holds it beside the state."""

    seed: int  # for features, batches, folds and subsets
    solver: Solver[Any]
    reason: str  # why this solver
    kernel: Kernel | None = None  # None is the kernel of the parameters
    scaling: InputScaling | None = None  # None is learned from the first batch
    loss: Loss | None = None  # what a search chose; None is the loss of the parameters
    alpha: float = float("nan")  # weight of the penalty; NaN is not known yet
    max_iter: int = 0
    entries: dict[str, Any] = field(default_factory=dict)  # what the search adds to `history_`
    seconds: float = 0.0  # seconds of the search and of fits to parts of the rows
    is_complete: bool = False  # False before the fits to parts, which calibrate
    # variances of noise and signal of a Gaussian process, in squared units of y
    variances: tuple[float, float] | None = None
    calibration: Responses | None = None  # responses to calibrate on
    unseen: Unseen | None = None  # rows that the search held out

    def applied(self, problem: Problem) -> Problem:
        """Return the problem with the chosen kernel, scaling, penalty and loss."""
        kernel = problem.kernel if self.kernel is None else self.kernel
        scaling = problem.scaling if self.scaling is None else self.scaling
        loss = problem.loss if self.loss is None else self.loss
        return replace(problem, kernel=kernel, scaling=scaling, alpha=self.alpha, loss=loss)

    def describe(self) -> Contents:
        """Return the choice as plain values and arrays, for checkpoints."""
        values = {
            "seed": self.seed, "solver": pack(self.solver), "reason": self.reason,
            "kernel": None if self.kernel is None else describe_kernel(self.kernel),
            "scaled": self.scaling is not None, "alpha": self.alpha,
            "max_iter": self.max_iter, "entries": self.entries, "seconds": self.seconds,
            "is_complete": self.is_complete,
            "loss": pack(self.loss),
            "variances": None if self.variances is None else list(self.variances),
        }  # fmt: skip
        arrays: dict[str, AnyArray] = {}
        if self.scaling is not None:
            arrays |= self.scaling.arrays()
        if self.calibration is not None:
            arrays |= zip(_RESPONSES, self.calibration, strict=True)
        if self.unseen is not None:
            values["judges"], own = self.unseen.describe()
            arrays |= prefixed("judges", own)
        return values, arrays

    @classmethod
    def restore(
        cls, record: Record, solver: Solver[Any] | None, width: int, task: Task
    ) -> Self:
        """Return the choice; a `solver` of the parameters needs no name in files."""
        packed, kernel = record.take("solver", anything), record.take("kernel", anything)
        reason = record.take("reason", check_text)
        if solver is None or reason == SUPERVISED:
            solver = unpack(packed)
            if not isinstance(solver, Solver):
                raise record.error(f"holds {solver!r} as the solver")
        loss = unpack(record.take("loss", anything))
        if not isinstance(loss, Loss | None):
            raise record.error(f"holds {loss!r} as the loss")
        number, variances = partial(check_real, low=0.0), record.take("variances", anything)
        if variances is not None:
            noise, signal = (number(value, "a variance") for value in variances)
            variances = noise, signal
        calibration = None
        if isinstance(task, Classification):
            calibration = restored_responses(record, len(task.classes), _RESPONSES)
        scaling = InputScaling.restore(record, width)
        return cls(
            seed=record.take("seed", partial(check_int, high=2**32)),
            solver=solver,
            reason=reason,
            kernel=None if kernel is None else restore_kernel(kernel),
            scaling=scaling if record.take("scaled", check_bool) else None,
            loss=loss,
            alpha=record.take("alpha", number),
            max_iter=record.take("max_iter", partial(check_int, low=1)),
            entries=record.take("entries", check_history),
            seconds=record.take("seconds", number),
            is_complete=record.take("is_complete", check_bool),
            variances=variances,
            calibration=calibration,
            unseen=Unseen.restore(record.part("judges"), task),
        )
