"""Theorems 1 and 2, on a problem where h_t is known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.objectives._shared import distinct, picture, where

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import SemiSupervised, get_loss, get_unlabelled_loss
from kernelgrad.solvers import TSG, Problem, TrainBatch

PAIRS = ("squared_hinge + gaussian", "hinge + symmetric_hinge")
LABELLED, ROWS, GAMMA = 10, 200, 2.0
C, RATIO = 1.0, 0.5
LOOKS = 50  # at the gradient, in one fit
RATES = {"gap": -0.5, "gradient": -0.25}
# theta^2 M^2 (sqrt(kappa) + sqrt(phi))^2 as printed; M bounds slopes of hinges only
BOUND = (C + C * RATIO) ** 2 * (1.0 + np.sqrt(2.0)) ** 2


@dataclass
class Cloud:
    """Two noisy half circles, some rows with labels, and their kernel matrix."""

    X: Any
    y: Any
    K: Any


@lru_cache(maxsize=1)
def cloud() -> Cloud:
    """Return the problem that all fits share."""
    rng = np.random.default_rng(0)
    side = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
    angle = np.pi * rng.random(ROWS)
    X = np.stack([np.cos(angle) + 0.5 * side, side * (np.sin(angle) - 0.25)], axis=1)
    X += 0.1 * rng.standard_normal(X.shape)
    y = np.where(np.arange(ROWS) < LABELLED, side, 0.0)[:, None]
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return Cloud(X.astype(np.float32), y.astype(np.float32), np.exp(-GAMMA * squares))


def follow(losses: str, T: int, seed: int) -> tuple[float, float]:
    """Return ``mean |f_T - h_T|^2`` over the rows and the mean of ``|grad R(h_t)|^2`` over t.

    One labelled and one unlabelled row and one frequency make a step: the paper's Algorithm 1.
    """
    one, other = losses.split(" + ")
    labelled, unlabelled = get_loss(one, task="classification"), get_unlabelled_loss(other)
    problem = Problem(
        loss=SemiSupervised(labelled, unlabelled, RATIO),
        kernel=Gaussian(gamma=GAMMA, form="phase"), alpha=1.0 / (2.0 * C), n_outputs=1,
        n_features_in=2, seed=seed, fit_intercept=False, n_rows=ROWS, max_iter=T,
    )  # fmt: skip
    solver = TSG(block_size=1, batch_size=1, step_size="theorem", ramp=(0.0, 0.0), average=None)
    rng = np.random.default_rng(np.random.SeedSequence([seed, T]))
    pairs = np.stack([rng.integers(0, LABELLED, T), rng.integers(LABELLED, ROWS, T)], axis=1)
    gamma, h, at = T**-0.75, np.zeros(ROWS), cloud()
    state = tracker = None
    squares = []
    for t, rows in enumerate(pairs):
        batch = TrainBatch(at.X[rows], at.y[rows], np.ones(2), None)
        if state is None:
            state = solver.init(problem, batch)
            tracker = solver.track(state, at.X)
        assert tracker is not None
        f = np.array(tracker.raw_prediction(), np.float64)[rows]
        if t % max(1, T // LOOKS) == 0:
            squares.append(gradient(labelled, unlabelled, h))
        tracker.advance(solver.step(problem, state, batch))
        h *= 1.0 - gamma
        h[rows[0]] -= gamma * C * float(labelled.gradient(at.y[rows[:1]], f[:1])[0, 0])
        h[rows[1]] -= gamma * C * RATIO * float(unlabelled.gradient(f[1:])[0, 0])
    assert tracker is not None
    gap = np.array(tracker.raw_prediction(), np.float64)[:, 0] - at.K @ h
    return float(np.mean(gap**2)), float(np.mean(squares))


def gradient(labelled: Any, unlabelled: Any, h: Any) -> float:
    """Return the squared norm of the objective's gradient at the function of coefficients h."""
    at = cloud()
    f = (at.K @ h)[:, None]
    g = h.copy()
    g[:LABELLED] += C * labelled.gradient(at.y[:LABELLED], f[:LABELLED])[:, 0] / LABELLED
    g[LABELLED:] += C * RATIO * unlabelled.gradient(f[LABELLED:])[:, 0] / (ROWS - LABELLED)
    return float(g @ at.K @ g)


def slope(rows: Sequence[Row], what: str) -> float:
    """Return the slope of a line through logarithms."""
    T, values = ([row[key] for row in rows] for key in ("T", what))
    return float(np.polyfit(np.log(T), np.log(values), 1)[0])


def _rate(theorem: str, what: str, losses: str) -> Claim:
    rate, sign = RATES[what], "|f_T - h_T|^2" if what == "gap" else "|grad R(h_t)|^2"

    def slopes(rows: list[Row]) -> list[float]:
        return by_seed(where(rows, losses=losses), lambda mine: slope(mine, what))

    return Claim(
        f"{theorem}: the mean of {sign} falls at least as T^{rate} ({losses})",
        f"T^{rate}",
        lambda rows: f"T^{np.mean(slopes(rows)):.2f}",
        lambda rows: [rate - value for value in slopes(rows)],
    )


def _shares(rows: list[Row]) -> list[float]:
    """Return the largest ``E |f_T - h_T|^2 sqrt(T) / D`` of every group of seeds."""
    hinges = where(rows, losses=PAIRS[1])
    return by_seed(hinges, lambda mine: max(r["gap"] * r["T"] ** 0.5 for r in mine) / BOUND)


class Rates(Experiment):
    """E |f_T - h_T|^2 and E |grad R(h_t)|^2 over T, under the theorems' own steps.

    ``gamma = theta / T^(3/4)`` with theta = 1, one labelled row, one unlabelled row and one
    phase feature a step, on two half circles of 200 rows of which ten have labels. h_t takes
    the steps of f_t with the kernel in place of random features; it is 200 numbers.
    """

    label = "Theorem 1 and Theorem 2"
    kind = "rate"
    departures = """
    The paper has no plot of them. Expectations are means of the rows and of three seeds; a
    slope is fitted to each of ten such groups. Theorem 2 is for losses with a Lipschitz
    gradient, such as the first pair; the hinges of the paper's experiments do not meet it."""
    claims = (
        *(_rate("Theorem 1", "gap", losses) for losses in PAIRS),
        Claim(
            "Theorem 1: E |f_T - h_T|^2 is at most D / sqrt(T), with D as printed (hinges)",
            "at most 1 of D / sqrt(T)",
            lambda rows: f"{max(_shares(rows), default=np.nan):.3f} of it",
            lambda rows: [1.0 - share for share in _shares(rows)],
        ),
        *(_rate("Theorem 2", "gradient", losses) for losses in PAIRS),
    )

    def cells(self, quick: bool) -> list[Cell]:
        sizes = [10, 20] if quick else [100, 200, 400, 800, 1600]
        return [
            {"losses": losses, "T": sizes, "seed": seed}
            for losses in PAIRS
            for seed in range(2 if quick else 10)
        ]

    def measure(self, cell: Cell) -> Rows:
        """Follow three seeds over every T."""
        for T in cell["T"]:
            seeds = range(3 * cell["seed"], 3 * cell["seed"] + 3)
            gap, squares = np.mean([follow(cell["losses"], T, s) for s in seeds], axis=0)
            yield {"T": T, "gap": gap, "gradient": squares}

    def plot(self, rows: list[Row], path: Path) -> None:
        titles = (r"mean $|f_T - h_T|^2$", r"mean $\|\nabla R(h_t)\|^2$")
        with picture(path, 1, 2, size=(4.0, 3.4)) as axes:
            for ax, (what, rate), title in zip(axes[0], RATES.items(), titles, strict=True):
                for i, losses in enumerate(PAIRS):
                    mine = where(rows, losses=losses)
                    T = distinct(mine, "T")
                    each = [[row[what] for row in where(mine, T=t)] for t in T]
                    mean = np.array([np.mean(values) for values in each])
                    error = [np.std(v, ddof=1) / np.sqrt(len(v)) for v in each]
                    ax.errorbar(T, mean, error, fmt=f"C{i}o-", ms=4, label=losses)
                    ax.plot(T, mean[0] * (np.array(T) / T[0]) ** rate, f"C{i}:", lw=1)
                ax.set(xscale="log", yscale="log", xlabel="T", title=title)
            axes[0][0].legend(fontsize=8, title="dotted: the theorem's slope", title_fontsize=8)
