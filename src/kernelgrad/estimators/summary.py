"""What a fitted model says of itself on one screen."""

from typing import Any

import numpy as np

from kernelgrad.kernels import kernel_summary
from kernelgrad.model import Fit


def kernel_text(name: str, params: dict[str, Any]) -> str:
    """Return the names and shares of a kernel of :func:`kernel_summary` and its parts."""
    if name == "sum":
        parts = params["kernels"]
        terms = zip(params["weights"] or [1.0] * len(parts), parts, strict=True)
        return " + ".join(f"{weight:.3g} {kernel_text(k['name'], k)}" for weight, k in terms)
    numbers = {k: params.get(k) for k in ("nu", "gamma")}
    shown = (f"{k} {v:.3g}" for k, v in numbers.items() if isinstance(v, int | float))
    return " ".join([name, *shown])


def summary(estimator: Any) -> str:
    """Return the text of ``BaseRowsEstimator.summary``; parts that are empty are left out."""
    done: Fit = estimator._fitted
    history, function, alpha = done.history, done.model.function, done.choice.alpha
    size = f"{function.n_support:,} support rows" if function.n_support else ""
    if function.n_random_features:
        size = f"{function.n_random_features:,} random features"
    kernel = scaling = ""
    if function.basis is not None:
        kernel = kernel_text(function.kernel.name, kernel_summary(function.kernel))
        scaling = function.scaling.name
    seconds = history["seconds"][-1] if history["seconds"] else 0.0
    lines = {
        "kernel": kernel,
        "loss": done.model.task.loss.name,
        "penalty": "" if np.isnan(alpha) else f"alpha {alpha:.3g}",
        "scaling": scaling,
        "columns": history.get("metric_reason", ""),
        "solver": f"{history['solver']} ({history['solver_reason']})",
        "function": size,
        "quality": "" if done.quality is None else str(done.quality),
        "end": f"{done.status} after {done.n_iter} iterations, {seconds:.2f} seconds",
    }
    texts = [f"{name:<10}{text}" for name, text in lines.items() if text]
    return "\n".join([type(estimator).__name__, *texts])
