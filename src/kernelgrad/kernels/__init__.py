"""Kernels: two sets of rows come in, values of all pairs go out."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from kernelgrad.files.records import Record, anything, registered_part
from kernelgrad.kernels.base import ExactRows as ExactRows
from kernelgrad.kernels.base import Kernel as Kernel
from kernelgrad.kernels.base import ProductKernel as ProductKernel
from kernelgrad.kernels.base import SumKernel as SumKernel
from kernelgrad.kernels.base import TiledKernel as TiledKernel
from kernelgrad.kernels.blackbox import CallableKernel as CallableKernel
from kernelgrad.kernels.blackbox import PrecomputedKernel as PrecomputedKernel
from kernelgrad.kernels.projection import ProjectionKernel as ProjectionKernel
from kernelgrad.kernels.stationary import Cauchy as Cauchy
from kernelgrad.kernels.stationary import Gaussian as Gaussian
from kernelgrad.kernels.stationary import Laplacian as Laplacian
from kernelgrad.kernels.stationary import Matern as Matern
from kernelgrad.kernels.stationary import RootLaplacian as RootLaplacian
from kernelgrad.kernels.stationary import StationaryKernel as StationaryKernel
from kernelgrad.registry import Registry, lazy_names
from kernelgrad.validation import check_name

if TYPE_CHECKING:
    from kernelgrad.special_kernels import *  # noqa: F403

_SPECIAL = {
    "arc_cosine": "ArcCosine", "chi2": "Chi2", "convolutional": "ConvolutionKernel",
    "dot_product": "DotProduct", "exponential_semigroup": "ExponentialSemigroup",
    "hellinger": "Hellinger", "intersection": "Intersection", "jensen_shannon": "JensenShannon",
    "polynomial": "Polynomial", "reciprocal_semigroup": "ReciprocalSemigroup",
    "skewed_chi2": "SkewedChi2", "skewed_intersection": "SkewedIntersection",
}  # fmt: skip
KERNELS: Registry[Kernel] = Registry(
    {name: f"special_kernels:{cls}" for name, cls in _SPECIAL.items()}
)
for _cls in (
    Cauchy, Gaussian, Laplacian, Matern, PrecomputedKernel, ProductKernel, RootLaplacian,
    SumKernel,
):  # fmt: skip
    KERNELS.register(_cls)
register_kernel = KERNELS.register
_ALIASES = {"gaussian": "rbf", "poly": "polynomial"}
__getattr__, _lazy = lazy_names(__name__, KERNELS)


def __dir__() -> list[str]:
    return sorted({*globals(), *_lazy})


def get_kernel(
    kernel: Any, *, gamma: float | str | None = None, bandwidth_factor: float | None = None
) -> Kernel:
    """Return the kernel given by a name, an object or a function.

    Parameters
    ----------
    kernel : str, Kernel or function
        ``"linear"`` is ``<x, z>``, the polynomial kernel of degree 1. A function of two sets
        of rows is wrapped in a :class:`CallableKernel`.
    gamma, bandwidth_factor : default=None
        Parameters of a kernel given by name; kernels without such a parameter ignore them, an
        object keeps its own, and None keeps the default of the kernel. For kernels of the
        inner product ``gamma="median"``, the default of the estimators, means ``"auto"``,
        which is ``1 / d``.

    Returns
    -------
    Kernel
        A new object, whose parameters have been checked.
    """
    result: Kernel
    if isinstance(kernel, str):
        if kernel == "linear":
            return KERNELS["polynomial"](degree=1, gamma=1.0, coef0=0.0)
        if kernel == "sigmoid":
            raise ValueError(
                "kernel 'sigmoid' is not positive semi-definite, so it has no function space; "
                "use 'arc_cosine', the kernel of a random layer of a neural network."
            )
        name = _ALIASES.get(kernel, kernel)
        if name not in KERNELS:
            check_name(name, {*KERNELS, *_ALIASES, "linear"}, "kernel")
        cls = KERNELS[name]
        if gamma == "median" and gamma not in cls.gamma_rules:
            gamma = cls.gamma_rules[0]  # "median" is the estimators' default for all kernels
        params = {"gamma": gamma, "bandwidth_factor": bandwidth_factor}
        accepted = inspect.signature(cls).parameters
        needed = [k for k, p in accepted.items() if p.default is p.empty]
        if needed:
            raise ValueError(
                f"kernel {name!r} needs {', '.join(needed)}; give an object, "
                f"kernelgrad.kernels.{cls.__name__}(...)."
            )
        result = cls(**{k: v for k, v in params.items() if v is not None and k in accepted})
    elif isinstance(kernel, Kernel):
        result = clone(kernel)
    elif callable(kernel) and not isinstance(kernel, type):
        result = CallableKernel(kernel)
    else:
        raise TypeError(
            f"kernel must be a name ({', '.join(sorted({*KERNELS, *_ALIASES, 'linear'}))}), a "
            f"kernelgrad kernel or a function; got {kernel!r}."
        )
    result.check()
    return result


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return the name and the parameters of a kernel and its parts as plain JSON values."""
    if isinstance(kernel, CallableKernel):
        raise TypeError(
            f"A model whose kernel is a function, {kernel.function!r}, cannot be written to a "
            "file; write the kernel as a subclass of kernelgrad.kernels.Kernel and give it a "
            "name with register_kernel, or pickle the model."
        )
    params = kernel.get_params(deep=False)
    return {"name": kernel.name, "params": {k: _encode(v) for k, v in params.items()}}


def kernel_summary(kernel: Kernel) -> dict[str, Any]:
    """Return the parameters of a kernel and its parts in readable form."""

    def plain(value: Any) -> Any:
        if isinstance(value, Kernel):
            return {"name": value.name, **kernel_summary(value)}
        if isinstance(value, list | tuple | np.ndarray):
            return [plain(v) for v in value]
        if callable(value):
            return getattr(value, "__name__", repr(value))
        return value.item() if isinstance(value, np.generic) else value

    return {k: plain(v) for k, v in kernel.get_params(deep=False).items()}


def restore_kernel(description: dict[str, Any]) -> Kernel:
    """Return the kernel that :func:`describe_kernel` described."""
    record = Record(description, subject="kernel")
    kernel: Kernel = registered_part(record, "kernel", KERNELS, _decode)
    return kernel


def _encode(value: Any) -> dict[str, Any]:
    if isinstance(value, Kernel):
        return {"kernel": describe_kernel(value)}
    if isinstance(value, list | tuple | np.ndarray):
        kind = "tuple" if isinstance(value, tuple) else "items"
        return {kind: [_encode(v) for v in value]}
    return {"value": value.item() if isinstance(value, np.generic) else value}


def _decode(packed: Any) -> Any:
    record = Record(packed, subject="kernel")
    kind = next(iter(packed), "value")
    value = record.take(kind, anything)
    record.close()
    if kind == "kernel":
        return restore_kernel(value)
    if kind in ("items", "tuple") and isinstance(value, list):
        items = [_decode(v) for v in value]
        return tuple(items) if kind == "tuple" else items
    if kind != "value" or isinstance(value, list | tuple | dict | np.ndarray):
        raise record.error(f"holds a {kind!r} that it does not know")
    return value
