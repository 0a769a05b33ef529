"""
Learning curves
===============

Every fit records a history: loss, seconds, random features, and the score on validation rows
if there are any. In this example doubly stochastic gradients add a block of random features in
each iteration. The horizontal lines are `SVC` and the exact solver on the same rows, the latter
with the same bandwidth and penalty. The stochastic gradients come close to them; coming closer
would take many more features.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from kernelgrad import KernelClassifier
from kernelgrad.plotting import LearningCurveDisplay

X, y = load_digits(return_X_y=True)
X, X_val, y, y_val = train_test_split(X, y, test_size=0.5, random_state=0)

options = {"gamma": "scale", "alpha": 1e-6, "random_state": 0}
model = KernelClassifier(solver="dsg", **options).fit(X, y, X_val=X_val, y_val=y_val)
rivals = {
    "SVC": SVC(gamma="scale").fit(X, y).score(X_val, y_val),
    "exact solver": KernelClassifier(**options).fit(X, y).score(X_val, y_val),
}
LearningCurveDisplay.from_estimator(model, x="n_random_features", rivals=rivals)
plt.show()
