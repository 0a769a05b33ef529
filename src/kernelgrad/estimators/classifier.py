"""Kernel classification, and what all classifiers share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin

from kernelgrad.data import BatchSource
from kernelgrad.estimators import base
from kernelgrad.estimators.base import BaseRowsEstimator
from kernelgrad.estimators.kernel import BaseSearchedEstimator
from kernelgrad.estimators.support import available_if, by_blocks, can_stream
from kernelgrad.families.reading import Data
from kernelgrad.inputs import as_numpy
from kernelgrad.losses import get_loss
from kernelgrad.params import anything, boolean, choice, explaining, parameters
from kernelgrad.tasks import Classification, ClassTargets, OneClassError
from kernelgrad.types import AnyArray, Float64Array, Rows, Values
from kernelgrad.validation import DataError

can_tell_proba = methodcaller("_check_proba")


@parameters
class BaseClassifier(ClassifierMixin, BaseRowsEstimator):
    """Predictions and scores of a classifier."""

    class_weight: Mapping[Any, float] | Literal["balanced"] | None = anything(default=None)

    _sibling: ClassVar[str] = "a regressor"  # remedy for continuous targets in messages
    if TYPE_CHECKING:  # what fits set
        classes_: ClassVar[AnyArray]
        loss: Any = None
        probability: bool = True

    def _targets(self) -> ClassTargets:
        by_pairs = getattr(self, "multi_class", None) == "ovo"
        name = type(self).__name__
        loss = "squared" if self.loss == "auto" else self.loss
        return ClassTargets(name, loss, self.class_weight, by_pairs, self._sibling)

    def _check_proba(self) -> None:
        """Raise AttributeError if there are no probabilities, or will be none."""
        if self.__sklearn_is_fitted__():
            loss, offered = self._fitted.model.task.loss, self._fitted.model.has_proba
        else:
            targets = self._targets()
            loss = get_loss(targets.loss, task="classification", n_classes=2)
            offered = self.probability or (loss.has_proba and not targets.by_pairs)
        if offered:
            return
        raise AttributeError(
            f"predict_proba with loss={loss.name!r} needs a calibration, which this model "
            "does not have; fit it with probability=True, or use loss='log_loss'."
        )

    @available_if(can_stream)
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Take further steps, one for every ``batch_size`` rows of `X`, in the order given.

        The first call needs all `classes` unless its `y` holds them. Other parameters are those
        of :meth:`fit`.
        """
        if classes is None:
            try:
                return self._fit(Data(X, y, sample_weight), stream=True)
            except OneClassError as error:
                remedy = "name all classes in the first call: partial_fit(X, y, classes=[...])."
                raise DataError(f"{error} Here {remedy}") from None
        declared = np.unique(np.asarray(classes))
        if hasattr(self, "_fitted") and not np.array_equal(declared, self.classes_):
            raise ValueError(
                f"classes={declared.tolist()!r} is not the same as on the first call: "
                f"{self.classes_.tolist()!r}."
            )
        return self._fit(Data(X, y, sample_weight), stream=True, declared=declared)

    def decision_function(self, X: Rows) -> Float64Array:
        """Return f(X): (n,) for two classes (positive favours ``classes_[1]``), else (n, K).

        With ``multi_class="ovo"`` these are the votes of the pairs plus less than half a vote
        from the sum of their responses, as in ``SVC(decision_function_shape="ovr")``.
        """
        return by_blocks(self._model.decision, X)  # type: ignore[no-any-return]

    def predict(self, X: Rows) -> AnyArray:
        """Return the predicted class of every row, shape (n,)."""
        return by_blocks(self._model.predict, X)  # type: ignore[no-any-return]

    @available_if(can_tell_proba)
    def predict_proba(self, X: Rows) -> Float64Array:
        """Return class probabilities, shape (n, n_classes), in the order of ``classes_``.

        They come from the log losses, normalised to sum 1 if one-vs-rest, and for other losses
        from the calibration. `predict` returns the class of the largest one.
        """
        return by_blocks(self._model.proba, X)  # type: ignore[no-any-return]

    @available_if(can_tell_proba)
    def predict_log_proba(self, X: Rows) -> Float64Array:
        """Return the logarithm of :meth:`predict_proba`."""
        return by_blocks(self._model.log_proba, X)  # type: ignore[no-any-return]

    @explaining
    def predict_set(self, X: Any, coverage: float = 0.9) -> AnyArray:
        """Return a set of classes for each row that holds the class of a share of new rows.

        It has the classes whose probability is at least that of the own class of all but a
        share of the rows of `validation_score_`, and always the predicted class. Arguments and
        errors are those of :meth:`KernelRegressor.predict_interval`.

        Returns
        -------
        bool array (n, n_classes)
        """
        sets = partial(self._model.sets, self._unseen(), coverage)
        return by_blocks(sets, X)  # type: ignore[no-any-return]

    calibrate_coverage = base.calibrate_coverage

    @as_numpy
    def score(self, X: Rows, y: Values = None, sample_weight: Values = None) -> float:
        """Return the accuracy on arrays or collections, or on a source with its targets."""
        model = self._model
        X, y, sample_weight, _ = self._spec().reader.lazy(Data(X, y, sample_weight))
        if not isinstance(X, BatchSource):
            from sklearn.metrics import accuracy_score

            return float(accuracy_score(y, model.predict(X), sample_weight=sample_weight))
        hits, total = model.summed(X, Classification.hits)
        return float(hits / total)


@parameters
class KernelClassifier(BaseClassifier, BaseSearchedEstimator):
    r"""Kernel classifier: any loss, kernel and solver, on data too large for kernel matrices.

    Minimises ``mean_i w_i loss(y_i, f(x_i)) / mean_i w_i + (alpha / 2) ||f - b||^2_H`` over the
    kernel's function space, with an unpenalised constant b. Two classes have one output,
    more have one each (one-vs-rest, or jointly with the multinomial ``"log_loss"``).

    Parameters
    ----------
    loss : str or Loss, default="auto"
        A name in docs/losses.md. ``"auto"`` is ``"squared"`` with calibrated probabilities, or
        ``"log_loss"`` where rows apart have a smaller log loss by it (docs/metric.md).
    kernel : str, Kernel or callable, default="auto"
        A name in docs/kernels.md, or a function ``k(X, Z) -> (n, m)``. ``"auto"`` learns a sum
        of a smooth and a rough kernel, or a smooth one (docs/metric.md; Gaussian if gamma is
        given). ``"precomputed"`` takes kernel matrices as X, (n, n) and (m, n) in predict.
    C : float > 0 or None, default=None
        Cost of the loss as in SVC, in place of alpha: ``alpha = 1 / (C W)`` with W the sum of
        all weights, which streams do not tell.
    alpha : float >= 0 or "auto", default="auto"
        Weight of the squared norm (the papers' nu). ``"auto"`` minimises the loss on rows
        that the function was not fitted to (docs/metric.md).
    gamma : float > 0, "auto", "median" or "scale", default="auto"
        Inverse bandwidth as in scikit-learn, or a rule. ``"auto"`` has the least leave-one-out
        errors on random subsets.
    metric : "auto", "diagonal", "full", None or array, default="auto"
        Weights of the scaled columns (d,), or a matrix (d, r) by which they are multiplied.
        ``"diagonal"`` and ``"full"`` learn them (Gaussian and Matern kernels); ``"auto"`` takes
        learned weights if they are better by a standard error (docs/metric.md).
    standardize : "auto", bool, "robust" or "ranks", default="auto"
        Scaling of the columns: by quartiles with a bend at twelve deviations, by normal scores
        of the ranks, or (True) by standard deviations. ``"auto"`` leaves the columns as they
        are if gamma is given, and else is robust, or ranks if these do better (docs/metric.md).
    bandwidth_factor : float > 0, default=1.0
        Factor on the bandwidth that a rule or a search finds.
    solver : str or Solver, default="auto"
        One of auto, direct, newton, working_set, block_descent, dsg, udsg, cdsg, sbp, sdca,
        pegasos, norma and perceptron (docs/solvers.md), or an object: ``DSG(block_size=512)``.
        ``"auto"`` solves some thousands of rows exactly, more by ``"block_descent"``; for
        `partial_fit` it is ``"dsg"``. No rival of a paper is chosen.
    max_iter : int >= 1, default=40
        Largest number of iterations: Newton steps, rounds, blocks, or batches of ``"dsg"``.
    tol : float >= 0, default=1e-4
        Smallest gain of the validation score, or relative decrease of its loss, that counts.
    early_stopping : bool, default=False
        Stop after ``n_iter_no_change`` iterations without progress on held-out rows (at most
        20,000) or on the `X_val` of `fit`, and keep the best iterate.
    validation_fraction : float in (0, 1), default=0.1
        Fraction of the rows that `early_stopping` holds out.
    n_iter_no_change : int >= 1, default=10
        Iterations without progress after which `early_stopping` ends the fit.
    multi_class : {"auto", "ovo"}, default="auto"
        For more than two classes: an output for each, or for each pair as in SVC (docs/svc.md).
    class_weight : dict, "balanced" or None, default=None
        As in scikit-learn; multiplies the sample weights, but not those of the search.
    probability : bool, default=True
        Calibrate `predict_proba` on rows that were not fitted, for all losses but the log
        losses (docs/choose.md). False saves that time, 10 to 30 % of a fit.
    fit_intercept : bool, default=True
        Start from the best constant instead of zero; ``"sbp"`` fits an unpenalised bias.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Columns that are categories: names, numbers or a mask; ``"from_dtype"`` takes text and
        categorical types in frames. docs/data.md says how tables become numbers.
    device : {"cpu", "cuda", "cuda:N", "torch"}, default="cpu"
        Where block descent, the dsg family and predictions compute (docs/devices.md).
    effort : {"fast", "default", "best"}, default="default"
        How thoroughly to search what is "auto"; "fast" fits up to 16,384 rows (docs/choose.md).
    memory_limit : float, str or None, default=None
        Bytes, or ``"2 GB"``, that a fit may take beside its data and libraries: kept from 1e8
        on, or CapabilityError names the least that would do (docs/solvers.md).
    time_limit : float > 0 or None, default=None
        Seconds without compilation; then the model so far, or one of some rows, is the result.
    engine : DaskEngine or None, default=None
        Workers that hold the rows of block descent (docs/distributed.md).
    warm_start : bool, default=False
        Another fit continues with ``max_iter`` more iterations.
    random_state : int, RandomState or None, default=0
        Seed of all random numbers; None draws one for each fit.
    verbose : int, default=0
        1 shows a progress bar, 2 writes lines for a log.
    callbacks : Callback, list of Callback or None, default=None
        Objects of :mod:`kernelgrad.callbacks`, called after every iteration.

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
        In sorted order.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    expansion_ : RandomFeatureExpansion or SupportExpansion
        The fitted function: seed and coefficients, or training rows and coefficients.
    kernel_ : Kernel
    metric_ : float64 array (d,) or (d, r), or None
        Weights of the encoded and scaled columns, the largest 1; None if all are equal.
    feature_importances_ : float64 array (``n_features_in_``,)
        Shares of the columns in the variance of f, with sum 1 (docs/explain.md).
    n_random_features_, n_support_ : int
        Number of random features, or of training rows, in the sum; the other number is 0.
    alpha_ : float
        The weight of the squared norm that was used: given, found, or computed from C.
    n_iter_, best_iteration_, best_score_
        Number of iterations, that of the kept function, and its validation accuracy.
    history_ : History
        Iterations, the solver and its reason, and what searches tried (docs/choose.md).
    fit_status_ : {"converged", "max_iter", "stopped", "time_limit", "interrupted"}
        What ended the fit: a callback if ``"stopped"``, Ctrl-C if ``"interrupted"``.
    validation_score_, loo_predictions_
        Errors on new rows, and probabilities of each row by the others (docs/quality.md).

    See Also
    --------
    KernelRegressor, SemiSupervisedKernelClassifier, LinearClassifier

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from kernelgrad import KernelClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = KernelClassifier(random_state=0).fit(X[:1200], y[:1200])
    >>> bool(model.score(X[1200:], y[1200:]) > 0.9)
    True
    """

    multi_class: Literal["auto", "ovo"] = choice(("auto", "ovo"), default="auto")
    probability: bool = boolean(default=True)

    _sibling = "KernelRegressor"
