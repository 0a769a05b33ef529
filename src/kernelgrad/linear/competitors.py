"""The linear methods that doubly stochastic gradients were compared with."""

from typing import Any

from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline, make_pipeline

from kernelgrad.linear.estimators import LinearClassifier, LinearRegressor
from kernelgrad.linear.transformer import RandomFeatures
from kernelgrad.losses import Loss
from kernelgrad.validation import check_int, check_name, check_real

_SOLVERS = ("pegasos", "rbcd", "sbmd", "sdca")
COMPETITORS = tuple(f"{features}-{solver}" for features in "nr" for solver in _SOLVERS)


def competitor(
    name: str, *, gamma: float, loss: str | Loss | None = None, task: str = "classification",
    n_features: int = 1024, alpha: float = 1e-6, max_iter: int = 100,
    random_state: int | None = None,
) -> Pipeline:  # fmt: skip
    """Return a linear solver on features of the Gaussian kernel, fixed before it starts.

    These are the competitors of Section 7 of Dai et al. (2014), in a pipeline that is not
    fitted.

    Parameters
    ----------
    name : str
        Features and solver: ``"r-"`` random Fourier features, ``"n-"`` Nystroem features on
        rows drawn at random; ``"sdca"``, ``"pegasos"``, ``"sbmd"`` or ``"rbcd"``.
    gamma : float > 0
        Inverse bandwidth, as in scikit-learn: both kinds of features approximate one kernel.
    loss : str, Loss or None, default=None
        None is ``"squared"`` for regression and ``"logistic"`` for classification, one-vs-rest
        for several classes, since ``"sdca"`` does not support the multinomial loss.
    task : {"classification", "regression"}, default="classification"
    n_features : int >= 1, default=1024
        Columns of the features. Nystroem needs as many training rows.
    alpha : float > 0, default=1e-6
        Weight of half the squared norm, as in a kernel estimator.
    max_iter : int >= 1, default=100
        Largest number of passes over the rows.
    random_state : int or None, default=None
        Seed of features and solver.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from kernelgrad.estimators import competitor
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = competitor("r-pegasos", gamma=0.02, n_features=256, alpha=1e-3, random_state=0)
    >>> bool(model.fit(scale(X), y).score(scale(X), y) > 0.95)
    True
    """
    features, solver = check_name(name, COMPETITORS, "competitor").split("-")
    check_name(task, ("classification", "regression"), "task")
    check_real(gamma, "gamma", low=0, low_open=True)
    check_int(n_features, "n_features", low=1)
    check_real(alpha, "alpha", low=0, low_open=True)
    check_int(max_iter, "max_iter", low=1)
    if loss is None:
        loss = "logistic" if task == "classification" else "squared"
    maps: dict[str, Any] = {
        "r": RandomFeatures("rbf", n_features, gamma=gamma, random_state=random_state),
        "n": Nystroem(
            kernel="rbf", gamma=gamma, n_components=n_features, random_state=random_state
        ),
    }
    cls = LinearClassifier if task == "classification" else LinearRegressor
    model = cls(loss, alpha=alpha, solver=solver, max_iter=max_iter, random_state=random_state)
    return make_pipeline(maps[features], model)
