"""Functions of rows alone: what is ordinary, and the ratio of two densities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from kernelgrad.choice import Choice
from kernelgrad.compute.linalg import stacked
from kernelgrad.compute.rng import draws
from kernelgrad.data import ArraySource, Batch, BatchSource
from kernelgrad.families.kernel import KernelSpec
from kernelgrad.families.reading import Data, Reader, Run, checked_weights
from kernelgrad.files.records import Record, check_labels
from kernelgrad.functions.expansions import Expansion
from kernelgrad.inputs import Inputs
from kernelgrad.kernels import Kernel, get_kernel
from kernelgrad.losses import Loss, OneClass, RatioLoss, get_loss
from kernelgrad.losses.base import Task as LossTask
from kernelgrad.model import Fit, Model
from kernelgrad.solvers import DSG, Solver, TrainBatch
from kernelgrad.tasks import Targets, Task, weights_of
from kernelgrad.training_rows import MAX_VALIDATION_ROWS, PairedRows, TrainingRows
from kernelgrad.types import AnyArray, Float64Array, FloatArray, IntArray, Matrix
from kernelgrad.validation import CapabilityError, DataError

_NEEDS_BOTH = (
    "A density ratio needs two samples: give fit(X_p, denominator=X_q), or all rows and their "
    "sample as y"
)


@dataclass(frozen=True)
class NoTargets(Task):
    """Rows alone."""

    loss: Loss
    has_targets: ClassVar[bool] = False

    def internal(self, y: AnyArray) -> AnyArray:
        return np.zeros(len(y))

    def encode(self, y: AnyArray) -> FloatArray:
        return np.zeros((len(y), 1), np.float32)

    def columns(self, y: AnyArray) -> None:
        return None

    def predict(self, raw: Float64Array) -> AnyArray:
        return raw.ravel()


class Novelty(NoTargets):
    """Rows to learn what is ordinary."""

    def predict(self, raw: Float64Array) -> IntArray:
        return np.where(raw.ravel() >= 0, 1, -1)


@dataclass(frozen=True)
class RatioSamples(NoTargets):
    """Two samples; ``samples`` are the values of y for denominator and numerator, (2,)."""

    loss: RatioLoss
    samples: AnyArray | None = None

    def predict(self, raw: Float64Array) -> Float64Array:
        return np.asarray(self.loss.ratio(raw.ravel()), np.float64)

    def attributes(self) -> dict[str, Any]:
        return {"samples_": self.samples}

    @classmethod
    def restore(cls, record: Record, loss: Loss, owner: str) -> Self:
        assert isinstance(loss, RatioLoss)
        return cls(loss, record.take("samples_", check_labels, None))


@dataclass(frozen=True)
class WithoutTargets(Targets):
    """Rows alone, or samples of rows: y is nothing that a function fits."""

    task_type: type[NoTargets]  # type: ignore[misc]
    kind: LossTask  # type: ignore[misc]
    required: ClassVar[bool] = False
    encode_levels: ClassVar[bool] = False

    def learn(self, y: AnyArray | BatchSource, declared: AnyArray | None = None) -> NoTargets:
        return self.task_type(get_loss(self.loss, task=self.kind))


@dataclass(frozen=True)
class TwoSamples(PairedRows):
    """Rows of the numerator, and `other` rows of the denominator."""

    clock = 0

    def ordered(self, limit: int | None) -> TwoSamples:
        half = None if limit is None else max(1, limit // 2)
        p, q = (
            TrainingRows(source, self.task, self.is_internal).ordered(half).source
            for source in self.sources
        )
        return replace(self, source=p, other=q)

    def join(self, one: Batch, two: Batch | None = None) -> TrainBatch:
        X, weights = [], []
        for batch in (one, two):
            assert batch is not None
            w = weights_of(batch)
            keep = np.flatnonzero(w > 0)
            if len(keep) == 0:
                raise DataError(
                    "All weights of a batch are zero; drop such rows of the source."
                )
            X.append(batch.X if len(keep) == len(w) else batch.X[keep])
            weights.append(w[keep] / (2.0 * w.sum()))
        sizes = [len(w) for w in weights]
        y = np.repeat([1.0, -1.0], sizes)[:, None].astype(np.float32)
        return TrainBatch(stacked(X), y, sum(sizes) * np.concatenate(weights))


class NoveltySpec(KernelSpec):
    """One-class machines: the level is the nu-quantile of f, or the solver's own."""

    def named(self, gamma: Any) -> Kernel:
        if gamma != "auto":
            return super().named(gamma)
        width = 0.5 * float(self.params.bandwidth_factor)
        return get_kernel(self.params.kernel, gamma="median", bandwidth_factor=width)

    def make_solver(self, chosen: Any) -> Solver[Any]:
        solver = super().make_solver(chosen)
        if self.params.tau == "steps" and not isinstance(solver, DSG):
            raise CapabilityError(
                f"tau='steps' is for the dsg family, not for solver {solver.name!r}; leave "
                "tau='quantile', or give solver='dsg'."
            )
        return solver

    def check(self) -> None:
        super().check()
        # Blocks of four times as many frequencies change no score and cost four times as much.
        self.dsg_params = {
            "preconditioned": False, "step_size": 1.0 / float(self.params.nu), "decay": 2.0,
            "momentum": 0.0, "average": None, "block_size": 256, "batch_size": 8192,
        }  # fmt: skip

    def check_start(self, before: Fit | None) -> None:
        loss: Any = None if before is None else before.model.task.loss
        if loss is not None and float(loss.nu) != float(self.params.nu):
            raise ValueError(
                f"nu changed from {loss.nu!r} to {self.params.nu!r} in the middle of a fit; "
                "set it back, or fit a new estimator."
            )
        super().check_start(before)

    def alpha(self, rows: TrainingRows) -> float:
        # the objective's own scale: another alpha rescales f and tau
        return float(self.params.nu)

    def model(
        self, rows: TrainingRows, choice: Choice, function: Expansion, run: Run
    ) -> tuple[Model, None]:
        """Return the model whose level is the nu-quantile of f over the rows it saw."""
        model = Model(rows.inputs, rows.task, function, device=self.params.device)
        if self.params.tau == "steps":
            return model, None
        members = rows.sample(MAX_VALIDATION_ROWS, draws(choice.seed, 0x6C766C))
        X, _, weight, _ = rows.usable(rows.source.take(members))
        loss = rows.task.loss
        assert isinstance(loss, OneClass)
        function = function.copy()  # the solver goes on with a level of its own
        function.intercept = np.zeros(1)
        if len(weight):
            function.intercept = -loss.level(function.raw_prediction(X), weight)
        elif run.model is not None:  # no row that counts: the level stays
            function.intercept = run.model.function.intercept
        return replace(model, function=function), None

    def attributes(self, fit: Fit) -> dict[str, Any]:
        offset = -float(fit.model.function.intercept[0])
        return super().attributes(fit) | {"offset_": offset}


class RatioReader(Reader):
    """Reads two samples, of two sources or told apart by y."""

    def read(self, data: Data, run: Run) -> TwoSamples:
        before = run.model
        inputs, p, q, values = self.two_sources(data, run.seed, before)
        task = self.spec.targets.learn(p)
        assert isinstance(task, RatioSamples)
        samples = values if before is None else before.task.attributes()["samples_"]
        task = replace(task, samples=samples)
        arrays = not isinstance(data.X, BatchSource)
        if arrays:
            for sample in (p, q):
                self.spec.check_rows(inputs, sample.read(0, sample.n_rows).X)
        return TwoSamples(p, task, arrays, inputs=inputs, other=q)

    def two_sources(
        self, data: Data, seed: int, before: Model | None
    ) -> tuple[Inputs, BatchSource, BatchSource, Any]:
        """Return the columns, numerator, denominator, and the values that tell them apart."""
        X, y, sample_weight, denominator = data
        if denominator is not None and y is not None:
            raise ValueError(f"{_NEEDS_BOTH}, not both y and denominator.")
        if isinstance(X, BatchSource) or isinstance(denominator, BatchSource):
            if not (isinstance(X, BatchSource) and isinstance(denominator, BatchSource)):
                raise ValueError(
                    f"{_NEEDS_BOTH}; a BatchSource needs another one as denominator."
                )
            if sample_weight is not None:
                raise ValueError("A BatchSource carries its own weights; leave them out.")
            inputs = self.inputs_of(X, before)
            inputs.check_source(denominator)
            task = self.spec.targets.learn(X) if before is None else None
            inputs, p = self.encoded_source(X, inputs, seed, task)
            _, q = self.encoded_source(denominator, inputs, seed, None)
            return inputs, p, q, np.array([0, 1])
        if denominator is None and y is None:
            raise ValueError(
                "requires y to be passed, but the target y is None: " + _NEEDS_BOTH + "."
            )
        shape = () if y is None else np.asarray(y).shape
        if len(shape) == 2 and shape[1] > 1:
            raise ValueError(f"{_NEEDS_BOTH}, one value a row; y has shape {shape}.")
        if before is None:
            inputs, codes, y = self.learned(X, y)
            X = inputs.fitted(codes)
        else:
            inputs = before.inputs
            codes, y = inputs.codes(X, y)
            X = inputs.encode(codes)
        weight = checked_weights(sample_weight, X)
        if denominator is not None:
            Z = inputs.read(denominator)
            return inputs, *_sources(X, weight, Z, np.ones(Z.shape[0])), np.array([0, 1])
        y = np.asarray(y)
        values = np.unique(y[weight > 0])
        if before is not None:
            assert isinstance(before.task, RatioSamples)
            samples = np.asarray(before.task.samples)
            strange = np.setdiff1d(values, samples)
            if len(strange):
                raise ValueError(
                    f"y holds {strange[:5]}, but the samples of the fit are "
                    f"{samples} (denominator, numerator)."
                )
        if len(values) != 2:
            raise ValueError(
                f"y must have two distinct values, one per sample, got {len(values)} "
                f"class(es): {values[:5]}."
            )
        p, q = y == values[1], y != values[1]
        return inputs, *_sources(X[p], weight[p], X[q], weight[q]), values


class RatioSpec(KernelSpec):
    """The ratio of the densities of two samples."""

    reader_type = RatioReader
    # Blocks of 1,024 frequencies were no more accurate and cost twelve times as much.
    dsg_params = {"block_size": 256, "batch_size": 8192}  # noqa: RUF012

    def alpha(self, rows: TrainingRows) -> float:
        return float(self.params.alpha)

    def score(self, model: Model, data: Data) -> float:
        """Return the bound of the divergence of two samples under a model."""
        task = model.task
        assert isinstance(task, RatioSamples)
        loss, means = task.loss, []
        sources = RatioReader(self).two_sources(data, 0, model)[1:3]
        for sign, source in zip((1.0, -1.0), sources, strict=True):
            total, weight = 0.0, 0.0
            for batch in source.chunks():
                w = weights_of(batch)
                f = loss.feasible(model.function.raw_prediction(batch.X))
                total += float(w @ loss.value(np.full(f.shape, sign), f))
                weight += float(w.sum())
            if not weight > 0:
                raise DataError("A sample has no row of positive weight to score on.")
            means.append(total / weight)
        return float(loss.bound) - means[0] - means[1]


def _sources(
    X: Matrix, w: Float64Array, Z: Matrix, v: Float64Array
) -> tuple[ArraySource, ArraySource]:
    p, q = (ArraySource(R, np.zeros(len(u)), u, checked=True) for R, u in ((X, w), (Z, v)))
    return p, q
