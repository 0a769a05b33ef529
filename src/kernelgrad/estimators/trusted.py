"""Names of the types in models of this package, which skops asks to be trusted."""

from collections.abc import Iterator
from pkgutil import walk_packages

from scipy.sparse import csr_array, csr_matrix

from kernelgrad.registry import room

_ROOMS = (
    "calibration", "callbacks.base", "choice", "data.arrays", "estimators", "families",
    "features", "functions", "inputs", "kernels", "linear", "losses", "model", "papers",
    "partly_labelled", "posterior", "quality", "solvers", "special_kernels", "tables", "tasks",
    "training_rows",
)  # fmt: skip
_METHODS = ("check_variance", "degrees", "embed", "factor_quantile")


def _names() -> Iterator[str]:
    for name in _ROOMS:
        inner = walk_packages(getattr(room(name), "__path__", ()), f"kernelgrad.{name}.")
        for path in (name, *(each.name.removeprefix("kernelgrad.") for each in inner)):
            module = room(path)
            for cls in vars(module).values():
                if isinstance(cls, type) and cls.__module__ == module.__name__:
                    yield f"{cls.__module__}.{cls.__qualname__}"
                    for method in _METHODS:
                        if hasattr(cls, method):
                            yield f"{cls.__module__}.{cls.__qualname__}.{method}"


_SPARSE = (f"{cls.__module__}.{cls.__qualname__}" for cls in (csr_matrix, csr_array))
SKOPS_TYPES: list[str] = sorted({"numpy.dtype", *_SPARSE, *_names()})
