"""Density ratios against exact minimisers, known laws and the bounds of divergences."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import oracles_unsupervised as oracles
from cases import every
from kernelgrad import DSG, ArraySource, KernelDensityRatio

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


@pytest.mark.parametrize("loss", LOSSES)
def test_the_exact_minimiser(loss):
    rng = np.random.default_rng(0)
    p, q = rng.normal(0, 1, (120, 2)), rng.normal([0.7, 0], 1, (200, 2))
    Z, w = np.vstack([p, q]), rng.integers(1, 6, 320).astype(float)
    y = np.repeat([1, -1], [120, 200])
    K = oracles.gaussian(Z, Z, 0.4)
    solver = DSG(block_size=128, momentum=0.0, decay=50.0)
    model = ratio(loss, gamma=0.4, alpha=1e-2, max_iter=150, solver=solver)
    f = model.fit(Z, y, sample_weight=w).decision_function(Z)

    def distance(alpha, w, share=1.0):
        signed = np.where(y > 0, w / w[y > 0].sum(), -share * w / w[y < 0].sum())
        a, b = oracles.ratio_coefficients(K, signed, alpha, loss)
        return np.sqrt(np.mean((f - b - K @ a) ** 2) / np.mean((K @ a) ** 2))

    assert distance(1e-2, w) < NEAR[loss]
    # the controls: another penalty, other weights, and samples of unequal total weight
    assert distance(2e-2, w) > 0.1
    assert distance(1e-2, np.ones(320)) > NEAR[loss] + 0.02
    assert distance(1e-2, w, 1.5) > 0.1


@every("loss", ["kl", "relative_novelty"])
def test_the_score_is_a_lower_bound_of_the_divergence(loss):
    p, q = gaussians()
    held = gaussians(4000, 4000, seed=2)
    scores = []
    for alpha in (1e-1, 1e-3):
        model = ratio(loss, alpha=alpha).fit(p, denominator=q)
        scores.append(model.score(held[0], denominator=held[1]))
    f_p, f_q = (model.decision_function(Z) for Z in held)
    growth = {"kl": np.exp(f_q), "least_squares": f_q**2 / 2}.get(loss, f_q)
    noise = 5 * np.sqrt(f_p.var() / 4000 + growth.var() / 4000)
    assert scores[0] < scores[1] < DIVERGENCE[loss] + noise
    assert scores[1] > DIVERGENCE[loss] - 0.02 - noise
    # the control: samples the wrong way round
    wrong = model.score(held[1], denominator=held[0])
    equal = 1.0 if loss == "relative_novelty" else 0.0  # the divergence of equal samples
    assert wrong < equal < scores[0]


@every("loss", LOSSES)
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


@every("names", [(-1, 1), ("a", "b")])
def test_both_forms_are_the_same(names):
    p, q = gaussians(150, 100)
    X, y = np.vstack([p, q]), np.repeat(np.array(names)[[1, 0]], [150, 100])
    first = ratio().fit(p, denominator=q)
    second = ratio().fit(X, y)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    assert second.samples_.tolist() == list(names)
    assert second.score(X, y) == first.score(p, denominator=q)
    swapped = ratio(alpha=0.1).fit(X, np.repeat(np.array(names), [150, 100]))
    assert np.corrcoef(swapped.predict(X), first.predict(X))[0, 1] < -0.3


P, Q = gaussians(40, 30)
BOTH, SAMPLE = np.vstack([P, Q]), np.repeat([1, 0], [40, 30])


@every(
    ("args", "message"),
    [
        ({"X": P}, "needs two samples"),
        ({"X": BOTH, "y": SAMPLE, "denominator": Q}, "not both"),
        ({"X": BOTH, "y": np.arange(70) % 3}, "two distinct values"),
        ({"X": BOTH, "y": SAMPLE, "sample_weight": SAMPLE}, "two distinct values"),
        ({"X": P, "denominator": Q, "sample_weight": np.zeros(40)}, "(are zero|non-zero)"),
        ({"X": P, "denominator": np.full((4, 1), np.inf)}, "infinity"),
        ({"X": P, "denominator": np.hstack([Q, Q])}, "2 features"),
        ({"X": P, "denominator": Q[:0]}, "0 sample"),
        ({"X": ArraySource(P), "denominator": Q}, "another one as denominator"),
        ({"X": P, "denominator": ArraySource(Q)}, "another one as denominator"),
        (
            {"X": ArraySource(P), "denominator": ArraySource(Q), "sample_weight": P[:, 0]},
            "own weights",
        ),
    ],
)
def test_bad_input_is_refused(args, message):
    model = KernelDensityRatio()
    with pytest.raises(ValueError, match=message):
        model.fit(**args)
    assert not hasattr(model, "expansion_")


def test_misuse_is_explained():
    with pytest.raises(NotFittedError):
        ratio().score(P, denominator=Q)
    model = ratio(max_iter=2).fit(P, denominator=Q)
    nothing, other = ArraySource(P, None, np.zeros(40)), ArraySource(Q)
    for message, call in [
        ("needs two samples", lambda: model.score(P)),
        (r"y holds \[2\]", lambda: model.score(BOTH, SAMPLE + 1)),
        ("two distinct values", lambda: model.score(P, np.ones(40))),
        ("weight", lambda: model.score(nothing, denominator=other)),
        ("weight", lambda: model.fit(nothing, denominator=other)),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_samples_far_apart_stay_finite():
    """The ratio is zero or infinite everywhere: exp goes on as a line, nothing overflows."""
    for loss in LOSSES:
        model = ratio(loss, alpha=0.0, max_iter=60, gamma=0.5)
        model.fit(P * 0.1 - 20, denominator=Q * 0.1 + 20)
        estimate = model.predict([[-20.0], [20.0]])
        assert np.isfinite(estimate).all()
        assert estimate[0] > 1 > estimate[1]
