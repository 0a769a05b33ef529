"""``kernelgrad tune``."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelgrad.cli import report
from kernelgrad.cli.fit import LEARNED, Task, check_parameters, opened
from kernelgrad.cli.options import PARAMETERS, AsJson, DataFile, options, parsed, usage_errors

_INTEGERS = ("max_iter", "random_state")


@options(
    **LEARNED,
    model="Where to write the best model, fitted to all rows.",
    search="Parameter and its values, alpha=1e-6..1 (log-uniform) or kernel=rbf,laplacian.",
    scoring="A score of scikit-learn, such as neg_log_loss. [default: accuracy or r2]",
    successive="Give few rows to many trials, and more to the better ones.",
)
def tune(
    data: DataFile, model: Path, search: list[str], target: str | None = None,
    task: Task = "auto", weight: str | None = None, drop: list[str] | None = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials.")] = 20,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds.")] = 5,
    scoring: str | None = None, successive: bool = False, as_json: AsJson = False,
    **parameters: Any,
) -> None:  # fmt: skip
    """Search parameters by cross-validation, and save the best model.

    The search is scikit-learn's RandomizedSearchCV, or HalvingRandomSearchCV with --successive,
    of which the trials of the last round are shown. Parameters without --search are those of
    fit. Columns are scaled if gamma is searched. Example: kernelgrad tune a.csv --target y
    --model m.kgm --search alpha=1e-8..0.1 --search kernel=laplacian,rbf
    """
    with report.reporting(as_json), report.data_file(data) as path:
        import numpy as np
        from sklearn import config_context, metrics
        from sklearn import model_selection as selection
        from sklearn.experimental import enable_halving_search_cv  # noqa: F401
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import FunctionTransformer

        from kernelgrad import KernelClassifier, KernelRegressor

        params, spaces = parsed(parameters), {}
        for text in search:
            name, values = _space(text)
            spaces[f"model__{name}"] = values
            # the columns would stay as they are
            if name == "gamma" or (name == "kernel" and ":" in text):
                params.setdefault("standardize", True)
        check_parameters(params)
        scores = metrics.get_scorer_names()
        if scoring and scoring not in scores:
            # rmse are initials of neg_root_mean_squared_error
            near = [s for s in scores if "".join(w[0] for w in s.split("_")) == f"n{scoring}"]
            near += get_close_matches(scoring, scores)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise typer.BadParameter(
                f"Unknown score {scoring!r}{hint}; sklearn.metrics.get_scorer_names() has all."
            )
        report.check_writable(model, "model", data)
        key = report.signing_key()
        source, kind = opened(path, data, params, target, task, weight, drop)
        classify = kind == "classification"
        splits = selection.StratifiedKFold if classify else selection.KFold
        scorer = metrics.get_scorer(scoring or ("accuracy" if classify else "r2"))
        halve, all_rows = selection.HalvingRandomSearchCV, selection.RandomizedSearchCV
        with config_context(enable_metadata_routing=True):
            weighted = (KernelClassifier if classify else KernelRegressor)(**params)
            weighted.set_fit_request(sample_weight=True)
            taken = FunctionTransformer(lambda numbers: source.take(numbers[:, 0]).X)
            searched = (halve if successive else all_rows)(
                Pipeline([("rows", taken), ("model", weighted)]),
                spaces,
                scoring=scorer.set_score_request(sample_weight=True),
                cv=splits(folds, shuffle=True, random_state=0),
                random_state=params.get("random_state", 0),
                error_score="raise",
                **{"n_candidates" if successive else "n_iter": trials},
            )
            y = np.concatenate(list(source.target_chunks()))
            weights: dict[str, Any] = {}
            if weight is not None:  # one chunk of columns at a time is in memory
                parts: list[Any] = [batch.sample_weight for batch in source.chunks()]
                weights["sample_weight"] = np.concatenate(parts)
            searched.fit(np.arange(source.n_rows)[:, None], y, **weights)
        searched.best_estimator_[-1].save(model, key=key)
        _print_trials(searched, kind, folds, model, as_json)


def _space(text: str) -> tuple[str, Any]:
    """Return a parameter and its values, a list or a log-uniform distribution."""
    import numpy as np
    from scipy.stats import loguniform

    from kernelgrad.validation import check_name

    name, _, values = text.partition("=")
    low, dots, high = values.partition("..")
    with usage_errors():
        check_name(name, PARAMETERS, "parameter")
        if pair := re.fullmatch(r"([\d.e+-]+):([\d.e+-]+)", values):
            raise ValueError(f"{text!r}: write {name}={pair[1]}..{pair[2]} for a range.")
        if dots and not 0.0 < float(low) < float(high) < math.inf:
            raise ValueError(f"{text!r}: the ends of a range must be above 0 and increase.")
    # a comma may also separate the parameters of a part
    ends = [low, high] if dots else re.split(r",(?!\w+=)", values)
    choices = [parsed({name: value}) for value in ends]
    for choice in choices:
        check_parameters(choice)
    if dots and name in _INTEGERS:
        return name, [round(v) for v in np.geomspace(float(low), float(high), 1000)]
    if dots:
        return name, loguniform(float(low), float(high))
    return name, [choice[name] for choice in choices]


def _print_trials(searched: Any, kind: Task, folds: int, model: Path, as_json: bool) -> None:
    results = searched.cv_results_
    rounds = results.get("iter", [0] * len(results["params"]))
    trials = [
        {
            "score": results["mean_test_score"][i],
            "standard_error": results["std_test_score"][i] / math.sqrt(folds - 1),
            "seconds": folds * results["mean_fit_time"][i],
            **{name.removeprefix("model__"): value for name, value in params.items()},
        }
        for i, params in enumerate(results["params"])
        if rounds[i] == max(rounds)
    ]
    trials.sort(key=lambda trial: -trial["score"])
    if as_json:
        result = {"task": kind, "folds": folds, "trials": trials, "model": str(model)}
        report.print_json(result)
        return
    shown = [
        [f"{v:.4g}" if isinstance(v, float) else str(v) for v in t.values()] for t in trials
    ]
    table = [list(trials[0]), *shown]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        report.say("  ".join(map(str.rjust, row, widths)))
    report.say(f"best model, fitted to all rows: {model}")
