"""
Covariate shift
===============

Most training rows lie at the left, the rows to predict at the right. A straight line fits the
left part well and the right part badly. The density ratio, which is estimated without
targets, gives the training rows weights that are large where predictions are needed, and the
weighted line fits the right part. A kernel fits both parts and needs no weights.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import KernelDensityRatio, KernelRegressor, LinearRegressor

rng = np.random.default_rng(0)


def target(X):
    return np.sin(X[:, 0]) + 0.1 * rng.standard_normal(len(X))


X = rng.normal(0.5, 1.0, (300, 1))
X_new = rng.normal(2.2, 0.5, (300, 1))
y, y_new = target(X), target(X_new)
weight = KernelDensityRatio(random_state=0).fit(X_new, denominator=X).predict(X)

lines = LinearRegressor(alpha=1e-4, random_state=0)
grid = np.linspace(-2, 4, 200)[:, None]
fig, ax = plt.subplots(layout="constrained")
ax.scatter(X, y, s=4 + 12 * weight, color="0.5", label="training rows, by weight")
ax.plot(X_new, y_new, "+", color="#E69F00", alpha=0.5, label="rows to predict")
fits = {
    "line": lines.fit(X, y).predict,
    "kernel": KernelRegressor(random_state=0).fit(X, y).predict,
}
weighted = LinearRegressor(alpha=1e-4, random_state=0).fit(X, y, sample_weight=weight)
fits["weighted line"] = weighted.predict
for (name, predict), style in zip(fits.items(), ("-", "--", "-."), strict=True):
    error = np.sqrt(np.mean((predict(X_new) - y_new) ** 2))
    ax.plot(grid, predict(grid), style, label=f"{name}: error on the new rows {error:.2f}")
ax.set_ylim(-1.6, 4.4)
ax.set_xlabel("x")
ax.set_ylabel("y")
ax.set_title("Training rows weighted by a density ratio")
ax.legend(loc="upper left")
plt.show()
