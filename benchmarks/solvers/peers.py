"""Peers: exact support vectors, linear models on features, gradient boosting."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC, SVR, LinearSVC

from benchmarks.registry import Budget, Dataset
from benchmarks.solvers._base import Method, Params, grid, is_classification
from kernelgrad import get_num_threads

CACHE_MB = 2000


class SupportVectors(Method):
    name: ClassVar[str] = "SVC/SVR (LIBSVM)"
    family = "support vectors"

    def row_limit(self, dataset: Dataset) -> int | None:
        """Return rows that keep one fit within minutes: its time grows with their square."""
        return 40_000 if dataset.name == "flights13" else None

    def grid(self, dataset: Dataset, factors: list[float]) -> list[Params]:
        """Return bandwidth factors times C, and widths of the tube for regression."""
        if is_classification(dataset):
            return grid(factors, (1.0, 10.0, 100.0))
        return grid(factors, (1.0, 10.0, 100.0), epsilon=(0.1, 0.01))

    def build(
        self, dataset: Dataset, params: Params, gamma: float, budget: Budget, seed: int
    ) -> Any:
        """Return the estimator of the task."""
        classifier, regressor = self.machines()
        given = {"gamma": gamma, "C": params["C"], "cache_size": CACHE_MB}
        if is_classification(dataset):
            return classifier(**given)
        return regressor(epsilon=params["epsilon"], **given)

    def machines(self) -> tuple[Any, Any]:
        """Return what makes a classifier and a regressor."""
        return SVC, SVR


class IntelexSupportVectors(SupportVectors):
    name: ClassVar[str] = "SVC/SVR (intelex)"
    module = "sklearnex"
    rank = 1  # the same model in less time

    def machines(self) -> tuple[Any, Any]:
        """Return those of scikit-learn-intelex on as many threads as kernelgrad has."""
        import daal4py
        from sklearnex.svm import SVC, SVR

        daal4py.daalinit(get_num_threads())
        return SVC, SVR


class ThunderSupportVectors(SupportVectors):
    name: ClassVar[str] = "SVC/SVR (ThunderSVM)"
    module = "thundersvm"
    rank = -1

    def machines(self) -> tuple[Any, Any]:
        """Return those of ThunderSVM on as many threads as kernelgrad has."""
        from thundersvm import SVC, SVR

        n_jobs = get_num_threads()
        return partial(SVC, n_jobs=n_jobs), partial(SVR, n_jobs=n_jobs)


class NystroemSmooth(Method):
    name: ClassVar[str] = "Nystroem(1000)+LR/Ridge"
    family = "normal equations"  # on the same features: the same bandwidth and C
    centres: ClassVar[int] = 1000

    def build(
        self, dataset: Dataset, params: Params, gamma: float, budget: Budget, seed: int
    ) -> Any:
        """Return the pipeline with logistic or ridge regression."""
        m = min(self.centres, budget.n_components)
        features = Nystroem(gamma=gamma, n_components=m, random_state=seed)
        if is_classification(dataset):
            return make_pipeline(features, LogisticRegression(C=params["C"], max_iter=500))
        return make_pipeline(features, Ridge(alpha=1 / params["C"]))


class NystroemSmooth3000(NystroemSmooth):
    name: ClassVar[str] = "Nystroem(3000)+LR/Ridge"
    rank = 0
    centres = 3000


class NystroemLinearSVC(Method):
    name: ClassVar[str] = "Nystroem(1000)+LinearSVC"
    family = "support vectors"  # the machine on these features: the same bandwidth and C
    centres: ClassVar[int] = 1000

    def grid(self, dataset: Dataset, factors: list[float]) -> list[Params]:
        """Return bandwidth factors times C; nothing for regression."""
        return grid(factors, (0.1, 1.0, 10.0)) if is_classification(dataset) else []

    def build(
        self, dataset: Dataset, params: Params, gamma: float, budget: Budget, seed: int
    ) -> Any:
        """Return the pipeline with the squared hinge loss."""
        m = min(self.centres, budget.n_components)
        return make_pipeline(
            Nystroem(gamma=gamma, n_components=m, random_state=seed),
            LinearSVC(C=params["C"], dual=False, random_state=seed),
        )


class NystroemLinearSVC3000(NystroemLinearSVC):
    name: ClassVar[str] = "Nystroem(3000)+LinearSVC"
    rank = 0
    centres = 3000


class RandomFeaturesSGD(Method):
    name: ClassVar[str] = "RBFSampler(2000)+SGD"
    family = "RBFSampler+SGD"

    def build(
        self, dataset: Dataset, params: Params, gamma: float, budget: Budget, seed: int
    ) -> Any:
        """Return the pipeline. The rows of features have norm 1, which bears large steps."""
        m = min(2000, budget.n_components)
        features = RBFSampler(gamma=gamma, n_components=m, random_state=seed)
        assert budget.max_rows is not None
        given = {"alpha": 1 / (params["C"] * budget.max_rows), "random_state": seed}
        if is_classification(dataset):
            model: Any = SGDClassifier(n_jobs=get_num_threads(), **given)
        else:
            model = SGDRegressor(learning_rate="adaptive", eta0=0.1, **given)
        return make_pipeline(features, model)


class Boosting(Method):
    """No kernel method: for context."""

    name: ClassVar[str] = "gradient boosting"
    family = "gradient boosting"

    def grid(self, dataset: Dataset, factors: list[float]) -> list[Params]:
        """Return learning rates and sizes of trees."""
        return [
            {"learning_rate": rate, "max_leaf_nodes": leaves, "max_iter": trees}
            for rate in (0.05, 0.1, 0.2)
            for leaves, trees in ((31, 200), (31, 500), (127, 200))
        ]

    def build(
        self, dataset: Dataset, params: Params, gamma: float, budget: Budget, seed: int
    ) -> Any:
        """Return boosted trees on dense rows, without early stopping."""
        cls = (
            HistGradientBoostingClassifier
            if is_classification(dataset)
            else HistGradientBoostingRegressor
        )
        trees = min(params["max_iter"], budget.n_components)
        model = cls(early_stopping=False, random_state=seed, **(params | {"max_iter": trees}))
        return make_pipeline(FunctionTransformer(dense, accept_sparse=True), model)


def dense(X: Any) -> Any:
    """Return rows as an array."""
    return X.toarray() if hasattr(X, "toarray") else np.asarray(X)
