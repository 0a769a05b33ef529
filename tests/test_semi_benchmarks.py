"""The benchmarks of semi-supervised machines: what they count, and that each of them runs."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def part(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.objectives.{name}")


@pytest.fixture
def run(part, tmp_path):
    runner = importlib.import_module("benchmarks.run")

    def call(*args):
        out = tmp_path / "result.json"
        assert runner.main([*args, "--quick", "--json", str(out)]) == 0
        return json.loads(out.read_text())["tables"]

    return call


def test_the_gap_is_that_of_exact_kernels(part):
    """It shrinks with T; beside an h with steps of another length it does not."""
    rates = part("tsg_rates")
    cloud = rates.Cloud.draw()
    np.testing.assert_allclose(cloud.K, cloud.K.T)
    assert np.linalg.eigvalsh(cloud.K).min() > -1e-12
    short, long = (
        np.mean([rates.follow(cloud, rates.PAIRS[0], T, seed)[0] for seed in range(6)])
        for T in (10, 160)
    )
    assert 0 < long < 0.5 * short
    cloud.K = 1.5 * cloud.K  # h of a kernel that the features of f do not have
    wrong = np.mean([rates.follow(cloud, rates.PAIRS[0], 160, seed)[0] for seed in range(6)])
    assert wrong > 2 * long


def test_gradients_vanish_at_the_minimum(part):
    from scipy.optimize import minimize

    rates = part("tsg_rates")
    cloud = rates.Cloud.draw()
    from kernelgrad.losses import get_loss, get_unlabelled_loss

    labelled = get_loss("squared_hinge", task="classification")
    other = get_unlabelled_loss("gaussian")

    def value(h):
        f = (cloud.K @ h)[:, None]
        first = labelled.value(cloud.y[: rates.LABELLED], f[: rates.LABELLED]).mean()
        second = other.value(f[rates.LABELLED :]).mean()
        return 0.5 * h @ f[:, 0] + rates.C * (first + rates.RATIO * second)

    found = minimize(value, 0.01 * np.ones(rates.ROWS), method="L-BFGS-B").x
    at_zero = rates.gradient(cloud, labelled, other, np.zeros(rates.ROWS))
    assert rates.gradient(cloud, labelled, other, found) < 1e-3 * at_zero


def test_slopes(part):
    assert part("tsg_rates").slope([1, 10, 100], [1.0, 0.1, 0.01]) == pytest.approx(-1.0)


def test_gains_are_over_the_same_draws(part):
    errors = part("semi_errors")
    runs = [
        {"dataset": "d", "method": m, "seed": s, "error": e, "fit s": 1.0}
        for m, values in ((errors.LABELS_ONLY, (0.2, 0.4)), ("b", (0.1, 0.2)))
        for s, e in enumerate(values)
    ]
    rows = {row["method"]: row for row in errors.means(runs)}
    assert rows["b"]["gain"] == pytest.approx(0.15)
    assert rows["b"]["s.e."] == pytest.approx(0.05)
    assert rows[errors.LABELS_ONLY]["gain"] == 0.0


def test_errors_run(run):
    tables = run("semi_errors", "--repeat", "1", "--dataset", "digits",
                 "--method", "kernelgrad (default)", "fr_s3vm")  # fmt: skip
    rows = {row["method"]: row for row in tables["means"]}
    assert set(rows) == {"SVC on the labels", "kernelgrad (default)", "fr_s3vm"}
    assert all(row["error"] < 0.6 for row in rows.values())


@pytest.mark.slow  # a process for each fit
def test_growth_runs(run):
    tables = run("semi_growth", "--solver", "tsg, rows on disk", "fr_s3vm")
    rows = tables["fits over rows"]
    assert [row["rows"] for row in rows] == [1000, 1000, 2000, 2000]
    assert all("skipped" not in row and row["error"] < 0.45 for row in rows)
    assert [row["passes"] for row in tables["passes of TSG with 32 blocks"]] == [1, 2, 4]


def test_signs(part, run, monkeypatch):
    signs = part("semi_signs")
    assert all(signs.largest_error(name) < 1e-9 for name in signs.UNLABELLED_LOSSES)
    with monkeypatch.context() as patch:
        patch.setitem(signs.UNLABELLED_LOSSES, "symmetric_hinge", signs.Attracting)
        assert signs.largest_error("symmetric_hinge") == pytest.approx(2.0)
    tables = run("semi_signs", "--repeat", "2")
    assert [row["sign"] for row in tables["two moons"]] == ["right", "wrong", "none"]
    assert tables["two moons"][1]["more error than right"] > 0.05
