"""
Kernels and boosted trees
=========================

The example has a task for each method. On a smooth function of ten columns a kernel with
learned weights has a smaller error with 150 rows than gradient boosting with 500. On a function
with steps, like tariffs, trees need fewer rows and seconds to the same error; with 500 rows the
error of the kernel is smaller, but its fit takes more than ten times as long.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.metrics import root_mean_squared_error

from kernelgrad import KernelRegressor


def steps(n, random_state):
    rng = np.random.default_rng(random_state)
    X = rng.uniform(0, 1, (n, 10))
    level = np.where(X[:, 0] > 0.5, 3.0, 0.0) + np.where(X[:, 1] + X[:, 2] > 1, 2.0, 0.0)
    return X, level * np.where(X[:, 3] > 0.8, 2.0, 1.0) + 0.1 * rng.standard_normal(n)


def smooth(n, random_state):
    return make_friedman1(n, noise=0.5, random_state=random_state)


fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, task in zip(axes, (smooth, steps), strict=True):
    X, y = task(500, 0)
    X_test, y_test = task(2000, 1)
    for model in (KernelRegressor(random_state=0), GradientBoostingRegressor(random_state=0)):
        model.fit(X[:50], y[:50])  # loads and compiles loops
        seconds, errors = [], []
        for n in (50, 150, 500):
            start = time.perf_counter()
            model.fit(X[:n], y[:n])
            seconds.append(time.perf_counter() - start)
            errors.append(root_mean_squared_error(y_test, model.predict(X_test)))
        ax.semilogx(seconds, errors, "o-", label=type(model).__name__)
    ax.set(
        title=f"{task.__name__} function, 500 rows at most",
        xlabel="Seconds of the fit",
        ylabel="Test root mean squared error",
    )
    ax.xaxis.set_minor_formatter("")  # its labels would overlap
    ax.legend()
plt.show()
