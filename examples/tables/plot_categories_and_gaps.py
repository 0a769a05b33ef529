"""
Categories, dates and missing values
====================================

A data frame needs no preparation: the fit encodes text, dates and missing values, and the
encoding is part of the model. Rents are simulated from area, city and date. The picture shows
predictions for new rows; those with an unknown city or without an area have larger errors, as
expected.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from kernelgrad import KernelRegressor

rng = np.random.default_rng(0)
LEVEL = {"Bonn": 0, "Berlin": 300, "Ulm": -100, "Essen": -50, "Kiel": 100}


def make(n, cities):
    rows = pd.DataFrame(
        {
            "area": rng.uniform(20, 120, n),
            "city": rng.choice(cities, n),
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 1500, n), "D"),
        }
    )
    years = (rows["since"] - pd.Timestamp("2020-01-01")).dt.days / 365
    rent = 9 * rows["area"] * 1.03**years + rows["city"].map(LEVEL)
    return rows, rent + 20 * rng.standard_normal(n)


X, y = make(600, ["Bonn", "Berlin", "Ulm", "Essen"])
X.loc[::15, "area"] = np.nan
model = KernelRegressor(random_state=0).fit(X, y)

X_new, y_new = make(300, ["Bonn", "Berlin", "Ulm", "Essen", "Kiel"])
X_new.loc[::20, "area"] = np.nan
predicted = model.predict(X_new)
groups = {
    "all known": X_new["area"].notna() & (X_new["city"] != "Kiel"),
    "a new city": X_new["city"] == "Kiel",
    "no area": X_new["area"].isna(),
}

fig, ax = plt.subplots(layout="constrained")
ax.axline((500, 500), slope=1, color="0.7")
for (name, at), marker in zip(groups.items(), "os^", strict=True):
    error = np.sqrt(np.mean((predicted - y_new)[at] ** 2))
    ax.plot(y_new[at], predicted[at], marker, ms=4, label=f"{name}: error {error:.0f}")
ax.set_xlabel("Rent")
ax.set_ylabel("Predicted rent")
ax.set_title("New rows of a table with gaps")
ax.legend()
plt.show()
