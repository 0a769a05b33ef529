"""Real data from the folder of archives, scaled on the training rows only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from benchmarks.registry import Data, Dataset, SkipError


def data_folder() -> Path:
    """Return ``KERNELGRAD_DATA``, else ``../shared/data`` next to the repository."""
    given = os.environ.get("KERNELGRAD_DATA")
    return Path(given) if given else Path(__file__).parents[2].parent / "shared" / "data"


def standardised(train: Any, *others: Any) -> tuple[Any, ...]:
    """Return all parts with the training part's mean and deviation taken out, in float64."""
    mean, std = train.mean(0, dtype=np.float64), train.std(0, dtype=np.float64)
    std[std == 0] = 1.0
    return tuple((X - mean) / std for X in (train, *others))


def open_archive(name: str) -> Any:
    """Return the open archive, or raise SkipError."""
    path = data_folder() / f"{name}.npz"
    if not path.exists():
        raise SkipError(
            f"there is no {name}.npz in the data folder; set KERNELGRAD_DATA to the "
            "folder that holds it"
        )
    return np.load(path)


def csr_part(archive: Any, kind: str) -> tuple[Any, Any]:
    """Return the CSR rows and the targets of the training or the test part."""
    arrays = (archive[f"{kind}_{name}"] for name in ("data", "indices", "indptr"))
    X = sp.csr_matrix(tuple(arrays), shape=tuple(archive[f"{kind}_shape"]))
    return X, archive[f"{kind}_y"]


class Archive(Dataset):
    """An ``.npz`` file with X_train, y_train, X_test, y_test; columns are standardised."""

    task = "classification"

    def scale(self, train: Any, test: Any) -> tuple[Any, Any]:
        """Return both parts, standardised by the training part."""
        train, test = (X.astype(np.float32) for X in standardised(train, test))
        return train, test

    def load(self) -> Data:
        """Return scaled inputs; regression targets are standardised too."""
        z = open_archive(self.name)
        X_train, X_test = self.scale(z["X_train"], z["X_test"])
        y_train, y_test, scale = z["y_train"], z["y_test"], 1.0
        if self.task == "regression":
            mean, scale = float(y_train.mean(dtype=float)), float(y_train.std(dtype=float))
            y_train, y_test = ((y.astype(float) - mean) / scale for y in (y_train, y_test))
        return Data(X_train, y_train, X_test, y_test, scale)


class A9a(Archive):
    name: ClassVar[str] = "a9a"

    def load(self) -> Data:
        """Return CSR rows as they are."""
        (X, y), (X_test, y_test) = (csr_part(open_archive("a9a"), k) for k in ("train", "test"))
        return Data(X.astype(np.float32), y, X_test.astype(np.float32), y_test)


class Mnist(Archive):
    name: ClassVar[str] = "mnist"

    def scale(self, train: Any, test: Any) -> tuple[Any, Any]:
        """Return pixels in [0, 1]."""
        return tuple(X.astype(np.float32) / np.float32(255) for X in (train, test))


class Ijcnn1(Archive):
    name: ClassVar[str] = "ijcnn1"


class CodRna(Archive):
    name: ClassVar[str] = "cod_rna"


class Covtype20k(Archive):
    name: ClassVar[str] = "covtype20k"


class Protein(Archive):
    name: ClassVar[str] = "protein"
    task = "regression"


class Flights13(Archive):
    name: ClassVar[str] = "flights13"
    task = "regression"
