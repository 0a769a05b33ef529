"""What ``defaults`` measures: jobs, each of one table and one method, in one process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from statistics import mean, median
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_selector
from sklearn.compose import make_column_transformer as by_columns
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.environment import load_average
from benchmarks.objectives._curves import (
    bandwidths,
    choose_rows,
    error,
    first_rows,
    in_chunks,
    some_rows,
)
from benchmarks.objectives._shared import serve, timed
from benchmarks.objectives._tables import TABLES, Table
from benchmarks.registry import Data, Row, SkipError
from kernelgrad import KernelClassifier, KernelRegressor

OURS = "kernelgrad"
ROW_LIMITS = {  # that keep a fit within minutes, and its matrices in memory
    "SVM default": 20_000, "SVM tuned": 20_000, "SVC calibrated": 20_000, "linear": 20_000,
    "xRFM": 10_000,
}  # fmt: skip
TUNING_ROWS, FOLDS, MOVES = 4_000, 3, 8
COST, GAMMA = (0.1, 1.0, 10.0, 100.0), (0.25, 1.0, 4.0, 16.0)  # times gamma="scale"
DENSE_CELLS = 10**8  # of sparse rows for a method that takes no others
PENALTIES = np.logspace(-3, 5, 17)
Chosen = dict[str, Any]


def is_sparse(X: Any) -> bool:
    return hasattr(X, "toarray")


def prepared(X: Any, model: Any, scaled: bool = True) -> Any:
    """Return a pipeline that gives `model` numbers.

    Frames are coded by one 0/1 column a level, missing numbers are medians, and numbers have
    mean 0 and deviation 1, unless `scaled` is False. Sparse rows stay as they are.
    """
    if is_sparse(X) or not (scaled or hasattr(X, "iloc")):
        return make_pipeline(model)
    if not hasattr(X, "iloc"):
        return make_pipeline(StandardScaler(), model)
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    levels = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    parts = (
        (numbers, make_column_selector(dtype_include="number")),
        (levels, make_column_selector(dtype_exclude="number")),
    )
    return make_pipeline(by_columns(*parts), model)


def machine(classify: bool, fast: bool = False, **options: Any) -> Any:
    """Return SVC, or SVR of a standardised target; `fast` prefers scikit-learn-intelex."""
    svc, svr = SVC, SVR
    if fast and find_spec("sklearnex"):
        module = import_module("sklearnex.svm")
        svc, svr = module.SVC, module.SVR
    if classify:
        return svc(**options)
    return TransformedTargetRegressor(svr(**options), transformer=StandardScaler())


def tuned(X: Any, y: Any, classify: bool) -> tuple[Any, Chosen]:
    """Return a pipeline with the C and gamma of least error in three folds, and these.

    Columns are scaled one by one, or not at all where that is better. A grid, then steps
    beyond its ends as long as they help.
    """
    rows = choose_rows(len(y), TUNING_ROWS, seed=0)
    X, y = some_rows(X, rows), y[rows]
    least = np.unique(y, return_counts=True)[1].min() if classify else FOLDS
    stratified = classify and least >= FOLDS
    folds: Any = (StratifiedKFold if stratified else KFold)(FOLDS, shuffle=True, random_state=0)
    metric = "accuracy" if classify else "neg_root_mean_squared_error"
    tried: dict[tuple[bool, int, int], float] = {}
    ways = [False] if is_sparse(X) else [True] if hasattr(X, "iloc") else [True, False]
    # in float64: squares of small integers would not fit in these
    coded = {
        way: prepared(X, FunctionTransformer(), way).fit_transform(X).astype(float)
        for way in ways
    }
    squares = {way: Z.multiply(Z) if is_sparse(Z) else Z * Z for way, Z in coded.items()}
    base = {  # gamma="scale" of SVC
        way: float(1 / (Z.shape[1] * (squares[way].mean() - Z.mean() ** 2)))
        for way, Z in coded.items()
    }

    def settings(key: tuple[bool, int, int]) -> Chosen:
        way, i, j = key
        return {"C": COST[0] * 10.0**i, "gamma": base[way] * GAMMA[0] * 4.0**j}

    def best() -> tuple[bool, int, int]:
        return max(tried, key=lambda key: tried[key])

    todo = list(product(ways, range(len(COST)), range(len(GAMMA))))
    for _ in range(MOVES):
        for key in todo:
            model = machine(classify, fast=True, **settings(key))
            scores = cross_val_score(model, coded[key[0]], y, cv=folds, scoring=metric)
            tried[key] = float(scores.mean())
        way, i, j = best()
        around = [(way, i + 1, j), (way, i - 1, j), (way, i, j + 1), (way, i, j - 1)]
        todo = [key for key in around if key not in tried]
        if not todo:
            break
    key = best()
    found = settings(key)
    return prepared(X, machine(classify, fast=True, **found), key[0]), found | {
        "columns scaled": key[0], "gamma / scale": GAMMA[0] * 4.0 ** key[2],
    }  # fmt: skip


def boosting(classify: bool) -> Any:
    if not find_spec("lightgbm"):
        raise SkipError("lightgbm is not installed")
    module = import_module("lightgbm")
    cls = module.LGBMClassifier if classify else module.LGBMRegressor
    return cls(verbosity=-1, random_state=0)


def histograms(X: Any, classify: bool) -> Any:
    """Return scikit-learn's boosted trees as they come, on dense rows."""
    cls = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    if not is_sparse(X):
        return cls(random_state=0)
    if X.shape[0] * X.shape[1] > DENSE_CELLS:
        raise SkipError("it takes dense rows only")
    dense = FunctionTransformer(lambda rows: rows.toarray(), accept_sparse=True)
    return make_pipeline(dense, cls(random_state=0))


def features(X: Any, y: Any, classify: bool) -> Any:
    """Return a linear model on 1,000 Nystroem features with the median rule's gamma."""
    code = prepared(X, FunctionTransformer())
    rows = some_rows(X, choose_rows(len(y), TUNING_ROWS, seed=0))
    gamma = bandwidths(code.fit_transform(rows))[1.0]
    nystroem = Nystroem(gamma=gamma, n_components=min(1_000, len(y)), random_state=0)
    last = LogisticRegression(max_iter=1_000) if classify else Ridge()
    return prepared(X, make_pipeline(nystroem, last))


class FeatureMachine:
    """xRFM with its own defaults, a fifth of the rows being its validation set."""

    def __init__(self, classify: bool) -> None:
        if not find_spec("xrfm"):
            raise SkipError("xrfm is not installed")
        self.classify = classify

    def fit(self, X: Any, y: Any) -> FeatureMachine:
        """Fit on float32 tensors; targets of regression are standardised."""
        import torch
        from xrfm import xRFM

        self.code = prepared(X, FunctionTransformer()).fit(X)
        if self.classify:
            self.classes_, target = np.unique(y, return_inverse=True)
            y, measure = target[:, None], "accuracy"
        else:
            self.target = StandardScaler().fit(np.asarray(y, float)[:, None])
            y, measure = self.target.transform(np.asarray(y, float)[:, None]), "mse"
        parts = train_test_split(
            self._numbers(X), y, test_size=0.2, random_state=0,
            stratify=y if self.classify else None,
        )  # fmt: skip
        kind = torch.int64 if self.classify else torch.float32
        train, held = (torch.as_tensor(part) for part in parts[:2])
        wanted, known = (torch.as_tensor(part).to(kind) for part in parts[2:])
        self.model = xRFM(
            device=torch.device("cpu"), tuning_metric=measure, random_state=0, verbose=False
        )
        self.model.fit(train, wanted, held, known)
        return self

    def _numbers(self, X: Any) -> Any:
        Z = self.code.transform(X)
        if is_sparse(Z):
            if Z.shape[0] * Z.shape[1] > DENSE_CELLS:
                raise SkipError("it takes dense rows only")
            Z = Z.toarray()
        return np.asarray(Z, np.float32)

    def predict(self, X: Any) -> Any:
        out = np.asarray(self.model.predict(self._numbers(X)))
        if not self.classify:
            return self.target.inverse_transform(out.reshape(len(out), -1))[:, 0]
        return self.classes_[out.astype(int).reshape(len(out))]

    def predict_proba(self, X: Any) -> Any:
        return np.asarray(self.model.predict_proba(self._numbers(X)), float)


def build(method: str, X: Any, y: Any, classify: bool, params: Chosen) -> tuple[Any, Chosen]:
    """Return an estimator that is not fitted, and what a search of ours has chosen for it."""
    if method == OURS:
        cls: Any = KernelClassifier if classify else KernelRegressor
        return cls(**({"random_state": 0} | params)), {}
    if method == "SVM tuned":
        return tuned(X, y, classify)
    if method == "SVC calibrated" and not classify:
        raise SkipError("it is for classes")
    makers: dict[str, Callable[[], Any]] = {
        "SVM default": lambda: prepared(X, machine(classify)),
        "SVC calibrated": lambda: prepared(
            X, CalibratedClassifierCV(machine(True, fast=True), ensemble=False)
        ),
        "LightGBM": lambda: boosting(classify),
        "HistGradientBoosting": lambda: histograms(X, classify),
        "Nystroem": lambda: features(X, y, classify),
        "xRFM": lambda: FeatureMachine(classify),
        "linear": lambda: prepared(
            X, LogisticRegression(max_iter=1_000) if classify else RidgeCV(PENALTIES)
        ),
        "constant": lambda: DummyClassifier() if classify else DummyRegressor(),
    }  # fmt: skip
    return makers[method](), {}


METHODS = [
    OURS, "SVM default", "SVM tuned", "SVC calibrated", "LightGBM", "HistGradientBoosting",
    "Nystroem", "xRFM", "linear", "constant",
]  # fmt: skip


def text(value: Any) -> str | None:
    """Return a value of a table: arrays by their shape, objects of a class by its name."""
    if value is None or isinstance(value, str | float | int):
        return None if value is None else str(value)
    return f"array {value.shape}" if hasattr(value, "shape") else type(value).__name__


def chosen(model: Any) -> Row:
    """Return what a model of ours has chosen, as far as it tells."""
    kernel = getattr(model, "kernel_", None)
    history = getattr(model, "history_", {})
    rounds = history.get("metric")
    last = rounds[-1] if isinstance(rounds, list) and rounds else rounds
    weights = getattr(model, "feature_importances_", None)
    if weights is not None and np.size(weights) > 1000:  # words of texts
        weights = None
    row: Row = {
        "kernel": None if kernel is None else type(kernel).__name__,
        "gamma": next((float(v) for v in (getattr(kernel, "gamma_value", None),) if v), None),
        "alpha": getattr(model, "alpha_", None),
        "solver": history.get("solver"),
        "metric": text(getattr(model, "metric_", None)),
        "rounds": len(rounds) if isinstance(rounds, list) else None,
        "reason": last if isinstance(last, str) else None,
        "weights": None if weights is None else np.round(np.ravel(weights), 4).tolist(),
    }
    return row


def rows_of(data: Data, most: int | None) -> tuple[Any, Any]:
    n = len(data.y_train)
    if most is None or most >= n:
        return data.X_train, data.y_train
    rows = choose_rows(n, most, seed=0)
    return some_rows(data.X_train, rows), np.asarray(data.y_train)[rows]


def warm_up(method: str, X: Any, y: Any, classify: bool, params: Chosen) -> None:
    """Compile, load libraries and start threads on a few rows of the same problem."""
    rows = first_rows(y, classify)
    X, y = some_rows(X, rows), y[rows]
    model, _ = build("SVM default" if method == "SVM tuned" else method, X, y, classify, params)
    model.fit(X, y).predict(X)


def measure(method: str, table: Table, data: Data, case: Row) -> Row:
    limits = (case["rows"], ROW_LIMITS.get(method))
    X, y = rows_of(data, min((m for m in limits if m is not None), default=None))
    params, classify = case["params"], table.classify
    if case["warm"]:
        warm_up(method, X, y, classify, params)

    def fit() -> tuple[Any, Chosen]:
        model, found = build(method, X, y, classify, params)
        return model.fit(X, y), found

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seconds, (model, found) = timed(fit)
    row: Row = {"fit s": seconds}
    row["predict s"], predicted = timed(in_chunks, model.predict, data.X_test)
    row["error"] = error(classify, data.y_test, predicted)
    if classify and hasattr(model, "predict_proba"):
        p = in_chunks(model.predict_proba, data.X_test)
        row["log loss"] = float(log_loss(data.y_test, p, labels=model.classes_))
    notes = []
    if len(y) < len(data.y_train):
        notes.append(f"{len(y):,} of {len(data.y_train):,} rows")
    if method == OURS:
        row |= chosen(model)
        notes += dict.fromkeys(str(w.message).splitlines()[0][:120] for w in caught)
    notes += [f"{key} {value:.3g}" for key, value in found.items()]
    return row | {"notes": "; ".join(notes)}


def job(name: str, method: str, case: Row) -> Row:
    """Return the row of one table and method: medians of seconds, means of errors."""
    table = TABLES[name]
    done: list[Row] = []
    head: Row = {"dataset": name, "method": method}
    head["measure"] = "error" if table.classify else "RMSE"
    try:
        draws = min(table.draws, case["draws"])
        for k in range(draws * case["repeat"]):
            data = table.load(k % draws)
            head |= {
                "rows": len(rows_of(data, case["rows"])[1]),
                "columns": data.X_train.shape[1],
            }
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                done.append(
                    measure(method, table, data, case | {"warm": case["warm"] and not k})
                )
    except SkipError as reason:
        return head | {"skipped": str(reason)}
    except Exception as failure:  # a table of many fits goes on without this one
        line = (str(failure).strip().splitlines() or [""])[0]
        return head | {"failed": f"{type(failure).__name__}: {line[:160]}"}
    row = head | done[0]
    for key in ("fit s", "predict s"):
        row[key] = median(part[key] for part in done)
    for key in ("error", "log loss"):
        if key in row:
            row[key] = float(mean(part[key] for part in done))
    return row | {"load": (load_average() or [None])[0]}


def main(case: Row) -> Iterator[Row]:
    for name, method in case["jobs"]:
        yield job(name, method, case)


if __name__ == "__main__":
    serve(main)
