"""
A kernel and boosted trees together
===================================

Boosted trees are no part of kernelgrad. scikit-learn's ``StackingRegressor`` combines both: a
ridge regression weighs what each predicts for rows that it was not fitted to. It gives the
error of the better model, whichever that is, up to a few per cent. It is not smaller than the
kernel's on these three functions, and costs four fits of each model instead of one; it is for
tables where both models are about equally good.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor, StackingRegressor
from sklearn.metrics import root_mean_squared_error

from kernelgrad import KernelRegressor


def smooth(n, random_state):
    return make_friedman1(n, noise=0.5, random_state=random_state)


def steps(n, random_state):
    rng = np.random.default_rng(random_state)
    X = rng.uniform(0, 1, (n, 10))
    level = np.floor(4 * X[:, 0]) * np.floor(3 * X[:, 1]) - 3 * (X[:, 2] + X[:, 3] > 1.2)
    return X, level + 0.5 * rng.standard_normal(n)


def both(n, random_state):
    X, y = make_friedman1(n, noise=0.5, random_state=random_state)
    Z, z = steps(n, random_state + 100)
    return np.hstack([X, Z]), y + z


models = {
    "kernel": KernelRegressor(random_state=0),
    "trees": HistGradientBoostingRegressor(random_state=0),
}
models["stack"] = StackingRegressor(list(models.items()), cv=3)
errors = {name: [] for name in models}
for task in (smooth, steps, both):
    X, y = task(500, 0)
    X_test, y_test = task(4000, 1)
    for name, model in models.items():
        errors[name].append(root_mean_squared_error(y_test, model.fit(X, y).predict(X_test)))

fig, ax = plt.subplots(layout="constrained")
for k, (name, values) in enumerate(errors.items()):
    bars = ax.bar(np.arange(3) + 0.27 * (k - 1), values, 0.25, label=name)
    ax.bar_label(bars, fmt="%.2f")
ax.set_xticks(range(3), ["smooth", "steps", "sum of both"])
ax.set_ylabel("Test root mean squared error")
ax.set_title("500 rows, a kernel, boosted trees and both")
ax.legend()
plt.show()
