"""Density ratios against exact minimisers, known laws and the bounds of divergences."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold

import oracles_unsupervised as oracles
from cases import every
from kernelgrad import (
    DSG,
    ArraySource,
    DataError,
    KernelDensityRatio,
)
from kernelgrad.estimators.density_ratio import TwoSamples
from kernelgrad.losses import KLDensityRatio
from kernelgrad.tasks import NoTargets
from kernelgrad.training_rows import TrainingRows
from sources import KINDS, named, opened

LOSSES = ["kl", "least_squares", "kl_ratio", "relative_novelty"]
NEAR = {"kl": 0.03, "least_squares": 0.03, "kl_ratio": 0.04, "relative_novelty": 0.07}
# E_p[log p/q], E_q[(p/q - 1)^2] / 2 and E_p[max(0, 1 + log p/q)] of N(0, 1) and N(1/2, 1)
_GRID = np.linspace(-10, 10, 200_001)
_NORMAL = np.exp(-(_GRID**2) / 2) / np.sqrt(2 * np.pi)
DIVERGENCE = {"kl": 0.125, "least_squares": (np.exp(0.25) - 1) / 2, "kl_ratio": 0.125}
DIVERGENCE["relative_novelty"] = float(
    _NORMAL @ np.maximum(0, 1 + (1 / 8 - _GRID / 2)) * (_GRID[1] - _GRID[0])
)


def gaussians(n_p=1000, n_q=1000, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, (n_p, 1)), rng.normal(0.5, 1, (n_q, 1))


def ratio(loss="kl", **params):
    return KernelDensityRatio(loss, **({"random_state": 0, "max_iter": 20} | params))


def labelled(p, q, seed=1):
    order = np.random.default_rng(seed).permutation(len(p) + len(q))
    return np.vstack([p, q])[order], np.repeat([1, 0], [len(p), len(q)])[order]


def test_samples_are_drawn_independently():
    source, task = ArraySource(np.arange(400.0)[:, None]), NoTargets(KLDensityRatio())
    rows = TrainingRows(source, task, True)
    both = TwoSamples(source, task, True, denominator=rows)
    [batch, _] = next(both.batches(DSG(batch_size=100), 0, 0)[0])
    assert len(np.unique(batch.X[:50])) == 50
    assert not np.array_equal(batch.X[:50], batch.X[50:])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("alpha", [1e-1, 1e-2])
def test_the_exact_minimiser(loss, alpha):
    rng = np.random.default_rng(0)
    p, q = rng.normal(0, 1, (120, 2)), rng.normal([0.7, 0], 1, (200, 2))
    Z, w = np.vstack([p, q]), np.repeat([1 / 120, -1 / 200], [120, 200])
    K = oracles.gaussian(Z, Z, 0.4)
    solver = DSG(block_size=128, momentum=0.0, decay=50.0)
    model = ratio(loss, gamma=0.4, alpha=alpha, max_iter=150, solver=solver)
    f = model.fit(p, denominator=q).decision_function(Z)

    def distance(alpha, w):
        a, b = oracles.ratio_coefficients(K, w, alpha, loss)
        return np.sqrt(np.mean((f - b - K @ a) ** 2) / np.mean((K @ a) ** 2))

    assert distance(alpha, w) < NEAR[loss]
    # the controls: another penalty, and samples of unequal total weight
    assert distance(2 * alpha, w) > 0.1
    assert distance(alpha, np.where(w > 0, w, 1.5 * w)) > 0.1


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_enter_the_minimiser(loss):
    rng = np.random.default_rng(0)
    p, q = rng.normal(0, 1, (120, 2)), rng.normal([0.7, 0], 1, (200, 2))
    Z, w = np.vstack([p, q]), rng.integers(1, 6, 320).astype(float)
    y = np.repeat([1, -1], [120, 200])
    K = oracles.gaussian(Z, Z, 0.4)
    solver = DSG(block_size=128, momentum=0.0, decay=50.0)
    model = ratio(loss, gamma=0.4, alpha=1e-2, max_iter=150, solver=solver)
    f = model.fit(Z, y, sample_weight=w).decision_function(Z)

    def distance(w):
        share = np.where(y > 0, w / w[y > 0].sum(), -w / w[y < 0].sum())
        a, b = oracles.ratio_coefficients(K, share, 1e-2, loss)
        return np.sqrt(np.mean((f - b - K @ a) ** 2) / np.mean((K @ a) ** 2))

    assert distance(w) < NEAR[loss]
    assert distance(np.ones(320)) > NEAR[loss] + 0.02


@pytest.mark.parametrize("loss", LOSSES)
def test_the_score_is_a_lower_bound_of_the_divergence(loss):
    p, q = gaussians()
    held = gaussians(4000, 4000, seed=2)
    scores = []
    for seed, alpha in ((0, 1e-1), (0, 1e-3)):
        model = ratio(loss, alpha=alpha, random_state=seed).fit(p, denominator=q)
        scores.append(model.score(held[0], denominator=held[1]))
    f_p, f_q = (model.decision_function(Z) for Z in held)
    growth = {"kl": np.exp(f_q), "least_squares": f_q**2 / 2}.get(loss, f_q)
    noise = 5 * np.sqrt(f_p.var() / 4000 + growth.var() / 4000)
    assert scores[0] < scores[1] < DIVERGENCE[loss] + noise
    assert scores[1] > DIVERGENCE[loss] - 0.02 - noise
    expected = oracles.ratio_bound(loss, f_p, f_q, np.ones(4000), np.ones(4000))
    assert scores[1] == pytest.approx(expected, abs=1e-6)
    # the control: samples the wrong way round
    wrong = model.score(held[1], denominator=held[0])
    equal = 1.0 if loss == "relative_novelty" else 0.0  # the divergence of equal samples
    assert wrong < equal < scores[0]
    assert wrong != pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_weighted_score(loss):
    p, q = gaussians(200, 300)
    X, y = labelled(p, q)
    model = ratio(loss, alpha=1e-2).fit(X, y)
    w = np.random.default_rng(0).integers(0, 4, 500).astype(float)
    f = model.decision_function(X)
    expected = oracles.ratio_bound(loss, f[y == 1], f[y == 0], w[y == 1], w[y == 0])
    assert model.score(X, y, sample_weight=w) == pytest.approx(expected, abs=1e-6)
    assert model.score(X, y) != pytest.approx(expected, abs=1e-6)
    both = (ArraySource(X[y == i], None, w[y == i]) for i in (1, 0))
    assert model.score(next(both), denominator=next(both)) == pytest.approx(expected, abs=1e-6)


def test_the_score_chooses_alpha():
    rng = np.random.default_rng(0)
    X, y = labelled(rng.normal(0, 1, (400, 5)), rng.normal(0.3, 1, (400, 5)))
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    grid = GridSearchCV(ratio(), {"alpha": [1e-6, 1e-2, 10.0]}, cv=folds).fit(X, y)
    scores = grid.cv_results_["mean_test_score"]
    assert grid.best_params_ == {"alpha": 1e-2}
    assert scores[1] > max(scores[0], scores[2], 0) + 0.02


@every("loss", LOSSES)
@every("names", [(0, 1), (-1, 1), ("a", "b"), (False, True)])
def test_both_forms_are_the_same(loss, names):
    p, q = gaussians(150, 100)
    X, y = np.vstack([p, q]), np.repeat(np.array(names)[[1, 0]], [150, 100])
    first = ratio(loss).fit(p, denominator=q)
    second = ratio(loss).fit(X, y)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    assert second.samples_.tolist() == list(names)
    assert second.score(X, y) == first.score(p, denominator=q)
    swapped = ratio(loss, alpha=0.1).fit(X, np.repeat(np.array(names), [150, 100]))
    assert np.corrcoef(swapped.predict(X), first.predict(X))[0, 1] < -0.3


@pytest.mark.parametrize("kind", KINDS)
def test_files(tmp_path, kind):
    samples = [X.astype(np.float32) for X in gaussians(500, 300)]
    p, q = (
        opened(tmp_path, kind, X, w=np.arange(len(X)) % 3.0, name=name)
        for name, X in zip("pq", samples, strict=True)
    )
    model = ratio(alpha=1e-2, solver="dsg").fit(p, denominator=q)
    X, y = np.vstack(samples), np.repeat([1, 0], [500, 300])
    w = np.concatenate([np.arange(500) % 3.0, np.arange(300) % 3.0])
    arrays = ratio(alpha=1e-2, solver="dsg").fit(X, y, sample_weight=w)
    rows = named(model, X)
    # rows of weight zero set no bandwidth either; only the order of sums differs
    np.testing.assert_allclose(model.predict(rows), arrays.predict(X), rtol=2e-3)
    assert model.score(p, denominator=q) == pytest.approx(
        model.score(rows, y, sample_weight=w), abs=1e-6
    )


P, Q = gaussians(40, 30)
BOTH, SAMPLE = np.vstack([P, Q]), np.repeat([1, 0], [40, 30])


@every(
    ("params", "args", "message"),
    [
        ({}, {"X": P}, "needs two samples"),
        ({}, {"X": BOTH, "y": SAMPLE, "denominator": Q}, "not both"),
        ({}, {"X": BOTH, "y": np.ones(70)}, "two distinct values"),
        ({}, {"X": BOTH, "y": np.arange(70) % 3}, "two distinct values"),
        ({}, {"X": BOTH, "y": SAMPLE, "sample_weight": SAMPLE}, "two distinct values"),
        ({}, {"X": BOTH, "y": SAMPLE[:-1]}, "inconsistent numbers"),
        ({}, {"X": BOTH, "y": SAMPLE, "sample_weight": -np.ones(70)}, "[Nn]egative"),
        ({}, {"X": P, "denominator": Q, "sample_weight": np.zeros(40)}, "(are zero|non-zero)"),
        ({}, {"X": np.full((4, 1), np.inf), "denominator": Q}, "infinity"),
        ({}, {"X": P, "denominator": np.full((4, 1), np.inf)}, "infinity"),
        ({}, {"X": P, "denominator": np.hstack([Q, Q])}, "2 features"),
        ({}, {"X": P, "denominator": Q[:0]}, "0 sample"),
        ({}, {"X": ArraySource(P), "denominator": Q}, "another one as denominator"),
        ({}, {"X": P, "denominator": ArraySource(Q)}, "another one as denominator"),
        (
            {},
            {"X": ArraySource(P), "denominator": ArraySource(Q), "sample_weight": P[:, 0]},
            "own weights",
        ),
        ({"alpha": -1.0}, {"X": P, "denominator": Q}, "alpha"),
        ({"loss": "hinge"}, {"X": P, "denominator": Q}, "hinge"),
        ({"kernel": "gauss"}, {"X": P, "denominator": Q}, "gauss"),
        ({"max_iter": 0}, {"X": P, "denominator": Q}, "max_iter"),
    ],
)
def test_bad_input_is_refused(params, args, message):
    model = KernelDensityRatio(**params)
    with pytest.raises(ValueError, match=message):
        model.fit(**args)
    assert not hasattr(model, "expansion_")


def test_misuse_is_explained():
    with pytest.raises(NotFittedError):
        ratio().predict(P)
    with pytest.raises(NotFittedError):
        ratio().score(P, denominator=Q)
    model = ratio(max_iter=2).fit(P, denominator=Q)
    before = model.predict(P)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(P, denominator=Q * np.inf)
    np.testing.assert_array_equal(model.predict(P), before)
    assert not hasattr(model, "_denominator")
    with pytest.raises(ValueError, match="features"):
        model.predict(np.hstack([P, P]))
    with pytest.raises(ValueError, match="needs two samples"):
        model.score(P)
    with pytest.raises(ValueError, match=r"y holds \[2\]"):
        model.score(BOTH, SAMPLE + 1)
    with pytest.raises(ValueError, match="two distinct values"):
        model.score(P, np.ones(40))
    with pytest.raises(DataError, match="weight"):
        model.score(ArraySource(P, None, np.zeros(40)), denominator=ArraySource(Q))
    with pytest.raises(DataError, match="weight"):
        model.fit(ArraySource(P, None, np.zeros(40)), denominator=ArraySource(Q))


def test_samples_far_apart_stay_finite():
    """The ratio is zero or infinite everywhere: exp goes on as a line, nothing overflows."""
    for loss in LOSSES:
        model = ratio(loss, alpha=0.0, max_iter=60, gamma=0.5)
        model.fit(P * 0.1 - 20, denominator=Q * 0.1 + 20)
        estimate = model.predict([[-20.0], [20.0]])
        assert np.isfinite(estimate).all()
        assert estimate[0] > 1 > estimate[1]
