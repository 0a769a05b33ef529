"""Kernel machines with nothing left to search, for tests of everything else."""

from __future__ import annotations

from typing import Any

from kernelgrad import KernelClassifier, KernelRegressor


def plain_classifier(loss: Any = "log_loss", *args: Any, **params: Any) -> KernelClassifier:
    """Return a classifier of the log loss, its bandwidth the median, alpha 1e-6."""
    return KernelClassifier(loss, *args, **_given(params))


def plain_regressor(loss: Any = "squared", *args: Any, **params: Any) -> KernelRegressor:
    """Return a regressor, its bandwidth the median, alpha 1e-6."""
    return KernelRegressor(loss, *args, **_given(params))


def _given(params: dict[str, Any]) -> dict[str, Any]:
    penalty = {} if params.get("C") is not None else {"alpha": 1e-6}
    return {"gamma": "median", **penalty, **params}
