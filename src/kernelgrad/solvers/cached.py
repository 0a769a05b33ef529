r"""Block descent with cached responses: exact gradients, Newton blocks, a searched span."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from kernelgrad._typing import AnyArray, Float32Array, Float64Array, IntArray, Matrix
from kernelgrad._validation import CapabilityError, check_int, check_name, check_real
from kernelgrad.compute import descent, linalg
from kernelgrad.compute.hashing import first_of_equals, row_hashes
from kernelgrad.compute.memory import untouched
from kernelgrad.compute.threads import parallel_for
from kernelgrad.exact import ExactKernel
from kernelgrad.expansions import Expansion, RandomFeatureExpansion, SupportExpansion
from kernelgrad.features import FeatureStream, InputScaling
from kernelgrad.kernels import ExactRows, restore_kernel
from kernelgrad.losses.regression import ResidualLoss
from kernelgrad.solvers.base import Problem, Solver, State, StepInfo, Tracker, TrainBatch
from kernelgrad.solvers.blocks import Block, BlockMatrix, Blocks, FeatureBlocks, SupportBlocks
from kernelgrad.solvers.functional import build_stream
from kernelgrad.solvers.objective import (
    MOMENTUM,
    SCALE,
    STEP,
    Objective,
    Search,
    minimise_on_span,
)
from kernelgrad.solvers.support import MERGE_ROWS, batch_digest, build_exact, draws

_TAG = 0x636163
_WIDTH = 1024
_WHOLE = 2048  # up to so many rows one block holds them all
_HESSIAN_ROWS = 4  # for each coordinate of a block
_STORE_BYTES = 2 * 2**30  # of kept block values unless a memory limit is given
_DAMPING = 1e-2
_LEAST_DAMPING, _MOST_DAMPING = 1e-9, 1e3
_JITTER = 1e-5
_SLOPE_RATIO = 0.3
_REJECTIONS, _MOST_REJECTIONS = 4, 16
_SHARPNESS = 1.0
_NARROW = 0.5, 0.3
_WINDOW = 4  # blocks whose gain is compared with the error of smoothing
_LEAST_WIDTH = 1e-6  # of the first one
_MOST_INNER = 10
_CONJUGATE = 20
_CONJUGATE_TOL = 1e-3
_TILE = 512  # sampled rows that one task takes


@dataclass
class Iterate:
    """One function and the step that led to it.

    Attributes
    ----------
    alpha : float
    responses, momentum : float32 arrays (C, n)
        f + b on all rows, and the last step's part of it.
    bias, bias_momentum : float64 arrays (C,)
    coef, coef_momentum : float64 arrays
        As :meth:`Blocks.new_coef` makes them.
    widths : float64 array (C,)
        Of smoothing.
    damping : float
    claim : float
        The smoothed objective that the last step promised; infinite when there is none.
    rejected : int
        Blocks in a row without a step.
    """

    alpha: float
    responses: Float32Array
    momentum: Float32Array
    bias: Float64Array
    bias_momentum: Float64Array
    coef: Float64Array
    coef_momentum: Float64Array
    widths: Float64Array
    damping: float = _DAMPING
    claim: float = np.inf
    rejected: int = 0
    moves: int = 0
    recent: Float64Array = field(default_factory=lambda: np.zeros(0))
    loss: float = np.inf
    objective: float = np.inf


@dataclass
class _Memory:
    """What comes from the rows and can be made again."""

    blocks: Blocks
    objective: Objective
    buffer: Float32Array | None
    scale: float
    n_features: int


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
    used : bool array (n,)
        Rows that have been centres.
    iterates : list of Iterate
        One for each alpha.
    """

    exact: ExactKernel | None
    stream: FeatureStream | None
    digest: bytes
    offset: Float64Array
    used: AnyArray
    iterates: list[Iterate]
    kernel_evaluations: int = 0
    slow: int = 0
    memory: _Memory | None = field(default=None, repr=False)

    def copy(self) -> CachedState:
        """Return a state with its own arrays; the rows are shared."""
        twin = copy.copy(self)
        twin.used = self.used.copy()
        twin.iterates = copy.deepcopy(self.iterates)
        if twin.memory is not None and isinstance(twin.memory.blocks, SupportBlocks):
            twin.memory = None
        return twin

    def keep(self, indices: list[int]) -> None:
        """Go on with some of the iterates, in this order."""
        self.iterates = [self.iterates[i] for i in indices]

    def release(self) -> None:
        """Let go of the rows and of block values: the next step makes them again."""
        self.memory = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"memory": None}


class _Path:
    """How one block moved f and the last step p: ``f <- a f + b p + K c``, the same for p."""

    def __init__(self, n_outputs: int, width: int) -> None:
        self.f = np.tile([1.0, 0.0], (n_outputs, 1))
        self.p = np.tile([0.0, 1.0], (n_outputs, 1))
        self.kf = np.zeros((n_outputs, width))
        self.kp = np.zeros((n_outputs, width))

    def step(self, steps: Float64Array, moved: Any, d: Float64Array) -> None:
        """Take one accepted step along (f, d, p)."""
        s = steps[:, :, None]
        on = np.asarray(moved)[:, None]
        p = s[:, 0] * self.f + s[:, 2] * self.p
        kp = s[:, 0] * self.kf + s[:, 1] * d + s[:, 2] * self.kp
        self.p, self.kp = np.where(on, p, self.p), np.where(on, kp, self.kp)
        self.f, self.kf = np.where(on, self.f + p, self.f), np.where(on, self.kf + kp, self.kf)

    def undo(self) -> None:
        """Take the last step back."""
        self.f, self.kf = self.f - self.p, self.kf - self.kp
        self.p, self.kp = np.zeros_like(self.p), np.zeros_like(self.kp)


@dataclass(frozen=True)
class BlockMove:
    """One block and how it moved each iterate."""

    block: Block
    paths: list[_Path]


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
        if self._f is None:
            self._predict()
            return
        move: BlockMove = info.update
        stacked = np.concatenate([np.concatenate([p.kf, p.kp]) for p in move.paths])
        K = move.block.products(self._rows, stacked)
        C = len(self._state.offset)
        for i, path in enumerate(move.paths):
            f, p = self._f[i], self._p[i]
            new = K[2 * i * C : (2 * i + 1) * C], K[(2 * i + 1) * C : (2 * i + 2) * C]
            self._f[i] = path.f[:, :1] * f + path.f[:, 1:] * p + new[0]
            self._p[i] = path.p[:, :1] * f + path.p[:, 1:] * p + new[1]

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
            f.T + (state.offset + it.bias)
            for f, it in zip(self._f, state.iterates, strict=True)
        ]

    def raw_prediction(self) -> Float64Array:
        """Return the responses of the first iterate."""
        return self.raw_predictions()[0]


class CachedBlockDescent(Solver[CachedState]):
    name: ClassVar[str] = "cached"
    requires: ClassVar[frozenset[str]] = frozenset({"gradient"})
    streams = False

    def __init__(
        self,
        *,
        blocks: str = "support",
        block_size: int | str = "auto",
        hessian_rows: int | str = "auto",
        inner_steps: int | str = "auto",
        tol: float = 1e-3,
    ) -> None:
        self.blocks = blocks
        self.block_size = block_size
        self.hessian_rows = hessian_rows
        self.inner_steps = inner_steps
        self.tol = tol

    def check(self) -> None:
        """Raise if a parameter is outside its domain."""
        check_name(self.blocks, ("support", "features"), "blocks")
        for name in ("block_size", "hessian_rows", "inner_steps"):
            if getattr(self, name) != "auto":
                check_int(getattr(self, name), name, low=1)
        check_real(self.tol, "tol", low=0)

    def check_problem(self, problem: Problem) -> None:
        """Raise CapabilityError if features are asked of a kernel that has none."""
        if self.blocks == "features" and not problem.kernel.has_random_features:
            raise CapabilityError(
                f"kernel {problem.kernel.name!r} has no random features; use blocks='support'."
            )

    def resolve_batch_size(self, n_rows: int | None) -> int:
        """Return all rows; None asks up to how many duplicates are worth merging."""
        return MERGE_ROWS if n_rows is None else n_rows

    def _width(self, n: int) -> int:
        if self.block_size != "auto":
            return int(self.block_size)
        return n if n <= _WHOLE else _WIDTH

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
            size = max(1, self._width(max(n, _WHOLE + 1)))
            stream = build_stream(problem, batch, lambda planes: -(-size // planes))
        state = CachedState(
            exact=exact,
            stream=stream,
            digest=batch_digest(problem, batch),
            offset=start if shifts else np.zeros(C),
            used=np.zeros(n, bool),
            iterates=[],
        )
        memory = self._prepare(problem, state, batch, rows)
        bias = np.zeros(C) if shifts else start
        U = np.repeat(bias.astype(np.float32)[:, None], n, axis=1)
        for alpha in alphas:
            coef = memory.blocks.new_coef(C)
            state.iterates.append(
                Iterate(
                    alpha=alpha,
                    responses=U.copy(),
                    momentum=np.zeros((C, n), np.float32),
                    bias=bias.copy(),
                    bias_momentum=np.zeros(C),
                    coef=coef,
                    coef_momentum=coef.copy(),
                    widths=memory.objective.initial_widths(memory.scale),
                )
            )
        state.memory = memory
        return state

    def _prepare(
        self, problem: Problem, state: CachedState, batch: TrainBatch, rows: ExactRows | None
    ) -> _Memory:
        Y = np.ascontiguousarray((batch.y - state.offset).T.astype(np.float32))
        objective = Objective(problem.loss, Y, batch.sample_weight)
        n = batch.n_rows
        blocks: Blocks
        scale = 1.0
        if state.exact is not None:
            if rows is None:
                rows = state.exact.prepare(batch.X, batch.rows)
            distinct = first_of_equals(row_hashes(rows.values))
            support = SupportBlocks(state.exact, rows, distinct, self._width(n))
            support.used = state.used
            blocks = support
            few = np.arange(0, n, max(1, n // 256))
            scale = float(state.exact.kernel.exact_diag(rows.take(few)).mean())
        else:
            assert state.stream is not None
            blocks = FeatureBlocks(state.stream, state.stream.prepare(batch.X))
        size = 4 * n * blocks.max_width
        limit = _STORE_BYTES if problem.memory_limit is None else problem.memory_limit
        fixed = 0 if problem.memory_limit is None else 60 * n * problem.n_outputs
        buffer = untouched(n, blocks.max_width).reshape(-1) if size + fixed <= limit else None
        return _Memory(blocks, objective, buffer, scale, batch.X.shape[1])

    def _attach(self, problem: Problem, state: CachedState, batch: TrainBatch) -> _Memory:
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
        if len(state.iterates) == 1:
            state.iterates[0].alpha = problem.alpha
        n = batch.n_rows
        steps = [_Steps(it, memory) for it in state.iterates]
        rng = draws(problem.seed, _TAG, state.iteration)
        weight = None
        if state.iteration:
            weight = sum(s.row_weights() for s in steps)
        block = memory.blocks.draw(state.iteration, weight, rng)
        matrix = block.matrix(memory.buffer)
        for s in steps:
            s.enter(block, problem.fit_intercept)
        self._descend(state, memory, block, matrix, steps, rng)
        if isinstance(memory.blocks, SupportBlocks):
            state.used[block.index] = True  # type: ignore[attr-defined]
            state.kernel_evaluations += block.width * n * matrix.n_tiles_made
        for s in steps:
            s.leave()
        state.iteration += 1
        state.rows_seen += n
        first = state.iterates[0]
        least = self.tol * max(abs(first.objective), 1e-300)
        still = steps[0].gain <= least and steps[0].gap <= least and not steps[0].narrowed
        state.slow = state.slow + 1 if still else 0
        patience = max(_REJECTIONS, min(2 * memory.blocks.n_blocks, _MOST_REJECTIONS))
        stuck = all(it.rejected >= patience for it in state.iterates)
        return StepInfo(
            train_loss=first.loss,
            step_size=steps[0].last_step,
            n_random_features=state.iteration * block.width if state.stream else 0,
            update=BlockMove(block, [s.path for s in steps]),
            n_support=int(np.count_nonzero(first.coef.any(axis=0))) if state.exact else 0,
            kernel_evaluations=state.kernel_evaluations,
            epoch=float(state.iteration),
            objective=first.objective,
            converged=stuck or state.slow >= 2,
        )

    def _descend(
        self,
        state: CachedState,
        memory: _Memory,
        block: Block,
        matrix: BlockMatrix,
        steps: list[_Steps],
        rng: np.random.Generator,
    ) -> None:
        n, M = matrix.n, block.width
        most = _MOST_INNER if self.inner_steps == "auto" else int(self.inner_steps)
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
        self, live: list[_Steps], n: int, M: int, rng: np.random.Generator
    ) -> tuple[IntArray, Float32Array]:
        """Return rows for the Hessian and the factors that make their mean that of all."""
        m = _HESSIAN_ROWS * M if self.hessian_rows == "auto" else int(self.hessian_rows)
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
        shaped = coef.reshape(C, J, stream.planes, stream.block_size)
        flat = shaped.transpose(2, 1, 3, 0).reshape(stream.planes, -1, C)
        e.coef = np.ascontiguousarray(flat, np.float32)
        return e

    def expansion(self, state: CachedState, which: int = 0) -> Expansion:
        """Return the fitted function."""
        it = state.iterates[which]
        return self.function(state, it.coef, state.offset + it.bias)

    def track(self, state: CachedState, X: Matrix) -> CachedTracker:
        """Return the responses of the rows of `X`."""
        return CachedTracker(self, state, X)

    def state_arrays(self, state: CachedState) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return counters, coefficients and responses; not the rows."""
        home = state.exact if state.exact is not None else state.stream
        assert home is not None
        values: dict[str, Any] = {
            "kind": self.blocks,
            "home": home.describe(),
            "digest": state.digest.hex(),
            "numbers": {
                k: getattr(state, k)
                for k in ("iteration", "rows_seen", "kernel_evaluations", "slow")
            },
            "iterates": [],
        }
        arrays: dict[str, AnyArray] = {"offset": state.offset, "used": state.used}
        arrays |= {f"scaling.{k}": a for k, a in home.scaling.arrays().items()}
        for i, it in enumerate(state.iterates):
            plain = {}
            for name, value in vars(it).items():
                if isinstance(value, np.ndarray):
                    arrays[f"{i}.{name}"] = value
                else:
                    plain[name] = value if np.isfinite(value) else None
            values["iterates"].append(plain)
        return values, arrays

    def restore(
        self, problem: Problem, values: dict[str, Any], arrays: dict[str, AnyArray]
    ) -> CachedState:
        """Return the state that :meth:`state_arrays` described."""
        home = values["home"]
        scaling = InputScaling.from_arrays(
            {k: arrays.get(f"scaling.{k}") for k in ("centre", "scale")}
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
            own = {k: np.inf if v is None else v for k, v in plain.items()}
            prefix = f"{i}."
            own |= {
                k.removeprefix(prefix): np.array(a)
                for k, a in arrays.items()
                if k.startswith(prefix)
            }
            iterates.append(Iterate(**own))
        return CachedState(
            exact=exact,
            stream=stream,
            digest=bytes.fromhex(values["digest"]),
            offset=arrays["offset"],
            used=np.array(arrays["used"], bool),
            iterates=iterates,
            **values["numbers"],
        )


def _positive(G: Float64Array) -> Float64Array:
    """Return inner products as they can be: symmetric and without negative eigenvalues.

    Rounding in cached responses would otherwise offer directions of negative norm.
    """
    size = np.sqrt(np.maximum(np.einsum("cii->ci", G), 1e-300))
    outer = size[:, :, None] * size[:, None, :]
    scaled = np.clip(G / outer, -1.0, 1.0)
    scaled = 0.5 * (scaled + scaled.transpose(0, 2, 1))
    values, vectors = np.linalg.eigh(scaled)
    kept = np.maximum(values, 0.0)
    return np.asarray(np.einsum("cik,ck,cjk->cij", vectors, kept, vectors) * outer)


class _Curvature:
    """Products with the Hessian of the mean loss on sampled rows, outputs coupled or not."""

    def __init__(
        self, sample: Float32Array, share: Float32Array, objective: Objective, it: Iterate,
        W: Float32Array, rows: IntArray,
    ) -> None:  # fmt: skip
        self.sample = sample
        self.weights = W * share
        self.share = share * objective.weight[rows]
        self.probabilities: Float32Array | None = None
        if objective.kind == descent.MULTINOMIAL:
            U = np.ascontiguousarray(it.responses[:, rows])
            self.probabilities = np.empty_like(U)
            descent.softmax(U, self.probabilities)

    def product(self, V: Float64Array, fit_bias: bool) -> Float64Array:
        """Return the Hessian times V (C, M + 1), the last column of which is the bias."""
        sample = self.sample
        m, M = sample.shape
        with np.errstate(over="ignore"):  # a step that long is refused afterwards
            V32 = V.astype(np.float32)
        kv = np.empty((len(V), m), np.float32)
        tiles = -(-m // _TILE)

        def forward(i: int) -> None:
            part = slice(i * _TILE, (i + 1) * _TILE)
            kv[:, part] = V32[:, :M] @ sample[part].T

        parallel_for(tiles, forward)
        if fit_bias:
            kv += V32[:, M:]
        if self.probabilities is None:
            kv *= self.weights
        else:
            descent.multiply_hessian(self.probabilities, self.share, kv.copy(), kv)
        parts = np.zeros((tiles, len(V), M))

        def backward(i: int) -> None:
            part = slice(i * _TILE, (i + 1) * _TILE)
            parts[i] = kv[:, part] @ sample[part]

        parallel_for(tiles, backward)
        out = np.zeros(V.shape)
        out[:, :M] = parts.sum(axis=0) / m
        if fit_bias:
            out[:, M] = kv.sum(axis=1, dtype=np.float64) / m
        else:
            out[:, M] = V[:, M]
        return out


class _Steps:
    """Newton steps of one iterate on one block."""

    def __init__(self, it: Iterate, memory: _Memory) -> None:
        self.it, self.memory = it, memory
        C, n = it.responses.shape
        self.R = np.empty((C, n), np.float32)
        self.W = np.empty((C, n), np.float32)
        self.live = True
        self.last_step = 0.0
        self.first_gain = 0.0
        self.gains: list[float] = []
        self._derive()

    def _derive(self) -> None:
        it, objective = self.it, self.memory.objective
        self.smooth, self.exact = objective.derivatives(it.widths, it.responses, self.R, self.W)

    def row_weights(self) -> Float64Array:
        """Return the norm of each row's slope over that of all."""
        size = np.sqrt(np.einsum("cn,cn->n", self.R, self.R, dtype=np.float64))
        return np.asarray(size / max(float(size.sum()), 1e-300))

    def enter(self, block: Block, fit_bias: bool) -> None:
        """Begin with a block."""
        it, blocks = self.it, self.memory.blocks
        it.coef, it.coef_momentum = (blocks.grow(c, block) for c in (it.coef, it.coef_momentum))
        self.block, self.fit_bias = block, fit_bias
        self.path = _Path(len(it.bias), block.width)
        self._factor: Any = None
        self._factored = np.nan

    def _values(self) -> Float32Array:
        return self.it.responses - self.it.bias.astype(np.float32)[:, None]

    def curve(self, sample: Float32Array, rows: IntArray, share: Float32Array) -> None:
        """Estimate the block's Hessian of the mean loss on sampled rows."""
        W = self.W[:, rows]
        if self.memory.objective.kinked:
            W = self._sharpened(W, rows)
        w = W.max(axis=0)
        w = (w + np.float32(1e-4) * w.max(initial=0.0)) * share
        root = np.sqrt(w)[:, None]
        m, M = sample.shape
        self._sample = None
        if len(self.W) > 1 and not self.memory.objective.constant_curvature:
            self._sample = _Curvature(
                sample, share, self.memory.objective, self.it, W, rows
            )
        both = np.empty((m, M + 1), np.float32)
        np.multiply(sample, root, out=both[:, :M])
        both[:, M:] = root
        self.H = linalg.gram(both)
        self.H /= m
        diagonal = self.H.diagonal()[:M]
        self.level = float(diagonal.mean())
        gram = self.block.gram
        self.size = 1.0 if gram is None else max(float(gram.diagonal().mean()), 1e-30)

    def _sharpened(self, W: Float32Array, rows: IntArray) -> Float32Array:
        """Return curvatures that fall with the square of the distance to a kink.

        The majorising curvature falls with the distance itself, which makes steps safe but
        short; the second derivative is zero outside the width.
        """
        share = W / np.maximum(self.memory.objective.weight[rows], np.float32(1e-30))
        top = share.max(axis=1, keepdims=True)
        return np.asarray(W * (share / np.maximum(top, np.float32(1e-30))) ** _SHARPNESS)

    def _factorise(self) -> bool:
        it, gram, M = self.it, self.block.gram, self.block.width
        ridge = it.alpha + it.damping * self.level / self.size
        jitter = _JITTER * (self.level + ridge * self.size)
        for _ in range(12):
            H = self.H.copy()
            if gram is None:
                H[np.arange(M), np.arange(M)] += ridge
            else:
                H[:M, :M] += ridge * gram
            H[np.arange(M), np.arange(M)] += jitter
            corner = H[M, M]
            H[M, M] = corner * (1 + 1e-6) + 1e-30
            if not self.fit_bias:
                H[M, :M] = 0.0
                H[M, M] = 1.0
            try:
                self._factor = scipy.linalg.cho_factor(
                    H, lower=True, overwrite_a=True, check_finite=False
                )
            except scipy.linalg.LinAlgError:
                jitter *= 10
                continue
            self._factored, self._ridge, self._jitter = it.damping, ridge, jitter
            return True
        return False

    def solve(self, products: Float64Array) -> None:
        """Set the move of the block's coefficients, (C, M) float32, and of the bias."""
        it, C, n = self.it, len(self.it.bias), self.memory.objective.n
        f = self._values()
        self.gradient = products / n + it.alpha * self.block.pick(f, it.coef)
        slope = np.zeros(C)
        if self.fit_bias:
            slope = self.R.sum(axis=1, dtype=np.float64) / n + self.memory.objective.linear
        self.bias_slope = slope
        if self._factor is None or self._factored != it.damping:
            if not self._factorise():
                self.live = False
        right = np.concatenate([self.gradient, slope[:, None]], axis=1)
        move = np.zeros((C, self.block.width + 1))
        if self.live:
            move = -self._apply(right)
            if self._sample is not None:
                move = self._refine(right, move)
        with np.errstate(over="ignore"):
            self.move = np.ascontiguousarray(move[:, :-1], np.float32)
        self.bias_move = move[:, -1] if self.fit_bias else np.zeros(C)

    def _apply(self, right: Float64Array) -> Float64Array:
        """Return the inverse of the damped Hessian times `right` (C, M + 1)."""
        solution = scipy.linalg.cho_solve(self._factor, right.T, check_finite=False)
        return np.asarray(solution.T)

    def _refine(self, right: Float64Array, start: Float64Array) -> Float64Array:
        """Return the Newton step of the coupled Hessian, by conjugate gradients from zero.

        The shared factor, of the largest curvature over the outputs, preconditions.
        """
        curvature, M, gram = self._sample, self.block.width, self.block.gram
        assert curvature is not None

        def product(V: Float64Array) -> Float64Array:
            out = curvature.product(V, self.fit_bias)
            with np.errstate(over="ignore"):
                some = V[:, :M].astype(np.float32)
            out[:, :M] += self._ridge * (some if gram is None else some @ gram)
            out[:, :M] += self._jitter * V[:, :M]
            return out

        joint = self.memory.objective.joint

        def inner(a: Float64Array, b: Float64Array) -> Float64Array:
            each = np.einsum("cm,cm->c", a, b)
            return np.full(len(each), each.sum()) if joint else each

        x, r, z = np.zeros_like(right), -right, start
        p, rz = z.copy(), inner(-right, start)
        first = rz
        going = rz > 0
        for _ in range(_CONJUGATE):
            hp = product(p)
            bend = inner(p, hp)
            going = going & (bend > 0)
            if not going.any():
                break
            length = np.where(going, rz / np.where(going, bend, 1.0), 0.0)[:, None]
            x = x + length * p
            r = r - length * hp
            z = self._apply(r)
            old, rz = rz, inner(r, z)
            going = going & (rz > _CONJUGATE_TOL * first)
            p = np.where(going[:, None], z + (rz / np.where(old > 0, old, 1.0))[:, None] * p, 0.0)
        good = np.isfinite(x).all(axis=1) & (inner(x, right) < 0)
        return np.where(good[:, None], x, start)

    def search(self, D: Float32Array) -> None:
        """Minimise along the move ``D``, the last step and the scale; then take the step."""
        it, memory = self.it, self.memory
        if not self.live or not np.isfinite(D).all():
            self._reject()
            return
        f = self._values()
        p = it.momentum - it.bias_momentum.astype(np.float32)[:, None]
        gram = self._gram(f, p, D)
        D += self.bias_move.astype(np.float32)[:, None]
        n, alpha = memory.objective.n, it.alpha
        moves = self.move.astype(np.float64)
        expected = float((self.gradient * moves).sum() + self.bias_slope @ self.bias_move)
        slope = np.einsum("cn,cn->", self.R, D, dtype=np.float64) / n
        slope += alpha * gram[:, 0, 1].sum() + memory.objective.linear @ self.bias_move
        if not (slope < 0 and abs(slope - expected) <= _SLOPE_RATIO * abs(expected)):
            self._reject()
            return
        directions = STEP
        if it.moves:
            directions |= MOMENTUM | SCALE
        bias_steps = np.stack([np.zeros_like(it.bias), self.bias_move, it.bias_momentum], 1)
        found = minimise_on_span(
            memory.objective, it.widths, it.responses, it.bias, D, it.momentum, bias_steps,
            gram, alpha, directions,
        )  # fmt: skip
        if found.before > it.claim + max(1e-3 * abs(it.claim), 1e-6 * self._start):
            self._roll_back()
            return
        if not found.moved.any():
            it.rejected += 1  # as low as rounding lets it be: no reason for more damping
            it.damping = max(0.1 * it.damping, _LEAST_DAMPING) if it.damping > 1 else it.damping
            self.live = False
            return
        self._take(found, D, moves)

    _start = 1.0

    def _gram(self, f: Float32Array, p: Float32Array, D: Float32Array) -> Float64Array:
        """Return inner products of (f, D, p), (C, 3, 3), within Cauchy and Schwarz."""
        it, block, inner = self.it, self.block, self.memory.blocks.inner
        moves = self.move.astype(np.float64)
        G = np.empty((len(f), 3, 3))
        if block.gram is None:
            G[:, 1, 1] = (moves**2).sum(axis=1)
        else:
            G[:, 1, 1] = (moves * block.pick(D, it.coef)).sum(axis=1)
        G[:, 0, 1] = G[:, 1, 0] = (moves * block.pick(f, it.coef)).sum(axis=1)
        G[:, 2, 1] = G[:, 1, 2] = (moves * block.pick(p, it.coef_momentum)).sum(axis=1)
        G[:, 0, 0] = inner(it.coef, it.coef, f)
        G[:, 0, 2] = G[:, 2, 0] = inner(it.coef, it.coef_momentum, p)
        G[:, 2, 2] = inner(it.coef_momentum, it.coef_momentum, p)
        return _positive(G)

    def _take(self, found: Search, D: Float32Array, moves: Float64Array) -> None:
        it, block, s = self.it, self.block, found.steps
        kept = ~np.asarray(found.moved)
        last = [a[kept].copy() for a in (it.momentum, it.bias_momentum, it.coef_momentum)]
        scale, length, old = (s[:, i].astype(np.float32)[:, None] for i in range(3))
        f = self._values()
        P = it.momentum
        P *= old
        P += length * D
        P += scale * f
        it.bias_momentum = s[:, 2] * it.bias_momentum + s[:, 1] * self.bias_move
        shape = (-1,) + (1,) * (it.coef.ndim - 1)
        it.coef_momentum *= s[:, 2].reshape(shape)
        if s[:, 0].any():
            it.coef_momentum += s[:, 0].reshape(shape) * it.coef
        block.add(it.coef_momentum, s[:, 1:2] * moves)
        moved = np.asarray(found.moved)
        it.responses[moved] += P[moved]
        it.bias = it.bias + np.where(moved, it.bias_momentum, 0.0)
        it.coef[moved] += it.coef_momentum[moved]
        if kept.any():
            it.momentum[kept], it.bias_momentum[kept], it.coef_momentum[kept] = last
        self.path.step(s, found.moved, moves)
        typical = float(np.median(s[moved, 1]))
        self.last_step = typical
        if typical < 0.5:
            it.damping = min(4 * it.damping, _MOST_DAMPING)
        elif typical < 0.75:
            it.damping = min(2 * it.damping, _MOST_DAMPING)
        elif typical > 1.0:
            it.damping = max(it.damping / 3, _LEAST_DAMPING)
        it.claim, it.rejected = found.after, 0
        it.moves += 1
        self.gains.append(found.before - found.after)
        self._derive()

    def _reject(self) -> None:
        it = self.it
        it.damping = min(max(10 * it.damping, 1e-6), _MOST_DAMPING)
        it.rejected += 1
        self.live = False

    def _roll_back(self) -> None:
        it = self.it
        it.responses -= it.momentum
        it.bias = it.bias - it.bias_momentum
        it.coef -= it.coef_momentum
        it.momentum[:] = 0
        it.bias_momentum = np.zeros_like(it.bias)
        it.coef_momentum[:] = 0
        it.damping = min(max(100 * it.damping, 1e-4), _MOST_DAMPING)
        it.claim = np.inf
        self.path.undo()
        self.live = False
        self._derive()

    def worth(self, number: int, n: int, M: int) -> bool:
        """Return whether one more step gains as much for its price as the block so far."""
        if not self.gains:
            return False
        C = len(self.it.bias)
        step = n * M * max(4.0 * C, 24.0)
        block = n * M * (2.0 * self.memory.n_features + 30) + 4.0 * M**3
        return self.gains[-1] / step >= sum(self.gains) / (block + (number + 1) * step)

    def leave(self) -> None:
        """Finish the block: measure loss and objective, and narrow the smoothing."""
        it, objective = self.it, self.memory.objective
        f = self._values()
        norm2 = float(self.memory.blocks.inner(it.coef, it.coef, f).sum())
        it.loss = self.exact
        it.objective = self.exact + 0.5 * it.alpha * max(norm2, 0.0)
        it.objective += float(objective.linear @ it.bias)
        self.gain = sum(self.gains)
        self.gap, self.narrowed = 0.0, False
        if objective.kinked:
            self.gap = max(self.smooth - self.exact, 0.0)
            first = objective.initial_widths(self.memory.scale)
            window = min(self.memory.blocks.n_blocks, _WINDOW)
            it.recent = np.append(it.recent, self.gain)[-window:]
            progress = float(it.recent.sum()) if len(it.recent) == window else np.inf
            if self.gap > 0.5 * progress and np.any(it.widths > _LEAST_WIDTH * first):
                factor = _NARROW[1] if self.gap > 10 * progress else _NARROW[0]
                it.damping = min(it.damping, _DAMPING)
                it.recent = it.recent[:0]
                it.widths = np.maximum(factor * it.widths, _LEAST_WIDTH * first)
                it.claim, it.rejected, self.narrowed = np.inf, 0, True


__all__ = ["CachedBlockDescent", "CachedState", "CachedTracker", "Iterate"]
