"""
Losses of regression, with outliers
===================================

A tenth of the targets are outliers, all of them too large. They distort the fit of the squared
loss, but hardly those of the Huber and the absolute loss, whose gradients are bounded. The
squared loss, the default, suits errors without such outliers.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import KernelRegressor

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 10, 300))[:, None]
truth = np.sin(X[:, 0])
y = truth + 0.2 * rng.standard_normal(300)
far = rng.random(300) < 0.1
y[far] += rng.uniform(2, 6, far.sum())

fig, ax = plt.subplots(layout="constrained")
ax.plot(X, y, ".", color="0.6", label="rows")
ax.plot(X, truth, "k:", label="truth")
for loss, style in zip(("squared", "huber", "absolute"), ("-", "--", "-."), strict=True):
    model = KernelRegressor(loss, gamma=0.3, alpha=1e-3, random_state=0).fit(X, y)
    fit = model.predict(X)
    error = np.sqrt(np.mean((fit - truth) ** 2))
    ax.plot(X, fit, style, label=f"{loss}: error to the truth {error:.2f}")
ax.set_ylim(-1.7, 5)
ax.set_xlabel("x")
ax.set_ylabel("y")
ax.set_title("Ten per cent of the targets are outliers")
fig.legend(loc="outside lower center", ncols=2)
plt.show()
