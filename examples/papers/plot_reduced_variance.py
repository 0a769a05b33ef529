"""
Gradients of less variance
==========================

The example fits linear logistic regression on the breast-cancer data. Plain stochastic
gradients become slow because the variance of their steps does not vanish; SVRG and S3GD
(Mu, Liu and Fan, 2015) reduce it. With so few columns the default, Newton steps on blocks of
coordinates, is much faster and reaches the minimum after eight iterations.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

from kernelgrad import LinearClassifier

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)
alpha = 1e-2


def objective(coef, intercept):
    margins = np.where(y == 1, 1, -1) * (X @ coef.ravel() + intercept)
    return np.logaddexp(0, -margins).mean() + alpha / 2 * (coef**2).sum()


exact = LogisticRegression(C=1 / (alpha * len(y)), tol=1e-10, max_iter=5000).fit(X, y)
least = objective(exact.coef_, exact.intercept_)

fig, ax = plt.subplots(layout="constrained")
iterations = np.array([1, 2, 4, 8, 16, 32])
for solver, style in (("sgd", "o-"), ("svrg", "s--"), ("s3gd", "D:"), ("auto", "kx-")):
    above = []
    for n in iterations:
        model = LinearClassifier(solver=solver, alpha=alpha, max_iter=int(n), random_state=0)
        with warnings.catch_warnings():  # the fits are short on purpose
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        above.append(max(objective(model.coef_, model.intercept_) - least, 1e-12))
    name = f"auto ({model.history_['solver']})" if solver == "auto" else solver
    ax.loglog(iterations, above, style, label=name)
ax.set_xlabel("Iterations (passes over the rows)")
ax.set_ylabel("Objective above its minimum")
ax.set_title("Logistic regression, 569 rows")
ax.legend()
plt.show()
