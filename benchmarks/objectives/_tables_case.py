"""Fits of ``tables``: jobs, each of one table, one split and one method, in one process.

Nothing here imports kernelgrad before a fit of it, so that an environment without it can
measure the peers.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks.datasets.archives import data_folder, open_archive
from benchmarks.environment import load_average
from benchmarks.objectives._shared import serve
from benchmarks.registry import Data, Row, SkipError

ARCHIVES = {  # entries of the sets that are no Parquet files
    "protein": {"task": "regression", "rows": 45_730},
    "flights13": {"task": "regression", "rows": 273_853},
    "covtype20k": {"task": "multiclass", "rows": 20_000},
    "ijcnn1": {"task": "binary", "rows": 141_691},
    "cod_rna": {"task": "binary", "rows": 59_535},
}
CLASSES = ("binary", "multiclass")
TEST_SHARE, TEST_ROWS = 1 / 5, 5_000
WARM_ROWS = 300
LEVELS = 255  # the most that HistGradientBoosting takes of a category


def index() -> dict[str, Row]:
    """Return the entries of the index of Parquet files, and those of the archives."""
    path = data_folder() / "tables" / "index.json"
    entries = json.loads(path.read_text()) if path.exists() else {}
    return entries | {
        name: entry
        for name, entry in ARCHIVES.items()
        if (data_folder() / f"{name}.npz").exists()
    }


def target(name: str) -> Any:
    """Return the target of a table."""
    if name in ARCHIVES:
        archive = open_archive(name)
        return np.concatenate([archive["y_train"], archive["y_test"]])
    pandas, column = import_module("pandas"), index()[name]["target"]
    path = data_folder() / "tables" / f"{name}.parquet"
    return pandas.read_parquet(path, columns=[column])[column].to_numpy()


def frame(name: str) -> Any:
    """Return the columns of a table without its target."""
    pandas = import_module("pandas")
    if name in ARCHIVES:
        archive = open_archive(name)
        X = np.vstack([archive["X_train"], archive["X_test"]]).astype(float)
        return pandas.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    path = data_folder() / "tables" / f"{name}.parquet"
    return pandas.read_parquet(path).drop(columns=index()[name]["target"])


@lru_cache(maxsize=1)
def load(name: str, split: int, rows: int) -> Data:
    """Return frames of one split and targets: numbers, or classes 0, 1, ... of training rows.

    Test rows of a class without training rows are left out.
    """
    X, y = frame(name), target(name)
    classify = index()[name]["task"] in CLASSES
    order = np.random.default_rng([7, split]).permutation(len(y))
    n_test = min(int(TEST_SHARE * len(y)), TEST_ROWS)
    test, train = order[:n_test], order[n_test:][:rows]
    if classify:
        y = y.astype(str)
        levels, codes = np.unique(y[train], return_inverse=True)
        test = test[np.isin(y[test], levels)]
        y_train, y_test = codes, np.searchsorted(levels, y[test])
    else:
        y_train, y_test = y[train].astype(float), y[test].astype(float)
    X_train, X_test = (X.iloc[part].reset_index(drop=True) for part in (train, test))
    return Data(X_train, y_train, X_test, y_test)


def coded(data: Data, code: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Return training and test frames of floats and of ``code(column, training column)``.

    Dates become seconds; text, booleans and categories are what `code` makes of them.
    """
    pandas = import_module("pandas")
    kinds, frames = pandas.api.types, []
    for X in (data.X_train, data.X_test):
        columns = {}
        for j, name in enumerate(X):
            column = X[name]
            if kinds.is_datetime64_any_dtype(column.dtype):
                column = (column - pandas.Timestamp(0, tz=column.dt.tz)).dt.total_seconds()
            elif kinds.is_bool_dtype(column.dtype) or not kinds.is_numeric_dtype(column.dtype):
                column = code(column, data.X_train[name])
            else:
                column = column.astype(float)
            columns[f"x{j}"] = column
        frames.append(pandas.DataFrame(columns))
    return frames[0], frames[1]


def text(column: Any, _train: Any) -> Any:
    """Return text with "nan" in gaps."""
    return column.astype(object).where(column.notna(), "nan").astype(str).astype(object)


def category(column: Any, train: Any) -> Any:
    """Return a category of the training column's levels; other levels are gaps."""
    pandas = import_module("pandas")
    levels = sorted(train.dropna().astype(str).unique())
    words = column.astype(object).where(column.notna(), None)
    words = words.map(str, na_action="ignore")
    return words.where(words.isin(levels), None).astype(pandas.CategoricalDtype(levels))


def few_levels(column: Any, train: Any) -> Any:
    """Return a category, or numbers of its levels where there are too many."""
    column = category(column, train)
    if len(column.cat.categories) <= LEVELS:
        return column
    codes = column.cat.codes.astype(float)
    return codes.where(codes >= 0)


CODES = {
    "CatBoost": text, "LightGBM": category, "HistGradientBoosting": few_levels,
    "xgboost": category,
}  # fmt: skip
METHODS = ["kernelgrad", *CODES]
EFFORTS = ["kernelgrad fast", "kernelgrad best"]


def model(method: str, classify: bool, X: Any) -> tuple[Any, str]:
    """Return an estimator with its defaults and its library's version.

    Raise SkipError if it is not installed.
    """
    module, name, options = {
        "kernelgrad": ("kernelgrad", "Kernel{}", {}),
        "kernelgrad fast": ("kernelgrad", "Kernel{}", {"effort": "fast"}),
        "kernelgrad best": ("kernelgrad", "Kernel{}", {"effort": "best"}),
        "CatBoost": ("catboost", "CatBoost{}", {"verbose": 0, "allow_writing_files": False}),
        "LightGBM": ("lightgbm", "LGBM{}", {"verbose": -1}),
        "HistGradientBoosting": ("sklearn.ensemble", "HistGradientBoosting{}", {}),
        "xgboost": ("xgboost", "XGB{}", {"enable_categorical": True}),
    }[method]
    if method == "CatBoost":
        options["cat_features"] = list(X.select_dtypes("object"))
    if method == "HistGradientBoosting":
        options["categorical_features"] = "from_dtype"
    try:
        cls = getattr(import_module(module), name.format(["Regressor", "Classifier"][classify]))
        version = import_module(module.split(".")[0]).__version__
    except ImportError as missing:
        raise SkipError(f"{missing.name} is not installed") from None
    return cls(random_state=0, **options), version


def measure(method: str, classify: bool, data: Data) -> Row:
    """Return errors and seconds of one fit and its predictions."""
    X, X_test = data.X_train, data.X_test
    if method in CODES:
        X, X_test = coded(data, CODES[method])
    estimator, version = model(method, classify, X)
    wall, cpu = [time.perf_counter()], [time.process_time()]
    for step in (
        lambda: estimator.fit(X, data.y_train),
        lambda: (estimator.predict_proba if classify else estimator.predict)(X_test),
    ):
        answer = step()
        wall.append(time.perf_counter())
        cpu.append(time.process_time())
    row: Row = {"version": version, "load": (load_average() or [None])[0]}
    row |= zip(("fit s", "predict s"), np.diff(wall), strict=True)
    row |= zip(("fit CPU s", "predict CPU s"), np.diff(cpu), strict=True)
    return row | (class_errors if classify else errors)(data.y_test, np.asarray(answer, float))


def errors(y: Any, predicted: Any) -> Row:
    """Return the RMSE."""
    return {"RMSE": float(np.sqrt(np.mean((predicted - y) ** 2)))}


def class_errors(y: Any, p: Any) -> Row:
    """Return log loss, error rate, and the mean AUC of each class against the others."""
    p = p / p.sum(axis=1, keepdims=True)
    classes = np.arange(p.shape[1])
    present = [k for k in classes if 0 < np.sum(y == k) < len(y)]
    return {
        "log loss": float(log_loss(y, p, labels=classes)),
        "error": float(np.mean(p.argmax(axis=1) != y)),
        "AUC": float(np.mean([roc_auc_score(y == k, p[:, k]) for k in present])),
    }


def job(name: str, split: int, method: str, rows: int, warm: set[tuple[str, bool]]) -> Row:
    """Return the row of one fit; the first one of a method is preceded by a small one."""
    row: Row = {"dataset": name, "split": split, "method": method, "most rows": rows}
    classify = index()[name]["task"] in CLASSES
    try:
        data = load(name, split, rows)
        row |= {"rows": len(data.y_train), "columns": data.X_train.shape[1]}
        row["measure"] = "log loss" if classify else "RMSE"
        if (method, classify) not in warm:
            few = data.X_train[:WARM_ROWS]
            y = np.arange(len(few)) % 2
            measure(method, classify, Data(few, y, few, y))
            warm.add((method, classify))
        return row | measure(method, classify, data)
    except SkipError as reason:
        return row | {"skipped": str(reason)}
    except Exception as failure:  # a table of many fits goes on without this one
        line = (str(failure).strip().splitlines() or [""])[0]
        return row | {"failed": f"{type(failure).__name__}: {line[:160]}"}


def main(case: Row) -> Iterator[Row]:
    """Yield the row of each job."""
    warnings.simplefilter("ignore")
    warm: set[tuple[str, bool]] = set()
    for name, split, method in case["jobs"]:
        yield job(name, split, method, case["rows"], warm)


if __name__ == "__main__":
    serve(main)
