"""Hostile numbers end in a clear error, or in a model that is as good as it can be or warns."""

import numpy as np
import pytest
from fuzz import abuse
from fuzz.estimators import every

from kernelgrad import KernelRegressor

pytestmark = pytest.mark.filterwarnings("default")


def found(*args, **options):
    return [case for case in abuse.run(*args, **options) if case[2].kind in abuse.FINDINGS]


# the defaults, a stream, dual variables, and linear functions
CORE = "KernelClassifier squared auto,hinge sdca,squared dsg,LinearRegressor squared auto"


@pytest.mark.parametrize("only", CORE.split(","))
def test_a_share_of_the_fits(only):
    assert found(0, only, share=0.04) == []


@pytest.mark.slow
@pytest.mark.parametrize("only", sorted({abuse.title(each) for each in every()}))
def test_all_fits(only):
    assert found(0, only) == []


class Constant(KernelRegressor):
    def predict(self, X):
        return np.zeros(X.shape[0])


class Broken(KernelRegressor):
    def fit(self, X, y, sample_weight=None):
        raise ZeroDivisionError


class Unreal(KernelRegressor):
    def predict(self, X):
        return np.full(X.shape[0], np.nan)


@pytest.mark.parametrize(
    ("cls", "kind"),
    [(Constant, "silent wrong"), (Broken, "unexpected exception"), (Unreal, "not finite")],
)
def test_faults_are_found(cls, kind):
    rows = abuse.clean(np.random.default_rng(0))
    assert abuse.attempt(cls(gamma=0.5, alpha=1e-6), rows, 0.9, rows).kind == kind
