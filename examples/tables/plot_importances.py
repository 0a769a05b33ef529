"""
Which columns matter
====================

The importance of a column is its share in the variance of the fitted function. Five of the
twenty columns in this task matter and the others are noise; the shares and scikit-learn's
permutation importance, which needs targets and many predictions, find the five.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.inspection import permutation_importance

from kernelgrad import KernelRegressor

X, y = make_friedman1(500, n_features=20, noise=0.5, random_state=0)
X_test, y_test = make_friedman1(500, n_features=20, noise=0.5, random_state=1)
model = KernelRegressor(random_state=0).fit(X, y)
print(f"R2 on new rows: {model.score(X_test, y_test):.3f}")

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
shown = np.argsort(-model.feature_importances_)[:10]
left.barh([f"x{j}" for j in shown], model.feature_importances_[shown], color="#0072B2")
left.invert_yaxis()
left.set_title("Of the fitted function")
left.set_xlabel("Share of the variance of f")

permuted = permutation_importance(model, X_test, y_test, n_repeats=3, random_state=0)
shown = np.argsort(-permuted.importances_mean)[:10]
right.barh([f"x{j}" for j in shown], permuted.importances_mean[shown], color="#E69F00")
right.invert_yaxis()
right.set_title("By permutation")
right.set_xlabel("Loss of R2 on new rows")
plt.show()
