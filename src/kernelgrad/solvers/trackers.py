"""Responses of fixed rows, such as those for validation, after each step of a solver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelgrad.files.records import Record
from kernelgrad.types import AnyArray, FloatArray, Matrix

if TYPE_CHECKING:
    from kernelgrad.solvers.contract import Solver, StepInfo

TrackedResponses = dict[str, FloatArray]
Update = Callable[[Any, TrackedResponses], TrackedResponses]


class Tracker(ABC):
    """Responses of fixed rows after each step."""

    ahead = False  # whether the next step must make the responses of a state anew

    @abstractmethod
    def advance(self, info: StepInfo) -> None:
        """Apply one step."""

    @abstractmethod
    def raw_prediction(self) -> FloatArray:
        """Return f on the fixed rows, (n, C), of the function the solver would return."""

    def describe(self) -> dict[str, AnyArray]:
        """Return the responses that the next step moves, for files."""
        return {}

    def restore(self, record: Record) -> None:
        """Restore the tracker from the result of :meth:`describe`."""
        for name, a in self.describe().items():
            saved = record.array(name, *a.shape, kinds=a.dtype.kind)
            if saved.dtype != a.dtype:
                raise record.error(f"holds {name!r} as {saved.dtype}, not as {a.dtype}")
            a[...] = saved
        record.close()
        self.ahead = False


class RecomputedTracker(Tracker):
    """Responses that are predicted again, if that costs no more than updating them."""

    def __init__(self, solver: Solver[Any], state: Any, X: Matrix) -> None:
        self._solver, self._state, self._X = solver, state, X

    def advance(self, info: StepInfo) -> None:
        """Do nothing, since no response is stored."""

    def raw_prediction(self) -> FloatArray:
        return self._solver.expansion(self._state).raw_prediction(self._X)


class UpdatedTracker(Tracker):
    """Responses that a step moves by its update, at the cost of the block that it changed.

    They are those of the iterate, "x", and of its velocity "v" and average "a" for solvers that
    have them, without the intercept. Without them in a checkpoint, a resumed fit would compute
    them with other rounding.

    Parameters
    ----------
    rows : object
        The rows, as the solver prepares them.
    predict : callable
        ``predict(rows)`` returns the responses of the state; zeros while it is released.
    output : callable
        ``output(responses)`` returns f with the intercept, (n, C).
    ahead : bool, default=False
        Whether the state is released, so that only the next step can make the responses.
    """

    def __init__(
        self, rows: Any, predict: Callable[[Any], TrackedResponses],
        output: Callable[[TrackedResponses], FloatArray], *, ahead: bool = False,
    ) -> None:  # fmt: skip
        self._rows, self._predict, self._output, self.ahead = rows, predict, output, ahead
        self.responses = predict(rows)

    def advance(self, info: StepInfo) -> None:
        assert info.update is not None
        if self.ahead:
            self.responses = self._predict(self._rows)
        else:
            self.responses = info.update(self._rows, self.responses)
        self.ahead = False

    def raw_prediction(self) -> FloatArray:
        return self._output(self.responses)

    def describe(self) -> dict[str, AnyArray]:
        return {f"responses.{name}": f for name, f in self.responses.items()}
