"""Small sets that come with scikit-learn; they need no files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
)
from sklearn.model_selection import train_test_split

from benchmarks.datasets.archives import standardised
from benchmarks.registry import Data, Dataset


class Bundled(Dataset):
    """Standardised columns, a random third of the rows for the test, the same in every run."""

    task = "classification"
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
    read = staticmethod(load_diabetes)


class Digits(Dataset):
    name: ClassVar[str] = "digits"
    task = "classification"

    def load(self) -> Data:
        """Return pixels in [0, 1]; the last 500 images are the test part."""
        X, y = load_digits(return_X_y=True)
        X = X / 16.0
        return Data(X[:-500], y[:-500], X[-500:], y[-500:])
