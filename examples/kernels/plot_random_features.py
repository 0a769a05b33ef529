"""
How well random features estimate a kernel
==========================================

Inner products of random features estimate a kernel, with an error that decreases like one over
the square root of their number. Pairs of cosine and sine have a lower variance than cosines
with a random phase, the form in the papers.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import RandomFeatures
from kernelgrad.kernels import Gaussian

sizes = np.array([64, 128, 256, 512, 1024, 2048])
X = np.random.default_rng(0).standard_normal((200, 10))
fig, ax = plt.subplots(figsize=(5, 3.8), layout="constrained")
for form, style in (("phase", "o-"), ("pair", "s--")):
    kernel = Gaussian(gamma=0.05, form=form)
    exact = kernel(X, X)
    errors = []
    for size in sizes:
        Z = RandomFeatures(kernel, size, gamma=None, random_state=0).fit_transform(X)
        errors.append(np.sqrt(np.mean((Z @ Z.T - exact) ** 2)))
    ax.loglog(sizes, errors, style, label=form)
ax.set_xlabel("Random features")
ax.set_ylabel("Root mean squared error of the kernel")
ax.legend()
plt.show()
