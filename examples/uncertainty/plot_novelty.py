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
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.svm import OneClassSVM

from kernelgrad import KernelNoveltyDetector

rng = np.random.default_rng(0)
moons, _ = make_moons(475, noise=0.08, random_state=0)
X = np.r_[moons, rng.uniform(-1.5, 2.5, (25, 2))]

fig, axes = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
models = (
    KernelNoveltyDetector(nu=0.1, gamma=4.0, random_state=0),
    OneClassSVM(nu=0.1, gamma=4.0),
)
for ax, model in zip(axes, models, strict=True):
    outside = model.fit(X).predict(X) == -1
    for how, look in (
        ("contourf", {"cmap": "PuOr", "levels": 20}),
        ("contour", {"levels": [0], "colors": "k"}),
    ):
        DecisionBoundaryDisplay.from_estimator(
            model, X, response_method="decision_function", plot_method=how, ax=ax, **look
        )
    ax.plot(*X[~outside].T, "wo", ms=4, mec="k", label="inside")
    ax.plot(*X[outside].T, "kX", ms=5, label="outlier")
    ax.legend()
    ax.set_title(f"{type(model).__name__}: {outside.mean():.1%} of the rows outside")
plt.show()
