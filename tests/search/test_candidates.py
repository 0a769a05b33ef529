"""Candidates of the search, and the comparisons that choose among them."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman3
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad.kernels import Laplacian, Matern, SumKernel
from kernelgrad.search import search as _search
from kernelgrad.search import study
from kernelgrad.search.machine import Bins, Machine, Sample, Steps
from kernelgrad.search.study import Study, _pays


@pytest.mark.parametrize(
    ("n", "seed"), [(500, 0), pytest.param(1000, 1, marks=pytest.mark.slow)]
)
def test_the_search_wrecks_no_smooth_function(n, seed):
    X, y = make_friedman3(n, noise=0.1, random_state=0)
    X, X_test, y, y_test = train_test_split(scale(X), y, test_size=0.3, random_state=seed)
    # folds of 350 rows cannot tell learned weights (.895) from equal ones (.86)
    assert KernelRegressor(random_state=0).fit(X, y).score(X_test, y_test) > 0.85


@pytest.mark.slow
def test_noise_is_not_learned():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 5)), rng.integers(0, 2, 400)
    model = KernelClassifier(random_state=0).fit(X[:200], y[:200])
    assert log_loss(y[200:], model.predict_proba(X[200:])) < 0.72  # log 2 is 0.693


def test_steps_are_where_trees_split():
    X = np.random.default_rng(0).uniform(size=(1000, 3))
    y = np.where(X[:, 0] > 0.9, 3.0, 0.0) + np.where(X[:, 1] > 0.5, 1.0, 0.0)
    steps = Steps.of(Sample(X, y[:, None], np.ones(1000)))
    assert set(steps.columns) == {0, 1}
    assert len({*zip(steps.columns, steps.thresholds, strict=True)}) == len(steps.columns)
    # the tree of one column sees all rows
    assert np.allclose(steps.rises[0], 3.0 / y.std(), rtol=0.05)
    bins = Bins.of(X, 10, steps=steps)
    edges, values = bins.warp(np.zeros(bins.low.shape))
    rise = np.diff(values[:, 0]) - np.diff(edges[:, 0])
    assert rise.max() == pytest.approx(steps.rises[0])
    slope = np.diff(values[:, 0]) / np.maximum(np.diff(edges[:, 0]), 1e-12)
    at = np.argmax(slope)
    assert edges[at, 0] <= 0.9 < edges[at + 1, 0]
    assert slope[at] > 100


def test_machines_with_steps_serve_rules():
    X = np.random.default_rng(0).uniform(size=(900, 4))
    y = ((X[:, 0] > 0.9) & (X[:, 1] > 0.3)).astype(int)
    model = KernelClassifier().fit(X[:400], y[:400])
    best = min(model.history_["metric"], key=lambda entry: entry["score"])
    assert best["candidate"] == "steps"
    assert model.score(X[400:], y[400:]) > 0.985


def test_trees_see_some_rows_and_need_time(monkeypatch):
    of, sizes = Steps.of, []
    monkeypatch.setattr(study, "_TREE_ROWS", 150)
    monkeypatch.setattr(Steps, "of", lambda rows: sizes.append(rows.n_rows) or of(rows))
    X = np.random.default_rng(0).uniform(size=(600, 3))
    KernelRegressor().fit(X, X[:, 0])
    assert set(sizes) == {134}  # every third of the 400 that train
    sizes.clear()
    with pytest.warns(ConvergenceWarning, match="the model is of"):
        KernelRegressor(time_limit=1e-9).fit(X, X[:, 0])
    assert not sizes


def test_logarithms_that_not_all_folds_have_judged_are_not_taken(monkeypatch):
    of_targets = Study.of_targets

    def cut(study, Y):
        other = of_targets(study, Y)
        other.over = lambda: True
        return other

    X = np.random.default_rng(0).standard_normal((120, 2))
    y = np.exp(2.0 * X[:, 0] + 0.5 * X[:, 1] ** 2 - X[::-1, 1])
    assert KernelRegressor().fit(X, y).loss_.name == "log_squared"
    monkeypatch.setattr(Study, "of_targets", cut)
    assert KernelRegressor().fit(X, y).loss_.name == "squared"


def test_a_machine_that_failed_is_not_preferred():
    failed, sound = (
        Machine(2.5, np.arange(2), {}, errors=np.full(3, e)) for e in (np.inf, 1.0)
    )
    assert _pays(failed, sound)
    assert not _pays(sound, failed)


def test_normal_scores_compete_where_a_column_has_heavy_tails():
    X = np.random.default_rng(0).normal(size=(200, 2))
    for columns, heavy in ((X, False), (np.exp(2 * X), True)):
        model = KernelRegressor().fit(columns, X[:, 0])
        names = [entry["candidate"] for entry in model.history_["metric"]]
        assert ("normal scores" in names) == heavy


@pytest.mark.parametrize("nu", [0.5, pytest.param(2.5, marks=pytest.mark.slow)])
def test_an_exponential_serves_edges_of_many_rows(nu, monkeypatch):
    monkeypatch.setattr(study, "_EDGES_ROWS", 1600)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1600, 6))
    K = Matern(nu, 0.05)(X, X) + 1e-6 * np.eye(1600)
    Y = np.linalg.cholesky(K) @ rng.normal(size=(1600, 6))
    model = KernelRegressor(loss="squared").fit(X, Y)
    kernel = model.kernel_
    assert (kernel.kernels[0] if isinstance(kernel, SumKernel) else kernel).nu == nu


def test_a_laplacian_kernel_serves_many_columns():
    X = np.random.default_rng(0).uniform(size=(400, 120))
    y = np.abs(X - 0.5)[:, :60].sum(axis=1)
    model = KernelRegressor().fit(X[:300], y[:300])
    assert type(model.kernel_.kernels[1]) is Laplacian
    assert model.score(X[300:], y[300:]) > 0.4


@pytest.mark.slow
def test_many_classes_compare_the_log_loss_too():
    rng = np.random.default_rng(0)
    y = np.arange(240) % 8
    X = np.column_stack([np.cos(y), np.sin(y)]) + 0.02 * rng.normal(size=(240, 2))
    model = KernelClassifier().fit(X, y)
    least = {e["candidate"]: e["loss"] for e in model.history_["search"] if "candidate" in e}
    assert least["log_loss"] < 0.5 * least["squared"]
    assert model.loss_.name == "log_loss"


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_log_loss_is_tried_for_many_rows_if_classes_are_nearly_sure(monkeypatch, noise):
    monkeypatch.setattr(_search, "_LOG_ROWS", 399)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + X[:, 1] ** 2 > 1.0) ^ (rng.uniform(size=400) < noise)
    model = KernelClassifier().fit(X, y)
    assert bool(model.history_["search"]) == (noise == 0.0)


def test_rows_that_compare_the_log_loss_have_not_trained_the_kernel(monkeypatch):
    folds, ratio = [], _search.own_ratio
    monkeypatch.setattr(
        _search,
        "own_ratio",
        lambda pool, parts, *rest: folds.extend(parts) or ratio(pool, parts, *rest),
    )
    X = np.random.default_rng(0).standard_normal((240, 7))
    KernelClassifier().fit(X, np.sin(2 * X[:, 0] + X[:, 1]) > 0)
    assert np.array_equal(
        np.sort(np.concatenate([f.validation for f in folds])), np.arange(len(X))
    )
    assert all(f.train.n_rows + len(f.validation) == len(X) for f in folds)
    assert len({repr(f.problem.kernel) for f in folds}) == 3


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_no_loss_is_compared_on_classes_of_one_row(monkeypatch):
    monkeypatch.setattr(_search, "own_ratio", None)
    KernelClassifier().fit(np.random.default_rng(0).standard_normal((70, 3)), np.arange(70))
