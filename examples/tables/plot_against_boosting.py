"""
Kernels and boosted trees
=========================

The example has one task for each method. On a smooth function of ten columns, a kernel with
learned weights has a smaller error than gradient boosting for the same time. On a function with
steps, like tariffs, trees are better: the error of the kernel is larger for any time.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import GradientBoostingRegressor

from kernelgrad import KernelRegressor
from kernelgrad.plotting import ErrorTimeDisplay


def steps(n, random_state):
    rng = np.random.default_rng(random_state)
    X = rng.uniform(0, 1, (n, 10))
    level = np.where(X[:, 0] > 0.5, 3.0, 0.0) + np.where(X[:, 1] + X[:, 2] > 1, 2.0, 0.0)
    return X, level * np.where(X[:, 3] > 0.8, 2.0, 1.0) + 0.1 * rng.standard_normal(n)


def smooth(n, random_state):
    return make_friedman1(n, noise=0.5, random_state=random_state)


fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, task in zip(axes, (smooth, steps), strict=True):
    ax.set_title(f"{task.__name__} function, 500 rows at most")
    X, y = task(500, 0)
    X_test, y_test = task(2000, 1)
    for model in (
        KernelRegressor(random_state=0),
        GradientBoostingRegressor(random_state=0),
    ):
        ErrorTimeDisplay.from_estimator(model, X, y, X_test=X_test, y_test=y_test, ax=ax)
plt.show()
