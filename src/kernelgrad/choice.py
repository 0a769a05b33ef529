"""What a fit decides before its first iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from kernelgrad.files.records import Record, anything, check_text, or_none
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Kernel, describe_kernel, restore_kernel
from kernelgrad.losses import Loss
from kernelgrad.packing import pack, unpack
from kernelgrad.solvers import Problem, Solver, check_history
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Contents
from kernelgrad.validation import check_bool, check_int, check_real

GIVEN = "given as a parameter"


@dataclass(frozen=True)
class Choice:
    """Solver, kernel, scaling and penalty of a fit; a checkpoint holds it beside the state.

    Attributes
    ----------
    seed : int
        Seed of features, batches, folds and subsets.
    solver : Solver
    reason : str
        Why this solver.
    kernel : Kernel or None
        None is the kernel of the parameters.
    scaling : InputScaling or None
        None is learned from the first batch.
    loss : Loss or None
        Loss that a search chose; None is that of the parameters.
    alpha : float
        Weight of the penalty; NaN is not known yet.
    max_iter : int
        Iterations of the fit.
    entries : dict
        Entries of ``history_`` that the search found.
    seconds : float
        Seconds of the search and of fits to parts of the rows.
    is_complete : bool
        False before fits to parts of the rows, which calibrate and choose `max_iter`.
    best_score : float or None
        Score of cross-validation.
    variances : (float, float) or None
        Variances of noise and of the signal of a Gaussian process, in squared units of y.
    arrays : dict of arrays
        Responses ``z``, ``y``, ``w`` to calibrate on, or ``sigmoids`` (C, 2).
    """

    seed: int
    solver: Solver[Any]
    reason: str
    kernel: Kernel | None = None
    scaling: InputScaling | None = None
    loss: Loss | None = None
    alpha: float = float("nan")
    max_iter: int = 0
    entries: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    is_complete: bool = False
    best_score: float | None = None
    variances: tuple[float, float] | None = None
    arrays: dict[str, AnyArray] = field(default_factory=dict)

    def applied(self, problem: Problem) -> Problem:
        """Return the problem with the chosen kernel, scaling and penalty."""
        kernel = problem.kernel if self.kernel is None else self.kernel
        scaling = problem.scaling if self.scaling is None else self.scaling
        loss = problem.loss if self.loss is None else self.loss
        return replace(problem, kernel=kernel, scaling=scaling, alpha=self.alpha, loss=loss)

    def scored(self, rows: TrainingRows) -> TrainingRows:
        """Return the rows with the loss that was chosen."""
        if self.loss is None:
            return rows
        return replace(rows, task=rows.task.with_loss(self.loss))

    def describe(self) -> Contents:
        """Return the choice as plain values and arrays, for checkpoints."""
        values = {
            "seed": self.seed, "solver": pack(self.solver), "reason": self.reason,
            "kernel": None if self.kernel is None else describe_kernel(self.kernel),
            "scaled": self.scaling is not None, "alpha": self.alpha,
            "max_iter": self.max_iter, "entries": self.entries, "seconds": self.seconds,
            "best_score": self.best_score, "is_complete": self.is_complete,
            "loss": None if self.loss is None else pack(self.loss),
            "variances": None if self.variances is None else list(self.variances),
        }  # fmt: skip
        arrays = {f"of.{name}": array for name, array in self.arrays.items()}
        return values, arrays | ({} if self.scaling is None else dict(self.scaling.arrays()))

    @classmethod
    def restore(
        cls,
        record: Record,
        solver: Solver[Any] | None,
        width: int,
        arrays: Callable[[Record], dict[str, AnyArray]],
    ) -> Self:
        """Return the choice that :meth:`describe` described.

        `solver` is the one of the parameters: objects of third parties need no name. The
        function `arrays` takes the arrays of the family from their record.
        """
        packed, kernel = record.take("solver", anything), record.take("kernel", anything)
        if solver is None:
            solver = unpack(packed)
            if not isinstance(solver, Solver):
                raise record.error(f"holds {solver!r} as the solver")
        loss = record.take("loss", anything, None)
        loss = None if loss is None else unpack(loss)
        if not isinstance(loss, Loss | None):
            raise record.error(f"holds {loss!r} as the loss")
        number, variances = partial(check_real, low=0.0), record.take("variances", anything)
        if variances is not None:
            noise, signal = (number(value, "a variance") for value in variances)
            variances = noise, signal
        part = record.part("of")
        own = arrays(part)
        part.close()
        scaling = InputScaling.restore(record, width)
        return cls(
            seed=record.take("seed", partial(check_int, high=2**32)),
            solver=solver,
            reason=record.take("reason", check_text),
            kernel=None if kernel is None else restore_kernel(kernel),
            scaling=scaling if record.take("scaled", check_bool) else None,
            loss=loss,
            alpha=record.take("alpha", number),
            max_iter=record.take("max_iter", partial(check_int, low=1)),
            entries=record.take("entries", check_history),
            seconds=record.take("seconds", number),
            is_complete=record.take("is_complete", check_bool),
            best_score=record.take("best_score", or_none(check_real)),
            variances=variances,
            arrays=own,
        )
