"""scikit-learn's own checks: each estimator and kind of solver quickly, the others slowly."""

from __future__ import annotations

import pytest
import sklearn
from sklearn.utils.estimator_checks import check_estimator

import kernelgrad as kg
from cases import every
from kernelgrad.kernels import Gaussian
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS
from plain import plain_classifier, plain_regressor

SMALL = kg.DSG(block_size=64)
SEMI_SUPERVISED = ("tsg", "fr_s3vm", "bgs3vm", "cccp_s3vm", "s3vm_light", "soft_labels")
NOT_HINGE = {"direct": "squared", "newton": "log_loss", "perceptron": "perceptron"}
KINKED = {"working_set": "absolute"}
NO_REGRESSION = ("sbp", "perceptron", "pegasos", "simba")

# one of each estimator, and one of each way of a solver: all rows, streams, dual variables
QUICK = [
    kg.KernelClassifier(),
    plain_classifier(solver=SMALL, max_iter=10),
    plain_classifier("hinge", solver="sdca", max_iter=10),
    plain_classifier("hinge", solver="norma", max_iter=10),
    kg.KernelRegressor(),
    kg.SemiSupervisedKernelClassifier(solver="tsg", max_iter=10),
    kg.KernelNoveltyDetector(max_iter=5),
    kg.KernelDensityRatio(max_iter=5),
    kg.KernelGaussianProcessRegressor(),
    kg.KernelGaussianProcessRegressor(solver=SMALL, max_iter=6, random_state=0),
    kg.RandomFeatures(n_components=32),
    kg.LinearClassifier(),
    kg.LinearRegressor("absolute", solver="sgd"),
]


def others():
    """Return the other combinations of estimators and solvers."""
    for name in SOLVERS:
        if name in SEMI_SUPERVISED:
            if name != "tsg":
                yield kg.SemiSupervisedKernelClassifier(solver=name, max_iter=10)
            continue
        yield plain_classifier(NOT_HINGE.get(name, "hinge"), solver=name, max_iter=10)
        if name not in NO_REGRESSION:
            yield plain_regressor(KINKED.get(name, "squared"), solver=name, max_iter=10)
    for name in LINEAR_SOLVERS:
        yield kg.LinearClassifier("hinge" if name == "simba" else "logistic", solver=name)
        if name not in NO_REGRESSION:
            yield kg.LinearRegressor(solver=name)
    yield kg.SemiSupervisedKernelClassifier(max_iter=10)
    yield kg.LinearClassifier("hinge")
    yield kg.LinearRegressor()
    yield kg.KernelClassifier("hinge", kernel="laplacian", max_iter=5)
    yield plain_classifier(solver=kg.DSG(preconditioned=False), max_iter=10)
    yield kg.KernelRegressor("absolute", max_iter=5, standardize=True)
    yield kg.KernelNoveltyDetector(0.4, kernel="laplacian", standardize=True, max_iter=5)
    yield kg.KernelDensityRatio("least_squares", kernel="cauchy", standardize=True, max_iter=5)
    yield kg.RandomFeatures("laplacian", 33, block_size=8, standardize=True)
    yield kg.RandomFeatures(Gaussian("scale", form="phase"), 20)


pytestmark = [
    pytest.mark.filterwarnings("ignore:There are no unlabelled rows:UserWarning"),
    pytest.mark.filterwarnings("ignore:Class .* of the labelled rows:UserWarning"),
]


# Which of three labels are the first of two classes depends there on the order of the rows.
OF_WEIGHTS = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
BROKEN = dict.fromkeys(OF_WEIGHTS, "fixed in 1.7") if sklearn.__version__ < "1.7" else {}


def check(estimator):
    broken = BROKEN if isinstance(estimator, kg.KernelDensityRatio) else {}
    found = check_estimator(
        estimator, on_skip=None, on_fail=None, expected_failed_checks=broken
    )
    assert len(found) > 40
    failed = [each for each in found if each["status"] == "failed"]
    assert not failed, "\n".join(f"{r['check_name']}: {r['exception']!r}" for r in failed)


@pytest.mark.parametrize("estimator", QUICK, ids=repr)
def test_checks(estimator):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", list(others()), ids=repr)
def test_checks_of_the_others(estimator):
    check(estimator)


@every("estimator", QUICK)
def test_html_links_to_the_pages_where_there_are_any(estimator, monkeypatch):
    monkeypatch.setenv("KERNELGRAD_DOCS", "file:///pages/")
    name = type(estimator).__name__
    page = f'href="file:///pages/api/generated/kernelgrad.{name}.html"'
    assert page in estimator._repr_html_()
    monkeypatch.delenv("KERNELGRAD_DOCS")
    assert "href" not in estimator._repr_html_()


def test_parts_link_to_the_room_they_are_in(monkeypatch):
    monkeypatch.setenv("KERNELGRAD_DOCS", "https://docs")
    assert (
        Gaussian()._get_doc_link()
        == "https://docs/api/generated/kernelgrad.kernels.Gaussian.html"
    )
    assert SMALL._get_doc_link().endswith("/kernelgrad.solvers.DSG.html")

    class Mine(Gaussian):
        """Of a user, who has no page."""

    assert Mine()._get_doc_link() == ""
