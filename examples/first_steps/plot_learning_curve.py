"""
Learning curves
===============

Every fit keeps its history: loss, seconds, random features, and the score on rows for
validation if it has any. Here doubly stochastic gradients add a block of random features in
each iteration. The lines across are `SVC` and the exact solver on the same rows, the latter
with the same bandwidth and penalty: the stochastic gradients come close to them, and to come
closer they need many more features.
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
