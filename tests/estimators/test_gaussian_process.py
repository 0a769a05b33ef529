"""Hyperparameters, posterior and likelihood of Gaussian processes against closed forms."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as theirs

from cases import every, raises
from kernelgrad import DSG, ArraySource, KernelGaussianProcessRegressor, load
from kernelgrad.kernels import Gaussian, Matern
from kernelgrad.search.evidence import Evidence, Radial
from kernelgrad.validation import CapabilityError

SHAPES = {np.inf: "rbf", 0.5: Matern(0.5), 1.5: Matern(1.5), 2.5: Matern(2.5)}


def oracle(X, y, weight, lengths, noise, signal, nu, Z):
    """Log marginal likelihood of rows observed `weight` times, posterior mean, covariance."""
    X, y = (np.repeat(each, weight.astype(int), axis=0) for each in (X, y))
    kernel = theirs.ConstantKernel(signal) * theirs.Matern(lengths, nu=nu)
    gp = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(X, y)
    return gp.log_marginal_likelihood_value_, *gp.predict(Z, return_cov=True)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 3))
    y = 5.0 + 3.0 * np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(60)
    return X, y, rng.integers(1, 4, 60).astype(float), rng.uniform(-3, 3, (25, 3))


def process(*args, **params):
    return KernelGaussianProcessRegressor(*args, random_state=0, **params)


@every(("nu", "each"), [(np.inf, True), (0.5, False), (1.5, True), (2.5, False)])
@every(("noise", "signal"), [(None, None), (0.1, None), (None, 2.0), (0.1, 2)])
def test_likelihood_and_its_slope(rows, nu, each, noise, signal):
    X, y, weight, Z = rows
    y = y - y.mean()
    units = np.array([1.5, 0.7, 2.0]) if each else np.array([1.2])
    radial = Radial(X, nu, Evidence(y, weight, noise, signal), units, each=each)
    theta = np.array([0.3, -0.2, 0.5][: len(units)] + [-2.0] * (radial.fixed is None))
    value, slope = radial(theta)
    lengths = units * np.exp(theta[: len(units)])
    ratio = np.exp(theta[-1]) if radial.fixed is None else 0.1 / 2.0
    s2 = {(0.1, None): 0.1 / ratio}.get((noise, signal), signal)
    if s2 is None:  # the best of them
        near = np.exp(np.linspace(-8, 8, 201))
        tried = [oracle(X, y, weight, lengths, ratio * s, s, nu, Z)[0] for s in near]
        assert max(tried) <= value + 1e-9 <= max(tried) + 0.1
    else:
        expected = oracle(X, y, weight, lengths, ratio * s2, s2, nu, Z)[0]
        assert value == pytest.approx(expected, rel=1e-10)
    assert radial.look(theta)[0] == pytest.approx(value, rel=1e-12)
    steps = 1e-5 * np.eye(len(theta))
    found = [(radial.look(theta + h)[0] - radial.look(theta - h)[0]) / 2e-5 for h in steps]
    np.testing.assert_allclose(slope, found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("nu", SHAPES)
def test_posterior_of_given_variances(rows, nu):
    X, y, weight, Z = rows
    gamma, mean = 0.4, float(np.average(y, weights=weight))
    kernel = Gaussian(gamma) if nu == np.inf else Matern(nu, gamma)
    gp = process(0.2, signal_variance=3.0, kernel=kernel).fit(X, y, sample_weight=weight)
    lengths = 1 / np.sqrt(2 * gamma)
    value, m, C = oracle(X, y - mean, weight, lengths, 0.2, 3.0, nu, Z)
    # the root of a distance that cancels has half the digits, unless products are fused alike
    close = 1e-7 if nu == 0.5 else 1e-9
    assert "search" not in gp.history_
    assert gp.log_marginal_likelihood_ == pytest.approx(value, rel=close)
    np.testing.assert_allclose(gp.predict(Z), mean + m, rtol=close)
    np.testing.assert_allclose(gp.predict(Z, return_cov=True)[1], C, atol=close)
    std = gp.predict(Z, return_std=True)[1]
    np.testing.assert_allclose(std, np.sqrt(np.diag(C)), rtol=close)
    noisy = gp.predict(Z, return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(noisy**2, std**2 + 0.2)
    cov = gp.predict(Z, return_cov=True, include_noise=True)[1]
    np.testing.assert_allclose(cov, C + 0.2 * np.eye(len(Z)), atol=close)


@pytest.mark.filterwarnings("ignore:The optimal value found")
def test_the_search_is_no_worse_than_scikit_learn(rows):
    X, y, _, _ = rows
    for kernel, name in ((theirs.RBF(), "rbf"), (theirs.RBF(np.ones(3)), "diagonal")):
        full = theirs.ConstantKernel() * kernel + theirs.WhiteKernel()
        peer = GaussianProcessRegressor(full, normalize_y=True, n_restarts_optimizer=2,
                                        random_state=0).fit(X, y)  # fmt: skip
        gp = process(metric="diagonal" if name == "diagonal" else None).fit(X, y)
        reached = peer.log_marginal_likelihood_value_ - len(y) * np.log(y.std())
        assert gp.log_marginal_likelihood_ > reached - 0.01
        assert (gp.metric_ is None) == (name == "rbf")


def test_given_numbers_are_kept_and_the_rest_is_searched(rows):
    X, y, _, _ = rows
    free = process(metric=None).fit(X, y)
    best = free.log_marginal_likelihood_
    for name, value in (("noise_variance", 0.5), ("signal_variance", 2.0), ("gamma", 0.1)):
        gp = process(metric=None, **{name: value}).fit(X, y)
        kept = gp.kernel_.gamma if name == "gamma" else getattr(gp, f"{name}_")
        assert kept == pytest.approx(value, rel=1e-12)
        assert gp.log_marginal_likelihood_ < best
        found = free.kernel_.gamma if name == "gamma" else getattr(free, f"{name}_")
        twin = process(metric=None, **{name: found}).fit(X, y)  # what was found is the best
        assert twin.log_marginal_likelihood_ == pytest.approx(best, abs=0.01)


def test_the_metric_finds_the_columns_and_is_left_out_where_it_does_not_pay():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (300, 6))
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(300)
    gp = process().fit(X, y)
    assert gp.metric_.max() == 1
    assert gp.metric_[:2].min() > 10 * gp.metric_[2:].max()
    each = gp.kernel_.gamma * gp.metric_**2
    np.testing.assert_allclose(each, gp.history_["search"][0]["gamma"], rtol=1e-9)
    assert gp.noise_variance_ == pytest.approx(0.01, rel=0.35)  # five standard errors
    f = np.sin(3 * X[:, 0]) + X[:, 1] ** 2
    one = process(metric=None).fit(X, y)
    errors = [np.sqrt(np.mean((m.predict(X) - f) ** 2)) for m in (gp, one)]
    assert errors[0] < 0.6 * errors[1]
    kinds = [isinstance(trial["gamma"], list) for trial in gp.history_["search"]]
    assert kinds[0]
    assert not all(kinds)
    # a radial function with as many rows: a bandwidth for each column explains no more
    radial = np.exp(-(X[:, :3] ** 2).sum(axis=1)) + 0.1 * rng.standard_normal(300)
    assert process().fit(X[:, :3], radial).metric_ is None
    assert process(metric="diagonal").fit(X[:, :3], radial).metric_ is not None


def test_hardly_any_rows(rows):
    X, y, _, Z = rows
    mean, std = process().fit(X[:1], y[:1]).predict(np.r_[X[:1], X[:1] + 9], return_std=True)
    np.testing.assert_allclose(mean, y[0])
    assert std[0] < 0.01 < std[1]
    for A, t in ((X[:2], y[:2]), (X[:5], y[:5]), (X, np.full(60, 7.3))):
        mean, std = process().fit(A, t).predict(Z, return_std=True)
        assert np.isfinite([mean, std]).all()
    np.testing.assert_allclose(mean, 7.3)  # constant targets
    same = process().fit(np.ones((9, 2)), y[:9])  # rows that tell nothing apart
    assert same.predict([[1.0, 1.0]])[0] == pytest.approx(y[:9].mean())
    assert same.noise_variance_ == pytest.approx(y[:9].var(), rel=0.3)


@pytest.mark.slow
def test_pure_noise_is_noise():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((500, 4))
    y = 100 + 3 * rng.standard_normal(500)
    gp = process().fit(X, y)
    assert gp.noise_variance_ == pytest.approx(9, rel=5 * np.sqrt(2 / 500))
    assert np.abs(gp.predict(X) - y.mean()).max() < 1.5


@pytest.mark.usefixtures("tiny_limits")
def test_what_the_solvers_take(rows):
    X, y, _, Z = rows
    dsg = process(solver="dsg", max_iter=5).fit(X, y)
    exact = process().fit(X, y)
    assert dsg.log_marginal_likelihood_ is None
    assert exact._fitted.model.task.scale == pytest.approx(y.std())
    assert dsg.noise_variance_ == exact.noise_variance_  # the search is the same
    np.testing.assert_array_equal(dsg.metric_, exact.metric_)
    inside = np.abs(Z).max(axis=1) < 2
    assert rms(dsg.predict(Z[inside]), exact.predict(Z[inside])) < 0.3 * y.std()
    assert process(variance="operator", max_iter=3).fit(X, y).solver_.name == "dsg"
    with pytest.raises(ValueError, match="Variances of a BatchSource"):
        exact.predict(ArraySource(X), return_std=True)
    little = process(memory_limit="200kB", max_iter=2).fit(X, y)
    assert little.solver_.name == "dsg"
    assert "memory" in little.history_["solver_reason"]


@every(
    ("params", "error", "match"),
    [
        ({"metric": "diagonal", "gamma": 1.0}, ValueError, "gamma='auto'"),
        ({"metric": "diagonal", "kernel": "laplacian"}, ValueError, "rbf"),
        ({"metric": "diagonal", "kernel": Gaussian(1.0)}, ValueError, "own"),
        ({"metric": "fulll"}, ValueError, "diagonal"),
        ({"metric": 3}, TypeError, "metric"),
        ({"variance": "operator", "solver": "direct"}, CapabilityError, "operator"),
        ({"kernel": "precomputed"}, CapabilityError, "precomputed"),
        ({"solver": "newton"}, CapabilityError, "newton"),
    ],
)
def test_refusals(rows, params, error, match):
    raises(error, match, process(**params).fit, rows[0], rows[1])


GAMMA = 0.5


def closed_form(X, y, Z, noise):
    """Posterior mean and covariance of f at Z, for GAMMA."""
    return oracle(X, y, np.ones(len(X)), 1.0, noise, 1.0, np.inf, Z)[1:]


def sampled(noise=0.1, **params):
    """The process by random features, with variances that are given."""
    fixed = {"signal_variance": 1.0, "normalize_y": False, "solver": "dsg", "gamma": "median"}
    return KernelGaussianProcessRegressor(noise, **(fixed | params))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (400, 2))
    y = np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.2 * rng.standard_normal(400)
    Z = rng.uniform(-4, 4, (40, 2))  # some outside, where the variance is large
    return X, y, Z


@pytest.fixture(scope="module")
def fitted(problem):
    X, y, _ = problem
    return sampled(0.04, gamma=GAMMA, random_state=0, max_iter=20).fit(X, y)


def rms(a, b):
    return float(np.sqrt(np.mean((np.asarray(a) - np.asarray(b)) ** 2)))


def test_mean_and_variance_agree_with_the_closed_form(problem, fitted):
    X, y, Z = problem
    mean, covariance = closed_form(X, y, Z, 0.04)
    gp = fitted
    ours, std = gp.predict(Z, return_std=True)
    variance = np.diag(covariance)
    assert variance.max() > 50 * np.median(variance)  # both regimes are tested
    inside = np.abs(Z).max(axis=1) < 3
    assert rms(ours[inside], mean[inside]) < 0.02
    assert rms(ours, mean) < 0.1
    assert rms(std**2, variance) < 0.02
    assert rms(std[inside] ** 2, variance[inside]) < 0.25 * np.median(variance[inside])
    # a control: the variance of four times the noise is further away
    _, other = closed_form(X, y, Z, 0.16)
    assert rms(std[inside] ** 2, np.diag(other)[inside]) > np.median(variance[inside])
    _, matrix = gp.predict(Z[:15], return_cov=True)
    np.testing.assert_allclose(np.diag(matrix), std[:15] ** 2, atol=1e-6)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert rms(matrix, covariance[:15, :15]) < 0.01


def test_the_operator_estimates_the_variance(problem):
    X, y, Z = problem
    _, covariance = closed_form(X, y, Z, 0.04)
    variance = np.diag(covariance)
    gp = sampled(0.04, gamma=GAMMA, variance="operator", random_state=0, max_iter=6).fit(X, y)
    std = gp.predict(Z, return_std=True)[1]
    assert rms(std**2, variance) < 0.05
    assert rms(np.full(40, variance.mean()), variance) > 0.15  # a constant is no rival
    raises(CapabilityError, "per_point", gp.predict, Z, return_cov=True)


def test_an_operator_of_more_features_than_the_mean_comes_back(problem, tmp_path):
    X, y, Z = problem
    gp = KernelGaussianProcessRegressor(0.04, variance="operator", max_iter=3, random_state=0)
    gp.fit(X[:60], y[:60]).save(tmp_path / "model")
    for one, other in zip(
        *(m.predict(Z, True) for m in (gp, load(tmp_path / "model"))), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_samples_have_the_posterior_law(problem, fitted):
    Z, gp = problem[2], fitted
    mean, covariance = gp.predict(Z[:6], return_cov=True)
    draws = gp.sample_y(Z[:6], 4000, random_state=1)
    assert draws.shape == (6, 4000)
    error = np.sqrt(np.diag(covariance) / 4000)
    assert np.all(np.abs(draws.mean(axis=1) - mean) < 5 * error + 1e-9)
    spread = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)) * 2 / 4000)
    assert np.all(np.abs(np.cov(draws) - covariance) < 5 * spread + 1e-6)
    np.testing.assert_array_equal(draws, gp.sample_y(Z[:6], 4000, random_state=1))


def test_the_rows_are_the_models_own(problem):
    X, y, Z = problem
    X, solver = X.copy(), DSG(block_size=32, batch_size=200)
    gp = sampled(0.04, gamma=GAMMA, solver=solver, max_iter=5)
    expected = gp.set_params(random_state=0).fit(X, y).predict(Z, return_std=True)[1]
    X[:] = 0.0
    np.testing.assert_array_equal(gp.predict(Z, return_std=True)[1], expected)
