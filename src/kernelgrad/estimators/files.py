"""Estimators to and from model files."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import numpy as np

from kernelgrad.files import records
from kernelgrad.files.records import Check, Record, anything
from kernelgrad.functions.expansions import restored_expansion
from kernelgrad.functions.features import CACHE_BYTES, FeatureStream
from kernelgrad.kernels import Kernel, describe_kernel, get_kernel, restore_kernel
from kernelgrad.losses import LOSSES, UNLABELLED_LOSSES, Loss
from kernelgrad.registry import Registry
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS, Solver, restored_history
from kernelgrad.tables import Table
from kernelgrad.types import AnyArray, Contents
from kernelgrad.validation import CapabilityError, ModelFileError, check_name
from kernelgrad.version import __version__

ESTIMATORS: Registry[Any] = Registry(
    {
        name: f"linear:{name}"
        for name in ("LinearClassifier", "LinearRegressor", "RandomFeatures")
    },
    key="__name__",
)
register_estimator = ESTIMATORS.register
REPLACED = {"saga": "svrg", "simba": "sdca"}  # linear solvers of 0.1 and 0.2 that are gone


def numbers(value: Any, name: str) -> None:
    _array_of(value, name, "biuf")
    if not np.isfinite(value).all():
        raise ValueError(f"{name} holds a number that is not finite.")


def texts(value: Any, name: str) -> None:
    _array_of(value, name, "OU")


def labels(value: Any, name: str) -> None:
    _array_of(value, name, "biufOU")
    if not (len(value) > 1 and bool((value[1:] > value[:-1]).all())):
        raise ValueError(f"{name} must hold at least two labels that increase, got {value!r}.")


def _array_of(value: Any, name: str, kinds: str) -> None:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        raise TypeError(f"{name} must be an array, got {value!r}.")


def check_registered(estimator: Any) -> None:
    """Raise TypeError if no file can hold an estimator, as its class has no name in files."""
    cls = type(estimator)
    if ESTIMATORS.get(cls.__name__) is not cls:
        raise TypeError(
            f"{cls.__module__}.{cls.__qualname__} is not registered under its name, so that no "
            "file of it could be loaded: decorate it with "
            "kernelgrad.estimators.register_estimator, or pickle the model."
        )


def _declared(cls: type, what: str) -> dict[str, Check]:
    """Return what a class and its bases declare that files hold of fitted attributes."""
    found: dict[str, Check] = {}
    for each in reversed(cls.__mro__):
        found |= vars(each).get(what, {})
    return found


# Parts by what files call them; names of linear solvers are a registry of their own
_PARTS: dict[str, MutableMapping[str, Any]] = {
    "loss": LOSSES,
    "unlabelled loss": UNLABELLED_LOSSES,
    "linear solver": LINEAR_SOLVERS,
    "solver": SOLVERS,
}


def pack(value: Any) -> Any:
    if isinstance(value, Kernel):
        return {"kernel": describe_kernel(value)}
    if getattr(value, "part", None) in _PARTS:
        params = {k: pack(v) for k, v in value.get_params(deep=False).items()}
        return {"part": value.part, "name": value.name, "params": params}
    if isinstance(value, dict):  # class weights: keys may be any label
        return {"pairs": [[_scalar(k), _scalar(v)] for k, v in value.items()]}
    return {"value": value}


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def unpack(packed: Any) -> Any:
    record = Record(packed, place="parameter")
    kind = next((k for k in ("pairs", "kernel", "part") if k in record), "value")
    value = record.take(kind, anything)
    if kind == "part":
        return records.registered_part(
            record, value, _PARTS[check_name(value, _PARTS, "part")], unpack
        )
    record.close()
    if kind == "pairs":
        return {k: v for k, v in value}
    return restore_kernel(value) if kind == "kernel" else value


def packed_params(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator as plain values, where they have such a form."""
    params: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if name in ("callbacks", "engine"):
            value = None  # live objects of this process
        elif name == "random_state" and not isinstance(value, int | np.integer | None):
            value = None  # the seed in use is part of the model
        elif name == "kernel" and not isinstance(value, str | Kernel):
            value = get_kernel(value)  # scikit-learn's RBF and Matern have an equal of ours
        params[name] = pack(value)
    return params


def identity(estimator: Any) -> dict[str, Any]:
    """Return what must be the same where a fit is resumed, beside the rows.

    Parameters without influence on the model are left out.
    """
    told: dict[str, Any] = {}
    for name, value in packed_params(estimator).items():
        if name not in ("verbose", "time_limit"):
            try:
                told[name] = json.dumps(records.encode_value(value), sort_keys=True)
            except TypeError:  # not in files
                it = value["value"]
                array = isinstance(it, np.ndarray) and it.dtype.kind in "biuf"
                told[name] = records.contents_digest(({}, {name: it})) if array else repr(it)
    return {
        "version": __version__,
        "estimator": type(estimator).__name__,
        "parameters": told,
    }


def contents_of(estimator: Any, *, resumable: bool = False) -> Contents:
    """Return what a file holds of a fitted estimator; see ``BaseRowsEstimator.save``."""
    _check_parameters(estimator)  # a file with others would not load
    header: dict[str, Any] = {
        "estimator": type(estimator).__name__,
        "info": {"written_by": f"kernelgrad {__version__}"} | estimator.model_info(),
        "params": packed_params(estimator),
        "fitted": {
            name: getattr(estimator, name)
            for what in ("_kept", "_may_keep")
            for name in _declared(type(estimator), what)
            if hasattr(estimator, name)
        },
    }
    if not hasattr(estimator, "expansion_"):  # a transformer is its stream
        stream = estimator.stream_
        return header | {"stream": stream.describe()}, dict(stream.scaling.arrays())
    values, tensors = estimator.expansion_.describe()
    header |= {
        "loss": pack(estimator.loss_),
        "solver": pack(estimator.solver_),
        "expansion": {"kind": estimator.expansion_.kind} | values,
        "history": estimator.history_,
        "state": None,
        "table": None,
    }
    header["info"]["resumable"] = resumable
    if resumable:
        if not hasattr(estimator, "_state"):
            raise ValueError(
                "This model was loaded from a file without the solver's state; save it with "
                "resumable=False, or fit it again."
            )
        values, arrays = estimator.solver_.state_arrays(estimator._state)
        header["state"] = values
        tensors |= records.prefixed("state", arrays)
    if estimator._table is not None:
        header["table"], arrays = estimator._table.describe()
        tensors |= records.prefixed("table", arrays)
    values, arrays = estimator._extra_arrays()
    header["extra"] = values
    return header, tensors | records.prefixed("extra", arrays)


def _unfitted(name: str, params: dict[str, Any]) -> Any:
    if name not in ESTIMATORS:
        raise ModelFileError(
            f"The file holds a {name!r}, which is not registered here; import the module that "
            "registers it, then load again."
        )
    return ESTIMATORS[name](**{k: unpack(v) for k, v in params.items()})


def _check_parameters(estimator: Any) -> None:
    """Raise unless the parameters are those of a fit, perhaps on another machine."""
    with suppress(CapabilityError):
        estimator._check_parameters()


def restored(header: dict[str, Any], tensors: dict[str, AnyArray]) -> Any:
    record = Record(*_without_removed(header, tensors))
    name, params = record.take("estimator", records.check_text), record.part("params")
    estimator = _unfitted(name, params.values)
    _check_parameters(estimator)
    record.part("info")
    _restore_fitted(estimator, record.part("fitted"))
    limit = estimator.memory_limit
    cache = CACHE_BYTES if limit is None else int(limit) // 4
    if "stream" in record:
        home = record.beside("stream")
        record.sizes["d"] = estimator.n_features_in_
        estimator._set_stream(FeatureStream.restore(home, cache))
        home.close()
    else:
        _restore_model(estimator, record, cache)
    record.close()
    return estimator


def _without_removed(header: dict[str, Any], tensors: dict[str, AnyArray]) -> Contents:
    """Return the contents of a file of 0.1 or 0.2 without what later versions do not have."""
    params = {k: v for k, v in header["params"].items() if k != "monotonic_cst"}
    if params.get("solver") == {"value": "cached"}:
        params["solver"] = {"value": SOLVERS.renamed["cached"]}
    solver = REPLACED.get(header.get("solver", {}).get("name"))
    if solver is not None:
        instead = LINEAR_SOLVERS[solver]()
        header = header | {"solver": pack(instead), "state": None}  # the states differ
        params["solver"] = pack(instead)
        tensors = {k: a for k, a in tensors.items() if not k.startswith("state.")}
    return header | {"params": params}, tensors


def _restore_fitted(estimator: Any, record: Record) -> None:
    for name, check in _declared(type(estimator), "_kept").items():
        setattr(estimator, name, record.take(name, check))
    for name, check in _declared(type(estimator), "_may_keep").items():
        if name in record:
            setattr(estimator, name, record.take(name, check))
    record.close()
    n = estimator.n_features_in_
    for name in ("feature_names_in_", "_medians"):
        found = getattr(estimator, name, None)
        if found is not None and len(found) != n:
            raise record.error(f"holds {len(found)} entries of {name} for {n} columns")


def _restore_model(estimator: Any, record: Record, cache: int) -> None:
    for name, cls in (("loss", Loss), ("solver", Solver)):
        value = unpack(record.take(name, anything))
        if not isinstance(value, cls):
            raise record.error(f"holds {value!r} as its {name}")
        setattr(estimator, f"{name}_", value)
    estimator._check_restored()
    columns, state = (record.take(name, anything, None) for name in ("table", "state"))
    table, resumed, extra = (record.part(name) for name in ("table", "state", "extra"))
    if columns is not None:
        estimator._table = Table.restore(columns, table, estimator.n_features_in_)
    table.close()
    record.sizes |= {"C": estimator._task().n_outputs, "d": estimator._width}
    expansion = record.beside("expansion")
    function = restored_expansion(expansion, cache)
    estimator._set(estimator._function_attributes(function))
    told = {"solver": estimator.solver_.name, "solver_reason": "not in the file"}
    history = restored_history(record.part("history"))
    estimator.history_ = history | {k: v for k, v in told.items() if k not in history}
    estimator._restore_extra(extra)
    extra.close()
    if state is not None:
        kernel, alpha = estimator._make_parts().kernel, estimator._fitted_alpha
        problem = estimator._problem(kernel, estimator.loss_, function.n_outputs, alpha)
        estimator._state = estimator.solver_.restore(problem, state, resumed.arrays)
        found = estimator._state.iteration
        if found != estimator.n_iter_:
            raise record.error(f"holds a state of {found} iterations, not {estimator.n_iter_}")
    elif resumed.arrays:
        raise record.error("holds arrays of a state that it does not have")
