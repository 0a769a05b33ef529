"""
The bandwidth of a kernel
=========================

A function of one column is fitted with three values of `gamma`, the inverse squared bandwidth
of the kernel. With too small a value the fit cannot follow the curve, with too large a value it
follows the noise; the default finds a value in between. All three fits minimise their objective
exactly, so only the kernel differs.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import KernelRegressor

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 10, 120))[:, None]
grid = np.linspace(0, 10, 500)[:, None]


def truth(X):
    return np.sin(X[:, 0] ** 1.4)


y = truth(X) + 0.3 * rng.standard_normal(120)

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
for ax, gamma, title in zip(
    axes, (0.05, "auto", 50.0), ("too wide", "found by default", "too narrow"), strict=True
):
    # the penalty is the default's in all three panels
    alpha = "auto" if gamma == "auto" else 1e-3
    model = KernelRegressor(gamma=gamma, alpha=alpha, random_state=0).fit(X, y)
    error = np.sqrt(np.mean((model.predict(grid) - truth(grid)) ** 2))
    ax.plot(X, y, ".", color="0.6", label="rows")
    ax.plot(grid, truth(grid), "--", color="k", label="truth")
    ax.plot(grid, model.predict(grid), color="C0", label="fit")
    ax.set_title(f"gamma={gamma}: {title}\nerror to the truth {error:.2f}")
    ax.set_xlabel("x")
axes[0].set_ylabel("y")
axes[0].legend(loc="lower left")
plt.show()
