"""
The value of unlabelled rows
============================

The digits have 20 to 100 labels; all other training rows are unlabelled. These rows reduce the
error for each number of labels. Label spreading, which uses nearest neighbours, is better on
these data, whose classes are clusters.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC

from kernelgrad import SemiSupervisedKernelClassifier

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = X[:800], X[800:], y[:800], y[800:]
gamma = 1 / (64 * X.var())
models = {
    "SVC on the labels": SVC(C=10.0, gamma=gamma),
    "LabelSpreading": LabelSpreading(kernel="knn", n_neighbors=7),
    "SemiSupervisedKernelClassifier": SemiSupervisedKernelClassifier(),
}
sizes = np.array([20, 50, 100])
errors = {name: [] for name in models}
for n in sizes:
    marked = np.where(np.arange(800) < n, y, -1)
    for name, model in models.items():
        rows = slice(n) if isinstance(model, SVC) else slice(None)
        errors[name].append(1 - model.fit(X[rows], marked[rows]).score(X_test, y_test))

fig, ax = plt.subplots(layout="constrained")
for (name, values), style in zip(errors.items(), ("o-", "s--", "^:"), strict=True):
    ax.plot(sizes, values, style, label=name)
ax.set_xscale("log")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.set_xlabel("Labels")
ax.set_ylabel("Test error (share of wrong classes)")
ax.set_title("Digits, 800 rows of which few have a label")
ax.legend()
plt.show()
