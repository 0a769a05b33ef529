"""
Columns of very different scales
================================

One column of the breast-cancer data is multiplied by an increasing factor, like a change of
its unit. In a kernel without scaling, this column soon dominates all distances. The default
scales columns first and is not affected; `SVC` needs a scaler in front. If `gamma` is given,
columns are not scaled, and a warning names the column.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from kernelgrad import KernelClassifier

X, y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
models = {
    "KernelClassifier()": KernelClassifier(random_state=0),
    'KernelClassifier(gamma="median")': KernelClassifier(gamma="median", random_state=0),
    "SVC()": SVC(),
}
factors = 10.0 ** np.arange(0, 5)

messages = set()
fig, ax = plt.subplots(layout="constrained")
for (name, model), style in zip(models.items(), ("o-", "s--", "^:"), strict=True):
    errors = []
    for factor in factors:
        scale = np.where(np.arange(X.shape[1]) == 9, factor, 1.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            errors.append(1 - model.fit(X * scale, y).score(X_test * scale, y_test))
        messages |= {str(each.message) for each in caught}
    ax.plot(factors, errors, style, label=name)
ax.set_xscale("log")
ax.set_xlabel("Factor of one column")
ax.set_ylabel("Test error (share of wrong classes)")
ax.set_title("One column in another unit")
ax.set_ylim(0, 0.55)
ax.legend(loc="upper left")
print(*messages, sep="\n")
plt.show()
