"""Helpers of the estimators: callbacks of scikit-learn, warnings, fits that fail, columns."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, update_wrapper
from operator import methodcaller
from types import MethodType
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn import config_context
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from kernelgrad.callbacks import FitEvent
from kernelgrad.data import BatchSource
from kernelgrad.data.base import all_finite
from kernelgrad.files.disk import replacing
from kernelgrad.registry import room
from kernelgrad.solvers import Solver, State
from kernelgrad.types import AnyArray, Float64Array, Matrix
from kernelgrad.validation import DataError

try:  # scikit-learn >= 1.9
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
    from sklearn.callback import with_callbacks as _with_callbacks
except ImportError:
    _with_callbacks = None

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing to support before scikit-learn 1.9."""


F = TypeVar("F", bound=Callable[..., Any])
# Attributes by which scikit-learn's decorator ends its callbacks, also after a failed fit
_CONTEXT = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")


class OnnxMixin:
    """Export of a fitted estimator as an ONNX model."""

    _onnx_kind: ClassVar[str]  # what it predicts, of `kernelgrad.onnx.export`

    def to_onnx(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Return the fitted model as an ONNX model, for programs without Python.

        It holds the encoding of tables, the scaling of the columns and the function. Random
        features, which a file of `save` draws from a seed, are written out: ``2 d D`` bytes for
        D of them of d columns in pairs. docs/serving.md has the inputs and outputs.

        Parameters
        ----------
        path : str or path-like, optional
            Where to write the model too, atomically.

        Returns
        -------
        onnx.ModelProto
            Of operator set 18, with ai.onnx.ml 3.

        Raises
        ------
        CapabilityError
            The kernel has no form in ONNX, or the model would be larger than 2 GiB.
        """
        return self._to_onnx(path)

    def _to_onnx(self, path: str | os.PathLike[str] | None, **options: Any) -> Any:
        check_is_fitted(self)
        try:
            export = room("onnx.export").export
        except ModuleNotFoundError as error:
            if error.name != "onnx":
                raise
            raise ImportError(
                "to_onnx needs onnx; install it with: pip install 'kernelgrad[onnx]'"
            ) from None
        model = export(self, **options)
        if path is not None:
            with replacing(path) as file:
                file.write(model.SerializeToString())
        return model


def as_numpy(method: F) -> F:
    """Return a method that takes arrays as NumPy's, also where scikit-learn keeps others."""
    return config_context(array_api_dispatch=False)(method)  # type: ignore[no-any-return]


_OF_ALL_FITS = """

Returns
-------
self

Raises
------
ValueError, TypeError
    For parameters outside their domain, infinite values, wrong shapes, or rows outside the
    kernel's domain; before any work is done."""


def with_callbacks(method: F) -> F:
    """Return `fit` with what all document, and scikit-learn's callbacks where there are any."""
    method.__doc__ = f"{inspect.getdoc(method)}{_OF_ALL_FITS}"
    return method if _with_callbacks is None else _with_callbacks(method)


class _Offered:
    """A method that an estimator has where its check does not raise."""

    def __init__(self, method: Callable[..., Any], check: Callable[[Any], object]) -> None:
        self._method, self._check = method, check
        update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is None:
            return self._method
        try:
            self._check(estimator)
        except (AttributeError, ValueError, TypeError) as reason:
            raise AttributeError(
                f"This {owner.__name__} has no {self._method.__name__}: {reason}"
            ) from reason
        return MethodType(self._method, estimator)


def available_if(check: Callable[[Any], object]) -> Callable[[F], F]:
    """Return a decorator of methods that are there where `check` of the estimator returns.

    As scikit-learn's of that name, but the reason is in the message of the error itself.
    """
    return partial(_Offered, check=check)  # type: ignore[return-value]


can_stream = methodcaller("_check_streams")


def _told(estimator: Any, X: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    return {"estimator": estimator, "X": X, "y": y, "metadata": metadata}


@contextmanager
def reported(
    estimator: Any, X: Any, y: Any = None, sample_weight: Any = None
) -> Iterator[None]:
    if not getattr(estimator, "_skl_callbacks", None):
        yield
        return
    told = _told(estimator, X, y, sample_weight)
    ctx = estimator._init_callback_context(max_subtasks=getattr(estimator, "max_iter", 0))
    ctx.call_on_fit_task_begin(**told)
    yield
    ctx.call_on_fit_task_end(**told, reconstruction_attributes={})


def iteration_report(
    estimator: Any, X: Any, y: Any, sample_weight: Any, solver: Solver[Any]
) -> Callable[[FitEvent, State], bool] | None:
    """Return the function that reports an iteration to scikit-learn's callbacks, or None."""
    ctx = getattr(estimator, _CONTEXT[0], None)
    if ctx is None:
        return None
    told = _told(estimator, X, y, sample_weight)

    def report(event: FitEvent, state: State) -> bool:
        def attributes() -> dict[str, Any]:
            found: dict[str, Any] = estimator._function_attributes(
                solver.expansion(state).copy()
            )
            return found | {"n_iter_": event.iteration}

        sub = ctx.subcontext(task_name="iteration").call_on_fit_task_begin(**told)
        return bool(sub.call_on_fit_task_end(**told, reconstruction_attributes=attributes))

    return report


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Leave the estimator as it was where a fit fails."""
    now = estimator.__dict__
    before = dict(now)
    try:
        yield
    except BaseException:
        kept = {name: now[name] for name in _CONTEXT if name in now}
        now.clear()
        now.update(before | kept)
        raise


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def new_seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(0, 2**31 - 1))


def adopt_columns(estimator: Any, source: BatchSource) -> None:
    """Take number and names of columns from a source, as scikit-learn does from arrays."""
    if source.n_rows == 0:
        raise DataError("The source has no rows.")
    estimator.n_features_in_ = source.n_features
    if source.feature_names is not None:
        estimator.feature_names_in_ = np.asarray(source.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def check_columns(estimator: Any, source: BatchSource) -> None:
    if source.n_features != estimator.n_features_in_:
        raise ValueError(
            f"The source has {source.n_features} features, but {type(estimator).__name__} is "
            f"expecting {estimator.n_features_in_} features as input."
        )
    mine = getattr(estimator, "feature_names_in_", None)
    if mine is None or source.feature_names is None:
        return
    for i, (a, b) in enumerate(zip(mine, source.feature_names, strict=True)):
        if a != b:
            raise ValueError(
                f"Column {i} of the source is {b!r}, but the model was fitted with {a!r} "
                "there; open the file with feature_names=model.feature_names_in_."
            )


@as_numpy
def checked_weights(
    sample_weight: Any, X: Matrix, factor: Float64Array | None = None
) -> Float64Array:
    """Return weights times the factor of each row; at least one row must count."""
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    weight = weight if factor is None else weight * factor
    with np.errstate(over="ignore"):
        total = float(weight.sum())
    if not total > 0:
        raise ValueError("All sample weights are zero; at least one row must count.")
    if not 1e-30 <= total <= 1e30:
        raise ValueError(
            f"The sum of the sample weights is {total:.3g}, not within 1e-30 and 1e30; divide "
            "them by their mean."
        )
    # a weight that is lost in every sum of float64 would overflow as a divisor
    return np.where(weight < 1e-30 * weight.max(), 0.0, weight)


def check_values(values: AnyArray, what: str, first: int = 0) -> None:
    """Raise DataError if a row of values is not finite; `first` is the number of the first."""
    if not all_finite(values):
        row = first + int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        raise DataError(
            f"{what} at row {row} (rows count from 0) of those given at once: the row, or "
            "parameters of the kernel, are too large; correct or scale them."
        )


def check_numbers(y: Any, name: str) -> None:
    """Raise for targets of an estimator of numbers, its `name`, that are text."""
    values = np.asarray(y)
    for value in values.flat if values.dtype.kind in "OU" else ():
        try:
            float(value if isinstance(value, str) else 0)
        except ValueError:
            raise DataError(
                f"y holds {str(value)!r}, but {name} predicts numbers; give numbers, or take a "
                "classifier for labels."
            ) from None
