"""
Why is this flat so dear?
=========================

Shapley values divide the difference between a prediction and the mean prediction among the
columns. Area and town made the rents of this table, and Bonn is dear for large flats above all;
the floor and three columns of noise do nothing. Categories are one column.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from kernelgrad import KernelRegressor
from kernelgrad.plotting import ExplanationDisplay

rng = np.random.default_rng(0)
n = 400
flats = pd.DataFrame(
    {
        "area": rng.uniform(20, 150, n).round(1),
        "town": rng.choice(["Ulm", "Bonn", "Kiel"], n),
        "balcony": rng.integers(0, 2, n),
        "floor": rng.integers(0, 9, n),
        **{f"noise{k}": rng.standard_normal(n) for k in range(3)},
    }
)
rent = 8 * flats["area"] * np.where(flats["town"] == "Bonn", 1.5, 1.0)
rent += 60 * flats["balcony"] - 80 * (flats["town"] == "Kiel") + 30 * rng.standard_normal(n)
model = KernelRegressor(random_state=0).fit(flats, rent)
print(model.summary())

dearest = flats.iloc[[int(np.argmax(model.predict(flats)))]]
ExplanationDisplay.from_estimator(model, dearest)
ExplanationDisplay.from_estimator(model, flats)

# %%
# The contribution of the area has two slopes, since it is dearer in Bonn. All other differences
# between flats of one size, such as balconies, count for little here.
ExplanationDisplay.from_estimator(model, flats, feature="area")
plt.show()
