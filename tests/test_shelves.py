"""The core alone is imported by a default fit; optional rooms and papers load by name."""

import json
import subprocess
import sys

import pytest

from kernelgrad import estimators, kernels, losses, solvers

OPTIONAL = {
    "linear", "special_kernels", "device", "cluster", "onnx", "plotting", "testing", "cli",
    "papers",
}  # fmt: skip
FIT = """
import json, sys
import numpy as np
import sklearn.base
others = set(sys.modules)  # scikit-learn imports pandas, which imports pyarrow
import kernelgrad
bare = set(sys.modules)
from kernelgrad import KernelClassifier, KernelRegressor
X = np.random.default_rng(0).normal(size=(30, 3))
KernelRegressor(random_state=0).fit(X, X[:, 0]).predict(X)
model = KernelClassifier(random_state=0).fit(X, X[:, 0] > 0)
model.save(sys.argv[1])
kernelgrad.load(sys.argv[1]).predict_proba(X)
rooms = [sorted({m.split(".")[1] for m in modules if m.startswith("kernelgrad.")})
         for modules in (bare, sys.modules)]
heavy = {"dask", "distributed", "matplotlib", "numba", "onnx", "pandas", "pyarrow", "torch"}
heavy &= set(sys.modules) - others
print(json.dumps([*rooms, sorted(heavy)]))
"""


def test_a_default_fit_imports_the_core_only(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FIT, str(tmp_path / "model.kgm")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    bare, fitted, heavy = json.loads(done.stdout)
    assert bare == ["registry", "version"]
    assert OPTIONAL & set(fitted) == set()
    assert heavy == []


@pytest.mark.parametrize(
    ("module", "registry"),
    [
        (kernels, kernels.KERNELS), (estimators, estimators.ESTIMATORS),
        (losses, losses.LOSSES), (losses, losses.UNLABELLED_LOSSES),
        (solvers, solvers.SOLVERS), (solvers, solvers.LINEAR_SOLVERS),
    ],
)  # fmt: skip
def test_parts_are_registered_under_their_names_and_offered_by_modules(module, registry):
    for name, cls in registry.items():
        assert name == getattr(cls, "name", cls.__name__)
        assert getattr(module, cls.__name__) is cls
        assert cls.__name__ in dir(module)


def test_an_unknown_name_of_a_lazy_module_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'kernelgrad.solvers' has no attribute 'SDCB'"):
        solvers.SDCB  # noqa: B018
