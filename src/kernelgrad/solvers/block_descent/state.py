"""The state of a fit by block descent, and how it is copied and written."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from kernelgrad.files.records import Record, anything, one_of
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.solvers.block_descent.newton import Iterate, Workspace
from kernelgrad.solvers.contract import Problem, State, restored_fields, sized, transient
from kernelgrad.types import AnyArray, Float64Array

_KINDS = ("support",)  # files of 0.1 and 0.2 may hold another, which cannot go on


@dataclass(kw_only=True)
class BlockDescentState(State):
    """State of :class:`BlockDescent`."""

    exact: ExactKernel  # prepares the rows
    digest: bytes  # digest of the rows, which a continued fit must bring again
    # constants taken off targets and added to predictions: float32 then holds residuals
    offset: Float64Array = sized("C")
    iterate: Iterate
    # snapshot of the shards while there is no workspace
    shards: dict[str, AnyArray] = field(default_factory=dict)
    kernel_evaluations: int = 0
    slow: int = 0
    workspace: Workspace | None = transient()

    @property
    def rows_workspace(self) -> Workspace:
        assert self.workspace is not None
        return self.workspace

    def release(self, *, brief: bool = False) -> None:
        """Keep the data of the shards and drop the rows; `brief` drops responses too."""
        self.shards = self.snapshot(brief=brief)
        super().release()

    def snapshot(self, *, brief: bool = False) -> dict[str, AnyArray]:
        """Return responses (C, n) unless `brief`, centres and coefficients of all shards."""
        if self.workspace is None:
            return self.shards
        parts = self.workspace.team.ask("snapshot", brief)
        axes = {"index": 0, "last": 0}
        return {
            name: np.concatenate([part[name] for part in parts], axis=axes.get(name, 1))
            for name in parts[0]
        }

    def copy(self) -> Self:
        """Return a state without shards, which are created again from the rows."""
        iterate = copy.deepcopy(self.iterate)
        return dataclasses.replace(
            self, iterate=iterate, shards=self.snapshot(), workspace=None
        )

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"shards": self.snapshot()}

    def describe_parts(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        arrays = {f"scaling.{k}": a for k, a in self.exact.scaling.arrays().items()}
        arrays |= {f"kept.{k}": a for k, a in self.snapshot().items()}
        plain = {}
        for name, value in vars(self.iterate).items():
            if isinstance(value, np.ndarray):
                arrays[f"0.{name}"] = value
            else:
                plain[name] = value if np.isfinite(value) else None
        return {"kind": _KINDS[0], "home": self.exact.describe(), "iterate": plain}, arrays

    def fits(self, n: int) -> bool:
        return "f" not in self.shards or self.shards["f"].shape[1] == n

    @classmethod
    def restore_parts(cls, problem: Problem, record: Record) -> dict[str, Any]:
        scaling, home = record.part("scaling"), record.part("home")
        record.take("kind", one_of(_KINDS))
        exact = ExactKernel.restore(home, scaling)
        scaling.close()
        home.close()
        iterate = record.part("0")
        if "iterate" in record:
            iterate.values = record.part("iterate").values
            shards = record.part("kept").arrays
        else:  # files of 0.1.0
            iterate.values = dict(record.take("iterates", anything)[0])
            used = record.array("used", "n", kinds="biuf")
            shards = _shards_of_0_1_0(iterate.arrays, used)
            iterate.values["moving"] = bool(shards["p"].any())
            record.values |= record.part("numbers").values
        for name in ("share", "stage"):  # files of 0.2 have them
            iterate.values.pop(name, None)
        restored = Iterate(**restored_fields(Iterate, iterate))
        iterate.close()
        shards = _restored_shards(record, shards)
        return {"exact": exact, "iterate": restored, "shards": shards}


def _restored_shards(record: Record, arrays: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Return the checked result of :meth:`BlockDescentState.snapshot`."""
    if not arrays:
        return {}
    part = Record({}, arrays, f"{record.subject}, kept", record.sizes)
    checked: dict[str, AnyArray] = {
        **{name: part.array(name, "C", "n") for name in ("f", "p") if name in arrays},
        **{name: part.array(name, "centres", kinds="i", least=0) for name in ("index", "last")},
        **{name: part.array(name, "C", "centres") for name in ("coef", "coef_momentum")},
    }
    part.close()
    n = record.sizes.get("n", np.inf)  # known if there are responses
    if (np.diff(checked["index"]) <= 0).any() or (checked["index"] >= n).any():
        raise part.error("holds centres that are no rows in order")
    return {name: np.array(a) for name, a in checked.items()}


def _shards_of_0_1_0(own: dict[str, AnyArray], used: AnyArray) -> dict[str, AnyArray]:
    """Remove the arrays of rows from `own`; return them in the form of shards."""
    coef, momentum = own.pop("coef"), own.pop("coef_momentum")
    shards = {"f": own.pop("responses"), "p": own.pop("momentum")}
    index = np.flatnonzero(used | coef.any(axis=0))
    shards |= {"index": index, "last": used.astype(np.int32)[index]}
    return shards | {"coef": coef[:, index], "coef_momentum": momentum[:, index]}
