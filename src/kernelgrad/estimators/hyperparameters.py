"""Variances and bandwidths of a Gaussian process, from the likelihood of some rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelgrad.callbacks import Deadline
from kernelgrad.compute.rng import draws
from kernelgrad.compute.threads import at_most
from kernelgrad.data.memory import usable_memory
from kernelgrad.estimators.kernel import Found
from kernelgrad.estimators.support import is_auto
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Kernel
from kernelgrad.search.evidence import NOISE_ROWS, has_rule, maximise
from kernelgrad.training_rows import TrainingRows

VARIANCES = "noise_variance_", "signal_variance_"


def hyperparameters(model: Any, kernel: Kernel, rows: TrainingRows, varies: bool) -> Found:
    """Return scaling, kernel, variances and what was tried; nothing if targets do not vary."""
    scale = model.y_scale_**2

    def found(
        scaling: InputScaling | None,
        kernel: Kernel,
        variances: tuple[float, float],
        tried: list[Any],
    ) -> Found:
        units = (float(scale * variance) for variance in variances)
        return scaling, kernel, dict(zip(VARIANCES, units, strict=True), tried=tried)

    def without_search(ratio: float) -> Found:
        """Return the given variances; `ratio` of noise to signal fills in what is not given."""
        signal = 1.0 if given[1] is None else given[1]
        noise = ratio * signal if given[0] is None else given[0]
        return found(None, kernel, (noise, signal), [])

    given = [
        None if is_auto(value) else float(value) / scale
        for value in (model.noise_variance, model.signal_variance)
    ]
    searched = is_auto(model.gamma) and has_rule(kernel)
    if not (searched or None in given) or not varies:
        return without_search(1e-8)  # nothing to learn from targets that do not vary
    model._listeners.on_phase("search")
    n = rows.source.n_rows
    limit = usable_memory(model.memory_limit) / 48  # bytes of a pair of rows in the search
    most = int(np.clip(np.sqrt(limit), 100, NOISE_ROWS))
    some = np.arange(n)
    if n > most:  # a source is read once, in its order
        some = np.sort(draws(model._seed, 0x726F7773).choice(n, most, False))
    X, y, weight, _ = rows.usable(rows.source.take(some))
    standard = InputScaling.fit(X, kernel, standardize=model._standardize, sample_weight=weight)
    each = {"auto": None, "diagonal": True}.get(model.metric, False)
    with at_most(max(1, int(limit / max(1, len(y)) ** 2))):  # each has matrices of its own
        trials = maximise(
            standard.apply(X),
            rows.task.encode(y)[:, 0].astype(np.float64),
            weight,
            kernel,
            noise=given[0],
            signal=given[1],
            searched=searched,
            each=each,
            seed=model._seed,
            deadline=Deadline(model._deadline.left() / 2),  # the rest is for the fit
        )
    if not trials:  # no time at all
        return without_search(0.1)
    best, scaling = trials[0], None
    tried = [trial.summary(model.y_scale_) for trial in trials]
    kernel = best.kernel
    if best.bandwidths is not None:
        # the largest weight of a column is 1: the rest of the bandwidths is gamma
        least = float(best.bandwidths.min())
        scaling = standard.with_metric(least / best.bandwidths)
        kernel = kernel._with_gamma(kernel.gamma_value / least**2)
    return found(scaling, kernel, (best.noise_variance, best.signal_variance), tried)
