"""Models beside model files: skops, pipelines, and what the command line says of them."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import kernelgrad as kg
from kernelgrad.cli import main

RNG = np.random.default_rng(0)
X = RNG.random((40, 3))
Y = (X[:, 0] > 0.5).astype(int)
FRAME = pd.DataFrame(X, columns=list("uvw")).assign(c=["a", "b"] * 20)


@pytest.fixture(scope="module")
def models():
    marked = np.where(np.arange(40) % 3 > 0, Y, -1)
    options = {"gamma": 1.0, "max_iter": 3, "random_state": 0}
    return [
        kg.KernelClassifier(alpha=1e-2, gamma=1.0).fit(X, Y),
        kg.KernelRegressor(solver="dsg", alpha=1e-2, **options).fit(X, Y),
        kg.SemiSupervisedKernelClassifier(**options).fit(X, marked),
        kg.KernelNoveltyDetector(**options).fit(X),
        kg.KernelDensityRatio(**options).fit(X, Y),
        kg.KernelGaussianProcessRegressor(0.1, gamma=1.0).fit(X, Y),
        kg.LinearClassifier().fit(X, Y),
        kg.LinearRegressor().fit(FRAME, Y),
        kg.KernelRegressor(alpha=1e-2, gamma=1.0).fit(csr_array(X), Y),
        kg.RandomFeatures(n_components=16).fit(X),
    ]


def test_skops_asks_for_listed_types(models):
    sio = pytest.importorskip("skops.io")
    foreign = [name for name in kg.SKOPS_TYPES if not name.startswith("kernelgrad.")]
    rows = "scipy.sparse._csr.csr_"
    assert foreign == ["numpy.dtype", f"{rows}array", f"{rows}matrix"]
    for model in models:
        again = sio.loads(sio.dumps(model), trusted=kg.SKOPS_TYPES)
        method = "transform" if hasattr(model, "transform") else "predict"
        rows = FRAME if hasattr(model, "feature_names_in_") else X
        assert np.array_equal(getattr(again, method)(rows), getattr(model, method)(rows))


def test_the_command_line_inspects_random_features(models, tmp_path, capsys):
    path = str(tmp_path / "m.kgm")
    models[-1].save(path)
    assert main(["inspect", path]) == 0
    assert re.search(r"^written by +kernelgrad \d", capsys.readouterr().out, re.M)
    for command in (["inspect", "--importances"], ["score", path]):
        assert main([*command, path]) == 1
        assert "RandomFeatures, which the command line only" in capsys.readouterr().err
    again = kg.load(path)
    np.testing.assert_array_equal(again.transform(X), models[-1].transform(X))
    assert again.model_info() == models[-1].model_info()
