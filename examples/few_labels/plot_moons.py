"""
Ten labels and five hundred rows without
========================================

Two half-moons have five labels each. The boundary of a classifier that uses the labelled rows
only cuts into them. The default of `SemiSupervisedKernelClassifier` is conservative: ten labels
say little of what suits the other rows, and it hardly moves the boundary. The transductive
machine `"s3vm_light"` places it where there are no rows: it assumes that classes are separated
by gaps, which holds here.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.inspection import DecisionBoundaryDisplay

from kernelgrad import KernelClassifier, SemiSupervisedKernelClassifier

X, y = make_moons(500, noise=0.1, random_state=0)
labelled = np.r_[np.flatnonzero(y == 0)[:5], np.flatnonzero(y == 1)[:5]]
marked = np.full(500, -1)
marked[labelled] = y[labelled]

models = {
    "labels alone": KernelClassifier().fit(X[labelled], y[labelled]),
    "the default": SemiSupervisedKernelClassifier().fit(X, marked),
    '"s3vm_light"': SemiSupervisedKernelClassifier(solver="s3vm_light", gamma=3.0).fit(
        X, marked
    ),
}

fig, axes = plt.subplots(1, 3, figsize=(12, 3.8), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    ax.set_title(f"{name}: error {1 - model.score(X, y):.3f}")
    DecisionBoundaryDisplay.from_estimator(
        model, X, response_method="predict", cmap="PuOr_r", alpha=0.4, ax=ax
    )
    ax.plot(*X.T, ".", color="0.4", ms=3)
    for k, style in enumerate(("o", "s")):
        at = marked == k
        ax.plot(*X[at].T, style, color=("#542788", "#E69F00")[k], ms=9, mec="k")
plt.show()
