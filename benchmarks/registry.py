"""Data sets and objectives, and how dropped-in files are found."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

Row = dict[str, Any]


class SkipError(Exception):
    """A benchmark cannot run here; the message says why."""


@dataclass
class Data:
    """One data set, ready for any estimator; `y_scale` turns errors into original units."""

    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any
    y_scale: float = 1.0


class Dataset(ABC):
    """A data set with its task."""

    name: ClassVar[str]
    task: ClassVar[str]

    @abstractmethod
    def load(self) -> Data:
        """Return the data, or raise SkipError."""


class Objective(ABC):
    """One measurement. `run` yields (table, row); tables are printed and written as JSON.

    A check sets `status`, the exit status of the command, to 1 where it fails.
    """

    name: ClassVar[str]
    repeat: ClassVar[int] = 3
    status: int = 0

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this objective."""
        return

    @abstractmethod
    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Measure; `args` has at least ``repeat`` and ``quick``."""

    def page(self, tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """Return what the page of benchmarks shows of the tables."""
        return tables

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw a picture of the tables; return whether there is one."""
        return False


def discover(package: ModuleType, base: type) -> dict[str, Any]:
    """Return one instance of every named subclass of `base` in the modules of `package`.

    Modules whose name starts with an underscore are left alone.
    """
    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for cls in vars(module).values():
            if not (isinstance(cls, type) and issubclass(cls, base) and hasattr(cls, "name")):
                continue
            if cls.__module__ != module.__name__:
                continue
            if cls.name in found:
                raise ValueError(f"Two {base.__name__} classes are named {cls.name!r}.")
            found[cls.name] = cls()
    return found
