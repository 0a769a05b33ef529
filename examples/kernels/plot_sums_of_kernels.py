"""
Sums and products of kernels
============================

The function is a trend plus a wave, and training rows cover its left half. A narrow Gaussian
kernel follows both, but returns to the mean where there are no rows. Its sum with a linear
kernel extrapolates the trend. No kernel of distances in time extrapolates the wave; this takes
columns for the phase, as in the last panel.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import KernelRegressor
from kernelgrad.kernels import Gaussian, Polynomial

rng = np.random.default_rng(0)
t = np.linspace(0, 12, 400)
truth = 0.4 * t + np.sin(2 * np.pi * t)
seen = np.sort(rng.choice(200, 80, replace=False))
y = truth[seen] + 0.2 * rng.standard_normal(80)

line, wave = Polynomial(degree=1), Gaussian(gamma=10.0)
rows = {
    "Gaussian(10)": (wave, t[:, None]),
    "Polynomial(1) + Gaussian(10)": (line + wave, t[:, None]),
    "Polynomial(1) of the time + Gaussian(1) of the phase": (
        # time hardly counts in distances, and the linear kernel makes up for that
        Polynomial(degree=1, gamma=1e4) + Gaussian(gamma=1.0),
        np.stack([0.01 * t, np.sin(2 * np.pi * t), np.cos(2 * np.pi * t)], axis=1),
    ),
}

fig, axes = plt.subplots(3, 1, figsize=(7, 6), sharex=True, layout="constrained")
for ax, (name, (kernel, X)) in zip(axes, rows.items(), strict=True):
    model = KernelRegressor(kernel=kernel, alpha=1e-3, random_state=0).fit(X[seen], y)
    ax.plot(t, truth, ":", color="0.5", label="truth")
    ax.plot(t[seen], y, "k.", ms=3, label="rows")
    ax.plot(t, model.predict(X), label="fit")
    ax.set_title(name)
    ax.set_ylabel("y")
axes[0].legend(loc="upper left", ncols=3)
axes[-1].set_xlabel("Time")
plt.show()
