"""Density ratios against exact minimisers, known laws and the bounds of divergences."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import oracles_unsupervised as oracles
from cases import every, raises
from kernelgrad import DSG, ArraySource, KernelDensityRatio

LOSSES = ["kl", "least_squares", "kl_ratio", "relative_novelty"]
NEAR = {"kl": 0.03, "least_squares": 0.03, "kl_ratio": 0.04, "relative_novelty": 0.07}


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
        best, b = oracles.ratio_responses(K, signed, alpha, loss)
        return np.sqrt(np.mean((f - best) ** 2) / np.mean((best - b) ** 2))

    assert distance(1e-2, w) < NEAR[loss]
    # the controls: another penalty, other weights, and samples of unequal total weight
    assert distance(2e-2, w) > 0.1
    assert distance(1e-2, np.ones(320)) > NEAR[loss] + 0.02
    assert distance(1e-2, w, 1.5) > 0.1


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
            {"X": ArraySource(P), "denominator": ArraySource(Q), "sample_weight": P},
            "own weights",
        ),
    ],
)
def test_bad_input_is_refused(args, message):
    model = KernelDensityRatio()
    raises(ValueError, message, model.fit, **args)
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
        raises(ValueError, message, call)


def test_samples_far_apart_stay_finite():
    """The ratio is zero or infinite everywhere: exp goes on as a line, nothing overflows."""
    for loss in LOSSES:
        model = ratio(loss, alpha=0.0, max_iter=60 if loss == "kl" else 20, gamma=0.5)
        model.fit(P * 0.1 - 20, denominator=Q * 0.1 + 20)
        estimate = model.predict([[-20.0], [20.0]])
        assert np.isfinite(estimate).all()
        assert estimate[0] > 1 > estimate[1]


def test_a_continued_fit_keeps_the_names_of_its_samples():
    model = ratio(max_iter=2, warm_start=True).fit(BOTH, SAMPLE + 5)
    assert model.fit(P, denominator=Q).samples_.tolist() == [5, 6]
