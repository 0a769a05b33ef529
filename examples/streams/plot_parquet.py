"""
A file that does not fit in memory
==================================

A small `memory_limit` makes this Parquet file too large for memory, so its rows are read in
chunks. Each block of 1,024 coordinates lowers the error on validation rows, and the model has
the same bits as for rows in memory. A fit from a file takes longer, as every block reads the
rows again.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from kernelgrad import KernelRegressor, open_source

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.uniform(-1, 1, (60_000, 3)), columns=["a", "b", "c"])
y = np.sin(10 * X["a"] * X["b"]) + X["c"] ** 2 + 0.1 * rng.standard_normal(60_000)
X, X_val, y, y_val = X[:54_000], X[54_000:], y[:54_000], y[54_000:]
path = Path(tempfile.mkdtemp()) / "rows.parquet"
X.assign(y=y).to_parquet(path)

options = {"gamma": 5.0, "alpha": 1e-5, "solver": "block_descent"}
options |= {"max_iter": 3, "random_state": 0}
source = open_source(path, target="y")
on_disk = KernelRegressor(memory_limit="1 MB", **options)
on_disk.fit(source, X_val=X_val, y_val=y_val)
in_memory = KernelRegressor(**options).fit(X, y, X_val=X_val, y_val=y_val)
difference = np.abs(on_disk.predict(X_val) - in_memory.predict(X_val)).max()

fig, ax = plt.subplots(layout="constrained")
for model, label, style in ((in_memory, "in memory", "-"), (on_disk, "from the file", "o:")):
    history = model.history_
    share = 1 - np.array(history["validation_score"])
    ax.plot(history["iteration"], share, style, lw=2, label=label)
ax.set_xticks(history["iteration"])
ax.set_ylim(0, None)
ax.set_xlabel("Block of 1,024 coordinates")
ax.set_ylabel("Validation error (share of the variance)")
ax.set_title(f"54,000 rows on disk; difference to the fit in memory: {difference:g}")
ax.legend()
plt.show()
