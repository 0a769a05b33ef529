"""
A stream that changes
=====================

The boundary between two classes rotates once in 20,000 rows. Every batch is predicted before it
is learned. `NORMA` with constant steps discounts old rows and follows the rotation.
Doubly stochastic gradients with decreasing steps give old rows as much weight as new ones,
which is right for a constant task and fails here.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import DSG, NORMA, KernelClassifier


def batch(t, rng):
    X = rng.standard_normal((200, 2))
    angle = 2 * np.pi * t / 100
    bent = X[:, 0] * np.cos(angle) + X[:, 1] * np.sin(angle) + 0.3 * np.sin(3 * X[:, 0])
    return X, (bent > 0).astype(int)


models = {
    "NORMA(average=None)": NORMA(average=None),
    "DSG()": DSG(block_size=64, batch_size=200),
}
fig, ax = plt.subplots(layout="constrained")
for (name, solver), style in zip(models.items(), ("-", "--"), strict=True):
    rng = np.random.default_rng(0)
    model = KernelClassifier("hinge", solver=solver, gamma=0.5, alpha=1e-3, random_state=0)
    errors = []
    for t in range(100):
        X, y = batch(t, rng)
        if t:
            errors.append(1 - model.score(X, y))
        model.partial_fit(X, y, classes=[0, 1])
    ax.plot(200 * np.arange(1, 100), errors, style, label=f"{name}: mean {np.mean(errors):.2f}")
ax.set_xlabel("Rows seen")
ax.set_ylabel("Error on the next batch (share of wrong classes)")
ax.set_title("A boundary that turns")
ax.set_ylim(0, 0.42)
ax.legend(loc="upper left")
plt.show()
