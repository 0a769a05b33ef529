"""What every estimator shares: parameters, `fit`, files, and attributes of a fit."""

from __future__ import annotations

import html
import os
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from kernelgrad import packing
from kernelgrad.callbacks import FOREVER, Callback, Deadline, make_callbacks
from kernelgrad.compute.backend import CPU
from kernelgrad.compute.compiling import compile_seconds
from kernelgrad.compute.memory import within
from kernelgrad.estimators import files, summary
from kernelgrad.estimators.support import by_blocks, exported, fitting
from kernelgrad.families.base import Spec
from kernelgrad.families.reading import NO_DATA, Data, Run
from kernelgrad.files import container
from kernelgrad.fit import fit
from kernelgrad.model import Fit, Model
from kernelgrad.params import anything, check_params, integer, parameters, real, size
from kernelgrad.quality import Quality, Unseen
from kernelgrad.solvers import History, Solver
from kernelgrad.tasks import Classification, Targets
from kernelgrad.training_rows import TrainingRows
from kernelgrad.types import AnyArray, Float64Array, Rows, Values
from kernelgrad.validation import CapabilityError
from kernelgrad.version import __version__

_PART = "it belongs to a part, as in "
INSTEAD = {
    "n_jobs": "the number of threads is that of kernelgrad.set_num_threads",
    "n_estimators": "the number of iterations is max_iter",
    "eval_set": "give rows for validation as X_val and y_val",
    "decision_function_shape": "pairs of classes are multi_class='ovo'",
    "cache_size": "bytes that a fit may take are memory_limit",
    "reg_lambda": "the weight of the penalty is alpha",
    "degree": f"{_PART}kernel=kernelgrad.kernels.Polynomial(degree=3)",
    "nu": f"{_PART}kernel=kernelgrad.kernels.Matern(nu=1.5)",
    "epsilon": f"{_PART}loss=kernelgrad.losses.EpsilonInsensitive(0.1)",
    "quantile": f"{_PART}loss=kernelgrad.losses.Quantile(0.9)",
}
"""What to give in place of arguments of other libraries."""

E = TypeVar("E", bound="BaseRowsEstimator")


@parameters
class BaseRowsEstimator(BaseEstimator):
    """Parameters of all estimators; a specification of a family makes a fit of them."""

    solver: str | Solver[Any] = anything(default="auto")
    max_iter: int = integer(default=40, low=1)
    memory_limit: float | str | None = size(default=None)
    time_limit: float | None = real(default=None, low=0, low_open=True, words=(None,))
    random_state: int | np.random.RandomState | None = anything(default=0)
    verbose: int = integer(default=0, words=(False, True))
    callbacks: Callback | Sequence[Callback] | None = anything(default=None)
    categorical_features: Literal["from_dtype"] | Values = anything(default="from_dtype")

    _spec_type: ClassVar[type[Spec]]
    _instead: ClassVar[dict[str, str]] = INSTEAD
    _fixed: ClassVar[dict[str, Any]] = {}  # values of parameters that the class does not have
    if TYPE_CHECKING:  # what fits set
        _best_params: ClassVar[dict[str, Any]]
        _fitted: ClassVar[Fit]
        expansion_: ClassVar[Any]
        feature_names_in_: ClassVar[AnyArray]
        alpha_: ClassVar[float]
        best_iteration_: ClassVar[int]
        best_score_: ClassVar[float | None]
        fit_status_: ClassVar[str]
        history_: ClassVar[History]
        intercept_: ClassVar[Any]
        loss_: ClassVar[Any]
        n_features_in_: ClassVar[int]
        n_iter_: ClassVar[int]
        solver_: ClassVar[Any]

    @abstractmethod
    def _targets(self) -> Targets:
        """Return what the parameters say of targets."""

    def _spec(self) -> Spec:
        """Return the checked parameters as a specification of the family."""
        check_params(self)
        params = self._fixed | self.get_params(deep=False)
        return self._spec_type(type(self).__name__, params, self._targets())

    @property
    def _model(self) -> Model:
        if "_fitted" not in self.__dict__:
            check_is_fitted(self, "expansion_")
        model, device = self._fitted.model, getattr(self, "device", CPU)
        return model if model.device == device else replace(model, device=device)

    @abstractmethod
    def predict(self, X: Rows) -> AnyArray:
        """Return what the model says of every row."""

    # -- fitting -----------------------------------------------------------------------

    @fitting
    def fit(
        self, X: Rows, y: Values = None, sample_weight: Values = None, *,
        X_val: Rows | None = None, y_val: Values = None, sample_weight_val: Values = None,
    ) -> Self:  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix (n, d), memory map, DataFrame, BatchSource, or of dask
            A :class:`~kernelgrad.data.BatchSource` carries its own targets and weights. Rows
            that do not fit in memory are read in pieces.
        y : array-like (n,) or (n, n_outputs); None with a BatchSource
            Of a classifier at least two classes, of a Gaussian process one column. A novelty
            detector ignores it: X holds mostly ordinary rows.
        sample_weight : array-like (n,) or None
            Non-negative; a weight of 2 is a row given twice, 0 is a row left out.
        X_val, y_val, sample_weight_val : as X, y and sample_weight, or None
            Rows for validation, which are not fitted: each iteration is scored on them, in
            ``history_["validation_score"]``. With ``early_stopping=True`` they replace
            `validation_fraction`; otherwise they do not change the model. A source contributes
            up to 20,000 random rows. A novelty detector takes none.
        """
        return self._fit(Data(X, y, sample_weight), Data(X_val, y_val, sample_weight_val))

    def _fit(
        self, data: Data, validation: Data = NO_DATA, *, stream: bool = False,
        declared: AnyArray | None = None,
    ) -> Self:  # fmt: skip
        """Fit data, or go on with those of a `stream`, whose classes may be `declared`."""
        spec, before = self._spec(), getattr(self, "_fitted", None)
        before = before if stream or spec.params.warm_start else None
        listeners = make_callbacks(self.callbacks, self.verbose, stream=stream)
        checkpoint, seconds = listeners.checkpoint, self.time_limit
        if stream and checkpoint is not None:
            raise ValueError(
                "A Checkpoint is a callback of fit; between calls of partial_fit take "
                "save(path, resumable=True)."
            )
        spec.check_start(before)
        for name, part in zip(("y", "sample_weight"), validation[1:3], strict=True):
            if validation.X is None and part is not None:
                raise ValueError(f"{name}_val is given, but not X_val; give it too.")
        start = compile_seconds()
        try:
            with within(spec.resources.memory_limit):
                if checkpoint is not None:
                    params = self.get_params(deep=False)
                    checkpoint.begin(packing.identity(spec.owner, params, before))
                    if seconds is not None:
                        seconds = max(0.0, seconds - checkpoint.spent)
                deadline = FOREVER if seconds is None else Deadline(seconds)
                run = Run(deadline, listeners, stream, declared, checkpoint, before)
                result = fit(spec, data, run, validation=validation)
                spent = 0.0 if before is None else before.history.get("compile_seconds", 0.0)
                compiled = {"compile_seconds": spent + compile_seconds() - start}
                # the last callbacks use the model
                self._set(spec, replace(result, history=result.history | compiled))
        finally:
            listeners.on_phase("")
            if checkpoint is not None:
                checkpoint.end()
        if listeners.interrupted:
            raise KeyboardInterrupt(
                f"The fit was interrupted; the model after {self.n_iter_} iterations is kept "
                "and can be used, saved and fitted further."
            )
        return self

    def _set(self, spec: Spec, result: Fit) -> None:
        """Set the fitted attributes, in place of those of a fit before."""
        own = self.__dict__
        before = {} if "_fitted" not in own else self._attributes(spec, self._fitted)
        for name in before:  # a subclass may have set others
            own.pop(name, None)
        own.update(self._attributes(spec, result))

    def _attributes(self, spec: Spec, result: Fit) -> dict[str, Any]:
        """Return the fitted attributes by name."""
        public = result.attributes() | spec.attributes(result)
        own = {"_fitted": result, "_best_params": spec.best_params(result)}
        return own | {k: v for k, v in public.items() if not k.startswith("_")}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    @property
    def best_params_(self) -> dict[str, Any]:
        """Parameters with which the same rows give the same model, without a search.

        The models are equal to the bit if `random_state` is a number. They are `solver` and, as
        far as the estimator has them, `alpha`, `loss` and what was searched: `kernel`, `metric`
        and `standardize`, the scaling of the columns with their warps.
        """
        check_is_fitted(self, "expansion_")
        return dict(self._best_params)

    @property
    def feature_importances_(self) -> Float64Array:
        """Shares of the columns of X in the variance of f, with sum 1; 0 if f is constant.

        The share of a column is its total index of Sobol': half the mean squared change of f
        when rows take its value from other rows, over the sum for all columns. Up to 200
        training rows and 2,000 pairs of them are compared at first access.
        """
        check_is_fitted(self, "expansion_")
        try:
            return self._fitted.model.importances.copy()
        except CapabilityError as error:
            raise AttributeError(str(error)) from None

    # -- errors on new rows ------------------------------------------------------------

    @property
    def validation_score_(self) -> Quality | None:
        """How well the model does on new rows, as a value that prints itself; or None.

        It comes from rows given by `X_val` or to `calibrate_coverage`, or held out by early
        stopping; after exact fits of up to 5,000 rows from all rows, each predicted without
        itself; else from rows that the search or the calibration held out, which functions of
        fewer rows predicted; after `partial_fit` from the latest rows of the stream. Its
        `source` says which (docs/quality.md).
        """
        check_is_fitted(self, "expansion_")
        return self._fitted.quality

    @property
    def loo_predictions_(self) -> AnyArray:
        """Prediction of each training row by the function that all others give.

        (n,) or (n, n_outputs), for classes probabilities (n, n_classes). Kernel and penalty
        stay as they are. Equal rows count as one. NaN for rows of weight 0.
        """
        check_is_fitted(self, "expansion_")
        done, others = self._fitted, self._fitted.leave_one_out
        if others is None:
            raise AttributeError(
                "loo_predictions_ need an exact fit of all rows, by solver='direct' or "
                f"'newton' and of up to 5,000 rows; this is one of {done.choice.solver.name!r}."
            )
        values, order, task = others.values, others.order, done.model.task
        if not isinstance(task, Classification):
            values = task.predict(np.asarray(values, np.float64))
        if order is None:
            return values
        gaps = (order < 0).reshape((-1,) + (1,) * (values.ndim - 1))
        return np.where(gaps, np.nan, values[order])

    def _unseen(self) -> Unseen:
        check_is_fitted(self, "expansion_")
        if self._fitted.unseen is None:
            raise CapabilityError(
                "No rows were held out from this fit, so that nothing tells its errors on new "
                "ones; give some that were not fitted to calibrate_coverage(X, y)."
            )
        return self._fitted.unseen

    def _bounds(self, X: Any, coverage: float) -> Float64Array:
        self._unseen()
        bounds = partial(self._model.bounds, self._fitted.intervals, coverage)
        return by_blocks(bounds, X)  # type: ignore[no-any-return]

    # -- files -------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return dict(super().__getstate__(), _kernelgrad_version=__version__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # the state of a subclass, or of 0.2, may have no version
        version = state.pop("_kernelgrad_version", __version__)
        if version != __version__:
            warnings.warn(
                f"This {type(self).__name__} was pickled by kernelgrad {version} and read by "
                f"{__version__}: it may fail, or predict otherwise. Use files of save.",
                stacklevel=2,
            )
        super().__setstate__(state)

    def save(
        self, path: container.Place, *, resumable: bool = False, key: bytes | None = None
    ) -> None:
        """Write the fitted model to one file, atomically and without pickle.

        Parameters
        ----------
        path : str, path-like, or an open binary file such as ``BytesIO``
        resumable : bool, default=False
            Also write the solver's state, so that ``partial_fit`` and ``warm_start`` go on
            exactly where they were (up to three times the size; see docs/serving.md).
        key : bytes or None, default=None
            Sign the file by HMAC-SHA256 under this secret of at least 16 bytes, for
            ``load(path, key=key)`` to refuse files that anyone else wrote.

        Raises
        ------
        TypeError
            A parameter is an object that cannot be written, or the class is not registered.
        """
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted; call fit before save."
            )
        files.check_registered(self)
        container.write_container(path, *files.contents_of(self, resumable=resumable), key=key)

    def to_onnx(
        self, path: str | os.PathLike[str] | None = None, *, dtype: str = "float64"
    ) -> Any:
        """Return the fitted model as an ONNX model, for programs without Python.

        It holds the encoding of tables, the scaling of the columns and the function, which may
        not be of random features (docs/serving.md).

        Parameters
        ----------
        path : str or path-like, optional
            Where to write the model too, atomically.
        dtype : "float64" or "float32", default="float64"
            Type of the numbers that the model takes; it computes in float64 with both.

        Returns
        -------
        onnx.ModelProto
            Of operator set 18, with ai.onnx.ml 3.

        Raises
        ------
        CapabilityError
            The function has no form in ONNX, or the model would be larger than 2 GiB.
        """
        return exported(self._model, path, dtype)

    def model_info(self) -> dict[str, Any]:
        """Return a summary of the fitted model with plain JSON values."""
        check_is_fitted(self, "expansion_")
        names = getattr(self, "feature_names_in_", None)
        done, function = self._fitted, self._fitted.model.function
        info: dict[str, Any] = {
            "estimator": type(self).__name__,
            "loss": self.loss_.name,
            "loss_params": self.loss_.get_params(),
            **self._spec().info(done),
            "solver": done.choice.solver.name,
            "solver_reason": self.history_["solver_reason"],
            "alpha": done.choice.alpha,
            "n_features_in": int(self.n_features_in_),
            "feature_names": None if names is None else [str(c) for c in names],
            "feature_types": done.model.inputs.types,
            "n_outputs": function.n_outputs,
            **function.summary(),
            "bytes": int(function.nbytes),
            "n_iter": int(done.n_iter),
            "fit_status": done.status,
            "best_score": done.best_score,
            "quality": None if done.quality is None else done.quality.describe(),
            "resumable": done.state is not None,
        }
        if hasattr(self, "classes_"):
            info["classes"] = np.asarray(self.classes_).tolist()
        return info

    def summary(self) -> str:
        """Return what a notebook shows of the fitted model.

        These are the data, what was chosen and why, the quality, importances and seconds.
        """
        check_is_fitted(self, "expansion_")
        return summary.summary(self)

    def _repr_html_inner(self) -> str:
        page: str = super()._repr_html_inner()
        fitted = self.__sklearn_is_fitted__()
        return f"<pre>{html.escape(self.summary())}</pre>{page}" if fitted else page

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        output: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in output:
            output["text/html"] = self._repr_html_inner()
        return output


def calibrate_coverage(self: E, X: Any, y: Any = None, sample_weight: Any = None) -> E:
    """Take rows that were not fitted for sets or intervals, and `validation_score_`.

    The arguments are those of `fit`. Returns the estimator itself.
    """
    model, reader, done = self._model, self._spec().reader, self._fitted
    like = TrainingRows(None, model.task, inputs=model.inputs)  # type: ignore[arg-type]
    data = Data(X, y, sample_weight)
    rows = reader.read_validation(data, like, Run(seed=done.choice.seed))
    unseen = model.unseen(rows, rows.train, "rows of calibrate_coverage")
    self._fitted = replace(done, held_out=unseen, saved_leave_one_out=done.leave_one_out)  # type: ignore[misc]
    return self
