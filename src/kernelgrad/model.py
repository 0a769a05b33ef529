"""A fitted model, and the fit that it comes from, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad import quality
from kernelgrad.calibration import Calibration, Responses, keep_argmax
from kernelgrad.choice import Choice
from kernelgrad.compute.backend import CPU, device_or_cpu
from kernelgrad.data import Batch, BatchSource
from kernelgrad.files.records import Record
from kernelgrad.functions.attributions import (
    Explanation,
    gradients,
    partial_dependence,
    shapley_values,
    variance_shares,
)  # fmt: skip
from kernelgrad.functions.expansions import Expansion, SupportExpansion
from kernelgrad.inputs import Inputs, check_values
from kernelgrad.posterior import Posterior
from kernelgrad.quality import Intervals, Seen, Unseen, intervals
from kernelgrad.solvers import State
from kernelgrad.solvers.history import Entries
from kernelgrad.tasks import Classification, ScaledColumn, Task
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad.validation import CapabilityError, DataError

# Sums over a batch of a source, from the task, the batch and its responses
BatchSum = Callable[..., Float64Array]


@dataclass(frozen=True)
class Model:
    """Columns, task, function and what makes probabilities or variances: all that predicts.

    It is what files hold, ONNX exports, and workers get. A prediction reads the rows, applies
    the function, the calibration, and the task.
    """

    inputs: Inputs
    task: Task
    function: Expansion
    calibration: Calibration | None = None
    posterior: Posterior | None = None
    device: str = CPU
    sample: Matrix | None = None  # some training rows, as functions take them
    shares: Float64Array | None = None  # importances of a file without the sample

    def responses(self, X: Any) -> Iterator[Float64Array]:
        """Yield f(X), (n, C): of arrays at once, of a source in chunks."""
        if not isinstance(X, BatchSource):
            yield self.values(self.inputs.read(X))
            return
        self.inputs.check_source(X)
        unseen: Counter[int] = Counter()
        for batch in X.chunks(prefetch=not X.in_memory):
            yield self.values(self.inputs.read(batch.X, source=True, unseen=unseen))
        self.inputs.warn_of(unseen)

    def values(self, rows: Matrix) -> Float64Array:
        """Return f, (n, C), of rows as functions take them."""
        self.function.set_device(device_or_cpu(self.device))
        values: Float64Array = self.function.raw_prediction(rows)
        check_values(values, "The model has no finite value")
        return values

    @cached_property
    def importances(self) -> Float64Array:
        """The share of each column of X in the variance of f."""
        if self.shares is not None:
            return self.shares
        columns = self.inputs.groups, self.inputs.n_features
        return variance_shares(self.function, self.background(None), *columns)

    def background(self, X: Any) -> Matrix:
        """Return rows as functions take them, or those of the fit."""
        if X is not None:
            return self.inputs.read(X)
        if self.sample is None:
            raise CapabilityError(
                "The model has no sample of training rows: its kernel is precomputed, or its "
                "file is of an earlier version; fit it again, to rows."
            )
        return self.sample

    def describe_sample(self) -> dict[str, AnyArray]:
        """Return the sample as arrays; where a file holds no other rows, the importances."""
        X = self.sample
        if X is None or not self.function.n_support:
            shares = self.shares if X is None else self.importances
            return {} if shares is None else {"shares": shares}
        if sp.issparse(X):
            return {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        return {"rows": X}

    def with_sample(self, record: Record) -> Model:
        """Return the model with what :meth:`describe_sample` described."""
        d = record.sizes["d"]
        X = record.csr("", "examples", d) if "data" in record else None
        rows = record.array("rows", "examples", d, optional=True)
        shares = record.array("shares", self.inputs.n_features, least=0.0, optional=True)
        record.close()
        return replace(self, sample=rows if X is None else X, shares=shares)

    def explain(self, X: Any, background: Any) -> Explanation:
        inputs, rows = self.inputs, self.inputs.read(X)
        columns = inputs.groups, inputs.n_features
        others = self.background(background)
        values, base, error = shapley_values(self.function, rows, others, *columns)
        scale, centre = self._units
        bases = _of_outputs(np.tile(centre + scale * base, (len(values), 1)))
        numbers = [f"x{j}" for j in range(inputs.n_features)]
        data = X.toarray() if sp.issparse(X) else np.asarray(X)
        named = numbers if inputs.names is None else [str(name) for name in inputs.names]
        return Explanation(_of_outputs(scale * values), bases, data, named, scale * error)

    def gradient(self, X: Any) -> Float64Array:
        codes = self.inputs.codes(X)[0]
        slopes, table = gradients(self.function, self.inputs.encode(codes)), self.inputs.table
        if table is not None:
            by_column = np.full((len(codes), self.inputs.n_features, slopes.shape[2]), np.nan)
            by_column[:, table.numbers] = slopes[:, : len(table.numbers)]
            by_column[np.isnan(codes)] = np.nan
            slopes = by_column
        return _of_outputs(self._units[0] * slopes)

    def partial_dependence(self, X: Any, feature: Any, background: Any) -> Float64Array:
        inputs, others = self.inputs, self.background(background)
        own = inputs.groups == inputs.number(feature)
        values = partial_dependence(self.function, inputs.read(X), others, own)
        scale, centre = self._units
        return _of_outputs(centre + scale * values)

    @property
    def _units(self) -> tuple[float, float]:
        """Factor and constant by which f has the units of the targets, where it has them."""
        task = self.task
        return (task.scale, task.centre) if isinstance(task, ScaledColumn) else (1.0, 0.0)

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
            p = self.calibration.proba(task.class_responses(raw))
        return keep_argmax(p, task.decide(raw))

    @property
    def has_proba(self) -> bool:
        return self.task.has_own_proba or self.calibration is not None

    def outcome(self, raw: Float64Array) -> AnyArray:
        """Return f, or probabilities of classes; 0 and 1 where there are none."""
        task = self.task
        if not isinstance(task, Classification):
            return raw
        if self.has_proba:
            return self.probabilities(raw).astype(np.float32)
        return np.eye(len(task.classes), dtype=np.float32)[task.decide(raw)]

    def log_proba(self, X: Any) -> Float64Array:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.proba(X)))

    def bounds(self, parts: list[Intervals], coverage: float, X: Any) -> Float64Array:
        return joined(
            quality.predicted(parts, self.task, f, coverage) for f in self.responses(X)
        )

    def sets(self, unseen: Unseen, coverage: float, X: Any) -> AnyArray:
        return joined(
            quality.likely(unseen, self.outcome(f), coverage) for f in self.responses(X)
        )

    def unseen(self, rows: TrainingRows, numbers: IntArray, source: str) -> Unseen | None:
        """Return rows that the function has not seen, with its responses; None without any."""
        X, y, weight, _ = rows.usable(rows.source.take(numbers))
        if not len(y):
            return None
        values, proba = self.outcome(self.values(X)), self.has_proba
        unseen = Unseen(values, y, weight, source, is_final=True, has_proba=proba)
        return quality.without_classes(unseen, self.task)

    def summed(self, source: BatchSource, measure: BatchSum, *args: Any) -> Float64Array:
        """Return the sum of a measure over the batches of a source, run where they are."""
        if not source.has_target:
            raise DataError("The source has no target to score against.")
        self.inputs.check_source(source)
        parts = source.map_chunks(partial(_measured, self, measure, args))
        return np.asarray(reduce(np.add, parts))


def _measured(model: Model, measure: BatchSum, args: tuple[Any, ...], batch: Batch) -> Any:
    raw = model.values(model.inputs.read(batch.X, source=True))
    return measure(model.task, batch, raw, *args)


def _of_outputs(values: Float64Array) -> Float64Array:
    """Return values without the last axis if there is one output."""
    return values[..., 0] if values.shape[-1] == 1 else values


def joined(parts: Iterator[AnyArray]) -> AnyArray:
    """Return all parts as one array, a single one as it is."""
    arrays = list(parts)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


@dataclass(frozen=True)
class Fit:
    """A model, what was chosen for it, and the state from which a fit goes on."""

    model: Model
    choice: Choice
    state: State | None  # None in models of files that were written without it
    history: Any
    status: str
    n_iter: int
    best_iteration: int
    best_score: float | None = None
    latest: Responses | None = None  # responses to the latest rows of a stream
    extras: dict[str, Any] = field(default_factory=dict)  # further fitted attributes
    held_out: Unseen | None = None  # the fit held these rows out, or a caller gave them later
    seen: Seen | None = None  # an exact fit has these, and `leave_one_out` comes from them
    saved_leave_one_out: Unseen | None = None  # a file holds these in place of `seen`

    @cached_property
    def leave_one_out(self) -> Unseen | None:
        """All rows, each without itself; None where the fit is not exact or has many rows."""
        model, seen, saved = self.model, self.seen, self.saved_leave_one_out
        if saved or seen is None or not isinstance(model.function, SupportExpansion):
            return saved
        try:
            raw = quality.leave_one_out(model.function, model.task, seen)
        except np.linalg.LinAlgError:
            return None
        values = model.outcome(raw)
        unseen = Unseen(
            values, seen.y, seen.weight, quality.LOO, order=seen.order,
            has_proba=model.has_proba,
        )  # fmt: skip
        return quality.without_classes(unseen, model.task) if np.isfinite(raw).all() else None

    @cached_property
    def unseen(self) -> Unseen | None:
        """The rows that tell most of errors on new rows; None without any."""
        if self.held_out is not None and self.held_out.is_final:
            return self.held_out
        responses, task = self.choice.calibration, self.model.task
        if self.leave_one_out is not None or self.held_out is not None:
            return self.leave_one_out or self.held_out
        if responses is None or not isinstance(task, Classification):
            return None
        return quality.from_calibration(responses, task)

    @cached_property
    def quality(self) -> quality.Quality | None:
        """What the model is worth on new rows, or None."""
        if self.unseen is None:
            return None
        other = self.held_out if self.unseen is self.leave_one_out else None
        return quality.quality(self.unseen, self.model.task, other)

    @cached_property
    def intervals(self) -> list[Intervals]:
        """Intervals of the outputs of a regressor, of which there are none without rows."""
        if self.unseen is None:
            return []
        return intervals(self.unseen, self.model.task, self.leave_one_out)

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
            "history_": Entries(self.history),
            "n_iter_": self.n_iter,
            "best_iteration_": self.best_iteration,
            "best_score_": self.best_score,
            "fit_status_": self.status,
            **self.extras,
        }
