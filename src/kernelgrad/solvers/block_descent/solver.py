r"""Block descent with cached responses: exact gradients, Newton blocks, a searched span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelgrad._params import choice, integer, parameters, real
from kernelgrad._typing import AnyArray, Float32Array, Float64Array, IntArray, Matrix
from kernelgrad._validation import CapabilityError
from kernelgrad.compute.linalg import first_of_equals, row_hashes, untouched
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.expansions import Expansion, RandomFeatureExpansion, SupportExpansion
from kernelgrad.functions.features import FeatureStream
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import ExactRows, restore_kernel
from kernelgrad.losses.regression import ResidualLoss
from kernelgrad.losses.unlabelled import SemiSupervised
from kernelgrad.solvers.audit import AUDIT_LEAST, AUDIT_WORK, Audit
from kernelgrad.solvers.base import (
    Problem,
    Solver,
    State,
    StepInfo,
    Tracker,
    TrainBatch,
    batch_digest,
    draws,
    transient,
)
from kernelgrad.solvers.block_descent import _constants as constants
from kernelgrad.solvers.block_descent.coordinates import (
    Block,
    BlockMatrix,
    Blocks,
    FeatureBlocks,
    SupportBlocks,
)
from kernelgrad.solvers.block_descent.newton import BlockSteps, BlockUpdate, Iterate, Workspace
from kernelgrad.solvers.block_descent.objective import Objective
from kernelgrad.solvers.kernel.base import MERGE_ROWS, build_exact
from kernelgrad.solvers.random_features.base import build_stream

_TAG = 0x636163


@dataclass(kw_only=True)
class CachedState(State):
    """State of :class:`CachedBlockDescent`.

    Attributes
    ----------
    exact : ExactKernel or None
        Of functions over training rows.
    stream : FeatureStream or None
        Of functions of random features.
    digest : bytes
        Of the rows, which a continued fit must bring again.
    offset : float64 array (C,)
        Taken off targets and added to predictions: float32 then holds residuals.
    used : int32 array (n,)
        As in :class:`SupportBlocks`.
    iterates : list of Iterate
        One for each alpha.
    """

    exact: ExactKernel | None
    stream: FeatureStream | None
    digest: bytes
    offset: Float64Array
    used: IntArray
    iterates: list[Iterate]
    kernel_evaluations: int = 0
    slow: int = 0
    memory: Workspace | None = transient()

    def keep(self, indices: list[int]) -> None:
        """Go on with some of the iterates, in this order."""
        self.iterates = [self.iterates[i] for i in indices]

    def describe_parts(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return the kernel or the stream, and the iterates."""
        home = self.exact if self.exact is not None else self.stream
        assert home is not None
        arrays = {f"scaling.{k}": a for k, a in home.scaling.arrays().items()}
        iterates = []
        for i, it in enumerate(self.iterates):
            plain = {}
            for name, value in vars(it).items():
                if isinstance(value, np.ndarray):
                    arrays[f"{i}.{name}"] = value
                else:
                    plain[name] = value if np.isfinite(value) else None
            iterates.append(plain)
        kind = "support" if self.exact is not None else "features"
        return {"kind": kind, "home": home.describe(), "iterates": iterates}, arrays

    @classmethod
    def restore_parts(
        cls, problem: Problem, values: dict[str, Any], arrays: dict[str, AnyArray]
    ) -> dict[str, Any]:
        """Return the fields that :meth:`describe_parts` described."""
        home = values["home"]
        scaling = InputScaling.from_arrays(
            {k.removeprefix("scaling."): a for k, a in arrays.items() if "scaling." in k}
        )
        kernel = restore_kernel(home["kernel"])
        exact, stream = None, None
        if values["kind"] == "support":
            exact = ExactKernel(kernel, home["n_features_in"], scaling, wide=home["wide"])
        else:
            stream = FeatureStream(
                kernel, home["n_features_in"], home["seed"], home["block_size"], scaling,
                problem.cache_bytes,
            )  # fmt: skip
        iterates = []
        for i, plain in enumerate(values["iterates"]):
            own: dict[str, Any] = {k: np.inf if v is None else v for k, v in plain.items()}
            prefix = f"{i}."
            own |= {
                k.removeprefix(prefix): np.array(a)
                for k, a in arrays.items()
                if k.startswith(prefix)
            }
            iterates.append(Iterate(**own))
        used = arrays["used"].astype(np.int32)  # files of 0.1.0 hold whether rows were used
        counters = values.get("numbers", {})  # of files of 0.1.0
        return {
            "exact": exact, "stream": stream, "iterates": iterates, "used": used, **counters
        }  # fmt: skip


@dataclass(frozen=True)
class BlockMove:
    """One block and how it moved each iterate."""

    block: Block
    updates: list[BlockUpdate]


class CachedTracker(Tracker):
    """Responses of fixed rows: a step costs one block of values on them."""

    def __init__(self, solver: CachedBlockDescent, state: CachedState, X: Matrix) -> None:
        self._solver, self._state = solver, state
        self._rows: Any = (
            state.exact.prepare(X) if state.exact is not None else state.stream.prepare(X)  # type: ignore[union-attr]
        )
        self._f: list[Float64Array] | None = None
        self._p: list[Float64Array] = []
        self._X = X

    def _predict(self) -> None:
        self._f, self._p = [], []
        for it in self._state.iterates:
            for coef, out in ((it.coef, self._f), (it.coef_momentum, self._p)):
                e = self._solver.function(self._state, coef, np.zeros(len(it.bias)))
                out.append(e.raw_prediction(self._X).T)

    def advance(self, info: StepInfo) -> None:
        """Apply one :class:`BlockMove`."""
        if self._f is None and self._state.iteration > 1:  # of a state that was there before
            self._predict()
            return
        if self._f is None:
            shape = len(self._state.offset), self._X.shape[0]
            self._f = [np.zeros(shape) for _ in self._state.iterates]
            self._p = [np.zeros(shape) for _ in self._state.iterates]
        move: BlockMove = info.update
        stacked = np.concatenate([np.concatenate([p.kf, p.kp]) for p in move.updates])
        K = move.block.products(self._rows, stacked)
        C = len(self._state.offset)
        for i, update in enumerate(move.updates):
            f, p = self._f[i], self._p[i]
            new = K[2 * i * C : (2 * i + 1) * C], K[(2 * i + 1) * C : (2 * i + 2) * C]
            self._f[i] = update.f[:, :1] * f + update.f[:, 1:] * p + new[0]
            self._p[i] = update.p[:, :1] * f + update.p[:, 1:] * p + new[1]

    def keep(self, indices: list[int]) -> None:
        """Go on with some of the iterates, as :meth:`CachedState.keep` did."""
        if self._f is not None:
            self._f = [self._f[i] for i in indices]
            self._p = [self._p[i] for i in indices]

    def raw_predictions(self) -> list[Float64Array]:
        """Return the responses of all iterates, (n, C) each."""
        assert self._f is not None
        state = self._state
        return [
            np.tile(state.offset + it.first_bias, (f.shape[1], 1))
            if it.is_poor
            else f.T + (state.offset + it.result_bias)
            for f, it in zip(self._f, state.iterates, strict=True)
        ]

    def raw_prediction(self) -> Float64Array:
        """Return the responses of the first iterate."""
        return self.raw_predictions()[0]


@parameters
class CachedBlockDescent(Solver[CachedState]):
    r"""Block descent with cached responses: the responses of all rows are kept and updated.

    .. math:: \min_{f, b}\ \frac{1}{\sum_i w_i} \sum_i w_i\, l(y_i, f(x_i) + b)
              + \frac{\alpha}{2} \|f\|^2

    Each step takes a block of M coordinates: training rows as centres (``blocks="support"``),
    drawn in proportion to ``|r_i / n + alpha a_i|^2``, what the slopes r and the coefficients a
    leave of the gradient at a row, or a block of random features. With K the values of the
    block on all rows its gradient is exact,

    .. math:: g = K^T r / n + \alpha f(X_I), \qquad
              H = K_S^T W_S K_S / |S| + (\alpha + \mu) K_{II}

    the penalty's part being in the cache by the reproducing property, and H comes from a
    sample S of rows. The Newton step ``-H^{-1} g`` of the block, the steps before (momentum)
    and f itself (scale) span up to three directions, over which the exact objective is
    minimised, each output apart where the loss lets them. The constant b, unpenalised, belongs
    to every block where ``fit_intercept=True``. A block is used for more such steps while they
    gain as much for their price as a new block. Where outputs are coupled or their curvatures
    differ, the Newton step is refined by conjugate gradients on the coupled Hessian.

    Kinks (hinge, epsilon-insensitive, absolute, quantile, one-class) are smoothed over a width
    that shrinks when the error it makes is no longer small against the gain of recent blocks;
    the objective that is reported is that of the exact loss.

    Steps that contradict the cached slope are refused; a step whose predicted decrease is not
    confirmed at the next look is undone. Every 16 blocks and at the end responses are made anew
    in float64, of all rows or, where that is dear, of a sample; ``history_["audit"]`` holds the
    objective claimed and found, and the last ``history_["objective"]`` is the one found.

    All kernels, losses and tasks; equal rows are one centre. A block that holds all rows (up to
    2,048 by default) makes it an exact solver.

    Parameters
    ----------
    blocks : {"support", "features"}, default="support"
        Training rows, for exact kernels, or random features: J blocks stand for the kernel
        ``sum_j phi_j . phi_j / J`` and are taken in turn. Features suit smooth functions of
        many rows and make predictions independent of the training rows.
    block_size : int or "auto", default="auto"
        Coordinates in a block, M. ``"auto"``: all rows up to 2,048 of them, else 1,024. From 8
        to 784 columns that reached the errors of other methods soonest, or nearly so; 512 is as
        good for few columns, 2,048 catches up after some ten blocks.
    n_blocks : int or "auto", default="auto"
        J of random features; 16 by default.
    hessian_rows : int or "auto", default="auto"
        Rows of the sample S, half of them by curvature; 4 M by default.
    inner_steps : int or "auto", default="auto"
        Newton steps on a block; ``"auto"`` weighs gain against price, at most 10.
    tol : float >= 0, default=1e-3
        Converged when, after each of two blocks in a row (one that holds all rows), as many
        blocks as were taken, or as hold all coordinates once if these are fewer, would at the
        pace of the block lower the objective by no more than that part of it, or of a hundredth
        of what it was at the start. Gains fall with the square of the number of blocks, or
        faster: so this is about the distance to the minimum.

    Notes
    -----
    Values of a block, ``4 n M`` bytes, are kept while it is used if they fit the estimator's
    ``memory_limit`` (2 GiB when there is none), else they are made in tiles whenever they are
    needed, 1.5 to 3 times slower. The model is the same to the bit.

    References
    ----------
    Dai et al. (2014), "Scalable Kernel Methods via Doubly Stochastic Gradients" (blocks,
    covariance preconditioner); Cotter et al. (2012), "The Kernelized Stochastic Batch
    Perceptron" (cached responses, sampling of violated rows); Li and Poczos (2017), "Utilize
    Old Coordinates: Faster Doubly Stochastic Gradients for Kernel Methods" (old directions
    used again).
    """

    name: ClassVar[str] = "cached"
    state_class: ClassVar[type[State]] = CachedState
    streams: ClassVar[bool] = False

    blocks: str = choice(("support", "features"), default="support")
    block_size: int | str = integer(default="auto", low=1, words=("auto",))
    n_blocks: int | str = integer(default="auto", low=1, words=("auto",))
    hessian_rows: int | str = integer(default="auto", low=1, words=("auto",))
    inner_steps: int | str = integer(default="auto", low=1, words=("auto",))
    tol: float = real(default=1e-3, low=0)

    def check_problem(self, problem: Problem) -> None:
        """Raise CapabilityError if features are asked of a kernel that has none."""
        loss = problem.loss
        matches = not isinstance(loss, SemiSupervised) or loss.pseudo_factor is not None
        if not matches and loss.smoothness is None:
            assert isinstance(loss, SemiSupervised)
            raise CapabilityError(
                f"solver 'cached' has no loss {loss.labelled.name!r} beside "
                f"{loss.unlabelled.name!r}: their kinks are smoothed together. Take 'hinge' "
                "with 'symmetric_hinge' or 'ramp', 'squared_hinge' with "
                "'squared_symmetric_hinge', or smooth losses; or the solver 'tsg'."
            )
        if self.blocks == "features" and not problem.kernel.has_random_features:
            raise CapabilityError(
                f"kernel {problem.kernel.name!r} has no random features; use blocks='support'."
            )

    def resolve_batch_size(self, n_rows: int | None) -> int:
        """Return all rows; None asks up to how many duplicates are worth merging."""
        return MERGE_ROWS if n_rows is None else n_rows

    def _width(self, n: int) -> int:
        """Return coordinates in a block."""
        if self.block_size != "auto":
            return int(self.block_size)
        return n if n <= constants.WHOLE else constants.WIDTH

    def init(self, problem: Problem, batch: TrainBatch) -> CachedState:
        """Resolve the kernel on the rows and start from the best constant."""
        return self.init_path(problem, batch, [problem.alpha])

    def init_path(
        self, problem: Problem, batch: TrainBatch, alphas: list[float]
    ) -> CachedState:
        """Return the state of several functions, one for each alpha, that share blocks."""
        self.check_problem(problem)
        C, n = problem.n_outputs, batch.n_rows
        start = np.zeros(C)
        if problem.fit_intercept:
            start = np.asarray(problem.loss.intercept(batch.y, batch.sample_weight), float)
        shifts = isinstance(problem.loss, ResidualLoss)
        exact, stream, rows = None, None, None
        if self.blocks == "support":
            exact, rows = build_exact(problem, batch)
        else:
            size = self._width(max(n, constants.WHOLE + 1))
            stream = build_stream(problem, batch, lambda planes: -(-size // planes))
        state = CachedState(
            exact=exact,
            stream=stream,
            digest=batch_digest(problem, batch),
            offset=start if shifts else np.zeros(C),
            used=np.zeros(n, np.int32),
            iterates=[],
        )
        memory = self._prepare(problem, state, batch, rows)
        bias = np.zeros(C) if shifts else start
        for alpha in alphas:
            coef = memory.blocks.new_coef(C)
            state.iterates.append(
                Iterate(
                    alpha=alpha,
                    responses=np.zeros((C, n), np.float32),
                    momentum=np.zeros((C, n), np.float32),
                    bias=bias.copy(),
                    result_bias=bias.copy(),
                    bias_momentum=np.zeros(C),
                    coef=coef,
                    coef_momentum=coef.copy(),
                    widths=memory.objective.initial_widths(memory.scale),
                    share=memory.objective.first_share,
                )
            )
        state.memory = memory
        return state

    def _prepare(
        self, problem: Problem, state: CachedState, batch: TrainBatch, rows: ExactRows | None
    ) -> Workspace:
        Y = np.ascontiguousarray((batch.y - state.offset).T.astype(np.float32))
        objective = Objective(problem.loss, Y, batch.sample_weight)
        n = batch.n_rows
        blocks: Blocks
        scale = peak = 1.0
        if state.exact is not None:
            if rows is None:
                rows = state.exact.prepare(batch.X, batch.rows)
            distinct = first_of_equals(_hashes(rows))
            support = SupportBlocks(state.exact, rows, distinct, self._width(n))
            support.used = state.used
            blocks, row_bytes = support, rows.nbytes
            diagonal = state.exact.kernel.exact_diag(rows)
            scale, peak = float(diagonal.mean()), float(np.sqrt(diagonal.max()))
        else:
            assert state.stream is not None
            J = constants.FEATURE_BLOCKS if self.n_blocks == "auto" else int(self.n_blocks)
            blocks = FeatureBlocks(state.stream, state.stream.prepare(batch.X), J)
            row_bytes = 4 * n * problem.n_features_in
            some = state.stream.scaling.apply(batch.X[:: max(1, n // 256)])
            # features of a row are longer or shorter than the kernel says
            peak = 2.0 * float(np.sqrt(state.stream.kernel.diag(some).max()))
        size = 4 * n * blocks.max_width
        limit = constants.STORE_BYTES if problem.memory_limit is None else problem.memory_limit
        fixed = 0
        if problem.memory_limit is not None:
            fixed = 2 * row_bytes + constants.WORK_BYTES + 72 * n * problem.n_outputs
        buffer = untouched(n, blocks.max_width).reshape(-1) if size + fixed <= limit else None
        return Workspace(blocks, objective, buffer, scale, peak, batch.X.shape[1])

    def _attach(self, problem: Problem, state: CachedState, batch: TrainBatch) -> Workspace:
        if state.memory is None:
            if batch_digest(problem, batch) != state.digest:
                raise CapabilityError(
                    f"solver {self.name!r} keeps the responses of all its training rows: it "
                    "can be continued with the same rows, targets, weights and loss only. Fit "
                    "again, or take a solver for streams such as 'dsg'."
                )
            state.memory = self._prepare(problem, state, batch, None)
        return state.memory

    def step(self, problem: Problem, state: CachedState, batch: TrainBatch) -> StepInfo:
        """Take one block and make Newton steps on it."""
        memory = self._attach(problem, state, batch)
        if len(state.iterates) == 1 and state.iterates[0].alpha != problem.alpha:
            state.iterates[0].alpha, state.iterates[0].claim = problem.alpha, np.inf
        n = batch.n_rows
        if state.iteration and state.iteration % constants.AUDIT_EVERY == 0:
            for it in state.iterates:
                audit = self._audit(problem, state, it)
                if audit.drift > constants.DRIFT:
                    self._refresh(state, it)
        steps = [BlockSteps(it, memory) for it in state.iterates]
        rng = draws(problem.seed, _TAG, state.iteration)
        weight = None
        if state.iteration or memory.objective.semi_supervised:  # labels first
            weight = np.sum([s.row_weights() for s in steps], axis=0)
        block = memory.blocks.draw(state.iteration, weight, rng)
        matrix = block.matrix(memory.buffer)
        for s in steps:
            s.enter(block, problem.fit_intercept)
        self._descend(state, memory, block, matrix, steps, rng)
        if isinstance(memory.blocks, SupportBlocks):
            state.used[block.index] = state.iteration + 1  # type: ignore[attr-defined]
            state.kernel_evaluations += block.width * n * matrix.n_tiles_made
        state.iteration += 1
        for s in steps:
            s.leave(self.tol, min(state.iteration, memory.blocks.n_blocks))
        state.rows_seen += n
        first = state.iterates[0]
        state.slow = state.slow + 1 if steps[0].still else 0
        enough = 1 if memory.blocks.n_blocks == 1 else 2  # another block may have more to gain
        patience = max(
            constants.REJECTIONS, min(2 * memory.blocks.n_blocks, constants.MOST_REJECTIONS)
        )
        stuck = all(it.rejected >= patience for it in state.iterates)
        return StepInfo(
            train_loss=first.loss,
            step_size=steps[0].last_step,
            n_random_features=(
                min(state.iteration, memory.blocks.n_blocks) * block.width
                if state.stream
                else 0
            ),
            update=BlockMove(block, [s.update for s in steps]),
            n_support=int(np.count_nonzero(first.coef.any(axis=0))) if state.exact else 0,
            kernel_evaluations=state.kernel_evaluations,
            epoch=float(state.iteration),
            objective=min(first.objective, first.constant),
            converged=stuck or state.slow >= enough,
        )

    def _descend(
        self,
        state: CachedState,
        memory: Workspace,
        block: Block,
        matrix: BlockMatrix,
        steps: list[BlockSteps],
        rng: np.random.Generator,
    ) -> None:
        n, M = matrix.n, block.width
        most = constants.MOST_INNER if self.inner_steps == "auto" else int(self.inner_steps)
        for number in range(most):
            live = [s for s in steps if s.live]
            if not live:
                break
            R = np.concatenate([s.R for s in live])
            products = matrix.product(R)
            if number == 0:
                rows, share = self._hessian_sample(live, n, M, rng)
                sample = block.sample(rows)
                for s in live:
                    s.curve(sample, rows, share)
            C = len(state.offset)
            moves = []
            for i, s in enumerate(live):
                s.solve(products[i * C : (i + 1) * C])
                moves.append(s.move)
            D = np.empty((len(live) * C, n), np.float32)
            matrix.responses(np.concatenate(moves), D)
            for i, s in enumerate(live):
                s.search(D[i * C : (i + 1) * C])
            if self.inner_steps == "auto":
                for s in live:
                    s.live = s.live and s.worth(number, n, M)

    def _hessian_sample(
        self, live: list[BlockSteps], n: int, M: int, rng: np.random.Generator
    ) -> tuple[IntArray, Float32Array]:
        """Return rows for the Hessian and the factors that make their mean that of all."""
        m = (
            constants.HESSIAN_ROWS * M
            if self.hessian_rows == "auto"
            else int(self.hessian_rows)
        )
        if m >= n:
            return np.arange(n), np.ones(n, np.float32)
        weight = np.zeros(n)
        for s in live:
            largest = s.W.max(axis=0).astype(np.float64)
            weight += largest / max(float(largest.mean()), 1e-300)
        p = 0.5 * weight / max(float(weight.mean()), 1e-300) + 0.5
        total = np.cumsum(p)
        at = (np.arange(m) + rng.random()) * (total[-1] / m)
        rows = np.minimum(np.searchsorted(total, at, side="right"), n - 1)
        return rows, (total[-1] / n / p[rows]).astype(np.float32)

    def finish(self, problem: Problem, state: CachedState, batch: TrainBatch) -> dict[str, Any]:
        """Return the objective claimed and the one found in float64; see the class."""
        self._attach(problem, state, batch)
        it = state.iterates[0]
        if not it.is_poor:
            audit = self._audit(problem, state, it)
            if audit.objective <= it.constant + constants.DOUBT * abs(it.constant):
                return vars(audit)
            it.objective = np.inf  # not what it claims: the best constant is the result
        return vars(Audit(it.constant, it.constant, 0.0, batch.n_rows))

    def _audit(self, problem: Problem, state: CachedState, it: Iterate) -> Audit:
        memory = state.memory
        assert memory is not None
        n = it.responses.shape[1]
        used = int(np.count_nonzero(it.coef.any(axis=0)))
        price = max(1, used) * (2 * memory.n_features + 30)
        m = max(AUDIT_LEAST, AUDIT_WORK // price)
        rng = draws(problem.seed, _TAG + 1, state.iteration)
        strength = np.abs(it.coef).sum(axis=0) if state.exact is not None else np.zeros(0)
        if m >= n:
            rows = centres = np.arange(n)
        else:
            rows = rng.choice(n, m, replace=False)
            centres = rows[:0]
            if strength.any():
                centres = rng.choice(n, m, p=strength / strength.sum())
        both = np.concatenate([rows, centres])
        truth = self._responses(state, it.coef, both).T
        cached = it.responses[:, both].astype(np.float64)
        loss, Y, w = memory.objective.loss, memory.objective.Y, memory.objective.weight
        y, weight = Y[:, rows].T, w[rows].astype(np.float64)
        k = len(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            true = weight @ loss.value(y, (truth[:, :k] + it.result_bias[:, None]).T)
            kept = weight @ loss.value(y, (cached[:, :k] + it.result_bias[:, None]).T)
        change = float(true - kept) / k
        error = truth[:, k:] - cached[:, k:]
        if m >= n:
            norm = float((it.coef * error).sum()) if state.exact is not None else 0.0
        elif strength.any():
            share = it.coef[:, centres] / strength[centres]
            norm = float((share * error).sum()) * float(strength.sum()) / len(centres)
        else:
            norm = 0.0
        found = it.objective + change + 0.5 * it.alpha * norm
        size = max(abs(it.objective), 1e-3 * abs(it.start))
        drift = abs(found - it.objective) / size if size > 0 else 0.0
        return Audit(it.objective, found, drift if np.isfinite(drift) else np.inf, k)

    def _responses(
        self, state: CachedState, coef: Float64Array, rows: IntArray | slice
    ) -> Float64Array:
        """Return f without constants on training rows, (m, C), summed in float64."""
        memory = state.memory
        assert memory is not None
        C = len(state.offset)
        if state.exact is not None:
            prepared: ExactRows = memory.blocks.rows  # type: ignore[attr-defined]
            some = prepared.take(rows)
            used = np.flatnonzero(coef.any(axis=0))
            out = np.zeros((some.n_rows, C))
            if len(used):
                coefficients = np.ascontiguousarray(coef[:, used].T)
                state.exact.add_product(some, prepared.take(used), coefficients, out)
            return out
        features: Matrix = memory.blocks.rows[rows]  # type: ignore[attr-defined]
        out = np.zeros((C, features.shape[0]))
        for j in range(memory.blocks.n_blocks):
            if coef[:, j].any():
                block = memory.blocks.draw(j, None, np.random.default_rng(0))
                out += block.products(features, coef[:, j])
        return out.T

    def _refresh(self, state: CachedState, it: Iterate) -> None:
        """Make the responses anew from the coefficients and forget the last step."""
        f = self._responses(state, it.coef, slice(None)).T
        it.responses[:] = f
        it.momentum[:], it.coef_momentum[:] = 0.0, 0.0
        it.bias_momentum, it.claim = np.zeros_like(it.bias), np.inf

    def function(
        self, state: CachedState, coef: Float64Array, intercept: Float64Array
    ) -> Expansion:
        """Return the function of coefficients (C, ...) as an expansion."""
        if state.exact is not None:
            assert state.memory is not None
            rows = state.memory.blocks.rows  # type: ignore[attr-defined]
            return SupportExpansion(state.exact, rows, coef.T, intercept)
        assert state.stream is not None
        stream = state.stream
        e = RandomFeatureExpansion(stream, len(intercept), intercept)
        C, J, _ = coef.shape
        last = np.flatnonzero(coef.any(axis=(0, 2)))
        used = int(last[-1]) + 1 if len(last) else 0
        shaped = coef[:, :used].reshape(C, used, stream.planes, stream.block_size) / np.sqrt(J)
        flat = shaped.transpose(2, 1, 3, 0).reshape(stream.planes, -1, C)
        e.coef = np.ascontiguousarray(flat, np.float32)
        return e

    def expansion(self, state: CachedState, which: int = 0) -> Expansion:
        """Return the fitted function."""
        it = state.iterates[which]
        if it.is_poor:
            return self.function(state, np.zeros_like(it.coef), state.offset + it.first_bias)
        return self.function(state, it.coef, state.offset + it.result_bias)

    def track(self, state: CachedState, X: Matrix) -> CachedTracker:
        """Return the responses of the rows of `X`."""
        return CachedTracker(self, state, X)


def _hashes(rows: ExactRows) -> AnyArray:
    """Return a hash of each row, of all its parts where the kernel has several."""
    total = row_hashes(rows.values)
    for part in rows.parts:
        total = total * np.uint64(31) + _hashes(part)
    return np.asarray(total)


__all__ = ["CachedBlockDescent", "CachedState", "CachedTracker", "Iterate"]
