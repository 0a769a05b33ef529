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
from sklearn.datasets import make_friedman1

from kernelgrad import KernelGaussianProcessRegressor
from kernelgrad.plotting import IntervalCoverageDisplay

rng = np.random.default_rng(0)
X, f = make_friedman1(1600, random_state=0)
noises = {
    "normal noise": rng.standard_normal(1600),
    "noise with long tails": rng.standard_t(2, 1600),
}

ax = None
for name, noise in noises.items():
    y = f + noise
    model = KernelGaussianProcessRegressor(random_state=0).fit(X[:600], y[:600])
    display = IntervalCoverageDisplay.from_estimator(model, X[600:], y[600:], ax=ax, name=name)
    ax = display.ax_
plt.show()
