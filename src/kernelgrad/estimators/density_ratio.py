"""Kernel density-ratio estimation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from sklearn.utils import ClassifierTags

from kernelgrad.compute.backend import CPU
from kernelgrad.estimators.kernel import AnyKernel, BaseKernelEstimator
from kernelgrad.estimators.support import by_blocks, fitting
from kernelgrad.families.reading import Data
from kernelgrad.families.unlabelled import RatioSamples, RatioSpec, WithoutTargets
from kernelgrad.losses import Loss
from kernelgrad.params import anything, boolean, parameters, real
from kernelgrad.types import AnyArray, Float64Array, Rows, Values


@parameters
class KernelDensityRatio(BaseKernelEstimator):
    r"""Ratio p/q of two densities from a sample of each, without estimating either.

    With ``loss="kl"`` f estimates ``log p/q`` by minimising (Dai et al. 2014, Section 4)

    .. math:: \tfrac12 \left( E_q[\exp f] - E_p[f] \right) + \tfrac\alpha2 \|f - b\|^2 ,

    with ``loss="least_squares"`` f estimates ``p/q`` itself with ``E_q[f^2] / 2`` in place of
    ``E_q[exp f]``, and with ``loss="kl_ratio"`` with ``E_q[f] - E_p[log f]``; b is the constant
    of equal samples, 0 or 1. Half of each batch is drawn from each sample. The paper has no
    factor 1/2: its nu is ``2 alpha``.

    Parameters
    ----------
    loss : {"kl", "least_squares", "kl_ratio", "relative_novelty"} or Loss, default="kl"
        ``"kl"`` keeps the ratio positive; ``"least_squares"`` is less sensitive to single rows
        where the ratio is large. See :class:`~kernelgrad.losses.RelativeNovelty` for the last.
    kernel : str or Kernel, default="rbf"
    gamma : float, "median" or "scale", default="median"
        The rule sees rows of both samples.
    bandwidth_factor : float, default=1.0
    metric, standardize
        As in :class:`KernelNoveltyDetector`.
    solver : {"auto", "block_descent", "dsg", "udsg", "cdsg"} or Solver, default="auto"
        ``"auto"`` is ``"dsg"`` (by name with blocks of 256 frequencies and batches of 8,192
        rows), or ``"block_descent"`` for rows in memory and a kernel without random features.
    alpha : float >= 0, default=1e-4
        In the tails a few rows decide, so the ratio is easily overfitted: search alpha by
        ``score``, with ``cv=StratifiedKFold(shuffle=True)`` for both samples in every fold.
    max_iter : int, default=40
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
    kernel: AnyKernel = anything(default="rbf", kw_only=False)
    alpha: float = real(default=1e-4, low=0)
    device: str = anything(default=CPU)
    warm_start: bool = boolean(default=False)

    _spec_type = RatioSpec
    _fixed: ClassVar[dict[str, Any]] = {"fit_intercept": True}
    if TYPE_CHECKING:  # what fits set
        samples_: ClassVar[AnyArray]

    def _targets(self) -> WithoutTargets:
        return WithoutTargets(type(self).__name__, self.loss, RatioSamples, "density_ratio")

    @fitting
    def fit(  # type: ignore[override]  # no rows for validation
        self, X: Rows, y: Values = None, sample_weight: Values = None, *,
        denominator: Rows | None = None,
    ) -> Self:  # fmt: skip
        """Fit the ratio.

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), DataFrame, or BatchSource
            Rows of the numerator p, with a `denominator`; else rows of both samples.
        y : array-like (n,) with two distinct values, or None
            Without a `denominator`: the greater value marks rows of p, the smaller those of q.
        sample_weight : array-like (n,) or None
            Non-negative weights of the rows of `X`; each sample counts the same in total.
        denominator : array-like or CSR matrix (m, d), DataFrame, or BatchSource
            Rows of q. The weights of sources count, their targets do not.
        """
        return self._fit(Data(X, y, sample_weight, denominator))

    def predict(self, X: Rows) -> Float64Array:
        """Return the estimated ratio p/q at the rows of `X`, shape (n,); never negative."""
        return by_blocks(self._model.predict, X)  # type: ignore[no-any-return]

    def decision_function(self, X: Rows) -> Float64Array:
        """Return f(X), shape (n,): the log ratio with "kl", else the ratio, not clipped."""
        return by_blocks(self._model.decision, X)  # type: ignore[no-any-return]

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, denominator: Any = None
    ) -> float:
        r"""Return a lower bound of the divergence of held-out samples; greater is better.

        ``E_p[f] - E_q[exp f] + 1 <= KL(p || q)``, or for least squares
        ``E_p[f] - E_q[f^2] / 2 - 1/2 <= E_q[(p/q - 1)^2] / 2``, half the Pearson divergence;
        other losses have their own. Parameters are those of :meth:`fit`.
        """
        spec, model = self._spec(), self._model
        assert isinstance(spec, RatioSpec)
        return spec.score(model, Data(X, y, sample_weight, denominator))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags
