"""Figure 7(4): energies of molecules from Coulomb matrices."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.datasets.qm7 import Molecules, Qm7, random_sorting
from benchmarks.objectives._shared import distinct, draw, log_grid, where
from scipy.linalg import solve
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed, panel
from kernelgrad import DSG
from kernelgrad.compute.threads import one_thread
from kernelgrad.data import ArraySource, sample_batches
from kernelgrad.kernels import Laplacian
from kernelgrad.losses import SquaredError
from kernelgrad.solvers import Problem, TrainBatch

OURS, NET, EXACT = "doubly SGD", "neural network", "exact kernel"
WIDE = 2048  # frequencies of a block in the paper, and in a control
FACTOR, PENALTY = 4.0, 1e-9  # of the kernel's bandwidth
PAPER, THEIR_NET = 2.97, 3.51  # kcal/mol
COPIES = (1, 2)  # matrices of a training molecule, for the closed form
RATES = (1e-3, 3e-4, 1e-4)  # of the network, each for a third of the time


class Energies:
    """Standardised energies of the training molecules and how to undo that."""

    def __init__(self, train: Molecules) -> None:
        self.mean, self.std = float(train.y.mean()), float(train.y.std())
        self.y = (train.y - self.mean) / self.std

    def error(self, predicted: Any, test: Molecules) -> float:
        """Return the mean absolute error, permutations' predictions averaged, in kcal/mol."""
        energy = predicted.reshape(len(test.y), -1).mean(axis=1) * self.std + self.mean
        return float(np.abs(energy - test.y).mean())


def doubly(
    X: Any, y: Any, Z: Any, size: int, iterations: int, seed: int
) -> Iterator[tuple[float, int, Any]]:
    """Yield seconds, features and predictions of Z after each iteration."""
    solver = DSG(block_size=size, batch_size=8 * size, damping=0.001, momentum=0.0)
    kernel = Laplacian("median", bandwidth_factor=FACTOR)
    problem = Problem(SquaredError(), kernel, PENALTY, 1, X.shape[1], seed, fit_intercept=False)
    spent, state = 0.0, None
    for item in sample_batches(ArraySource(X, y, checked=True), 8 * size, seed=seed):
        start = time.process_time()
        assert item.batch.y is not None
        rows = len(item.batch.rows)
        batch = TrainBatch(item.batch.X, item.batch.y[:, None], np.ones(rows))
        if state is None:
            state = solver.init(problem, batch)
            tracker = solver.track(state, Z)
        info = solver.step(problem, state, batch)
        spent += time.process_time() - start
        tracker.advance(info)
        yield spent, info.n_random_features, tracker.raw_prediction()[:, 0]
        if item.iteration + 1 == iterations:
            return


def network(
    X: Any, y: Any, Z: Any, seconds: float, seed: int
) -> Iterator[tuple[float, int, Any]]:
    """Yield seconds, epochs and predictions of Z of a network trained by Adam."""
    scale = StandardScaler().fit(X.astype(np.float64))
    X, Z = (scale.transform(part.astype(np.float64)).astype(np.float32) for part in (X, Z))
    model = MLPRegressor(
        hidden_layer_sizes=(400, 100), alpha=1e-6, batch_size=min(256, len(y)), max_iter=1,
        warm_start=True,
        random_state=np.random.RandomState(seed),  # a number would repeat the first order
    )  # fmt: skip
    spent, epochs = 0.0, 0
    while spent < seconds:
        start = time.process_time()
        rate = RATES[min(2, int(3 * spent / seconds))]
        model.set_params(learning_rate_init=rate)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y.astype(np.float32))
        spent, epochs = spent + time.process_time() - start, epochs + 1
        yield spent, epochs, model.predict(Z)


def exact(X: Any, y: Any, Z: Any, seed: int) -> Any:
    """Return predictions of Z by the regression with the kernel itself, in closed form."""
    X, Z = X.astype(np.float64), Z.astype(np.float64)
    kernel = Laplacian("median", bandwidth_factor=FACTOR).resolve(X, seed)
    K = kernel.pairwise(X, X)
    K[np.diag_indices(len(K))] += PENALTY * len(K)
    coef = solve(K, y, assume_a="pos", overwrite_a=True, check_finite=False)
    return np.concatenate([kernel.pairwise(part, X) @ coef for part in np.array_split(Z, 16)])


def _last(rows: list[Row], name: str) -> list[float]:
    return by_seed(where(rows, method=name), lambda mine: mine[-1]["MAE"])


class Molecule(Experiment):
    """Doubly SGD predicts energies of molecules better than a neural network.

    Section 7.5: randomly sorted Coulomb matrices of 7,101 small molecules, several of each
    molecule, whose predictions are averaged. Drawn is the mean absolute error on the test
    molecules against seconds.
    """

    label = "Figure 7(4)"
    cause = "setting"
    kind = "level"
    departures = """
    5 matrices of each training and of each test molecule, not 40 and 20. The paper's binary
    predicates are left out: raw entries and a Laplacian kernel of four times the median
    distance had the smaller error on held-out training molecules. Preconditioned steps, as the
    paper's plain ones with a Gaussian kernel take orders of magnitude more of them; blocks of
    512 frequencies, batches of 4,096 rows, 40 iterations, so 40,960 features and not 2^20.
    Three seeds, of three minutes each. This set of 7,101 molecules has its own energies. The
    network has two layers (400, 100), as many seconds, and Adam at three falling rates."""
    explanation = """
    Energies, kernel, penalty and molecules are not to blame: in closed form the same regression
    has 3.50 kcal/mol with one matrix of each training molecule and 2.65 with two (medians),
    which is less than the paper's 2.97. Small blocks and few features are: on the first seed
    blocks of the paper's 2,048 frequencies, with batches of 16,384 rows, have 5.43 at 16,384
    features and 4.88 at 32,768, where blocks of 512 have 7.27 at 18,432, 6.66 at 31,744 and
    6.48 at 40,960, all still falling. How far the paper's 2^20 would take it is not measured.
    """
    claims: ClassVar = (
        Claim(
            "The mean absolute error is 2.97 kcal/mol, within a tenth", f"{PAPER} kcal/mol",
            lambda rows: f"{np.median(_last(rows, OURS)):.2f} kcal/mol",
            lambda rows: [np.log(1.1 * PAPER / e) for e in _last(rows, OURS)],
        ),
        Claim(
            "It is smaller than that of the neural network",
            f"{PAPER} against {THEIR_NET} kcal/mol",
            lambda rows: " against ".join(
                f"{np.median(_last(rows, name)):.2f}" for name in (OURS, NET)
            ),
            lambda rows: [
                np.log(n / e)
                for e, n in zip(_last(rows, OURS), _last(rows, NET), strict=True)
            ],
        ),
    )  # fmt: skip

    def cells(self, quick: bool) -> list[Cell]:
        sizes = (2, 32, 4, 100) if quick else (5, 512, 40, 10_000)
        names = ("permutations", "block", "iterations", "molecules")
        cells: list[Cell] = [{"seed": s} for s in range(1 if quick else 3)]
        cells += [] if quick else [{"seed": 0, "block": WIDE, "iterations": 8}]
        return [dict(zip(names, sizes, strict=True)) | cell for cell in cells]

    def measure(self, cell: Cell) -> Rows:
        """Fit both for the seconds of doubly SGD."""
        seed, n = cell["seed"], cell["permutations"]
        train, test = (p.take(slice(cell["molecules"])) for p in Qm7().molecules())
        energies = Energies(train)
        X, Z = (
            random_sorting(part.C, n, 1.0, s)
            for part, s in ((train, 2 * seed), (test, 2 * seed + 1))
        )
        y = np.repeat(energies.y, n)
        fits: dict[str, Callable[[float], Iterator[tuple[float, int, Any]]]] = {
            OURS: lambda _: doubly(X, y, Z, cell["block"], cell["iterations"], seed),
            NET: lambda seconds: network(X, y, Z, seconds, seed),
        }
        seconds, control = 0.0, cell["block"] == WIDE
        with one_thread():
            for name, fit in [*fits.items()][: 1 if control else 2]:
                rows = [
                    {"seconds": spent, "steps": steps, "MAE": energies.error(f, test)}
                    for spent, steps, f in fit(seconds)
                ]
                seconds = rows[-1]["seconds"]
                for t in log_grid(1, len(rows), 1.3):
                    yield {"method": name + f", blocks of {WIDE:,}" * control} | rows[t - 1]
            for copies in () if control else COPIES:
                start = time.process_time()
                X = random_sorting(train.C, copies, 1.0, 2 * seed)
                error = energies.error(exact(X, np.repeat(energies.y, copies), Z, seed), test)
                spent = time.process_time() - start
                name = f"{EXACT}, {copies} of a molecule"
                yield {"method": name, "seconds": spent, "steps": copies, "MAE": error}

    def plot(self, rows: list[Row], path: Path) -> None:
        with panel(path, size=(4.6, 3.4)) as ax:
            mine = where(rows, seed=0)
            draw(ax, mine, "method", "seconds", "MAE", (OURS, NET))
            for name, mark in zip(distinct(rows, "method")[2:], "xo", strict=False):
                point = where(mine, method=name)[0]
                ax.plot(point["seconds"], point["MAE"], f"k{mark}", mfc="none", label=name)
            ax.axhline(PAPER, color="C0", ls=":", lw=0.8, label="doubly SGD, paper")
            ax.axhline(THEIR_NET, color="C1", ls=":", lw=0.8, label="neural network, paper")
            ax.set(xscale="log", yscale="log", xlabel="training seconds")
            ax.set_ylabel("mean absolute error in kcal/mol")
            ax.legend(fontsize=7)
