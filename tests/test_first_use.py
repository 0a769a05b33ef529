"""What a new user meets in the first hour, where no other test says it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, make_classification, make_friedman3
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import kernelgrad as kg
from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad.cli import main

slow = pytest.mark.slow


@pytest.mark.parametrize(("n", "seed"), [(500, 0), pytest.param(1000, 1, marks=slow)])
def test_the_search_wrecks_no_smooth_function(n, seed):
    X, y = make_friedman3(n, noise=0.1, random_state=0)
    X = StandardScaler().fit_transform(X)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=seed)
    assert KernelRegressor(random_state=0).fit(X, y).score(X_test, y_test) > 0.87


def test_noise_is_not_learned():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 5)), rng.integers(0, 2, 400)
    model = KernelClassifier(random_state=0).fit(X[:200], y[:200])
    assert log_loss(y[200:], model.predict_proba(X[200:])) < 0.72  # log 2 is 0.693


@slow
def test_maps_csv_files_units_and_forms_of_rows_hardly_matter(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:150], y[:150]
    expected = KernelRegressor(random_state=0).fit(X, y).predict(X)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = KernelRegressor(random_state=0).fit(mapped, y)
    np.testing.assert_array_equal(model.predict(X), expected)
    header = ",".join([*(f"x{j}" for j in range(10)), "y"])
    np.savetxt(tmp_path / "d.csv", np.c_[X, y], "%.17g", ",", header=header, comments="")
    path = str(tmp_path / "m.kgm")
    fit = ["fit", str(tmp_path / "d.csv"), "--target", "y", "--model", path]
    assert main([*fit, "--seed", "0", "--quiet"]) == 0
    np.testing.assert_allclose(kg.load(path).predict(kg.ArraySource(X)), expected, rtol=1e-6)
    X, y = make_classification(300, 10, n_informative=5, random_state=0)
    model = KernelClassifier(random_state=0)
    expected = model.fit(X, y).decision_function(X)
    X_scaled = X * np.where(np.arange(10) == 3, 1e6, 1.0)
    found = model.fit(X_scaled, y).decision_function(X_scaled)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    zeros = np.where(X > 0.5, X, 0.0)
    model = KernelClassifier(gamma=0.1, C=1.0, standardize=False, random_state=0)
    dense, rows = model.fit(zeros, y).decision_function(zeros), sp.csr_matrix(zeros)
    np.testing.assert_allclose(model.fit(rows, y).decision_function(rows), dense, atol=1e-4)
