"""A fitted model, and the fit that it comes from, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from kernelgrad import quality
from kernelgrad.calibration import Calibration, Responses, Sigmoids, keep_argmax
from kernelgrad.choice import Choice
from kernelgrad.compute.backend import CPU, device_or_cpu
from kernelgrad.data import Batch, BatchSource
from kernelgrad.functions.expansions import Expansion, SupportExpansion
from kernelgrad.inputs import Inputs, check_values
from kernelgrad.intervals import Intervals, intervals
from kernelgrad.posterior import Posterior
from kernelgrad.quality import Judges, Seen
from kernelgrad.solvers import State
from kernelgrad.tasks import Classification, Task
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import DataError

# Sums over a batch of a source, from the task, the batch and its responses
Measure = Callable[..., Float64Array]


@dataclass(frozen=True)
class Model:
    """Columns, task, function and what makes probabilities or variances: all that predicts.

    It is what files hold, ONNX exports, and workers get. A prediction reads the rows, applies
    the function, the calibration, and the task.
    """

    inputs: Inputs
    task: Task
    function: Expansion
    calibration: Calibration | Sigmoids | None = None
    posterior: Posterior | None = None
    device: str = CPU

    def responses(self, X: Any) -> Iterator[Float64Array]:
        """Yield f(X), (n, C): of arrays at once, of a source in chunks."""
        if not isinstance(X, BatchSource):
            yield self.values(self.inputs.read(X))
            return
        self.inputs.check_source(X)
        for batch in X.chunks(prefetch=not X.in_memory):
            yield self.values(self.inputs.read(batch.X, source=True))

    def values(self, rows: Matrix) -> Float64Array:
        """Return f, (n, C), of rows as functions take them."""
        self.function.set_device(device_or_cpu(self.device))
        values: Float64Array = self.function.raw_prediction(rows)
        check_values(values, "The model has no finite value")
        return values

    def raw(self, X: Any) -> Float64Array:
        return joined(self.responses(X))

    def predict(self, X: Any) -> AnyArray:
        return joined(self.task.predict(raw) for raw in self.responses(X))

    def decision(self, X: Any) -> Float64Array:
        return self.task.decision(self.raw(X))

    def proba(self, X: Any) -> Float64Array:
        """Return probabilities (n, K)."""
        return self.probabilities(self.raw(X))

    def probabilities(self, raw: Float64Array) -> Float64Array:
        """Return probabilities (n, K) of responses f (n, C); `predict` takes the largest."""
        task = self.task
        assert isinstance(task, Classification)
        if self.calibration is None:
            p = np.asarray(task.loss.predict_proba(raw), np.float64)
        else:
            p = self.calibration.apply(task, raw)
        return keep_argmax(p, task.decide(raw))

    def outcome(self, raw: Float64Array) -> AnyArray:
        """Return f, or probabilities of classes; 0 and 1 where there are none."""
        task = self.task
        if not isinstance(task, Classification):
            return raw
        if task.has_own_proba or self.calibration is not None:
            return self.probabilities(raw).astype(np.float32)
        return np.eye(len(task.classes), dtype=np.float32)[task.decide(raw)]

    def log_proba(self, X: Any) -> Float64Array:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.proba(X)))

    def summed(self, source: BatchSource, measure: Measure, *args: Any) -> Float64Array:
        """Return the sum of a measure over the batches of a source, run where they are."""
        if not source.has_target:
            raise DataError("The source has no target to score against.")
        self.inputs.check_source(source)
        parts = source.map_chunks(partial(_measured, self, measure, args))
        return np.asarray(reduce(np.add, parts))


def _measured(model: Model, measure: Measure, args: tuple[Any, ...], batch: Batch) -> Any:
    raw = model.values(model.inputs.read(batch.X, source=True))
    return measure(model.task, batch, raw, *args)


def joined(parts: Iterator[AnyArray]) -> AnyArray:
    """Return all parts as one array, a single one as it is."""
    arrays = list(parts)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


@dataclass(frozen=True)
class Fit:
    """A model, what was chosen for it, and the state from which a fit goes on.

    Attributes
    ----------
    model : Model
    choice : Choice
    state : State or None
        None in models of files that were written without it.
    history : History
    status : str
    n_iter, best_iteration : int
    best_score : float or None
    latest : Responses or None
        Responses of the latest rows of a stream, to calibrate on.
    extras : dict
        Further fitted attributes.
    judges : Judges or None
        Rows that the fit held out.
    seen : Seen or None
    """

    model: Model
    choice: Choice
    state: State | None
    history: Any
    status: str
    n_iter: int
    best_iteration: int
    best_score: float | None = None
    latest: Responses | None = None
    extras: dict[str, Any] = field(default_factory=dict)
    judges: Judges | None = None
    seen: Seen | None = None

    @cached_property
    def left_out(self) -> Judges | None:
        """All rows, each without itself; None where the fit is not exact or has many rows."""
        seen, function, task = self.seen, self.model.function, self.model.task
        if seen is None or not isinstance(function, SupportExpansion):
            return None
        try:
            raw = quality.leave_one_out(function, task, seen)
        except np.linalg.LinAlgError:
            return None
        values = self.model.outcome(raw)
        judges = Judges(values, seen.y, seen.weight, quality.LOO, order=seen.order)
        return quality.without_classes(judges, task) if np.isfinite(raw).all() else None

    @cached_property
    def unseen(self) -> Judges | None:
        """The rows that tell most of errors on new rows; None without any."""
        if self.judges is not None and self.judges.is_final:
            return self.judges
        responses, task = self.choice.calibration, self.model.task
        if self.left_out is not None or self.judges is not None:
            return self.left_out or self.judges
        if not isinstance(responses, tuple):
            return None
        assert isinstance(task, Classification)
        return quality.from_calibration(responses, task)

    @cached_property
    def quality(self) -> quality.Quality | None:
        """What the model is worth on new rows, or None."""
        if self.unseen is None:
            return None
        other = self.judges if self.unseen is self.left_out else None
        return quality.quality(self.unseen, self.model.task, other)

    @cached_property
    def intervals(self) -> list[Intervals]:
        """Intervals of the outputs of a regressor, of which there are none without rows."""
        if self.unseen is None:
            return []
        return intervals(self.unseen, self.model.task, self.left_out)

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes that every estimator has."""
        model = self.model
        return {
            **model.inputs.attributes(),
            **model.task.attributes(),
            "expansion_": model.function,
            "intercept_": model.function.intercept,
            "loss_": model.task.loss,
            "solver_": self.choice.solver,
            "history_": self.history,
            "n_iter_": self.n_iter,
            "best_iteration_": self.best_iteration,
            "best_score_": self.best_score,
            "fit_status_": self.status,
            **self.extras,
        }
