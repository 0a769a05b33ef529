r"""Doubly stochastic gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from kernelgrad.compute import linalg
from kernelgrad.compute.backend import CPU
from kernelgrad.compute.rng import draws
from kernelgrad.files.records import Record, check_text
from kernelgrad.functions.expansions import RandomFeatureExpansion
from kernelgrad.functions.features import MOMENT_ROWS, FeatureStream
from kernelgrad.kernels import Gaussian, Kernel
from kernelgrad.kernels.stationary import Form
from kernelgrad.losses import Loss
from kernelgrad.params import boolean, choice, integer, parameters, real
from kernelgrad.registry import room
from kernelgrad.solvers import contract, feature_blocks
from kernelgrad.solvers.contract import Problem, Solver, State, StepInfo, TrainBatch, sized
from kernelgrad.solvers.feature_blocks import BlockUpdate, Iterates, RowMemory
from kernelgrad.solvers.trackers import UpdatedTracker
from kernelgrad.types import AnyArray, Float64Array, FloatArray, Matrix
from kernelgrad.validation import CapabilityError, check_real

_TAG = 0x626C6B
_AVERAGE_POWER = {"uniform": 0.0, "polynomial": 7.0}
MAX_WIDTH, MIN_WIDTH = 2048, 128  # features of a block
LEAST_BLOCKS = 16  # for a bounded number of features; more blocks make cheaper steps
ROWS_PER_FEATURE = 4
_MOMENTUM_ROWS = 4096  # least rows of a batch with momentum: 2,500 raised a noisy error
# The block covariance is estimated on every k-th row, about this many per feature. With the
# default damping more rows change no error by more than its noise. Smaller damping relies more
# on the estimate and uses proportionally more rows.
CURVATURE_ROWS = 2
MIN_CURVATURE_ROWS = 2048
_WORK_BYTES = 12_000_000  # bytes of a step, beside a covariance and the features for it


@dataclass(kw_only=True)
class DSGState(State):
    """State of :class:`DSG`: iterates and the scales found on the first batch."""

    iterates: Iterates
    smoothness: Float64Array = sized("C", least=np.finfo(np.float64).tiny)  # L of every output
    gamma0: Float64Array = sized("C", least=0.0)  # first step of every output
    n_reused: int = 0  # steps on blocks that existed already
    # CDSG: beta of every block and output, (n_blocks, C)
    beta: Float64Array = sized("blocks", "C", empty=True)
    memory: RowMemory = field(default_factory=RowMemory)
    has_intercept: bool = True  # False until a stream brings the first label

    @property
    def stream(self) -> FeatureStream:
        return self.iterates.x.stream

    def describe_parts(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        x, responses = self.iterates.x, self.memory.responses
        values: dict[str, Any] = {"stream": x.stream.describe()}
        arrays: dict[str, AnyArray] = {"intercept": x.intercept}
        arrays |= x.stream.scaling.arrays()
        arrays |= {name: e.coef for name, e in self.iterates.parts()}
        if responses is not None:
            values["rows"] = self.memory.digest.hex()
            arrays |= {f"response_{name}": f for name, f in responses.items()}
        return values, arrays

    @classmethod
    def restore_parts(cls, problem: Problem, record: Record) -> dict[str, Any]:
        home = record.beside("stream")
        stream = FeatureStream.restore(home, problem.resources.cache_bytes)
        intercept, shape = record.array("intercept", "C"), (stream.planes, "features", "C")
        it = Iterates.zeros(stream, intercept, momentum="v" in record, average="a" in record)
        for name, e in it.parts():
            e.coef = record.array(name, *shape)
        record.sizes["blocks"] = it.x.n_blocks
        memory = RowMemory()
        if "rows" in record:
            responses = {
                name: record.array(f"response_{name}", "n", "C") for name, _ in it.parts()
            }
            memory = RowMemory(bytes.fromhex(record.take("rows", check_text)), responses)
        return {"iterates": it, "memory": memory}


@parameters
class DSG(Solver[DSGState]):
    r"""Doubly stochastic functional gradients with blocks, mini-batches and preconditioning.

    Iteration t draws a batch and a fresh block of random features and moves

    .. math:: f \leftarrow (1 - \gamma_t \rho) f - \gamma_t \phi_t(\cdot)^\top G_t .

    Plain (the paper's Algorithm 1): ``G = Phi^T r / B`` with ``r`` the loss derivative, and
    ``rho = alpha``. Preconditioned (the paper's remark in Section 4 on second-order
    information): the functional gradient is multiplied by ``(L (C + mu))^-1``, with C the
    covariance operator, estimated on the block. As
    ``(C + mu)^-1 f = (f - (C + mu)^-1 C f) / mu``, this gives ``rho = alpha / (L mu)`` and
    ``G = (Phi^T Phi / B + mu I)^-1 Phi^T (r - (alpha / mu) f) / (B L)``.

    Parameters
    ----------
    block_size : int or "auto", default="auto"
        Frequencies per block, F. A block of cos-sin pairs holds 2F features. ``"auto"`` is a
        power of two such that a block holds a quarter as many features as the batch has rows,
        between 128 and 2,048, and at most a sixteenth of `max_features`.
    batch_size : int or "auto", default="auto"
        Rows per iteration, B. ``"auto"`` is ``4 * 2048 = 8192`` (or all rows when there
        are fewer): with a given `block_size` it is ``8 * block_size``, so that a block
        covariance is well estimated.
    preconditioned : bool, default=True
        Whether to multiply by the inverse block covariance.
    decoupled : bool, default=False
        Whether preconditioned steps are those of the authors' program: the covariance, of all
        rows of the batch, divides the loss's part alone, without L, and older coefficients
        shrink by ``1 - gamma alpha``. The same alpha is then a far weaker penalty. Plain steps
        are the same with both.
    step_size : float > 0 or "auto", default="auto"
        First step. ``"auto"`` is 1 when preconditioned (the operator already carries the
        curvature L), else ``1 / (L lambda_max)`` of the first block's covariance.
    decay : float > 0, default=20
        t0 of ``gamma_t = step_size / (1 + t / t0)``; ``inf`` is a constant step. With
        `max_features` t counts passes over all blocks, since a block does not change between
        its own steps.
    damping : float > 0, default=1.0
        ``mu`` in units of the mean diagonal entry of the block covariance; at least
        ``alpha / L`` is used. Smaller follows the batch more closely, noise included.
    momentum : float in [0, 1) or "auto", default="auto"
        Bound of Nesterov's momentum ``(t + 1) / (t + 4)``; ``"auto"`` is 0.8 when
        preconditioned, but 0 in steps on fewer than 4,096 rows unless these are all rows:
        momentum adds up the noise of small batches. It is 0 (the paper) otherwise, and in
        fits whose first step has none.
    average : {"polynomial", "uniform", None}, default="polynomial"
        The function returned: an average of iterates with weights growing as t^7, the
        uniform average of the paper's Figure 4(2), or the last iterate.
    max_blocks : int or None, default=None
        When this many blocks exist, later iterations update one of them, drawn uniformly,
        instead of adding one. This bounds the memory and the cost of each row of an endless
        stream.
    max_features : int or None, default=None
        The same bound in random features, rounded down to whole blocks, at least one; the
        smaller bound counts. None is the paper, where the cost of T iterations grows as T^2.
        With a bound the iterations become stochastic gradient steps on a finite feature map.

    References
    ----------
    Dai, Xie, He, Liang, Raj, Balcan and Song (2014), "Scalable Kernel Methods via Doubly
    Stochastic Gradients", Algorithms 1-2, Theorem 4.
    """

    name: ClassVar[str] = "dsg"
    instead: ClassVar[str] = "take a smaller block_size or batch_size"
    requires: ClassVar[frozenset[str]] = frozenset({"gradient", "random_features"})
    state_class: ClassVar[type[DSGState]] = DSGState
    _paper_form: ClassVar[Form] = "phase"
    _paper: ClassVar[dict[str, Any]] = {}

    block_size: int | str = integer(default="auto", low=1, words=("auto",))
    batch_size: int | str = integer(default="auto", low=1, words=("auto",))
    preconditioned: bool = boolean(default=True)
    decoupled: bool = boolean(default=False)
    step_size: float | str = real(default="auto", low=0, low_open=True, words=("auto",))
    decay: float = real(default=20.0, low=0, low_open=True, words=(np.inf,))
    damping: float = real(default=1.0, low=0, low_open=True)
    momentum: float | str = real(default="auto", low=0, high=1, high_open=True, words=("auto",))
    average: str | None = choice(_AVERAGE_POWER, default="polynomial", words=(None,))
    max_blocks: int | None = integer(default=None, low=1, words=(None,))
    max_features: int | None = integer(default=None, low=1, words=(None,))

    @classmethod
    def paper(
        cls, *, nu: float, theta: float | None = None, offset: float = 0.0,
        sigma: float | str = "median", factor: float = 1.0, form: Form | None = None,
        batch_size: int = 1, block_size: int = 1, **parameters: Any,
    ) -> dict[str, Any]:  # fmt: skip
        r"""Return the parameters of an estimator that make it exactly the paper's algorithm.

        Plain steps ``gamma_t = theta / (offset + t)``, ``t = 1, 2, ...``, on the last iterate,
        with a row and a random feature of the Gaussian kernel each (``TSG.paper`` has 256
        rows); no intercept, scaling or metric::

            KernelClassifier("hinge", **DSG.paper(nu=1e-4))

        :class:`DSG` is Algorithm 1 of Dai et al., :class:`UDSG` and :class:`CDSG` are
        Algorithms 3 and 4 of Li and Póczos.

        Rows come in seeded shuffles of the training set, not with replacement, and less the
        mean of the first batch, which moves the uniform phases b only. The paper's
        squared hinge has a factor 1/2 that the loss here has not: give ``2 * nu`` and
        ``theta / 2``. Any other kernel may take the place of the Gaussian one, with
        ``form="phase"`` where it has one: ``DSG.paper(...) | {"kernel": ...}``. A
        :class:`~kernelgrad.KernelNoveltyDetector` takes `solver` and `kernel` only, with
        ``tau="steps"``.

        Parameters
        ----------
        nu : float > 0
            The penalty ``nu / 2 |f|^2`` of Equation 1: `alpha` of the estimator, lambda of Li
            and Póczos.
        theta : float > 0, default=None
            theta of Theorem 4, at most ``(2 + offset) / nu``, though the theorem allows any
            whole ``theta nu``; and ``1 - gamma nu`` is at least 0, so that no step turns the
            sign of older coefficients. None is ``1 / nu``, as Theorems 4 and 5 ask.
        offset : float >= 0, default=0.0
            Delays the decay; 0 is the schedule of the theorems.
        sigma : float > 0 or "median", default="median"
            Length scale of ``exp(-|x - z|^2 / (2 sigma^2))``, by default the median distance
            of two rows of the first batch, which should then be large.
        factor : float > 0, default=1.0
            Multiplies sigma: 0.1 in the paper's Section 7.1, 4 in Section 7.4.
        form : {"phase", "pair"}, default=None
            Features ``sqrt(2) cos(w . x + b)``, or ``cos(w . x)`` and ``sin(w . x)``. None is
            the paper's: the phase of Dai et al., the pair of Li and Póczos.
        batch_size, block_size : int, default=1
            Rows and frequencies of an iteration. 1 is the algorithm as printed; the experiments
            have more.
        **parameters
            Other parameters of the solver, such as ``average="uniform"`` for the averaged
            function of Figure 4(2). CDSG has ``max_step=inf``: Algorithm 4 has no bound.

        Returns
        -------
        dict
            `solver`, `kernel`, `alpha`, `fit_intercept`, `standardize` and `metric`.

        References
        ----------
        Dai et al. (2014), Algorithms 1-2, Equations 1 and 7, Theorems 2 and 4; Li and Póczos
        (2016), Algorithms 3-4, Theorems 4 and 14.
        """
        check_real(nu, "nu", low=0, low_open=True)
        check_real(offset, "offset", low=0)
        theta = 1.0 / nu if theta is None else theta
        check_real(theta, "theta", low=0, low_open=True, high=(2.0 + offset) / nu)
        gamma: float | str = "median"
        if sigma != "median":
            check_real(sigma, "sigma", low=0, low_open=True)
            gamma = 1.0 / (2.0 * (factor * float(sigma)) ** 2)
        plain = {"preconditioned": False, "momentum": 0.0, "average": None}
        solver = cls(
            block_size=block_size,
            batch_size=batch_size,
            step_size=theta / (1.0 + offset),
            decay=1.0 + offset,
            **(plain | cls._paper | parameters),
        )
        solver.check()
        return {
            "solver": solver,
            "kernel": Gaussian(gamma, bandwidth_factor=factor, form=form or cls._paper_form),
            "alpha": nu,
            "fit_intercept": False,
            "standardize": False,
            "metric": None,
        }

    @classmethod
    def program(cls, *, nu: float, damping: float = 1.0, **parameters: Any) -> dict[str, Any]:
        """Return the parameters of an estimator that takes the steps of the authors' program.

        Its damping is another, see below. :class:`DSG` alone has a program. Each step is
        multiplied by the inverse covariance of the new block on the batch, which Section 4 of
        Dai et al. allows; older coefficients shrink by ``1 - gamma nu``, and ``gamma_t = 1 / (1
        + 1e-4 t)`` for t = 0, 1, ..., with pairs of cos and sin.

        Parameters
        ----------
        nu : float > 0
            As in :meth:`paper`; it penalises less here, see `decoupled`.
        damping : float > 0, default=1.0
            Ridge of the covariance in units of its mean diagonal entry, which is .0156 for 32
            frequencies. The program's is absolute, 1e-7 to 5e-4, which needs at least 4 rows in
            the batch for each feature of the block.
        **parameters
            Others of :meth:`paper`.

        Returns
        -------
        dict
            As :meth:`paper`.
        """
        if cls is not DSG:
            raise CapabilityError(
                f"solver {cls.name!r} has no published program; take paper()."
            )
        decay = 1e4
        chosen: dict[str, Any] = {"form": "pair", "theta": decay, "offset": decay - 1.0}
        chosen |= {"preconditioned": True, "decoupled": True, "damping": damping}
        return cls.paper(nu=nu, **chosen | parameters)

    def _most_blocks(self, width: int) -> float:
        by_features = None if self.max_features is None else max(1, self.max_features // width)
        return min((m for m in (self.max_blocks, by_features) if m is not None), default=np.inf)

    def check_device(self, device: str, kernel: Kernel) -> None:
        if device != CPU:
            room("device").check_feature_kernel(kernel, device)

    def resolve_batch_size(self, n_rows: int | None) -> int:
        """Return B: the given one, else four rows per feature; never more than `n_rows`."""
        if self.batch_size != "auto":
            size = int(self.batch_size)
        elif self.block_size != "auto":
            size = max(ROWS_PER_FEATURE * 2 * int(self.block_size), MIN_WIDTH)
        else:
            size = ROWS_PER_FEATURE * MAX_WIDTH
        return size if n_rows is None else max(1, min(size, n_rows))

    def _resolve_block_size(self, problem: Problem, batch_rows: int, planes: int) -> int:
        if self.block_size != "auto":
            return int(self.block_size)
        width = int(np.clip(batch_rows // ROWS_PER_FEATURE, MIN_WIDTH, MAX_WIDTH))
        if self.max_features is not None:
            width = min(width, max(1, self.max_features // LEAST_BLOCKS))
        return 1 << (max(1, width // planes).bit_length() - 1)

    def init(self, problem: Problem, batch: TrainBatch) -> DSGState:
        stream = feature_blocks.build_stream(
            problem,
            batch,
            lambda planes: self._resolve_block_size(problem, batch.n_rows, planes),
        )
        return self.start(problem, batch, stream)

    def start(self, problem: Problem, batch: TrainBatch, stream: FeatureStream) -> DSGState:
        """Return the state before the first step, for features that are known."""
        intercept = contract.first_constant(problem, batch)
        f0 = np.tile(intercept, (batch.n_rows, 1))
        L = smoothness(problem.loss, batch.y, f0)
        gamma0 = self._first_step(problem, batch, stream, L)
        momentum = self._momentum_of(problem, batch) > 0
        average = self.average is not None
        it = Iterates.zeros(stream, intercept, momentum=momentum, average=average)
        return DSGState(iterates=it, smoothness=L, gamma0=gamma0)

    def _every(self, n_rows: int, width: int) -> int:
        """Return which rows of a batch the covariance of a block is estimated on."""
        if self.decoupled:
            return 1
        per_feature = CURVATURE_ROWS / min(1.0, self.damping)
        return max(1, int(n_rows // max(per_feature * width, MIN_CURVATURE_ROWS)))

    def least_bytes(
        self, problem: Problem, n_rows: int, row_bytes: float, *, stays: bool
    ) -> float:
        kernel, d = problem.kernel, problem.n_features_in
        if not kernel.has_random_features:
            return 0.0
        n = self.resolve_batch_size(n_rows)
        # any numbers do for rules of the kernel: how wide a block is depends on none
        planes = kernel.resolve(np.eye(2, d), 0).feature_map(d, 0, 1).planes
        width = planes * self._resolve_block_size(problem, n, planes)
        covariance = 8.0 * width * width
        if self.preconditioned:
            every = self._every(n, width)
            rows = min(n, MOMENT_ROWS) * min(every, 2)
            return _WORK_BYTES + covariance + 4.0 * width * rows
        part = 2.0 * covariance + 4.0 * width * n if self.step_size == "auto" else 0.0
        return _WORK_BYTES + part

    def _first_step(
        self, problem: Problem, batch: TrainBatch, stream: FeatureStream, L: Float64Array
    ) -> Float64Array:
        if self.step_size != "auto":
            return np.full(len(L), float(self.step_size))
        if self.preconditioned:
            return np.ones(len(L))
        Phi = stream.transform(stream.prepare(batch.X), 0)
        Phi *= _root(self._shares(batch))
        H = linalg.gram(Phi)
        top = float(np.linalg.eigvalsh(H, UPLO="L")[-1])
        return np.asarray(1.0 / (L * max(top, 1e-30)))

    def _step(self, problem: Problem, state: DSGState) -> Float64Array:
        bounded = self.max_features is not None
        blocks = self._most_blocks(state.iterates.x.stream.width) if bounded else 1.0
        return state.gamma0 * (1.0 / (1.0 + state.iteration / (self.decay * blocks)))

    def _shares(self, batch: TrainBatch) -> Float64Array:
        """Return the part of the objective that each row of a batch stands for, (B,)."""
        return np.asarray(batch.sample_weight / batch.sample_weight.sum())

    def _loss(self, problem: Problem, t: int) -> Loss:
        return problem.loss

    def _momentum_of(self, problem: Problem, batch: TrainBatch) -> float:
        if self.momentum != "auto":
            return float(self.momentum)
        noisy = batch.n_rows < _MOMENTUM_ROWS and not problem.fixed_rows
        return 0.8 if self.preconditioned and not noisy else 0.0

    def _choose_block(
        self, problem: Problem, state: DSGState, gamma: Float64Array, p: Float64Array,
        r: FloatArray,
    ) -> tuple[int, float]:  # fmt: skip
        """Return the block to step on (the next number for a new one) and a step factor.

        The step is gamma (C,); p (B,) and r (B, C) are the rows' shares and slopes.
        """
        return state.iterates.x.n_blocks, 1.0

    def _after_step(
        self, state: DSGState, block: int, keep: Float64Array, move: Float64Array
    ) -> None:
        """Note a step: `block` moved by `move` times its gradient, the others by `keep`."""

    def step(self, problem: Problem, state: DSGState, batch: TrainBatch) -> StepInfo:
        """Predict on the batch, then add (or update) one block."""
        t, it, stream = state.iteration, state.iterates, state.stream
        bound = 0.0 if it.v is None else self._momentum_of(problem, batch)
        momentum = min(bound, (t + 1.0) / (t + 4.0))
        gamma = self._step(problem, state)
        stream.device = problem.resources.device  # a fit may go on elsewhere
        if problem.fixed_rows:
            X, responses = state.memory.load(it, batch)
            f = feature_blocks.lookahead(responses, momentum)
        else:
            state.memory = RowMemory()  # this step makes its responses stale
            X = stream.prepare(batch.X)
            f = np.zeros((batch.n_rows, problem.n_outputs), np.float32)
            it.lookahead(momentum).add_prepared(X, f)
        p = self._shares(batch)
        train_loss, r = self._slopes(problem, state, batch, f, p, gamma)
        n_blocks = it.x.n_blocks
        block, factor = self._choose_block(problem, state, gamma, p, r)
        if block == n_blocks and n_blocks >= self._most_blocks(stream.width):
            block, factor = uniform_block(problem, state), 1.0
        state.n_reused += block < n_blocks
        gamma = gamma * factor
        G, keep = self._direction(problem, state, X, f, r, p, block, gamma)
        weight = 1.0
        if self.average is not None:
            power = _AVERAGE_POWER[self.average]  # larger ones forget the first iterates faster
            weight = min(1.0, (1.0 + power) / (t + 1 + power))
        delta = (-gamma * G).astype(np.float32)
        if not np.isfinite(train_loss) or not np.isfinite(delta).all():
            raise FloatingPointError(
                f"The fit diverged at iteration {t + 1} (training loss {train_loss:g}, "
                f"step size {float(gamma.max()):g}); lower step_size, raise damping, or "
                "scale the data."
            )
        delta = delta.reshape(stream.planes, stream.block_size, problem.n_outputs)
        update = BlockUpdate(stream, block, delta, np.maximum(0.0, keep), momentum, weight)
        it.apply(update)
        self._after_step(state, block, update.keep, gamma * (p @ r))
        state.iteration += 1
        state.rows_seen += batch.n_rows
        if problem.fixed_rows:
            state.memory.responses = update(X, responses)
        return StepInfo(
            train_loss=train_loss,
            step_size=float(gamma.max()),
            n_random_features=it.x.n_random_features,
            n_features_saved=state.n_reused * stream.width,
            update=update,
        )

    def _slopes(
        self, problem: Problem, state: DSGState, batch: TrainBatch, f: FloatArray,
        p: Float64Array, gamma: Float64Array,
    ) -> tuple[float, FloatArray]:  # fmt: skip
        """Return the mean loss and the slopes of responses f, after a step of the intercept."""
        loss, it = self._loss(problem, state.iteration), state.iterates
        r: FloatArray | None = None
        if loss.adaptive_intercept:
            intercept, r = loss.best_intercept(f, batch.sample_weight)
            it.set_intercept(intercept)
        # float64 here: a target of 1e8 +- 1 has no fraction in float32
        raw = f.astype(np.float64) + it.x.intercept
        train_loss = float(p @ loss.value(batch.y, raw))
        r = loss.gradient(batch.y, raw) if r is None else r
        if loss.intercept_slope is not None:
            it.set_intercept(it.x.intercept - gamma * (p @ r + loss.intercept_slope))
        return train_loss, r

    def _direction(
        self, problem: Problem, state: DSGState, X: Matrix, f: FloatArray, r: FloatArray,
        p: Float64Array, block: int, gamma: Float64Array,
    ) -> tuple[FloatArray, Float64Array]:  # fmt: skip
        """Return G of the block (features, C), and the factors of all coefficients (C,)."""
        stream = state.stream
        if not self.preconditioned:
            G: FloatArray = stream.gradient(X, (p[:, None] * r).astype(np.float32), block)
            return G, 1.0 - gamma * problem.alpha
        every = self._every(len(p), stream.width)
        L = np.ones(problem.n_outputs) if self.decoupled else state.smoothness
        share = p[::every].sum()
        slopes = (r / L).astype(np.float32)
        H, penalty, gradient = stream.moments(X, block, _root(p), every, f, slopes)
        H /= share
        mu = self.damping * float(np.trace(H)) / len(H)
        shrinkage = np.full(len(L), problem.alpha)
        if not self.decoupled:
            mu = max(mu, problem.alpha / float(L.min()))
            shrinkage = problem.alpha / (L * mu)
            # the penalty's part needs the rows of H: (H + mu)^-1 H f / mu goes with f / mu
            gradient = gradient - problem.alpha / (mu * share) * penalty / L
        there = stream.on_device and stream.on_device.device
        return linalg.solve_damped(H, mu, gradient, there), 1.0 - gamma * shrinkage

    def expansion(self, state: DSGState) -> RandomFeatureExpansion:
        return state.iterates.result

    def track(self, state: DSGState, X: Matrix) -> UpdatedTracker:
        it = state.iterates
        return UpdatedTracker(state.stream.prepare(X), it.responses, it.output)


def uniform_block(problem: Problem, state: DSGState) -> int:
    rng = draws(problem.seed, _TAG, state.iteration)
    return int(rng.integers(state.iterates.x.n_blocks))


def _root(p: Float64Array) -> FloatArray:
    root: FloatArray = np.sqrt(p).astype(np.float32)[:, None]
    return root


def smoothness(loss: Loss, y: FloatArray, f: FloatArray) -> Float64Array:
    """Return the curvature L of every output, shape (C,), that sets the scale of a step.

    The loss's own ``typical_curvature`` or ``smoothness`` where it has one. Any other
    loss counts ``E[slope^2] / E[loss]`` at the starting point `f`: 1 / E|y - f| for the
    absolute loss, 1/2 for the hinge. A step is then right at the scale of the targets, and
    its decay carries it below every kink.
    """
    for bound in (loss.typical_curvature, loss.smoothness):
        if bound is not None:
            return np.full(y.shape[1], float(bound))
    L = np.ones(y.shape[1])
    for c in range(y.shape[1]):  # outputs may differ in scale
        one_y, one_f = y[:, c : c + 1], f[:, c : c + 1]
        one = loss.for_output(c)
        value = float(np.mean(one.value(one_y, one_f)))
        slope = float(np.mean(np.square(one.gradient(one_y, one_f))))
        if value > 0 and slope > 0:
            L[c] = slope / value
    return L
