"""Responses that rise or fall in a column: at new curves, without loss, against a dense QP."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning

import kernelgrad as kg
from cases import every
from kernelgrad import open_source, set_num_threads
from kernelgrad.estimators import monotonic as _monotonic
from kernelgrad.exceptions import CapabilityError
from kernelgrad.kernels import Laplacian, Matern

LIMIT = 3 * _monotonic.TOLERANCE  # of curves that the fit has not seen


def make(n, noise, seed=0):
    """Return rows, targets, and the function that they are of, which rises in columns 0, 1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    f = np.tanh(3 * X[:, 0]) + X[:, 1] * (1 + 0.5 * np.sin(3 * X[:, 2])) + np.cos(2 * X[:, 2])
    return X, f + noise * rng.standard_normal(n), f


def largest_fall(response, X, j, sign=1):
    """Return the largest fall of a response along curves, in parts of its range."""
    grid = np.linspace(X[:, j].min(), X[:, j].max(), 41)
    rows = np.repeat(X[-80:, None], len(grid), axis=1)
    rows[:, :, j] = grid
    values = sign * np.asarray(response(rows.reshape(-1, X.shape[1]))).reshape(len(rows), -1)
    falls = np.maximum.accumulate(values, axis=1) - values
    return falls.max() / np.ptp(response(X))


QUICK = {"kernel": Matern(1.5, gamma=1.0), "alpha": 1e-2, "random_state": 0}


@every("sign", [1, -1])
def test_a_noisy_response_rises_where_it_must(sign):
    X, y, _ = make(150, 1.0)
    given = QUICK | {"alpha": 2e-3}
    Xt, _, ft = make(2000, 0.0, seed=1)
    free = kg.KernelRegressor(**given).fit(X, sign * y)
    model = kg.KernelRegressor(**given, monotonic_cst=[sign, 0, 0]).fit(X, sign * y)
    assert largest_fall(free.predict, X, 0, sign) > 0.1  # control
    assert largest_fall(model.predict, X, 0, sign) < LIMIT
    assert largest_fall(model.predict, X, 1, sign) > 0.05  # of a column that is free
    errors = [np.sqrt(np.mean((sign * m.predict(Xt) - ft) ** 2)) for m in (free, model)]
    assert errors[1] < errors[0]  # with that much noise
    found = model.history_["monotonic"]
    assert found["columns"] == {"0": sign}
    assert found["violated"] == 0.0 < found["violated_before"]
    assert found["largest_fall"] <= found["tolerance"] < found["largest_fall_before"]
    assert found["train_loss_before"] < found["train_loss"]
    assert model.n_support_ > free.n_support_


def test_little_is_lost_where_there_is_little_noise():
    X, y, _ = make(300, 0.2)
    Xt, _, ft = make(2000, 0.0, seed=1)
    given = {"kernel": "rbf", "alpha": 1e-4, "random_state": 0}
    models = [
        kg.KernelRegressor(**given, monotonic_cst=c).fit(X, y) for c in (None, {0: 1, 1: 1})
    ]
    errors = [np.sqrt(np.mean((m.predict(Xt) - ft) ** 2)) for m in models]
    assert errors[1] < 1.03 * errors[0]
    assert max(largest_fall(models[1].predict, X, j) for j in (0, 1)) < LIMIT


def least_objective(K, y, alpha, D, least):
    """Return min mean (K a + b - y)^2 / 2 + alpha a^T K a / 2 with D K a >= least; responses.

    The first len(y) rows of K are those of y. By least-distance programming (Lawson and Hanson
    1974, chapter 23) in the eigenvectors of K.
    """
    n = len(y)
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-12 * values[-1]
    F = vectors[:, kept] * np.sqrt(values[kept])
    A = np.column_stack([F[:n], np.ones(n)]) / np.sqrt(n)
    R = np.linalg.qr(np.vstack([A, np.sqrt(alpha) * np.eye(*A.shape[1:] * 2)[:-1]]))[1]
    free = np.linalg.solve(R.T @ R, A.T @ y / np.sqrt(n))
    C = np.column_stack([D @ F, np.zeros(len(D))])
    G = np.linalg.solve(R.T, C.T)
    E = np.vstack([G, least - C @ free])
    scale = np.linalg.norm(E, axis=0)
    x = nnls(E / scale, np.append(np.zeros(len(G)), 1.0), maxiter=20 * len(D))[0] / scale
    r = E @ x - np.append(np.zeros(len(G)), 1.0)
    w = free + np.linalg.solve(R, -r[:-1] / r[-1])
    objective = np.mean((np.sqrt(n) * A @ w - y) ** 2) / 2 + alpha / 2 * w[:-1] @ w[:-1]
    return objective, np.sqrt(n) * A @ w


def test_a_dense_quadratic_program_on_the_same_constraints(monkeypatch):
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(0, 1, (30, 1)), axis=0)
    y = np.sin(7 * X[:, 0]) + 0.2 * rng.standard_normal(30)
    given = {"kernel": "rbf", "gamma": 8.0, "alpha": 1e-3, "solver": "direct"}
    seen, solve = [], _monotonic._Fit.solve

    def recorded(self, change, pairs, *more):
        seen.append(pairs)
        return solve(self, change, pairs, *more)

    monkeypatch.setattr(_monotonic._Fit, "solve", recorded)
    monkeypatch.setattr(_monotonic, "_WORST", 3)
    model = kg.KernelRegressor(**given, monotonic_cst=[1], random_state=0).fit(X, y)
    pairs = seen[-1]
    a, b = pairs.a[:, :1], pairs.b[:, :1]
    least = (pairs.rise + pairs.own)[:, 0]
    points = np.concatenate([X, a, b])
    K = np.exp(-8.0 * (points - points.T) ** 2)
    p = len(a)
    D = np.zeros((p, len(points)))
    D[np.arange(p), 30 + np.arange(p)], D[np.arange(p), 30 + p + np.arange(p)] = -1, 1
    best, responses = least_objective(K, y, 1e-3, D, least)
    e = model.expansion_
    norm = e.coef[:, 0] @ e.exact.gram(e.support, wide=True) @ e.coef[:, 0]
    ours = np.mean((model.predict(X) - y) ** 2) / 2 + 0.5e-3 * norm
    unconstrained = least_objective(K, y, 1e-3, D, np.full(p, -1e3))[0]
    assert unconstrained < 0.7 * best  # the constraints matter
    assert ours == pytest.approx(best, rel=2e-3)
    assert np.abs(model.predict(X) - responses).max() < 0.01


@every("loss", ["squared", "log_loss", "hinge"])
def test_decisions_and_probabilities_of_two_classes(loss):
    X, y, _ = make(100, 1.0)
    labels = np.where(y > 0, "b", "a")
    free = kg.KernelClassifier(loss, **QUICK).fit(X, labels)
    model = kg.KernelClassifier(loss, **QUICK, monotonic_cst=[1, 1, 0]).fit(X, labels)
    for j in (0, 1):
        assert largest_fall(free.decision_function, X, j) > 0.02
        assert largest_fall(model.decision_function, X, j) < LIMIT
        assert largest_fall(lambda Z: model.predict_proba(Z)[:, 1], X, j) < 3 * LIMIT


@every("loss", ["huber", "absolute", "poisson", kg.losses.Quantile((0.2, 0.8))])
def test_other_losses_of_numbers(loss):
    X, y, f = make(100, 0.5)
    y = np.random.default_rng(0).poisson(np.exp(f)) if loss == "poisson" else y
    free = kg.KernelRegressor(loss, **QUICK).fit(X, y)
    model = kg.KernelRegressor(loss, **QUICK, monotonic_cst={1: 1}).fit(X, y)
    for c in range(model.expansion_.n_outputs):

        def output(m, c=c):
            return lambda Z: m.predict(Z).reshape(len(Z), -1)[:, c]

        assert largest_fall(output(free), X, 1) > 0.02
        assert largest_fall(output(model), X, 1) < 2 * LIMIT


def own_kernel(A, B):
    return np.exp(-2 * ((A[:, None] - B) ** 2).sum(axis=2))


@every("kernel", [Laplacian(gamma=0.5), own_kernel])
def test_kernels_without_derivatives(kernel):
    X, y, _ = make(40, 0.5)
    given = {"kernel": kernel, "alpha": 3e-3, "random_state": 0}
    assert largest_fall(kg.KernelRegressor(**given).fit(X, y).predict, X, 0) > 0.02
    model = kg.KernelRegressor(**given, monotonic_cst={0: 1, 1: 1}).fit(X, y)
    assert max(largest_fall(model.predict, X, j) for j in (0, 1)) < 2 * LIMIT


def test_frames_with_gaps_and_several_outputs():
    X, y, _ = make(300, 0.8)
    frame = pd.DataFrame(X, columns=["size", "age", "year"])
    frame.loc[::9, "size"] = np.nan
    frame["city"] = np.where(X[:, 2] > 0, "Ulm", "Bonn")
    Y = np.column_stack([y, 2 * y + 3 * X[:, 0]])
    model = kg.KernelRegressor(alpha=1e-4, random_state=0, monotonic_cst={"size": 1})
    model.fit(frame, Y)
    assert model.history_["monotonic"]["violated"] == 0
    some = pd.concat([frame.iloc[:50].assign(size=t) for t in np.linspace(-1, 1, 30)])
    values = model.predict(some).reshape(30, 50, 2)
    assert (np.maximum.accumulate(values, 0) - values).max() < LIMIT * np.ptp(values)
    for cst, words in [({"sise": 1}, "did you mean 'size'"), ({"city": 1}, "'city', which")]:
        with pytest.raises(ValueError, match=words):
            model.set_params(monotonic_cst=cst).fit(frame, y)


def test_weights_are_rows_given_again_and_threads_change_no_bit():
    X, y, _ = make(100, 0.8)
    weight = np.random.default_rng(0).integers(0, 3, 100)
    model = kg.KernelRegressor(**QUICK, monotonic_cst=[1, 0, 0])
    weighted = model.fit(X, y, sample_weight=weight).predict(X)
    again = model.fit(np.repeat(X, weight, 0), np.repeat(y, weight)).predict(X)
    np.testing.assert_allclose(again, weighted, atol=1e-9)
    set_num_threads(1)
    first = model.fit(X, y).predict(X)
    set_num_threads(2)
    np.testing.assert_array_equal(model.fit(X, y).predict(X), first)


def test_files_of_models_and_of_rows(tmp_path):
    X, y, _ = make(100, 0.8)
    model = kg.KernelRegressor(**QUICK, monotonic_cst={0: 1}).fit(X, y)
    model.save(tmp_path / "model")
    loaded = kg.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.history_ == model.history_
    assert loaded.monotonic_cst == {0: 1}
    before = model.predict(X)
    model.set_params(warm_start=True).fit(X, y)  # the same function is changed again
    np.testing.assert_allclose(model.predict(X), before, atol=1e-3)
    model.set_params(monotonic_cst=None).fit(X, y)
    assert "monotonic" not in model.history_
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=y)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=50)
    rows = open_source(tmp_path / "rows.parquet", target="y")
    paged = kg.KernelRegressor(**QUICK, monotonic_cst={"a": 1}, memory_limit=1e3).fit(rows)
    fall = largest_fall(lambda Z: paged.predict(pd.DataFrame(Z, columns=list("abc"))), X, 0)
    assert fall < LIMIT
    session = pytest.importorskip("onnxruntime").InferenceSession
    found = session(loaded.to_onnx().SerializeToString()).run(None, {"X": X})[0]
    np.testing.assert_allclose(found.ravel(), loaded.predict(X), atol=1e-5)


def test_a_fit_without_rounds_is_told(monkeypatch):
    X, y, _ = make(100, 0.8)
    free = kg.KernelRegressor(**QUICK).fit(X, y)
    monkeypatch.setattr(_monotonic, "_ROUNDS", 0)
    model = kg.KernelRegressor(**QUICK, monotonic_cst=[1, 0, 0])
    with pytest.warns(ConvergenceWarning, match="breaks monotonic_cst along .* after 0 rounds"):
        model.fit(X, y)
    np.testing.assert_allclose(model.predict(X), free.predict(X))
    weightless = kg.KernelRegressor(**QUICK, metric=[0, 1, 1], monotonic_cst=[1, 0, 0])
    assert weightless.fit(X, y).history_["monotonic"]["largest_fall_before"] == 0  # no warning


@every(
    ("params", "error", "words"),
    [
        ({"monotonic_cst": [1, 0]}, ValueError, "shape .* 3 columns"),
        ({"monotonic_cst": [1, 0, 2]}, ValueError, "holds 2; give 1"),
        ({"monotonic_cst": [True, 0, 0]}, ValueError, "holds True"),
        ({"monotonic_cst": {3: 1}}, ValueError, "column 3, .* 0 to 2"),
        ({"monotonic_cst": {"a": 1}}, ValueError, "no names of columns"),
        ({"solver": "dsg"}, CapabilityError, "fits random features; take solver='auto'"),
        ({"memory_limit": 1.1e8}, CapabilityError, "needs at least"),
        ({"kernel": "precomputed", "solver": "direct"}, ValueError, "precomputed"),
    ],
)
def test_refusals(params, error, words, monkeypatch):
    X, y, _ = make(4000 if "memory_limit" in params else 30, 0.5)
    X = X @ X.T if "kernel" in params else X
    monkeypatch.setattr("kernelgrad.estimators.base.run", None)  # before any work
    with pytest.raises(error, match=words):
        kg.KernelRegressor(**{"monotonic_cst": {0: 1}, "alpha": 1e-3} | params).fit(X, y)


def test_other_refusals():
    X, y, _ = make(60, 0.5)
    with pytest.raises(ValueError, match="for two classes"):
        kg.KernelClassifier(monotonic_cst={0: 1}).fit(X, np.arange(60) % 3)
    with pytest.raises(ValueError, match="dense rows"):
        kg.KernelRegressor(monotonic_cst={0: 1}).fit(sp.csr_matrix(X), y)
    with pytest.raises(AttributeError, match="needs all rows at once"):
        kg.KernelRegressor(monotonic_cst={0: 1}).partial_fit(X, y)
