"""
Coverage of intervals
=====================

The share of new rows inside an interval should equal its level. This holds for a Gaussian
process on a smooth function with normal noise. If the noise has long tails, which determine its
variance, intervals of medium level are too wide. The grey band shows the random variation of
exact intervals.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtri
from sklearn.datasets import make_friedman1

from kernelgrad import KernelGaussianProcessRegressor

rng = np.random.default_rng(0)
X, f = make_friedman1(1600, random_state=0)
noises = {
    "normal noise": rng.standard_normal(1600),
    "noise with long tails": rng.standard_t(2, 1600),
}

level = np.linspace(0, 1, 101)[1:-1]
error = 2 * np.sqrt(level * (1 - level) / 1000)  # two standard errors of 1,000 rows
fig, ax = plt.subplots(layout="constrained")
ax.plot(level, level, ":", color="0.5", label="exact")
ax.fill_between(level, level - error, level + error, color="0.5", alpha=0.2)
for name, noise in noises.items():
    y = f + noise
    model = KernelGaussianProcessRegressor(random_state=0).fit(X[:600], y[:600])
    mean, std = model.predict(X[600:], return_std=True, include_noise=True)
    inside = np.abs(y[600:] - mean) <= ndtri(0.5 + level[:, None] / 2) * std
    ax.plot(level, inside.mean(axis=1), label=name)
ax.set(title="Coverage of the intervals", aspect="equal")
ax.set(xlabel="Level of the interval", ylabel="Share of rows inside")
ax.legend()
plt.show()
