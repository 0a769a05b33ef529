"""
The ratio of two densities
==========================

There are two samples, from a narrow normal distribution p and a wide one q. The ratio p/q is
estimated directly, without estimates of p or q, and shown next to the truth: orange where p is
larger, purple where q is larger. Far from all rows the estimate returns to 1, which is wrong
there.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import multivariate_normal

from kernelgrad import KernelDensityRatio

rng = np.random.default_rng(0)
p, q = multivariate_normal([1, 0], 0.5), multivariate_normal([0, 0], 1.5)
P, Q = p.rvs(800, rng), q.rvs(800, rng)
X, sample = np.r_[P, Q], np.repeat(["p", "q"], 800)
model = KernelDensityRatio(random_state=0).fit(X, sample == "p")

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
x0, x1 = (np.linspace(low, high, 100) for low, high in zip(X.min(0), X.max(0), strict=True))
grid = np.stack(np.meshgrid(x0, x1), axis=-1)
estimate = model.predict(grid.reshape(-1, 2)).reshape(100, 100)
maps = {"Estimate of p/q": estimate, "Truth": p.pdf(grid) / q.pdf(grid)}
for ax, (title, ratio) in zip((left, right), maps.items(), strict=True):
    shown = np.log2(np.clip(ratio, 1 / 64, 64))
    surface = ax.contourf(x0, x1, shown, levels=np.linspace(-6, 6, 25), cmap="PuOr_r")
    ax.contour(x0, x1, shown, levels=[0], colors="k", linewidths=1.2)
    ax.set_title(title)
for name, style in (("p", "w"), ("q", "k")):
    left.plot(*X[sample == name][::5].T, "o", color=style, ms=4, mec="k", label=name)
left.legend()
ticks = np.arange(-6, 7, 2)
fig.colorbar(surface, ax=right, label="p/q").set_ticks(
    ticks, labels=[f"$2^{{{k}}}$" for k in ticks]
)
plt.show()
