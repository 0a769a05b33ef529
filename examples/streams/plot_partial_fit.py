"""
Learning from a stream
======================

Rows arrive a thousand at a time and are not stored. `partial_fit` takes one step for each
batch. The error decreases with the number of rows, below that of a linear model with as many
random features trained by stochastic gradients. The horizontal line is an exact fit of 4,000
rows in memory.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier

from kernelgrad import DSG, KernelClassifier


def stream(batches, seed):
    rng = np.random.default_rng(seed)
    for _ in range(batches):
        X = rng.uniform(-1, 1, (1000, 4))
        yield X, (np.sin(4 * X[:, 0] * X[:, 1]) + X[:, 2] * X[:, 3] > 0).astype(int)


X_test, y_test = next(stream(1, 1))
solver = DSG(block_size=256, batch_size=1000)
ours = KernelClassifier("logistic", solver=solver, gamma=1.0, alpha=1e-6, random_state=0)
sampler = RBFSampler(gamma=1.0, n_components=2048, random_state=0).fit(X_test)
theirs = SGDClassifier("log_loss", alpha=1e-6, average=True, random_state=0)
errors = []
for X, y in stream(15, 0):
    ours.partial_fit(X, y, classes=[0, 1])
    theirs.partial_fit(sampler.transform(X), y, classes=[0, 1])
    score = ours.score(X_test, y_test), theirs.score(sampler.transform(X_test), y_test)
    errors.append(1 - np.array(score))
print(f"{ours.n_random_features_} random features")

X, y = (np.concatenate(part) for part in zip(*stream(4, 0), strict=True))
exact = KernelClassifier("logistic", gamma=1.0, alpha=1e-6, random_state=0).fit(X, y)

rows = 1000 * np.arange(1, 16)
fig, ax = plt.subplots(layout="constrained")
for values, name, style in zip(
    np.transpose(errors),
    ("KernelClassifier.partial_fit", "RBFSampler + SGDClassifier"),
    ("o-", "s--"),
    strict=True,
):
    ax.plot(rows, values, style, label=name)
ax.axhline(1 - exact.score(X_test, y_test), color="0.5", ls=":", label="exact, 4,000 rows")
ax.set_xlabel("Rows seen")
ax.set_ylabel("Test error (share of wrong classes)")
ax.set_title("A stream in batches of 1,000 rows")
ax.set_ylim(0, None)
ax.legend()
plt.show()
