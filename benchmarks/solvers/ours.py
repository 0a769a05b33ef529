"""kernelgrad with its defaults; bandwidth factor and alpha are tuned."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

from benchmarks.registry import Budget, Dataset, Solver
from kernelgrad import KernelClassifier, KernelRegressor


class KernelGrad(Solver):
    name: ClassVar[str] = "kernelgrad"

    def grid(self, dataset: Dataset, factors: list[float]) -> list[dict[str, float]]:
        """Return bandwidth factors times alphas."""
        return [
            {"bandwidth_factor": f, "alpha": a} for f, a in product(factors, (1e-8, 1e-6, 1e-4))
        ]

    def build(
        self,
        dataset: Dataset,
        params: dict[str, float],
        gamma: float,
        budget: Budget,
        seed: int,
    ) -> Any:
        """Return the estimator; it finds the median distance itself, on its first batch."""
        cls = KernelClassifier if dataset.task == "classification" else KernelRegressor
        return cls(loss=dataset.loss, max_iter=budget.max_iter, random_state=seed, **params)
