"""A study of a sample of training rows learns their kernel and its penalty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelgrad.compute.compiling import clock
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.memory import give_back
from kernelgrad.compute.threads import parallel_map
from kernelgrad.data.sampling import folds, thinned
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Gaussian
from kernelgrad.quality import SEARCHED
from kernelgrad.search import penalty
from kernelgrad.search.leave_one_out import Round, descend
from kernelgrad.search.machine import Bins, Machine, Sample, Steps, distances, squared_distances
from kernelgrad.search.pool import TAG, Pool, SearchResult, SearchSpace, purpose_rng, why_not
from kernelgrad.tasks import Classification
from kernelgrad.types import AnyArray, Float64Array, IntArray


@dataclass(frozen=True)
class Rules:
    """Settings of the study, chosen on development tables; sizes are in rows.

    Attributes
    ----------
    rounds : tuple of Round
        Descent: the first of all machines, the others of the best. Kernels learned from few
        rows are too wide, so that the rounds grow.
    more : tuple of Round
        Descent of a machine whose errors are nearly 0, which its kernel makes.
    matrix : tuple of Round
        Descent of a matrix, from the weights.
    logistic : tuple of Round
        Descent by the log loss, from the best machine.
    names : tuple of str
        Names of the candidates; empty for all.
    spreads : (float, float)
        Deviations of the loose and the tight prior on logarithms of weights.
    bins : int
        Bins of a warp.
    few, folds : int
        Rows up to which folds validate, and their number.
    solved : int
        Rows of the machines that are scored, on half as many others. A study sees twice as
        many rows, or more if it takes as many differences of rows and columns.
    work : float
        Entries of the differences of rows, rows times rows times columns, of the last round.
    """

    rounds: tuple[Round, ...] = (
        Round(300, 25, 0.2),
        Round(600, 25, 0.12, 1),
        Round(1500, 8, 0.08, 2),
    )
    more: tuple[Round, ...] = ()
    matrix: tuple[Round, ...] = (Round(500, 40, 0.3),)
    logistic: tuple[Round, ...] = (Round(600, 12, 0.12), Round(1200, 5, 0.08))
    names: tuple[str, ...] = ()
    spreads: tuple[float, float] = (1.0, 0.5)
    bins: int = 10
    few: int = 1500
    folds: int = 3
    solved: int = 2000
    work: float = 1e8

    def sample_rows(self, columns: int) -> int:
        """Return the rows of a study."""
        return max(2 * self.solved, int(0.01 * self.work / columns))


RULES: dict[str, Rules] = {
    "fast": Rules(
        rounds=(Round(300, 15, 0.25), Round(1000, 8, 0.15, 1)),
        more=(Round(1500, 12, 0.1, 2),),
        logistic=(Round(600, 8, 0.12),),
        names=(
            "weights", "weights, smooth", "equal weights", "equal weights, smooth", "steps",
            "Matern",
        ),
        few=600,
        solved=1000,
    ),
    "default": Rules(),
    "best": Rules(
        rounds=(
            Round(300, 25, 0.2), Round(600, 40, 0.12, 1), Round(1500, 20, 0.08, 2),
            Round(3000, 8, 0.05, 3),
        ),
        logistic=(Round(600, 12, 0.12), Round(1200, 10, 0.08), Round(2400, 5, 0.05)),
        solved=3000,
        work=4e8,
    ),
}  # fmt: skip
_GAIN, _FEW_GAIN = 0.25, 0.5  # standard errors by which weights must gain; with few rows
# standard errors by which the exponential must gain: smooth functions gain more by more rows
_EDGES_GAIN = 2.0
_EDGES_START = 0.7  # ratio to the distances of the smooth kernel that it is first compared with
_EDGES_ROWS = 5000  # rows from which the trial is worth its seconds
_CLEAR = 3.0  # standard errors by which weights gain so clearly that more rows decide the same
_QUIET = -3.0  # logarithm of errors over the deviation of the targets that are nearly 0
_BEHIND = 1.25  # standard errors behind the best after which a machine leaves the folds
_RAISED = 8.0  # ratio of the largest weight to what small ones rise to before the second round
_LOGISTIC_RIDGE = 0.03  # lambda from which the descent by the log loss starts
_WIDE = 100  # columns from which machines without the rough part, which is dear there, compete
_FAR, _TAIL = 4.0, 0.01  # a column has heavy tails if more than _TAIL is beyond _FAR
_TREE_ROWS = 20_000  # rows of the trees whose splits are steps
_WARPED = 300  # columns up to which warps are learned


@dataclass(frozen=True)
class Fold:
    """Rows that train, and the validation rows."""

    train: Sample
    validation: Sample


class Study:
    """A search for the machine with the smallest errors on rows that it was not trained on.

    Machines whose columns have equal weights compete with those that learn weights and warps,
    and with smooth ones. With few rows each fold is left out in turn. Weights stay if they
    lower the errors by a quarter of a standard error of the paired difference, with few rows by
    a half.
    """

    def __init__(
        self, pool: Pool, space: SearchSpace, groups: IntArray | None, seed: int,
        over: Callable[[], bool], only: tuple[str, ...] = (), *, limited: bool = False,
    ) -> None:  # fmt: skip
        self.rules = rules = RULES[space.effort]
        self.only = only or rules.names
        self.drawn, self.is_limited = pool, limited  # by a memory limit
        pool = pool.some(rules.sample_rows(pool.X.shape[1]), seed)
        X = dense(pool.X)
        self.pool, self.space, self.seed, self.over = pool, space, seed, over
        self.scaling = _scaling(X, pool.weight, space, sparse=sp.issparse(pool.X))
        self.plain = sp.issparse(pool.X) or not space.sums  # first part only, without warps
        X = np.asarray(self.scaling.apply(X), np.float64)
        codes = pool.y if isinstance(pool.rows.task, Classification) else None
        self.sample = Sample(X, pool.Y, pool.weight, codes)
        width = X.shape[1]
        self.groups = np.arange(width) if groups is None or len(groups) != width else groups
        n = self.sample.n_rows
        mixed = purpose_rng(seed, 7).permutation(n)
        self.sampled = np.sort(mixed[:500])  # numbers of rows for the first bandwidths
        one = [mixed[: min(rules.solved // 2, n // 5)]]
        cuts = folds(mixed, rules.folds) if n <= rules.few else one
        self.cuts = [np.sort(cut) for cut in cuts]  # numbers of the validation rows
        self.folds = [
            Fold(self.sample.take(np.setdiff1d(mixed, cut)), self.sample.take(cut))
            for cut in self.cuts
        ]
        self.validation = np.concatenate(self.cuts)
        self.parts: dict[str, list[Machine]] = {}  # machines of the folds, by candidate
        self.rounds: list[dict[str, Any]] = []
        self.best: Machine

    def candidates(self) -> list[Machine]:
        """Return the machines that compete, before they learn."""
        starts = [self.start(nu) for nu in self.space.shapes]
        is_sum, wide = starts[0].is_sum, len(self.groups) > _WIDE
        if is_sum and wide:
            smooth = starts[0].unwarped(smooth=True)
            starts.append(replace(smooth, name="equal weights, smooth"))
            starts.append(replace(starts[0], power=1.0, name="equal weights, Laplacian"))
        if not self.learns:
            return starts
        weighted = [self.grouped(machine) for machine in starts]
        machines = [weighted[0], *starts, *weighted[1:]]  # the first may be the only one
        if weighted[0].bins is not None and self.is_heavy:
            machines.append(self.grouped(starts[0], scores=True))
        if weighted[0].bins is not None and not wide:
            machines.append(replace(weighted[0].unwarped(), has_steps=True, name="steps"))
        if self.sample.n_rows <= self.rules.rounds[1].rows:
            machines += [
                replace(
                    m, spread=self.rules.spreads[1], bend=0.1, name=f"{m.name}, tight prior"
                )
                for m in weighted
                if m.power < 1
            ]
        if is_sum:
            smooth = weighted[0].unwarped(smooth=True)
            shapes = {"Matern": 2.5, "Gaussian": np.inf}
            machines += [replace(smooth, name=name, nu=nu) for name, nu in shapes.items()]
        return machines

    def run(self) -> SearchResult:
        space, learns, wide = self.space, self.learns, len(self.groups) > _WIDE
        machines = [m for m in self.candidates() if not self.only or m.name in self.only]
        first = machines[0]
        if not self.few:  # the fold has copies of the rows, and these take memory
            nothing = np.empty((0, len(self.groups)))
            self.sample = replace(self.sample, X=nothing)
            self.pool = replace(self.pool, X=nothing)
        trained = self.train(machines, self.rules.rounds[:1], self.rules.solved // 2)
        equal = next((m for m in trained if m.is_equal), trained[0])
        ranked = [m for m in trained if not (learns and m.is_equal)] or trained
        best = self.best = ranked[0]
        if self.over():
            return self.result(best)
        if not self.few:  # the best goes on, and one that is level with it
            level = [m for m in ranked[1:2] if not _pays(m, best)]
            if best.has_steps:  # few rows show them sooner than they show smooth functions
                level = [m for m in ranked if not m.has_steps][:1]
            if wide:  # few rows say little of the rough part
                level = [m for m in ranked if m.is_sum != best.is_sum][:1]
            sure = _pays(equal, best, _CLEAR)
            machines = [best, *level]
            trained = self.train(machines, self.rules.rounds[1:], self.rules.solved) + trained
            best = trained[0]
            if best.error < _QUIET and self.rules.more:
                best = self.train([best], self.rules.more, self.rules.solved)[0]
            long = self.pool.n_rows >= _EDGES_ROWS
            if long and first.is_sum and not (wide or best.is_equal or self.only):
                best = self.edged(best, first)
            equal = equal if sure else self.scored(equal, [equal], self.rules.solved)
        gain = _FEW_GAIN if self.few else _GAIN
        if learns and space.metric == "auto" and not _pays(equal, best, gain):
            best = equal
        if best.is_sum and wide:
            best = next((m for m in trained if not m.is_sum and not _pays(m, best)), best)
        if self.few:
            best = self.of_all_rows(best, [] if best.is_equal else self.rules.rounds[1:])
        if learns and space.metric == "full":
            matrix = np.diag(best.weights("smooth", np.float64))
            best = self.train(
                [best.with_theta(matrix=matrix)], self.rules.matrix, self.rules.solved
            )[0]
            best = self.of_all_rows(best, self.rules.matrix) if self.few else best
        self.best = best
        return self.result(best)

    def edged(self, smooth: Machine, start: Machine) -> Machine:
        """Return the machine or, if it clearly lowers the errors, the exponential of a start.

        Functions of the Matern 1/2 kernel have edges. It learns if it is not worse with the
        weights of the smooth one.
        """
        same, size = replace(smooth, nu=0.5).narrowed(_EDGES_START), self.rules.solved
        if self.over() or self.scored(same, [same], size).error > smooth.error:
            return smooth
        start = replace(start, nu=0.5, name="exponential")
        other = self.train([start], self.rules.rounds, size)[0]
        return other if _pays(smooth, other, _EDGES_GAIN) else smooth

    def of_targets(self, Y: Float64Array) -> Study:
        """Return the study of the same rows for other targets, with few candidates."""
        names = (self.best.name, "weights", "equal weights")
        pool = replace(self.drawn.some(len(self.pool.y), self.seed), Y=Y)
        return Study(
            pool, self.space, self.groups, self.seed, self.over, names,
            limited=self.is_limited,
        )  # fmt: skip

    def logistic(self) -> SearchResult:
        """Return what the best machine becomes if it goes on by the log loss."""
        rows = self.sample if self.few else self.folds[0].train
        return self.result(self.descend(_logistic(self.best), rows, self.rules.logistic))

    def of_folds(self, *, logistic: bool) -> list[tuple[SearchResult, IntArray, IntArray]]:
        """Return the results of the folds' machines of the best candidate, if rows are few.

        The numbers in the pool of the rows that trained each, and of those that validate it,
        follow. With `logistic` the machines go on by the log loss.
        """
        parts = self.parts[self.best.name]
        if not self.few or len(parts) < len(self.folds):
            return []
        if logistic:
            parts = parallel_map(
                lambda pair: self.descend(
                    _logistic(pair[0]), pair[1].train, self.rules.logistic
                ),
                list(zip(parts, self.folds, strict=True)),
            )
        all_rows = np.arange(self.sample.n_rows)
        return [
            (self.result(m), np.setdiff1d(all_rows, cut), cut)
            for m, cut in zip(parts, self.cuts, strict=True)
        ]

    @property
    def learns(self) -> bool:
        """Whether columns have weights to learn."""
        return why_not(self.space, self.pool) is None and bool(self.groups.any())

    @property
    def n_trained(self) -> int:
        """Number of rows of a machine that is scored."""
        return min(self.rules.solved, self.folds[0].train.n_rows)

    @property
    def source(self) -> str:
        """How the validation rows are predicted."""
        return SEARCHED.format(self.n_trained)

    @property
    def few(self) -> bool:
        return len(self.folds) > 1

    def start(self, nu: float) -> Machine:
        """Return a machine of equal weights; its bandwidths are median distances, or fixed."""
        X, gamma = self.sample.X[self.sampled], self.space.gamma
        pairs = np.triu_indices(len(X), 1)
        theta = {"smooth": -np.log([np.sqrt(_median(squared_distances(X)[pairs]))])}
        if not self.plain:
            theta["rough"] = -np.log([_median(distances(X, X)[pairs])])
            theta["mix"] = np.zeros(1)
        theta["ridge"] = np.log([penalty.START])
        machine = Machine(nu, np.zeros(X.shape[1], np.intp), theta)
        if gamma is not None:
            machine = machine.narrowed(np.sqrt(2.0 * gamma) / machine.largest)
        return machine

    @property
    def is_heavy(self) -> bool:
        """Whether a column has heavy tails."""
        far = np.abs(self.sample.X) > _FAR
        return self.scaling.limit is not None and bool((far.mean(axis=0) > _TAIL).any())

    def grouped(self, machine: Machine, *, scores: bool = False) -> Machine:
        """Return the machine with a weight for each group of columns, and warps.

        The warps begin as the identity, or as normal scores, which suit heavy tails.
        """
        g = int(self.groups.max()) + 1
        theta = {
            k: np.full(g, machine.theta[k]) for k in ("smooth", "rough") if k in machine.theta
        }
        name = machine.name.replace("equal weights", "normal scores" if scores else "weights")
        machine = machine.with_theta(**theta)
        machine = replace(machine, groups=self.groups, spread=self.rules.spreads[0], name=name)
        if self.plain or len(self.groups) > _WARPED:
            return machine
        bins = Bins.of(self.sample.X, self.rules.bins, scores=scores)
        return replace(machine.with_theta(warp=np.zeros(bins.low.shape)), bins=bins)

    def train(
        self, machines: Sequence[Machine], plans: Sequence[Round], size: int
    ) -> list[Machine]:
        """Return machines after some rounds, the best on the validation rows first.

        With few rows each fold has a machine of its own. The machines that fall behind on the
        validation rows of the first fold are not trained on the others.
        """

        def learned(task: tuple[Machine, Fold]) -> Machine:
            return self.descend(task[0], task[1].train, plans)

        first, *others = self.folds
        by_error = attrgetter("error")
        pairs = [[m] for m in parallel_map(learned, [(m, first) for m in machines])]
        if self.is_limited and not self.few:  # matrices of many rows follow
            give_back()
        trained = parallel_map(lambda pair: self.scored(pair[0], pair, size), pairs)
        if others and not self.over():
            best = min(trained, key=by_error)
            level = [
                i for i, m in enumerate(trained) if m.is_equal or not _pays(m, best, _BEHIND)
            ]
            tasks = [(machines[i], fold) for i in level for fold in others]
            done = iter(parallel_map(learned, tasks))
            for i in level:
                pairs[i] += [next(done) for _ in others]
            trained = [self.scored(_mean(pairs[i]), pairs[i], size) for i in level]
        self.parts |= {pair[0].name: pair for pair in pairs}
        self.rounds += [self.entry(m) for m in trained]
        return sorted(trained, key=by_error)

    def of_all_rows(self, machine: Machine, plans: Sequence[Round]) -> Machine:
        """Return a machine that the folds have scored after rounds on all rows."""
        learned = self.descend(machine, self.sample, plans)
        return self.scored(
            learned, [learned] * self.rules.folds, self.rules.solved, scores=False
        )

    def descend(self, machine: Machine, rows: Sample, plans: Sequence[Round]) -> Machine:
        most = int(np.sqrt(self.rules.work / rows.X.shape[1])) if machine.is_sum else 1500
        start = clock()
        if machine.has_steps and machine.bins is None and not self.over():
            steps = Steps.of(rows.take(thinned(np.arange(rows.n_rows), _TREE_ROWS)))
            bins = Bins.of(rows.X, self.rules.bins, steps=steps)
            machine = replace(machine.with_theta(warp=np.zeros(bins.low.shape)), bins=bins)
        for plan in plans:
            if plan.number and rows.n_rows <= self.rules.rounds[0].rows:
                break  # the rows would be the same again
            if plan.number == 1 and not self.over():
                many = np.sqrt(len(machine.theta["smooth"]) / 10.0)
                machine = machine.raised(_RAISED * max(1.0, float(many)))
            key = [self.seed, TAG, plan.rows]
            plan = replace(plan, rows=max(300, min(plan.rows, most)))
            machine = descend(
                machine, rows, plan, key, alpha=self.space.alpha, gamma=self.space.gamma,
                over=self.over,
            )  # fmt: skip
        return replace(machine, seconds=machine.seconds + clock() - start)

    def scored(
        self, machine: Machine, learned: Sequence[Machine], size: int, *, scores: bool = True
    ) -> Machine:
        """Return the machine with its errors on the validation rows, for the best penalty.

        Without `scores` it gets the penalty only: it has learned from these rows.
        """
        parts = self.matrices(learned, 300 if self.over() else size)
        ridges = [part.ridge for part in learned]
        if self.space.alpha is not None:
            factor, outputs = 1.0, penalty.outputs(parts, ridges)
        else:
            factor, outputs = penalty.best_factor(parts, ridges)
        if not scores:
            return replace(machine, factor=factor)
        errors = penalty.errors(parts, outputs)
        value = 0.5 * float(np.log(max(errors.mean(), 1e-300) / self.variation))
        return replace(machine, error=value, errors=errors, outputs=outputs, factor=factor)

    def matrices(self, learned: Sequence[Machine], size: int) -> list[penalty.Matrices]:
        """Return the kernel matrices of up to `size` rows of each fold."""
        parts = []
        for machine, fold in zip(learned, self.folds, strict=False):
            rows = fold.train
            if rows.n_rows > size:
                mixed = purpose_rng(self.seed, 8).permutation(rows.n_rows)
                rows = rows.take(np.sort(mixed[:size]))
            values = penalty.panels(machine.matrix(rows))
            cross = machine.matrix(fold.validation, rows)
            parts.append(penalty.Matrices(values, cross, rows, fold.validation))
        return parts

    def ridge(self, machine: Machine) -> float:
        """Return lambda for all rows, carried on from its growth from few rows to more."""
        n, size = self.pool.n_rows, self.n_trained
        ridge = machine.ridge * machine.factor
        if self.few or machine.is_logistic or n <= 1.5 * size or self.over():
            return ridge
        few = ridge * penalty.best_factor(self.matrices([machine], size // 4), [ridge])[0]
        return penalty.carried(few, ridge, 4.0, size, n)

    @property
    def variation(self) -> float:
        validation = [fold.validation for fold in self.folds]
        mean = np.concatenate([j.weight * (j.Y**2).sum(axis=1) for j in validation]).mean()
        return max(float(mean), 1e-300)

    def entry(self, machine: Machine) -> dict[str, Any]:
        """Return an entry of ``history_["metric"]``."""
        kernel, metric, _ = machine.kernel()
        name = "matrix" if metric is not None and metric.ndim == 2 else "weights"
        return {
            "candidate": machine.name,
            "seconds": machine.seconds,
            "round": "equal weights" if machine.is_equal else name,
            "kernel": repr(kernel),
            "scaling": self.scaling.name,
            "bandwidth": 1.0 / machine.largest,
            "ridge": machine.ridge * machine.factor,
            "score": machine.error,
            "weights": [1.0] * len(self.groups) if metric is None else metric.round(6).tolist(),
        }

    def result(self, machine: Machine) -> SearchResult:
        space = self.space
        if space.gamma is None:
            machine = machine.narrowed(1.0 / space.bandwidth_factor)
        kernel, metric, warp = machine.kernel()
        scaling = self.scaling
        if metric is not None:
            scaling = replace(scaling, metric=metric, warp=warp)
        if space.alpha is not None:
            return SearchResult(kernel, scaling, space.alpha, self.rounds)
        alpha = self.ridge(machine) / self.pool.n_rows
        return SearchResult(kernel, scaling, alpha, self.rounds)


def _logistic(machine: Machine) -> Machine:
    return replace(machine, is_logistic=True, factor=1.0).with_ridge(_LOGISTIC_RIDGE)


def _mean(machines: Sequence[Machine]) -> Machine:
    """Return a machine with the mean parameters of machines of one candidate."""
    if machines[0].has_steps:  # each has its own
        machines = [machine.unwarped() for machine in machines]
    thetas = [machine.theta for machine in machines]
    return machines[0].with_theta(
        **{k: np.mean([t[k] for t in thetas], axis=0) for k in thetas[0]}
    )


def _median(values: AnyArray) -> float:
    positive = values[values > 0]
    return float(np.median(positive)) if len(positive) else 1.0


def _scaling(
    X: AnyArray, weight: Float64Array, space: SearchSpace, *, sparse: bool
) -> InputScaling:
    rule, fixed = space.scaled, space.fixed_metric
    if sparse and rule in ("auto", False):  # a shift would fill the rows
        return InputScaling(metric=fixed)
    if rule != "auto":
        scaling = InputScaling.fit(X, Gaussian(), standardize=rule, sample_weight=weight)
        return scaling.with_metric(fixed)
    return InputScaling.robust(X, weight).with_metric(fixed)


def _pays(simple: Machine, other: Machine, least: float = _GAIN) -> bool:
    """Whether the other gains `least` standard errors of the paired difference."""
    finite = [bool(np.isfinite(m.errors).all()) for m in (simple, other)]
    if not all(finite):  # a matrix could not be factored
        return finite == [False, True]
    difference = simple.errors - other.errors
    return bool(difference.mean() > least * difference.std() / np.sqrt(len(difference)))
