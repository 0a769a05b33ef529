"""Theorems 1 and 2 of triply stochastic gradients, on a problem where h_t is known exactly."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.objectives._shared import distinct, picture, where
from benchmarks.registry import Objective, Row
from kernelgrad.kernels import Gaussian
from kernelgrad.losses import SemiSupervised, get_loss, get_unlabelled_loss
from kernelgrad.solvers import TSG, Problem, TrainBatch

PATHS, SLOPES = "means over seeds", "slopes in log-log"
PAIRS = (("squared_hinge", "gaussian"), ("hinge", "symmetric_hinge"))
LABELLED, ROWS, GAMMA = 10, 200, 2.0
C, RATIO = 1.0, 0.5
LOOKS = 50  # at the gradient, in one fit
CLAIMS = {"gap": -0.5, "gradient": -0.25}


@dataclass
class Cloud:
    """Two noisy half circles, some rows with labels, and their kernel matrix."""

    X: Any
    y: Any
    K: Any

    @classmethod
    def draw(cls) -> Cloud:
        """Return the problem that all fits share."""
        rng = np.random.default_rng(0)
        side = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
        angle = np.pi * rng.random(ROWS)
        X = np.stack([np.cos(angle) + 0.5 * side, side * (np.sin(angle) - 0.25)], axis=1)
        X += 0.1 * rng.standard_normal(X.shape)
        y = np.where(np.arange(ROWS) < LABELLED, side, 0.0)[:, None]
        squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
        return cls(X.astype(np.float32), y.astype(np.float32), np.exp(-GAMMA * squares))


def follow(cloud: Cloud, losses: Sequence[str], T: int, seed: int) -> tuple[float, float]:
    """Return ``mean |f_T - h_T|^2`` over the rows and the mean of ``|grad R(h_t)|^2`` over t.

    One labelled and one unlabelled row and one frequency make a step: the paper's Algorithm 1.
    """
    labelled, unlabelled = (
        get_loss(losses[0], task="classification"),
        get_unlabelled_loss(losses[1]),
    )
    problem = Problem(
        loss=SemiSupervised(labelled, unlabelled, RATIO), kernel=Gaussian(gamma=GAMMA),
        alpha=1.0 / (2.0 * C), n_outputs=1, n_features_in=2, seed=seed, fit_intercept=False,
        n_rows=ROWS, max_iter=T,
    )  # fmt: skip
    solver = TSG(block_size=1, batch_size=1, step_size="theorem", ramp=(0.0, 0.0), average=None)
    rng = np.random.default_rng(np.random.SeedSequence([seed, T]))
    pairs = np.stack([rng.integers(0, LABELLED, T), rng.integers(LABELLED, ROWS, T)], axis=1)
    gamma, h = T**-0.75, np.zeros(ROWS)
    state = tracker = None
    squares = []
    for t, rows in enumerate(pairs):
        batch = TrainBatch(cloud.X[rows], cloud.y[rows], np.ones(2), None)
        if state is None:
            state = solver.init(problem, batch)
            tracker = solver.track(state, cloud.X)
        assert tracker is not None
        f = np.array(tracker.raw_prediction(), np.float64)[rows]
        if t % max(1, T // LOOKS) == 0:
            squares.append(gradient(cloud, labelled, unlabelled, h))
        tracker.advance(solver.step(problem, state, batch))
        h *= 1.0 - gamma
        h[rows[0]] -= gamma * C * float(labelled.gradient(cloud.y[rows[:1]], f[:1])[0, 0])
        h[rows[1]] -= gamma * C * RATIO * float(unlabelled.gradient(f[1:])[0, 0])
    assert tracker is not None
    gap = np.array(tracker.raw_prediction(), np.float64)[:, 0] - cloud.K @ h
    return float(np.mean(gap**2)), float(np.mean(squares))


def gradient(cloud: Cloud, labelled: Any, unlabelled: Any, h: Any) -> float:
    """Return the squared norm of the objective's gradient at the function of coefficients h."""
    f = (cloud.K @ h)[:, None]
    g = h.copy()
    g[:LABELLED] += C * labelled.gradient(cloud.y[:LABELLED], f[:LABELLED])[:, 0] / LABELLED
    g[LABELLED:] += C * RATIO * unlabelled.gradient(f[LABELLED:])[:, 0] / (ROWS - LABELLED)
    return float(g @ cloud.K @ g)


def slope(sizes: Sequence[int], values: Any) -> float:
    """Return the slope of a line through logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


class TSGRates(Objective):
    """``E |f_T - h_T|^2`` and ``E |grad R(h_t)|^2`` over T, at ``gamma = theta / T^(3/4)``.

    h_t takes the steps of f_t with the kernel in place of random features; over 200 rows it is
    200 numbers. Theorem 1 bounds the first by a multiple of T^(-1/2), Theorem 2 the second by
    one of T^(-1/4). Slopes are fitted to each of ten groups of seeds; their standard error is
    that of the mean of the ten.
    """

    name: ClassVar[str] = "tsg_rates"
    repeat: ClassVar[int] = 40

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add numbers of iterations."""
        sizes = [100, 200, 400, 800, 1600]
        parser.add_argument("--iterations", type=int, nargs="+", default=sizes)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Follow every size with every seed."""
        sizes = [20, 40] if args.quick else args.iterations
        seeds = 10 if args.quick else max(10, args.repeat)
        cloud = Cloud.draw()
        for losses in PAIRS:
            values = np.array(
                [[follow(cloud, losses, T, seed) for seed in range(seeds)] for T in sizes]
            )
            name = " + ".join(losses)
            for T, one in zip(sizes, values, strict=True):
                error = one.std(axis=0, ddof=1) / np.sqrt(seeds)
                for key, mean, se in zip(CLAIMS, one.mean(axis=0), error, strict=True):
                    yield PATHS, {
                        "losses": name, "T": T, "what": key, "mean": float(mean),
                        "s.e.": float(se),
                    }  # fmt: skip
            groups = np.array_split(np.arange(seeds), 10)
            for i, (key, claim) in enumerate(CLAIMS.items()):
                slopes = [slope(sizes, values[:, g, i].mean(axis=1)) for g in groups]
                yield SLOPES, {
                    "losses": name, "what": key, "theorem at most": claim,
                    "slope": float(np.mean(slopes)),
                    "s.e.": float(np.std(slopes, ddof=1) / np.sqrt(len(groups))),
                }  # fmt: skip

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw both means over T beside the slopes that the theorems promise."""
        titles = (r"mean $|f_T - h_T|^2$", r"mean $\|\nabla R(h_t)\|^2$")
        with picture(path, 1, 2, size=(4.2, 3.6)) as axes:
            for ax, (key, claim), title in zip(axes[0], CLAIMS.items(), titles, strict=True):
                rows = where(tables[PATHS], what=key)
                for i, name in enumerate(distinct(rows, "losses")):
                    T, mean, error = (
                        [r[column] for r in where(rows, losses=name)]
                        for column in ("T", "mean", "s.e.")
                    )
                    ax.errorbar(T, mean, error, fmt=f"C{i}o-", ms=4, label=name)
                    guide = [mean[0], mean[0] * (T[-1] / T[0]) ** claim]
                    ax.plot([T[0], T[-1]], guide, f"C{i}:", lw=1)
                ax.set(xscale="log", yscale="log", xlabel="T", title=title)
            axes[0][0].legend(fontsize=8, title="dotted: the theorem's slope", title_fontsize=8)
        return True
