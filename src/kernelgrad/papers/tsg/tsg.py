r"""Triply stochastic gradients for semi-supervised SVMs (Geng et al. 2019, Algorithms 1-2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from kernelgrad.compute.rng import draws
from kernelgrad.functions.features import FeatureStream
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import Loss, SemiSupervised
from kernelgrad.params import anything, boolean, integer, parameters, real
from kernelgrad.solvers.contract import Problem, StepInfo, TrainBatch
from kernelgrad.solvers.dsg import DSG, DSGState
from kernelgrad.solvers.soft_labels import semi_supervised
from kernelgrad.types import Float64Array
from kernelgrad.validation import CapabilityError, check_real

_FAR = 1e6  # a response at which slopes without a bound are told from others


def slope_grows(loss: Loss) -> bool:
    """Tell whether slopes have no bound, so that long steps diverge."""
    y, f = np.ones((1, 1)), np.full((1, 1), -_FAR)
    return float(np.abs(loss.gradient(y, f)).max()) > 0.1 * _FAR


def check_ramp(ramp: Any) -> None:
    """Raise unless `ramp` is two parts of the iterations."""
    try:
        start, end = ramp
    except (TypeError, ValueError):
        raise ValueError(
            f"ramp must be two parts of the iterations such as (0.3, 0.6), got {ramp!r}."
        ) from None
    check_real(start, "start of ramp", low=0, high=1)
    check_real(end, "end of ramp", low=float(start), high=1)


def iterations(problem: Problem) -> int:
    """Return T: the ``max_iter`` of the fit, or 100 for a stream."""
    return 100 if problem.max_iter is None else problem.max_iter


def ramp_share(ramp: Any, T: int, t: int) -> float:
    """Return the share of the loss in iteration t: 0 up to the start, 1 from the end on."""
    start, end = (float(part) * T for part in ramp)
    if end <= start:
        return float(t >= end)
    return min(1.0, max(0.0, (t - start) / (end - start)))


_REDRAW = 0x747367


@parameters
class TSG(DSG):
    r"""Triply stochastic gradients: labelled rows, unlabelled rows and features at random.

    Iteration t draws a batch of labelled rows, one of unlabelled rows and a block of random
    features. With C the paper's cost of the mean labelled loss and C* that of the mean
    unlabelled loss,

    .. math:: f \leftarrow (1 - \gamma_t) f - \gamma_t\,\phi_t(\cdot)^\top \Bigl(
              \frac{C}{B_l} \sum_{\text{labelled}} l'(f(x_i), y_i)\,\phi_t(x_i)
              + \frac{C^*}{B_u} \sum_{\text{unlabelled}} u'(f(x_i))\,\phi_t(x_i) \Bigr)

    which is a step of ``gamma_t / alpha`` on the objective of
    :class:`~kernelgrad.losses.SemiSupervised` with ``alpha = 1 / (2 C)``. A batch may hold both
    kinds of rows in any numbers: each kind counts half, whatever the sum of its weights.

    Parameters
    ----------
    block_size : int or "auto", default="auto"
        Frequencies per block; ``"auto"`` is the square root of the number of rows, rounded up
        (the paper's m), and 128 on streams.
    batch_size : int, default=256
        Labelled rows per iteration, and as many unlabelled ones: the paper's B.
    step_size : "auto", "theorem" or float > 0, default="auto"
        ``"auto"`` is ``gamma_t C = 8 / (1 + t / decay)`` over the mean of k(x, x), shorter
        where the slope of the labelled loss has no bound. ``"theorem"`` is the constant
        ``gamma = theta / T^(3/4)`` of Theorems 1 and 2 with T the estimator's `max_iter`, or
        100 on streams. A number is the first ``gamma_t C``, which decays.
    theta : float > 0, default=1.0
        Of ``step_size="theorem"``.
    decay : float > 0, default=50
        t0 of the decay of steps; ``inf`` is a constant step.
    ramp : (start, end), default=(0.3, 0.6)
        Fractions of T between which the weight of the unlabelled loss grows from 0 to 1.
        ``(0, 0)`` is the paper, whose whole algorithm :meth:`paper` gives.
    preconditioned : bool, default=False
        See :class:`~kernelgrad.solvers.DSG`; it helped on images and hurt elsewhere.
    redraw : bool, default=False
        Whether each iteration draws `batch_size` labelled rows with replacement, as the paper
        does, where there are fewer. By default it takes each of them once.
    decoupled, damping, momentum, average, max_blocks, max_features
        As in :class:`~kernelgrad.solvers.DSG`.
    """

    marks: ClassVar[bool] = True
    name: ClassVar[str] = "tsg"
    removed = frozenset({"horizon"})

    batch_size: int = integer(default=256, low=1)
    step_size: float | str = real(
        default="auto", low=0, low_open=True, words=("auto", "theorem")
    )
    theta: float = real(default=1.0, low=0, low_open=True)
    decay: float = real(default=50.0, low=0, low_open=True, words=(np.inf,))
    ramp: Sequence[float] = anything(default=(0.3, 0.6))
    preconditioned: bool = boolean(default=False)
    redraw: bool = boolean(default=False)

    @classmethod
    def paper(  # type: ignore[override]  # by the symbols of another paper
        cls, *, C: float, sigma: float, eta: float, n_labelled: int = 200, **solver: Any
    ) -> dict[str, Any]:
        """Return the parameters of a semi-supervised classifier that make it Algorithm 1.

        Plain constant steps, phase features, hinge and symmetric hinge, the unlabelled loss
        from the first step, no constant, the last iterate. Batches have 256 rows of each kind
        (Section 6.1), unlabelled ones in seeded shuffles, labelled ones with replacement where
        there are fewer. One pass is a ``max_iter`` of n_u / 256.

        Parameters
        ----------
        C : float > 0
            Of the mean loss of labelled rows (Section 3.1): the estimator's C is ``C /
            n_labelled``. C* is ``C n_l / n_u`` (Section 6.1), the estimator's
            ``C_star="paper"``; put a number ``C* / n_labelled`` there for another one.
        sigma : float > 0
            Of ``k(x, x') = exp(-sigma |x - x'|^2)``: the kernel's gamma.
        eta : float >= 1
            The constant step is ``gamma = 1 / eta``: `step_size` is ``C / eta``.
        n_labelled : int, default=200
            n_l.
        **solver
            Of the solver, such as ``redraw=False``, or ``step_size="theorem"`` with `theta` for
            the step of Theorems 1 and 2 in place of ``1 / eta``.
        """
        for name, value in (("C", C), ("sigma", sigma), ("n_labelled", n_labelled)):
            check_real(value, name, low=0, low_open=True)
        check_real(eta, "eta", low=1)
        solver = {"step_size": C / eta, "redraw": True} | solver
        return {
            "solver": cls(decay=np.inf, ramp=(0.0, 0.0), average=None, **solver),
            "kernel": Gaussian(gamma=sigma, form="phase"),
            "C": C / n_labelled,
            "C_star": "paper",
            "fit_intercept": False,
        }

    def check(self) -> None:
        super().check()
        check_ramp(self.ramp)

    def check_problem(self, problem: Problem) -> None:
        semi_supervised(problem, self.name)
        if not problem.alpha > 0:
            raise CapabilityError(
                f"solver {self.name!r} needs alpha > 0 (a finite C): its steps are in units of "
                "the penalty."
            )

    def resolve_batch_size(self, n_rows: int | None) -> int:
        size = 2 * int(self.batch_size)
        return size if n_rows is None else max(1, min(size, n_rows))

    def _first_step(
        self, problem: Problem, batch: TrainBatch, stream: FeatureStream, L: Float64Array
    ) -> Float64Array:
        if self.step_size == "theorem":
            return np.ones(len(L))  # it is none but that of the theorem, see _step
        if self.step_size != "auto":
            return np.full(len(L), 2.0 * float(self.step_size))
        if self.preconditioned:
            return super()._first_step(problem, batch, stream, L)
        diagonal = stream.kernel.diag(stream.scaling.apply(batch.X))
        step = 2.0 * 8.0 / max(float(diagonal.mean()), 1e-30)
        labelled = semi_supervised(problem, self.name).labelled
        if slope_grows(labelled):
            largest = labelled.smoothness  # second derivative
            bound = L if largest is None else np.full(len(L), float(largest))
            safe = super()._first_step(problem, batch, stream, bound)
            step = min(step, float(safe.min()))
        return np.full(len(L), step)

    def _step(self, problem: Problem, state: DSGState) -> Float64Array:
        # gamma_t / alpha is the step on the objective, C = 1 / (2 alpha); gamma above 1 has no
        # meaning. On a stream alpha follows the number of labels.
        if self.step_size == "theorem":
            gamma = self.theta / iterations(problem) ** 0.75
            return np.full(len(state.gamma0), min(1.0, gamma) / problem.alpha)
        gamma0 = super()._step(problem, state)
        return gamma0 if self.preconditioned else np.minimum(gamma0, 1.0 / problem.alpha)

    def start(self, problem: Problem, batch: TrainBatch, stream: FeatureStream) -> DSGState:
        state = super().start(problem, batch, stream)
        state.has_intercept = not problem.fit_intercept or bool(batch.y.any())
        return state

    def step(self, problem: Problem, state: DSGState, batch: TrainBatch) -> StepInfo:
        labelled = np.flatnonzero(batch.y.any(axis=1))
        if self.redraw and 0 < len(labelled) < self.batch_size:
            weight = batch.sample_weight.astype(np.float64)
            rng = draws(problem.seed, _REDRAW, state.iteration)
            share = weight[labelled] / weight[labelled].sum()
            weight[labelled] = rng.multinomial(self.batch_size, share)
            batch = replace(batch, sample_weight=weight)
        if not state.has_intercept and batch.y.any():
            intercept = problem.loss.intercept(batch.y, batch.sample_weight)
            state.iterates.set_intercept(intercept)
            state.has_intercept = True
        return super().step(problem, state, batch)

    def _resolve_block_size(self, problem: Problem, batch_rows: int, planes: int) -> int:
        if self.block_size != "auto":
            return int(self.block_size)
        n = problem.n_rows
        return 128 if n is None else int(np.ceil(np.sqrt(n)))

    def _loss(self, problem: Problem, t: int) -> Loss:
        loss = semi_supervised(problem, self.name)
        share = ramp_share(self.ramp, iterations(problem), t)
        if share == 1:
            return loss
        return SemiSupervised(loss.labelled, loss.unlabelled, share * loss.ratio)

    def _shares(self, batch: TrainBatch) -> Float64Array:
        # step 7 of Algorithm 1: C times the mean labelled slope, C* times the unlabelled one
        labelled = batch.y.any(axis=1)
        p = np.array(batch.sample_weight, np.float64)
        for kind in (labelled, ~labelled):
            p[kind] *= 0.5 / max(float(p[kind].sum()), 1e-300)
        return p
