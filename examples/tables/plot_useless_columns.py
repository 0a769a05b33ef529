"""
Useless columns
===============

Distances in many useless columns hide those in the few useful ones. With equal weights of the
columns a kernel becomes worse than gradient boosting when 15 useless columns are added; with
learned weights, the default, its error hardly changes. Trees choose columns too, but their
error on this smooth function is larger for any number of columns.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import GradientBoostingRegressor

from kernelgrad import KernelRegressor

models = {
    "learned weights (default)": KernelRegressor(random_state=0),
    "equal weights (metric=None)": KernelRegressor(metric=None, random_state=0),
    "GradientBoostingRegressor": GradientBoostingRegressor(random_state=0),
}
useless = np.array([0, 5, 10, 15])
errors = {name: [] for name in models}
for more in useless:
    X, y = make_friedman1(300, n_features=5 + more, random_state=0)
    X_test, y_test = make_friedman1(1000, n_features=5 + more, random_state=1)
    for name, model in models.items():
        residuals = model.fit(X, y).predict(X_test) - y_test
        errors[name].append(np.sqrt(np.mean(residuals**2)))

fig, ax = plt.subplots(layout="constrained")
for (name, values), style in zip(errors.items(), ("o-", "s--", "^:"), strict=True):
    ax.plot(useless, values, style, label=name)
ax.set_xlabel("Useless columns beside five that count")
ax.set_ylabel("Test root mean squared error (unit of y)")
ax.set_title("friedman1, 300 rows")
ax.set_ylim(0, None)
ax.legend()
plt.show()
