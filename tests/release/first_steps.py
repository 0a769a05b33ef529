"""The first steps with an installed package, for environments that hold nothing else of it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

import kernelgrad

HERE = Path(sys.prefix).resolve()
PACKAGE = Path(kernelgrad.__file__).resolve().parent
assert HERE in PACKAGE.parents, f"{PACKAGE} is not in {HERE}"
assert (PACKAGE / "py.typed").exists()

X, y = load_iris(return_X_y=True)
model = kernelgrad.KernelClassifier(random_state=0).fit(X, y)
assert model.score(X, y) > 0.95
path = HERE / "model.kgm"
model.save(path)
assert np.array_equal(kernelgrad.load(path).predict_proba(X), model.predict_proba(X))

command = str(Path(sys.executable).parent / "kernelgrad")
told = subprocess.run([command, "inspect", str(path)], capture_output=True, text=True)
assert told.returncode == 0, told.stderr
assert "KernelClassifier" in told.stdout
print(f"kernelgrad {kernelgrad.__version__} of {PACKAGE}: fitted, saved and loaded")
