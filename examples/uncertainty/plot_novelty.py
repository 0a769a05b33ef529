"""
Novelty detection
=================

Rows on two half-moons, a twentieth of them noise. The detector finds a region that holds all
but a fraction `nu` of the rows; scikit-learn's `OneClassSVM` with the same bandwidth solves
the same problem and draws nearly the same boundary. Its cost grows with the square of the
rows; the detector's does not.
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
