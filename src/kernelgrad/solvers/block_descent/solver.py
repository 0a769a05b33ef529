r"""Block descent with cached responses: exact gradients, Newton blocks, a searched span."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from kernelgrad.compute.backend import CPU
from kernelgrad.compute.linalg import first_of_equals, untouched
from kernelgrad.compute.memory import LEAST_LIMIT, system_bytes
from kernelgrad.compute.rng import draws
from kernelgrad.data.sampling import random_rows
from kernelgrad.files.disk import ScratchFolder
from kernelgrad.functions.exact import FIT_COMPILED, join_rows
from kernelgrad.functions.expansions import Expansion, SupportExpansion
from kernelgrad.kernels import Kernel
from kernelgrad.losses import scalar
from kernelgrad.losses.regression import ResidualLoss
from kernelgrad.losses.unlabelled import SemiSupervised
from kernelgrad.params import integer, parameters, real
from kernelgrad.registry import room
from kernelgrad.solvers import contract
from kernelgrad.solvers.block_descent import newton, shards
from kernelgrad.solvers.block_descent.coordinates import PART_BYTES, TILE, Block
from kernelgrad.solvers.block_descent.newton import BlockSteps, Workspace
from kernelgrad.solvers.block_descent.objective import Objective
from kernelgrad.solvers.block_descent.shards import SHARD, TAG, Path, Shard, Team
from kernelgrad.solvers.block_descent.state import BlockDescentState
from kernelgrad.solvers.contract import Problem, Resources, RowStore, StepInfo, TrainBatch
from kernelgrad.solvers.support import MERGE_ROWS, exact_kernel
from kernelgrad.solvers.trackers import TrackedResponses, UpdatedTracker
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad.validation import CapabilityError, DataError

WHOLE = 2048  # rows at most that one block has all together
AUDIT_EVERY = 16  # blocks between audits
AUDIT_WORK, AUDIT_LEAST = 2 * 10**9, 64  # operations of an audit, and rows at least
_FIRST_ROWS = 2**18  # rows at most that scaling, bandwidth and the best constant come from
_DIGEST_ROWS = 4096  # rows of a store in its digest

Rows = TrainBatch | RowStore


@parameters
class BlockDescent(contract.Solver[BlockDescentState]):
    r"""Block descent with cached responses: the responses of all rows are kept and updated.

    .. math:: \min_{f, b}\ \frac{1}{\sum_i w_i} \sum_i w_i\, l(y_i, f(x_i) + b)
              + \frac{\alpha}{2} \|f\|^2

    Each step takes a block of M coordinates: training rows as centres, drawn in proportion to
    ``|r_i / n + alpha a_i|^2``, the gradient at a row from the slopes r and the coefficients a.
    With K the values of the block on all rows, the gradient of the block is exact,

    .. math:: g = K^T r / n + \alpha f(X_I), \qquad
              H = K_S^T W_S K_S / |S| + (\alpha + \mu) K_{II}

    since the reproducing property gives the gradient of the penalty from the cached responses,
    and H is estimated on a sample S of rows, half of them drawn by curvature: 4 M rows, or 16 M
    for more than ``2^29 / M`` rows. The Newton step ``-H^{-1} g`` of the block, the
    previous steps (momentum) and f itself (scale) span up to three directions. The exact
    objective is minimised over this span, for each output separately where the loss allows it.
    H is summed in float64, and a small constant is added to its diagonal (1e-11 of the mean
    diagonal or more), so that coefficients stay small enough for float32 kernel values: their
    rounding then changes the objective by less than 1e-4 of it.
    With ``fit_intercept=True`` the unpenalised constant b belongs to every block. A block gets
    further steps, up to 10 in all, while they gain as much for their cost as a new block. For
    more than ``2^29 / M`` rows it gets one: its values, 2 GiB and more, are then computed again
    for each product, and another block gains more for this cost. Where outputs are
    coupled or their curvatures differ, the Newton step is refined by conjugate gradients on the
    coupled Hessian.

    Kinks (hinge, epsilon-insensitive, absolute, quantile, one-class) are smoothed over a width
    that shrinks when the smoothing error is no longer small against the gain of recent blocks;
    the reported objective is that of the exact loss.

    Steps that contradict the cached slope are rejected; a step whose predicted decrease is not
    confirmed at the next evaluation is undone. Every 16 blocks and at the end responses are
    computed again in float64, for all rows or, where that is expensive, for a sample; the last
    ``history_["objective"]`` is the recomputed one.

    Equal rows are one centre; of more than 131,072 rows only equal rows within the same 131,072
    and the same block. With a block that holds all rows it is an exact solver.

    Parameters
    ----------
    block_size : int or "auto", default="auto"
        Coordinates in a block, M. ``"auto"`` is all rows up to 2,048 of them, else 1,024. With
        8 to 784 columns this value reached the errors of other methods soonest, or nearly so;
        512 is as good for few columns, and 2,048 catches up after some ten blocks.
    tol : float >= 0, default=1e-3
        The fit has converged when, after each of two successive blocks (or one that holds all
        rows), as many further blocks as were taken, or as hold all coordinates once if these
        are fewer, would at the pace of this block lower the objective by no more than `tol`
        times its value, or times a hundredth of its value at the start. Gains fall with the
        square of the number of blocks or faster, so this is about the distance to the minimum.

    References
    ----------
    Dai et al. (2014), "Scalable Kernel Methods via Doubly Stochastic Gradients" (blocks,
    covariance preconditioner); Cotter et al. (2012), "The Kernelized Stochastic Batch
    Perceptron" (cached responses, sampling of violated rows); Li and Poczos (2017), "Utilize
    Old Coordinates: Faster Doubly Stochastic Gradients for Kernel Methods" (old directions
    used again).
    """

    name: ClassVar[str] = "block_descent"
    state_class: ClassVar[type[contract.State]] = BlockDescentState
    streams: ClassVar[bool] = False
    takes_stores: ClassVar[bool] = True
    removed = frozenset({"blocks", "hessian_rows", "inner_steps", "n_blocks"})

    block_size: int | str = integer(default="auto", low=1, words=("auto",))
    tol: float = real(default=1e-3, low=0)

    def check_problem(self, problem: Problem) -> None:
        """Raise CapabilityError if the loss is not convex."""
        if isinstance(problem.loss, SemiSupervised):
            raise CapabilityError(
                "solver 'block_descent' has no loss of unlabelled rows; take 'soft_labels', "
                "'tsg' or 'cccp_s3vm'."
            )

    def check_device(self, device: str, kernel: Kernel) -> None:
        if device != CPU:
            room("device").check_tiles(kernel, device)

    def resolve_batch_size(self, n_rows: int | None) -> int:
        return MERGE_ROWS if n_rows is None else n_rows

    def least_bytes(
        self, problem: Problem, n_rows: int, row_bytes: float, *, stays: bool
    ) -> float:
        """Return a lower bound on the memory of a fit in bytes, besides the given rows.

        Of rows in memory those prepared, in float32, and what belongs to responses; of rows
        that stay where they are one shard, and another as it is read and prepared.
        """
        M, C = self._width(n_rows), problem.n_outputs
        # bytes beside the arrays of a block with few threads, at the least
        work = 18e6 + 12.0 * M**2 + 4.0 * TILE * M  # Hessian, gram, a tile
        if C > 1 and problem.loss.code != scalar.SQUARED and n_rows > M:
            m = min(n_rows, self._sampled(M, 4 * n_rows * M > newton.STORE_BYTES))
            work += max(0.0, 4.0 * M * m - PART_BYTES)
        # bytes of a response and what belongs to it
        n, each = (min(n_rows, SHARD), 40.0) if stays else (n_rows, 48.0)
        return work + n * (row_bytes / n_rows + each * C + 24.0)

    @staticmethod
    def _sampled(M: int, many: bool) -> int:
        # values too many to be kept allow one step: a better one costs little beside them
        return M * (16 if many else 4)

    def _width(self, n: int) -> int:
        if self.block_size != "auto":
            return int(self.block_size)
        return n if n <= WHOLE else 1024

    def init(self, problem: Problem, batch: Rows) -> BlockDescentState:
        self.check_problem(problem)
        C = problem.n_outputs
        first = _first_rows(batch, problem.resources)
        if not first.sample_weight.any():
            raise DataError(
                f"All sample weights of {first.n_rows:,} rows are zero; at least one row must "
                "count."
            )
        start = contract.first_constant(problem, first)
        shifts = isinstance(problem.loss, ResidualLoss)
        exact = exact_kernel(problem, first)
        rows = exact.prepare(batch.X, batch.rows) if isinstance(batch, TrainBatch) else None
        bias = np.zeros(C) if shifts else start
        del first  # later steps read the rows of a store again
        state = BlockDescentState(
            exact=exact,
            digest=_digest(problem, batch),
            offset=start if shifts else np.zeros(C),
            iterate=newton.Iterate(problem.alpha, bias.copy(), np.zeros(C), np.ones(C)),
        )
        state.workspace = workspace = self._prepare(problem, state, batch, rows)
        it, objective = state.iterate, workspace.objective
        it.result_bias = bias.copy()
        it.widths = objective.initial_widths(workspace.scale, workspace.spread)
        return state

    def _prepare(
        self, problem: Problem, state: BlockDescentState, batch: Rows, rows: Any
    ) -> Workspace:
        n = batch.n_rows
        state.exact.device = problem.resources.device  # a fit may go on elsewhere
        objective = Objective(problem.loss, problem.n_outputs, n)
        recipe = shards.Recipe(state.exact, objective, state.offset)
        team = self._team(problem, recipe, batch, rows)
        facts = team.facts
        total = sum(f.weight for f in facts)
        team.ask("weigh", n / total)
        if state.shards:
            ends = [*team.starts[1:], n]
            parts = zip(team.starts, ends, strict=True)
            team.ask("start_from", each=[(_part(state.shards, a, b),) for a, b in parts])
        else:
            team.ask("start_from", None)
        state.shards = {}
        spread = np.sum([f.spread for f in facts], axis=0) / total
        candidates = sum(f.candidates for f in facts)
        scale = sum(f.diagonal for f in facts) / n
        peak = float(np.sqrt(max(f.peak for f in facts)))
        width = min(self._width(n), candidates)
        n_blocks = -(-candidates // width)
        self._share_buffer(problem, team, n, width)
        d = problem.n_features_in
        return Workspace(team, objective, spread, scale, peak, d, width, n_blocks)

    def _team(self, problem: Problem, recipe: shards.Recipe, batch: Rows, rows: Any) -> Team:
        n, progress = batch.n_rows, problem.resources.progress
        starts = range(0, n, SHARD)
        if isinstance(batch, TrainBatch):
            if rows is None:
                rows = recipe.home.prepare(batch.X, batch.rows)
            y, w, parts = batch.y, batch.sample_weight, []
            for number, a in enumerate(starts):
                s = slice(a, min(n, a + SHARD))
                parts.append(Shard(recipe, number, a, y[s], w[s], rows.take(s)))
            return Team(parts, progress)
        if batch.team is not None:
            team: Team = batch.team(recipe, progress)
            return team
        most = problem.resources.limit(0.25 * system_bytes())
        # a small limit is for the arrays alone, one that is a bound for all there is
        size = 4.0 * n * problem.n_features_in
        least = self.least_bytes(problem, n, size, stays=True)
        needed = 48 * n * problem.n_outputs + (0.0 if most < LEAST_LIMIT else least)
        folder = ScratchFolder() if needed > most else None
        path, parts = None if folder is None else str(folder.path), []
        for number, a in enumerate(starts):
            problem.resources.deadline.check()
            stop = min(n, a + SHARD)
            parts.append(shards.read_shard(recipe, number, a, stop, batch, path))
            progress(len(parts), len(starts))
        return Team(parts, progress, folder)

    def _share_buffer(self, problem: Problem, team: Team, n: int, M: int) -> None:
        """Allocate memory in the shards for the values of a block, if there is enough."""
        local = getattr(team, "shards", [])
        fixed = (
            2 * sum(shard.nbytes for shard in local) + 64 * 2**20 + 72 * n * problem.n_outputs
        )
        fits = 4 * n * M <= problem.resources.left(fixed, newton.STORE_BYTES)
        if local and fits and all(shard.store is None for shard in local):
            buffer = untouched(n, M).reshape(-1)
            for shard in local:
                shard.buffer = buffer[shard.start * M : (shard.start + shard.n) * M]

    def _attach(self, problem: Problem, state: BlockDescentState, batch: Rows) -> Workspace:
        if state.workspace is None:
            digest, what = _digest(problem, batch), "the responses"
            contract.check_same_rows(self, state, digest, batch.n_rows, what, "'dsg'")
            brief = bool(state.shards) and "f" not in state.shards
            state.workspace = self._prepare(problem, state, batch, None)
            if brief:
                self._refresh(state)
        return state.workspace

    def step(self, problem: Problem, state: BlockDescentState, batch: Rows) -> StepInfo:
        workspace, it = self._attach(problem, state, batch), state.iterate
        if it.alpha != problem.alpha:
            it.alpha, it.claim = problem.alpha, np.inf
        if state.iteration and state.iteration % AUDIT_EVERY == 0:
            audit, doubt = self._audit(problem, state)
            # to make responses anew takes as long as some ten blocks
            if audit["drift"] > 1e-5 + 3.0 * doubt or doubt > 1e-3:
                self._refresh(state)
        steps = BlockSteps(it, workspace)
        block, n_blocks = self._draw(problem, state), workspace.n_blocks
        steps.enter(block, problem.fit_intercept)
        self._descend(problem, state, steps)
        state.iteration += 1
        pace = min(state.iteration, n_blocks)
        steps.leave(self.tol, pace)
        vars(block).pop("gram", None)  # the next block needs the room
        state.rows_seen += batch.n_rows
        state.slow = state.slow + 1 if steps.still else 0
        state.kernel_evaluations += steps.n_values
        enough = 1 if n_blocks == 1 else 2  # another block may have more to gain
        patience = max(4, min(2 * n_blocks, 16))  # blocks without a step
        return StepInfo(
            train_loss=it.loss,
            step_size=steps.last_step,
            update=partial(_moved, block, steps.update),
            n_support=steps.n_centres,
            kernel_evaluations=state.kernel_evaluations,
            epoch=float(state.iteration),
            objective=min(it.objective, it.constant),
            converged=it.rejected >= patience or state.slow >= enough,
        )

    def _draw(self, problem: Problem, state: BlockDescentState) -> Block:
        """Return the next block: rows of large strength come first; see :meth:`Shard.draw`."""
        workspace, number = state.rows_workspace, state.iteration
        team, n_blocks, width = workspace.team, workspace.n_blocks, workspace.max_width
        total, alpha = None, state.iterate.alpha
        if number:
            total = sum(team.ask("strength", alpha))
            total = total if np.isfinite(total) and total > 0 else None
        drawn = team.ask("draw", alpha, total, number, n_blocks, width, problem.seed)
        index = shards.best_drawn(drawn, width)[1]
        centres = _rows_at(team, index)
        # shards do not know each other's rows
        first = first_of_equals(shards.hashes_of(centres))
        if not first.all():
            index, centres = index[first], centres.take(np.flatnonzero(first))
        compiled = workspace.objective.n * len(index) >= FIT_COMPILED
        return Block(number, state.exact, centres, index, compiled=compiled)

    def _descend(self, problem: Problem, state: BlockDescentState, steps: BlockSteps) -> None:
        n, M = steps.objective.n, steps.block.width
        for number in range(1 if steps.workspace.too_many else 10):
            first = number == 0
            requests = self._sample_requests(problem, state, steps) if first else None
            products, samples = steps.slopes(requests)
            if first:
                steps.curve(shards.joined_samples(samples))
            steps.solve(products)
            steps.search()
            if not (steps.live and steps.worth(number, n, M)):
                break

    def _sample_requests(
        self, problem: Problem, state: BlockDescentState, steps: BlockSteps
    ) -> list[tuple[Any]]:
        """Return the sampled rows of the Hessian that each shard must provide."""
        starts, n = steps.team.starts, steps.objective.n
        m = self._sampled(steps.block.width, steps.workspace.too_many)
        if m >= n:
            return [((0.0, 0.0, None),) for _ in starts]
        mean = float(sum(steps.curved)) / n
        sizes = np.diff([*starts, n])
        ends = np.cumsum(0.5 * np.array(steps.curved) / max(mean, 1e-300) + 0.5 * sizes)
        total = float(ends[-1])
        rng = draws(problem.seed, TAG + 2, state.iteration)
        places = (np.arange(m) + rng.random()) * (total / m)
        parts = np.split(places, np.searchsorted(places, ends[:-1]))
        begins = [0.0, *ends[:-1]]
        return [((mean, total, p - a),) for a, p in zip(begins, parts, strict=True)]

    def finish(self, problem: Problem, state: BlockDescentState, batch: Rows) -> dict[str, Any]:
        """Return the objective claimed and the one found in float64; see the class."""
        self._attach(problem, state, batch)
        it = state.iterate
        if not it.is_poor:
            audit, _ = self._audit(problem, state)
            # a function that is worse than the constant is not returned
            if audit["objective"] <= it.constant + 1e-2 * abs(it.constant):
                return audit
            it.objective = np.inf  # not what it claims: the best constant is the result
        return {
            "claimed": it.constant,
            "objective": it.constant,
            "drift": 0.0,
            "rows": batch.n_rows,
        }

    def _audit(
        self, problem: Problem, state: BlockDescentState
    ) -> tuple[dict[str, Any], float]:
        """Return the audit and the standard error of its drift, which samples of rows have.

        It has the objective that cached responses claim, the one found in float64, their
        difference over the claim, and how many rows were evaluated again.
        """
        workspace, it = state.rows_workspace, state.iterate
        n, team, loss = workspace.objective.n, workspace.team, workspace.objective.loss
        index, coef = self.coefficients(state)
        used = int(np.count_nonzero(coef.any(axis=0)))
        price = max(1, used) * (2 * workspace.n_features + 30)
        m = max(AUDIT_LEAST, AUDIT_WORK // price)
        rng = draws(problem.seed, TAG + 1, state.iteration)
        rows = random_rows(n, m, rng)
        blocks = self._whole(state, index, coef)
        truth, cached, Y, w = _recomputed(team, blocks, rows)
        with np.errstate(over="ignore", invalid="ignore"):
            rise = w * loss.value(Y.T, (truth + it.result_bias[:, None]).T)
            rise = rise - w * loss.value(Y.T, (cached + it.result_bias[:, None]).T)
        error = float(rise.std()) * np.sqrt(max(0.0, 1.0 / len(rows) - 1.0 / n))
        norm, strength = 0.0, np.abs(coef).sum(axis=0)
        if strength.any():
            at, share = np.arange(len(index)), coef
            if m < n:
                p = strength / strength.sum()
                at = np.sort(rng.choice(len(index), m, p=p))
                share = coef[:, at] / (p[at] * m)
            truth, cached, _, _ = _recomputed(team, blocks, index[at])
            parts = (share * (truth - cached)).sum(axis=0)
            norm = float(parts.sum())
            if len(at) < len(index):
                spread = float(parts.std()) * np.sqrt(len(at))
                error = float(np.hypot(error, 0.5 * it.alpha * spread))
        objective = it.objective + float(rise.mean()) + 0.5 * it.alpha * norm
        size = max(abs(it.objective), 1e-3 * abs(it.start))
        drift = abs(objective - it.objective) / size if size > 0 else 0.0
        drift = drift if np.isfinite(drift) else np.inf
        doubt = error / size if size > 0 and np.isfinite(error) else 0.0
        audit = {"claimed": it.objective, "objective": objective, "drift": drift}
        return audit | {"rows": len(rows)}, doubt

    def coefficients(
        self, state: BlockDescentState, which: str = "coef"
    ) -> tuple[IntArray, Float64Array]:
        """Return the numbers of the centres and the coefficients (C, k) that are not zero.

        `which` is "coef" or "coef_momentum", those of the last step.
        """
        arrays = state.snapshot(brief=True)
        used = np.flatnonzero(arrays[which].any(axis=0))
        return arrays["index"][used], arrays[which][:, used]

    def _whole(
        self, state: BlockDescentState, index: IntArray, coef: Float64Array
    ) -> list[tuple[Block, Float64Array]]:
        """Return blocks and coefficients (C, M) that make f."""
        if not len(index):
            return []
        centres = _rows_at(state.rows_workspace.team, index)
        return [(Block(0, state.exact, centres, index), coef)]

    def _refresh(self, state: BlockDescentState) -> None:
        """Compute the responses again from the coefficients and drop the last step."""
        blocks = self._whole(state, *self.coefficients(state))
        state.rows_workspace.team.ask("refresh", blocks)
        it = state.iterate
        it.bias_momentum, it.claim = np.zeros_like(it.bias), np.inf
        it.moving = False

    def expansion(self, state: BlockDescentState) -> Expansion:
        it = state.iterate
        index, coef = self.coefficients(state)
        if it.is_poor or not len(index):  # an expansion has a row
            index, coef = np.zeros(1, np.intp), np.zeros((len(state.offset), 1))
        rows = _rows_at(state.rows_workspace.team, index)
        bias = it.first_bias if it.is_poor else it.result_bias
        return SupportExpansion(state.exact, rows, coef.T, state.offset + bias)

    def _responses(self, state: BlockDescentState, rows: Any) -> TrackedResponses:
        responses: TrackedResponses = {}
        for name, which in (("x", "coef"), ("v", "coef_momentum")):
            responses[name] = np.zeros((len(state.offset), rows.n_rows))
            if state.workspace is not None:
                for block, coef in self._whole(state, *self.coefficients(state, which)):
                    responses[name] += block.products(rows, coef)
        return responses

    def track(self, state: BlockDescentState, X: Matrix) -> UpdatedTracker:
        def output(responses: TrackedResponses) -> Float64Array:
            it, f = state.iterate, responses["x"].T
            if it.is_poor:
                return np.tile(state.offset + it.first_bias, (len(f), 1))
            return np.asarray(f + (state.offset + it.result_bias))

        rows, ahead = state.exact.prepare(X), state.workspace is None
        return UpdatedTracker(rows, partial(self._responses, state), output, ahead=ahead)


def _moved(block: Block, path: Path, rows: Any, before: TrackedResponses) -> TrackedResponses:
    """Return f and the last step, (C, n), in terms of both and of the block before a step."""
    f, p = before["x"], before["v"]
    pair, C = np.concatenate([path.value, path.momentum]), len(f)
    K = block.products(rows, pair[:, 2:])
    K += pair[:, :1] * np.tile(f, (2, 1)) + pair[:, 1:2] * np.tile(p, (2, 1))
    return {"x": K[:C], "v": K[C:]}


def _first_rows(batch: Rows, resources: Resources) -> TrainBatch:
    """Return rows for scaling, bandwidth and constant, which take a part of the limit."""
    if isinstance(batch, TrainBatch):
        return _every_kth(batch, _FIRST_ROWS)
    fits = resources.limit(np.inf) / (8.0 * batch.row_bytes)  # reading them takes two copies
    return _every_kth(batch, int(min(_FIRST_ROWS, max(1024.0, fits))))


def _every_kth(batch: Rows, most: int) -> TrainBatch:
    """Return all rows, or every k-th where there are more than `most`."""
    n = batch.n_rows
    if n <= most:
        return batch if isinstance(batch, TrainBatch) else batch.read(0, n)
    at = np.arange(0, n, -(-n // most))
    if not isinstance(batch, TrainBatch):
        return batch.take(at)
    ids = None if batch.rows is None else batch.rows[at]
    return TrainBatch(batch.X[at], batch.y[at], batch.sample_weight[at], ids)


def _digest(problem: Problem, batch: Rows) -> bytes:
    most = batch.n_rows if isinstance(batch, TrainBatch) else _DIGEST_ROWS
    return contract.batch_digest(problem, _every_kth(batch, most))


def _by_shard(team: Team, rows: IntArray) -> list[tuple[IntArray] | None]:
    """Return increasing row numbers as arguments of shards, counted from each one's start."""
    starts = team.starts
    parts = np.split(rows, np.searchsorted(rows, starts[1:]))
    return [(p - a,) if len(p) else None for a, p in zip(starts, parts, strict=True)]


def _rows_at(team: Team, rows: IntArray) -> Any:
    """Return prepared rows with increasing numbers."""
    parts = team.ask("rows_at", each=_by_shard(team, rows))
    return join_rows([part for part in parts if part is not None])


def _recomputed(
    team: Team, blocks: list[tuple[Block, Float64Array]], rows: IntArray
) -> tuple[Float64Array, Float64Array, AnyArray, Float64Array]:
    """Return f of increasing rows, recomputed and as cached, with targets and weights."""
    prepared = _rows_at(team, rows)
    parts = [p for p in team.ask("responses", each=_by_shard(team, rows)) if p is not None]
    f, Y = (np.concatenate([p[i] for p in parts], axis=1) for i in (0, 1))
    w = np.concatenate([p[2] for p in parts]).astype(np.float64)
    truth = np.zeros(f.shape)
    for block, coef in blocks:
        truth += block.products(prepared, coef, wide=True)
    return truth, f.astype(np.float64), Y, w


def _part(snapshot: dict[str, AnyArray], start: int, stop: int) -> dict[str, AnyArray]:
    """Return the part of a snapshot that belongs to one shard."""
    own = (snapshot["index"] >= start) & (snapshot["index"] < stop)
    axes = {"f": slice(start, stop), "p": slice(start, stop)}
    return {name: a[..., axes.get(name, own)] for name, a in snapshot.items()}
