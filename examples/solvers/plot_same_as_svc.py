"""
The same function as SVC
========================

With the hinge loss and the same `C` and `gamma` the fit finds the function of scikit-learn's
`SVC`: the decision values lie on the diagonal, and the support vectors are the same rows. If
both parameters are given, no metric or bandwidth is learned.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.svm import SVC

from kernelgrad import KernelClassifier

X, y = make_moons(400, noise=0.25, random_state=0)
ours = KernelClassifier("hinge", C=1.0, gamma=2.0, random_state=0).fit(X, y)
svc = SVC(C=1.0, gamma=2.0, tol=1e-5).fit(X, y)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
a, b = svc.decision_function(X), ours.decision_function(X)
left.axline((0, 0), slope=1, color="0.7")
left.plot(a, b, ".")
left.set_xlabel("Decision function of SVC")
left.set_ylabel("Decision function of KernelClassifier")
left.set_title(f"Largest difference {np.abs(a - b).max():.1e}")

DecisionBoundaryDisplay.from_estimator(
    ours, X, response_method="predict", cmap="PuOr_r", alpha=0.4, ax=right
)
right.scatter(*X.T, c=y, cmap="PuOr_r", s=20, edgecolors="k", linewidths=0.5)
right.plot(*svc.support_vectors_.T, "kx", ms=4, label="of SVC")
right.legend()
right.set_title(f"{ours.n_support_} support vectors; SVC has {len(svc.support_)}")
plt.show()
