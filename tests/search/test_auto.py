"""What estimators choose by themselves: the solver, and what a search gives them."""

import numpy as np
import pytest

import kernelgrad as kg
from cases import every
from kernelgrad import losses as kl
from kernelgrad.kernels import CallableKernel, ConvolutionKernel, Gaussian, PrecomputedKernel
from kernelgrad.search.auto import choose_solver, predicted_costs, settled_solver
from kernelgrad.solvers import BlockDescent
from kernelgrad.solvers.exact import direct_bytes, newton_bytes
from plain import plain_classifier
from sources import opened


def linear(X, Z):
    return X @ Z.T


IMAGES = ConvolutionKernel((6, 6), 3)
FUNCTION = CallableKernel(linear)
SMALL = {"n_rows": 100, "row_bytes": 800.0, "memory": 1e8}


@every(
    ("loss", "kernel", "where", "name", "reason"),
    [
        (kl.OneClass(), Gaussian(), "memory", "working_set", "kinks"),
        (kl.OneClass(), FUNCTION, "memory", "working_set", "kinks"),
        (kl.OneClass(), Gaussian(), "disk", "dsg", "without labels"),
        (kl.OneClass(tau="steps"), Gaussian(), "memory", "dsg", "without labels"),
        (kl.Logistic(), IMAGES, "memory", "dsg", "costly"),
        (kl.SquaredError(), IMAGES + Gaussian(), "memory", "dsg", "costly"),
        (kl.SquaredError(), Gaussian(), "memory", "direct", "16,384 rows are solved exactly"),
        (kl.SquaredError(), FUNCTION, "memory", "block_descent", "fit in memory"),
        (kl.SquaredError(), Gaussian(), "disk", "block_descent", "on disk"),
        (kl.Logistic(), IMAGES, "disk", "dsg", "on disk"),
        (kl.Logistic(), Gaussian(), "memory", "newton", "kernel matrix fits in memory"),
        (kl.Hinge(), FUNCTION, "memory", "working_set", "large working sets"),
        (kl.SquaredError(), PrecomputedKernel(), "memory", "block_descent", "fit in memory"),
        (kl.KLDensityRatio(), Gaussian(), "memory", "dsg", "without labels"),
        (kl.Logistic(), Gaussian(), "stream", "dsg", "stream"),
        (kl.Logistic(), FUNCTION, "disk", "block_descent", "on disk"),
        (kl.KLDensityRatio(), FUNCTION, "disk", "dsg", "on disk"),
        (kl.Perceptron(), Gaussian(), "memory", "perceptron", "perceptron"),
        (kl.Logistic(), FUNCTION, "stream", "pegasos", "no random features"),
        (kl.Hinge(), PrecomputedKernel(), "stream", "pegasos", "no random features"),
    ],
)
def test_the_table(loss, kernel, where, name, reason):
    solver, why = choose_solver(loss, kernel, rows=where, **SMALL)
    assert solver.name == name
    assert reason in why


def test_what_is_solved_exactly():
    def choice(loss=kl.SquaredError(), n_rows=16_384, **changed):  # noqa: B008
        settings = {"rows": "memory", "n_rows": n_rows, "row_bytes": 8e5, "n_outputs": 2}
        return choose_solver(loss, Gaussian(), **settings | changed)[0].name

    needed = direct_bytes(16_384, 2, 8e5)
    assert needed > 8 * 16_384**2
    assert choice() == choice(memory=needed) == "direct"
    assert choice(n_rows=16_385) == choice(stops=True) == choice(kl.Logistic()) == "newton"
    assert choice(memory=needed - 1) == "newton"
    sizes = {"n_rows": 60_000, "row_bytes": 1e7, "n_outputs": 1}
    assert choice(kl.OneClass(), **sizes) == choice(kl.Hinge(), **sizes) == "working_set"
    sizes |= {"n_rows": 90_000}
    assert (choice(kl.OneClass(), **sizes), choice(kl.Hinge(), **sizes)) == (
        "dsg",
        "working_set",
    )
    needed = newton_bytes(16_384, 2, 8e5)
    assert choice(memory=needed) == "newton"
    assert choice(memory=needed - 1) == "block_descent"


def test_a_large_penalty_is_solved_by_few_products():
    def settled(n_rows, n_outputs, ridge):
        chosen = choose_solver(kl.SquaredError(), Gaussian(), rows="memory", n_rows=n_rows)
        return settled_solver(chosen, n_rows, n_outputs, ridge)[0].name

    for case in ((4097, 1, 0.1), (4097, 3, 1e-3), (30_000, 1, 0.1)):
        assert settled(*case) == "newton"
    for case in ((4096, 1, 0.1), (4097, 1, 1e-6), (4097, 3, 1e-4)):
        assert settled(*case) == "direct"
    assert settled(40_001, 1, 0.1) == "block_descent"
    costs = [predicted_costs(10_000, 1, ridge)["direct"] for ridge in (1.1e-5, 0.9e-5)]
    assert costs == pytest.approx([3.25, 6.5])  # a float64 factor costs twice as much


@pytest.mark.parametrize("n_outputs", [1, 4])
@pytest.mark.parametrize("ridge", [1e-7, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 100.0])
def test_the_cost_of_the_solver_rises_evenly_with_the_rows(ridge, n_outputs):
    before = None
    for n in np.geomspace(1000, 100_000, 60).astype(int):
        rows = {"rows": "memory", "n_rows": n, "n_outputs": n_outputs}
        chosen = choose_solver(kl.SquaredError(), Gaussian(), **rows, memory=16e9)
        solver, _, costs = settled_solver(chosen, n, n_outputs, ridge)
        seconds = 2.0 + costs[solver.name]  # the search takes some
        if before is not None:
            assert 2 / 3 <= seconds / before <= 1.5, (n, solver)
        before = seconds


def test_block_descent_goes_on_where_there_is_hardly_any_noise():
    def tol(n_rows, ridge):
        chosen = choose_solver(kl.SquaredError(), Gaussian(), rows="memory", n_rows=n_rows)
        return settled_solver(chosen, n_rows, 1, ridge)[0].tol

    assert tol(20_000, 1e-7) == pytest.approx(2e-4)
    assert tol(50_000, 1e-7) == pytest.approx(5e-4)
    assert tol(200_000, 1e-7) == pytest.approx(BlockDescent().tol)
    assert tol(50_000, 1e-3) == tol(200_000, 1e-3) == 3e-3
    assert tol(400_000, 1e-3) == pytest.approx(6e-3)
    assert tol(10**7, 1e-3) == pytest.approx(9e-3)


def test_exact_solvers_take_what_they_solve_in_about_a_minute():
    def choice(n_rows, n_outputs):
        settings = {"rows": "memory", "n_rows": n_rows, "n_outputs": n_outputs}
        return choose_solver(kl.Logistic(), Gaussian(), **settings)[0].name

    def sets(n_rows, row_bytes, **more):
        settings = {"rows": "memory", "n_rows": n_rows, "row_bytes": n_rows * row_bytes}
        return choose_solver(kl.Hinge(), Gaussian(), **settings, **more)[0].name

    assert sets(100, 80, penalised=False) == "block_descent"
    assert sets(100_000, 80) == sets(60_000, 6272) == "working_set"
    assert sets(100_001, 80) == sets(70_000, 6272) == "block_descent"
    for n_outputs, width in ((1, 4), (2, 4), (3, 16), (16, 16), (17, 32)):
        most = int((1.6e9 / width) ** 0.5)
        assert choice(most, n_outputs) == "newton"
        assert choice(most + 1, n_outputs) == "block_descent"


def two_classes(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, (X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(n) > 0).astype(int)


def curve(n=600, seed=0, noise=0.3, waves=2.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    return X, np.sin(waves * X[:, 0]) + noise * rng.standard_normal(n)


@pytest.mark.usefixtures("tiny_limits")
def test_the_choice_and_its_reason_are_kept(tmp_path):
    X, y = two_classes(300)
    fast = {"random_state": 0, "max_iter": 2}
    model = plain_classifier(**fast).fit(X, y)
    reason = "the kernel matrix fits in memory, and the loss is smooth"
    assert (model.history_["solver"], model.alpha_) == ("newton", 1e-6)
    model.save(tmp_path / "model", resumable=True)
    loaded = kg.load(tmp_path / "model")
    assert loaded.model_info()["solver_reason"] == reason
    again = loaded.set_params(warm_start=True).fit(X, y)
    assert again.n_iter_ > model.n_iter_
    assert again.history_["solver"] == "newton"

    given = plain_classifier(solver="dsg", C=1.0, **fast).fit(X, y)
    assert given.history_["solver_reason"] == "given as a parameter"
    assert given.alpha_ == 1 / len(y)
    little = plain_classifier(memory_limit="1kB", **fast).fit(X, y)
    assert little.history_["solver"] == "block_descent"
    assert "more than" in little.model_info()["solver_reason"]
    ratio = kg.KernelDensityRatio(**fast).fit(X, denominator=X[:100] + 0.5)
    assert ratio.history_["solver"] == "dsg"


@pytest.mark.usefixtures("tiny_limits")
def test_rows_on_disk_and_streams(tmp_path):
    X, y = two_classes(300)
    fast = {"random_state": 0, "max_iter": 2}
    disk = opened(tmp_path, "npy", X, y)
    for rows in (disk, kg.ArraySource(X, y)):
        assert plain_classifier(**fast).fit(rows).history_["solver"] == "newton"
    model = plain_classifier(memory_limit="1B", **fast).fit(disk)
    assert model.history_["solver"] == "block_descent"
    assert model.history_["solver_reason"] == "the rows are on disk"

    stream = plain_classifier(**fast).partial_fit(X, y)
    assert stream.history_["solver_reason"] == "the rows are a stream"
    assert stream.solver_.max_features == 2**14
    assert plain_classifier(solver="dsg", **fast).partial_fit(X, y).solver_.max_features is None
    assert stream.fit(X, y).history_["solver"] == "newton"  # starts anew
    assert not hasattr(stream, "partial_fit")
    with pytest.raises(AttributeError) as error:
        stream.partial_fit(X, y)
    assert "solver='dsg'" in str(error.value.__cause__)


def test_gamma_is_found_where_the_median_is_too_wide():
    """Of kernels without a metric too, and a factor multiplies what was found."""
    X, y = curve(400, waves=6.0, noise=0.1)
    Z, t = curve(1000, seed=1, waves=6.0, noise=0.0)
    settings = {"kernel": "cauchy", "random_state": 0}
    median = kg.KernelRegressor(gamma="median", bandwidth_factor=4.0, **settings).fit(X, y)
    found = kg.KernelRegressor(**settings).fit(X, y)
    tried = sorted({trial["gamma"] for trial in found.history_["search"]})
    assert len(tried) == 4
    np.testing.assert_allclose(np.divide(tried[1:], tried[:-1]), 2.0)
    assert found.score(Z, t) > 0.95 > median.score(Z, t) + 0.1
    best = min(found.history_["search"], key=lambda trial: trial["loss"])
    assert best["gamma"] == found.kernel_.gamma
    wider = kg.KernelRegressor(bandwidth_factor=4.0, **settings).fit(X, y)
    tried = sorted({trial["gamma"] for trial in wider.history_["search"]})
    assert len(tried) > 4  # beyond the end of the first four
    assert tried[0] < wider.kernel_.gamma < tried[-1]


def test_blocks_of_many_rows_are_tried_with_other_kernels(monkeypatch):
    """The kernel is that of the least loss on rows of which the blocks know nothing."""
    monkeypatch.setattr("kernelgrad.search.search.TRIAL_ROWS", 100)
    monkeypatch.setattr("kernelgrad.search.search._MANY_ROWS", 100)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = np.sin(4 * X[:, 0]) + X[:, 1] * np.cos(X[:, 2]) + 0.05 * rng.standard_normal(300)
    settings = {"solver": "block_descent", "random_state": 0, "max_iter": 3}
    for kernel in "auto", "gaussian":
        model = kg.KernelRegressor(kernel=kernel, **settings).fit(X, y)
        tried = [trial for trial in model.history_["search"] if "kernel" in trial]
        best = min(tried, key=lambda trial: trial["loss"])
        assert repr(model.kernel_) == best["kernel"]
        losses = {trial["gamma"]: trial["loss"] for trial in tried}
        assert len(losses) > 1
    *powers, between = losses  # the last is the vertex of a parabola through three
    middle = min(powers, key=losses.get)
    low, high = losses[middle / 2], losses[middle * 2]
    vertex = (low - high) / (low - 2 * losses[middle] + high) / 2
    assert between == pytest.approx(middle * 2**vertex)


@pytest.mark.filterwarnings("ignore:On the held-out rows")
def test_a_search_takes_no_row_that_is_held_out():
    X, y = curve(40)
    model = kg.KernelRegressor(kernel="laplacian", gamma=0.5, solver="dsg", random_state=0)
    model.set_params(early_stopping=True, validation_fraction=0.25, max_iter=1)

    def search(row):
        return model.fit(X, y + 3.0 * (np.arange(40) == row)).history_["search"]

    plain = search(None)
    assert sum(search(row) == plain for row in range(40)) == 10


def test_gamma_of_inner_products_and_of_objects_is_not_searched():
    X, y = two_classes(100)
    model = kg.KernelClassifier(kernel="polynomial", alpha=1e-3, random_state=0).fit(X, y)
    assert model.kernel_.gamma == 0.5
    assert "search" not in model.history_
    model = kg.KernelClassifier(kernel=Gaussian(0.7), random_state=0).fit(X, y)
    assert model.kernel_.gamma == 0.7
    assert {trial["gamma"] for trial in model.history_["search"]} == {0.7}
    assert len({trial["alpha"] for trial in model.history_["search"]}) > 2
