"""
Which coefficients an L1 penalty keeps
======================================

The example fits linear logistic regression on the breast-cancer data with an increasing L1
penalty. One coefficient after the other becomes exactly zero; the test error stays low until
few are left. A kernel machine has no such coefficients; its learned weights of columns
(`metric=`) show which ones matter.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

from kernelgrad import LinearClassifier

X, y = load_breast_cancer(return_X_y=True)
X, X_test, y, y_test = train_test_split(scale(X), y, test_size=0.5, random_state=0)
alphas = np.logspace(-3.5, -0.5, 20)
coefs, errors = [], []
for alpha in alphas:
    model = LinearClassifier(penalty="l1", alpha=alpha, random_state=0).fit(X, y)
    coefs.append(model.coef_.ravel())
    errors.append(1 - model.score(X_test, y_test))
coefs = np.array(coefs)

fig, (top, bottom) = plt.subplots(2, 1, figsize=(6.4, 6), sharex=True, layout="constrained")
top.plot(alphas, coefs, lw=1)
top.set_xscale("log")
top.set_ylabel("Coefficients")
top.set_title("Thirty columns under an L1 penalty")
bottom.plot(alphas, errors, "o-", ms=4)
bottom.set_ylabel("Test error (share of wrong classes)")
bottom.set_xlabel("alpha, the weight of the penalty")
for alpha, row, error in list(zip(alphas, coefs, errors, strict=True))[::4]:
    bottom.annotate(f"{(row != 0).sum()} left", (alpha, error), xytext=(0, 9),
                    textcoords="offset points", ha="center")  # fmt: skip
bottom.margins(x=0.08, y=0.2)
plt.show()
