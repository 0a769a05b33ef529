"""
The rate of doubly stochastic gradients
=======================================

Dai et al. (2014) prove that the squared distance to the minimum decreases like 1/t. `DSG.paper`
is exactly their algorithm; the distance to the minimum found by the exact solver is measured on
new rows. With one row and one random feature per iteration the distance increases in the first
hundreds of iterations; batches and blocks reduce the constant. The dotted line has the slope of
the theorem.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import DSG, KernelRegressor

rng = np.random.default_rng(0)
X = rng.standard_normal((2000, 2))
y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(2000)
X_new = rng.standard_normal((1000, 2))

nu = 0.05  # the penalty
options = {"kernel": "rbf", "gamma": 0.5, "alpha": nu, "fit_intercept": False}
options |= {"metric": None, "standardize": False, "random_state": 0}
minimum = KernelRegressor(solver="direct", **options).fit(X, y).predict(X_new)

fig, ax = plt.subplots(layout="constrained")
for size, offset, style in ((1, 50, "-"), (8, 50, "--"), (64, 10, "-.")):
    paper = DSG.paper(nu=nu, sigma=1.0, offset=offset, batch_size=size, block_size=size)
    model = KernelRegressor(**paper, random_state=0, max_iter=600)
    history = model.fit(X, y, X_val=X_new, y_val=minimum).history_
    distance = (1 - np.array(history["validation_score"])) * minimum.var()
    ax.loglog(history["iteration"], distance, style, label=f"batches and blocks of {size}")
t = np.array([10, 600])
ax.loglog(t, 0.5 / t, "k:", label="1/t")
ax.set_xlabel("Iteration t")
ax.set_ylabel("Mean squared distance to the minimum")
ax.set_title("Doubly stochastic gradients, as in the paper")
ax.legend()
plt.show()
