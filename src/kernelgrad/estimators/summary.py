"""What a fitted model says of itself on one screen."""

from collections import Counter
from typing import Any

import numpy as np

from kernelgrad.kernels import kernel_summary
from kernelgrad.model import Fit

_SHOWN = 6  # columns that are named
_DEAR = 1e6  # entries of support rows from which importances take seconds


def kernel_text(name: str, params: dict[str, Any]) -> str:
    """Return the names and shares of a kernel of :func:`kernel_summary` and its parts."""
    if name == "sum":
        parts = params["kernels"]
        terms = zip(params["weights"] or [1.0] * len(parts), parts, strict=True)
        return " + ".join(f"{weight:.3g} {kernel_text(k['name'], k)}" for weight, k in terms)
    numbers = {k: params.get(k) for k in ("nu", "gamma")}
    shown = (f"{k} {v:.3g}" for k, v in numbers.items() if isinstance(v, int | float))
    return " ".join([name, *shown])


def _columns(done: Fit) -> str:
    inputs = done.model.inputs
    if inputs.table is None:
        return f"{inputs.n_features} columns of numbers"
    kinds = Counter(column.kind for column in inputs.table.columns)
    listed = ", ".join(f"{n} {k.replace('level', 'category')}" for k, n in kinds.items())
    gaps = int(inputs.table.has_gaps.sum())
    return f"{inputs.n_features} columns ({listed}{f'; gaps in {gaps}' if gaps else ''})"


def _importances(estimator: Any, done: Fit) -> str:
    function = done.model.function
    work = (function.n_support + function.n_random_features) * done.model.inputs.width
    dear = work > _DEAR and "importances" not in vars(done.model)
    shares = None if dear else getattr(estimator, "feature_importances_", None)
    if shares is None:
        return "see feature_importances_" if dear else ""
    names = getattr(estimator, "feature_names_in_", [f"x{j}" for j in range(len(shares))])
    first = np.argsort(-shares, kind="stable")[:_SHOWN]
    listed = ", ".join(f"{names[j]} {shares[j]:.2f}" for j in first if shares[j] > 0)
    return f"{listed or 'none'} (shares of the variance of f)"


def _quality(estimator: Any, done: Fit) -> str:
    score = getattr(estimator, "validation_score_", None)
    if score is not None:
        return f"validation score {score}"
    best, name = done.best_score, done.history.get("score_name") or "score"
    return "" if best is None else f"{name} {best:.4g} on rows that were not fitted"


def summary(estimator: Any) -> str:
    """Return the text of ``BaseRowsEstimator.summary``; parts that are empty are left out."""
    done: Fit = estimator._fitted
    history, function = done.history, done.model.function
    seen, passes = (history[key][-1] if history[key] else 0 for key in ("rows_seen", "epoch"))
    rows = round(seen / passes) if passes else seen
    size = f"{function.n_support:,} support rows" if function.n_support else ""
    if function.n_random_features:
        size = f"{function.n_random_features:,} random features"
    seconds = history["seconds"][-1] if history["seconds"] else 0.0
    searched = done.choice.seconds  # 0 in models of files
    times = {"search": searched} if searched else {}
    times |= {"fit": seconds - searched, "compilation": history.get("compile_seconds", 0.0)}
    alpha = done.choice.alpha
    lines = {
        "data": f"{rows:,} rows, {_columns(done)}",
        "kernel": ""
        if function.basis is None
        else kernel_text(function.kernel.name, kernel_summary(function.kernel)),
        "loss": done.model.task.loss.name,
        "penalty": "" if np.isnan(alpha) else f"alpha {alpha:.3g}",
        "scaling": "" if function.basis is None else function.scaling.name,
        "columns": history.get("metric_reason", ""),
        "solver": f"{history['solver']} ({history['solver_reason']})",
        "function": size,
        "quality": _quality(estimator, done),
        "importances": _importances(estimator, done),
        "end": f"{done.status} after {done.n_iter} iterations",
        "seconds": ", ".join(f"{name} {value:.2f}" for name, value in times.items()),
    }
    width = max(map(len, lines)) + 2
    texts = [f"{name:<{width}}{text}" for name, text in lines.items() if text]
    return "\n".join([type(estimator).__name__, *texts])
