"""Self-training: an SVM plus ridge regression on its soft labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg

from kernelgrad.compute import linalg
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import over_tiles, sum_over_tiles
from kernelgrad.data.sampling import folds
from kernelgrad.files.records import Record
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import ExactRows
from kernelgrad.losses import SemiSupervised
from kernelgrad.params import boolean, integer, parameters
from kernelgrad.solvers.block_descent.solver import BlockDescent
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch, sized, transient
from kernelgrad.solvers.support import RowsSolver, RowsState, support_update
from kernelgrad.types import AnyArray, Float32Array, Float64Array, IntArray
from kernelgrad.validation import CapabilityError, DataError

_TAG = 0x736F6674
_TILE, _PART = 4096, 512  # rows whose kernel values are made at once, and those of one task
_STORE_BYTES = 2 * 2**30  # bytes of kernel values that stay, unless a memory limit is given
_DAMPING = 1e-9  # damping of the equations relative to their largest entry
_MASS = 0.5  # weight of all labelled rows relative to that of all others
_N_FOLDS, _MOST_FOLD_ROWS = 5, 20_000  # folds, and labelled rows that they are made of
_LAST_ROUND = 8  # round of the candidate that replaces the sum if the labels clearly prefer it
_TEMPERATURE = 0.1  # from .05 to .2 there was no difference; at .4 none of the gain was left
_SUPERVISED_BLOCKS, _SUPERVISED_TOL = 30, 1e-4


def semi_supervised(problem: Problem, name: str) -> SemiSupervised:
    """Return the loss of `problem`; CapabilityError unless it has two parts."""
    if not isinstance(problem.loss, SemiSupervised):
        raise CapabilityError(
            f"solver {name!r} needs labelled and unlabelled rows, which loss "
            f"{problem.loss.name!r} does not tell apart; use a semi-supervised estimator, or a "
            "solver for labelled rows such as 'sdca'."
        )
    return problem.loss


def check_kinds(y: AnyArray, weight: AnyArray, name: str) -> None:
    """Raise DataError unless labelled and unlabelled rows both have weight."""
    has_label = np.asarray(y).any(axis=1)
    n_labelled = int(np.count_nonzero(weight[has_label]))
    n_others = int(np.count_nonzero(weight[~has_label]))
    if n_labelled == 0 or n_others == 0:
        missing = (
            "mark rows without a label by -1, or use a solver for labelled rows such as 'sdca'"
            if n_labelled
            else "give the label of at least one row"
        )
        raise DataError(
            f"solver {name!r} needs rows with a label and rows without one, of positive "
            f"weight; got {n_labelled} and {n_others}: {missing}."
        )


@dataclass
class _Workspace:
    exact: ExactKernel
    rows: ExactRows
    centres: ExactRows
    tiles: list[Float32Array] | None
    factors: list[Any] | None = None

    @property
    def n(self) -> int:
        return self.rows.n_rows

    def tile(self, i: int) -> Float32Array:
        if self.tiles is not None and i < len(self.tiles):
            return self.tiles[i]
        part = slice(i * _TILE, min(self.n, (i + 1) * _TILE))
        values = self.exact.matrix(self.rows.take(part), self.centres)
        if self.tiles is not None:
            self.tiles.append(values)
        return values


@dataclass(kw_only=True)
class SoftLabelsState(RowsState):
    """State of :class:`SoftLabels`; L lanes: all labels, then one without each fold."""

    responses: Float64Array = sized("C", 0)  # none are kept
    labelled: IntArray = sized("labelled", kinds="i", into="n")  # numbers of the labelled rows
    centre: IntArray = sized("M", kinds="i", into="n")  # numbers of the M centres
    supervised: Float64Array = sized("L", "labelled", "C")
    fold: IntArray = sized("labelled", kinds="i", into="L")  # -1 for a row in no fold
    bias: Float64Array = sized("L", "C")
    student: Float64Array = sized("L", "M", "C")  # coefficients after the last round
    early: Float64Array = sized("L", "M", "C")  # coefficients after round `rounds`
    choice: int = 0  # 0 the sum, 1 supervised, 2 student of the last round
    memory: _Workspace | None = transient()

    @classmethod
    def restore(cls, problem: Problem, record: Record) -> Self:
        if "kept" in record.arrays:  # its name in files of 0.1 and 0.2
            record.arrays["early"] = record.arrays.pop("kept")
        return super().restore(problem, record)


@parameters
class SoftLabels(RowsSolver[SoftLabelsState]):
    r"""The sum of a supervised machine and one that learned its soft labels on all rows.

    First the labelled rows alone are fitted, with the labelled loss: ``f_0``. Then rounds of
    ridge regression over kernels at M centres, with labels ``s`` of the unlabelled rows from
    the round before,

    .. math:: f_r = \arg\min_f \frac{1}{2} \|f\|^2 + \frac{C_u}{2} \Bigl( \frac{W_u}{2 W_l}
              \sum_{\text{labelled}} w_i (f(x_i) - y_i)^2
              + \sum_{\text{unlabelled}} w_j (f(x_j) - s_j)^2 \Bigr)

    where ``s = tanh(10 f_{r-1})``, for several classes ``2 softmax(10 f_{r-1}) - 1`` with all
    classes at once. The squared loss draws the labels to the leading directions of the kernel
    on *all* rows, which is what unlabelled rows contribute; margin losses of the same labels
    gained a third as much. The result is ``f_0 + f_3``. With ``choose=True``, cross-validation
    on the labels may replace the sum by ``f_0`` or ``f_8``, but only if the error is lower by
    more than one standard error of the paired difference, since few labels cannot tell smaller
    differences.

    One factorisation serves all rounds and classes; a round is one pass over the rows.

    Parameters
    ----------
    rounds : int >= 1, default=3
        Rounds of the sum. More rounds drift away from the labels where classes are not
        clusters.
    choose : bool, default=True
        Whether cross-validation on the labels, in five folds, may replace the sum.
    n_centres : int >= 1, default=1000
        M: all labelled rows, but at most half of M, and random unlabelled ones.

    Notes
    -----
    ``C_u`` is the cost of an unlabelled row: twice the estimator's ``C_star``, which is C by
    default. The unlabelled loss is not used. Kernel values, ``4 n M`` bytes, are kept if they
    fit ``memory_limit`` (2 GiB when there is none), otherwise computed again in each round; the
    model is the same.
    """

    marks: ClassVar[bool] = True
    name: ClassVar[str] = "soft_labels"
    requires: ClassVar[frozenset[str]] = frozenset({"exact_kernel"})
    state_class = SoftLabelsState
    removed = frozenset({"last_round", "n_folds", "temperature"})

    rounds: int = integer(default=3, low=1)
    choose: bool = boolean(default=True)
    n_centres: int = integer(default=1000, low=1)

    def check_problem(self, problem: Problem) -> None:
        semi_supervised(problem, self.name)

    def init(self, problem: Problem, batch: TrainBatch) -> SoftLabelsState:
        check_kinds(batch.y, batch.sample_weight, self.name)
        has_label = batch.y.any(axis=1)
        labelled, others = np.flatnonzero(has_label), np.flatnonzero(~has_label)
        rng = draws(problem.seed, _TAG, 0)
        M, C = int(self.n_centres), problem.n_outputs
        half = (
            labelled if len(labelled) <= M // 2 else rng.choice(labelled, max(1, M // 2), False)
        )
        rest = rng.choice(others, min(len(others), max(0, M - len(half))), replace=False)
        centre = np.sort(np.concatenate([half, rest]))
        fold = self._folds(batch.y[labelled], rng)
        lanes = 1 + int(fold.max(initial=-1)) + 1
        student = np.zeros((lanes, len(centre), C))
        return self._new_state(
            problem, batch, responses=np.zeros((C, 0)), intercept=np.zeros(C),
            labelled=labelled, centre=centre, fold=fold, bias=np.zeros((lanes, C)),
            supervised=np.zeros((lanes, len(labelled), C)), student=student, early=student,
        )  # fmt: skip

    def least_bytes(
        self, problem: Problem, n_rows: int, row_bytes: float, *, stays: bool
    ) -> float:
        first = BlockDescent().least_bytes(problem, n_rows, row_bytes, stays=False)
        M, lanes = min(n_rows, int(self.n_centres)), 1 + int(self.choose) * _N_FOLDS
        each = 8.0 * lanes + 12.0 * problem.n_outputs + 48.0
        return max(first, row_bytes + 8.0 * M**2 * (lanes + 5) + each * n_rows)

    def _folds(self, y: Any, rng: np.random.Generator) -> IntArray:
        """Return the fold of each labelled row; -1 without folds, and for rows beyond most."""
        fold = np.full(len(y), -1)
        if self.choose and len(y) >= 2 * _N_FOLDS:
            rows = rng.permutation(len(y))[:_MOST_FOLD_ROWS]
            codes = y.argmax(axis=1) if y.shape[1] > 1 else y[:, 0]
            for k, part in enumerate(folds(rows, _N_FOLDS, codes)):
                fold[part] = k
        return fold

    def _recall(
        self, problem: Problem, state: SoftLabelsState, batch: TrainBatch
    ) -> _Workspace:
        rows = self._attach(problem, state, batch).rows
        if state.memory is None:
            room = problem.resources.left(2 * rows.nbytes, _STORE_BYTES)
            keep = 4.0 * batch.n_rows * len(state.centre) <= room
            centres = rows.take(state.centre)
            state.memory = _Workspace(state.exact, rows, centres, [] if keep else None)
        return state.memory

    def _costs(self, problem: Problem, batch: TrainBatch) -> tuple[Float64Array, float]:
        """Return weights of rows as the user gave them, and C."""
        totals = problem.kind_weights
        has_label = batch.y.any(axis=1)
        weight = np.array(batch.sample_weight, np.float64)
        for kind, total in zip((has_label, ~has_label), totals, strict=True):
            weight[kind] *= total / weight[kind].sum()
        return weight, 1.0 / (2.0 * problem.alpha * totals[0])

    def step(self, problem: Problem, state: SoftLabelsState, batch: TrainBatch) -> StepInfo:
        """Fit the labels in the first step; make one round of soft labels in the others."""
        memory = self._recall(problem, state, batch)
        weight, C = self._costs(problem, batch)
        loss = semi_supervised(problem, self.name)
        last = max(_LAST_ROUND * (len(state.bias) > 1), int(self.rounds))
        number = state.iteration
        if number == 0:
            self._supervise(problem, state, batch, weight, C)
        else:
            self._round(problem, state, batch, memory, weight, 2.0 * loss.ratio * C)
            if number == int(self.rounds):
                state.early = state.student.copy()
        done = number >= last or loss.ratio == 0
        if done and number >= last and len(state.bias) > 1:
            state.choice = self._choose(state, batch, weight)
        self._compose(state, number)
        state.iteration += 1
        state.rows_seen += batch.n_rows
        update = support_update(state, memory.rows, state.coef, 0.0)
        f = update(memory.rows.take(state.labelled), {"x": np.zeros(1)})["x"]
        w = weight[state.labelled]
        values = loss.labelled.value(batch.y[state.labelled].astype(float), f + state.intercept)
        train_loss = float(w @ values / w.sum())
        return self._info(
            state, train_loss, update, epoch=float(state.iteration), converged=done
        )

    def _supervise(
        self, problem: Problem, state: SoftLabelsState, batch: TrainBatch,
        weight: Float64Array, C: float,
    ) -> None:  # fmt: skip
        """Fit the labels of each lane; rows that are held out keep coefficients of 0."""
        loss = semi_supervised(problem, self.name).labelled
        labelled = state.exact.scaling.apply(batch.X[state.labelled])
        solver = BlockDescent(tol=_SUPERVISED_TOL)
        state.supervised, state.bias = state.supervised.copy(), state.bias.copy()
        for lane in range(len(state.bias)):
            if lane and problem.resources.deadline.over:  # then no labels choose
                state.fold = np.full_like(state.fold, -1)
                for name in ("bias", "supervised", "student", "early"):
                    setattr(state, name, getattr(state, name)[:1])
                break
            own = np.delete(np.arange(len(state.fold)), self._held(state, lane))
            at = state.labelled[own]
            w = weight[at]
            numbers = None if batch.rows is None else batch.rows[at]
            part = TrainBatch(labelled[own], batch.y[at], w, numbers)
            one = replace(
                problem, loss=loss, kernel=state.exact.kernel,
                alpha=1.0 / (C * w.sum()), scaling=InputScaling(), fixed_rows=True,
            )  # fmt: skip
            inner = solver.init(one, part)
            for _ in range(_SUPERVISED_BLOCKS):
                if solver.step(one, inner, part).converged or problem.resources.deadline.over:
                    break
            it = inner.iterate
            bias = it.first_bias if it.is_poor else it.result_bias
            state.bias[lane] = inner.offset + bias
            if not it.is_poor:
                index, coef = solver.coefficients(inner)
                state.supervised[lane, own] = 0.0
                state.supervised[lane, own[index]] = coef.T

    def _held(self, state: SoftLabelsState, lane: int) -> IntArray:
        return np.flatnonzero(state.fold == lane - 1) if lane else np.empty(0, np.int64)

    def _round_weights(
        self, problem: Problem, state: SoftLabelsState, weight: Float64Array, lane: int
    ) -> Float64Array:
        labelled, others = problem.kind_weights
        w = weight.copy()
        w[state.labelled] *= _MASS * others / labelled
        left_out = state.labelled[self._held(state, lane)]
        w[left_out] = weight[left_out]
        return w

    def _factorise(
        self, problem: Problem, state: SoftLabelsState, memory: _Workspace,
        weight: Float64Array, cost: float,
    ) -> list[Any]:  # fmt: skip
        M = len(state.centre)
        base = self._round_weights(problem, state, weight, 0)
        total = np.zeros((M, M))
        for i in range(-(-memory.n // _TILE)):
            problem.resources.deadline.check()
            # in float64: sums of so many rows would lose the small eigenvalues in float32
            root = np.sqrt(base[i * _TILE : (i + 1) * _TILE])
            total += linalg.gram(memory.tile(i) * root[:, None])
        gram = memory.exact.matrix(memory.centres, memory.centres).astype(np.float64)
        factors = []
        for lane in range(len(state.bias)):
            H = cost * total
            left_out = state.labelled[self._held(state, lane)]
            change = self._round_weights(problem, state, weight, lane) - base
            for a in range(0, len(left_out), _PART):
                part = left_out[a : a + _PART]
                values = memory.exact.matrix(memory.rows.take(part), memory.centres)
                K = values.astype(np.float64)
                H += cost * (K.T * change[part]) @ K
            H += gram
            size = float(np.abs(H).max())
            if not np.isfinite(size):
                raise FloatingPointError(
                    f"The equations of solver {self.name!r} overflow (C times the kernel is "
                    f"{size:g}); lower C, or scale the kernel."
                )
            damping = _DAMPING * (size if size > 0 else 1.0)
            factors.append((linalg.damped_cholesky(H, damping, in_place=True)[0], True))
        return factors

    def _round(
        self, problem: Problem, state: SoftLabelsState, batch: TrainBatch, memory: _Workspace,
        weight: Float64Array, cost: float,
    ) -> None:  # fmt: skip
        """Fit every lane to the soft labels of its last function."""
        if memory.factors is None:
            memory.factors = self._factorise(problem, state, memory, weight, cost)
        lanes, M, C = state.student.shape
        first = state.iteration == 1
        weights = [self._round_weights(problem, state, weight, i) for i in range(lanes)]
        fixed = [np.delete(state.labelled, self._held(state, i)) for i in range(lanes)]
        right = np.zeros((lanes, M, C))
        stacked = state.student.transpose(1, 0, 2).reshape(M, lanes * C).astype(np.float32)
        supervised = state.supervised.transpose(1, 0, 2).reshape(-1, lanes * C)
        labelled = memory.rows.take(state.labelled)
        for i in range(-(-memory.n // _TILE)):
            problem.resources.deadline.check()
            start, stop = i * _TILE, min(memory.n, (i + 1) * _TILE)
            K = memory.tile(i)
            f = np.zeros((stop - start, lanes * C))
            if first:
                rows = memory.rows.take(slice(start, stop))
                f += memory.exact.products(rows, labelled, supervised)
                f += state.bias.reshape(-1)
            else:
                _by_parts(K, stacked, f)
            s = np.empty((stop - start, lanes * C), np.float32)
            for lane in range(lanes):
                part = slice(lane * C, (lane + 1) * C)
                soft = self._soften(f[:, part])
                at = fixed[lane]
                at = at[(at >= start) & (at < stop)]
                soft[at - start] = batch.y[at]
                s[:, part] = soft * weights[lane][start:stop, None]
            right += _by_columns(K, s).reshape(M, lanes, C).transpose(1, 0, 2)
        pairs = zip(memory.factors, right, strict=True)
        solved = [scipy.linalg.cho_solve(*pair, check_finite=False) for pair in pairs]
        state.student = cost * np.stack(solved)

    def _soften(self, f: Float64Array) -> Float64Array:
        z = f / _TEMPERATURE
        if f.shape[1] == 1:
            return np.asarray(np.tanh(z))
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(2.0 * e / e.sum(axis=1, keepdims=True) - 1.0)

    def _choose(self, state: SoftLabelsState, batch: TrainBatch, weight: Float64Array) -> int:
        """Return what labels held out prefer by more than a standard error."""
        memory = state.memory
        assert memory is not None
        wrong, weights = [], []
        labelled = memory.rows.take(state.labelled)
        for lane in range(1, len(state.bias)):
            own = self._held(state, lane)
            at = state.labelled[own]
            rows = memory.rows.take(at)
            f0 = state.bias[lane] + memory.exact.products(
                rows, labelled, state.supervised[lane]
            )
            K = memory.exact.matrix(rows, memory.centres).astype(np.float64)
            early, late = K @ state.early[lane], K @ state.student[lane]
            y = _sides(batch.y[at])
            wrong.append(np.stack([_sides(f) != y for f in (f0 + early, f0, late)]))
            weights.append(weight[at])
        errors, w = np.concatenate(wrong, axis=1).astype(float), np.concatenate(weights)
        best, choice = 0.0, 0
        for i in (1, 2):
            d = errors[i] - errors[0]
            mean = float(w @ d / w.sum())
            spread = float(w**2 @ (d - mean) ** 2) * len(d) / max(1, len(d) - 1)
            error = np.sqrt(spread) / float(w.sum())
            if mean < -error * (1 + 1e-9) and mean < best:
                best, choice = mean, i
        return choice

    def _compose(self, state: SoftLabelsState, number: int) -> None:
        student = state.student[0]
        if number > int(self.rounds) and state.choice != 2:
            student = state.early[0]
        state.coef = np.zeros_like(state.coef)
        if state.choice != 1:
            state.coef[state.centre] += student
        state.intercept = np.zeros_like(state.intercept)
        if state.choice != 2:
            state.coef[state.labelled] += state.supervised[0]
            state.intercept = state.bias[0].copy()

    def expansion(self, state: SoftLabelsState) -> SupportExpansion:
        used = np.flatnonzero(state.coef.any(axis=1))
        used = used if len(used) else np.arange(1)
        rows = state.prepared.take(used)
        return SupportExpansion(state.exact, rows, state.coef[used], state.intercept)


def _sides(f: Any) -> IntArray:
    return np.asarray(f.argmax(axis=1) if f.shape[1] > 1 else f[:, 0] > 0, np.int64)


def _by_parts(K: Float32Array, A: Float32Array, out: Float64Array) -> None:
    """Write K A, rows in parts that do not depend on the threads."""

    def task(a: int, z: int) -> None:
        out[a:z] = K[a:z] @ A

    over_tiles(len(K), _PART, task)


def _by_columns(K: Float32Array, s: Float32Array) -> Float64Array:
    """Return K^T s, summed over parts of the rows in order."""
    total = np.empty((K.shape[1], s.shape[1]))

    def task(a: int, z: int, part: Float64Array) -> None:
        part[:] = K[a:z].T @ s[a:z]

    sum_over_tiles(len(K), _PART, _TILE // _PART, task, total)
    return total
