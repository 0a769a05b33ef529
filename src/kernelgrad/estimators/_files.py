"""Estimators to and from model files."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from kernelgrad._typing import AnyArray, Contents
from kernelgrad._validation import ModelFileError
from kernelgrad._version import __version__
from kernelgrad.estimators._tables import Table
from kernelgrad.functions.expansions import EXPANSIONS
from kernelgrad.functions.features import CACHE_BYTES, FeatureStream
from kernelgrad.kernels import Kernel, describe_kernel, get_kernel, restore_kernel
from kernelgrad.losses import LOSSES, UNLABELLED_LOSSES, Loss, UnlabelledLoss
from kernelgrad.persistence import (
    below,
    contents_digest,
    encode_value,
    prefixed,
)
from kernelgrad.solvers import (
    HISTORY_KEYS,
    LINEAR_SOLVERS,
    SOLVERS,
    LinearSolver,
    Solver,
)

ESTIMATORS: dict[str, Any] = {}
_FITTED = (
    "classes_", "feature_names_in_", "n_features_in_", "n_outputs_", "n_iter_",
    "best_iteration_", "best_score_", "fit_status_", "_y_ndim", "_seed", "_class_weights",
    "_by_pairs",     "_fitted_alpha",
    "alpha_", "labelled_weight_", "signal_variance_", "noise_variance_",
    "log_marginal_likelihood_", "y_mean_", "y_scale_", "samples_",
    "_medians", "n_blocks_", "_n_features_out",
)  # fmt: skip


def register_estimator(cls: Any) -> Any:
    """Let ``load`` find an estimator class by its name."""
    ESTIMATORS[cls.__name__] = cls
    return cls


def pack(value: Any) -> Any:
    if isinstance(value, Kernel):
        return {"kernel": describe_kernel(value)}
    # names of linear solvers are a registry of their own
    kinds: tuple[tuple[str, Any], ...] = (
        ("loss", Loss), ("unlabelled loss", UnlabelledLoss), ("linear solver", LinearSolver),
        ("solver", Solver),
    )  # fmt: skip
    for kind, cls in kinds:
        if isinstance(value, cls):
            params = {k: pack(v) for k, v in value.get_params(deep=False).items()}
            return {"part": kind, "name": value.name, "params": params}
    if isinstance(value, dict):  # class weights: keys may be any label
        return {"pairs": [[_scalar(k), _scalar(v)] for k, v in value.items()]}
    return {"value": value}


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def unpack(packed: dict[str, Any]) -> Any:
    if "pairs" in packed:
        return {k: v for k, v in packed["pairs"]}
    if "kernel" in packed:
        return restore_kernel(packed["kernel"])
    if "part" not in packed:
        return packed["value"]
    registries: dict[str, dict[str, Any]] = {
        "loss": dict(LOSSES),
        "unlabelled loss": dict(UNLABELLED_LOSSES),
        "linear solver": dict(LINEAR_SOLVERS),
        "solver": dict(SOLVERS),
    }
    registry = registries[packed["part"]]
    if packed["name"] not in registry:
        raise ModelFileError(
            f"The model uses the {packed['part']} {packed['name']!r}, which is not registered "
            "here; import the module that registers it, then load again."
        )
    return registry[packed["name"]](**{k: unpack(v) for k, v in packed["params"].items()})


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
                told[name] = json.dumps(encode_value(value), sort_keys=True)
            except TypeError:  # not in files
                it = value["value"]
                array = isinstance(it, np.ndarray) and it.dtype.kind in "biuf"
                told[name] = contents_digest(({}, {name: it})) if array else repr(it)
    return {
        "version": __version__,
        "estimator": type(estimator).__name__,
        "parameters": told,
    }


def contents_of(estimator: Any, *, resumable: bool = False) -> Contents:
    """Return what a file holds of a fitted estimator; see ``BaseRowsEstimator.save``."""
    header: dict[str, Any] = {
        "estimator": type(estimator).__name__,
        "info": {"written_by": f"kernelgrad {__version__}"} | estimator.model_info(),
        "params": packed_params(estimator),
        "fitted": {
            name: getattr(estimator, name) for name in _FITTED if hasattr(estimator, name)
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
        tensors |= prefixed("state", arrays)
    if estimator._table is not None:
        header["table"], arrays = estimator._table.describe()
        tensors |= prefixed("table", arrays)
    values, arrays = estimator._extra_arrays()
    header["extra"] = values
    return header, tensors | prefixed("extra", arrays)


def unfitted(name: str, params: dict[str, Any]) -> Any:
    """Return a new estimator with parameters that :func:`packed_params` gave."""
    if name not in ESTIMATORS:
        raise ModelFileError(f"The file holds a {name!r}, which this version does not know.")
    return ESTIMATORS[name](**{k: unpack(v) for k, v in params.items()})


def restored(header: dict[str, Any], tensors: dict[str, AnyArray]) -> Any:
    """Return the estimator that :func:`contents_of` was called on."""
    estimator = unfitted(header["estimator"], header["params"])
    for key, value in header["fitted"].items():
        setattr(estimator, key, value)
    limit = estimator.memory_limit
    cache = CACHE_BYTES if limit is None else int(limit) // 4
    if "stream" in header:
        estimator._set_stream(FeatureStream.restore(header["stream"], tensors, cache))
        return estimator
    estimator.loss_ = unpack(header["loss"])
    estimator.solver_ = unpack(header["solver"])
    if header.get("table") is not None:
        estimator._table = Table.restore(header["table"], below("table", tensors))
    kind = EXPANSIONS[header["expansion"]["kind"]]
    expansion = kind.restore(header["expansion"], tensors, cache)
    estimator._set(estimator._function_attributes(expansion))
    estimator.history_ = header["history"]
    for key in HISTORY_KEYS:  # of files from before a key was there
        estimator.history_.setdefault(key, [None] * len(estimator.history_["iteration"]))
    estimator.history_.setdefault("solver", estimator.solver_.name)
    estimator.history_.setdefault("solver_reason", "not in the file")
    estimator._restore_extra(header["extra"], below("extra", tensors))
    if header["state"] is not None:
        arrays = below("state", tensors)
        problem = estimator._restored_problem()
        estimator._state = estimator.solver_.restore(problem, header["state"], arrays)
    return estimator
