"""
Do intervals hold what they promise?
====================================

Of new rows, the share that lies in an interval should be its level. For a Gaussian process on
a smooth function with normal noise it is. Where the noise has long tails the middle intervals
are too wide, since the variance is that of the tails. The grey band is what chance does to
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
