"""
Resuming a fit after a crash
============================

A fit writes checkpoints and is stopped halfway, as by a crash. The same script, run again,
continues from the last checkpoint. Its learning curve is that of an uninterrupted fit, and the
models are equal to the last bit.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import KernelRegressor
from kernelgrad.callbacks import Callback, Checkpoint

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (3000, 3))
y = np.sin(5 * X[:, 0] * X[:, 1]) + X[:, 2] + 0.1 * rng.standard_normal(3000)


class Crash(Callback):
    """Ends the fit without warning after twelve iterations."""

    def on_iteration(self, event):
        if event.iteration == 12:
            raise SystemError("the power is gone")


def fit(*callbacks):
    model = KernelRegressor(
        solver="dsg", gamma=2.0, alpha=1e-6, max_iter=40, random_state=0, callbacks=callbacks
    )
    return model.fit(X, y)


folder = tempfile.mkdtemp()
try:
    fit(Checkpoint(folder, every=5), Crash())
except SystemError as error:
    print(f"First run: {error}")
checkpoint = Checkpoint(folder, every=5, resume=True)
reached = int(checkpoint.saved[-1].stem.split("-")[1])
resumed, whole = fit(checkpoint), fit()
same = np.array_equal(resumed.predict(X), whole.predict(X))

fig, ax = plt.subplots(layout="constrained")
for model, label, style in ((whole, "never stopped", "-"), (resumed, "resumed", "k:")):
    history = model.history_
    ax.semilogy(history["iteration"], history["train_loss"], style, lw=2, label=label)
ax.axvline(12, color="#D55E00", label="crash")
ax.axvline(reached, color="#009E73", ls="--", label="last checkpoint")
ax.set_xlabel("Iteration")
ax.set_ylabel("Train loss")
ax.set_title(f"Same predictions to the last bit: {same}")
ax.legend()
plt.show()
