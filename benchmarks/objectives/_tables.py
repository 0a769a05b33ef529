"""Tables as a user has them: not scaled, with categories and missing cells, or made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets
from sklearn.model_selection import train_test_split

from benchmarks.datasets.archives import csr_part, open_archive
from benchmarks.objectives._curves import choose_rows
from benchmarks.registry import Data, SkipError

MISSING = 0.1  # of the cells, where cells are taken out
FLIGHTS_ROWS = 50_000  # of the table with categories
DRAWS = 5
MADE_TEST = 4_000


@dataclass(frozen=True)
class Table:
    """Rows as they come; ``load(draw)`` is a new split or sample where there are draws."""

    name: str
    classify: bool
    load: Callable[[int], Data]
    draws: int = 1


def archive(name: str, draw: int = 0) -> Data:
    """Return a set of the folder of archives as it is in the file."""
    z = open_archive(name)
    if "train_data" in z:
        (X, y), (X_test, y_test) = (csr_part(z, kind) for kind in ("train", "test"))
        return Data(X.astype(np.float32), y, X_test.astype(np.float32), y_test)
    return Data(z["X_train"], z["y_train"], z["X_test"], z["y_test"])


def bundled(load: Callable[..., Any], draw: int) -> Data:
    """Return one of scikit-learn's sets, a third of it for the test."""
    X, y = load(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=1 / 3, random_state=draw)
    return Data(X, y, X_test, y_test)


def friedman(make: Callable[..., Any], n: int, noise: float, draw: int, **options: Any) -> Data:
    """Return noisy rows; the test is against the function itself."""
    X, y = make(n, noise=noise, random_state=2 * draw, **options)
    X_test, y_test = make(MADE_TEST, noise=0.0, random_state=2 * draw + 1, **options)
    return Data(X, y, X_test, y_test)


def ten_columns(n: int, draw: int = 0) -> Data:
    """Return ``sin(2 x_0 + x_1) + x_2 cos(x_3)``, six columns useless, noise of 0.1."""
    rng = np.random.default_rng(draw)
    X = rng.standard_normal((n + MADE_TEST, 10))
    y = np.sin(2 * X[:, 0] + X[:, 1]) + X[:, 2] * np.cos(X[:, 3])
    return Data(X[:n], y[:n] + 0.1 * rng.standard_normal(n), X[n:], y[n:])


def noise(classify: bool, draw: int, n: int = 500) -> Data:
    """Return columns that tell nothing."""
    rng = np.random.default_rng(draw)
    X = rng.standard_normal((n + MADE_TEST, 10))
    y = rng.integers(2, size=len(X)) if classify else rng.standard_normal(len(X))
    return Data(X[:n], y[:n], X[n:], y[n:])


def exclusive_groups(X: Any) -> list[list[int]]:
    """Return runs of adjacent 0/1 columns, of which every row has at most one."""
    A = sp.csc_matrix(X, dtype=np.int64)
    together = (A.T @ A).toarray()
    groups = [[0]]
    for j in range(1, A.shape[1]):
        if together[j, groups[-1]].any():
            groups.append([j])
        else:
            groups[-1].append(j)
    return groups


def category(X: Any) -> Any:
    """Return which column of each row is 1, as text; None where none is."""
    X = X.toarray() if sp.issparse(X) else X
    names = np.array([f"level {j}" for j in range(X.shape[1])], object)
    return np.where(X.any(axis=1), names[X.argmax(axis=1)], None)


def frames(
    name: str, columns: Callable[[Any], dict[str, Any]], cells: float = 0.0, draw: int = 0
) -> Data:
    """Return pandas frames of ``columns(X)``; text has the levels of the training rows.

    The share `cells` of all cells is missing, in training and test rows.
    """
    return as_frames(archive(name), columns, cells, draw)


def as_frames(
    data: Data, columns: Callable[[Any], dict[str, Any]], cells: float, draw: int
) -> Data:
    """Return the data as pandas frames, see `frames`."""
    try:
        import pandas as pd
    except ImportError:
        raise SkipError("pandas is not installed") from None
    rng = np.random.default_rng(draw)
    train, test = (pd.DataFrame(columns(X)) for X in (data.X_train, data.X_test))
    train, test = (X.mask(rng.random(X.shape) < cells) if cells else X for X in (train, test))
    for key in train.columns[[not pd.api.types.is_numeric_dtype(d) for d in train.dtypes]]:
        dtype = pd.CategoricalDtype(sorted(train[key].dropna().unique()))
        # a level without training rows is missing in the test rows
        train[key], test[key] = (
            X[key].where(X[key].isin(dtype.categories)).astype(dtype) for X in (train, test)
        )
    return Data(train, data.y_train, test, data.y_test)


def plain(X: Any) -> dict[str, Any]:
    return {f"x{j}": X[:, j].astype(float) for j in range(X.shape[1])}


def adult() -> Data:
    """Return a9a's 14 columns before they were coded by 123."""
    data = archive("a9a")
    groups = exclusive_groups(data.X_train)

    def columns(X: Any) -> dict[str, Any]:
        return {f"c{i}": category(X[:, group]) for i, group in enumerate(groups)}

    return as_frames(data, columns, 0.0, 0)


def covtype_columns(X: Any) -> dict[str, Any]:
    """Return ten numbers and two categories."""
    found = plain(X[:, :10])
    return found | {"area": category(X[:, 10:14]), "soil": category(X[:, 14:])}


def flights() -> Data:
    """Return 50,000 flights with month, day and weekday as categories."""
    data = archive("flights13")
    rows = choose_rows(len(data.y_train), FLIGHTS_ROWS, seed=0)

    def columns(X: Any) -> dict[str, Any]:
        names = ("month", "day", "weekday")
        found = {key: X[:, j].astype(str).astype(object) for j, key in enumerate(names)}
        return found | plain(X[:, 3:])

    few = Data(data.X_train[rows], data.y_train[rows], data.X_test, data.y_test)
    return as_frames(few, columns, 0.0, 0)


def diabetes_columns(X: Any) -> dict[str, Any]:
    """Return nine numbers and the sex as a category."""
    found = plain(X)
    return found | {"x1": np.where(X[:, 1] > 0, "one", "other").astype(object)}


def _tables() -> list[Table]:
    regression = ("protein", "flights13", "qm7")
    classes = ("a9a", "mnist", "covtype20k", "ijcnn1", "cod_rna", "news20_bydate")
    found = [Table(name, True, partial(archive, name)) for name in classes]
    found += [Table(name, False, partial(archive, name)) for name in regression]
    found += [
        Table(name, name != "diabetes", partial(bundled, load), DRAWS)
        for name, load in {
            "iris": datasets.load_iris,
            "wine": datasets.load_wine,
            "breast_cancer": datasets.load_breast_cancer,
            "digits": datasets.load_digits,
            "diabetes": datasets.load_diabetes,
        }.items()
    ]
    makers = (
        (datasets.make_friedman1, 1.0), (datasets.make_friedman2, 125.0),
        (datasets.make_friedman3, 0.1),
    )  # fmt: skip
    found += [
        Table(f"friedman{i}_{n}", False, partial(friedman, make, n, sigma), DRAWS)
        for i, (make, sigma) in enumerate(makers, 1)
        for n in (500, 2_000)
    ]
    useless = partial(friedman, datasets.make_friedman1, 20_000, 1.0, n_features=25)
    tabular: dict[str, tuple[bool, Callable[[int], Data], int]] = {
        "friedman1_useless": (False, useless, 1),
        "ten_columns": (False, partial(ten_columns, 60_000), 1),
        "noise_classes": (True, partial(noise, True), DRAWS),
        "noise_values": (False, partial(noise, False), DRAWS),
        "a9a_frame": (True, lambda draw: adult(), 1),
        "covtype20k_frame": (True, lambda draw: frames("covtype20k", covtype_columns), 1),
        "flights13_frame": (False, lambda draw: flights(), 1),
        "ijcnn1_missing": (True, lambda draw: frames("ijcnn1", plain, MISSING), 1),
        "protein_missing": (False, lambda draw: frames("protein", plain, MISSING), 1),
        "diabetes_frame": (
            False,
            lambda draw: as_frames(
                bundled(datasets.load_diabetes, draw), diabetes_columns, MISSING, draw
            ),
            DRAWS,
        ),
    }
    found += [
        Table(name, classify, load, draws) for name, (classify, load, draws) in tabular.items()
    ]
    return found


TABLES = {table.name: table for table in _tables()}
