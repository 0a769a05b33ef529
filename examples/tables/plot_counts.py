"""
Counts and rates
================

The example predicts claims per year for contracts of different durations. The Poisson loss
models the logarithm of the rate, with the years as weights: predictions are positive, and short
contracts have little weight. With the squared loss on the same rates, predictions may reach 0,
and their relative error is larger where rates are small.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import KernelRegressor

rng = np.random.default_rng(0)
age = rng.uniform(18, 80, 800)
years = rng.uniform(0.1, 3, 800)


def rate_at(age):
    return 0.05 + 3.0 * np.exp(-(age - 18) / 6) + 0.3 / (1 + np.exp(-(age - 70) / 3))


claims = rng.poisson(rate_at(age) * years)
models = {
    loss: KernelRegressor(loss, random_state=0).fit(
        age[:, None], claims / years, sample_weight=years
    )
    for loss in ("poisson", "squared")
}

grid = np.linspace(18, 80, 300)
fig, ax = plt.subplots(layout="constrained")
ax.plot(grid, rate_at(grid), color="0.6", lw=4, label="true rate")
for loss, model in models.items():
    found = model.predict(grid[:, None])
    error = np.mean(np.abs(found / rate_at(grid) - 1))
    ax.semilogy(grid, found, label=f'loss="{loss}", mean error {error:.0%}')
ax.set_xlabel("Age of the driver in years")
ax.set_ylabel("Claims per year")
ax.set_title("800 contracts")
ax.legend()
plt.show()
