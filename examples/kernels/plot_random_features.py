"""
How well random features estimate a kernel
==========================================

Inner products of random features estimate a kernel, with an error that decreases like one over
the square root of their number. Orthogonal frequencies and quasi-Monte Carlo points reduce the
variance. The gain depends on the number of columns: quasi-Monte Carlo gains most with few
columns, orthogonality with many.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import RandomFeatures
from kernelgrad.kernels import Gaussian

sizes = np.array([64, 128, 256, 512, 1024, 2048])
fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for ax, d in zip(axes, (3, 50), strict=True):
    X = np.random.default_rng(0).standard_normal((200, d))
    for sampling, style in zip(("iid", "orthogonal", "qmc"), ("o-", "s--", "^:"), strict=True):
        kernel = Gaussian(gamma=1 / (2 * d), sampling=sampling)
        exact = kernel(X, X)
        errors = []
        for size in sizes:
            features = RandomFeatures(kernel, size, gamma=None, random_state=0)
            Z = features.fit_transform(X)
            errors.append(np.sqrt(np.mean((Z @ Z.T - exact) ** 2)))
        ax.loglog(sizes, errors, style, label=sampling)
    ax.set_title(f"{d} columns")
    ax.set_xlabel("Random features")
axes[0].set_ylabel("Root mean squared error of the kernel")
axes[0].legend()
plt.show()
