"""
Quantiles where the noise grows
===============================

The noise increases from left to right. One fit of three quantiles follows it, and its curves
never cross. A Gaussian process assumes the same noise variance for all rows: its interval is
too wide at the left and too narrow at the right, although it contains the right share of all
rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import KernelGaussianProcessRegressor, KernelRegressor
from kernelgrad.losses import Quantile

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 1, 400))[:, None]
y = np.sin(6 * X[:, 0]) + 0.7 * X[:, 0] * rng.standard_normal(400)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
model = KernelRegressor(Quantile((0.05, 0.5, 0.95)), gamma=3.0, alpha=1e-3, random_state=0)
low, median, high = model.fit(X, y).predict(X).T
left.plot(X, y, ".", color="0.4", ms=4)
left.plot(X, median, color="#0072B2", label="median")
left.fill_between(X[:, 0], low, high, color="#0072B2", alpha=0.25, label="5 % to 95 %")
left.set_title(f"Quantiles: {np.mean((low <= y) & (y <= high)):.0%} of the rows inside")
left.set_xlabel("x0")
left.set_ylabel("Quantiles (unit of y)")
left.legend()

process = KernelGaussianProcessRegressor(random_state=0).fit(X, y)
mean, std = process.predict(X, return_std=True, include_noise=True)
right.plot(X, y, ".", color="0.4", ms=4)
right.plot(X, mean, color="#0072B2", label="mean")
low, high = mean - 1.645 * std, mean + 1.645 * std
right.fill_between(X[:, 0], low, high, color="#0072B2", alpha=0.25, label="90 % interval")
right.set_xlabel("x0")
right.legend()
right.set_title(f"Gaussian process: {np.mean(np.abs(y - mean) < 1.645 * std):.0%} inside")
plt.show()
