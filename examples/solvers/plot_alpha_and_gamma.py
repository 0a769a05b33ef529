"""
Penalty and bandwidth
=====================

The picture shows the error on a grid of `alpha`, the weight of the penalty, and `gamma`, the
inverse squared bandwidth. It has one flat valley: a smaller `gamma` needs a smaller `alpha`.
The star marks the choice of the fit, which uses leave-one-out errors of the training rows and
takes a fraction of the time of the grid.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

from kernelgrad import KernelRegressor

X, y = make_friedman1(200, n_features=5, noise=1.0, random_state=0)
X_test, y_test = make_friedman1(1000, n_features=5, noise=1.0, random_state=1)


def error(model):
    return np.sqrt(np.mean((model.fit(X, y).predict(X_test) - y_test) ** 2))


alphas, gammas = np.logspace(-7, 0, 15), np.logspace(-2, 1.5, 15)
errors = np.array(
    [[error(KernelRegressor(alpha=a, gamma=g, random_state=0)) for g in gammas] for a in alphas]
)
found = KernelRegressor("squared", "rbf", metric=None, standardize=False, random_state=0)
print(f"error of the search: {error(found):.3f}, least of the grid: {errors.min():.3f}")

fig, ax = plt.subplots(layout="constrained")
surface = ax.contourf(gammas, alphas, np.minimum(errors, 4), levels=20, cmap="viridis_r")
fig.colorbar(surface, label="Test root mean squared error (unit of y)")
ax.plot(found.kernel_.gamma, found.alpha_, "w*", ms=16, mec="k", label="found by the fit")
ax.set_xscale("log")
ax.set_yscale("log")
ax.set_xlabel("gamma")
ax.set_ylabel("alpha")
ax.set_title("Gaussian kernel on 200 rows")
ax.legend()
plt.show()
