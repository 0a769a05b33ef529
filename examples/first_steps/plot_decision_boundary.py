"""
Decision boundaries of three losses
===================================

The same rows and the same kernel are fitted with the squared, the logistic and the hinge loss.
The boundaries, in black, hardly differ. The probabilities, shown by the intensity of the
colours, do differ: the logistic loss models them directly, those of the squared and the hinge
loss are calibrated on held-out rows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons
from sklearn.inspection import DecisionBoundaryDisplay

from kernelgrad import KernelClassifier

X, y = make_moons(300, noise=0.3, random_state=0)
X_test, y_test = make_moons(5000, noise=0.3, random_state=1)

fig, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
for ax, loss in zip(axes, ("squared", "logistic", "hinge"), strict=True):
    model = KernelClassifier(loss, random_state=0).fit(X, y)
    ax.set_title(f"{loss}: test error {1 - model.score(X_test, y_test):.3f}")
    for how, look in (
        ("pcolormesh", {"cmap": "PuOr_r", "vmin": 0, "vmax": 1, "alpha": 0.7}),
        ("contour", {"levels": [0.5], "colors": "k"}),
    ):
        DecisionBoundaryDisplay.from_estimator(
            model, X, response_method="predict_proba", plot_method=how, ax=ax, **look
        )
    ax.scatter(*X.T, c=y, cmap="PuOr_r", s=15, edgecolors="k", linewidths=0.5)
plt.show()
