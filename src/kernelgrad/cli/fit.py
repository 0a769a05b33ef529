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

from kernelgrad.cli.report import (
    check_writable,
    data_file,
    note,
    print_json,
    print_pairs,
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
    loss: Annotated[
        str | None, typer.Option(help="Such as squared, log_loss or hinge. [default: squared]")
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Such as rbf, laplacian or matern. [default: auto]")
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            help="Inverse bandwidth: a number, median, scale or auto. [default: auto]"
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Weights of the columns: auto, diagonal, full or none. [default: auto]"
        ),
    ] = None,
    bandwidth_factor: Annotated[
        float, typer.Option(help="Factor on the bandwidth that a rule or search finds.")
    ] = 1.0,
    solver: Annotated[
        str,
        typer.Option(
            help="auto, direct, newton, working_set, cached, dsg, udsg, cdsg, sbp, sdca, "
            "pegasos, norma or perceptron."
        ),
    ] = "auto",
    alpha: Annotated[
        str | None,
        typer.Option(help="Weight of the penalty: a number or auto. [default: auto]"),
    ] = None,
    cost: Annotated[
        float | None, typer.Option("-C", "--cost", help="The C of an SVC, in place of --alpha.")
    ] = None,
    max_iter: Annotated[
        int | None, typer.Option(min=1, help="Maximum of iterations. [default: 40]")
    ] = None,
    validation_fraction: Annotated[
        float, typer.Option(help="Share of the rows held out for early stopping.")
    ] = 0.1,
    early_stopping: Annotated[
        bool | None,
        typer.Option(
            help="Stop once the score of held-out rows no longer improves. [default: no]"
        ),
    ] = None,
    weight: Annotated[str | None, typer.Option(help="Column of sample weights.")] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Columns to leave out, such as a,b.")
    ] = None,
    class_weight: Annotated[
        Literal["balanced"] | None,
        typer.Option(help="Weigh classes inversely to their frequency."),
    ] = None,
    standardize: Annotated[
        bool | None,
        typer.Option(
            help="Scale the columns, as a part of the model. [default: unless --gamma is given]"
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Limit in seconds on search and fit; the model so far is kept."),
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
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the random numbers; makes the fit repeatable."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of threads. [default: all cores]")
    ] = None,
    learning_curve: Annotated[
        Path | None, typer.Option(help="Also draw loss and score over time, to this file.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train a model on a data file and save it.

    Ctrl-C ends the training, saves the model fitted so far and exits with code 130; SIGTERM
    does the same with code 143. After that, or after a crash, the same command with --resume
    goes on from the last state in the folder of --checkpoint, and gives the model of an
    uninterrupted fit.
    """
    with reporting(as_json) as exit_code, data_file(data) as path, ExitStack() as held:
        from kernelgrad import KernelClassifier, KernelRegressor, set_num_threads
        from kernelgrad.callbacks import Callback, ProgressBar
        from kernelgrad.compute.compiling import announced, clock
        from kernelgrad.solvers.loop import deferred_interrupt

        options: dict[str, Any] = {
            "loss": loss,
            "kernel": kernel,
            "gamma": None if gamma is None else _number_or_word(gamma),
            "bandwidth_factor": bandwidth_factor,
            "solver": solver,
            "alpha": None if alpha is None else _number_or_word(alpha),
            "C": cost,
            "max_iter": max_iter,
            "validation_fraction": validation_fraction,
            "early_stopping": early_stopping,
            "class_weight": class_weight,
            "standardize": standardize,
            "random_state": seed,
            "time_limit": time_limit,
        }
        given = {name: value for name, value in options.items() if value is not None}
        if metric is not None:
            given["metric"] = None if metric == "none" else metric
        _check_options(given)
        keeper = _keeper(checkpoint, checkpoint_every, resume)
        check_writable(model, "model", data)
        key = signing_key()
        if learning_curve is not None:
            check_plot(learning_curve, data, model)
        dropped = [name for names in csv.reader(drop or ()) for name in names]
        source = open_labelled(path, target, weight=weight, drop=dropped, as_frame=True)
        kind = _decide_task(source, task, data)
        if class_weight is not None and kind == "regression":
            raise typer.BadParameter("--class-weight is for classification; leave it out.")
        if not quiet:
            note(f"{data}: {source.n_rows} rows, {source.n_features} columns, {kind}")
        if threads is not None:
            set_num_threads(threads)
        cls = KernelClassifier if kind == "classification" else KernelRegressor
        # verbose=1 would be part of the model
        callbacks: list[Callback] = [] if quiet else [ProgressBar()]
        # from the last iteration on, signals wait until the model is written
        late: list[Callable[[], bool]] = []
        ends = Callback()
        ends.on_end = lambda status: late.append(  # type: ignore[method-assign]
            held.enter_context(deferred_interrupt())
        )
        callbacks.append(ends)
        if keeper is not None:
            callbacks.append(keeper)
            if not quiet and resume:
                last = keeper.saved[-1:]
                anew = f"{checkpoint} is empty: begins anew."
                note(f"Goes on from {last[0]}." if last else anew)
        estimator = cls(callbacks=callbacks, **given)
        start = clock()
        interrupted = False
        with announced(not quiet):
            try:
                estimator.fit(source)
            except KeyboardInterrupt:
                if not hasattr(estimator, "fit_status_"):  # before there was a model
                    raise
                interrupted = True
        seconds = clock() - start
        with held:
            _save(estimator, model, key)
            interrupted |= late[0]()
        if learning_curve is not None:
            plot_history(estimator, learning_curve)
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
            "score_name": estimator.history_["score_name"],
            "validation_score": estimator.best_score_,
            "model": str(model),
            "bytes": model.stat().st_size,
            "learning_curve": None if learning_curve is None else str(learning_curve),
        }
        if as_json:
            print_json(result)
        elif not quiet:
            _print_summary(result)
        if interrupted:
            note(f"Interrupted: {model} holds the model after {estimator.n_iter_} iterations.")
            if keeper is not None:
                note("The same command and --resume go on with it.")
            raise typer.Exit(exit_code())


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


def _check_options(options: dict[str, Any]) -> None:
    """Check what can be checked without data."""
    from kernelgrad import KernelClassifier
    from kernelgrad.losses import ALIASES, LOSSES
    from kernelgrad.validation import check_name

    if "C" in options and "alpha" in options:
        raise typer.BadParameter("-C and --alpha are two ways to say one thing; give one.")
    labelled = {
        k for k, loss in LOSSES.items() if loss.tasks & {"classification", "regression"}
    }
    try:
        if "loss" in options:
            check_name(options["loss"], labelled.union(ALIASES), "loss")
        others = {name: value for name, value in options.items() if name != "loss"}
        KernelClassifier(**others)._check_parameters()
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None


def _number_or_word(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


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


def check_plot(path: Path, *others: Path) -> None:
    """Raise unless a plot can be written to `path`."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise ImportError(
            "Learning curves need matplotlib: pip install kernelgrad[plot]"
        ) from None
    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.lower().lstrip(".") not in known:
        raise typer.BadParameter(
            f"learning curve {path} has no suffix that matplotlib knows; choose one of: "
            f"{', '.join(known)}."
        )
    check_writable(path, "learning curve", *others)


def plot_history(estimator: Any, path: Path) -> None:
    """Write the learning curve of a fitted estimator, without needing a display."""
    from matplotlib.figure import Figure

    from kernelgrad import LearningCurveDisplay

    figure = Figure(layout="constrained")
    LearningCurveDisplay.from_estimator(estimator, ax=figure.subplots())
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix.lower().lstrip("."))


def _print_summary(result: dict[str, Any]) -> None:
    inferred = ""
    if result["task_inferred"]:
        inferred = " (inferred from the target; --task overrules)"
    print_pairs(
        [
            ("rows", result["rows"]),
            ("columns", result["columns"]),
            ("task", result["task"] + inferred),
            ("status", result["status"]),
            ("seconds", f"{result['seconds']:.2f}"),
            ("iterations", result["iterations"]),
            ("random features", result["random_features"] or None),
            ("support rows", result["support_rows"] or None),
            (f"validation {result['score_name']}", result["validation_score"]),
            ("model", f"{result['model']} ({size_text(result['bytes'])})"),
            ("learning curve", result["learning_curve"]),
        ]
    )
