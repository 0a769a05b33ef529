"""Parameters and parts of models as plain values, for files."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelgrad.files import container
from kernelgrad.files.records import Record, anything, registered_part
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Kernel, describe_kernel, get_kernel, restore_kernel
from kernelgrad.losses import LOSSES, UNLABELLED_LOSSES
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS
from kernelgrad.types import Contents
from kernelgrad.validation import check_name
from kernelgrad.version import __version__

if TYPE_CHECKING:
    from kernelgrad.model import Fit

# Registries of parts by what files call them; names of linear solvers are their own.
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
    if isinstance(value, InputScaling):
        return {"scaling": {name: pack(array) for name, array in value.arrays().items()}}
    if isinstance(value, np.ndarray) and value.ndim > 1:
        return {"array": value.ravel(), "shape": list(value.shape)}
    if isinstance(value, dict):  # class weights: keys may be any label
        return {"pairs": [[k, v] for k, v in value.items()]}
    return {"value": value}


def unpack(packed: Any) -> Any:
    record = Record(packed, subject="parameter")
    kinds = ("pairs", "kernel", "part", "scaling", "array")
    kind = next((k for k in kinds if k in record), "value")
    value = record.take(kind, anything)
    if kind == "array":
        value = np.asarray(value, np.float64).reshape(tuple(record.take("shape", anything)))
    if kind == "part":
        return registered_part(record, value, _PARTS[check_name(value, _PARTS, "part")], unpack)
    record.close()
    if kind == "pairs":
        return {k: v for k, v in value}
    if kind == "scaling":
        return _restored_scaling(value)
    return restore_kernel(value) if kind == "kernel" else value


def _restored_scaling(value: Any) -> InputScaling:
    arrays = {name: unpack(array) for name, array in value.items()}
    widths = [len(a) if name == "metric" else a.shape[-1] for name, a in arrays.items()]
    record = Record({}, arrays, "scaling")
    scaling = InputScaling.restore(record, max(widths, default=0))
    record.close()
    return scaling


def packed_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an estimator as plain values, where they have such a form."""
    packed: dict[str, Any] = {}
    for name, value in params.items():
        if name in ("callbacks", "engine"):
            value = None  # live objects of this process
        elif name == "random_state" and not isinstance(value, int | np.integer | None):
            value = None  # the seed in use is part of the model
        elif name == "kernel" and not isinstance(value, str | Kernel):
            value = get_kernel(value)  # a function, which has no such form
        packed[name] = pack(value)
    return packed


def identity(owner: str, params: Mapping[str, Any], before: Fit | None) -> dict[str, Any]:
    """Return what must be the same where a fit is resumed: what has influence on the model."""
    texts: dict[str, Any] = {}
    for name, value in packed_params(params).items():
        if name not in ("verbose", "time_limit"):
            try:
                texts[name] = json.dumps(container.encode_value(value), sort_keys=True)
            except TypeError:  # not in files
                texts[name] = repr(value)
    start: Contents = {}, {}
    if before is not None and before.state is not None:
        start = before.state.describe()
    digest = container.contents_digest(start)
    return {"version": __version__, "estimator": owner, "parameters": texts, "start": digest}
