"""A small convolutional network by torch, and DSG, UDSG and CDSG on its features."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.datasets.archives import Mnist
from benchmarks.objectives._shared import distinct, draw, picture, where
from benchmarks.registry import Row, SkipError

from experiments.base import Cell, Claim, Experiment, by_seed
from experiments.cdsg._courses import Size, Task, courses, tune
from kernelgrad.data import ArraySource, DeformedImages

PENALTY = 5e-4
NAMES = ["CDSG", "DSG", "UDSG"]  # the seconds of the first are those of all


def torch_or_skip() -> Any:
    """Return torch, or raise SkipError."""
    try:
        import torch
    except ImportError:
        raise SkipError("torch is absent; pip install kernelgrad[torch]") from None
    return torch


class LeNet:
    """The appendix's network: 16 and 32 filters, 128 neurons; convolutions of 5 x 5 pixels."""

    def __init__(self, seed: int) -> None:
        self.torch = torch_or_skip()
        nn = self.torch.nn
        self.torch.manual_seed(seed)
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.renew()

    def renew(self) -> None:
        """Begin with new fully connected layers."""
        nn = self.torch.nn
        self.top = nn.Sequential(nn.Linear(1568, 128), nn.ReLU(), nn.Linear(128, 10))

    def course(
        self, source: Any, test: tuple[Any, Any], limit: float, steps: int, *, fixed: bool
    ) -> Iterator[Row]:
        """Yield seconds and test error while Adam trains the top, or all layers."""
        torch = self.torch
        layers = [*self.top.parameters()] + ([] if fixed else [*self.features.parameters()])
        rule, spent, at = torch.optim.Adam(layers, 1e-3), 0.0, 0
        for step in range(1, steps + 1):
            rows = source.read(at, min(at + 256, source.n_rows))
            at = at + 256 if at + 512 <= source.n_rows else 0
            start = time.process_time()
            with torch.set_grad_enabled(not fixed):
                hidden = self.features(self.images(rows.X))
            target = torch.from_numpy(np.asarray(rows.y, np.int64))
            rule.zero_grad()
            torch.nn.functional.cross_entropy(self.top(hidden), target).backward()
            rule.step()
            spent += time.process_time() - start
            if step % 50 == 0 or step == steps or spent >= limit:
                yield {"seconds": spent, "test": self.error(*test)}
            if spent >= limit:
                return

    def images(self, X: Any) -> Any:
        """Return flat rows as a tensor of images."""
        return self.torch.from_numpy(np.asarray(X, np.float32)).reshape(-1, 1, 28, 28)

    def hidden(self, X: Any) -> Any:
        """Return the features after the last pooling, (n, 1568)."""
        with self.torch.no_grad():
            parts = [
                self.features(self.images(X[a : a + 1000])) for a in range(0, len(X), 1000)
            ]
        return np.concatenate([part.numpy() for part in parts])

    def error(self, X: Any, y: Any) -> float:
        """Return the error rate."""
        with self.torch.no_grad():
            f = self.top(self.torch.from_numpy(self.hidden(X))).numpy()
        return float(np.mean(f.argmax(axis=1) != y))


def compare(rows: int, seed: int, size: Size, steps: int, *, converged: bool) -> Iterator[Row]:
    """Yield the courses of five methods: to the end of CDSG, or all to their own ends."""
    torch_or_skip()
    data = Mnist().load()
    images = data.X_train.reshape(-1, 28, 28)
    source = DeformedImages(images, data.y_train, n_rows=len(images) + rows, seed=seed)
    few = slice(2000 if rows < 5000 else None)
    test = data.X_test[few], data.y_test[few]
    network = LeNet(seed)
    for _ in network.course(source, test, np.inf, max(2, steps // 10), fixed=False):
        pass
    X, y = source.read(len(images), source.n_rows)[:2]
    H, Z = network.hidden(X), network.hidden(test[0])
    task = Task(
        ArraySource(H, y, checked=True), lambda A: A, "log_loss", np.arange(10),
        (H[:2000], y[:2000]), (Z, test[1]),
    )  # fmt: skip
    limit = np.inf
    for row in courses(task, PENALTY, size, seed, tune(task, PENALTY, size, NAMES)):
        if row["method"] == NAMES[0] and not converged:
            limit = row["seconds"]
        yield {key: row[key] for key in ("method", "seconds", "test")}
    network.renew()
    for row in network.course(source, test, limit, steps, fixed=True):
        yield {"method": "Fixed"} | row
    joint = LeNet(seed + 1)
    for row in joint.course(source, test, limit, steps, fixed=False):
        yield {"method": "Joint"} | row


def claim(text: str, theirs: str, value: Callable[[dict[str, float]], float]) -> Claim:
    """Return a claim of a margin of one seed's last errors, in percent by method."""

    def last(mine: list[Row]) -> dict[str, float]:
        return {row["method"]: 100 * row["test"] for row in mine}

    return Claim(
        text, theirs,
        lambda rows: ", ".join(f"{name} {error:.2f}" for name, error in last(rows).items()),
        lambda rows: by_seed(rows, lambda mine: value(last(mine))),
    )  # fmt: skip


class Networks(Experiment):
    """Both tables; they differ in when methods end."""

    departures = """
    Only MNIST; 60,000 of the library's deformed digits in place of MNIST8M, batches of 4,096
    rows and blocks of 512 frequencies. Needs torch.
    """
    converged: ClassVar[bool]

    def cells(self, quick: bool) -> list[Cell]:
        """Return a cell for each seed."""
        return [
            {"seed": s, "rows": 1000 if quick else 60_000} for s in range(1 if quick else 3)
        ]

    def measure(self, cell: Cell) -> Iterator[Row]:
        """Train all methods."""
        small = cell["rows"] < 5000
        size, steps = (Size(32, 256, 4), 4) if small else (Size(512, 4096, 40), 2000)
        yield from compare(cell["rows"], cell["seed"], size, steps, converged=self.converged)

    def plot(self, rows: list[Row], path: Path) -> None:
        """Draw the first seed."""
        with picture(path, size=(4.4, 3.2)) as axes:
            ax = axes[0][0]
            mine = where(rows, seed=0)
            draw(ax, mine, "method", "seconds", "test", distinct(rows, "method"))
            ax.set(xscale="log", yscale="log", xlabel="training seconds", ylabel="test error")
            ax.legend(fontsize=7)
