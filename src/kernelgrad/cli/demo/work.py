"""The steps of a study in the demo: messages, fits, measurements and saved results."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kernelgrad.compute.compiling import clock, compiling

if TYPE_CHECKING:
    from kernelgrad.types import AnyArray, Float64Array

SEED = 0
_SILENCE = 2.5  # seconds after which the demo says what it is doing
_SURE = 2.0  # standard errors that make a difference
_SAME = 0.02  # of the losses, too little to speak of


@dataclass(frozen=True)
class Result:
    """The test error of a method and the time of its fit."""

    name: str
    seconds: float  # of the fit on all training rows, less those of compilation
    losses: Float64Array  # of the test rows: 0 and 1, or squares
    square: bool = False
    # seconds and errors of fits on parts of the rows, or on the way
    course: list[tuple[float, float]] = field(default_factory=list)

    @property
    def error(self) -> float:
        """Share of wrong classes, or root mean squared error."""
        mean = float(self.losses.mean())
        return mean**0.5 if self.square else mean


@dataclass(frozen=True)
class Study:
    """The results of a study."""

    name: str
    title: str
    text: str
    results: list[Result]  # kernelgrad's first
    figures: dict[str, Any]  # by caption
    model: Any  # of the first result
    X_test: Any  # rows to predict
    same_after_load: bool = True

    def shown(self, error: float) -> str:
        """Return an error as text."""
        return f"{error:.4f}" if self.results[0].square else f"{100 * error:.2f} %"

    def verdicts(self) -> list[str]:
        """Return for each rival whether kernelgrad won, lost, or the errors are even."""
        ours, *rivals = self.results
        told = [""]
        for rival in rivals:
            gain = rival.losses - ours.losses
            sure = _SURE * gain.std(ddof=1) / len(gain) ** 0.5
            far = abs(gain.mean()) > max(sure, _SAME * ours.losses.mean())
            told.append(("won" if gain.mean() > 0 else "lost") if far else "even")
        return told

    def told(self) -> dict[str, Any]:
        """Return the results as plain values."""
        pairs = zip(self.results, self.verdicts(), strict=True)
        results = [
            {
                "name": r.name,
                "test_error": r.error,
                "fit_seconds": r.seconds,
                "verdict": verdict,
            }
            for r, verdict in pairs
        ]
        return {"results": results, "identical_after_load": self.same_after_load}


class Work:
    """Runs the fits of the studies and reports progress.

    Models and pictures go to `folder`; `quick` is for few rows.
    """

    def __init__(self, folder: Path, quick: bool) -> None:
        self.folder, self.quick = folder, quick
        self._over = threading.Event()
        self._step, self._since, self._said = "", 0.0, 0.0
        self._thread = threading.Thread(target=self._talk, daemon=True)

    def __enter__(self) -> Self:
        self._said = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def say(self, step: str) -> None:
        """Print the current step."""
        self._step, self._since = step.strip(), time.monotonic()
        self._said = self._since
        _print(step)

    def _talk(self) -> None:
        while not self._over.wait(0.1):
            now, loop = time.monotonic(), compiling()
            if now - self._said > _SILENCE:
                self._said = now
                doing = "" if loop is None else f", compiling {loop} (once per machine)"
                _print(f"    {self._step}: {now - self._since:.0f} s{doing}")

    def rows(self, n: int) -> int:
        """Return a number of rows, fewer where it must be quick."""
        return max(60, n // 10) if self.quick else n

    def measure(
        self, name: str, model: Any, data: Sequence[Any], parts: Sequence[float] = (0.3, 1.0)
    ) -> Result:
        """Fit on growing parts of the rows and test; `model` is then that of all of them.

        `data` are X, y, X_test and y_test.

        The smallest part is fitted once before: compiling and loading are not on the clock.
        """
        self.say(f"  {name}")
        X, y, X_test, y_test = data
        square = np.asarray(y_test).dtype.kind == "f"
        course: list[tuple[float, float]] = []
        seconds, losses = 0.0, np.empty(0)
        for i, part in enumerate([parts[0], *parts]):
            rows = slice(0, round(part * len(y)))
            start = clock()
            model.fit(X[rows], y[rows])
            seconds = clock() - start
            if i == 0:
                continue
            losses = losses_of(model.predict(X_test), y_test)
            course.append((seconds, Result(name, seconds, losses, square).error))
        return Result(name, seconds, losses, square, course)

    def same_after_load(self, name: str, model: Any, X_test: Any) -> bool:
        """Save and load a model; return whether it predicts the same."""
        from kernelgrad import load

        path = self.folder / f"{name}.kgm"
        model.save(path)
        return bool(np.array_equal(load(path).predict(X_test), model.predict(X_test)))


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def losses_of(predicted: AnyArray, y: AnyArray) -> Float64Array:
    """Return 0 and 1 of labels, squares of numbers."""
    y = np.asarray(y)
    if y.dtype.kind == "f":
        return np.asarray((np.asarray(predicted, np.float64) - y) ** 2)
    return np.asarray(np.asarray(predicted) != y, np.float64)
