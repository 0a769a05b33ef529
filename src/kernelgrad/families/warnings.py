"""What a fit warns of: its rows, its end, and models that have learned nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelgrad.compute.linalg import dense
from kernelgrad.solvers.history import left_over
from kernelgrad.solvers.loop import FitResult
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import warn_caller

if TYPE_CHECKING:
    from kernelgrad.families.base import Spec
    from kernelgrad.model import Fit

SIGN_ROWS = 200  # rows whose kernel values are checked for negative eigenvalues
SPREAD_ROWS = 10_000  # rows from which the spread of columns is estimated


def warn_of_fit(
    spec: Spec, fit: Fit, rows: TrainingRows, result: FitResult, *, stream: bool
) -> None:
    """Warn of a fit that ended too early, or whose model is no better than a constant."""
    if result.beaten is not None:
        warn_caller(
            f"On the held-out rows the model is worse than a constant ({result.beaten}): "
            "the columns may say nothing about the target, or nothing that this kernel "
            "sees at this scale. Scale the columns, leave alpha and gamma to the search, "
            "or predict a constant."
        )
    # with alpha searched for the aim is to predict, and the least objective often does not
    wanted = fit.status == "max_iter" and not (stream or spec.searches_alpha)
    left = left_over(result.history) if wanted else None
    if left is not None and left > 0.1:
        distance = f"some {left:.0%}" if np.isfinite(left) else "possibly far"
        warn_caller(
            f"The fit ended after max_iter={fit.choice.max_iter} iterations with an objective "
            f"{distance} above its least value; raise max_iter, or alpha.",
            ConvergenceWarning,
        )
    if fit.status == "time_limit" and fit.n_iter == 0:
        few = fit.history.get("rows_fitted")
        what = "a constant" if few is None else f"of {few:,} rows"
        warn_caller(
            f"time_limit={spec.params.time_limit!r} seconds were over before the first "
            f"iteration of solver {fit.choice.solver.name!r}: the model is {what}; raise "
            "time_limit, or fit fewer rows.",
            ConvergenceWarning,
        )
    elif not stream:
        _check_learned(spec, fit, rows)


def _check_learned(spec: Spec, fit: Fit, rows: TrainingRows) -> None:
    """Warn if the function says nothing of its own rows, or worse than nothing."""
    if type(rows) is not TrainingRows or not (rows.task.has_targets and rows.in_memory):
        return
    batch = rows.take(rows.sample(256, np.random.default_rng(fit.choice.seed)))
    y, loss, weight = batch.y, rows.task.loss, batch.sample_weight
    f = fit.model.function.raw_prediction(batch.X)
    best = loss.intercept(y, weight) if spec.params.fit_intercept else 0.0
    constant = np.broadcast_to(best, f.shape)
    mine, theirs = (float(np.average(loss.value(y, g), weights=weight)) for g in (f, constant))
    bulk = 0.02, 0.98  # quantiles that leave out single rows
    spread, wanted = (np.ptp(np.quantile(a, bulk, axis=0), axis=0) for a in (loss.mean(f), y))
    if not np.isfinite(mine):
        raise ValueError(
            f"solver {fit.choice.solver.name!r} diverged: the mean loss is {mine!r} after "
            f"{fit.n_iter} iterations; give a smaller step_size, or leave it at 'auto'."
        )
    if (wanted > 0).any() and not (spread > 1e-4 * wanted).any():
        warn_caller(
            "The model is the same for nearly all of its training rows, whose targets "
            "differ: the columns may say nothing about them, or nothing at this alpha (or "
            "C), gamma and scale of columns and targets."
        )
    elif mine > 2.0 * theirs > 0.0:
        warn_caller(
            "On its training rows the model is worse than a constant (mean loss "
            f"{mine:.3g} against {theirs:.3g}): raise alpha (lower C) or max_iter, "
            "lower a given step_size, or scale the targets.",
            ConvergenceWarning,
        )


def _sample(X: Matrix) -> Float64Array:
    return dense(X[:: -(-X.shape[0] // SPREAD_ROWS)], np.float64)


def warn_of_scales(X: AnyArray, name: Callable[[Any], Any]) -> None:
    """Warn if one column drowns most others in distances and products of rows."""
    spread = _sample(X).std(axis=0)
    order = np.argsort(spread)[np.searchsorted(np.sort(spread), 0.0, side="right") :]
    if len(order) < 2:
        return
    middle, widest = spread[order[(len(order) - 1) // 2]], order[-1]
    if spread[widest] > 1000.0 * middle:
        warn_caller(
            f"Column {name(widest)} spreads {spread[widest] / middle:.0e} times as "
            "wide as half of the others, which the kernel hardly sees; set "
            "standardize=True or gamma='auto', or scale the columns."
        )


def warn_of_outliers(X: Matrix, name: Callable[[Any], Any]) -> None:
    """Warn if a few values make a deviation by which the others become nearly alike."""
    sample = _sample(X)
    low, middle, high = np.quantile(sample, (0.25, 0.5, 0.75), axis=0)
    ends = np.array([dense(X.max(axis=0)).ravel(), dense(X.min(axis=0)).ravel()], np.float64)
    far = np.abs(ends - middle).max(axis=0) / np.sqrt(X.shape[0])
    times = np.zeros(len(low))
    np.divide(np.maximum(sample.std(axis=0), far), high - low, out=times, where=high > low)
    worst = int(times.argmax())
    if times[worst] > 30.0:
        warn_caller(
            f"Column {name(worst)} has a deviation {times[worst]:.0e} times the "
            "distance of its quartiles: values far out, beside which the others are nearly "
            "alike; set standardize='robust', or clip them."
        )


def warn_of_sign(values: Float64Array) -> None:
    """Warn if kernel values of rows with one another have a negative eigenvalue."""
    low, high = np.linalg.eigvalsh(0.5 * (values + values.T))[[0, -1]]
    if low < -1e-4 * max(abs(high), 1e-30):
        warn_caller(
            f"The kernel is not positive semi-definite: its values for {len(values)} rows have "
            f"the eigenvalues {low:.2g} to {high:.2g}, and the fit may have no minimum. Give "
            "a kernel whose matrices have no negative eigenvalue."
        )


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
