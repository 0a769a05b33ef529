"""Drawn fits beside references and twins: some hold, and what is wrong is found."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fuzz import references, soak
from fuzz.target import Finding

from cases import every, raises
from kernelgrad import KernelRegressor, RandomFeatures
from kernelgrad.testing import estimator as contract


def execute(number, seed=0):
    target = soak.Soak()
    return target.execute(target.case(seed, number), Path())


def test_some_drawn_fits_hold():
    found = [execute(number) for number in range(6)]
    assert set(found) <= {"identical", "clear", "other"}
    assert found.count("identical") >= 4


class Restless(KernelRegressor):
    """Another model each time."""

    def fit(self, X, y, sample_weight=None):
        shift = np.random.default_rng().random()
        return super().fit(X, y + shift, sample_weight=sample_weight)


class Unbounded(KernelRegressor):
    """A model whose predictions may not be numbers."""

    def predict(self, X):
        return super().predict(X) + np.where(np.arange(len(X)) == 1, np.nan, 0.0)


@pytest.mark.filterwarnings("ignore")
@every(("cls", "told"), [(Restless, "seen.*second fit"), (Unbounded, "sane")])
def test_wrong_estimators_are_found(monkeypatch, cls, told):
    estimator = cls(gamma=0.5, alpha=1e-3, random_state=0)
    monkeypatch.setattr(soak, "draw_estimator", lambda rng: estimator)
    monkeypatch.setattr(soak, "CHECKS", (soak.Twins.seen,) * 3)
    raises(Finding, told, soak.check_twins, np.random.default_rng(0))


class Loose(RandomFeatures):
    """Features that are others for single rows."""

    def transform(self, X):
        return super().transform(X) * (1.1 if X.shape[0] == 1 else 1.0)


def test_rounding_of_high_frequencies_is_no_finding():
    X = 30.0 * np.random.default_rng(0).standard_normal((60, 12))
    rows = contract._Rows(X[:20], None, None, X[20:])
    for cls in (RandomFeatures, Loose):
        estimator = cls("laplacian", 64, gamma=0.4, random_state=0)
        twins = soak.Twins(estimator, rows.fit(estimator), rows)
        if cls is Loose:
            raises(AssertionError, "one by one", twins.chunks)
        else:
            twins.chunks()


def test_the_reference_knows_the_loss_of_many_classes():
    assert references.linear_objective(np.random.default_rng(0)) == "identical"  # four classes


JUDGED = [
    ("below the least", 0.9, None, None, "max_iter"),
    ("another objective", 1.1, 1.2, None, "max_iter"),
    ("beyond the duality gap", 1.1, 1.1, 0.05, "max_iter"),
    ("converged elsewhere", 1.1, 1.1, None, "converged"),
]


@every(("told", "objective", "claim", "gap", "status"), JUDGED)
def test_wrong_claims_are_found(told, objective, claim, gap, status):
    history = {"objective": [claim], "duality_gap": [gap]}
    model = SimpleNamespace(history_=history, fit_status_=status)
    raises(Finding, told, references.judge, model, objective, 1.0, 1.0, "this")
    assert references.judge(model, claim or 1.0, claim or 1.0, 1.0, "this") == "identical"


@pytest.mark.slow
def test_many_drawn_fits_hold(tmp_path):
    assert soak.main(["--executions", "300", "--seed", "7", "--output", str(tmp_path)]) == 0
