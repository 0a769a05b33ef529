"""Test errors of semi-supervised machines with few labels, over draws of the labels."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from benchmarks.objectives._shared import available, distinct, picture, timed, where
from benchmarks.objectives.time_to_error import DATASETS, choose_rows
from benchmarks.registry import Objective, Row, SkipError
from kernelgrad import SemiSupervisedKernelClassifier, set_num_threads
from kernelgrad.kernels import get_kernel
from kernelgrad.losses import UNLABELLED_LOSSES
from kernelgrad.solvers import TSG, SoftLabels

RUNS, MEANS, SETTINGS = "runs", "means", "settings"
SETS = ["cod_rna", "ijcnn1", "a9a", "mnist"]
FACTORS, COSTS = (0.25, 0.5, 1.0, 2.0, 4.0), (1.0, 10.0, 100.0)
SELF_ROWS = 3000  # unlabelled rows of self-training, whose machine grows with them
LABELS_ONLY = "SVC on the labels"
PAPER = TSG(ramp=(0, 0), average=None)


@dataclass
class Case:
    """Rows with the labels of a draw, -1 for the others, and test rows."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    labelled: Any
    gamma: float
    C: float
    seed: int

    @property
    def known(self) -> tuple[Any, Any]:
        """The labelled rows."""
        return self.X[self.labelled], self.y[self.labelled]


Predict = Callable[[Any], Any]
Method = Callable[[Case], Predict]


def ours(**params: Any) -> Method:
    """Return a fit of this library's estimator."""

    def fit(case: Case) -> Predict:
        model = SemiSupervisedKernelClassifier(
            gamma=case.gamma, C=case.C, random_state=case.seed, **params
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of class fractions
            return model.fit(case.X, case.y).predict  # type: ignore[no-any-return]

    return fit


def svc(case: Case) -> Predict:
    """Fit the labelled rows alone."""
    return SVC(C=case.C, gamma=case.gamma).fit(*case.known).predict  # type: ignore[no-any-return]


def spreading(case: Case) -> Predict:
    """Spread labels over neighbours."""
    model = LabelSpreading(kernel="knn", n_neighbors=7, alpha=0.2, max_iter=100)
    X = case.X.toarray() if sp.issparse(case.X) else case.X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)  # rows that no label reaches
        model.fit(X, case.y)
        return lambda rows: model.predict(rows.toarray() if sp.issparse(rows) else rows)


def self_training(case: Case) -> Predict:
    """Label confident rows by the machine's own probabilities, and fit again."""
    others = np.flatnonzero(case.y == -1)[:SELF_ROWS]
    rows = np.sort(np.concatenate([case.labelled, others]))
    machine = SVC(C=case.C, gamma=case.gamma, probability=True, random_state=case.seed)
    model = SelfTrainingClassifier(machine, threshold=0.9, max_iter=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of probabilities
        return model.fit(case.X[rows], case.y[rows]).predict  # type: ignore[no-any-return]


def methods() -> dict[str, Method]:
    """Return all methods by name."""
    found: dict[str, Method] = {
        LABELS_ONLY: svc,
        "LabelSpreading (kNN)": spreading,
        "self-training SVC": self_training,
        "kernelgrad (default)": ours(),
        "soft labels, average only": ours(solver=SoftLabels(choose=False)),
        "TSG, C*=0": ours(solver="tsg", C_star=0.0),
    }
    for name in UNLABELLED_LOSSES:
        found[f"TSG {name}"] = ours(solver="tsg", unlabelled_loss=name)
        found[f"TSG {name}, paper's C*"] = ours(
            unlabelled_loss=name, C_star="paper", solver=PAPER
        )
    for solver in ("fr_s3vm", "bgs3vm", "cccp_s3vm", "s3vm_light", "cached"):
        found[solver] = ours(solver=solver)
    return found


def draw(name: str, labels: int, unlabelled: int, test: int, seed: int) -> Case:
    """Return one draw; the labelled rows hold every class, test rows are always the same."""
    data = DATASETS[name].load()
    _, y_train = np.unique(data.y_train, return_inverse=True)
    classes, y_test = np.unique(data.y_test, return_inverse=True)
    rows = choose_rows(len(y_train), labels + unlabelled, seed=seed)
    y = y_train[rows]
    found = len(np.unique(y[:labels]))
    if found < len(classes):
        raise SkipError(f"{labels} labels of {name} hold {found} of {len(classes)} classes")
    some = choose_rows(len(y_test), test, seed=0)
    X = data.X_train[rows]
    gamma = get_kernel("rbf", gamma="median").resolve(X, 0).gamma_value
    return Case(
        X=X, y=np.where(np.arange(len(y)) < labels, y, -1), X_test=data.X_test[some],
        y_test=y_test[some], labelled=np.arange(labels), gamma=gamma, C=1.0, seed=seed,
    )  # fmt: skip


def choose(cases: Sequence[Case]) -> tuple[float, float, float]:
    """Return bandwidth factor, C and error of the SVC by cross-validation on the labels.

    One choice for all draws, made by labelled rows alone and used by every kernel method. Of
    choices within one row of all that are held out the one with the smallest C is taken.
    """
    tried = []
    for C in COSTS:
        for factor in FACTORS:
            errors = []
            for case in cases:
                folds = StratifiedKFold(3, shuffle=True, random_state=case.seed)
                machine = SVC(C=C, gamma=case.gamma / factor**2)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # of rare classes
                    errors.append(1 - cross_val_score(machine, *case.known, cv=folds).mean())
            tried.append((float(np.mean(errors)), factor, C))
    row = 1.0 / sum(len(case.labelled) for case in cases)
    least = min(tried)[0] + 1.001 * row
    error, factor, C = next(one for one in tried if one[0] <= least)
    return factor, C, error


class SemiErrors(Objective):
    """Error with few labels: this library, its rivals, scikit-learn's; ten draws of labels.

    A draw is a random set of training rows of which the first ones keep their labels. The
    bandwidth and C are those of the SVC by cross-validation on the labels, one choice for each
    data set. "gain" is the mean over draws of the error of the SVC on the labels alone minus
    that of the method, with its standard error: draws are the same for all methods.
    Self-training sees 3,000 of the unlabelled rows.
    """

    name: ClassVar[str] = "semi_errors"
    repeat: ClassVar[int] = 10

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add data sets, methods and sizes."""
        parser.add_argument("--dataset", nargs="+", default=SETS, choices=list(DATASETS))
        parser.add_argument("--method", nargs="+", default=None, choices=list(methods()))
        parser.add_argument("--labels", type=int, default=200)
        parser.add_argument("--unlabelled", type=int, default=8000)
        parser.add_argument("--test", type=int, default=4000)
        parser.add_argument("--threads", type=int, default=2)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take data set after data set, and in each draw all methods."""
        set_num_threads(args.threads)
        chosen = methods()
        if args.method:
            chosen = {name: chosen[name] for name in [LABELS_ONLY, *args.method]}
        sizes = (100, 300, 500) if args.quick else (args.labels, args.unlabelled, args.test)

        def draws(name: str) -> list[Case]:
            return [draw(name, *sizes, seed) for seed in range(args.repeat)]

        for name, cases in available(args.dataset, draws):
            factor, C, error = choose(cases)
            yield SETTINGS, {
                "dataset": name, "bandwidth factor": factor, "C": C, "SVC, CV on labels": error,
            }  # fmt: skip
            runs: list[Row] = []
            for case in cases:
                case.gamma, case.C = case.gamma / factor**2, C
                for method, fit in chosen.items():
                    seconds, predict = timed(fit, case)
                    wrong = float(np.mean(predict(case.X_test) != case.y_test))
                    runs.append(
                        {
                            "dataset": name, "method": method, "seed": case.seed,
                            "error": wrong, "fit s": seconds,
                        }
                    )  # fmt: skip
                    yield RUNS, runs[-1]
            for row in means(runs):
                yield MEANS, row

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw every method's gain over the labels alone, one panel for each data set."""
        rows = tables.get(MEANS, [])
        names = distinct(rows, "dataset")
        if not names:
            return False
        order = [r["method"] for r in where(rows, dataset=names[0])][1:][::-1]
        size = (3.0, 0.24 * len(order) + 1.2)
        with picture(path, 1, len(names), size=size, sharey=True) as axes:
            for ax, name in zip(axes[0], names, strict=True):
                for row in where(rows, dataset=name):
                    if row["method"] in order:
                        gain, error = 100 * row["gain"], 100 * row["s.e."]
                        ax.errorbar(
                            gain, order.index(row["method"]), xerr=error, fmt="C0o", ms=4
                        )
                ax.axvline(0, color="grey", lw=0.8)
                ax.set(title=name, xlabel="points of error gained", yticks=range(len(order)))
            axes[0][0].set_yticklabels(order, fontsize=7)
        return True


def means(runs: Sequence[Row]) -> list[Row]:
    """Return mean error, deviation and gain over the labels alone of every method."""
    out = []
    base = np.array([r["error"] for r in runs if r["method"] == LABELS_ONLY])
    for method in dict.fromkeys(r["method"] for r in runs):
        rows = [r for r in runs if r["method"] == method]
        errors = np.array([r["error"] for r in rows])
        gain = base - errors
        many = len(errors) > 1
        out.append(
            {
                "dataset": rows[0]["dataset"], "method": method,
                "error": float(errors.mean()),
                "deviation": float(errors.std(ddof=1)) if many else None,
                "gain": float(gain.mean()),
                "s.e.": float(gain.std(ddof=1) / np.sqrt(len(gain))) if many else 0.0,
                "fit s": float(np.median([r["fit s"] for r in rows])),
                "longest s": max(r["fit s"] for r in rows),
            }
        )  # fmt: skip
    return out
