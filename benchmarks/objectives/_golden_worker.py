"""Runs cases with one tree: requests as JSON on standard input, answers on standard output.

Started by `golden` with the tree's source on ``PYTHONPATH``. It uses public names of kernelgrad
alone, and so does what it imports from here, so that older and later trees run the same code.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import kernelgrad as kg
from benchmarks.objectives._golden_cases import Case, Rows, cases, renamed, rows
from benchmarks.objectives._shared import peak
from kernelgrad import kernels, losses, solvers

METHODS = ("predict", "transform", "decision_function", "predict_proba", "score_samples")
IMPORTED = peak()
LAST = ("train_loss", "objective", "duality_gap")
COLUMNS = (  # of the history, without clocks and counts of what caches save
    "iteration", "epoch", "rows_seen", "n_random_features", "n_features_saved", "n_support",
    "step_size", "train_loss", "objective", "validation_score",
)  # fmt: skip
PREDICTIONS = 3


def plain(array: Any) -> Any:
    array = np.asarray(array)
    return array.astype(str) if array.dtype == object else array


def outputs(model: Any, X: Any, *, onnx: bool = False) -> dict[str, Any]:
    """Return the result of each way to predict."""
    found = {name: getattr(model, name)(X) for name in METHODS if hasattr(model, name)}
    if hasattr(model, "sample_y"):
        found["std"] = model.predict(X, return_std=True)[1]
        found["covariance"] = model.predict(X[:20], return_cov=True)[1]
        found["samples"] = model.sample_y(X[:20], n_samples=2, random_state=0)
    if hasattr(model, "transduction_"):
        found["transduction"] = model.transduction_
    if onnx:
        from onnxruntime import InferenceSession

        session = InferenceSession(model.to_onnx().SerializeToString())
        feeds = {"X": X.toarray() if hasattr(X, "toarray") else X}
        if isinstance(X, pd.DataFrame):
            feeds = {}
            for name, column in X.items():
                text = not pd.api.types.is_float_dtype(column)
                cells = column.astype(object).where(column.notna(), "") if text else column
                feeds[name] = cells.to_numpy(object if text else float)[:, None]
        names = [each.name for each in session.get_outputs()]
        values = session.run(names, feeds)
        found |= {f"onnx {k}": v for k, v in zip(names, values, strict=True)}
    return {name: plain(value) for name, value in found.items()}


def timed(case: Case, data: Rows, predictions: int = PREDICTIONS) -> tuple[Any, float, float]:
    """Return the model, the seconds of its fit, and the least of some predictions."""
    start = time.perf_counter()
    model = case.fit(case.make(), data)
    seconds, predict = time.perf_counter() - start, np.inf
    method = next(getattr(model, name) for name in METHODS if hasattr(model, name))
    for _ in range(predictions):
        start = time.perf_counter()
        method(data.new)
        predict = min(predict, time.perf_counter() - start)
    return model, seconds, predict


def facts(model: Any) -> dict[str, Any]:
    """Return numbers of a fit that do not depend on clocks."""
    history = getattr(model, "history_", {})
    last = {name: (history.get(name) or [None])[-1] for name in LAST}
    return last | {
        "history": {name: history[name] for name in COLUMNS if name in history},
        "solver": history.get("solver"),
        "searched": bool(history.get("search") or history.get("metric")),
        "compile s": history.get("compile_seconds", 0.0),
    }


def save(model: Any, path: Path, *, resumable: bool) -> bool:
    """Write a model file; return whether there is one for such a model."""
    if not hasattr(model, "save"):
        return False
    try:
        model.save(path, **({"resumable": True} if resumable else {}))
    except TypeError:  # the kernel is a function
        return False
    return True


def resumed(model: Any, case: Case, data: Rows) -> dict[str, Any]:
    """Return predictions after going on with a fit, if the case has that."""
    if case.resume is None:
        return {}
    found = outputs(case.resume(model, data), data.new)
    return {f"resumed {name}": value for name, value in found.items()}


def record(name: str, case: Case, n: int, folder: str, old: str | None) -> dict[str, Any]:
    """Fit and predict once; write predictions and a model file, and read an old one."""
    data = rows(case.rows, n)
    model, *cold = timed(case, data, 1)
    row = facts(model) | dict(zip(("cold fit s", "cold predict s"), cold, strict=True))
    arrays = outputs(model, data.new, onnx=name.startswith("onnx"))
    path = Path(folder) / f"{name}.kgm"
    path.parent.mkdir(parents=True, exist_ok=True)
    files = {"new": path} | ({"old": Path(old) / f"{name}.kgm"} if old else {})
    if not save(model, path, resumable=case.resume is not None):
        files = {}
    for age, file in files.items():
        loaded = kg.load(file)
        read = outputs(loaded, data.new) | resumed(loaded, case, data)
        arrays |= {f"{age} file: {k}": v for k, v in read.items()}
    arrays |= resumed(model, case, data)
    np.savez(path.with_suffix(".npz"), **arrays)
    return row


def absent(case: Case) -> str:
    """Return which names this tree does not have, or an empty string."""
    options = case.make.keywords
    for what, known in (
        ("solver", {"auto", *solvers.SOLVERS, *solvers.LINEAR_SOLVERS}),
        ("kernel", {"auto", "linear", "gaussian", *kernels.KERNELS}),
        ("loss", {*losses.LOSSES}),
    ):
        name = renamed(options.get(what))
        if isinstance(name, str) and name not in known:
            return f"{what} {name!r}"
    try:
        case.make()
    except (AttributeError, KeyError, TypeError, ImportError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def answer(n: int, name: str, *folders: Any) -> dict[str, Any]:
    """Return the seconds of a case; with folders (new, old or None) write its files."""
    case = cases()[name]
    row: dict[str, Any] = {}
    try:
        if missing := absent(case):
            row["verdict"] = f"absent: {missing}"
        elif folders:
            row = record(name, case, n, *folders)
        else:
            row["fit s"], row["predict s"] = timed(case, rows(case.rows, n))[1:]
    except kg.CapabilityError as error:
        row["verdict"] = f"refused: {error}"
    except Exception as error:
        row["verdict"] = f"error: {type(error).__name__}: {error}"
    return row | {"peak MB": peak() - IMPORTED}


def main(n: int) -> None:
    """Answer with the place of the package, then to each request."""
    warnings.simplefilter("ignore")
    print(json.dumps({"from": kg.__file__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(n, *json.loads(line)), default=float), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
