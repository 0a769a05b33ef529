"""``kernelgrad fit``."""

from __future__ import annotations

import csv
import secrets
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kernelgrad.cli import report
from kernelgrad.cli.options import AsJson, DataFile, options, parsed, usage_errors
from kernelgrad.files.disk import replacing

if TYPE_CHECKING:
    from kernelgrad.callbacks import Checkpoint
    from kernelgrad.data import BatchSource

Task = Literal["auto", "classification", "regression"]
# options of commands that learn
LEARNED = {
    "target": "Column to learn; needed for CSV and Parquet.",
    "task": "What to learn; auto is classification of text and of up to 20 distinct whole "
    "numbers, otherwise regression.",
    "weight": "Column of sample weights.",
    "drop": "Columns to leave out, such as a,b.",
}


@options(
    **LEARNED,
    model="Where to write the model.",
    validation="File of rows that are not fitted, on which each iteration is scored.",
    checkpoint="Folder for the state of the fit, to resume it after a crash.",
    checkpoint_every="Time such as '60 s' or '5 min', or a number of iterations.",
    resume="Resume from the latest checkpoint, if there is one.",
    learning_curve="Also draw loss and score over time, to this file.",
    quiet="Print errors only.",
)
def fit(
    data: DataFile, model: Path, target: str | None = None, task: Task = "auto",
    weight: str | None = None, drop: list[str] | None = None, validation: Path | None = None,
    checkpoint: Path | None = None, checkpoint_every: str = "60 s", resume: bool = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of threads. [default: all cores]")
    ] = None,
    learning_curve: Path | None = None, quiet: bool = False, as_json: AsJson = False,
    **parameters: Any,
) -> None:  # fmt: skip
    """Train a model on a data file and save it.

    Ctrl-C ends the training, saves the model fitted so far and exits with code 130; SIGTERM
    does the same with code 143. After that, or after a crash, the same command with --resume
    goes on from the last state in the folder of --checkpoint, and gives the model of an
    uninterrupted fit.
    """
    with report.reporting(as_json) as exit_code, report.data_file(data) as path:
        from kernelgrad import KernelClassifier, KernelRegressor, set_num_threads
        from kernelgrad.callbacks import ProgressBar

        params = parsed(parameters)
        check_parameters(params)
        checkpoints = _checkpoints(checkpoint, checkpoint_every, resume)
        report.check_writable(model, "model", data)
        key = report.signing_key()
        if learning_curve is not None:
            _check_plot(learning_curve, data, model)
        source, kind = opened(path, data, params, target, task, weight, drop)
        others = None
        if validation is not None:
            names, d = getattr(source, "feature_names", None), source.n_features
            others = open_labelled(
                validation, target, weight=weight, feature_names=names, n_features=d,
                as_frame=True,
            )  # fmt: skip
        if not quiet:
            report.note(f"{data}: {source.n_rows} rows, {source.n_features} columns, {kind}")
            if checkpoints is not None and resume:
                saved = checkpoints.saved
                report.note(
                    f"Goes on from {saved[-1]}."
                    if saved
                    else f"{checkpoint} is empty: begins anew."
                )
        if threads is not None:
            set_num_threads(threads)
        cls = KernelClassifier if kind == "classification" else KernelRegressor
        estimator = cls(**params, callbacks=[] if quiet else [ProgressBar()])
        seconds, interrupted = _train(
            estimator, source, others, checkpoints, lambda: _save(estimator, model, key)
        )
        if learning_curve is not None:
            _plot_history(estimator, learning_curve)
        if as_json or not quiet:
            about = {
                "data": str(data),
                "rows": source.n_rows,
                "columns": source.n_features,
                "task": kind,
                "task_inferred": task == "auto",
            }
            _print_fit(estimator, about, seconds, model, learning_curve, as_json)
        if interrupted:
            report.note(
                f"Interrupted: {model} holds the model after {estimator.n_iter_} iterations."
            )
            if checkpoints is not None:
                report.note("The same command and --resume go on with it.")
            raise typer.Exit(exit_code())


def _print_fit(
    estimator: Any, about: dict[str, Any], seconds: float, model: Path, curve: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    score, n_bytes = estimator.history_["score_name"], model.stat().st_size
    result = about | {
        "status": estimator.fit_status_,
        "seconds": seconds,
        "compile_seconds": estimator.history_["compile_seconds"],
        "iterations": estimator.n_iter_,
        "random_features": estimator.n_random_features_,
        "support_rows": estimator.n_support_,
        "score_name": score,
        "validation_score": estimator.best_score_,
        "quality": estimator.model_info()["quality"],
        "model": str(model),
        "bytes": n_bytes,
        "learning_curve": None if curve is None else str(curve),
    }
    hidden = ("data", "task_inferred", "compile_seconds", "score_name", "bytes")
    inferred = " (inferred from the target; --task overrules)" * about["task_inferred"]
    report.print_result(
        result,
        as_json,
        **dict.fromkeys(hidden),
        task=f"{about['task']}{inferred}",
        seconds=f"{seconds:.2f}",
        random_features=estimator.n_random_features_ or None,
        support_rows=estimator.n_support_ or None,
        validation_score=f"{estimator.best_score_:.6g} ({score})" if score else None,
        quality=(result["quality"] or {}).get("text"),
        model=f"{model} ({report.size_text(n_bytes)})",
    )


def _train(
    estimator: Any, source: BatchSource, validation: BatchSource | None,
    checkpoints: Checkpoint | None, save: Callable[[], None],
) -> tuple[float, bool]:  # fmt: skip
    """Fit and save; return the seconds of the fit, and whether a signal ended it.

    From the last iteration on, signals wait until the model is written.
    """
    from kernelgrad.callbacks import Callback
    from kernelgrad.compute.compiling import clock
    from kernelgrad.solvers.loop import deferred_interrupt

    with ExitStack() as stack:
        pending: list[Callable[[], bool]] = []
        ends = Callback()
        ends.on_end = lambda status: pending.append(  # type: ignore[method-assign]
            stack.enter_context(deferred_interrupt())
        )
        estimator.callbacks += [ends] if checkpoints is None else [ends, checkpoints]
        start, interrupted = clock(), False
        try:
            estimator.fit(source, X_val=validation)
        except KeyboardInterrupt:
            if not hasattr(estimator, "fit_status_"):  # before there was a model
                raise
            interrupted = True
        seconds = clock() - start
        save()
        return seconds, interrupted or pending[0]()


def _save(estimator: Any, model: Path, key: bytes | None) -> None:
    """Save the model, in TMPDIR if its path is not writable; the error names the place."""
    try:
        estimator.save(model, key=key)
    except OSError as error:
        spare = Path(tempfile.gettempdir()) / f"{model.stem}-{secrets.token_hex(4)}.kgm"
        try:
            estimator.save(spare, key=key)
        except OSError:
            raise error from None
        why = f"{error.strerror}. The model is in {spare} instead, move it"
        raise OSError(error.errno, why, str(model)) from None


def _checkpoints(folder: Path | None, every: str, resume: bool) -> Checkpoint | None:
    from kernelgrad.callbacks import Checkpoint

    if folder is None:
        if resume:
            raise typer.BadParameter("--resume needs the folder to go on from: --checkpoint.")
        return None
    try:
        checkpoints = Checkpoint(
            folder, int(every) if every.isdigit() else every, resume=resume
        )
    except ValueError as error:
        raise typer.BadParameter(f"--checkpoint-every: {error}") from None
    checkpoints.prepare()
    return checkpoints


def check_parameters(params: dict[str, Any]) -> None:
    """Check what can be checked without data."""
    from sklearn.utils import check_random_state

    from kernelgrad import KernelClassifier
    from kernelgrad.losses import ALIASES, LOSSES
    from kernelgrad.validation import check_name

    tasks = {"classification", "regression"}
    losses = {name for name, loss in LOSSES.items() if loss.tasks & tasks}.union(ALIASES)
    with usage_errors():
        if isinstance(loss := params.get("loss", "auto"), str):
            check_name(loss, losses | {"auto"}, "loss")
        check_name(params.get("class_weight") or "balanced", ("balanced",), "class_weight")
        check_random_state(params.get("random_state"))
        others = {name: value for name, value in params.items() if name != "loss"}
        KernelClassifier(**others)._spec()


def opened(
    path: Path, data: Path, params: dict[str, Any], target: str | None, task: Task,
    weight: str | None, drop: list[str] | None,
) -> tuple[BatchSource, Task]:  # fmt: skip
    """Return the rows of a file, which messages call `data`, and what to learn from them."""
    dropped = [name for names in csv.reader(drop or ()) for name in names]
    source = open_labelled(path, target, weight=weight, drop=dropped, as_frame=True)
    kind = _decide_task(source, task, data)
    if "class_weight" in params and kind == "regression":
        raise typer.BadParameter("--class-weight is for classification; leave it out.")
    return source, kind


def _decide_task(source: BatchSource, task: Task, data: Path) -> Task:
    from kernelgrad import DataError

    summary = source.summarize_target()
    inferred = summary.infer_task()
    if task == "regression" and summary.kind == "string":
        raise DataError(
            f"{data}: the target is text, so --task regression cannot be used; name a numeric "
            "column with --target."
        )
    chosen = inferred if task == "auto" else task
    if chosen == "classification" and summary.classes is None:
        raise DataError(
            f"{data}: the target has more than 1,000 distinct values or several columns, too "
            "many for classification; choose another --target or use --task regression."
        )
    if task == "classification" and inferred == "regression" and summary.kind == "float":
        raise DataError(
            f"{data}: the target is continuous; use --task regression, or write it as classes."
        )
    return chosen


def open_labelled(
    data: Path, target: str | None, *, n_features: int | None = None, **columns: Any
) -> BatchSource:
    """Open a file that must carry a target."""
    from kernelgrad import DataError, open_source
    from kernelgrad.data import format_of

    kind = format_of(data)
    if kind in ("csv", "parquet") and target is None:
        raise DataError(f"{data} has named columns; choose the one to learn with --target.")
    if kind == "libsvm" and target is not None:
        raise DataError(
            f"{data}: every line of a LIBSVM file begins with its target; leave --target "
            f"{target} out."
        )
    source = open_source(data, target=target, n_features=n_features, **columns)
    if not source.has_target:
        raise DataError(f"{data} has no target; name its array with --target.")
    return source


def _check_plot(path: Path, *others: Path) -> None:
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        hint = "Learning curves need matplotlib: pip install kernelgrad[plot]"
        raise ImportError(hint) from None
    suffixes = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.lower().lstrip(".") not in suffixes:
        raise typer.BadParameter(
            f"learning curve {path} has no suffix that matplotlib knows; choose one of: "
            f"{', '.join(suffixes)}."
        )
    report.check_writable(path, "learning curve", *others)


def _plot_history(estimator: Any, path: Path) -> None:
    """Write the learning curve of a fitted estimator, without needing a display."""
    from matplotlib.figure import Figure

    from kernelgrad import LearningCurveDisplay

    figure = Figure(layout="constrained")
    LearningCurveDisplay.from_estimator(estimator, ax=figure.subplots())
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix.lower().lstrip("."))
