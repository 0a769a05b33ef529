"""
Novelty detection
=================

The rows lie on two half-moons, and a twentieth of them is noise. The detector finds a region
that contains all but a fraction `nu` of the rows. scikit-learn's `OneClassSVM` with the same
bandwidth solves the same problem and finds nearly the same boundary, at a cost that grows with
the square of the number of rows, unlike that of the detector.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import OneClassSVM

from kernelgrad import KernelNoveltyDetector
from kernelgrad.plotting import ResponseMapDisplay

rng = np.random.default_rng(0)
moons, _ = make_moons(475, noise=0.08, random_state=0)
X = np.r_[moons, rng.uniform(-1.5, 2.5, (25, 2))]

fig, axes = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
models = (
    KernelNoveltyDetector(nu=0.1, gamma=4.0, random_state=0),
    OneClassSVM(nu=0.1, gamma=4.0),
)
for ax, model in zip(axes, models, strict=True):
    outside = (model.fit(X).predict(X) == -1).mean()
    ax.set_title(f"{type(model).__name__}: {outside:.1%} of the rows outside")
    ResponseMapDisplay.from_estimator(model, X, ax=ax)
plt.show()
