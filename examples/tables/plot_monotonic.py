"""
A response that rises in a column
=================================

Prices of houses rise with the living area, but a function that is fitted to 150 noisy prices
with a narrow kernel need not. With ``monotonic_cst`` it does: the fitted function is changed as
little as possible, until no curve falls on which the area of a house runs over its range. The
picture shows such curves for twelve ages; the constraint lowers the error, too.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from kernelgrad import KernelRegressor

rng = np.random.default_rng(1)


def make(n):
    X = pd.DataFrame({"area": rng.gamma(6, 20, n).clip(30, 300), "age": rng.uniform(0, 80, n)})
    return X, 60 + 250 * np.tanh(X["area"] / 120) - 60 * np.sin(X["age"] / 25)


X, price = make(150)
y = price + 70 * rng.standard_normal(150)
X_new, price_new = make(1000)
area = np.linspace(X["area"].min(), X["area"].max(), 80)

fig, axes = plt.subplots(1, 2, sharey=True, figsize=(8, 3.6), layout="constrained")
for ax, constraint in zip(axes, (None, {"area": 1}), strict=True):
    model = KernelRegressor(
        kernel="rbf",
        gamma=1.0,
        alpha=2e-3,
        standardize=True,
        monotonic_cst=constraint,
        random_state=0,
    ).fit(X, y)
    for age in np.linspace(0, 80, 12):
        curve = model.predict(pd.DataFrame({"area": area, "age": age}))
        ax.plot(area, curve, color=plt.cm.viridis(age / 80), lw=1)
    ax.plot(X["area"], y, "k.", ms=2, alpha=0.4)
    error = np.sqrt(np.mean((model.predict(X_new) - price_new) ** 2))
    ax.set_title(f"{constraint or 'no constraint'}: error {error:.0f}")
    ax.set_xlabel("Living area")
axes[0].set_ylabel("Price in thousands; one curve an age")
plt.show()
