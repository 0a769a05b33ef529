"""
A Gaussian process and its interval
===================================

`KernelGaussianProcessRegressor` finds the bandwidth and the signal and noise variances by
maximum marginal likelihood, like scikit-learn's `GaussianProcessRegressor` with a kernel that
includes a `WhiteKernel`. On the same rows both give the same mean and the same interval, which
is wide where there are no rows and has the width of the noise where there are many.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from kernelgrad import KernelGaussianProcessRegressor

rng = np.random.default_rng(0)
X = np.sort(np.r_[rng.uniform(0, 4, 40), rng.uniform(7, 10, 20)])[:, None]
y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(60)

ours = KernelGaussianProcessRegressor(kernel="rbf", random_state=0).fit(X, y)
kernel = ConstantKernel() * RBF() + WhiteKernel()
theirs = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(X, y)

x = np.linspace(-0.5, 10.5, 300)
fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
for ax, model in zip(axes, (ours, theirs), strict=True):
    noise = {"include_noise": True} if model is ours else {}  # theirs has it in the kernel
    mean, std = model.predict(x[:, None], return_std=True, **noise)
    ax.plot(X, y, ".", color="0.4", ms=4)
    ax.plot(x, mean, color="#0072B2", label="mean")
    low, high = mean - 1.96 * std, mean + 1.96 * std
    ax.fill_between(x, low, high, color="#0072B2", alpha=0.25, label="95 % interval")
    ax.set_title(type(model).__name__)
    ax.set_xlabel("x0")
    ax.legend()
axes[0].set_ylabel("Mean and interval (unit of y)")
plt.show()
