"""The molecules of QM7: their rows, and the averages of predictions."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.datasets import archives
from benchmarks.datasets import qm7 as dataset
from experiments.dsg import figure7_4 as experiment


@pytest.fixture
def archive():
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


def test_coulomb_matrices_follow_the_formula():
    Z, R = water_and_hydrogen()
    C = dataset.coulomb_matrices(Z, R)
    for m, i, j in itertools.product(range(2), range(4), range(4)):
        assert C[m, i, j] == pytest.approx(coulomb_entry(Z[m], R[m], i, j), rel=1e-6)


def test_random_sorting_permutes_rows_and_columns_together():
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
    np.testing.assert_array_equal(dataset.random_sorting(C, 6, 5.0, seed=1), X.reshape(12, -1))
    assert (dataset.random_sorting(C, 6, 5.0, seed=2) != X.reshape(12, -1)).any()


def test_without_noise_rows_are_sorted_as_in_the_archive(archive):
    C = dataset.coulomb_matrices(archive["Z_test"], archive["R_test"])
    X = dataset.random_sorting(C, 1, 0.0, seed=0)
    stored = archive["X_test"]
    np.testing.assert_allclose(np.sort(X, axis=1), np.sort(stored, axis=1), atol=1e-4)
    equal = np.abs(X - stored).max(axis=1) < 1e-4  # equal norms come in any order
    assert equal.mean() > 0.98


def test_errors_are_of_mean_predictions_in_kcal():
    energies = experiment.Energies(SimpleNamespace(y=np.array([-100.0, -300.0])))
    test = SimpleNamespace(y=np.array([-90.0, -250.0]))
    # standardised by mean -200 and deviation 100: means are -150 and -250
    assert energies.error(np.array([0.0, 1.0, -1.0, 0.0]), test) == pytest.approx(30.0)
