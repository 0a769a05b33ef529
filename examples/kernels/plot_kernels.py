"""
Kernels in one dimension
========================

The same 25 rows are fitted with the same penalty and eight kernels. The functions of the
Gaussian and the Cauchy kernel are smooth; those of the Laplacian and the Matérn kernel with
`nu=0.5` have a kink at every row. Far from the rows these functions return to the mean, and
polynomials diverge. Functions of the arc-cosine kernel are homogeneous: in one dimension they
consist of two straight lines, which cannot follow the rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelgrad import KernelRegressor
from kernelgrad.kernels import ArcCosine, Cauchy, Gaussian, Laplacian, Matern, Polynomial

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-3, 3, 25))[:, None]
y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(25)
grid = np.linspace(-4, 4, 400)[:, None]
kernels = {
    "Gaussian": Gaussian(gamma=1.0),
    "Laplacian": Laplacian(gamma=1.0),
    "Matérn, nu=0.5": Matern(gamma=1.0, nu=0.5),
    "Matérn, nu=1.5": Matern(gamma=1.0, nu=1.5),
    "Cauchy": Cauchy(gamma=1.0),
    "polynomial, degree 3": Polynomial(degree=3),
    "polynomial, degree 7": Polynomial(degree=7),
    "arc-cosine, order 1": ArcCosine(order=1),
}

fig, axes = plt.subplots(2, 4, figsize=(11, 5), sharex=True, sharey=True, layout="constrained")
for ax, (name, kernel) in zip(axes.flat, kernels.items(), strict=True):
    model = KernelRegressor(kernel=kernel, alpha=1e-3, random_state=0).fit(X, y)
    ax.plot(grid, np.sin(2 * grid), ":", color="0.5", label="truth")
    ax.plot(grid, model.predict(grid), label="fit")
    ax.plot(X, y, "k.", ms=4, label="rows")
    ax.set_title(name)
    ax.set_ylim(-2, 2)
axes[0, 0].legend(loc="lower left", fontsize="small")
fig.supxlabel("x")
fig.supylabel("y")
plt.show()
