"""Parts by name, and names that are imported on first use."""

import importlib
import sys
import warnings
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def room(name: str) -> Any:
    """Return a room of the package that the core does not import, such as ``"device"``."""
    return importlib.import_module(f"kernelgrad.{name}")


class Registry(UserDict[str, Any], Generic[T]):
    """Classes by their attribute `key`.

    `paths` has names of classes in optional rooms, with module and class below ``kernelgrad``,
    as ``"papers.sbp:StochasticBatchPerceptron"``: they are imported when a name is looked up.
    `renamed` has old names, which are looked up but not listed, and the names in their place.
    """

    def __init__(
        self, paths: Mapping[str, str], *, key: str = "name", renamed: Mapping[str, str] = {}
    ) -> None:
        super().__init__(paths)
        self.renamed, self._key = renamed, key
        self.lazy = {path.rpartition(":")[2]: name for name, path in paths.items()}

    def register(self, cls: type[T]) -> type[T]:
        """Add a class under its name; usable as a decorator."""
        self[getattr(cls, self._key)] = cls
        return cls

    def __getitem__(self, name: str) -> type[T]:
        name = self.renamed.get(name, name)
        entry: Any = self.data[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self.data[name] = getattr(room(module), attribute)
        return entry  # type: ignore[no-any-return]

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self.renamed


def warn_renamed(old: str, new: str) -> None:
    """Warn that a name has another one in its place."""
    warnings.warn(
        f"{old} is now called {new}; the old name will be an error in version 0.5.",
        FutureWarning,
        stacklevel=3,
    )


def lazy_names(
    module: str, *registries: Registry[Any], paths: Mapping[str, str] = {},
    renamed: Mapping[str, str] = {},
) -> tuple[Callable[[str], Any], list[str]]:  # fmt: skip
    """Return the ``__getattr__`` of a module whose names load on first use, and these names.

    They are the class names of the registries' optional rooms, and those in `paths`, with the
    module below ``kernelgrad`` of each; `renamed` has old names, which are not listed.
    """

    def load(name: str) -> Any:
        if name in renamed:
            warn_renamed(name, renamed[name])
            return getattr(sys.modules[module], renamed[name])
        if name in paths:
            value = getattr(room(paths[name]), name)
        else:
            owner = next((r for r in registries if name in r.lazy), None)
            if owner is None:
                message = f"module {module!r} has no attribute {name!r}"
                raise AttributeError(message, name=name, obj=sys.modules[module])
            value = owner[owner.lazy[name]]
        setattr(sys.modules[module], name, value)
        return value

    return load, sorted({*paths, *(name for r in registries for name in r.lazy)})
