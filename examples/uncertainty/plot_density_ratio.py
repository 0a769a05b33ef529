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
from kernelgrad.plotting import ResponseMapDisplay

rng = np.random.default_rng(0)
p, q = multivariate_normal([1, 0], 0.5), multivariate_normal([0, 0], 1.5)
P, Q = p.rvs(800, rng), q.rvs(800, rng)
X, sample = np.r_[P, Q], np.repeat(["p", "q"], 800)
model = KernelDensityRatio(random_state=0).fit(X, sample == "p")

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
left.set_title("Estimate of p/q")
display = ResponseMapDisplay.from_estimator(model, X[::5], sample[::5] == "p", ax=left)
right.set_title("Truth")
grid = np.stack(np.meshgrid(display.x0, display.x1), axis=-1)
truth = p.pdf(grid) / q.pdf(grid)
ResponseMapDisplay(x0=display.x0, x1=display.x1, response=truth, kind="ratio").plot(right)
plt.show()
