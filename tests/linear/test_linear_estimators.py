import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge

import kernelgrad as kg
import oracles_linear as oracles
from cases import every, raises
from kernelgrad.estimators import COMPETITORS, competitor
from kernelgrad.linear.base import PreparedRows
from kernelgrad.linear.family import choose_linear_solver
from kernelgrad.losses import get_loss
from kernelgrad.solvers import LINEAR_SOLVERS, S3GD, get_linear_solver
from sources import Unread

NAMES = sorted(LINEAR_SOLVERS)
STREAMS = [name for name in NAMES if LINEAR_SOLVERS[name].streams]
# solvers whose noise vanishes, so that they come as close as tol says
EXACT = ["rbcd", "sdca", "svrg"]
TIGHT = {"tol": 1e-9, "max_iter": 2000, "random_state": 0}


class TestPapers:
    """Factors between the objectives of Mu et al. (2015) and those here."""

    @pytest.mark.parametrize("balanced", [False, True])
    @pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
    def test_minimum(self, balanced, loss, cancer):
        X, y = cancer
        X, y, lam = X[150:, :6], 2.0 * y[150:] - 1.0, 0.05
        size = np.where(y > 0, (y > 0).sum(), (y < 0).sum())
        omega = 1 / size if balanced else np.full(len(y), 1 / len(y))
        half = 0.5 if loss == "squared_hinge" else 1.0  # Section 2.4

        def objective(w):
            value = oracles.value(loss, y[:, None], (X @ w)[:, None])
            return half * omega @ value + lam * w @ w

        best = minimize(objective, np.zeros(6), tol=1e-12).x
        paper = S3GD.paper(eta=1.0, lam=lam / half, balanced=balanced)
        assert paper["alpha"] == pytest.approx(2 * lam / half / (1 + balanced))
        model = kg.LinearClassifier(loss, **(paper | {"solver": "rbcd", "tol": 1e-10}))
        np.testing.assert_allclose(model.fit(X, y).coef_[0], best, atol=1e-5)
        off = model.set_params(alpha=1.5 * model.alpha).fit(X, y).coef_[0]
        assert abs(off - best).max() > 1e-3

    @pytest.mark.parametrize("balanced", [False, True])
    def test_s3gd_step_by_step(self, balanced, cancer, monkeypatch):
        X, y = cancer
        X, seen = np.hstack([X, np.ones((len(X), 1))]), []

        def descend(self, problem, W, b, order, share, eta, reference=None):
            rows = self.batch.X, self.Y[:, 0]  # shuffled
            seen.append((*rows, reference.graph.anchors, order.copy()))
            return own(self, problem, W, b, order, share, eta, reference)

        own = PreparedRows.descend
        monkeypatch.setattr(PreparedRows, "descend", descend)
        eta, lam = 0.7, 1e-3
        for options, m, p, k, k_in in (
            ({"round_size": 60}, 100, 10, 10, 20),
            ({}, 100, 10, 10, 20),  # rounds of whole inner loops, 60 steps for 569 rows
            ({"inner_steps": 7, "n_anchors": 9, "n_neighbors": 3, "batch_size": 4}, 9, 4, 3, 7),
        ):
            paper = S3GD.paper(eta=eta, lam=lam, balanced=balanced, **options)
            model = kg.LinearClassifier("logistic", max_iter=2, random_state=0, **paper).fit(
                X, y
            )
            *rows, anchors, _ = seen[0]
            order = np.concatenate([orders for *_, orders in seen])
            assert len(anchors) <= m
            assert order.shape[1] == p
            w = oracles.s3gd_paper(*rows, anchors, k, order, eta, lam, balanced, k_in)
            np.testing.assert_allclose(model.coef_[0], w, rtol=1e-8, atol=1e-10)
            assert model.intercept_ == 0.0
            assert abs(w).max() > 0.05
            seen.clear()

        raises(ValueError, "eta", S3GD.paper, eta=0.0)


def scaled(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scaled(X), y


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return scaled(X), y


@pytest.fixture(scope="module")
def line():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 8))
    return X, X @ np.linspace(-1, 1, 8) + 2.0 + 0.3 * rng.standard_normal(300)


FINE = {"tol": 1e-10, "max_iter": 5000}
SAME_MINIMA = [
    ("cancer", kg.LinearClassifier("logistic", alpha=0.05, **TIGHT),
     LogisticRegression(C=1 / (0.05 * 569), **FINE)),
    ("iris", kg.LinearClassifier(alpha=0.01, **TIGHT), LogisticRegression(C=1 / 1.5, **FINE)),
    *(
        ("line", kg.LinearRegressor(alpha=0.1, fit_intercept=bias, **TIGHT),
         Ridge(30.0, fit_intercept=bias))
        for bias in (True, False)
    ),
    ("line", kg.LinearRegressor(alpha=0.1, penalty="elasticnet", l1_ratio=0.3, **TIGHT),
     ElasticNet(0.1, l1_ratio=0.3, **FINE)),
    ("line", kg.LinearRegressor(alpha=0.2, penalty="l1", **TIGHT), Lasso(0.2, **FINE)),
]  # fmt: skip


@every("make", [np.asarray, sp.csr_matrix])
@every(("rows", "ours", "theirs"), SAME_MINIMA)
def test_minima_are_those_of_scikit_learn(make, rows, ours, theirs, request):
    X, y = request.getfixturevalue(rows)
    ours, theirs = clone(ours).fit(make(X), y), clone(theirs).fit(X, y)
    assert ours.coef_.shape == theirs.coef_.shape
    assert type(ours.intercept_) is float or ours.intercept_.shape == theirs.intercept_.shape
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    if rows != "iris":  # a constant in all outputs of the multinomial loss is free
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    method = "predict" if rows == "line" else "predict_proba"
    values = (getattr(ours, method)(make(X)), getattr(theirs, method)(X))
    np.testing.assert_allclose(*values, atol=1e-4)
    if ours.penalty == "l1":
        assert (ours.coef_ == 0).any()
        assert ours.model_info()["n_columns_used"] == np.count_nonzero(ours.coef_)


def test_balanced_classes_are_equation_46():
    """The mean over classes of the mean loss of a class."""
    X, y = make_classification(
        400, 6, n_informative=4, n_classes=3, weights=[0.8, 0.15, 0.05], random_state=0
    )
    options = {"alpha": 0.01} | TIGHT | {"max_iter": 30}  # any function shows it
    ours = kg.LinearClassifier(class_weight="balanced", **options).fit(X, y)
    theirs = kg.LinearClassifier(**options).fit(
        X, y, sample_weight=1.0 / (3 * np.bincount(y))[y]
    )
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    f = X @ ours.coef_.T + ours.intercept_
    each = oracles.value("log_loss", (y[:, None] == np.arange(3)).astype(float), f)
    objective = np.mean([each[y == k].mean() for k in range(3)]) + 0.005 * (ours.coef_**2).sum()
    assert ours.history_["audit"]["objective"] == pytest.approx(objective, rel=1e-6)


# -- the choice of a solver ---------------------------------------------------------------


@every(
    ("loss", "rows", "d", "n", "l2", "expected"),
    [
        ("smoothed_hinge", "memory", 512, 1000, 0.0, "rbcd"),
        ("log_loss", "memory", 513, 1000, 1e-3, "sdca"),
        ("log_loss", "memory", 513, 1000, 9e-4, "svrg"),
        ("hinge", "memory", 20, 1000, 1e-9, "sdca"),
        ("hinge", "memory", 20, 1000, 0.0, "sgd"),
        ("absolute", "memory", 20, 1000, 1e-3, "sdca"),
        ("absolute", "memory", 20, 1000, 9e-4, "sgd"),
        ("log_loss", "disk", 20, 1000, 0.1, "sgd"),
        ("hinge", "stream", 20, 1000, 0.1, "sgd"),
        ("hinge", "large", 20, 1000, 0.1, "sgd"),
    ],
)
def test_table_of_choices(loss, rows, d, n, l2, expected):
    task = "regression" if loss == "absolute" else "classification"
    solver, reason = choose_linear_solver(
        get_loss(loss, task=task, n_classes=2), rows=rows, n_features=d, n_rows=n, l2=l2
    )
    assert solver.name == expected
    assert reason


def test_repeated_rows_take_the_solver_of_weights():
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((60, 3)), np.arange(60) % 4
    model = kg.LinearRegressor("absolute", alpha=0.014, max_iter=2, random_state=0)
    one = clone(model).fit(X, X[:, 0], sample_weight=weight)
    many = clone(model).fit(*(np.repeat(a, weight, axis=0) for a in (X, X[:, 0])))
    np.testing.assert_array_equal(one.coef_, many.coef_)


# -- refusals -----------------------------------------------------------------------------


@every(
    ("options", "error", "message"),
    [
        ({"loss": "hinge", "solver": "svrg"}, kg.CapabilityError, "does not take the loss"),
        ({"solver": "pegasos", "penalty": "l1"}, kg.CapabilityError, "no L1 penalty"),
        ({"solver": "pegasos", "penalty": None}, ValueError, "needs an L2 penalty"),
        ({"solver": "pegasos", "alpha": 0.0}, ValueError, "needs an L2 penalty"),
        ({"penalty": "l3"}, ValueError, "elasticnet, l1, l2"),
        ({"penalty": None, "C": 1.0}, ValueError, "no strength"),
        ({"solver": "dsg"}, ValueError, "Unknown solver"),
        ({"solver": 3}, TypeError, "solver must be"),
        ({"loss": "huber"}, ValueError, "not for classification"),
    ],
)
def test_refusals_come_before_any_work(cancer, options, error, message):
    X, y = cancer
    model = kg.LinearClassifier(**options)
    for rows in ((Unread(X, y),), (X, y)):
        raises(error, message, model.fit, *rows)
    assert vars(model) == vars(kg.LinearClassifier(**options))


# -- going on -----------------------------------------------------------------------------


@pytest.mark.parametrize("solver", EXACT)
def test_a_path_of_penalties(solver, cancer):
    X, y = cancer
    options = {"solver": solver, "tol": 1e-7, "max_iter": 1000, "random_state": 0}
    model = kg.LinearClassifier("logistic", warm_start=True, **options)
    for alpha in (1.0, 0.3, 0.1):
        model.set_params(alpha=alpha).fit(X, y)
        cold = kg.LinearClassifier("logistic", alpha=alpha, **options).fit(X, y)
        np.testing.assert_allclose(model.coef_, cold.coef_, atol=1e-4)
        assert model.alpha_ == alpha


def test_a_warm_start_wants_the_same_rows_and_solver(cancer):
    X, y = cancer
    model = kg.LinearClassifier(solver="svrg", warm_start=True, max_iter=2).fit(X, y)
    raises(kg.CapabilityError, "same rows", model.fit, X[:400], y[:400])
    raises(ValueError, "solver changed", model.set_params(solver="sgd").fit, X, y)


@pytest.mark.parametrize("solver", ["auto", *STREAMS])
def test_a_stream(solver):
    X, y = make_classification(6000, 10, random_state=0)
    y = np.array(["no", "yes"])[y]
    model = kg.LinearClassifier(solver=solver, alpha=1e-3, random_state=0)
    for start in range(0, 6000, 500):
        rows = slice(start, start + 500)
        model.partial_fit(X[rows], y[rows], classes=["no", "yes"])
    assert model.n_iter_ == 12
    assert model.history_["solver"] == ("sgd" if solver == "auto" else solver)
    reference = kg.LinearClassifier(alpha=1e-3, random_state=0).fit(X, y)
    assert model.score(X, y) > reference.score(X, y) - 0.02


def test_what_wants_all_rows_has_no_partial_fit():
    for solver in sorted(set(NAMES) - set(STREAMS)):
        assert not hasattr(kg.LinearClassifier(solver=solver), "partial_fit")
        assert not hasattr(kg.LinearRegressor(solver=get_linear_solver(solver)), "partial_fit")
    for kind in (kg.KernelClassifier, kg.KernelRegressor, kg.LinearClassifier):
        assert hasattr(kind(alpha=1.0), "partial_fit")
        assert not hasattr(kind(C=1.0), "partial_fit")
    assert hasattr(kg.SemiSupervisedKernelClassifier(C=1.0), "partial_fit")


# -- competitors --------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPETITORS)
def test_competitors_learn_what_no_line_can(name):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 2))
    y = (X**2).sum(axis=1) > 1.4
    options = {"gamma": 0.5, "n_features": 100, "alpha": 1e-3, "random_state": 0}
    model = competitor(name, **options).fit(X[:1000], y[:1000])
    kind = {"r": kg.RandomFeatures, "n": Nystroem}[name[0]]
    assert isinstance(model[0], kind)
    assert model[1].solver_.name == name[2:]
    assert model.score(X[1000:], y[1000:]) > 0.9
    assert kg.LinearClassifier().fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) < 0.7
    assert model[1].loss == "logistic"
    regressor = competitor(name, task="regression", **options)
    assert regressor[1].loss == "squared"
    target = np.sin(2 * X[:, 0])
    assert regressor.fit(X[:1000], target[:1000]).score(X[1000:], target[1000:]) > 0.8


@pytest.mark.parametrize("wrong", ["task", "gamma", "n_features", "alpha", "max_iter"])
def test_competitors_refuse_wrong_options(wrong):
    raises((ValueError, TypeError), wrong, competitor, "r-sdca", **{"gamma": 0.5, wrong: 0})


def test_tol_is_the_optimality_that_is_reached(cancer):
    rough, fine = (
        kg.LinearClassifier(alpha=0.1, tol=tol, max_iter=1000, random_state=0).fit(*cancer)
        for tol in (1e-2, 1e-6)
    )
    assert rough.fit_status_ == fine.fit_status_ == "converged"
    assert rough.n_iter_ < fine.n_iter_
    assert 1e-6 < rough.history_["audit"]["optimality"] <= 1e-2
    assert fine.history_["audit"]["optimality"] <= 1e-6
