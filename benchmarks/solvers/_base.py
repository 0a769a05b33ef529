"""What the estimators of ``time_to_error`` have in common."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product
from typing import Any, ClassVar

from benchmarks.registry import Dataset, Solver

Params = dict[str, Any]


class Method(Solver):
    """An estimator with the family whose hyper-parameters it shares.

    The installed method of highest `rank` tunes for its family. The weight of the penalty is
    always given as C, ``sum_i loss_i + |f|^2 / (2 C)`` as in scikit-learn's SVC: it is a prior
    of the function, so that the best one of 8,000 rows is near that of all n rows, whereas
    ``alpha = 1 / (C n)`` is not. ``budget.max_rows`` is the number of rows that are fitted.
    """

    family: ClassVar[str]
    rank: ClassVar[int] = 0
    module: ClassVar[str | None] = None  # that must be installed
    curve: ClassVar[bool] = False  # fit with growing numbers of iterations
    default: ClassVar[bool] = True  # part of a run without --method

    def grid(self, dataset: Dataset, factors: list[float]) -> list[Params]:
        """Return bandwidth factors times C; most methods search these."""
        return grid(factors, (1.0, 10.0, 100.0))

    def missing(self) -> str | None:
        """Return why the method cannot run here, or None."""
        if self.module is None or find_spec(self.module) is not None:
            return None
        return f"{self.module} is not installed"


def grid(factors: list[float], C: tuple[float, ...], **more: tuple[Any, ...]) -> list[Params]:
    """Return all combinations of bandwidth factors, C and further parameters."""
    keys = ["bandwidth_factor", "C", *more]
    return [dict(zip(keys, v, strict=True)) for v in product(factors, C, *more.values())]


def is_classification(dataset: Dataset) -> bool:
    """Tell the two tasks apart."""
    return dataset.task == "classification"
