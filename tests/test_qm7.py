"""The QM7 benchmark: its rows, its averages, and that it runs."""

import importlib
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def dataset(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.datasets.qm7")


@pytest.fixture
def objective(dataset):
    return importlib.import_module("benchmarks.objectives.qm7")


@pytest.fixture
def archive(dataset):
    archives = importlib.import_module("benchmarks.datasets.archives")
    path = archives.data_folder() / "qm7.npz"
    if not path.exists():
        pytest.skip("the data folder is absent; set KERNELGRAD_DATA")
    return np.load(path)


def water_and_hydrogen(n_atoms=4):
    Z = np.zeros((2, n_atoms), np.uint8)
    Z[0, :3], Z[1, :2] = (1, 8, 1), (1, 1)
    R = np.zeros((2, n_atoms, 3), np.float32)
    R[0, 1], R[0, 2], R[1, 1] = (0, 0, 0.96), (0.93, 0, 1.2), (0.74, 0, 0)
    return Z, R


def coulomb_entry(Z, R, i, j):
    if i == j:
        return 0.5 * float(Z[i]) ** 2.4
    if Z[i] == 0 or Z[j] == 0:
        return 0.0
    angstrom = math.dist([float(a) for a in R[i]], [float(a) for a in R[j]])
    return float(Z[i]) * float(Z[j]) / (angstrom / 0.529177210903)


def test_coulomb_matrices_follow_the_formula(dataset):
    Z, R = water_and_hydrogen()
    C = dataset.coulomb_matrices(Z, R)
    for m, i, j in itertools.product(range(2), range(4), range(4)):
        assert C[m, i, j] == pytest.approx(coulomb_entry(Z[m], R[m], i, j), rel=1e-6)


def test_random_sorting_permutes_rows_and_columns_together(dataset):
    C = dataset.coulomb_matrices(*water_and_hydrogen())
    X = dataset.random_sorting(C, 6, 5.0, seed=1).reshape(2, 6, 10)
    possible = [
        {
            tuple(np.float32(c[np.ix_(order, order)][np.triu_indices(4)]))
            for order in itertools.permutations(range(4))
        }
        for c in C
    ]
    for m in range(2):
        found = {tuple(x) for x in X[m]}
        assert found <= possible[m]
        assert len(found) > 1
    again = dataset.random_sorting(C, 6, 5.0, seed=1).reshape(2, 6, 10)
    np.testing.assert_array_equal(again, X)
    assert (dataset.random_sorting(C, 6, 5.0, seed=2).reshape(2, 6, 10) != X).any()


def test_noise_decides_how_often_rows_change_places(dataset):
    # norms 3 and 2: they change places when the difference of two errors exceeds 1
    C = np.tile(np.diag([2.0, 3.0]), (4000, 1, 1))
    for noise in (0.5, 1.0):
        X = dataset.random_sorting(C, 1, noise, seed=0)
        swapped = np.mean(X[:, 0] == 2.0)
        expected = 0.5 * math.erfc(1 / (2 * noise))
        assert abs(swapped - expected) < 5 * math.sqrt(expected / 4000)


def test_without_noise_rows_are_sorted_as_in_the_archive(dataset, archive):
    C = dataset.coulomb_matrices(archive["Z_test"], archive["R_test"])
    X = dataset.random_sorting(C, 1, 0.0, seed=0)
    stored = archive["X_test"]
    np.testing.assert_allclose(np.sort(X, axis=1), np.sort(stored, axis=1), atol=1e-4)
    equal = np.abs(X - stored).max(axis=1) < 1e-4  # equal norms come in any order
    assert equal.mean() > 0.98


def test_soft_steps(dataset):
    x = np.array([[0.0, 2.0], [-1.0, 5.0]], np.float32)
    t = math.tanh
    expected = [
        [t(-1), t(0), t(0), t(1), t(1), t(2)],
        [t(-1.5), t(1.5), t(-0.5), t(2.5), t(0.5), t(3.5)],
    ]
    np.testing.assert_allclose(dataset.soft_steps(x, theta=2.0), expected, rtol=1e-6)


def test_errors_are_of_mean_predictions_in_kcal(objective):
    energies = objective.Energies(SimpleNamespace(y=np.array([-100.0, -300.0])))
    test = SimpleNamespace(y=np.array([-90.0, -250.0]))
    # standardised by mean -200 and deviation 100: means are -150 and -250
    mae, rmse = energies.errors(np.array([0.0, 1.0, -1.0, 0.0]), test)
    assert mae == pytest.approx(30.0)
    assert rmse == pytest.approx(math.sqrt(60**2 / 2))


def test_the_network_stops_at_its_time_limit(objective):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4)).astype(np.float32)
    y = X[:, 0]
    sizes = replace(objective.QUICK, epochs=(30, 20, 10))
    predict, notes = objective.fit_net(X, y, objective.Net(layers=(100,)), sizes, 0)
    assert notes == "60 of 60 epochs"
    assert np.mean((predict(X) - y) ** 2) < 0.1 * y.var()
    _, notes = objective.fit_net(X, y, objective.Net(), replace(sizes, mlp_seconds=0.0), 0)
    assert notes == "1 of 60 epochs in 0 s of processor time"


@pytest.fixture
def run(objective, tmp_path):
    runner = importlib.import_module("benchmarks.run")

    def call(*args):
        out = tmp_path / "result.json"
        assert runner.main(["qm7", *args, "--quick", "--json", str(out)]) == 0
        return json.loads(out.read_text()) if out.exists() else None

    return call


def test_comparison(run, archive):
    rows = run("--repeat", "2")["tables"]["energies in kcal/mol"]
    assert [row["rows"] for row in rows] == [300, 300, 100, 100, 100]
    spread = archive["y_test"][:100].std()
    for row in rows:
        assert row["min MAE"] <= row["MAE"] <= row["max MAE"]
        assert 0 < row["MAE"] <= row["RMSE"] < spread
        assert row["fit s"] > 0
    exact = [row for row in rows if row["method"].startswith("exact")]
    assert [row["min MAE"] == row["max MAE"] for row in exact] == [True, True]
    assert rows[0]["min MAE"] < rows[0]["max MAE"]  # other permutations, other features


def test_precomputed_distances_give_scikit_learns_ridge(objective, dataset):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)), rng.normal(size=60)
    every = dataset.Molecules(np.zeros((60, 2, 2)), X, y)
    part, held = objective.validation_split(every)
    assert sorted([*part.y, *held.y]) == sorted(y)
    energies = objective.Energies(part)
    for _, row in objective._tune_ridge(part, held):
        params = objective.Ridge(row["kernel"], row["bandwidth_factor"], row["alpha"])
        predict, _ = objective.fit_ridge(part.X_sorted, energies.y, params)
        expected = energies.errors(predict(held.X_sorted), held)
        assert (row["MAE"], row["RMSE"]) == pytest.approx(expected, rel=1e-4)


def test_absent_data_are_skipped_with_a_message(run, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KERNELGRAD_DATA", str(tmp_path))
    assert run() is None
    assert "qm7 skipped: there is no qm7.npz" in capsys.readouterr().out


def test_the_data_set_is_offered_to_other_objectives_but_not_by_default(dataset, archive):
    archives = importlib.import_module("benchmarks.objectives.time_to_error")
    assert not archives.DATASETS["qm7"].default
    data = archives.DATASETS["qm7"].load()
    np.testing.assert_array_equal(data.X_train, archive["X_train"])
    assert data.y_train.std() == pytest.approx(1.0)
    assert data.y_scale == pytest.approx(float(archive["y_train"].astype(float).std()))
