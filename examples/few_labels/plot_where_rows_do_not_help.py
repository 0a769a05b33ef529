"""
Where unlabelled rows do not help
=================================

There are two clouds of rows, twelve labels, and two tasks: to separate the clouds, and to
separate rows above and below a line through both. A transductive machine looks for a boundary
in a region without rows. This improves most draws of labels in the first task and makes most
worse in the second, where the gap between the clouds is unrelated to the classes. Only
held-out labels can tell which task one has.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import SemiSupervisedKernelClassifier

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
tasks = {"left or right cloud": 0, "above or below": 1}
errors = {name: [] for name in tasks}
for draw in range(15):
    rng = np.random.default_rng(draw)
    X = rng.normal(0, 0.45, (300, 2))
    X[:, 0] += rng.choice([-1, 1], 300)
    for name, column in tasks.items():
        y = (X[:, column] > 0).astype(int)
        marked = np.where(np.arange(300) < 12, y, -1)
        options = {"C": 1.0, "gamma": 0.5, "random_state": 0}
        alone = SemiSupervisedKernelClassifier(solver="cccp_s3vm", C_star=0.0, **options)
        both = SemiSupervisedKernelClassifier(solver="cccp_s3vm", C_star=1.0, **options)
        errors[name].append([1 - each.fit(X, marked).score(X, y) for each in (alone, both)])

left.plot(*X.T, "k.", ms=3)
left.axvline(0, color="#0072B2", label="left or right cloud")
left.axhline(0, color="#E69F00", ls="--", label="above or below")
left.set_title("Rows and the two tasks")
left.set_xlabel("x0")
left.set_ylabel("x1")
left.legend()
right.axline((0, 0), slope=1, color="0.7")
for (name, pairs), style in zip(errors.items(), ("o", "s"), strict=True):
    alone, both = np.transpose(pairs)
    label = f"{name}: {np.mean(both < alone):.0%} gain, {np.mean(both > alone):.0%} lose"
    right.plot(alone, both, style, label=label, color={"o": "#0072B2", "s": "#E69F00"}[style])
right.set_title("Errors, one point for each draw")
right.set_xlabel("Labels alone (share of wrong classes)")
right.set_ylabel("All rows (share of wrong classes)")
right.legend()
plt.show()
