"""The steps of a study in the demo: messages, fits, measurements and saved results."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelgrad import load
from kernelgrad.compute.compiling import clock, watch

SEED = 0
SILENCE = 2.5  # seconds after which the demo says what it is doing
_SURE = 2.0  # standard errors that make a difference
_SAME = 0.02  # of the losses, too little to speak of


@dataclass(frozen=True)
class Result:
    """The test error of a method and the time of its fit."""

    name: str
    losses: Any  # of the test rows: 0 and 1, or squares
    course: list[tuple[float, float]]  # seconds and errors so far, of a stream at each piece
    square: bool = False

    @property
    def seconds(self) -> float:
        """Of the fit on all training rows, less those of compilation."""
        return self.course[-1][0]

    @property
    def error(self) -> float:
        """Share of wrong classes, or root mean squared error."""
        return self.course[-1][1]


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

    def verdicts(self) -> list[str]:
        """Return for each rival whether kernelgrad won, lost, or the errors are even."""
        ours, *rivals = self.results
        verdicts = [""]
        for rival in rivals:
            gain = rival.losses - ours.losses
            sure = _SURE * gain.std(ddof=1) / len(gain) ** 0.5
            far = abs(gain.mean()) > max(sure, _SAME * ours.losses.mean())
            verdicts.append(("won" if gain.mean() > 0 else "lost") if far else "even")
        return verdicts

    def as_dict(self) -> dict[str, Any]:
        """Return the results as plain values."""
        results = [
            {
                "name": r.name,
                "test_error": r.error,
                "fit_seconds": r.seconds,
                "verdict": verdict,
            }
            for r, verdict in zip(self.results, self.verdicts(), strict=True)
        ]
        return {"results": results, "identical_after_load": self.same_after_load}


class Work:
    """Runs the fits of the studies and reports progress.

    Models and pictures go to `folder`; `quick` is for few rows.
    """

    def __init__(self, folder: Path, quick: bool) -> None:
        self.folder, self.quick = folder, quick
        self._over = threading.Event()
        self._step, self._since = "", time.monotonic()
        self._thread = threading.Thread(target=self._talk, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def say(self, step: str) -> None:
        """Print the current step."""
        self._step, self._since = step.strip(), time.monotonic()
        print(step, file=sys.stderr, flush=True)

    def _talk(self) -> None:
        while not self._over.wait(SILENCE):
            seconds, loop = time.monotonic() - self._since, watch.name
            if seconds > SILENCE:
                doing = f", compiling {loop} (once per machine)" if loop else ""
                print(f"    {self._step}: {seconds:.0f} s{doing}", file=sys.stderr, flush=True)

    def rows(self, n: int) -> int:
        """Return a number of rows, fewer where it must be quick."""
        return max(60, n // 10) if self.quick else n

    def measure(self, name: str, model: Any, data: Sequence[Any]) -> Result:
        """Fit on the rows X, y and test on X_test, y_test.

        A tenth of the rows is fitted before: compiling and loading are not on the clock.
        """
        self.say(f"  {name}")
        X, y, X_test, y_test = data
        square = np.asarray(y_test).dtype.kind == "f"
        few = max(60, len(y) // 10)
        model.fit(X[:few], y[:few])
        start = clock()
        model.fit(X, y)
        seconds = clock() - start
        losses = losses_of(model.predict(X_test), y_test)
        return Result(name, losses, [(seconds, error_of(losses, square))], square)

    def same_after_load(self, name: str, model: Any, X_test: Any) -> bool:
        """Save and load a model; return whether it predicts the same."""
        path = self.folder / f"{name}.kgm"
        model.save(path)
        return bool(np.array_equal(load(path).predict(X_test), model.predict(X_test)))


def losses_of(predicted: Any, y: Any) -> Any:
    """Return 0 and 1 of labels, squares of numbers."""
    y = np.asarray(y)
    if y.dtype.kind == "f":
        return (np.asarray(predicted, np.float64) - y) ** 2
    return (np.asarray(predicted) != y).astype(np.float64)


def error_of(losses: Any, square: bool = False) -> float:
    """Return the share of wrong classes, or the root mean squared error."""
    mean = float(losses.mean())
    return mean**0.5 if square else mean
