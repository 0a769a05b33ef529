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

from kernelgrad.cli.options import parse, set_options
from kernelgrad.cli.report import (
    check_writable,
    data_file,
    note,
    print_result,
    reporting,
    signing_key,
    size_text,
)
from kernelgrad.files.disk import replacing

if TYPE_CHECKING:
    from kernelgrad.callbacks import Checkpoint
    from kernelgrad.data import BatchSource


Task = Literal["auto", "classification", "regression"]
DATA_HELP = (
    "CSV, Parquet, LIBSVM, .npz or .npy file, folder of these, or quoted pattern; - reads CSV "
    "from the standard input."
)


def fit(
    data: Annotated[Path, typer.Argument(help=DATA_HELP)],
    model: Annotated[Path, typer.Option(help="Where to write the model.")],
    target: Annotated[
        str | None, typer.Option(help="Column to learn; needed for CSV and Parquet.")
    ] = None,
    task: Annotated[
        Task, typer.Option(help="What to learn; auto decides by the target.")
    ] = "auto",
    weight: Annotated[str | None, typer.Option(help="Column of sample weights.")] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Columns to leave out, such as a,b.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the state of the fit, so that it can be resumed after a crash."
        ),
    ] = None,
    checkpoint_every: Annotated[
        str, typer.Option(help="Time such as '60 s' or '5 min', or a number of iterations.")
    ] = "60 s",
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume from the latest checkpoint, if there is one."),
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of threads. [default: all cores]")
    ] = None,
    learning_curve: Annotated[
        Path | None, typer.Option(help="Also draw loss and score over time, to this file.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    **parameters: Any,
) -> None:
    """Train a model on a data file and save it.

    Ctrl-C ends the training, saves the model fitted so far and exits with code 130; SIGTERM
    does the same with code 143. After that, or after a crash, the same command with --resume
    goes on from the last state in the folder of --checkpoint, and gives the model of an
    uninterrupted fit.
    """
    with reporting(as_json) as exit_code, data_file(data) as path:
        from kernelgrad import KernelClassifier, KernelRegressor, set_num_threads
        from kernelgrad.callbacks import ProgressBar

        given = {name: parse(text) for name, text in parameters.items() if text is not None}
        _check_parameters(given)
        keeper = _keeper(checkpoint, checkpoint_every, resume)
        check_writable(model, "model", data)
        key = signing_key()
        if learning_curve is not None:
            _check_plot(learning_curve, data, model)
        dropped = [name for names in csv.reader(drop or ()) for name in names]
        source = open_labelled(path, target, weight=weight, drop=dropped, as_frame=True)
        kind = _decide_task(source, task, data)
        cls = KernelClassifier if kind == "classification" else KernelRegressor
        if "class_weight" in given and kind == "regression":
            raise typer.BadParameter("--class-weight is for classification; leave it out.")
        if not quiet:
            note(f"{data}: {source.n_rows} rows, {source.n_features} columns, {kind}")
            if keeper is not None and resume:
                last = f"Goes on from {keeper.saved[-1]}." if keeper.saved else ""
                note(last or f"{checkpoint} is empty: begins anew.")
        if threads is not None:
            set_num_threads(threads)
        estimator = cls(**given, callbacks=[] if quiet else [ProgressBar()])
        seconds, interrupted = _train(
            estimator, source, keeper, lambda: _save(estimator, model, key)
        )
        if learning_curve is not None:
            _plot_history(estimator, learning_curve)
        score = estimator.history_["score_name"]
        result = {
            "data": str(data),
            "rows": source.n_rows,
            "columns": source.n_features,
            "task": kind,
            "task_inferred": task == "auto",
            "status": estimator.fit_status_,
            "seconds": seconds,
            "compile_seconds": estimator.history_["compile_seconds"],
            "iterations": estimator.n_iter_,
            "random_features": estimator.n_random_features_,
            "support_rows": estimator.n_support_,
            "score_name": score,
            "validation_score": estimator.best_score_,
            "model": str(model),
            "bytes": model.stat().st_size,
            "learning_curve": None if learning_curve is None else str(learning_curve),
        }
        if as_json or not quiet:
            hidden = ("data", "task_inferred", "compile_seconds", "score_name", "bytes")
            inferred = " (inferred from the target; --task overrules)" if task == "auto" else ""
            print_result(
                result,
                as_json,
                **dict.fromkeys(hidden),
                task=f"{kind}{inferred}",
                seconds=f"{seconds:.2f}",
                random_features=estimator.n_random_features_ or None,
                support_rows=estimator.n_support_ or None,
                validation_score=f"{estimator.best_score_:.6g} ({score})" if score else None,
                model=f"{model} ({size_text(model.stat().st_size)})",
            )
        if interrupted:
            note(f"Interrupted: {model} holds the model after {estimator.n_iter_} iterations.")
            if keeper is not None:
                note("The same command and --resume go on with it.")
            raise typer.Exit(exit_code())


set_options(fit, [])


def _train(
    estimator: Any,
    source: BatchSource,
    keeper: Checkpoint | None,
    save: Callable[[], None],
) -> tuple[float, bool]:
    """Fit and save; return the seconds of the fit, and whether a signal ended it.

    From the last iteration on, signals wait until the model is written.
    """
    from kernelgrad.callbacks import Callback
    from kernelgrad.compute.compiling import clock
    from kernelgrad.solvers.loop import deferred_interrupt

    with ExitStack() as held:
        late: list[Callable[[], bool]] = []
        ends = Callback()
        ends.on_end = lambda status: late.append(  # type: ignore[method-assign]
            held.enter_context(deferred_interrupt())
        )
        estimator.callbacks += [ends] if keeper is None else [ends, keeper]
        start, interrupted = clock(), False
        try:
            estimator.fit(source)
        except KeyboardInterrupt:
            if not hasattr(estimator, "fit_status_"):  # before there was a model
                raise
            interrupted = True
        seconds = clock() - start
        save()
        return seconds, interrupted or late[0]()


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


def _keeper(folder: Path | None, every: str, resume: bool) -> Checkpoint | None:
    """Return what writes checkpoints, None without a folder."""
    from kernelgrad.callbacks import Checkpoint

    if folder is None:
        if resume:
            raise typer.BadParameter("--resume needs the folder to go on from: --checkpoint.")
        return None
    try:
        keeper = Checkpoint(folder, int(every) if every.isdigit() else every, resume=resume)
    except ValueError as error:
        raise typer.BadParameter(f"--checkpoint-every: {error}") from None
    keeper.prepare()
    return keeper


def _check_parameters(given: dict[str, Any]) -> None:
    """Check what can be checked without data."""
    from sklearn.utils import check_random_state

    from kernelgrad import KernelClassifier
    from kernelgrad.losses import ALIASES, LOSSES
    from kernelgrad.validation import check_name

    tasks = {"classification", "regression"}
    known = {name for name, loss in LOSSES.items() if loss.tasks & tasks}.union(ALIASES)
    try:
        check_name(given.get("loss", "squared"), known, "loss")
        check_name(given.get("class_weight") or "balanced", ("balanced",), "class_weight")
        check_random_state(given.get("random_state"))
        others = {name: value for name, value in given.items() if name != "loss"}
        KernelClassifier(**others)._check_parameters()
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None


def _decide_task(source: BatchSource, task: Task, data: Path) -> Task:
    """Return the task, after checking that the target suits it."""
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
    """Raise unless a plot can be written to `path`."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        hint = "Learning curves need matplotlib: pip install kernelgrad[plot]"
        raise ImportError(hint) from None
    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.lower().lstrip(".") not in known:
        raise typer.BadParameter(
            f"learning curve {path} has no suffix that matplotlib knows; choose one of: "
            f"{', '.join(known)}."
        )
    check_writable(path, "learning curve", *others)


def _plot_history(estimator: Any, path: Path) -> None:
    """Write the learning curve of a fitted estimator, without needing a display."""
    from matplotlib.figure import Figure

    from kernelgrad import LearningCurveDisplay

    figure = Figure(layout="constrained")
    LearningCurveDisplay.from_estimator(estimator, ax=figure.subplots())
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix.lower().lstrip("."))
