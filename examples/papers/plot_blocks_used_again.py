"""
Old coordinates used again
==========================

Doubly stochastic gradients add a block of random features in each iteration, so the model grows
during training. Li and Póczos (2016) reuse old blocks: at random (UDSG), or if their gradient
is large (CDSG). After the same number of iterations the models are half as large and their
error is a little higher; for the same size of the model it is lower.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from kernelgrad import CDSG, DSG, UDSG, KernelClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
X, X_val, y, y_val = train_test_split(X, y, test_size=0.5, random_state=0)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for solver, style in ((DSG, "-"), (UDSG, "--"), (CDSG, "-.")):
    model = KernelClassifier(
        solver=solver(block_size=64, batch_size=512),
        gamma=0.03, alpha=1e-5, max_iter=60, random_state=0,
    )  # fmt: skip
    history = model.fit(X, y, X_val=X_val, y_val=y_val).history_
    errors = [1 - score for score in history["validation_score"]]
    left.plot(history["iteration"], history["n_random_features"], style, label=solver.__name__)
    right.plot(history["n_random_features"], errors, style, label=solver.__name__)
left.set_title("Size of the model")
left.set_xlabel("Iteration")
left.set_ylabel("Random features")
left.legend()
right.set_title("Error for a size")
right.set_xlabel("Random features")
right.set_ylabel("Validation error (share of wrong classes)")
right.set_ylim(0, 0.2)
right.legend()
plt.show()
