"""scikit-learn: exact support vectors, and linear models on random or Nystroem features."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, SVR

from benchmarks.registry import Budget, Dataset, Solver


def _grid(factors: list[float], key: str, values: tuple[float, ...]) -> list[dict[str, float]]:
    return [{"bandwidth_factor": f, key: v} for f, v in product(factors, values)]


class SupportVectors(Solver):
    name: ClassVar[str] = "SVC/SVR"

    def row_limit(self, dataset: Dataset) -> int:
        """Return rows that keep one fit within minutes: its time grows with their square."""
        return 20_000 if dataset.name == "mnist" else 40_000

    def grid(self, dataset: Dataset, factors: list[float]) -> list[dict[str, float]]:
        """Return bandwidth factors times C."""
        return _grid(factors, "C", (1.0, 10.0, 100.0))

    def build(
        self,
        dataset: Dataset,
        params: dict[str, float],
        gamma: float,
        budget: Budget,
        seed: int,
    ) -> Any:
        """Return SVC or SVR with a kernel cache of 1 GB."""
        cls = SVC if dataset.task == "classification" else SVR
        return cls(gamma=gamma, C=params["C"], cache_size=1000)


class RandomFeaturesSGD(Solver):
    name: ClassVar[str] = "RBFSampler+SGD"

    def grid(self, dataset: Dataset, factors: list[float]) -> list[dict[str, float]]:
        """Return bandwidth factors times alphas."""
        if dataset.task == "classification":
            return _grid(factors, "alpha", (1e-6, 1e-5, 1e-4))
        return _grid(factors, "alpha", (1e-7, 1e-6, 1e-5))

    def build(
        self,
        dataset: Dataset,
        params: dict[str, float],
        gamma: float,
        budget: Budget,
        seed: int,
    ) -> Any:
        """Return the pipeline. The rows of features have norm 1, which bears large steps."""
        features = RBFSampler(gamma=gamma, n_components=budget.n_components, random_state=seed)
        if dataset.task == "classification":
            model: Any = SGDClassifier(
                loss=dataset.loss, alpha=params["alpha"], random_state=seed
            )
        else:
            model = SGDRegressor(
                alpha=params["alpha"], learning_rate="adaptive", eta0=0.1, random_state=seed
            )
        return make_pipeline(features, model)


class NystroemLinear(Solver):
    name: ClassVar[str] = "Nystroem+linear"

    def grid(self, dataset: Dataset, factors: list[float]) -> list[dict[str, float]]:
        """Return bandwidth factors times C or the ridge."""
        if dataset.task == "classification":
            return _grid(factors, "C", (1.0, 10.0, 100.0))
        return _grid(factors, "alpha", (1e-3, 1e-1, 10.0))

    def build(
        self,
        dataset: Dataset,
        params: dict[str, float],
        gamma: float,
        budget: Budget,
        seed: int,
    ) -> Any:
        """Return the pipeline with logistic or ridge regression."""
        features = Nystroem(gamma=gamma, n_components=budget.n_components, random_state=seed)
        if dataset.task == "classification":
            model: Any = LogisticRegression(C=params["C"], max_iter=300)
        else:
            model = Ridge(alpha=params["alpha"])
        return make_pipeline(features, model)
