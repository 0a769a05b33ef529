"""Kernel classification."""

from __future__ import annotations

from typing import Any

from kernelgrad.estimators._tasks import Classification
from kernelgrad.estimators.kernel import BaseKernelEstimator
from kernelgrad.losses import Loss


class KernelClassifier(Classification, BaseKernelEstimator):
    r"""Kernel classifier: any loss, kernel and solver, on data too large for kernel matrices.

    Minimises ``mean_i w_i loss(y_i, f(x_i)) / mean_i w_i + (alpha / 2) ||f - b||^2_H`` over the
    kernel's function space, with an unpenalised constant b. Two classes have one output,
    more have one each (one-vs-rest, or jointly with the multinomial ``"log_loss"``).

    Parameters
    ----------
    loss : str or Loss, default="log_loss"
        ``"log_loss"`` is logistic for two classes, multinomial for more, and gives
        probabilities; ``"logistic"`` is one-vs-rest. The others are ``"hinge"``,
        ``"smoothed_hinge"``, ``"squared_hinge"``, ``"squared"`` and ``"perceptron"``.
    kernel : str, Kernel, callable, or scikit-learn RBF / Matern, default="rbf"
        A name of docs/kernels.md. ``"precomputed"`` takes kernel matrices as X, (n, n) in fit
        and (m, n) in predict; a function ``k(X, Z) -> (n, m)`` is called on blocks of rows.
        Both need a solver on exact kernels.
    gamma : float > 0, "median", "scale" or "auto", default="median"
        Inverse bandwidth as in scikit-learn, or a rule (see
        :class:`~kernelgrad.kernels.Gaussian`). ``"auto"`` compares bandwidths of .25, .5, 1
        and 2 medians on held-out rows, by short fits to at most 8,192 others; for kernels of
        the inner product it is ``1 / d``.
    bandwidth_factor : float > 0, default=1.0
        Multiplies the bandwidth that a rule finds, and those of ``gamma="auto"``.
    solver : str or Solver, default="auto"
        ``"cached"``, ``"dsg"``, ``"udsg"``, ``"cdsg"``, ``"sbp"``, ``"sdca"``, ``"pegasos"``,
        ``"norma"`` or ``"perceptron"``: see docs/solvers.md. ``"auto"`` is ``"cached"`` where
        `fit` gets rows in memory and their responses fit there too. For rows on disk, for
        `partial_fit` and where they do not fit it is ``"dsg"``, or ``"pegasos"`` for kernels
        without random features; for ``loss="perceptron"`` it is ``"perceptron"``. An object
        where a name is not enough: ``DSG(block_size=512)``.
    alpha : float >= 0 or "auto", default=1e-6
        Weight of the squared norm (the papers' nu). ``"auto"`` tries 1e-3, 1e-4, ... 1e-9 on
        ``validation_fraction`` of the rows (at most 20,000): one path of fits to the others,
        which share kernel values, picks the best score, then all rows are fitted with as many
        blocks as the path took. ``"auto"``, here and for gamma, needs rows in memory and the
        solver ``"cached"``.
    C : float > 0 or None, default=None
        Cost of the loss as in scikit-learn's SVC, in place of alpha: ``alpha = 1 / (C W)`` with
        W the sum of the weights of the training rows. Not for ``partial_fit``, nor for sources
        with weights or class weights, whose sum is not known before they are read.
    max_iter : int >= 1, default=40
        Iterations. Of ``"cached"``: blocks at most, it stops where more gain little. Of
        ``"dsg"``: each one batch and one block of features, so that time grows
        with its square. Of solvers on exact kernels: by default 40 are one pass (``"sbp"``),
        two (online solvers, up to 163,840 rows) or as many passes (``"sdca"``).
    tol : float >= 0, default=1e-4
        Least gain of the validation score, or least relative fall of the validation loss,
        that counts as progress.
    early_stopping : bool, default=False
        Hold out ``validation_fraction`` of the rows (at most 20,000), stop after
        ``n_iter_no_change`` iterations without progress, and keep the best iterate.
    validation_fraction : float in (0, 1), default=0.1
    n_iter_no_change : int >= 1, default=10
    class_weight : dict, "balanced" or None, default=None
        As in scikit-learn; multiplies the sample weights.
    fit_intercept : bool, default=True
        Start from the best constant prediction instead of zero; ``"sbp"`` fits an unpenalised
        bias along with the function.
    standardize : bool, default=False
        Divide columns by their standard deviation on the first batch, inside the model:
        for streams, where no scaler can be fitted before.
    memory_limit : float or None, default=None
        Bytes; a quarter is used to keep frequencies between predictions (64 MiB when None).
        Solvers on exact kernels that keep all rows use all of it, for rows, responses and
        kept kernel rows (1 GiB of kernel rows when None). Never changes the result of a
        solver; which one ``"auto"`` takes depends on it (half of the system's memory when
        None).
    warm_start : bool, default=False
        Another fit continues with ``max_iter`` more iterations.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 shows a progress bar.
    callbacks : Callback, list of Callback or None, default=None

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
    n_features_in_, feature_names_in_
        As in scikit-learn.
    expansion_ : RandomFeatureExpansion or SupportExpansion
        The fitted function: seed and coefficients, or training rows and coefficients.
    kernel_ : Kernel
        With numbers for its parameters.
    n_random_features_, n_support_ : int
        What the function is a sum over: one of them is 0.
    alpha_ : float
        The weight of the squared norm that was used, whether given, found, or from C.
    n_iter_, best_iteration_ : int
    best_score_ : float or None
        Validation accuracy of the kept iterate.
    history_ : dict of lists
        One entry per iteration: iteration, epoch, seconds, rows_seen, n_random_features,
        n_features_saved, n_support, kernel_evaluations, step_size, train_loss (on each batch
        before its step; on all rows after it where they are kept), duality_gap,
        validation_score. Beside them ``"solver"``, ``"solver_reason"`` and ``"score_name"``
        are strings, and ``"search"``, where something was ``"auto"``, is a list of dicts with
        alpha, gamma, score, loss and blocks of every trial; seconds then count from the start
        of the search.
    fit_status_ : {"converged", "max_iter", "stopped", "interrupted"}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from kernelgrad import KernelClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = KernelClassifier(random_state=0).fit(X[:1200], y[:1200])
    >>> bool(model.score(X[1200:], y[1200:]) > 0.9)
    True
    """

    def __init__(
        self,
        loss: str | Loss = "log_loss",
        kernel: Any = "rbf",
        *,
        gamma: float | str = "median",
        bandwidth_factor: float = 1.0,
        solver: Any = "auto",
        alpha: float | str = 1e-6,
        C: float | None = None,
        max_iter: int = 40,
        tol: float = 1e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        class_weight: Any = None,
        fit_intercept: bool = True,
        standardize: bool = False,
        memory_limit: float | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
    ) -> None:
        self.loss = loss
        self.kernel = kernel
        self.gamma = gamma
        self.bandwidth_factor = bandwidth_factor
        self.solver = solver
        self.alpha = alpha
        self.C = C
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    _searches = True
    _sibling = "KernelRegressor"
