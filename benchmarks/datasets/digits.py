"""scikit-learn's 8 x 8 digits: a check that needs no files."""

from __future__ import annotations

from typing import ClassVar

from sklearn.datasets import load_digits

from benchmarks.registry import Data, Dataset


class Digits(Dataset):
    name: ClassVar[str] = "digits"
    task = "classification"
    loss = "log_loss"
    default = False

    def load(self) -> Data:
        """Return pixels in [0, 1]; the last 500 images are the test part."""
        X, y = load_digits(return_X_y=True)
        X = X / 16.0
        return Data(X[:-500], y[:-500], X[-500:], y[-500:])
