"""Kernel classification."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from kernelgrad._typing import AnyArray, Float64Array, FloatArray
from kernelgrad._validation import DataError
from kernelgrad.data import BatchSource
from kernelgrad.estimators.base import BaseKernelEstimator, can_stream
from kernelgrad.losses import Loss, encode_labels, get_loss


def _has_proba(estimator: KernelClassifier) -> bool:
    loss = getattr(estimator, "loss_", None)
    if loss is None:
        loss = get_loss(estimator.loss, task="classification", n_classes=2)
    if loss.has_proba:
        return True
    raise AttributeError(
        f"predict_proba is not available with loss={loss.name!r}; use loss='log_loss', or wrap "
        "the estimator in sklearn.calibration.CalibratedClassifierCV."
    )


class KernelClassifier(ClassifierMixin, BaseKernelEstimator):  # type: ignore[misc]
    r"""Kernel classifier: any loss, kernel and solver, on data too large for kernel matrices.

    Minimises ``mean_i w_i loss(y_i, f(x_i)) / mean_i w_i + (alpha / 2) ||f - b||^2_H`` over the
    kernel's function space, with an unpenalised constant b. Two classes have one output,
    more have one each (one-vs-rest, or jointly with the multinomial ``"log_loss"``).

    Parameters
    ----------
    loss : {"log_loss", "logistic", "hinge", "squared_hinge", "squared", "perceptron"} or Loss
        Default ``"log_loss"``: logistic for two classes, multinomial for more, and gives
        probabilities; ``"logistic"`` is one-vs-rest.
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
    _stratified = True

    def _set_classes(self, classes: AnyArray) -> Loss:
        if len(classes) < 2:
            raise DataError(
                f"KernelClassifier needs at least two classes; the data have only one class: "
                f"{classes.tolist()!r}."
            )
        loss = get_loss(self.loss, task="classification", n_classes=len(classes))
        self.classes_ = classes
        return loss

    @property
    def _n_outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _prepare_targets(self, y: AnyArray, *, reset: bool) -> tuple[AnyArray, Loss]:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self._internal_y = True
        if reset:
            # the first batch of a stream may lack some of the declared classes
            declared = getattr(self, "_declared", None)
            loss = self._set_classes(np.unique(y) if declared is None else declared)
            codes = self._codes(y)
            self._set_class_weights(np.bincount(codes, minlength=len(self.classes_)))
            return codes, loss
        return self._codes(y), self.loss_

    def _set_class_weights(self, counts: AnyArray) -> None:
        if self.class_weight is None:
            self._class_weights: Float64Array | None = None
        elif self.class_weight == "balanced":
            if (counts == 0).any():
                raise ValueError(
                    "class_weight='balanced' needs rows of every class in the first call; give "
                    "class_weight as a dict for streams."
                )
            self._class_weights = counts.sum() / (len(counts) * counts)
        else:
            self._class_weights = compute_class_weight(
                self.class_weight, classes=self.classes_, y=self.classes_
            )
        if self._class_weights is None:
            return
        for label, weight in zip(
            self.classes_.tolist(), self._class_weights.tolist(), strict=True
        ):
            if not (np.isfinite(weight) and weight >= 0):
                raise ValueError(
                    f"class_weight of {label!r} is {weight!r}; weights must be finite and >= 0."
                )

    def _prepare_source(self, source: BatchSource) -> Loss:
        summary = source.summarize_target()
        if summary.classes is None:
            raise DataError(
                "The target has more than 1,000 distinct values; for a continuous target use "
                "KernelRegressor."
            )
        if summary.kind == "float" and summary.infer_task() == "regression":
            raise DataError(
                "The target is continuous; use KernelRegressor, or encode it as classes."
            )
        self._internal_y = False
        found = np.asarray(summary.classes)
        counts = np.asarray(summary.counts)
        declared = getattr(self, "_declared", None)
        if declared is None:
            loss = self._set_classes(found)
        else:
            loss = self._set_classes(declared)
            all_counts = np.zeros(len(declared))
            all_counts[self._codes(found)] = counts
            counts = all_counts
        self._set_class_weights(counts)
        return loss

    def _codes(self, y: AnyArray) -> AnyArray:
        codes = np.searchsorted(self.classes_, y)
        codes = np.minimum(codes, len(self.classes_) - 1)
        unknown = self.classes_[codes] != y
        if unknown.any():
            label = np.asarray(y)[unknown].tolist()[0]
            raise ValueError(
                f"y contains the label {label!r}, which is not among the "
                f"classes {self.classes_.tolist()!r}; name all classes in the first call."
            )
        return codes

    def _internal(self, y: AnyArray) -> AnyArray:
        return self._codes(column_or_1d(y))

    def _encode(self, y: AnyArray, loss: Loss) -> FloatArray:
        return encode_labels(y, len(self.classes_), loss)

    def _class_factor(self, y: AnyArray) -> Float64Array | None:
        return None if self._class_weights is None else self._class_weights[y]

    def _validation_score(self, loss: Loss) -> tuple[str, Any]:
        def accuracy(y: AnyArray, raw: FloatArray, weight: Float64Array) -> float:
            return float(np.average(_decide(raw) == y, weights=weight))

        return "accuracy", accuracy

    @available_if(can_stream)
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Take further steps, one for every ``batch_size`` rows of `X`, in the order given.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        classes : array-like or None
            All classes; needed in the first call unless its `y` holds them all.

        Returns
        -------
        self
        """
        if classes is None:
            return self._partial_fit(X, y, sample_weight)
        declared = np.unique(np.asarray(classes))
        if hasattr(self, "_state") and not np.array_equal(declared, self.classes_):
            raise ValueError(
                f"classes={declared.tolist()!r} is not the same as on the first call: "
                f"{self.classes_.tolist()!r}."
            )
        self._declared = declared
        try:
            return self._partial_fit(X, y, sample_weight)
        finally:
            del self._declared

    def decision_function(self, X: Any) -> Float64Array:
        """Return f(X): (n,) for two classes (positive favours ``classes_[1]``), else (n, K)."""
        raw = self._raw(X)
        return raw.ravel() if raw.shape[1] == 1 else raw

    def predict(self, X: Any) -> AnyArray:
        """Return the predicted class of every row, shape (n,)."""
        if isinstance(X, BatchSource):
            check_is_fitted(self, "expansion_")
            self._check_source_columns(X)
            chunks = (self.expansion_.raw_prediction(b.X) for b in X.chunks())
            return np.concatenate([np.asarray(self.classes_[_decide(raw)]) for raw in chunks])
        raw = self._raw(X)
        return np.asarray(self.classes_[_decide(raw)])

    @available_if(_has_proba)
    def predict_proba(self, X: Any) -> Float64Array:
        """Return class probabilities, shape (n, n_classes), in the order of ``classes_``.

        Available with log losses. One-vs-rest probabilities are normalised to sum 1.
        """
        check_is_fitted(self, "expansion_")
        return np.asarray(self.loss_.predict_proba(self._raw(X)), np.float64)

    @available_if(_has_proba)
    def predict_log_proba(self, X: Any) -> Float64Array:
        """Return the logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy on arrays, or on a BatchSource with its own targets."""
        if isinstance(X, BatchSource):
            if y is not None or sample_weight is not None:
                raise ValueError("A BatchSource carries its own y and weights; leave them out.")
            hits = total = 0.0
            for batch, raw in self._raw_chunks(X):
                w = np.ones(len(raw)) if batch.sample_weight is None else batch.sample_weight
                hits += float(w @ (self.classes_[_decide(raw)] == column_or_1d(batch.y)))
                total += float(w.sum())
            return hits / total
        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))


def _decide(raw: FloatArray) -> AnyArray:
    """Return class codes from raw predictions."""
    if raw.shape[1] == 1:
        return (raw[:, 0] > 0).astype(np.intp)
    return np.asarray(np.argmax(raw, axis=1))
