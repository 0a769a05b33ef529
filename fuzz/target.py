"""What a target of the attack is, and what may come of one input."""

from __future__ import annotations

import importlib
import pkgutil
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from fuzz.mutate import mutate_bytes

CORPUS = Path(__file__).parent / "corpus"


class Finding(Exception):  # noqa: N818 (what is looked for, no error of the search)
    """An input brought about what must not happen; the message says what."""


class Case(NamedTuple):
    """One input.

    Attributes
    ----------
    name : str
        The seed file it was made from; the name of the new file, too, as suffixes matter.
    data : bytes
        The content.
    may_differ : bool
        Whether something else than what the seed gives may come out without an error. Damage
        that a checksum covers must be seen; a file with a new checksum is another file.
    """

    name: str
    data: bytes
    may_differ: bool


class Target(ABC):
    """A kind of input, its seeds, its mutations, and what is done with it.

    Subclasses in the modules of `fuzz.targets` are found by their `name`.
    """

    name: ClassVar[str]
    clear: ClassVar[tuple[type[Exception], ...]]
    """Errors that are a fit answer to a bad input."""

    named: ClassVar[bool] = True
    """Whether the message of such an error must hold the name of the file."""

    quick: ClassVar[int] = 100
    """How many fresh inputs the tests execute."""

    few: bool = False
    """Whether the seeds are those of the tests alone, where making them takes long."""

    seconds: ClassVar[float] = 10.0
    """An execution that takes longer is a hang."""

    memory: ClassVar[int] = 1 << 30
    """Bytes that executions may add to the address space; more is a `MemoryError`."""

    @abstractmethod
    def use(self, path: Path) -> bytes:
        """Do with a file what users do; return a digest of all that came out.

        Raises
        ------
        Finding
            For results that must not be, such as NaN.
        """

    def seeds(self) -> Mapping[str, bytes]:
        """Return valid files by name; by default, and always beside them, the corpus."""
        return {}

    def mutate(self, name: str, data: bytes, rng: np.random.Generator) -> tuple[bytes, bool]:
        """Return a changed seed, and `Case.may_differ`."""
        return mutate_bytes(data, rng, list(self.inputs.values())), True

    def prepare(self) -> None:  # noqa: B027 (most need nothing)
        """Do what takes long once, before times count."""

    @cached_property
    def inputs(self) -> Mapping[str, bytes]:
        """Seeds and corpus, by name."""
        files = sorted(p for p in (CORPUS / self.name).glob("*") if p.is_file())
        return {**self.seeds(), **{file.name: file.read_bytes() for file in files}}

    def case(self, seed: int, execution: int) -> Case:
        """Return the input of an execution, which depends on these numbers and the seeds."""
        rng = np.random.default_rng((zlib.crc32(self.name.encode()), seed, execution))
        name = sorted(self.inputs)[int(rng.integers(len(self.inputs)))]
        return Case(name, *self.mutate(name, self.inputs[name], rng))

    def cases(self, seed: int, start: int, stop: int) -> Iterator[Case]:
        return (self.case(seed, execution) for execution in range(start, stop))

    def execute(self, case: Case, folder: Path) -> str:
        """Return "clear", "identical" or "other"; raise for everything else."""
        found = self._outcome(case.name, case.data, folder)
        if found is None:
            return "clear"
        expected = self._expected(case.name, folder)
        if found == expected:
            return "identical"
        if not case.may_differ and expected is not None:  # a refused file may become valid
            raise Finding("a silent change")
        return "other"

    def _expected(self, name: str, folder: Path) -> bytes | None:
        known: dict[str, bytes | None] = self.__dict__.setdefault("_known", {})
        if name not in known:
            known[name] = self._outcome(name, self.inputs[name], folder)
        return known[name]

    def _outcome(self, name: str, data: bytes, folder: Path) -> bytes | None:
        path = folder / name
        path.write_bytes(data)
        try:
            return self.use(path)
        except self.clear as error:
            if self.named and name not in str(error):
                raise Finding("an error that does not name the file") from error
            return None


def targets() -> dict[str, Target]:
    package = importlib.import_module("fuzz.targets")
    names = [f"fuzz.targets.{info.name}" for info in pkgutil.iter_modules(package.__path__)]
    found = [cls for name in names for cls in vars(importlib.import_module(name)).values()]
    classes = {cls for cls in found if isinstance(cls, type) and issubclass(cls, Target)}
    return {cls.name: cls() for cls in classes if hasattr(cls, "name")}
