"""Values that would ruin a model silently: refused, or harmless."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import kernelgrad as kg
from cases import every, raises
from kernelgrad.exceptions import DataError
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Chi2, Gaussian, Laplacian, Polynomial

SOLVERS = ("direct", "newton", "block_descent", "working_set", "dsg")
# nothing is clipped, nothing searched
PLAIN = {"standardize": False, "metric": None, "gamma": "median", "alpha": 1e-6}
LOSS = {"direct": "squared", "working_set": "hinge"}


def rows(n=400):
    X = np.random.default_rng(0).standard_normal((n, 4))
    return X, X[:, 0] + 0.3 * X[:, 1]


@pytest.mark.parametrize("sparse", [False, True])
def test_outliers_that_make_the_deviation_are_told(sparse):
    X, t = rows()
    X[3, 1] = 1e6
    model = kg.KernelRegressor(standardize=True, gamma="median", alpha=1e-6)
    with pytest.warns(UserWarning, match=r"Column 1 has a deviation .*standardize='robust'"):
        model.fit(sp.csr_matrix(X) if sparse else X, t)


@every("kernel", [Gaussian(), Laplacian()])
@every("value", [1e4, 1e17])
@every("sparse", [False, True])
def test_the_median_rule_sees_no_outlier(kernel, value, sparse):
    X, _ = rows()
    clean = kernel.resolve(X, 0).gamma
    X[3, 1] = value
    found = kernel.resolve(sp.csr_matrix(X) if sparse else X, 0).gamma
    # of the largest the rest of its column is rounding
    lost = kernel.resolve(X[:, [0, 2, 3]], 0).gamma
    assert 0.97 * clean < found < 1.03 * max(clean, lost)


@every("solver", SOLVERS)
def test_values_beyond_float32_are_refused(solver):
    X, t = rows(60)
    wrong = X.copy()
    wrong[7, 2] = -1e39
    loss = LOSS.get(solver, "log_loss")
    model = kg.KernelClassifier(loss, solver=solver, random_state=0, **PLAIN)
    with pytest.raises(kg.DataError, match=r"Row 7, column 2 \(both .* holds 1e\+39 in size"):
        model.fit(wrong, t > 0)
    model.fit(X, t > 0)
    for each in (wrong, sp.csr_matrix(wrong)):
        raises(kg.DataError, "Row 7, column 2", model.predict, each)
    assert len(set(model.predict(X))) == 2
    many = np.zeros((20_000, 4))
    many[19_000, 3] = 1e30
    raises(kg.DataError, "Row 19000, column 3", model.predict, many)


@pytest.mark.parametrize("cls", [kg.KernelRegressor, kg.LinearRegressor])
@pytest.mark.parametrize("scale", [1e150, 1e-150])
def test_targets_beyond_float32_are_refused(cls, scale):
    X, t = rows(60)
    for y in (t, np.column_stack([t, t])):
        place = int(np.argmax(np.abs(t)))
        raises(kg.DataError, rf"in row {place} .* in another unit", cls().fit, X, y * scale)
    cls().fit(X, 0 * t)
    with pytest.raises(kg.DataError, match=r"e\+200 in size, have squares beyond float64"):
        kg.KernelGaussianProcessRegressor().fit(X, 1e200 * t)


@pytest.mark.parametrize("weight", [1e-310, 1e300, np.r_[1e300, np.full(59, 1e-300)]])
def test_weights_beyond_float32_are_refused(weight):
    X, t = rows(60)
    weight = np.broadcast_to(weight, 60)
    for model in (
        kg.KernelRegressor(),
        kg.LinearRegressor(),
        kg.KernelClassifier("hinge", C=1),
    ):
        y = t > 0 if isinstance(model, kg.KernelClassifier) else t
        with pytest.raises(ValueError, match=r"sum of the sample weights is .*e[+-]3"):
            model.fit(X, y, sample_weight=weight)


def test_weights_lost_beside_the_largest_are_none():
    X, t = rows(60)
    model = kg.KernelRegressor(gamma="median", alpha=1e-6, random_state=0)
    found = [model.fit(X, t, np.r_[w, np.ones(59)]).predict(X) for w in (0.0, 1e-50, 1e-310)]
    np.testing.assert_array_equal(found[1:], found[:1] * 2)


@pytest.mark.parametrize("scale", [1e-12, 1e10])
@pytest.mark.parametrize("loss", ["absolute", "huber"])
def test_the_search_for_alpha_knows_no_unit(loss, scale):
    X, t = rows(60)
    model = kg.KernelRegressor(loss, effort="fast", random_state=0).fit(X, t * scale)
    assert model.score(X, t * scale) > 0.99


def test_a_model_that_says_nothing_says_so():
    X, t = rows(120)
    silent = kg.KernelRegressor("epsilon_insensitive", gamma="median", alpha=1e-6)
    with pytest.warns(UserWarning, match="same for nearly all of its training rows"):
        silent.fit(X, 1e-6 * t)
    with pytest.warns(UserWarning, match="same for nearly all of its training rows"):
        kg.LinearClassifier(alpha=1e9).fit(X, t > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        silent.fit(X, t)
        kg.LinearClassifier(alpha=1e9).fit(X, np.arange(120) == 5)
        kg.LinearRegressor().fit(X + 1e3, t + 1e12)
    with pytest.warns(UserWarning, match=r"targets differ by \d.* at a size of 1e\+15"):
        kg.LinearRegressor().fit(X, t + 1e15)
    X[9] *= 1e4
    with pytest.warns(UserWarning, match=r"longest row is .*e\+0\d times as long as"):
        kg.LinearClassifier().fit(X, t > 0)


def test_a_model_that_diverged_says_so():
    X, t = rows(60)
    solver = kg.DSG(step_size=10.0)
    model = kg.KernelRegressor(solver=solver, gamma="median", alpha=1e-6, max_iter=2)
    with pytest.warns(ConvergenceWarning, match=r"worse than a constant \(mean loss"):
        model.fit(X, t)


@pytest.mark.parametrize("cls", [kg.KernelRegressor, kg.LinearRegressor])
def test_rows_that_vanish_are_refused(cls):
    X, t = rows(60)
    raises(kg.DataError, r"The largest value in the rows is .*e-300", cls().fit, X * 1e-300, t)
    for model in (kg.RandomFeatures(), kg.KernelDensityRatio()):
        with pytest.raises(kg.DataError, match=r"The largest value in the rows is .*e-50"):
            model.fit(X * 1e-50, t > 0)
    with pytest.warns(UserWarning, match="the same for nearly all of its training rows"):
        cls().fit(0 * X, t)


@pytest.mark.parametrize("cls", [kg.KernelClassifier, kg.KernelRegressor])
def test_a_model_worse_than_a_constant_says_so(cls):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20))
    y = (rng.random(300) < 0.3).astype(float)
    model = cls(alpha=1e-9, gamma=1e-3, early_stopping=True, random_state=0)
    with pytest.warns(UserWarning, match=r"worse than a constant \((accuracy|r2) .* against"):
        model.fit(X, y)
    with warnings.catch_warnings():  # none where the columns tell the target
        warnings.simplefilter("error")
        model.set_params(alpha=1e-2).fit(X, (X[:, 0] > 0).astype(float))
        model.set_params(early_stopping=False).fit(X, y)
        X = np.random.default_rng(0).standard_normal((300, 2))
        model = cls("squared", alpha=1e-2, gamma=1e-3)  # 256 rows judge, without the fourth
        model.fit(X, np.arange(300) == 4, sample_weight=np.sqrt(np.arange(1, 301)))


def test_features_beyond_float32_are_an_error_and_not_nan():
    X = np.random.default_rng(0).standard_normal((20, 5))
    for rows in (X, sp.csr_matrix(X)):
        model = kg.RandomFeatures(Polynomial(degree=500), random_state=0).fit(X)
        raises(DataError, "features are not finite at row", model.transform, rows)
    assert np.isfinite(kg.RandomFeatures(Polynomial(degree=3)).fit(X).transform(X)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_column_of_sparse_rows_is_not_divided_by_its_rounding(dtype):
    rng = np.random.default_rng(0)
    weight = rng.random(500)
    for constant in (0.03107825, 1e-5, 3.3, 1e5):
        X = rng.random((500, 3)).astype(dtype)
        X[:, 1] = constant
        dense, sparse = (
            InputScaling.fit(rows, Chi2(), standardize=True, sample_weight=weight).scale
            for rows in (X, sp.csr_matrix(X))
        )
        assert dense[1] == sparse[1] == 1.0
        np.testing.assert_allclose(sparse, dense, rtol=1e-12)


def test_rows_that_are_far_apart_for_their_bandwidth():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(size=60) < 0.1, 1e-60 * rng.normal(size=60)])
    model = kg.KernelRegressor("squared", "rbf", gamma="median", alpha=1e-3, standardize=False)
    model.set_params(solver="newton").fit(X, X[:, 0])
    assert model.score(X, X[:, 0]) > 0.9
