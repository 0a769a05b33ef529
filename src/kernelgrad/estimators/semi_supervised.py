"""Semi-supervised kernel classification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils import _safe_indexing, check_consistent_length

from kernelgrad import partly_labelled
from kernelgrad.data import BatchSource
from kernelgrad.estimators.classifier import BaseClassifier
from kernelgrad.estimators.kernel import AnyKernel, BaseKernelEstimator
from kernelgrad.estimators.support import available_if, can_stream, fitting
from kernelgrad.families.reading import Data
from kernelgrad.families.semi_supervised import SemiSupervisedSpec
from kernelgrad.inputs import as_numpy
from kernelgrad.losses import Loss, UnlabelledLoss
from kernelgrad.params import anything, boolean, integer, number_or_rule, parameters, real
from kernelgrad.partly_labelled import MarkedClassification, MarkedTargets
from kernelgrad.types import AnyArray, Rows, Values
from kernelgrad.validation import DataError


@parameters
class SemiSupervisedKernelClassifier(BaseClassifier, BaseKernelEstimator):
    r"""Kernel support vector machine of few labelled and many unlabelled rows.

    All solvers but the default minimise, for each class against the rest,

    .. math:: \frac{1}{2} \|f\|^2 + C \sum_{\text{labelled}} w_i\,l(y_i, f(x_i))
              + C^* W_l \frac{1}{W_u} \sum_{\text{unlabelled}} w_i\,u(f(x_i))

    with W_l and W_u the sums of the weights of either kind: the paper's objective (Section 3.1)
    with its C divided by the number of labelled rows, so that C is that of scikit-learn's SVC.
    The unlabelled loss pushes the boundary out of regions with many rows, which can raise the
    error where classes are no clusters: compare with ``C_star=0`` on held-out labels.

    Parameters
    ----------
    loss : str or Loss, default="hinge"
        Loss of labelled rows, with one output for each class: ``"hinge"``, ``"squared_hinge"``,
        ``"smoothed_hinge"``, ``"logistic"`` (also named ``"log_loss"``) or ``"squared"``.
    unlabelled_loss : str or UnlabelledLoss, default="symmetric_hinge"
        ``"symmetric_hinge"``, ``"squared_symmetric_hinge"``, ``"ramp"`` or ``"gaussian"``
        (Table 2), or an object: ``Ramp(s=-0.5)``.
    kernel : str or Kernel, default="rbf"
    gamma : float > 0, "median" or "scale", default="median"
        Inverse bandwidth, or a rule for it, which uses labelled and unlabelled rows. If kernel,
        gamma, bandwidth, metric, scaling, C, C_star and solver are the defaults, a search on
        the labels finds another kernel and C, which replace these if cross-validation on the
        labels counts fewer errors (``history_["cv_errors"]``).
    bandwidth_factor
        As in :class:`KernelClassifier`.
    solver : str or Solver, default="auto"
        ``"auto"`` is ``"soft_labels"`` for rows in memory: ridge regression to the labels that
        a supervised machine gives all rows, without `unlabelled_loss`. For rows on disk, for
        `partial_fit` and with another `unlabelled_loss` it is ``"tsg"``, the paper's triply
        stochastic gradients (docs/semi_supervised.md).
    C : float > 0, default=10.0
        Cost of the loss of a labelled row, as in SVC.
    C_star : float >= 0, "auto" or "paper", default="auto"
        Cost of the mean loss of unlabelled rows in units of C; ``"auto"`` is ``C / 2``, and
        ``"paper"`` is ``C W_l / W_u`` (in `partial_fit`, which does not know W_u, ``C / 2``).
    max_iter : int >= 1, default=200
        Iterations, of ``"tsg"`` a batch of either kind and a block of features.
    early_stopping : bool, default=False
        Keep the best iterate on the `X_val` of `fit`.
    class_weight : dict, "balanced" or None, default=None
        As in scikit-learn, of labelled rows.
    fit_intercept : bool, default=True
        A constant b beside f: the mean of the labels.
    metric, standardize
        As in :class:`KernelNoveltyDetector`.
    categorical_features, memory_limit, time_limit, warm_start, random_state, verbose, callbacks
        As in :class:`KernelClassifier`.

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
        The class labels in sorted order.
    transduction_ : ndarray (n,)
        The label of each row of `fit`, given or predicted, those of X first. Only after a fit
        to arrays; not part of a model file.
    labelled_weight_ : float
        W_l, of all rows that have been fitted.
    best_score_ : float or None
        Accuracy on the `X_val` of `fit`.
    expansion_, kernel_, intercept_, n_random_features_, n_support_, n_iter_, history_,
    fit_status_, n_features_in_, feature_names_in_
        As in :class:`KernelClassifier`.

    See Also
    --------
    KernelClassifier : Where all rows have labels.

    Notes
    -----
    Warnings say that there are no unlabelled rows, or that the classes predicted for them are
    far from those of the labels.

    References
    ----------
    Geng, Gu, Li, Shi, Zheng and Huang (2019), "Scalable Semi-Supervised SVM via Triply
    Stochastic Gradients".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from kernelgrad import SemiSupervisedKernelClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> marked = np.where(np.arange(len(y)) < 100, y, -1)
    >>> model = SemiSupervisedKernelClassifier(random_state=0).fit(X, marked)
    >>> bool(np.mean(model.transduction_[100:] == y[100:]) > 0.85)
    True
    """

    loss: str | Loss = anything(default="hinge", kw_only=False)
    unlabelled_loss: str | UnlabelledLoss = anything(default="symmetric_hinge", kw_only=False)
    kernel: AnyKernel = anything(default="rbf", kw_only=False)
    C: float = real(default=10.0, low=0, low_open=True)
    C_star: float | Literal["auto", "paper"] = number_or_rule(
        ("auto", "paper"), default="auto", low=0
    )
    max_iter: int = integer(default=200, low=1)
    early_stopping: bool = boolean(default=False)
    fit_intercept: bool = boolean(default=True)
    warm_start: bool = boolean(default=False)

    _spec_type = SemiSupervisedSpec
    if TYPE_CHECKING:  # what fits set
        labelled_weight_: ClassVar[float]
        transduction_: ClassVar[AnyArray]

    def _targets(self) -> MarkedTargets:
        return MarkedTargets(type(self).__name__, self.loss, self.class_weight)

    @fitting
    def fit(
        self, X: Rows, y: Values = None, sample_weight: Values = None, *,
        X_unlabelled: Rows | None = None, X_val: Rows | None = None, y_val: Values = None,
        sample_weight_val: Values = None,
    ) -> Self:  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), DataFrame, or BatchSource
            Labelled rows of a source are kept in memory, the others are read in chunks.
        y : array-like (n,); None with a BatchSource
            Labels. Rows without one are marked by -1 where labels are numbers, by None or NaN
            elsewhere (in sources by -1 only). Where y holds -1 and 1 and nothing else, these
            are two classes; give the other rows as `X_unlabelled`.
        sample_weight : array-like (n,) or None
            Non-negative; a weight of 2 is a row given twice, 0 is a row left out.
        X_unlabelled : array-like or CSR matrix (m, d), BatchSource, or None
            Further unlabelled rows. y may still mark others, unless this is a source.
        X_val, y_val, sample_weight_val : as X, y and sample_weight, or None
            Rows with labels for validation, as in :meth:`KernelClassifier.fit`.
        """
        data = Data(X, y, sample_weight, X_unlabelled)
        return self._fit(data, Data(X_val, y_val, sample_weight_val))

    @available_if(can_stream)
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Take further steps, as :meth:`KernelClassifier.partial_fit`.

        Rows with and without labels may come in any mixture; either kind of a batch counts
        half. The penalty follows the number of labelled rows so far.
        """
        return super().partial_fit(X, y, classes, sample_weight)

    @as_numpy
    def score(self, X: Rows, y: Values = None, sample_weight: Values = None) -> float:
        """Return the accuracy on rows that have a label, of arrays or of a BatchSource."""
        model = self._model
        X, y, sample_weight, _ = self._spec().reader.lazy(Data(X, y, sample_weight))
        no_label = DataError("No row has a label to score against: all of y are marks.")
        if isinstance(X, BatchSource):
            hits, total = model.summed(X, MarkedClassification.hits)
            if not total > 0:
                raise no_label
            return float(hits / total)
        if y is None:
            return super().score(X, y, sample_weight)
        raw, task = partly_labelled.labels_of(y), model.task
        assert isinstance(task, MarkedClassification)
        labelled = np.flatnonzero(partly_labelled.is_labelled(raw, task.signed))
        if len(labelled) == len(raw):
            return super().score(X, y, sample_weight)
        if len(labelled) == 0:
            raise no_label
        check_consistent_length(X, raw, sample_weight)
        weight = None if sample_weight is None else np.asarray(sample_weight)[labelled]
        return super().score(
            _safe_indexing(X, labelled), partly_labelled.plain(raw[labelled]), weight
        )

    def _check_proba(self) -> None:
        raise AttributeError(
            "the labels are too few to calibrate; take sklearn.calibration, with other rows."
        )
