"""Kernel density-ratio estimation."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted

from kernelgrad.compute.linalg import stacked
from kernelgrad.data import ArraySource, BatchSource
from kernelgrad.estimators import files as _files
from kernelgrad.estimators.blocks import by_blocks
from kernelgrad.estimators.kernel import BaseUnlabelledEstimator
from kernelgrad.estimators.plan import Given, Parts, Reading
from kernelgrad.estimators.support import checked_weights, with_callbacks
from kernelgrad.files.records import Check
from kernelgrad.losses import Loss, RatioLoss, get_loss
from kernelgrad.params import anything, parameters, real
from kernelgrad.tasks import RatioSamples, Task
from kernelgrad.training_rows import MAX_VALIDATION_ROWS, TrainingRows, TwoSamples, weights_of
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import DataError

_NEEDS_BOTH = (
    "A density ratio needs two samples: give fit(X_p, denominator=X_q), or all rows and their "
    "sample as y"
)


@parameters
class KernelDensityRatio(BaseUnlabelledEstimator):
    r"""Ratio p/q of two densities from a sample of each, without estimating either.

    With ``loss="kl"`` f estimates ``log p/q`` by minimising (Dai et al. 2014, Section 4)

    .. math:: \tfrac12 \left( E_q[\exp f] - E_p[f] \right) + \tfrac\alpha2 \|f - b\|^2 ,

    with ``loss="least_squares"`` f estimates ``p/q`` itself with ``E_q[f^2] / 2`` in place of
    ``E_q[exp f]``, and with ``loss="kl_ratio"`` with ``E_q[f] - E_p[log f]``; b is the constant
    of equal samples, 0 or 1. Half of each batch is drawn from each sample, independently of the
    other half; the paper tosses a coin for each row, and has no factor 1/2: its nu is
    ``2 alpha``.

    Parameters
    ----------
    loss : {"kl", "least_squares", "kl_ratio", "relative_novelty"} or Loss, default="kl"
        ``"kl"`` keeps the ratio positive; ``"least_squares"`` is less sensitive to single rows
        where the ratio is large. ``"relative_novelty"`` estimates the ratio only where rows of
        p are novel against q; see :class:`~kernelgrad.losses.RelativeNovelty`.
    kernel : str or Kernel, default="rbf"
    gamma : float, "median" or "scale", default="median"
        The rule sees rows of both samples.
    bandwidth_factor : float, default=1.0
    metric : array or None, default=None
        Weights of the scaled columns (d,), or a matrix (d, r) that they are multiplied by.
    solver : {"auto", "block_descent", "dsg", "udsg", "cdsg"} or Solver, default="auto"
        ``"auto"`` is ``"dsg"`` (by name with blocks of 256 frequencies and batches of 8,192
        rows), or ``"block_descent"`` for rows in memory and a kernel without random features.
    alpha : float >= 0, default=1e-4
        In the tails a few rows decide, so the ratio is easily overfitted: search alpha by
        ``score``, with ``cv=StratifiedKFold(shuffle=True)`` for both samples in every fold.
    max_iter : int, default=40
    standardize
        As in :class:`KernelNoveltyDetector`.
    categorical_features, device, memory_limit, time_limit, warm_start, random_state, verbose,
    callbacks
        As in :class:`KernelClassifier`.

    Attributes
    ----------
    expansion_, kernel_, n_random_features_, n_iter_, history_, fit_status_, n_features_in_,
    feature_names_in_
        As in :class:`KernelClassifier`.
    samples_ : array (2,)
        The two values of y: denominator, numerator.

    See Also
    --------
    KernelNoveltyDetector : Rows unlike those of one sample.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelgrad import KernelDensityRatio
    >>> rng = np.random.default_rng(0)
    >>> p, q = rng.normal(0.0, 1, (2000, 1)), rng.normal(0.5, 1, (2000, 1))
    >>> model = KernelDensityRatio(random_state=0).fit(p, denominator=q)
    >>> ratio = model.predict([[-1.0], [0.25], [1.5]])
    >>> bool(ratio[0] > ratio[1] > ratio[2])
    True
    """

    loss: str | Loss = anything(default="kl", kw_only=False)
    kernel: Any = anything(default="rbf", kw_only=False)
    alpha: float = real(default=1e-4, low=0)

    _onnx_kind = "ratio"
    _task_type = RatioSamples

    def _alpha_for(self, rows: TrainingRows, *, stream: bool = False) -> float:
        return float(self.alpha)

    _may_keep: ClassVar[dict[str, Check]] = {"samples_": _files.labels}
    _loss_task = "density_ratio"

    def _make_loss(self) -> Loss:
        return get_loss(self.loss, task="density_ratio")

    def _dsg_parameters(self) -> dict[str, Any]:
        # Blocks of 1,024 frequencies were no more accurate and cost twelve times as much.
        return {"block_size": 256, "batch_size": 8192}

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        denominator: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        denominator_val: Any = None,
    ) -> Self:
        """Fit the ratio.

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), DataFrame, or BatchSource
            Rows of the numerator p, when `denominator` is given; else rows of both samples.
        y : array-like (n,) with two distinct values, or None
            The sample of each row of `X`, when there is no `denominator`: the greater value
            marks rows of the numerator p, the smaller those of the denominator q.
        sample_weight : array-like (n,) or None
            Non-negative weights of the rows of `X`; each sample counts the same in total.
        denominator : array-like or CSR matrix (m, d), DataFrame, or BatchSource
            Rows of q. Sources are streamed side by side; their weights count, their
            targets do not. One of y and `denominator` must be given, and neither sample be
            without rows.
        X_val, y_val, sample_weight_val, denominator_val
            As `X`, `y`, `sample_weight` and `denominator`, or None: samples for validation,
            which do not change the model. ``history_["validation_score"]`` holds the bound of
            :meth:`score` on them after each iteration. Of a source 20,000 random rows count.
        """
        given = Given(X, y, sample_weight, denominator)
        apart = Given(X_val, y_val, sample_weight_val, denominator_val)
        return self._fit_checked(given, apart)

    def _all_rows(self, parts: Parts, given: Given, *, fresh: bool) -> TwoSamples:
        p, q, values = self._two_sources(given, fresh=fresh)
        if fresh:
            self.samples_ = values
        task, arrays = self._learn(p, None), not isinstance(given.X, BatchSource)
        if arrays:
            for sample in (p, q):
                self._check_rows(parts, sample.read(0, sample.n_rows).X)
        return TwoSamples(p, task, arrays, denominator=TrainingRows(q, task, arrays))

    def _rows_apart(self, parts: Parts, task: Task, given: Given) -> TrainingRows:
        rng = np.random.default_rng(self._seed)
        samples = [
            source.take(TrainingRows(source, task).sample(MAX_VALIDATION_ROWS, rng))
            for source in self._two_sources(given, fresh=False)[:2]
        ]
        X, w = stacked([s.X for s in samples]), np.concatenate([weights_of(s) for s in samples])
        if self._takes_tables:
            self._check_rows(parts, X)
        y = np.repeat([1.0, -1.0], [len(s.rows) for s in samples])
        return TrainingRows(ArraySource(X, y, w, checked=True), task, encoded=True)

    def _two_sources(
        self, given: Given, *, fresh: bool
    ) -> tuple[BatchSource, BatchSource, AnyArray]:
        """Return the numerator, the denominator and the values that distinguish them."""
        X, y, sample_weight, denominator = given
        if denominator is not None and y is not None:
            raise ValueError(f"{_NEEDS_BOTH}, not both y and denominator.")
        if isinstance(X, BatchSource) or isinstance(denominator, BatchSource):
            if not (isinstance(X, BatchSource) and isinstance(denominator, BatchSource)):
                raise ValueError(
                    f"{_NEEDS_BOTH}; a BatchSource needs another one as denominator."
                )
            if sample_weight is not None:
                raise ValueError("A BatchSource carries its own weights; leave them out.")
            self._adopt_source(X, fresh=fresh)
            self._adopt_source(denominator, fresh=False)
            task = self._learn(X, None)
            p = self._encoded_source(X, task if fresh else None)
            return p, self._encoded_source(denominator), np.array([0, 1])
        if denominator is not None:
            X, _ = self._coded(X, None, Reading(fresh))
            X, Z = self._encode_rows(X, fresh=fresh), self._matrix(denominator)
            weight = checked_weights(sample_weight, X)
            return _source(X, weight), _source(Z, np.ones(Z.shape[0])), np.array([0, 1])
        if y is None:
            raise ValueError(
                "requires y to be passed, but the target y is None: " + _NEEDS_BOTH + "."
            )
        X, y = self._coded(X, y, Reading(fresh))
        X = self._encode_rows(X, fresh=fresh)
        weight, y = checked_weights(sample_weight, X), np.asarray(y)
        values = np.unique(y[weight > 0])
        if not fresh:
            unknown = np.setdiff1d(values, self.samples_)
            if len(unknown):
                raise ValueError(
                    f"y holds {unknown[:5]}, but the samples of the fit are "
                    f"{self.samples_} (denominator, numerator)."
                )
        if len(values) != 2:
            raise ValueError(
                f"y must have two distinct values, one per sample, got {len(values)} "
                f"class(es): {values[:5]}."
            )
        p, q = y == values[1], y != values[1]
        return _source(X[p], weight[p]), _source(X[q], weight[q]), values

    @by_blocks
    def predict(self, X: Any) -> Float64Array:
        """Return the estimated ratio p/q at the rows of `X`, shape (n,); never negative."""
        return np.asarray(self._ratio_loss.ratio(self._raw(X).ravel()), np.float64)

    @by_blocks
    def decision_function(self, X: Any) -> Float64Array:
        """Return f(X), shape (n,): the log ratio with "kl", else the ratio, not clipped."""
        return self._raw(X).ravel()

    @property
    def _ratio_loss(self) -> RatioLoss:
        check_is_fitted(self, "expansion_")
        loss = self.loss_
        assert isinstance(loss, RatioLoss)
        return loss

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, denominator: Any = None
    ) -> float:
        r"""Return a lower bound of the divergence of held-out samples; greater is better.

        ``E_p[f] - E_q[exp f] + 1 <= KL(p || q)``, or for least squares
        ``E_p[f] - E_q[f^2] / 2 - 1/2 <= E_q[(p/q - 1)^2] / 2``, half the Pearson divergence;
        the logarithmic losses have their own, in their docstrings, for f clipped at zero.
        Parameters are those of :meth:`fit`; sources are read in chunks.
        """
        loss = self._ratio_loss
        given = Given(X, y, sample_weight, denominator)
        sources = self._two_sources(given, fresh=False)[:2]
        means = []
        for sign, source in zip((1.0, -1.0), sources, strict=True):
            total, weight = 0.0, 0.0
            for batch in source.chunks():
                w = weights_of(batch)
                f = loss.feasible(self.expansion_.raw_prediction(batch.X))
                total += float(w @ loss.value(np.full(f.shape, sign), f))
                weight += float(w.sum())
            if not weight > 0:
                raise DataError("A sample has no row of positive weight to score on.")
            means.append(total / weight)
        return float(loss.bound) - means[0] - means[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags


def _source(X: Matrix, weight: Float64Array) -> ArraySource:
    return ArraySource(X, np.zeros(X.shape[0]), weight, checked=True)
