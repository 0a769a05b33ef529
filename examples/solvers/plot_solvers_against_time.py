"""
Solvers against time
====================

Three solvers minimise the logistic loss on 4,000 rows. Doubly stochastic gradients have the
first useful model and then stay a little above the minimum: they hold one batch at a time and
are meant for rows that do not fit in memory. The first block of block descent is already close
to the minimum. Newton's method starts slowly and ends lowest.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification

from kernelgrad import KernelClassifier
from kernelgrad.plotting import LearningCurveDisplay

X, y = make_classification(
    8000, n_features=12, n_informative=6, n_clusters_per_class=4, flip_y=0.05, random_state=0
)
X, X_val, y, y_val = X[:4000], X[4000:], y[:4000], y[4000:]
options = {"gamma": "scale", "alpha": 1e-4, "random_state": 0}

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for solver in ("block_descent", "newton", "dsg"):
    model = KernelClassifier("logistic", solver=solver, **options)
    model.fit(X[:200], y[:200])  # loads and compiles its loops
    history = model.fit(X, y, X_val=X_val, y_val=y_val).history_
    losses = {key: history[key] for key in ("seconds", "train_loss")}
    LearningCurveDisplay.from_history(losses, ax=left, name=solver)
    error = [1 - score for score in history["validation_score"]]
    right.semilogx(history["seconds"], error, "o-", label=solver)
right.set(
    title="Validation error against time",
    xlabel="Training time (s)",
    ylabel="Share of wrong classes",
)
right.legend()
plt.show()
