"""``kernelgrad predict``, ``score``, ``inspect``, ``export`` and ``compress``."""

from __future__ import annotations

import csv
import io
import math
import reprlib
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from kernelgrad.cli import report
from kernelgrad.cli.fit import open_labelled
from kernelgrad.cli.options import AsJson, DataFile, ModelFile, options

if TYPE_CHECKING:
    from kernelgrad.data import Batch, BatchSource
    from kernelgrad.types import AnyArray

    Chunks = Iterator[tuple[Batch, dict[str, AnyArray]]]  # rows, and predictions by name


_SET_HELP = "Also which classes are in a set that holds this share of new classes."
_SHORT = reprlib.Repr()  # texts of long lists
_SHORT.maxdict = 10
Share = Annotated[float | None, typer.Option("--set", help=_SET_HELP)]


@options(
    output="File to write, .csv or .npy; - prints CSV.",
    proba="Also the probabilities of the classes.",
    decision="Also the values of the decision function.",
    interval="Also bounds that hold this share of new targets, such as 0.9.",
    explain="Also what each column adds to the base value, as Shapley values.",
)
def predict(
    model: ModelFile, data: DataFile, output: Path, proba: bool = False, decision: bool = False,
    interval: float | None = None, sets: Share = None, explain: bool = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Predict every row of a data file.

    A CSV file holds the predictions, and beside them what was asked for: probabilities,
    decision values, bounds, sets, and the base value and contributions that add up to the value
    of the function. A .npy file holds one array: what was asked for, otherwise the predictions.
    """
    with report.reporting(as_json), report.data_file(data) as path:
        to_stdout = str(output) == "-"
        suffix = ".csv" if to_stdout else output.suffix.lower()
        if suffix not in (".csv", ".npy"):
            raise typer.BadParameter(f"--output {output} must end in .csv or .npy, or be -.")
        asked = {"interval": interval, "set": sets}
        shares = {name: share for name, share in asked.items() if share is not None}
        if suffix == ".npy" and proba + decision + len(shares) + explain > 1:
            raise typer.BadParameter(
                "A .npy file holds one array: give one of --proba, --decision, --interval, "
                "--set and --explain."
            )
        if to_stdout and as_json:
            raise typer.BadParameter("--json needs the standard output; give --output a file.")
        if not to_stdout:
            report.check_writable(output, "predictions", model, data)

        from kernelgrad import open_source
        from kernelgrad.files.disk import replacing

        estimator = _loaded(model)
        _check_outputs(estimator, proba=proba, decision=decision)
        for name in shares:
            if not hasattr(estimator, f"predict_{name}"):
                other = "regressors" if name == "interval" else "classifiers"
                raise ValueError(f"--{name} is for {other}; leave it out.")
        if explain and not hasattr(estimator, "explain"):
            raise ValueError("--explain is for kernel models; leave it out.")
        source = open_source(path, **_expected_columns(estimator))
        chunks = _predictions(estimator, source, shares, explain)
        parts = ["prediction", *["proba"] * proba, *["decision"] * decision, *shares]
        parts += ["base", "why"] * explain
        if to_stdout:
            _write_csv(sys.stdout, chunks, estimator, parts)
            return
        with replacing(output) as stream:
            if suffix == ".npy":
                _write_npy(stream, chunks, estimator, parts[-1])
            else:
                text = io.TextIOWrapper(stream, "utf-8", newline="", write_through=True)
                _write_csv(text, chunks, estimator, parts)
                text.detach()
        if as_json:
            report.print_json({"rows": source.n_rows, "output": str(output)})
        else:
            report.say(f"{source.n_rows} predictions in {output}")


@options(target="Column with the true values; needed for CSV and Parquet.")
def score(
    model: ModelFile, data: DataFile, target: str | None = None, as_json: AsJson = False
) -> None:
    """Compare the predictions of a model with the truth.

    For classes it prints accuracy, error rate, the log loss where the model has probabilities,
    and the area under the ROC curve (AUC) of two classes; for numbers RMSE, MAE and R2,
    averaged over the outputs.
    """
    with report.reporting(as_json), report.data_file(data) as path:
        from sklearn.base import is_regressor

        estimator = _loaded(model)
        source = open_labelled(path, target, **_expected_columns(estimator))
        if not (hasattr(estimator, "classes_") or is_regressor(estimator)):
            raise ValueError(
                f"{model} holds a {type(estimator).__name__}, whose predictions have no truth "
                "to compare with; use predict."
            )
        if is_regressor(estimator) and estimator.loss_.n_outputs is not None:
            raise ValueError(
                f"{model} predicts {estimator.loss_.n_outputs} quantiles of one target; score "
                "it in Python, or fit one quantile."
            )
        report.print_result(_scored(estimator, source, data), as_json)


@options(
    importances="Load it and list the shares of the columns, the largest first.",
)
def inspect(model: ModelFile, importances: bool = False, as_json: AsJson = False) -> None:
    """Show what a model file holds; nothing in it is executed."""
    with report.reporting(as_json):
        from kernelgrad.estimators.summary import kernel_text
        from kernelgrad.files.container import read_container

        key = report.signing_key()
        summary = read_container(model, key=key)[0].get("info")
        if importances:
            estimator = _loaded(model)
            summary = estimator.model_info()
        elif summary is None:  # the file is of an old version, or holds no estimator
            from kernelgrad import load

            summary = load(model, key=key).model_info()
        n_bytes = model.stat().st_size
        shown: dict[str, Any] = {"file": f"{model} ({report.size_text(n_bytes)})"}
        names = summary.get("feature_names") or range(summary.get("n_features_in", 0))
        if types := summary.get("feature_types"):
            shown["feature_names"] = [
                f"{name} ({kind})" for name, kind in zip(names, types, strict=True)
            ]
            shown["feature_types"] = None
        if importances:
            summary["importances"] = shares = estimator.feature_importances_.tolist()
            pairs = sorted(zip(names, shares, strict=True), key=lambda pair: -pair[1])
            shown["importances"] = [f"{name} {share:.3f}" for name, share in pairs]
        for name in ("loss_params", "kernel_params"):
            params = summary.get(name, {})
            shown[name] = [f"{k}={_SHORT.repr(v)}" for k, v in params.items()] or None
            if params.get("kernels") and summary["kernel"] == "sum":
                shown |= {"kernel": kernel_text("sum", params), name: None}
        shown["quality"] = (summary.get("quality") or {}).get("text")
        info = {"file": str(model), "file_bytes": n_bytes, **summary}
        report.print_result(info, as_json, file_bytes=None, bytes=None, **shown)


@options(
    output="The .onnx file to write.",
    dtype="Type of the numbers that it takes: float64 or float32.",
)
def export(
    model: ModelFile, output: Path, dtype: str = "float64",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write a model as an ONNX file, for programs without Python.

    Needs the extra kernelgrad[onnx].
    """
    with report.reporting(as_json):
        report.check_writable(output, "ONNX model", model)
        estimator = _loaded(model)
        graph = estimator.to_onnx(output, dtype=dtype).graph
        n_bytes = output.stat().st_size
        result = {
            "output": str(output),
            "file_bytes": n_bytes,
            "inputs": [each.name for each in graph.input],
            "outputs": [each.name for each in graph.output],
        }
        shown = f"{output} ({report.size_text(n_bytes)})"
        report.print_result(result, as_json, output=shown, file_bytes=None)


@options(
    output="Model file to write.",
    max_rows="Most support rows of the result; half of them by default.",
    tol="Root mean square of the change, over the spread of f, that is small enough.",
)
def compress(
    model: ModelFile, output: Path, max_rows: int | None = None, tol: float = 0.01,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write a smaller model of nearly the same function."""
    with report.reporting(as_json):
        report.check_writable(output, "model", model)
        estimator = _loaded(model)
        if not hasattr(estimator, "compress"):
            raise ValueError(f"{model} holds a linear model, which has no support rows.")
        small = estimator.compress(max_rows, tol=tol).set_params(verbose=0)
        small.save(output, key=report.signing_key())
        report.print_result({"output": str(output), **small.history_["compression"]}, as_json)


def _loaded(model: Path) -> Any:
    """Return the estimator of a file, which announces compilation."""
    from kernelgrad import load

    estimator: Any = load(model, key=report.signing_key())
    if not hasattr(estimator, "expansion_"):
        raise ValueError(
            f"{model} holds a {type(estimator).__name__}, which the command line only "
            "inspects; load it in Python."
        )
    return estimator.set_params(verbose=1)


def _expected_columns(estimator: Any) -> dict[str, Any]:
    """Return the arguments of `open_source` that find the features of a model."""
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "feature_names": None if names is None else [str(name) for name in names],
        "n_features": estimator.n_features_in_,
        "as_frame": names is not None,
    }


def _check_outputs(estimator: Any, *, proba: bool, decision: bool) -> None:
    if not hasattr(estimator, "classes_"):
        if proba or (decision and not hasattr(estimator, "decision_function")):
            raise ValueError(
                "The model is no classifier, and its predictions are its values; leave out "
                "--proba and --decision."
            )
    elif proba and not hasattr(estimator, "predict_proba"):
        raise ValueError(
            f"The model has loss {estimator.loss_.name!r} and no calibration for "
            "probabilities; use --decision, or fit again."
        )


def _predictions(
    estimator: Any, source: BatchSource, shares: dict[str, float] | None = None,
    explain: bool = False,
) -> Chunks:  # fmt: skip
    """Yield consecutive rows with their predictions, and intervals or sets of some coverage."""
    from kernelgrad.data import ArraySource
    from kernelgrad.data.base import is_frame

    unseen: Counter[int] = Counter()
    for batch in source.chunks(prefetch=True):
        parts = predictions_of(estimator, batch.X, unseen)
        # columns are matched by now, and a source needs no names
        rows = batch.X if is_frame(batch.X) else ArraySource(batch.X, checked=True)
        for name, share in (shares or {}).items():
            parts[name] = getattr(estimator, f"predict_{name}")(rows, share)
        if explain:
            why = estimator.explain(batch.X)
            parts |= {"base": why.base_values, "why": why.values}
        yield batch, parts
    estimator._model.inputs.warn_of(unseen)


def predictions_of(estimator: Any, X: Any, unseen: Counter[int]) -> dict[str, AnyArray]:
    """Return the predictions of rows, whose columns are matched by now, by name."""
    model = estimator._model
    raw = model.values(model.inputs.read(X, source=True, unseen=unseen))
    parts = {"prediction": model.task.predict(raw), "decision": model.task.decision(raw)}
    if hasattr(estimator, "predict_proba"):
        parts["proba"] = model.probabilities(raw)
    return parts


def _write_csv(stream: IO[str], chunks: Chunks, estimator: Any, parts: list[str]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    names: list[str] = []
    for _, predicted in chunks:
        tables = {part: predicted[part].reshape(len(predicted[part]), -1) for part in parts}
        if not names:
            for part, table in tables.items():
                names += _headings(estimator, part, table.shape[1])
            writer.writerow(names)
        columns = [column.astype(str) for table in tables.values() for column in table.T]
        writer.writerows(zip(*columns, strict=True))


def _headings(estimator: Any, part: str, width: int) -> list[str]:
    """Return the names of the columns of a part of the predictions."""
    n, starts = estimator.n_features_in_, [part]
    if part == "interval":
        starts = ["lower", "upper"]
    elif part == "why":
        starts = [f"why_{name}" for name in getattr(estimator, "feature_names_in_", range(n))]
    labels: list[Any] = list(range(width // len(starts)))
    if hasattr(estimator, "classes_"):
        labels = estimator.classes_.tolist()
        if part in ("base", "why") and estimator._model.task.by_pairs:
            labels = ["_".join(map(str, pair)) for pair in combinations(labels, 2)]
    ends = [""] if width == len(starts) else [f"_{label}" for label in labels]
    return [start + end for start in starts for end in ends]


def _write_npy(stream: IO[bytes], chunks: Chunks, estimator: Any, part: str) -> None:
    import numpy as np

    values = np.concatenate([predicted[part] for _, predicted in chunks])
    if values.dtype.kind == "O":  # texts, which .npy holds as objects only by pickle
        values = values.astype(estimator.classes_.astype(str).dtype)
    np.save(stream, values)


def _scored(estimator: Any, source: BatchSource, data: Path) -> dict[str, Any]:
    """Return the scores of all rows; what is not finite is None."""
    import numpy as np

    from kernelgrad import DataError

    classes, width = getattr(estimator, "classes_", None), estimator.expansion_.n_outputs
    pieces = []
    for batch, parts in _predictions(estimator, source):
        y = batch.y
        assert y is not None
        like = "numbers" if classes is None else f"classes like {classes[0]!r}"
        if (y.dtype.kind in "OU") != (classes is not None and classes.dtype.kind in "OU"):
            raise DataError(
                f"{data}: the target holds {y.ravel()[0]!r}, but the model predicts {like}; "
                "name the right column with --target."
            )
        if classes is None and y.size != width * len(y):
            raise DataError(
                f"{data}: the target has {y.size // len(y)} columns, but the model predicts "
                f"{width}; give data with the targets the model was made for."
            )
        pieces.append(targeted(classes, y, parts))
    whole = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    scores: dict[str, Any] = {"rows": len(whole["y"]), **scores_of(classes, whole)}
    if classes is not None and (unknown := int(np.sum(~np.isin(whole["y"], classes)))):
        report.note(
            f"Warning: {unknown} rows have a label that the model does not know: errors."
        )
        return {name: scores[name] for name in ("rows", "accuracy", "error_rate")} | {
            "unknown_labels": unknown
        }
    return {name: value if math.isfinite(value) else None for name, value in scores.items()}


def targeted(
    classes: AnyArray | None, y: Any, parts: dict[str, AnyArray]
) -> dict[str, AnyArray]:
    """Return predictions with the targets y; a probability is that of a row's own class."""
    if classes is not None and "proba" in parts:
        codes = classes.searchsorted(y).clip(max=len(classes) - 1)
        parts["proba"] = parts["proba"][range(len(y)), codes]
    return {"y": y, **parts}


def scores_of(
    classes: AnyArray | None, parts: dict[str, AnyArray], weight: AnyArray | None = None
) -> dict[str, float]:
    """Return the scores of predictions :func:`targeted`."""
    import numpy as np
    from sklearn import metrics

    y, f, w = parts["y"], parts["prediction"], {"sample_weight": weight}
    if classes is None:
        y, f = (v.reshape(len(y), -1).astype(np.float64) for v in (y, f))
        with np.errstate(all="ignore"):  # constant targets
            r2 = metrics.r2_score(y, f, force_finite=False, **w) if len(y) > 1 else np.nan
        rmse = metrics.root_mean_squared_error(y, f, **w)
        return {"rmse": rmse, "mae": metrics.mean_absolute_error(y, f, **w), "r2": r2}
    right = float(np.average(f == y, weights=weight))
    scores = {"accuracy": right, "error_rate": 1 - right}
    if "proba" in parts:
        p = parts["proba"].astype(np.float64)
        losses = -np.log(np.maximum(p, np.finfo(parts["proba"].dtype).tiny))
        scores["log_loss"] = float(np.average(losses, weights=weight))
    if len(classes) == 2 and len(np.unique(y)) == 2:
        scores["auc"] = metrics.roc_auc_score(y == classes[1], parts["decision"], **w)
    return scores
