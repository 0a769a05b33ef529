"""Small sets that come with scikit-learn, standardised, a third of their rows for the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.model_selection import train_test_split

from benchmarks.datasets.archives import standardised
from benchmarks.registry import Data, Dataset


class Bundled(Dataset):
    """Random parts, the same in every run."""

    task = "classification"
    loss = "log_loss"
    default = False
    read: ClassVar[Callable[..., Any]]

    def load(self) -> Data:
        """Return both parts; a regression target is standardised too."""
        X, y = type(self).read(return_X_y=True)
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, test_size=1 / 3, random_state=0
        )
        X_train, X_test = standardised(X_train, X_test)
        if self.task == "classification":
            return Data(X_train, y_train, X_test, y_test)
        mean, scale = y_train.mean(), float(y_train.std())
        return Data(X_train, (y_train - mean) / scale, X_test, (y_test - mean) / scale, scale)


class Iris(Bundled):
    name: ClassVar[str] = "iris"
    read = staticmethod(load_iris)


class Wine(Bundled):
    name: ClassVar[str] = "wine"
    read = staticmethod(load_wine)


class BreastCancer(Bundled):
    name: ClassVar[str] = "breast_cancer"
    read = staticmethod(load_breast_cancer)


class Diabetes(Bundled):
    name: ClassVar[str] = "diabetes"
    task = "regression"
    loss = "squared"
    read = staticmethod(load_diabetes)


class Noisy(Bundled):
    """Two classes in 20 columns, of which 10 tell something, and a tenth of labels wrong."""

    name: ClassVar[str] = "noisy"

    @staticmethod
    def read(return_X_y: bool) -> Any:
        """Return rows and labels."""
        return make_classification(2000, n_informative=10, flip_y=0.2, random_state=0)
