"""Classes of few labelled and many unlabelled rows."""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from kernelgrad import losses, partly_labelled
from kernelgrad.callbacks import Deadline, TimeIsUp
from kernelgrad.choice import SUPERVISED, Choice
from kernelgrad.compute.compiling import clock
from kernelgrad.compute.threads import at_most, single_threaded_blas
from kernelgrad.data import ArraySource, BatchSource
from kernelgrad.data.sampling import folds
from kernelgrad.families.held_out import fitted_aside
from kernelgrad.families.kernel import KernelSpec
from kernelgrad.families.reading import Data, Reader, Run
from kernelgrad.files.records import Record
from kernelgrad.inputs import Inputs
from kernelgrad.kernels import Matern
from kernelgrad.model import Fit
from kernelgrad.partly_labelled import NO_LABEL, MarkedClassification, SemiSupervisedRows
from kernelgrad.search.auto import slowness
from kernelgrad.search.pool import SearchSpace, study_tasks
from kernelgrad.search.search import search
from kernelgrad.solvers import (
    DSG,
    BlockDescent,
    Problem,
    Resources,
    SoftLabels,
    Solver,
    get_solver,
)
from kernelgrad.tasks import Task, decide
from kernelgrad.training_rows import TrainingRows, no_rows
from kernelgrad.types import AnyArray, IntArray
from kernelgrad.validation import DataError, warn_caller

_RATIO = 0.5  # C* over C
# parameters that a search may replace, and that say that the user did not choose
_DEFAULTS = {
    "kernel": "rbf", "gamma": "median", "bandwidth_factor": 1.0, "metric": None,
    "standardize": "auto", "C": 10.0, "C_star": "auto",
}  # fmt: skip
_SEARCH_SECONDS = 5.0  # seconds without which no kernel is learned
_FOLDS, _FEW_LABELS = 5, 200  # folds that compare; labels from which two do
_SEARCH_ROWS = 2000  # unlabelled rows beside which a learned kernel is compared
_LOADED_ROWS = 100_000  # rows of a source that soft labels take; more take minutes
_TAG = 0x6B65726E  # key of the random numbers that draw these
_VALUE_SECONDS = 1.2e-9  # seconds of one core that a kernel value takes


class SemiSupervisedReader(Reader):
    """Reads rows with and without labels, which may come apart."""

    def loads(self, source: BatchSource) -> bool:
        few = source.n_rows <= _LOADED_ROWS
        return self.spec.is_auto and few and super().loads(source)

    def read(self, data: Data, run: Run) -> TrainingRows:
        rows = super().read(data, run)
        source, task = rows.source, rows.task
        assert isinstance(task, MarkedClassification)
        if run.stream:  # C times the labelled rows so far
            batches = (rows.usable(batch)[1:3] for batch in source.chunks())
            total = sum(float(w[codes != NO_LABEL].sum()) for codes, w in batches)
            return replace(
                rows, task=replace(task, labelled_weight=task.labelled_weight + total)
            )
        extra = self.extra_rows(rows.inputs, data.other)
        options: dict[str, Any] = {"inputs": rows.inputs}
        if rows.is_internal and (extra is None or extra.in_memory):
            whole = partly_labelled.one_source([source] if extra is None else [source, extra])
            return SemiSupervisedRows(
                whole, task, True, other=None, whole_source=whole, **options
            )
        codes = [y if rows.is_internal else task.internal(y) for y in source.target_chunks()]
        labelled = np.flatnonzero(np.concatenate(codes) != NO_LABEL)
        if len(labelled) == source.n_rows:
            return SemiSupervisedRows(source, task, rows.is_internal, other=extra, **options)
        if rows.is_internal:
            raise ValueError(
                "y marks rows as unlabelled, and X_unlabelled is a source; put all "
                "unlabelled rows into the source."
            )
        if extra is not None:
            raise ValueError(
                "The source has rows marked as unlabelled, and X_unlabelled was given too; put "
                "all unlabelled rows into one of them."
            )
        batch = source.take(labelled)
        few = ArraySource(batch.X, batch.y, batch.sample_weight, checked=True)
        return SemiSupervisedRows(few, task, other=source, excluded=labelled, **options)

    def read_arrays(self, data: Data, *args: Any, **options: Any) -> TrainingRows:
        if isinstance(data.X, np.memmap):  # rows of arrays are in memory
            data = data._replace(X=np.asarray(data.X))
        return super().read_arrays(data, *args, **options)

    def extra_rows(self, inputs: Inputs, extra: Any) -> BatchSource | None:
        """Return X_unlabelled, checked, as a source."""
        if extra is None:
            return None
        if self.spec.is_pairwise:
            raise ValueError(
                "kernel='precomputed' takes one kernel matrix of all rows; mark rows without a "
                "label in y, and leave X_unlabelled out."
            )
        if isinstance(extra, BatchSource):
            inputs.check_source(extra)
            if extra.n_rows == 0:
                raise DataError("X_unlabelled has no rows.")
            if self.loads(extra):
                X = inputs.read(extra.read(0, extra.n_rows).X, source=True)
                return ArraySource(X, checked=True)
            return self.encoded_source(extra, inputs, 0, None)[1]
        rows = inputs.read(extra)
        self.spec.check_rows(inputs, rows)
        return ArraySource(rows, checked=True)


class SemiSupervisedSpec(KernelSpec):
    """Kernel machines with a loss of labelled rows and one of the others."""

    marks_rows = True
    reader_type = SemiSupervisedReader
    streaming = (
        ", or fit with solver='tsg', 'fr_s3vm' or 'bgs3vm'",
        "'tsg', 'fr_s3vm' or 'bgs3vm'",
    )

    def check(self) -> None:
        losses.get_unlabelled_loss(self.params.unlabelled_loss)
        super().check()

    def make_solver(self, chosen: Any) -> Solver[Any]:
        solver = super().make_solver(chosen)
        if isinstance(solver, DSG) and not solver.marks:
            raise ValueError(
                f"solver {solver.name!r} does not tell labelled rows from others; take "
                "'tsg', which makes the same steps on batches of either kind."
            )
        return solver

    def automatic(self, rows: TrainingRows, run: Run) -> tuple[Solver[Any], str]:
        has_features = self.kernel.has_random_features
        if run.stream or not rows.in_memory:
            why = "a stream" if run.stream else "rows on disk"
            if has_features:
                return get_solver("tsg"), why
            return get_solver("bgs3vm"), f"{why}, a kernel without random features"
        # soft labels have no unlabelled loss
        asked = self.params.unlabelled_loss != "symmetric_hinge" and has_features
        return get_solver("tsg" if asked else "soft_labels"), "rows in memory"

    def ordered_rows(self, rows: TrainingRows, choice: Choice) -> TrainingRows:
        """Return labelled and unlabelled rows in their order, with the weight of each kind."""
        limit = choice.solver.resolve_batch_size(None) if self.orders_rows else None
        if self.params.early_stopping and rows.validation_rows is None:
            raise ValueError(
                "early_stopping=True needs rows with labels: give X_val and y_val."
            )
        rows = rows.ordered(limit)
        assert isinstance(rows, SemiSupervisedRows)
        weights, unlabelled = rows.class_weights(), rows.unlabelled_weight()
        rows.task.require_all(weights)
        labelled = float(weights.sum())
        task = replace(rows.task, labelled_weight=labelled)
        rows = replace(rows, task=task, kind_weights=(labelled, unlabelled))
        if unlabelled == 0:
            warn_caller(
                "There are no unlabelled rows: the fit is supervised. Mark rows in y by None, "
                "or by -1 among numbers (-1 and 1 alone are classes), or give X_unlabelled."
            )
            return replace(rows, other=None, excluded=no_rows())
        return rows

    # -- the problem ---------------------------------------------------------------------

    def alpha(self, rows: TrainingRows) -> float:
        task = rows.task
        assert isinstance(task, MarkedClassification)
        return 1.0 / (2.0 * float(self.params.C) * (task.labelled_weight or 1.0))

    def make_problem(
        self, task: Task, inputs: Inputs, seed: int, alpha: float, resources: Resources,
        **options: Any,
    ) -> Problem:  # fmt: skip
        problem = super().make_problem(task, inputs, seed, alpha, resources, **options)
        unlabelled = losses.get_unlabelled_loss(self.params.unlabelled_loss)
        joint = losses.SemiSupervised(task.loss, unlabelled, self.ratio(np.nan, np.nan))
        return replace(problem, loss=joint, max_iter=int(self.params.max_iter))

    def ratio(self, labelled: float, unlabelled: float) -> float:
        """Return C*/C; sums of weights are for the paper's."""
        p = self.params
        if p.C_star == "auto":
            return _RATIO
        if p.C_star == "paper":
            counted = np.isfinite(labelled) and unlabelled > 0
            return labelled / unlabelled if counted else _RATIO
        return float(p.C_star) / float(p.C)

    def problem(self, rows: TrainingRows, choice: Choice, run: Run) -> Problem:
        problem, task = super().problem(rows, choice, run), rows.task
        assert isinstance(task, MarkedClassification)
        if run.stream:
            problem = replace(problem, max_iter=None)
            labelled, unlabelled = max(task.labelled_weight, 1.0), np.nan
        else:
            assert isinstance(rows, SemiSupervisedRows)
            labelled, unlabelled = rows.kind_weights
            problem = replace(problem, n_rows=rows.n_train + rows.n_other)
            if rows.whole_source is not None:
                left = run.deadline.left() - self._labelling_seconds(rows, choice, run)
                resources = replace(problem.resources, deadline=Deadline(left))
                problem = replace(problem, resources=resources)
        if unlabelled == 0 and not choice.solver.streams:
            # without a second kind of rows the labelled ones are all of the mean, not half
            alpha = 2.0 * problem.alpha
            return replace(problem, loss=task.loss, alpha=alpha)
        loss = problem.loss
        assert isinstance(loss, losses.SemiSupervised)
        ratio = self.ratio(labelled, unlabelled)
        joint = losses.SemiSupervised(loss.labelled, loss.unlabelled, ratio)
        return replace(problem, loss=joint, kind_weights=(labelled, unlabelled))

    def _labelling_seconds(self, rows: SemiSupervisedRows, choice: Choice, run: Run) -> float:
        """Return the seconds of the time left that labels of all rows take after the fit."""
        left, n, solver = run.deadline.left(), rows.n_other, choice.solver
        if left == np.inf:
            return 0.0
        if solver.streams:  # a row takes at most four times as long as one of a step
            seen = choice.max_iter * solver.resolve_batch_size(None) / 4.0
            return left * n / (n + seen)
        values = float(n) * (rows.n_train + 1000)
        return min(0.5 * left, _VALUE_SECONDS * slowness() * values)

    def choose(self, rows: TrainingRows, problem: Problem, first: Choice, run: Run) -> Choice:
        if run.stream:
            return super().choose(rows, problem, first, run)
        assert isinstance(rows, SemiSupervisedRows)
        if rows.kind_weights[1] == 0 and not first.solver.streams:
            first = replace(first, solver=BlockDescent(), reason=SUPERVISED)
        choice = super().choose(rows, problem, first, run)
        if self._may_learn_kernel(choice, rows, run):
            choice = self._learned(choice, rows, problem, run)
        if not choice.solver.streams and not rows.in_memory:
            raise DataError(
                f"solver {choice.solver.name!r} keeps all rows, which are on disk here; load "
                "them into arrays, or take solver='tsg'."
            )
        return choice

    def _may_learn_kernel(self, choice: Choice, rows: SemiSupervisedRows, run: Run) -> bool:
        """Whether a kernel that the labels learn may replace the default one."""
        solver = choice.solver
        values = vars(self.params)
        is_default = all(
            type(values[k]) is type(v) and values[k] == v for k, v in _DEFAULTS.items()
        )
        chooses = isinstance(solver, SoftLabels) and solver.choose and run.before is None
        has_time = run.deadline.left() > _SEARCH_SECONDS
        return is_default and chooses and has_time and rows.n_other > 0 and rows.in_memory

    def _learned(
        self, choice: Choice, rows: SemiSupervisedRows, problem: Problem, run: Run
    ) -> Choice:
        """Return the choice with kernel and C from a search on the labels, or as it is.

        Cross-validation on the labels decides, beside some of the rows without one.
        """
        y = np.concatenate(list(rows.source.target_chunks()))
        codes = y if rows.is_internal else rows.task.internal(y)
        if np.bincount(codes).min() < 2:
            return choice
        if rows.other is not None and rows.n_other > _SEARCH_ROWS:
            mixed = np.random.default_rng([choice.seed, _TAG]).permutation(rows.other.n_rows)
            rows = replace(rows, excluded=np.union1d(rows.excluded, mixed[_SEARCH_ROWS:]))
        solver, start = clone(choice.solver).set_params(choose=False), clock()
        errors = np.zeros(2)
        n_folds = _FOLDS if len(codes) < _FEW_LABELS else 2
        for fold in _folds(codes, n_folds, choice.seed):
            X, y, w, _ = rows.usable(rows.source.take(fold))
            part = replace(rows, held_out=fold)
            alpha = problem.alpha / (1.0 - w.sum() / rows.task.labelled_weight)
            plain = replace(problem, alpha=alpha, fixed_rows=True)
            learned = self._search(choice, part, problem, run).applied(plain)
            for i, one in enumerate((plain, learned)):
                batches, _ = part.batches(solver, choice.seed, 0)
                most = choice.max_iter
                try:
                    f = fitted_aside(solver, one, batches, most, run.callbacks)
                except TimeIsUp:
                    return choice
                errors[i] += w @ (decide(f.raw_prediction(X)) != y)
        best = choice
        if errors[1] < errors[0]:
            best, weight = self._search(choice, rows, problem, run), rows.task.labelled_weight
            best = replace(best, alpha=1.0 / (2.0 * cost(best.alpha, weight) * weight))
        entries = best.entries | {"cv_errors": errors.tolist()}
        return replace(best, seconds=clock() - start, entries=entries)

    def _search(
        self, choice: Choice, rows: SemiSupervisedRows, problem: Problem, run: Run
    ) -> Choice:
        """Return kernel, scaling and penalty that a search on labelled rows finds."""
        loss = losses.SquaredError()
        rows = replace(rows, task=replace(rows.task, loss=loss), other=None, excluded=no_rows())
        space = SearchSpace(
            (2.5,), (self.kernel, Matern(0.5)), "auto", sums=True, bandwidths=True
        )
        with single_threaded_blas(), at_most(study_tasks(self.resources.memory_limit)):
            return search(
                space, rows, replace(problem, loss=loss, alpha=np.nan), choice,
                stream=False, on_phase=run.callbacks.on_phase,
            )  # fmt: skip

    def best_params(self, fit: Fit) -> dict[str, Any]:
        best, task = super().best_params(fit), fit.model.task
        assert isinstance(task, MarkedClassification)
        C, weight = self.params.C, task.labelled_weight
        if fit.choice.solver.streams:
            return best
        is_own = fit.choice.alpha == 1.0 / (2.0 * float(C) * weight)
        return best | {"C": C if is_own else cost(fit.choice.alpha, weight)}

    # -- the model -----------------------------------------------------------------------

    def with_extras(self, fit: Fit, rows: TrainingRows, problem: Problem) -> Fit:
        """Return the fit with a label for each row of arrays."""
        if not isinstance(rows, SemiSupervisedRows) or rows.whole_source is None:
            return fit
        batch = rows.whole_source.read(0, rows.whole_source.n_rows)
        labels, classes = np.array(batch.y), rows.task.classes
        others = np.flatnonzero(labels == NO_LABEL)
        if len(others):
            labelled = labels[labels != NO_LABEL]
            labels[others] = decide(fit.model.function.raw_prediction(batch.X[others]))
            warn_of_drift(classes, labels[others], labelled)
        return replace(fit, extras={"transduction_": classes[labels]})

    def restore(self, fit: Fit, fitted: Record, extra: Record) -> Fit:
        extra.array("calibration_", "C", 2, optional=True)  # files of 0.1 and 0.2 may hold it
        return fit


def cost(alpha: float, weight: float) -> float:
    """Return C for alpha and the weight of the labels; both give one another to the bit."""
    return float(f"{1.0 / (2.0 * alpha * weight):.6g}")


def warn_of_drift(classes: AnyArray, predicted: AnyArray, labelled: AnyArray) -> None:
    """Warn if the classes `predicted` of unlabelled rows are not those of labelled rows."""
    k = len(classes)
    p = np.bincount(labelled, minlength=k) / len(labelled)
    q = np.bincount(predicted, minlength=k) / len(predicted)
    error = np.sqrt(np.maximum(p * (1 - p), 1e-4) / len(labelled))
    worst = int(np.argmax(np.abs(p - q) - 5.0 * error))
    if abs(p[worst] - q[worst]) > max(0.1, 5.0 * error[worst]):
        warn_caller(
            f"Class {classes[worst].item()!r} is {p[worst]:.0%} of the labelled "
            f"rows, but {q[worst]:.0%} of what unlabelled rows are predicted to be: the "
            "boundary may have left the classes. Lower C_star, or compare with C_star=0."
        )


def _folds(codes: AnyArray, n_folds: int, seed: int) -> list[IntArray]:
    """Return the rows of each fold, every class spread over all of them."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x666F6C64]))
    parts = folds(rng.permutation(len(codes)), n_folds, codes)
    most = max(1, 5000 // n_folds)  # rows of a fold
    members = [rng.permutation(np.sort(part))[:most] for part in parts]
    return [np.sort(rows) for rows in members if len(rows)]
