"""
Learning curves
===============

Every fit keeps its history: loss, held-out score, seconds, random features. Here doubly
stochastic gradients, which add a block of random features in each iteration, stop once the
score on held-out rows no longer rises. The lines across are the test accuracies of `SVC` and
of the exact solver, which end higher.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from kernelgrad import KernelClassifier
from kernelgrad.plotting import LearningCurveDisplay

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
gamma = SVC(gamma="scale").fit(X, y)._gamma  # the same bandwidth for all

options = {"gamma": gamma, "alpha": 1e-6, "random_state": 0}
model = KernelClassifier(solver="dsg", early_stopping=True, **options).fit(X, y)
exact = KernelClassifier(**options).fit(X, y)
print(f"{model.n_iter_} iterations, {model.n_random_features_} random features")

rivals = {
    "SVC": SVC(gamma=gamma).fit(X, y).score(X_test, y_test),
    "exact solver": exact.score(X_test, y_test),
}
LearningCurveDisplay.from_estimator(model, x="n_random_features", rivals=rivals)
print(f"test accuracy of the curve's model: {model.score(X_test, y_test):.4f}")
plt.show()
