"""Parameters and fitted attributes of estimators of a kernel."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from sklearn.base import clone

from kernelgrad import types
from kernelgrad.compute.backend import CPU
from kernelgrad.estimators.base import BaseRowsEstimator
from kernelgrad.families.kernel import KernelSpec, SearchedSpec
from kernelgrad.families.unlabelled import Novelty
from kernelgrad.functions.attributions import Explanation
from kernelgrad.functions.compression import compressed
from kernelgrad.functions.expansions import SupportExpansion
from kernelgrad.functions.scaling import SCALINGS, InputScaling
from kernelgrad.kernels import Kernel, PrecomputedKernel
from kernelgrad.losses import Loss
from kernelgrad.model import Model
from kernelgrad.params import (
    anything,
    boolean,
    choice,
    integer,
    number_or_rule,
    parameters,
    real,
)
from kernelgrad.search.pool import EFFORTS
from kernelgrad.solvers import Solver
from kernelgrad.types import Float64Array, Gamma, Metric
from kernelgrad.validation import CapabilityError, check_int, check_real

if TYPE_CHECKING:
    from kernelgrad.cluster import DaskEngine

AnyKernel: TypeAlias = types.KernelName | str | Kernel | types.Function


@parameters
class BaseKernelEstimator(BaseRowsEstimator):
    """Parameters of all kernel estimators."""

    solver: types.SolverName | str | Solver[Any] = anything(default="auto")
    gamma: Gamma = anything(default="median")
    bandwidth_factor: float = anything(default=1.0)
    metric: Metric = anything(default=None)
    standardize: bool | Literal["auto", "robust", "ranks"] | InputScaling = boolean(
        default="auto", words=("auto", *SCALINGS), kind=InputScaling
    )

    _spec_type = KernelSpec

    if TYPE_CHECKING:  # what fits set
        kernel_: ClassVar[Kernel]
        metric_: ClassVar[Float64Array | None]
        n_random_features_: ClassVar[int]
        n_support_: ClassVar[int]

    def explain(self, X: Any, *, background: Any = None) -> Explanation:
        """Return Shapley values of the columns, which sum to f(x) less a base value.

        f is what the loss is of: with ``"log_squared"``, ``"poisson"`` and ``"gamma"`` the
        logarithm of the prediction, of classes the responses before calibration. A column
        outside a coalition is drawn from the `background`, by default up to 200 rows of the
        fit, independently of all others (docs/explain.md). Values are exact for Gaussian,
        Laplacian and Cauchy kernels, and to 2e-7 of the sum of the coefficients' sizes for
        Matérn and root Laplacian ones. CapabilityError is raised for other kernels, for random
        features, for a metric that is a matrix, and for more than 1,000 columns.
        """
        return self._model.explain(X, background)

    def gradient(self, X: Any) -> Float64Array:
        """Return the derivatives of f by the columns, (n, d) or (n, d, C) with C outputs.

        NaN stands for categories and for missing values in columns that had some in training.
        The Laplacian, the root Laplacian and nu = 1/2 have cusps at their training rows: there
        the derivative of such a term is taken as 0. CapabilityError as `explain`, but a metric
        may be a matrix.
        """
        return self._model.gradient(X)

    def partial_dependence(
        self, X: Any, feature: int | str, *, background: Any = None
    ) -> Float64Array:
        """Return the mean of f over the background with one column as in each row of X.

        It is scikit-learn's ``partial_dependence(method="brute")`` of f. `feature` is the name
        or the number of the column; `background` and errors are as in `explain`.
        """
        return self._model.partial_dependence(X, feature, background)

    def compress(
        self, max_rows: int | None = None, *, tol: float = 0.01, X: Any = None
    ) -> Self:
        """Return the fitted estimator with nearly the same function of fewer support rows.

        A prediction computes one kernel value for each of them. Rows are chosen where the
        projection of f is worst in the kernel's space (docs/serving.md). Calibration, scaling
        and tables stay.

        Parameters
        ----------
        max_rows : int >= 1 or None, default=None
            Most support rows of the result; None is half of them, with a warning if these are
            too few.
        tol : float > 0, default=0.01
            Root mean square of the change, in units of the spread of f, that is small enough.
        X : as in predict, or None
            Rows without targets. Changes are measured at half of them in place of the support
            rows. A novelty detector needs them: f is nearly constant at its support rows.

        Returns
        -------
        estimator of the same class
            It cannot be fitted further. ``history_["compression"]`` has ``rows_before``,
            ``rows`` and ``stopped_by``, the ``norm_error`` of each output in the kernel's
            space, the ``bound`` on changes that follows, and the ``largest_change``,
            ``mean_square_change`` and ``relative_change`` at the rows.

        Raises
        ------
        CapabilityError
            The function is no sum over support rows, or has a variance that needs all of them.
        """
        model, done = self._model, self._fitted
        function, n = model.function, model.function.n_support
        if not n or model.inputs.pairwise or model.posterior is not None:
            raise CapabilityError(_incompressible(model, type(self).__name__))
        assert isinstance(function, SupportExpansion)
        most = max(1, n // 2) if max_rows is None else check_int(max_rows, "max_rows", low=1)
        check_real(tol, "tol", low=0, low_open=True)
        if X is None and isinstance(model.task, Novelty):
            raise ValueError(
                "f is nearly constant at the support rows of a novelty detector; give X, rows "
                "at which its change is measured."
            )
        function.set_device(CPU)
        others = None if X is None else function.exact.prepare(model.inputs.read(X))
        usable = self._spec().resources.usable
        smaller, result = compressed(
            function, max_rows=most, tol=tol, usable=usable, others=others
        )
        if max_rows is None and result["stopped_by"] != "tol":
            warnings.warn(
                f"{result['rows']} of {n} support rows change f by "
                f"{result['relative_change']:.2g} of its spread, more than tol={tol:g}; give "
                "max_rows if that is small enough.",
                stacklevel=2,
            )
        twin: Self = clone(self)
        history = done.history | {"compression": result}
        model = replace(done.model, function=smaller)
        done = replace(done, held_out=done.unseen, seen=None, saved_leave_one_out=None)
        twin._set(twin._spec(), replace(done, model=model, state=None, history=history))
        return twin

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        kernel = self.get_params(deep=False)["kernel"]
        pairwise = isinstance(kernel, PrecomputedKernel) or (
            isinstance(kernel, str) and kernel == PrecomputedKernel.name
        )
        tags.input_tags.pairwise = pairwise
        tags.input_tags.allow_nan = not pairwise
        return tags


def _incompressible(model: Model, owner: str) -> str:
    """Return why a function cannot be compressed, and what to do."""
    why = "is a constant"
    if model.inputs.pairwise:
        why = "has a precomputed kernel and no rows; fit it with the kernel as a function"
    elif model.posterior is not None:
        why = "has a variance that needs all rows; fit a KernelRegressor for the mean alone"
    elif model.function.n_random_features:
        why = "has random features, whose cost is that of any number of rows; fit fewer"
    return f"compress is for sums over support rows, but this {owner} {why}."


@parameters
class BaseSearchedEstimator(BaseKernelEstimator):
    """Parameters that classifier and regressor share, which may be searched."""

    loss: types.LossName | str | Loss = anything(default="auto", kw_only=False)
    kernel: AnyKernel = anything(default="auto", kw_only=False)
    gamma: Gamma = anything(default="auto")
    metric: Metric = anything(default="auto")
    engine: DaskEngine | None = anything(default=None)
    alpha: float | Literal["auto"] = number_or_rule(("auto",), default="auto", low=0)
    device: str = anything(default=CPU)
    effort: Literal["fast", "default", "best"] = choice(EFFORTS, default="default")
    C: float | None = real(default=None, low=0, low_open=True, words=(None,))
    tol: float = real(default=1e-4, low=0)
    early_stopping: bool = boolean(default=False)
    validation_fraction: float = real(default=0.1, low=0, high=1, low_open=True, high_open=True)
    n_iter_no_change: int = integer(default=10, low=1)
    fit_intercept: bool = boolean(default=True)
    warm_start: bool = boolean(default=False)

    _spec_type = SearchedSpec
