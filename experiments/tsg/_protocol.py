"""The protocol of Section 6: 200 labels, a fifth of the rest to train on, four to measure."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import ceil
from typing import Any

import numpy as np
from benchmarks.objectives._curves import DATASETS
from benchmarks.objectives._shared import where
from sklearn.datasets import make_moons

from experiments.base import Cell, Row
from kernelgrad import SemiSupervisedKernelClassifier
from kernelgrad.solvers import BGS3VM, FRS3VM, TSG

LABELS, BATCH = 200, 256
SPEND, MOST = 4000, 40_000  # held-out rows that choose parameters, and that measure errors
EVEN = "with even classes"  # ends the name of a set
FEW = 2000  # rows without a label on which the exact machines choose
THEIRS, OTHERS = ("cod_rna", "ijcnn1"), ("a9a", "mnist 8 v 6")
COSTS, SIGMAS = (1.0, 10.0, 100.0, 1000.0), (0.001, 0.01, 0.1, 1.0)
ETAS = (1.0, 10.0, 100.0, 1000.0)
ONCE = "Batches have each of the 200 labels once; Algorithm 1 draws 256 with replacement."
SPLIT = (
    "The rows that tune are 4,000 of the four fifths; errors are of the others, so that no "
    "row is in both; the paper takes the same rows for both. Columns of cod_rna and ijcnn1 "
    "have variance 1. C is 1 to 10^3, as |f| is at most C + C* (Lemma 3) and below C = 1 only "
    "the scale of f changes; sigma is 10^-3 to 1, beyond which none was chosen in one draw "
    "with the paper's grid. All are tried with all eta. Eta after C and sigma, as the paper "
    "has it, left TSGS3VM on ijcnn1 with the larger class alone (neither is recorded here). "
    f"{ONCE}"
)


@dataclass(frozen=True)
class Split:
    """Rows to train on, of which the first have labels; rows that tune; rows that measure."""

    X: Any
    marked: Any
    tune: tuple[Any, Any]
    test: tuple[Any, Any]
    labels: int

    @property
    def others(self) -> int:
        """Number of rows without a label."""
        return len(self.marked) - self.labels

    def first(self, rows: int) -> Split:
        """Return the split with at most so many rows without a label."""
        most = self.labels + rows
        return replace(self, X=self.X[:most], marked=self.marked[:most])


@lru_cache(maxsize=1)
def table(name: str) -> tuple[Any, Any]:
    """Return all rows of a set and their classes, 0 and 1."""
    if name.startswith("two moons"):
        X, y = make_moons(int(name.rpartition(" ")[2]), noise=0.3, random_state=0)
        return X.astype(np.float32), y
    data = DATASETS[name.partition(" ")[0]].load()
    X, y = data.X_train, data.y_train
    if name.startswith("mnist"):
        some = np.isin(y, (6, 8))
        return X[some], (y[some] == 8).astype(int)
    if name == "cod_rna":  # its parts are of one set of 59,535 rows
        X, y = np.concatenate([X, data.X_test]), np.concatenate([y, data.y_test])
    y = (y > 0).astype(int)
    if name.endswith(EVEN):
        X, y = _even(X, y)
    return X, y


def _even(X: Any, y: Any) -> tuple[Any, Any]:
    """Return all rows of the rarer class and as many others."""
    rare = int(y.mean() < 0.5)
    few, many = np.flatnonzero(y == rare), np.flatnonzero(y != rare)
    some = np.random.default_rng(0).choice(many, len(few), replace=False)
    rows = np.sort(np.append(few, some))
    return X[rows], y[rows]


def split(name: str, seed: int, *, part: float = 0.2) -> Split:
    """Return a random split of a set: labels, a part of the others to train on, the rest."""
    X, y = table(name)
    order = np.random.default_rng(seed).permutation(len(y))
    train = LABELS + int(part * (len(y) - LABELS))
    some, held = order[:train], order[train:]
    spend = min(SPEND, len(held) // 2)
    tune, test = held[:spend], held[spend : spend + MOST]
    marked = np.where(np.arange(len(some)) < LABELS, y[some], -1)
    return Split(X[some], marked, (X[tune], y[tune]), (X[test], y[test]), LABELS)


def draws(quick: bool, seeds: int, **values: Any) -> list[Cell]:
    """Return a cell for each draw of each set; quick ones have few rows, and these values."""
    return [
        {"dataset": name, "seed": seed} | ({"rows": 256} | values if quick else {})
        for names in ((("cod_rna",),) if quick else (THEIRS, OTHERS))
        for seed in range(2 if quick else seeds)
        for name in names
    ]


@dataclass(frozen=True)
class Setting:
    """Parameters of the paper; `ratio` is C* over C, None for the paper's n_l / n_u."""

    C: float
    sigma: float
    eta: float = 10.0
    ratio: float | None = None


Machine = Callable[[Split, Setting], dict[str, Any]]


def _features(cls: type[TSG], passes: int, **solver: Any) -> Machine:
    def params(rows: Split, at: Setting) -> dict[str, Any]:
        iterations = max(1, passes * rows.others // BATCH)
        made = cls.paper(
            C=at.C, sigma=at.sigma, eta=at.eta, n_labelled=rows.labels, redraw=False, **solver
        )
        return made | {"max_iter": iterations}

    return params


def _budget(rows: Split, at: Setting) -> dict[str, Any]:
    # gamma_t = 1 / (t + eta): with eta = 1 that of Le et al. (2016)
    solver = BGS3VM(
        labelled_budget=100, unlabelled_budget=ceil(0.2 * rows.others), ramp=(0.0, 0.0),
        step_size=2.0 * at.C / at.eta, batch_size=2 * BATCH,
    )  # fmt: skip
    return _features(TSG, 1)(rows, at) | {"solver": solver}


def _exact(name: str) -> Machine:
    def params(rows: Split, at: Setting) -> dict[str, Any]:
        return _features(TSG, 1)(rows, at) | {"solver": name, "max_iter": 100}

    return params


METHODS: dict[str, Machine] = {
    "TSGS3VM": _features(TSG, 1),
    "FRS3VM": _features(FRS3VM, 10),
    "BGS3VM": _budget,
    "BLS3VM": _exact("cccp_s3vm"),
    "S3VMlight": _exact("s3vm_light"),
}
FEW_FEATURES = "TSGS3VM, m = 4"
MACHINES = METHODS | {FEW_FEATURES: _features(TSG, 1, block_size=4)}
STEPPING = ("TSGS3VM", "FRS3VM", "BGS3VM")


def fit(method: str, rows: Split, at: Setting, seed: int, **more: Any) -> Any:
    """Return a fitted estimator."""
    params = MACHINES[method](rows, at) | more
    if at.ratio is not None:
        params["C_star"] = at.ratio * params["C"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of class fractions
        return SemiSupervisedKernelClassifier(**params, random_state=seed).fit(
            rows.X, rows.marked
        )


def error(model: Any, rows: tuple[Any, Any]) -> float:
    """Return the part of rows that a model puts into the wrong class."""
    return float(np.mean(model.predict(rows[0]) != rows[1]))


def grid(
    method: str, ratios: Sequence[float | None] = (None,), *, quick: bool = False
) -> list[Setting]:
    """Return all settings that a method is tried with."""
    if quick:
        return [Setting(10.0, 0.1, ratio=ratio) for ratio in ratios]
    # with eta = 1 a function of features is its last block alone
    etas = {"BGS3VM": ETAS}.get(method, ETAS[1:]) if method in STEPPING else ETAS[:1]
    return [Setting(*at) for at in product(COSTS, SIGMAS, etas, ratios)]


def tuned(
    method: str, rows: Split, seed: int, among: Sequence[Setting], **more: Any
) -> tuple[Setting, Any]:
    """Return the setting of the least error on the rows that tune, and its model."""
    few = rows if method in STEPPING else rows.first(FEW)
    best, least, model = among[0], np.inf, None
    for at in among:
        now = fit(method, few, at, seed, **more)
        wrong = error(now, rows.tune)
        if wrong < least:
            best, least, model = at, wrong, now
    return best, model if few.others == rows.others else fit(method, rows, best, seed, **more)


def mean_error(rows: Iterable[Row], **values: Any) -> float:
    """Return the mean error of some rows, NaN where none has been measured."""
    errors = [row["error"] for row in where(rows, **values)]
    return float(np.mean(errors)) if errors else np.nan
