"""``kernelgrad demo``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kernelgrad.cli.fit import check_plot, plot_history
from kernelgrad.cli.report import (
    check_writable,
    note,
    print_json,
    print_table,
    reporting,
    size_text,
)

if TYPE_CHECKING:
    from kernelgrad._typing import AnyArray

_TEST_FRACTION = 0.25
_SEED = 0


class _Split(NamedTuple):
    """Scaled data and the bandwidth that every model uses on them."""

    X_train: AnyArray
    X_test: AnyArray
    y_train: AnyArray
    y_test: AnyArray
    gamma: float


def demo(
    output_dir: Annotated[
        Path, typer.Option(help="Existing folder for the models and learning curves.")
    ] = Path(),
    quick: Annotated[
        bool, typer.Option("--quick", help="Few iterations: seconds instead of accuracy.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare with scikit-learn on two data sets that it ships.

    All models see the same training rows, scaling and gamma; three quarters of the rows train
    and one quarter tests. KernelClassifier chooses its solver, which is exact on rows that fit
    in memory, and stands beside SVC; with solver="dsg" it stands beside scikit-learn's linear
    model of equally many random features. Then the models that chose their solver are saved,
    loaded, and must predict exactly as before; otherwise the exit code is 1.
    """
    with reporting(as_json):
        from sklearn.datasets import load_breast_cancer, load_digits

        loaders: dict[str, Callable[..., Any]] = {
            "digits": load_digits,
            "breast_cancer": load_breast_cancer,
        }
        for name in loaders:
            check_writable(output_dir / f"{name}.kgm", "model")
        plots = _can_plot(output_dir / "digits.png")
        splits = {name: _split(load) for name, load in loaders.items()}
        results: dict[str, Any] = {"warm_up_seconds": _warm_up(splits["digits"])}
        note(
            f"first tiny fits, with compilation where nothing was cached: "
            f"{results['warm_up_seconds']:.2f} s, not counted below"
        )
        results["data"] = {
            name: _compare(split, output_dir / name, quick=quick, plots=plots)
            for name, split in splits.items()
        }
        same = all(found["identical_after_load"] for found in results["data"].values())
        if as_json:
            print_json(results)
        else:
            _print(results)
        if not same:
            note("Error: a loaded model predicts differently from the one that was saved.")
            raise typer.Exit(1)


def _can_plot(path: Path) -> bool:
    try:
        check_plot(path)
    except ImportError as error:
        note(f"No learning curves: {error}")
        return False
    return True


def _split(load: Callable[..., Any]) -> _Split:
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    X, y = load(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=_TEST_FRACTION, stratify=y, random_state=_SEED
    )
    scaler = StandardScaler().fit(X_train)
    return _Split(
        scaler.transform(X_train), scaler.transform(X_test), y_train, y_test, 1 / X.shape[1]
    )


def _warm_up(split: _Split) -> float:
    """Return the seconds of tiny fits and predictions, which compile the hot loops."""
    from kernelgrad import KernelClassifier

    start = time.perf_counter()
    for solver in ("auto", "dsg"):
        model = KernelClassifier(
            gamma=split.gamma, solver=solver, max_iter=1, random_state=_SEED
        )
        model.fit(split.X_train[:200], split.y_train[:200]).predict(split.X_test[:10])
    return time.perf_counter() - start


def _compare(split: _Split, stem: Path, *, quick: bool, plots: bool) -> dict[str, Any]:
    import numpy as np
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    from kernelgrad import KernelClassifier, load

    few: dict[str, Any] = {"max_iter": 3} if quick else {}
    ours = KernelClassifier(gamma=split.gamma, random_state=_SEED, **few)
    streaming = KernelClassifier(gamma=split.gamma, solver="dsg", random_state=_SEED, **few)
    models = [
        _row("KernelClassifier", ours, split),
        _row("SVC", SVC(gamma=split.gamma), split),
        _row('KernelClassifier(solver="dsg")', streaming, split),
    ]
    features = streaming.n_random_features_
    sampler = RBFSampler(gamma=split.gamma, n_components=features, random_state=_SEED)
    theirs = make_pipeline(sampler, SGDClassifier(random_state=_SEED))
    models.append(
        _row("RBFSampler + SGDClassifier", theirs, split) | {"random_features": features}
    )
    path, curve = stem.with_suffix(".kgm"), stem.with_suffix(".png")
    ours.save(path)
    again = load(path)
    if plots:
        plot_history(ours, curve)
    return {
        "train_rows": len(split.y_train),
        "test_rows": len(split.y_test),
        "gamma": split.gamma,
        "models": models,
        "model": str(path),
        "bytes": path.stat().st_size,
        "identical_after_load": all(
            np.array_equal(
                getattr(ours, method)(split.X_test), getattr(again, method)(split.X_test)
            )
            for method in ("predict", "decision_function")
        ),
        "learning_curve": str(curve) if plots else None,
    }


def _row(name: str, model: Any, split: _Split) -> dict[str, Any]:
    """Fit and test a model; no number of random features stands for an exact kernel."""
    start = time.perf_counter()
    model.fit(split.X_train, split.y_train)
    return {
        "name": name,
        "fit_seconds": time.perf_counter() - start,
        "test_error": float((model.predict(split.X_test) != split.y_test).mean()),
        "random_features": getattr(model, "n_random_features_", 0) or None,
    }


def _print(results: dict[str, Any]) -> None:
    rows = [
        (
            name,
            row["name"],
            f"{100 * row['test_error']:.2f} %",
            f"{row['fit_seconds']:.3f}",
            "exact" if row["random_features"] is None else str(row["random_features"]),
        )
        for name, found in results["data"].items()
        for row in found["models"]
    ]
    print_table(("data", "model", "test error", "fit seconds", "random features"), rows, left=2)
    for name, found in results["data"].items():
        verdict = "identical" if found["identical_after_load"] else "DIFFERENT"
        print(
            f"{name}: {found['model']} ({size_text(found['bytes'])}) loads with {verdict} "
            "predictions"
        )
        if found["learning_curve"] is not None:
            print(f"{name}: learning curve in {found['learning_curve']}")
