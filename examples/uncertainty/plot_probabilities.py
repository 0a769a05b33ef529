"""
Are probabilities reliable?
===========================

Of the rows for which a model predicts a class with probability 0.8, eight in ten should belong
to this class. The logistic loss models probabilities; those of the squared and the hinge loss
are calibrated by cross-validation. A naive Bayes classifier, whose assumption of independent
columns is wrong here, shows unreliable probabilities.
"""

import matplotlib.pyplot as plt
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB

from kernelgrad import KernelClassifier

X, y = make_classification(
    6000, n_features=10, n_informative=4, n_redundant=6, flip_y=0.15, random_state=0
)
X, X_test, y, y_test = X[:1000], X[1000:], y[:1000], y[1000:]
models = {
    "squared": KernelClassifier(random_state=0),
    "logistic": KernelClassifier("logistic", random_state=0),
    "hinge": KernelClassifier("hinge", random_state=0),
    "naive Bayes": GaussianNB(),
}

fig, ax = plt.subplots(figsize=(6, 5.5), layout="constrained")
for (name, model), marker in zip(models.items(), "os^D", strict=True):
    probability = model.fit(X, y).predict_proba(X_test)[:, 1]
    label = f"{name}: log loss {log_loss(y_test, probability):.3f}"
    CalibrationDisplay.from_predictions(
        y_test, probability, n_bins=8, strategy="quantile", name=label, ax=ax, marker=marker
    )
ax.set_title("Reliability on 5,000 new rows")
plt.show()
