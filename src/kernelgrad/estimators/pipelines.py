"""Pipelines of scikit-learn around estimators of this package, to and from model files.

A file holds what the steps remember, as plain values and arrays, and names of classes from a
list: reading it makes objects of these classes and sets their attributes, and calls nothing.
"""

from __future__ import annotations

import builtins
import copy
import importlib
import os
import warnings
from collections import UserList
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from kernelgrad.estimators import files as _files
from kernelgrad.files.records import (
    MOST_LABELS,
    Record,
    anything,
    prefixed,
    read_container,
    restoring,
    write_container,
)
from kernelgrad.types import AnyArray
from kernelgrad.validation import ModelFileError, check_compressed

if TYPE_CHECKING:
    from kernelgrad.estimators.base import BaseRowsEstimator

STEPS = {
    "sklearn.compose": (
        "ColumnTransformer", "TransformedTargetRegressor", "make_column_selector",
    ),
    "sklearn.decomposition": ("FastICA", "IncrementalPCA", "NMF", "PCA", "TruncatedSVD"),
    "sklearn.feature_extraction.text": (
        "CountVectorizer", "HashingVectorizer", "TfidfTransformer", "TfidfVectorizer",
    ),
    "sklearn.feature_selection": ("SelectKBest", "SelectPercentile", "VarianceThreshold"),
    "sklearn.impute": ("KNNImputer", "MissingIndicator", "SimpleImputer"),
    "sklearn.kernel_approximation": ("Nystroem", "RBFSampler"),
    "sklearn.pipeline": ("FeatureUnion", "Pipeline"),
    "sklearn.preprocessing": (
        "Binarizer", "FunctionTransformer", "KBinsDiscretizer", "LabelBinarizer",
        "LabelEncoder", "MaxAbsScaler", "MinMaxScaler", "Normalizer", "OneHotEncoder",
        "OrdinalEncoder", "PolynomialFeatures", "PowerTransformer", "QuantileTransformer",
        "RobustScaler", "StandardScaler", "TargetEncoder",
    ),
}  # fmt: skip
"""The classes of scikit-learn that a model file may name, by their modules."""

_MODULES = {name: module for module, names in STEPS.items() for name in names}
_SCORES = ("chi2", "f_classif", "f_regression", "mutual_info_classif", "mutual_info_regression")
_ABSTRACT = (np.generic, np.number, np.integer, np.floating)  # for column selectors
_TYPES: dict[str, Any] = {
    t.__name__: t for t in (*np.sctypeDict.values(), *_ABSTRACT, bool, float, int, object, str)
}


def save(model: Any, path: str | os.PathLike[str], *, key: bytes | None = None) -> None:
    """Write a fitted estimator, or a pipeline of scikit-learn around one, to a model file.

    The file is written atomically, without pickle, and read by :func:`kernelgrad.load`, which
    executes nothing of it. Steps are those of scikit-learn that docs/serving.md lists, and the
    estimators of this package; what a step remembers must be numbers, text and arrays.

    Parameters
    ----------
    model : estimator of this package, Pipeline, ColumnTransformer, or another step
        Fitted. Of a search take ``best_estimator_``.
    path, key
        As in :meth:`KernelClassifier.save`.

    Raises
    ------
    NotFittedError
        The model is not fitted.
    TypeError
        A step is none of these, or remembers something else, such as a function; its place
        is named.

    Examples
    --------
    >>> import kernelgrad
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import PolynomialFeatures
    >>> model = make_pipeline(PolynomialFeatures(), kernelgrad.LinearRegressor())
    >>> model = model.fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
    >>> kernelgrad.save(model, "parabola.kgm")
    >>> kernelgrad.load("parabola.kgm")[0]
    PolynomialFeatures()
    """
    if _files.ESTIMATORS.get(type(model).__name__) is type(model):
        model.save(path, key=key)
        return
    if hasattr(model, "__sklearn_is_fitted__"):  # a pipeline; some steps need no fit
        check_is_fitted(model)
    writer = _Writer()
    packed = writer.pack(model, type(model).__name__)
    steps = [type(step).__name__ for _, step in getattr(model, "steps", ())]
    told = {"estimator": type(model).__name__, "steps": steps}
    header = {"estimator": told["estimator"], "info": writer.info | told, "object": packed}
    write_container(path, header, writer.arrays, key=key)


def load(path: str | os.PathLike[str], *, key: bytes | None = None) -> BaseRowsEstimator:
    """Load a model or pipeline that ``save`` wrote; never executes code from the file.

    The contents of the file are checked before they are used: names, types, shapes, ranges and
    indices. A file that passes is a valid model, but not necessarily the one that was saved, as
    anyone who can write to its folder can replace it. To prevent this, sign the file.

    Parameters
    ----------
    path : str or path-like
        The file.
    key : bytes or None, default=None
        The secret with which the file must be signed, by ``save(path, key=key)``; with None
        signatures are ignored.

    Returns
    -------
    KernelClassifier, KernelRegressor, any other estimator of this package, or a Pipeline
        Predictions are identical to those of the saved model.

    Raises
    ------
    FileNotFoundError
        No such file.
    ModelFileError
        The file is foreign, truncated, altered, of a newer version, not signed under the key,
        or uses a loss, kernel or solver that is not registered.
    """
    header, arrays = read_container(path, key=key)
    with restoring(path):
        if "object" not in header:
            return cast("BaseRowsEstimator", _files.restored(header, arrays))
        record = Record(header, arrays)
        model: BaseRowsEstimator = _unpack(record.take("object", anything), record)
        for told in ("estimator", "info"):
            record.take(told, anything)
        record.close()
        return model


class _Writer:
    """Objects as plain values, and what arrays and models they hold."""

    def __init__(self) -> None:
        self.arrays: dict[str, AnyArray] = {}
        self.info: dict[str, Any] = {}  # of the last estimator
        self._count = 0

    def pack(self, value: Any, place: str) -> Any:
        """Return a value in a form that :func:`_unpack` takes back."""
        if isinstance(value, UserList):  # of ColumnTransformer, before scikit-learn 1.7
            value = value.data
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind in (list, tuple, set, frozenset):
            some = sorted(value) if kind in (set, frozenset) else value
            items = [self.pack(v, f"{place}[{i}]") for i, v in enumerate(some)]
            return {"is": kind.__name__, "items": items}
        if kind is dict:
            pairs = [
                [self.pack(k, place), self.pack(v, f"{place}[{k!r}]")] for k, v in value.items()
            ]
            return {"is": "dict", "items": pairs}
        if kind is slice:
            return {"is": "slice", "items": [value.start, value.stop, value.step]}
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value, place)
        if isinstance(value, sp.csr_matrix | sp.csr_array):
            parts = [self._array(p, place) for p in (value.data, value.indices, value.indptr)]
            return {"is": kind.__name__, "items": parts, "shape": list(value.shape)}
        if isinstance(value, np.dtype):
            return {"is": "dtype", "name": value.str}
        name = getattr(value, "__name__", "")
        if isinstance(value, type) and _TYPES.get(name) is value:
            return {"is": "type", "name": name}
        if isinstance(value, np.ufunc) and getattr(np, name, None) is value:
            return {"is": "ufunc", "name": name}
        if name in _SCORES and _score(name) is value:
            return {"is": "score", "name": name}
        if _files.ESTIMATORS.get(kind.__name__) is kind:
            return self._model(value)
        return self._step(value, place)

    def _array(self, value: Any, place: str) -> Any:
        if value.dtype.kind in "biuf":
            self._count += 1
            name = str(self._count)
            array = np.asarray(value)
            turned = array.flags.f_contiguous and not array.flags.c_contiguous
            self.arrays[name] = array.T if turned else array  # products depend on the order
            if isinstance(value, np.generic):
                return {"is": "scalar", "name": name}
            return {"is": "turned" if turned else "array", "name": name}
        if isinstance(value, np.str_):
            return str(value)
        if value.dtype.kind not in "UO":
            raise _strange(value, place, f"an array of {value.dtype}")
        items = [self.pack(v, place) for v in value.ravel().tolist()]
        dtype = value.dtype.str if value.dtype.kind == "U" else "O"
        return {"is": "objects", "items": items, "shape": list(value.shape), "dtype": dtype}

    def _model(self, value: Any) -> Any:
        if not (hasattr(value, "expansion_") or hasattr(value, "stream_")):
            params = _files.packed_params(value)
            return {"is": "unfitted", "name": type(value).__name__, "params": params}
        header, arrays = _files.contents_of(value)
        self._count += 1
        self.arrays |= prefixed(str(self._count), arrays)
        self.info = header["info"]
        return {"is": "model", "name": str(self._count), "header": header}

    def _step(self, value: Any, place: str) -> Any:
        name = type(value).__name__
        if name not in _MODULES or _step_class(name) is not type(value):
            raise _strange(value, place, f"a {type(value).__module__}.{name}")
        state = dict(value.__getstate__() or {})
        if "memory" in state:
            state["memory"] = None  # a folder of pickles of this machine
        packed = {k: self.pack(v, f"{place}.{k}") for k, v in state.items()}
        return {"is": "step", "name": name, "state": packed}


def _strange(value: Any, place: str, what: str) -> TypeError:
    instead = ""
    if hasattr(value, "best_estimator_"):
        instead = " Save its best_estimator_."
    return TypeError(
        f"{place} is {what}, which a model file cannot hold: it takes the estimators of this "
        "package, the steps of scikit-learn that docs/serving.md lists, numbers, text and "
        f"arrays. Replace the step, or write the pipeline with skops or pickle.{instead}"
    )


def _step_class(name: str) -> Any:
    if name not in _MODULES:
        raise ModelFileError(f"The file names {name!r}, which is no step that files may hold.")
    return getattr(importlib.import_module(_MODULES[name]), name)


def _score(name: str) -> Any:
    if name not in _SCORES:
        raise ModelFileError(f"The file names {name!r}, which is no score that files may hold.")
    return getattr(importlib.import_module("sklearn.feature_selection"), name)


def _ufunc(name: str) -> Any:
    found = getattr(np, name, None)
    if not isinstance(found, np.ufunc):
        raise ModelFileError(f"The file names {name!r}, which is no function of numpy.")
    return found


def _unpack(packed: Any, record: Record) -> Any:
    """Return the value that :class:`_Writer` packed, whose arrays are in the record."""
    if not isinstance(packed, dict):
        return packed
    kind, name = packed["is"], packed.get("name", "")
    if kind in ("list", "tuple", "set", "frozenset"):
        return getattr(builtins, kind)(_unpack(v, record) for v in packed["items"])
    if kind == "dict":
        return {_unpack(k, record): _unpack(v, record) for k, v in packed["items"]}
    if kind == "slice":
        return slice(*packed["items"])
    if kind in ("array", "turned", "scalar"):
        array = record.arrays.pop(name)
        if kind == "scalar" and array.ndim:
            raise record.error(f"holds the array {name!r} where one number was")
        return array[()] if kind == "scalar" else array.T if kind == "turned" else array
    if kind == "objects":
        return _objects([_unpack(v, record) for v in packed["items"]], packed, record)
    if kind in ("csr_matrix", "csr_array"):
        parts = tuple(_unpack(v, record) for v in packed["items"])
        matrix = getattr(sp, kind)(parts, shape=tuple(packed["shape"]))
        check_compressed(matrix)
        return matrix
    if kind == "dtype":
        return np.dtype(name)
    if kind == "type":
        return _TYPES[name]
    if kind in ("ufunc", "score"):
        return _ufunc(name) if kind == "ufunc" else _score(name)
    if kind == "unfitted":
        return _files.unfitted(name, packed["params"])
    if kind == "model":
        return _files.restored(packed["header"], record.part(name).arrays)
    if kind != "step":
        raise ModelFileError(f"The file holds a {kind!r}, which this version does not know.")
    state = {k: _unpack(v, record) for k, v in packed["state"].items()}
    return _restored_step(_step_class(name), state)


def _objects(items: list[Any], packed: dict[str, Any], record: Record) -> AnyArray:
    """Return an array of text or objects."""
    dtype = np.dtype(packed["dtype"])
    if dtype.kind not in "UO" or dtype.itemsize * len(items) > MOST_LABELS:
        raise record.error(f"holds objects of dtype {packed['dtype']!r}")
    found = np.empty(len(items), dtype)
    found[:] = items
    return found.reshape(packed["shape"])


def _restored_step(cls: Any, state: dict[str, Any]) -> Any:
    """Return a step of scikit-learn with a state that it may have."""
    params = set(cls._get_param_names()) if hasattr(cls, "_get_param_names") else set()
    strange = [
        k for k in state if not k.isidentifier() or (k not in params and hasattr(cls, k))
    ]
    if strange:
        raise ModelFileError(f"The file sets {strange[0]!r} of a {cls.__name__}.")
    step = cls.__new__(cls)
    if not isinstance(step, BaseEstimator):
        vars(step).update(state)
        return step
    step.__setstate__(state)  # warns where another version of scikit-learn wrote it
    if hasattr(step, "_parameter_constraints"):
        step._validate_params()
    for check in ("_validate_steps", "_validate_transformers"):
        getattr(step, check, lambda: None)()
    if cls.__name__ == "ColumnTransformer":
        fitted = getattr(step, "transformers_", ())  # of which scikit-learn has no check
        if not all(isinstance(each, tuple) and len(each) == 3 for each in fitted):
            raise ModelFileError("The file holds transformers of columns that are none.")
    words = sorted(getattr(step, "vocabulary_", {}).values())
    if words != [*range(len(words))]:
        raise ModelFileError("The file numbers the words of a vocabulary, but not 0, 1, 2, ...")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names of columns
        _sent(step)
    return step


def _sent(step: Any) -> Any:
    """Send a row through a step: scikit-learn says nowhere of what shapes its arrays are.

    Returns
    -------
    array or sparse matrix (1, any)
        What comes out; zeros where no row is known.
    """
    unknown = sp.csr_matrix((1, 1))
    if hasattr(step, "steps"):
        return _sent(step.steps[-1][1])
    if not any(name.endswith("_") and not name.startswith("_") for name in vars(step)):
        return unknown
    if hasattr(step, "transformers"):
        return _joined(step)
    if not hasattr(step, "transform"):
        return unknown
    if hasattr(step, "categories_"):
        row: Any = np.array([[levels[0] for levels in step.categories_]], object)
    elif hasattr(step, "build_analyzer"):
        row = ["a"]
    elif hasattr(step, "classes_"):
        row = step.classes_[:1]
    else:
        row = np.ones((1, step.n_features_in_))
    return step.transform(row)


def _joined(step: Any) -> Any:
    """Return what a ColumnTransformer makes of what its own steps send, for any row."""
    probe = copy.copy(step)
    probe.n_jobs = None
    probe.transformers_ = [
        (name, each if each == "drop" else FunctionTransformer(partial(_told, each)), columns)
        for name, each, columns in step.transformers_
    ]
    row: Any = np.ones((1, step.n_features_in_))
    if hasattr(step, "feature_names_in_"):
        try:
            from pandas import DataFrame
        except ImportError:  # other frames are as good, but none is at hand
            return row
        row = DataFrame(row, columns=step.feature_names_in_)
    with config_context(transform_output="default"):
        return probe.transform(row)


def _told(step: Any, X: Any) -> Any:
    return _sent(step)
