"""
The stochastic batch perceptron
===============================

Cotter, Shalev-Shwartz and Srebro (2012) measure cost in kernel evaluations, and evaluate the
kernel of a row with all others for the rows that help most. Such a step costs more than one of
Pegasos, which is better at first; in the end the batch perceptron has less than half of its
error after fewer evaluations. Large working sets, the choice of `solver="auto"`, need more
evaluations and end at the minimum.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from kernelgrad import KernelClassifier

X, y = load_digits(return_X_y=True)
X, y = X / 16, y % 2
X, X_val, y, y_val = train_test_split(X, y, test_size=0.5, random_state=0)

fig, ax = plt.subplots(layout="constrained")
for solver, style in (("pegasos", "s--"), ("sbp", "o-"), ("working_set", "D")):
    model = KernelClassifier("hinge", solver=solver, C=100.0, gamma=0.05, random_state=0)
    history = model.fit(X, y, X_val=X_val, y_val=y_val).history_
    errors = [1 - score for score in history["validation_score"]]
    ax.plot(history["kernel_evaluations"], errors, style, ms=4, label=solver)
ax.set_xscale("log")
ax.set_xlabel("Kernel evaluations")
ax.set_ylabel("Validation error (share of wrong classes)")
ax.set_title("Odd against even digits, hinge loss, 898 rows")
ax.legend()
plt.show()
