"""A small convolutional network by torch, and DSG, UDSG and CDSG on its features."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.datasets.archives import Mnist
from benchmarks.objectives._shared import distinct, draw, log_grid, where
from benchmarks.registry import SkipError
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed, panel
from experiments.cdsg import _courses as cdsg
from experiments.cdsg._courses import POINTS, Size, Task, follow, preset, thin, tune
from experiments.images import DeformedImages
from kernelgrad import DSG
from kernelgrad.data import ArraySource
from kernelgrad.functions.exact import ExactKernel

PENALTY = 5e-4
PENALTIES = (PENALTY, 5e-6)  # of the controls
JITTER = 1e-6  # of the diagonal of a kernel matrix
NAMES, FIRST = ("DSG", "UDSG", "CDSG"), "CDSG"  # Table 5 has the end of FIRST
RULES = {"Adam": 1e-3, "SGD": 1e-2}  # of networks, with their steps


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
        self, source: Any, test: tuple[Any, Any], steps: int, mark: float = np.inf, *,
        fixed: bool = False, rule: str = "Adam",
    ) -> Rows:  # fmt: skip
        """Yield seconds and test error while the top is trained, or all layers.

        Looks are evenly spaced in the logarithm, one more is at the mark of seconds.
        """
        torch = self.torch
        layers = [*self.top.parameters()] + ([] if fixed else [*self.features.parameters()])
        chosen, spent, at = getattr(torch.optim, rule)(layers, RULES[rule]), 0.0, 0
        looks = log_grid(1, steps, POINTS)
        for step in range(1, steps + 1):
            rows = source.read(at, min(at + 256, source.n_rows))
            at = at + 256 if at + 512 <= source.n_rows else 0
            start, before = time.process_time(), spent
            with torch.set_grad_enabled(not fixed):
                hidden = self.features(self.images(rows.X))
            target = torch.from_numpy(np.asarray(rows.y, np.int64))
            chosen.zero_grad()
            torch.nn.functional.cross_entropy(self.top(hidden), target).backward()
            chosen.step()
            spent += time.process_time() - start
            if step in looks or before < mark <= spent:
                yield {"seconds": spent, "test": self.error(*test)}

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


@cache
def prepared(rows: int, seed: int, steps: int) -> tuple[LeNet, Task, Any, tuple[Any, Any]]:
    """Return a network after a short training, its features, the digits and test digits."""
    data = Mnist().load()
    images = data.X_train.reshape(-1, 28, 28)
    source = DeformedImages(images, data.y_train, n_rows=len(images) + rows, seed=seed)
    few = slice(2000 if rows < 5000 else None)
    test = data.X_test[few], data.y_test[few]
    network = LeNet(seed)
    for _ in network.course(source, test, max(2, steps // 10)):
        pass
    X, y = source.read(len(images), source.n_rows)[:2]
    H, Z = network.hidden(X), network.hidden(test[0])
    task = Task(
        ArraySource(H, y, checked=True), lambda A: A, "log_loss", np.arange(10),
        (H[:1000], y[:1000]), (Z, test[1]),
    )  # fmt: skip
    return network, task, source, test


@cache
def compare(rows: int, seed: int, size: Size, steps: int) -> dict[str, list[Row]]:
    """Return the courses of all methods, each to its own end."""
    network, task, source, test = prepared(rows, seed, steps)
    found = {
        name: follow(task, preset(name, PENALTY, size, step), seed, size.iterations)
        for name, step in tune(prepared(rows, 0, steps)[1], PENALTY, size, NAMES).items()
    }
    mark = found[FIRST][-1]["seconds"]
    network.renew()
    found["Fixed"] = list(network.course(source, test, steps, mark, fixed=True))
    for name, rule in {"Joint": "Adam", "Joint, SGD": "SGD"}.items():
        joint = LeNet(seed + 1)
        found[name] = list(joint.course(source, test, steps, mark, rule=rule))
    return found


def exact(task: Task, n: int, penalty: float) -> float:
    """Return the test error of the minimum of the objective of DSG on the first n rows."""
    rows = task.whole(task.source.read(0, n))
    kernel = DSG.paper(nu=PENALTY, form="pair")["kernel"].resolve(rows.X, 0)
    of = ExactKernel(kernel, rows.X.shape[1])
    here = of.prepare(rows.X)
    K = np.asarray(of.matrix(here, here), np.float64)
    L = np.linalg.cholesky(K + JITTER * np.eye(n))
    shape = n, rows.y.shape[1]

    def objective(flat: Any) -> tuple[float, Any]:
        B = flat.reshape(shape)
        f = L @ B
        slope = L.T @ task.loss.gradient(rows.y, f) / n + penalty * B
        value = task.loss.value(rows.y, f).mean() + 0.5 * penalty * (B * B).sum()
        return float(value), slope.ravel()

    found = minimize(objective, np.zeros(n * shape[1]), jac=True, method="L-BFGS-B")
    coef = solve_triangular(L.T, found.x.reshape(shape))
    return task.error(of.matrix(of.prepare(task.Z), here) @ coef, task.z)


def until(rows: list[Row], limit: float) -> list[Row]:
    """Return the rows up to the first that has so many seconds."""
    ends = (i for i, row in enumerate(rows, 1) if row["seconds"] >= limit)
    return rows[: next(ends, len(rows))]


def _plain(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "penalty" not in row]


def claim(text: str, theirs: str, value: Callable[[dict[str, float]], float]) -> Claim:
    """Return a claim of a margin of one seed's last errors, in percent by method."""

    def last(mine: list[Row]) -> dict[str, float]:
        return {row["method"]: 100 * row["test"] for row in mine}

    def shown(rows: list[Row]) -> str:
        mine = _plain(rows)
        seeds = [last(where(mine, seed=seed)) for seed in distinct(mine, "seed")]
        text = ", ".join(f"{m} {np.median([e[m] for e in seeds]):.2f}" for m in seeds[0])
        for row in rows:
            if "penalty" in row:
                also = f" minimum on {row['exact']:,} rows" if "exact" in row else ""
                text += f"; {row['method']}{also}, lambda = {row['penalty']:g}"
                text += f": {100 * row['test']:.2f}"
        return text

    return Claim(
        text, theirs, shown, lambda rows: by_seed(_plain(rows), lambda mine: value(last(mine)))
    )


class Networks(Experiment):
    """Both tables; they differ in when methods end."""

    departures = """
    Only MNIST; 60,000 of the library's deformed digits in place of MNIST8M, batches of 2,048
    rows in place of 16,384, 24 iterations of each of the three. Their first steps, which the
    paper does not tell, are the best of a grid for the first seed: 8, 8 and 4 times the
    automatic one. Networks take 600 steps of Adam on 256 rows, the one that makes the features
    60. Table 5 has two seeds, as its seconds need a machine without other work. Seconds are
    those of the processor, without making digits and looking at errors. Needs torch."""
    explanation = """
    Plain steps on the printed objective are most of the cause. On the features of the first
    seed DSG with the covariance of the authors' program, which shrinks old coefficients by
    lambda and so penalises far less, ends at 4.05 % with the same lambda, rows and iterations,
    as printed at 22.64 %: ahead of both networks at the time of Table 5, not at their ends. By
    the printed objective both few iterations and a large penalty count: its minimum on 8,000
    rows, which lacks no iteration, has 8.93 %; CDSG with lambda = 5e-6 in place of 5e-4 ends at
    12.72 % in place of 14.86; both together are 2.62 %, like Fixed at its end, which has no
    penalty. 24 iterations have seen 49,152 rows, as many as three of the paper's batches.
    Joint, which learns its features too, is ahead of all others at its end by Adam; by plain
    SGD with a step of 0.01, which the paper does not tell, it is far behind all of the family
    at the time of Table 5, and where CDSG is at its end."""
    converged: ClassVar[bool]
    seeds: ClassVar[int] = 2

    def cells(self, quick: bool) -> list[Cell]:
        plain: list[Cell] = [
            {"seed": s, "rows": 1000 if quick else 60_000}
            for s in range(1 if quick else self.seeds)
        ]
        n = 200 if quick else 8000
        controls: list[Cell] = [{"exact": n, "penalty": value} for value in PENALTIES]
        controls += [{"penalty": PENALTIES[-1]}, {"penalty": PENALTY, "covariance": True}]
        return [plain[0] | control for control in controls] + plain

    def measure(self, cell: Cell) -> Rows:
        """Train all methods; both tables have the same courses."""
        small = cell["rows"] < 5000
        size, steps = (Size(32, 256, 4), 4) if small else (Size(512, 2048, 24), 600)
        seed, penalty = cell["seed"], cell.get("penalty")
        if penalty:  # the step of another penalty is tuned anew
            task, name = prepared(cell["rows"], seed, steps)[1], "exact"
            if name in cell:
                error = exact(task, cell["exact"], penalty)
            else:
                second = "covariance" in cell
                name = "DSG" + cdsg.COVARIANCE if second else FIRST
                step = 1.0 if second else tune(task, penalty, size, (FIRST,))[FIRST]
                course = follow(task, preset(name, penalty, size, step), seed, size.iterations)
                error = course[-1]["test"]
            yield {"method": name, "test": error}
            return
        found = compare(cell["rows"], seed, size, steps)
        limit = np.inf if self.converged else found[FIRST][-1]["seconds"]
        for name, course in found.items():
            for row in thin(name, until(course, limit)):
                yield {key: row[key] for key in ("method", "seconds", "test")}

    def plot(self, rows: list[Row], path: Path) -> None:
        with panel(path, size=(4.4, 3.2)) as ax:
            mine = where(_plain(rows), seed=0)
            draw(ax, mine, "method", "seconds", "test", distinct(mine, "method"))
            ax.set(xscale="log", yscale="log", xlabel="training seconds", ylabel="test error")
            ax.legend(fontsize=7)
