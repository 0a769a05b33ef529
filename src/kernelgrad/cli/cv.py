"""``kernelgrad cv``."""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Any

import typer

from kernelgrad.cli import report
from kernelgrad.cli.apply import predictions_of, scores_of, targeted
from kernelgrad.cli.fit import LEARNED, Task, check_parameters, opened
from kernelgrad.cli.options import AsJson, DataFile, options, parsed


@options(**LEARNED, quiet="No lines for single folds.")
def cv(
    data: DataFile, target: str | None = None, task: Task = "auto", weight: str | None = None,
    drop: list[str] | None = None,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds.")] = 5,
    quiet: bool = False, as_json: AsJson = False, **parameters: Any,
) -> None:  # fmt: skip
    """Score fits to a data file by cross-validation.

    Each fit is to all folds but one, whose predictions are scored.
    Prints the mean of each score with its standard error, the deviation over the folds divided
    by the root of their number. Rows are shuffled with the seed 0, classes are divided evenly.
    """
    with report.reporting(as_json), report.data_file(data) as path:
        import numpy as np
        from sklearn.model_selection import KFold, StratifiedKFold

        from kernelgrad import KernelClassifier, KernelRegressor

        params = parsed(parameters)
        check_parameters(params)
        source, kind = opened(path, data, params, target, task, weight, drop)
        ways = (KernelRegressor, KFold), (KernelClassifier, StratifiedKFold)
        cls, splits = ways[kind == "classification"]
        rows, scores = np.arange(source.n_rows), []
        y = np.concatenate(list(source.target_chunks()))
        divided = splits(folds, shuffle=True, random_state=0)
        for others, fold in divided.split(rows, y):
            batch = source.take(others)
            model = cls(**params).fit(batch.X, batch.y, batch.sample_weight)
            rows_of_fold, unseen = source.take(fold), Counter[int]()
            parts = predictions_of(model, rows_of_fold.X, unseen)
            model._model.inputs.warn_of(unseen)
            classes = getattr(model, "classes_", None)
            parts = targeted(classes, rows_of_fold.y, parts)
            scores.append(scores_of(classes, parts, rows_of_fold.sample_weight))
            if not quiet:
                shown = ", ".join(f"{name} {v:.6g}" for name, v in scores[-1].items())
                report.note(f"fold {len(scores)} of {folds}: {shown}")
        result: dict[str, Any] = {"rows": len(rows), "task": kind, "folds": folds}
        shown_as = {}
        for name in scores[0]:
            values = np.array([each[name] for each in scores])
            mean, error = values.mean(), values.std(ddof=1) / math.sqrt(folds)
            result[name] = {"mean": mean, "standard_error": error, "folds": values}
            shown_as[name] = f"{mean:.6g} +- {error:.2g}"
        report.print_result(result, as_json, **shown_as)
