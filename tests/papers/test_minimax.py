"""Minimax levels against linear programs, sorted sums and repeated rows."""

import numpy as np
import pytest

import oracles_sbp as oracles
from kernelgrad.papers.sbp.minimax import rows_below, slack_level, two_class_level

VOLUMES = [0.01, 0.3, 2.0, 20.0]
EXACT = 1e-12


def problems(count=72, seed=3):
    """Tiny problems (c, y, volume, weight): ties in half of them, three kinds of weights."""
    rng = np.random.default_rng(seed)
    for t in range(count):
        n = int(rng.integers(2, 15))
        c = rng.normal(size=n)
        if t % 2:
            c = np.round(c, 1)
        y = rng.choice([-1.0, 1.0], n)
        y[:2] = 1, -1
        weight = (np.ones(n), rng.integers(1, 5, n).astype(float), rng.uniform(0.1, 3, n))[
            t % 3
        ]
        yield c, y, VOLUMES[t % 4], (None if t % 3 == 0 else weight), weight


def classes(y):
    return np.flatnonzero(y > 0), np.flatnonzero(y < 0)


def dense(found, n):
    p = np.zeros(n)
    p[found.positive] = found.p_positive
    p[found.negative] = found.p_negative
    return p


# One level


def test_level_and_distribution_solve_the_linear_program():
    for c, _, volume, weight, w in problems():
        level = slack_level(c, volume, weight)
        assert abs(level - oracles.level_program(c, volume, w)) < EXACT
        assert abs(w @ np.maximum(0, level - c) - volume) < EXACT * max(1, volume)
        rows = rows_below(c, level)
        p = np.zeros(len(c))
        p[rows] = w[rows] / w[rows].sum()
        assert abs(p @ c + volume * (p / w).max() - level) < EXACT


def test_volume_nothing_is_the_lowest_response():
    c = np.array([0.3, -0.2, 0.5, -0.2])
    assert slack_level(c, 0) == -0.2
    assert rows_below(c, -0.2).tolist() == [1, 3]
    weight = np.array([1.0, 0.0, 2.0, 0.0])
    assert slack_level(c, 0, weight) == 0.3
    # too little to raise the level by one unit in the last place
    assert slack_level(np.full(10, 0.1), 1e-30) == 0.1


def test_responses_of_very_different_sizes():
    c = np.array([0.25, 1e300, 0.75, 1e17, -1.0])
    assert slack_level(c, 4.0) == 4.0 / 3.0
    assert slack_level(c, 4.0, start=1e301) == 4.0 / 3.0


# Two classes


def test_two_classes_solve_the_linear_program():
    for c, y, volume, weight, w in problems():
        found = two_class_level(c, *classes(y), volume, weight)
        level = oracles.level_program(c, volume, w, y)
        heights, p = c + y * found.bias, dense(found, len(c))
        first, last = oracles.optimal_biases(c, volume, w, y, level)
        off = [
            found.level - level, p.sum() - 1, p @ y, found.bias - (first + last) / 2,
            p @ heights + volume * (p / w).max() - level,
            0.1 * (w @ np.maximum(0, found.level - heights) - volume),
        ]  # fmt: skip
        assert np.abs(off).max() < EXACT
        assert (p >= 0).all()


def test_no_volume_takes_the_lowest_row_of_each_class():
    c = np.array([0.5, 0.2, 0.9, 0.4])
    positive, negative = np.array([0, 2]), np.array([3, 1])
    found = two_class_level(c, positive, negative, 0.0)
    weighted = two_class_level(c, positive, negative, 0.0, np.array([3.0, 2.0, 1.0, 1.0]))
    assert found[:2] == pytest.approx((0.35, -0.15))
    for each in (found, weighted):
        assert [part.tolist() for part in each[2:]] == [[0], [0.5], [1], [0.5]]


def test_two_rows_far_below():
    found = two_class_level(np.array([0.0, 0.1]), np.array([0]), np.array([1]), 1e9)
    assert found.level == pytest.approx(5e8)
    assert abs(found.bias) <= 0.05 * (1 + 1e-6)


@pytest.mark.parametrize(("weighted", "volume"), [(False, 30.0), (True, 0.05), (True, 4e3)])
def test_two_classes_of_many_rows(weighted, volume):
    rng, n = np.random.default_rng(0), 6_000
    c = np.round(rng.normal(size=n), 3)  # ties
    y = np.where(rng.random(n) < 0.3, 1.0, -1.0)
    w = rng.uniform(0, 2, n) * (np.arange(n) % 7 > 0) if weighted else np.ones(n)
    found = two_class_level(c, *classes(y), volume, w if weighted else None)
    heights, p = c + y * found.bias, dense(found, c.size)
    # a primal and a dual point of one value: both are optimal
    assert w @ np.maximum(0, found.level - heights) == pytest.approx(volume, rel=1e-10)
    assert found.p_positive.sum() == pytest.approx(0.5, rel=1e-12)
    assert found.p_negative.sum() == pytest.approx(0.5, rel=1e-12)
    assert (p[found.positive] > 0).all()
    assert (p[found.negative] > 0).all()
    largest = (p[w > 0] / w[w > 0]).max()
    assert p @ heights + volume * largest == pytest.approx(found.level, abs=1e-12)
