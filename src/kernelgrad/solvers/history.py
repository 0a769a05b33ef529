"""What ``history_`` of a fit holds: its type, its checks, and what it says of the end."""

from __future__ import annotations

import math
from typing import Any, NotRequired, TypedDict

from kernelgrad.files.records import Check, Record, check_number, check_text, or_none
from kernelgrad.validation import check_name


class _Iterations(TypedDict):
    iteration: list[int]
    epoch: list[float]
    seconds: list[float]
    rows_seen: list[int]
    n_random_features: list[int]
    n_features_saved: list[int]
    n_support: list[int]
    kernel_evaluations: list[int]
    step_size: list[float]
    train_loss: list[float]
    objective: list[float | None]
    duality_gap: list[float | None]
    validation_score: list[float | None]


class History(_Iterations):
    """The type of ``history_``: lists with one entry per iteration, and further entries.

    Attributes
    ----------
    iteration, epoch, seconds, rows_seen, n_random_features, n_features_saved, n_support,
    kernel_evaluations, step_size, train_loss, objective, duality_gap, validation_score : list
        Numbers, or None if a solver does not compute them; see
        :class:`~kernelgrad.KernelClassifier`.
    score_name : str or None
        Name of the measure in ``validation_score``.
    solver, solver_reason : str
    compile_seconds : float
        Time spent compiling loops, which is not part of ``seconds``.
    audit : dict
        Results of solvers that check their result in float64.
    search, metric : list of dict
        The candidates tried for parameters that were ``"auto"``.
    solver_costs : dict of float
        Seconds of one core that each solver was predicted to take, where ``"auto"`` chose.
    rows_fitted : int
        Number of rows of the function, where ``effort="fast"`` or a time limit left some out.
    metric_reason : str
        Why weights of columns were learned, or not.
    compression : dict
        What :meth:`~kernelgrad.KernelClassifier.compress` changed.
    cv_errors : list of float
        Weights of wrong held-out labels, with the default kernel and with that of a search.
    """

    score_name: str | None
    solver: str
    solver_reason: str
    compile_seconds: float
    audit: NotRequired[dict[str, Any]]
    compression: NotRequired[dict[str, Any]]
    cv_errors: NotRequired[list[float]]
    metric: NotRequired[list[dict[str, Any]]]
    metric_reason: NotRequired[str]
    rows_fitted: NotRequired[int]
    search: NotRequired[list[dict[str, Any]]]
    solver_costs: NotRequired[dict[str, float]]


class Entries(dict[str, Any]):
    """A history whose text has the length and the last entry of each list."""

    def __repr__(self) -> str:
        def brief(value: Any) -> str:
            if isinstance(value, list) and value:
                last = "" if isinstance(value[-1], dict) else f", last {brief(value[-1])}"
                return f"[{len(value)}{last}]"
            if isinstance(value, dict):
                return f"{{{', '.join(value)}}}"
            return f"{value:.4g}" if isinstance(value, float) else repr(value)

        parts = (f"{name!r}: {brief(value)}" for name, value in self.items())
        return "{" + ",\n ".join(parts) + "}"


HISTORY_KEYS = tuple(_Iterations.__annotations__)


def check_entries(value: Any, name: str) -> None:
    if not (isinstance(value, list) and all(isinstance(entry, dict) for entry in value)):
        raise TypeError(f"{name} must be a list of entries, got {value!r}.")


def check_numbers(value: Any, name: str, n: int | None = None) -> None:
    """Raise unless a value is a list of numbers, `n` of them unless `n` is None."""
    if not isinstance(value, list) or n not in (None, len(value)):
        raise TypeError(f"{name} must be a list of {n or ''} numbers, got {value!r}.")
    for it in value:
        check_number(it, name)


def check_audit(value: Any, name: str) -> None:
    """Raise TypeError unless a value is the result of :meth:`Solver.finish`."""
    check_entries([value], name)
    check_number(value.get("objective"), f"the objective of {name}")


_ENTRIES: dict[str, Check] = {
    "score_name": or_none(check_text),
    "solver": check_text,
    "solver_reason": check_text,
    "compile_seconds": check_number,
    "audit": check_audit,
    "compression": lambda value, name: check_entries([value], name),
    "search": check_entries,
    "metric": check_entries,
    "metric_reason": check_text,
    "rows_fitted": check_number,
    "solver_costs": lambda value, name: check_entries([value], name),
    "cv_accuracy": check_numbers,  # files of 0.2 may hold it
    "cv_errors": check_numbers,
}


def check_history(value: Any, name: str) -> None:
    """Raise unless the entries of a history besides the iterations are valid."""
    check_entries([value], name)
    for key, it in value.items():
        _ENTRIES[check_name(key, _ENTRIES, f"an entry of {name}")](it, key)


def restored_history(record: Record) -> dict[str, Any]:
    """Return the history in a record; columns that older files lack are filled with None."""
    history, steps = record.values, record.values.get("iteration")
    history.pop("monotonic", None)  # files of 0.2.0 have it
    if not isinstance(steps, list):
        raise record.error("lacks the iterations")
    for key in HISTORY_KEYS:
        may_lack = "None" in str(History.__annotations__[key])
        column = history.setdefault(key, [None] * len(steps)) if may_lack else history.get(key)
        if not isinstance(column, list) or len(column) != len(steps):
            raise record.error(f"holds no entry of {key!r} for each iteration")
        for value in column:
            (or_none(check_number) if may_lack else check_number)(value, key)
    check_history({key: history[key] for key in set(history) - set(HISTORY_KEYS)}, "history")
    return history


def left_over(history: dict[str, Any]) -> float | None:
    """Return the relative distance of the objective from its minimum, or None.

    It is the duality gap where there is one. Otherwise the decrease over the last quarter of
    the iterations is extrapolated as a geometric series, with the ratio to the previous
    quarter; with fewer than three iterations the result is infinity. None without an objective.
    """
    gap, values = history["duality_gap"][-1], history["objective"]
    if gap is not None:
        size = history["train_loss"][-1] if values[-1] is None else values[-1]
        return float(gap / max(abs(size), 1e-300))
    if values[-1] is None:
        return None
    quarter = max(1, len(values) // 4)
    three = values[-2 * quarter - 1 :: quarter]
    if len(values) < 3 or None in three:
        return math.inf
    before, last = three[0] - three[1], three[1] - three[2]
    if last <= 0:
        return 0.0
    left = last * last / (before - last) if before > last else math.inf
    return float(left / max(abs(three[2]), 1e-300))


def new_history(score_name: str | None) -> dict[str, Any]:
    """Return a history without iterations."""
    return {**{key: [] for key in HISTORY_KEYS}, "score_name": score_name}
