"""
A first fit
===========

`KernelClassifier()` chooses the kernel, its bandwidth and the penalty by itself. The example
compares it on handwritten digits with scikit-learn's `SVC` and nearest neighbours, all with
their defaults, on a tenth, a third and all of the training rows. With all rows its error is a
little smaller than that of `SVC`, with sixty rows it is larger; its search takes more than a
hundred times as long as `SVC`.
"""

# %%
# Fit, and show what was chosen
# -----------------------------

import time

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from kernelgrad import KernelClassifier

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, train_size=600, random_state=0)
model = KernelClassifier(random_state=0).fit(X, y)
print(model.kernel_, f"alpha={model.alpha_:.2g}", model.history_["solver_reason"], sep="\n")
model

# %%
# Test error against time
# -----------------------

fig, ax = plt.subplots(layout="constrained")
for rival in (KernelClassifier(random_state=0), SVC(), KNeighborsClassifier()):
    seconds, errors = [], []
    for n in (60, 180, 600):
        start = time.perf_counter()
        rival.fit(X[:n], y[:n])
        seconds.append(time.perf_counter() - start)
        errors.append(1 - rival.score(X_test, y_test))
    ax.semilogx(seconds, errors, "o-", label=type(rival).__name__)
ax.set(
    title="Test error against time",
    xlabel="Seconds of the fit",
    ylabel="Share of wrong classes",
)
ax.legend()

# %%
# Misclassified digits
# --------------------

wrong = model.predict(X_test) != y_test
fig, axes = plt.subplots(1, 6, figsize=(7, 1.7), layout="constrained")
fig.suptitle("Misread digits: written and read")
for ax, image, true, read in zip(
    axes, X_test[wrong], y_test[wrong], model.predict(X_test[wrong]), strict=False
):
    ax.imshow(image.reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{true} as {read}")
    ax.axis("off")
plt.show()
