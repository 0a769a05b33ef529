"""What estimators choose by themselves: the solver, alpha and gamma."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from cases import every
from kernelgrad import (
    ArraySource,
    CapabilityError,
    DataError,
    KernelClassifier,
    KernelDensityRatio,
    KernelNoveltyDetector,
    KernelRegressor,
    load,
    open_source,
)
from kernelgrad.estimators._auto import ALPHAS, choose_solver, usable_memory
from kernelgrad.kernels import CallableKernel, ConvolutionKernel, Gaussian, PrecomputedKernel
from kernelgrad.losses import (
    Hinge,
    KLDensityRatio,
    Logistic,
    OneClass,
    Perceptron,
    SquaredError,
)
from kernelgrad.solvers import CachedBlockDescent, NewtonCG
from kernelgrad.solvers.kernel.direct import direct_bytes
from kernelgrad.solvers.kernel.newton import newton_bytes


def linear(X, Z):
    return X @ Z.T


IMAGES = ConvolutionKernel((6, 6), 3)
FUNCTION = CallableKernel(linear)
SMALL = {"n_rows": 100, "row_bytes": 800.0, "memory": 1e8}


@every(
    ("loss", "kernel", "where", "name", "reason"),
    [
        (Perceptron(), Gaussian(), "memory", "perceptron", "perceptron"),
        (Perceptron(), FUNCTION, "disk", "perceptron", "perceptron"),
        (OneClass(), Gaussian(), "memory", "dsg", "without labels"),
        (OneClass(), FUNCTION, "memory", "cached", "fit in memory"),
        (Logistic(), IMAGES, "memory", "cached features", "costly"),
        (SquaredError(), IMAGES + Gaussian(), "memory", "cached features", "costly"),
        (SquaredError(), Gaussian(), "memory", "direct", "up to 4,096 rows are solved exactly"),
        (SquaredError(), FUNCTION, "memory", "cached support", "fit in memory"),
        (SquaredError(), Gaussian(), "disk", "dsg", "on disk"),
        (Logistic(), IMAGES, "disk", "dsg", "on disk"),
        (Logistic(), Gaussian(), "memory", "newton", "kernel matrix fits in memory"),
        (Hinge(), FUNCTION, "memory", "working_set", "large working sets"),
        (SquaredError(), PrecomputedKernel(), "memory", "cached support", "fit in memory"),
        (KLDensityRatio(), Gaussian(), "memory", "dsg", "without labels"),
        (Logistic(), Gaussian(), "disk", "dsg", "on disk"),
        (Logistic(), Gaussian(), "stream", "dsg", "stream"),
        (Logistic(), FUNCTION, "disk", "pegasos", "no random features"),
        (Hinge(), PrecomputedKernel(), "stream", "pegasos", "no random features"),
        (KLDensityRatio(), FUNCTION, "disk", "dsg", "on disk"),
    ],
)
def test_the_table(loss, kernel, where, name, reason):
    solver, why = choose_solver(loss, kernel, rows=where, **SMALL)
    wanted = name.split()
    assert solver.name == wanted[0]
    if len(wanted) > 1:
        assert solver.blocks == wanted[1]
    assert reason in why


def test_memory_decides_at_rows_and_responses():
    def name(**changed):
        given = {"n_rows": 1000, "row_bytes": 5000.0, "n_outputs": 2, "memory": 154_000.0}
        return choose_solver(Logistic(), Gaussian(), rows="memory", **given | changed)

    assert name()[0].name == "cached"  # the kernel matrix alone takes 4e6 bytes
    for change in ({"memory": 153_999.0}, {"n_outputs": 3}, {"row_bytes": 5001.0}):
        solver, why = name(**change)
        assert solver.name == "dsg"
        assert "more than" in why
    assert choose_solver(Logistic(), FUNCTION, rows="memory", n_rows=9, memory=1.0)[0].name == (
        "pegasos"
    )
    assert usable_memory(77) == 77.0
    assert usable_memory(None) > 2**26
    with pytest.raises(ValueError, match="Unknown place of rows 'cloud'"):
        choose_solver(Logistic(), Gaussian(), rows="cloud")


def test_what_is_solved_exactly():
    def choice(loss=SquaredError(), n_rows=4096, **changed):  # noqa: B008
        settings = {"rows": "memory", "n_rows": n_rows, "row_bytes": 8e5, "n_outputs": 2}
        return choose_solver(loss, Gaussian(), **settings | changed)[0].name

    needed = direct_bytes(4096, 2, 8e5)
    assert needed > 8 * 4096**2
    assert choice() == choice(memory=needed) == "direct"
    assert choice(n_rows=4097) == choice(stops=True) == choice(Logistic()) == "newton"
    assert choice(memory=needed - 1) == "newton"
    needed = newton_bytes(4096, 2, 8e5)
    assert choice(memory=needed) == "newton"
    assert choice(memory=needed - 1) == "cached"


def test_exact_solvers_take_what_they_solve_in_about_a_minute():
    def choice(n_rows, n_outputs):
        settings = {"rows": "memory", "n_rows": n_rows, "n_outputs": n_outputs}
        return choose_solver(Logistic(), Gaussian(), **settings)[0].name

    def sets(n_rows, row_bytes, **more):
        settings = {"rows": "memory", "n_rows": n_rows, "row_bytes": n_rows * row_bytes}
        return choose_solver(Hinge(), Gaussian(), **settings, **more)[0].name

    assert sets(100, 80, penalised=False) == "cached"
    assert sets(100_000, 80) == sets(60_000, 6272) == "working_set"
    assert sets(100_001, 80) == sets(70_000, 6272) == "cached"
    for n_outputs, width in ((1, 4), (2, 4), (3, 16), (16, 16), (17, 32)):
        most = int((1.6e9 / width) ** 0.5)
        assert choice(most, n_outputs) == "newton"
        assert choice(most + 1, n_outputs) == "cached"


def test_the_exact_solution_goes_with_the_searches():
    X, y = curve(700)
    fast = {"random_state": 0, "gamma": 3.0}
    exact = KernelRegressor(**fast).fit(X, y)
    assert exact.history_["solver"] == "direct"
    assert exact.n_iter_ == 1
    assert KernelRegressor(early_stopping=True, **fast).fit(X, y).history_["solver"] == "newton"
    model = KernelRegressor(alpha="auto", **fast).fit(X, y)
    assert model.history_["solver"] == "direct"
    assert model.fit_status_ == "converged"
    assert {trial["alpha"] for trial in model.history_["search"]} == set(ALPHAS)
    plain = KernelRegressor(alpha=model.alpha_, **fast).fit(X, y)
    np.testing.assert_array_equal(plain.predict(X), model.predict(X))
    wide = KernelRegressor(gamma="auto", random_state=0).fit(X, y)
    assert wide.history_["solver"] == "direct"
    assert wide.kernel_.gamma in {trial["gamma"] for trial in wide.history_["search"]}


def two_classes(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, (X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(n) > 0).astype(int)


def curve(n=600, seed=0, noise=0.3, waves=2.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    return X, np.sin(waves * X[:, 0]) + noise * rng.standard_normal(n)


def test_the_choice_and_its_reason_are_kept(tmp_path):
    X, y = two_classes(300)
    fast = {"random_state": 0, "max_iter": 2}
    model = KernelClassifier(**fast).fit(X, y)
    assert isinstance(model.solver_, NewtonCG)
    assert model.history_["solver"] == "newton"
    assert model.model_info()["solver_reason"] == (
        "the kernel matrix fits in memory, and the loss is smooth"
    )
    assert model.alpha_ == 1e-6
    path = tmp_path / "model"
    model.save(path, resumable=True)
    loaded = load(path)
    assert loaded.history_ == model.history_
    assert loaded.alpha_ == model.alpha_
    again = loaded.set_params(warm_start=True).fit(X, y)
    assert again.n_iter_ > model.n_iter_
    assert again.history_["solver"] == "newton"

    given = KernelClassifier(solver="dsg", C=1.0, **fast).fit(X, y)
    assert given.history_["solver_reason"] == "given as a parameter"
    assert given.alpha_ == 1 / len(y)
    sparse = KernelClassifier(**fast).fit(sp.csr_matrix(X), y)
    assert sparse.history_["solver"] == "newton"
    little = KernelClassifier(memory_limit=1000, **fast).fit(X, y)
    assert little.history_["solver"] == "dsg"
    assert "more than" in little.model_info()["solver_reason"]
    assert KernelNoveltyDetector(**fast).fit(X).history_["solver"] == "dsg"
    assert KernelNoveltyDetector(kernel=linear, **fast).fit(X).history_["solver"] == "cached"
    ratio = KernelDensityRatio(**fast).fit(X, denominator=X[:100] + 0.5)
    assert ratio.history_["solver"] == "dsg"


def test_rows_on_disk_and_streams(tmp_path):
    X, y = two_classes(300)
    np.savez(tmp_path / "d.npz", X=X, y=y)
    np.save(tmp_path / "X.npy", X)
    fast = {"random_state": 0, "max_iter": 2}
    disk = open_source(tmp_path / "d.npz", target="y")
    for rows in ((disk,), (np.load(tmp_path / "X.npy", mmap_mode="r"), y)):
        assert KernelClassifier(**fast).fit(*rows).history_["solver"] == "newton"
        model = KernelClassifier(memory_limit=1, **fast).fit(*rows)
        assert model.history_["solver"] == "dsg"
        assert model.history_["solver_reason"] == "the rows are on disk"
        model.partial_fit(X, y)  # goes on
        assert model.n_iter_ == 3
    inside = KernelClassifier(**fast).fit(ArraySource(X, y))
    assert inside.history_["solver"] == "newton"

    stream = KernelClassifier(**fast).partial_fit(X, y)
    assert stream.history_["solver_reason"] == "the rows are a stream"
    assert stream.fit(X, y).history_["solver"] == "newton"  # starts anew
    assert not hasattr(stream, "partial_fit")
    with pytest.raises(AttributeError) as error:
        stream.partial_fit(X, y)
    assert "solver='dsg'" in str(error.value.__cause__)


def test_alpha_is_found():
    X, y = curve(900, noise=1.0)
    Z, t = curve(4000, seed=1, noise=0.0)
    # narrow enough to fit the noise, so that alpha matters
    settings = {"gamma": 300.0, "random_state": 0, "validation_fraction": 0.3}
    scores = {a: KernelRegressor(alpha=a, **settings).fit(X, y).score(Z, t) for a in ALPHAS}
    best, worst = max(scores, key=scores.get), min(scores.values())
    assert scores[best] > worst + 0.02
    model = KernelRegressor(alpha="auto", **settings).fit(X, y)
    assert best / 10.01 < model.alpha_ < best * 10.01
    assert model.score(Z, t) > scores[best] - 0.25 * (scores[best] - worst)
    search = model.history_["search"]
    assert [trial["alpha"] for trial in search] == list(ALPHAS)
    assert max(search, key=lambda trial: trial["score"])["alpha"] == model.alpha_
    assert {trial["gamma"] for trial in search} == {300.0}


def test_gamma_is_found_where_the_median_is_too_wide():
    X, y = curve(1500, waves=6.0, noise=0.1)
    Z, t = curve(2000, seed=1, waves=6.0, noise=0.0)
    settings = {"alpha": 1e-4, "random_state": 0}
    median = KernelRegressor(bandwidth_factor=4.0, **settings).fit(X, y)
    found = KernelRegressor(gamma="auto", bandwidth_factor=1.0, **settings).fit(X, y)
    tried = sorted({trial["gamma"] for trial in found.history_["search"]})
    np.testing.assert_allclose(np.divide(tried[1:], tried[:-1]), 4.0)
    assert found.kernel_.gamma == tried[-1]
    assert found.score(Z, t) > 0.95 > median.score(Z, t) + 0.1
    wider = KernelRegressor(gamma="auto", bandwidth_factor=4.0, **settings).fit(X, y)
    assert wider.kernel_.gamma == pytest.approx(tried[-1] / 16)


def test_both_are_found_again_from_the_seed_and_from_files(tmp_path):
    X, y = two_classes()
    model = KernelClassifier(alpha="auto", gamma="auto", random_state=3, max_iter=5)
    one, other = clone(model).fit(X, y), clone(model).fit(X, y)
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    assert one.history_["search"] == other.history_["search"]
    assert len(one.history_["search"]) == 5 * len(ALPHAS)
    one.save(tmp_path / "model", resumable=True)
    for twin in (load(tmp_path / "model"), pickle.loads(pickle.dumps(one))):
        assert (twin.alpha, twin.gamma, twin.alpha_) == ("auto", "auto", one.alpha_)
        np.testing.assert_array_equal(twin.predict(X), one.predict(X))
        twin.set_params(warm_start=True).fit(X, y)
        assert twin.alpha_ == one.alpha_
        assert twin.kernel_.gamma == one.kernel_.gamma
        assert twin.history_["search"] == one.history_["search"]


def test_a_search_costs_no_more_than_three_fits(monkeypatch):
    X, y = curve(3000)
    work = []
    step = CachedBlockDescent.step

    def counted(self, problem, state, batch):
        info = step(self, problem, state, batch)
        work.append(batch.n_rows * info.update.block.width)
        return info

    monkeypatch.setattr(CachedBlockDescent, "step", counted)
    settings = {"gamma": 3.0, "random_state": 0, "solver": "cached"}
    model = KernelRegressor(alpha="auto", **settings).fit(X, y)
    searched = sum(work)
    work.clear()
    KernelRegressor(alpha=model.alpha_, **settings).fit(X, y)
    assert 0 < searched < 3 * sum(work)


def test_a_search_takes_no_row_that_early_stopping_holds_out():
    X, y = two_classes()
    model = KernelClassifier(alpha="auto", early_stopping=True, random_state=0).fit(X, y)
    plain = KernelClassifier(alpha=model.alpha_, early_stopping=True, random_state=0)
    np.testing.assert_array_equal(
        plain.fit(X, y).decision_function(X), model.decision_function(X)
    )


@every(
    ("params", "message"),
    [
        ({"alpha": "auto", "solver": "dsg"}, "needs all rows in memory and the solver"),
        ({"gamma": "auto", "solver": "sdca"}, "solver is 'sdca'"),
        ({"alpha": "auto", "loss": "perceptron"}, "solver is 'perceptron'"),
        ({"alpha": "auto", "memory_limit": 1000}, "raise memory_limit"),
        ({"alpha": "auto", "C": 1.0}, "leave C out"),
        ({"alpha": "best"}, "Unknown rule for alpha 'best'; choose one of: auto"),
        ({"gamma": "auto", "kernel": Gaussian()}, "kernels given by name"),
        ({"gamma": "auto", "kernel": "intersection"}, "kernels given by name"),
    ],
)
def test_refusals(params, message):
    X, y = two_classes(100)
    with pytest.raises(ValueError, match=message):
        KernelClassifier(**params).fit(np.abs(X), y)


def test_refusals_of_streams_and_files(tmp_path):
    X, y = two_classes(100)
    np.savez(tmp_path / "d.npz", X=X, y=y)
    disk = open_source(tmp_path / "d.npz", target="y")
    for name in ("alpha", "gamma"):
        for solver in ("auto", "cached"):
            model = KernelClassifier(solver=solver, memory_limit=1, **{name: "auto"})
            with pytest.raises(ValueError, match=f"{name}='auto'.*the rows are on disk"):
                model.fit(disk)
        with pytest.raises(ValueError, match=f"give {name} as a number"):
            KernelClassifier(**{name: "auto"}).partial_fit(X, y)
    with pytest.raises(TypeError, match="alpha must be a real number"):
        KernelDensityRatio(alpha="auto").fit(X, y)
    with pytest.raises(DataError, match="at least 2 rows"):
        KernelRegressor(alpha="auto").fit(X[:1], y[:1])


def test_gamma_auto_of_inner_products_is_a_rule():
    X, y = two_classes(100)
    model = KernelClassifier(kernel="polynomial", gamma="auto", random_state=0).fit(X, y)
    assert model.kernel_.gamma == 0.5
    assert "search" not in model.history_


def test_responses_of_all_values_of_alpha_must_fit():
    X, y = np.random.default_rng(0).random((100, 3)), np.arange(100) % 2
    limited = {"memory_limit": 20_000, "max_iter": 1, "random_state": 0}
    assert KernelClassifier(**limited).fit(X, y).history_["solver"] == "cached"
    with pytest.raises(CapabilityError, match="rows and responses need"):
        KernelClassifier(alpha="auto", **limited).fit(X, y)


def test_the_fit_takes_as_many_blocks_as_the_best_trial():
    X = np.random.default_rng(0).random((400, 3))
    y = X[:, 0] > 0.5
    solver = CachedBlockDescent(block_size=16)
    found = KernelClassifier("squared_hinge", alpha="auto", solver=solver, random_state=0).fit(
        X, y
    )
    (blocks,) = (t["blocks"] for t in found.history_["search"] if t["alpha"] == found.alpha_)
    alone = KernelClassifier("squared_hinge", alpha=found.alpha_, solver=solver, random_state=0)
    assert found.n_iter_ == blocks < alone.fit(X, y).n_iter_
    assert found.fit_status_ == "converged"
