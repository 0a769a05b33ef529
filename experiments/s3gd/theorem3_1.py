"""Theorem 3.1: a geometric rate down to Delta."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.objectives._shared import distinct, where

from experiments.base import Cell, Claim, Experiment, Row, Rows, by_seed, each_seed, panel
from experiments.s3gd import _paper as paper
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.linear.base import evaluate
from kernelgrad.papers.s3gd.anchors import build_graph

SHARES = (1 / 10, 1 / 20, 1 / 40)  # eta L
FIRST = 0.2  # first term of rho, which chooses m
MU = 2 * paper.LAMBDA
RAYS, POINTS = 20, 20


def rho_and_delta(L: float, mu: float, eta: float, m: int) -> tuple[float, float]:
    """Return rho of Equation (35), and Delta over Delta_{H,P} of Equation (36)."""
    small = 4 * L * eta
    rho = 1 / (mu * eta * (1 - small) * m) + small * (m + 1) / ((1 - small) * m)
    return rho, 8 * eta**2 * L * mu * m / (eta * mu * (m - small * (2 * m + 1)) - 1)


def _largest_gap(problem: Any, data: Any, graph: Any, ends: list[Any]) -> float:
    """Return the largest ``|H - P|`` on rays from 0, where both are alike, to `ends`."""
    most, bias = 0.0, np.zeros(1)
    for end in ends:
        H, before = None, 0.0
        for t in np.linspace(0, 1, POINTS + 1):
            W = data.native(t * end[:, None])
            P = evaluate(problem, data, W, bias).loss
            slopes = paper.near_slopes(problem, data, graph, W, bias)
            along = float(data.native(data.gradient(slopes * data.share[:, None]))[:, 0] @ end)
            H = P if H is None else H + (along + before) / (2 * POINTS)
            most, before = max(most, abs(H - P)), along
    return most


def _bound(row: Row, s: int) -> float:
    """Return the right side of Equation (37) plus Delta."""
    return row["Delta"] + row["rho"] ** s * (row["excess"][0] - row["Delta"])


def _slack(row: Row) -> float:
    """Return the least log10 of the bound over the excess."""
    pairs = [(_bound(row, s), f) for s, f in enumerate(row["excess"]) if s]
    return float(min(np.log10(b / max(f, 1e-15)) for b, f in pairs))


def _floor(row: Row) -> float:
    return float(np.mean(row["excess"][len(row["excess"]) // 2 :]))


class Theorem(Experiment):
    r"""The objective after s outer loops, and the bound.

    .. math:: F(w_s) - F^* - \Delta \le \rho^s \bigl(F(w_0) - F^* - \Delta\bigr)

    Single rows (p = 1) of a9a, eta = 1/(10 L), 1/(20 L) and 1/(40 L), mu = 2 lambda, and as
    many inner iterations m as make the first term of rho 0.2. Drawn: the excess after each
    outer loop, with rho^s (dotted).
    """

    label = "Theorem 3.1"
    kind = "level"
    departures = """
    Delta_{H,P} is the largest difference on 20 rays in the ball that holds all w with F(w) <=
    F(0): over all w the difference may grow without a bound. Equation (19) is the gradient of
    no function unless a row and its anchors are parallel; H is the integral along the ray. w_s
    is the last iterate (Algorithm 1), not the best of a loop (proof). The inequality of Lemma
    3.2, whose proof has a gap, is measured at w*."""
    claims = (
        Claim(
            "The bound (37) holds after each outer loop (margin: least log10 of bound over "
            "excess, over loops and steps)", "proved", lambda rows: "Delta: "
            + paper.listed(paper.means(rows, "Delta", lambda r: f"{r['eta L']:g}/L"))
            + "; floor: "
            + paper.listed(
                {f"{e:g}/L": np.mean([_floor(r) for r in where(rows, **{"eta L": e})])
                 for e in distinct(rows, "eta L")}
            ),
            each_seed(lambda mine: min(map(_slack, mine))),
        ),
        Claim(
            "The first outer loop contracts at least by rho (margin: least of rho less the "
            "contraction, over steps)", "proved",
            lambda rows: "; ".join(
                f"{r['excess'][1] / r['excess'][0]:.3g} for rho = {r['rho']:.3g}"
                for r in where(rows, seed=0)
            ),
            each_seed(
                lambda mine: min(r["rho"] - r["excess"][1] / r["excess"][0] for r in mine)
            ),
        ),
        Claim(
            "A smaller eta mitigates the effect of Delta (Remarks): the floor falls with it "
            "(margin: log10 of the floors of the largest and the smallest step)", "yes",
            lambda rows: "floor of eta = 1/(10 L) over that of 1/(40 L): "
            + ", ".join(
                f"{10**v:.3g}"
                for v in by_seed(rows, lambda m: float(np.log10(_floor(m[0]) / _floor(m[-1]))))
            ),
            each_seed(lambda mine: float(np.log10(_floor(mine[0]) / _floor(mine[-1])))),
        ),
        Claim(
            "Lemma 3.2 at w*: the mean of |grad h_i - grad psi_i|^2 is at most 4 L Delta_{H,P} "
            "(margin: log10 of right over left side)", "proved",
            lambda rows: f"{rows[0]['noise']:.3g} <= {4 * rows[0]['L'] * rows[0]['gap']:.3g}",
            each_seed(lambda mine: float(
                    np.log10(4 * mine[0]["L"] * mine[0]["gap"] / max(mine[0]["noise"], 1e-12))
                )),
        ),
    )  # fmt: skip

    def cells(self, quick: bool) -> list[Cell]:
        return paper.cells(quick, ("a9a",))

    def measure(self, cell: Cell) -> Rows:
        """Run S3GD with the theorem's steps."""
        task, seed = paper.load(cell["data"], cell["quick"]), cell["seed"]
        problem, batch = task.problem(seed), task.batch
        one = task.solver("S3GD", 1.0)
        data = one.init(problem, batch).data
        graph = build_graph(problem, data, one.n_anchors, one.n_neighbors)
        w = paper.linear.minimum(problem, batch)[1]
        norms = data.squares()
        L = 0.25 * float(norms.max())
        W = data.native(w[:, None])
        exact = evaluate(problem, data, W, np.zeros(1)).slopes
        near = paper.near_slopes(problem, data, graph, W, np.zeros(1))
        noise = float(np.mean(norms * (near - exact)[:, 0] ** 2))
        start = evaluate(problem, data, 0 * W, np.zeros(1)).objective
        ends = np.random.default_rng(seed).standard_normal(
            (2 if cell["quick"] else RAYS, len(w))
        )
        ends[0] = w
        ends *= np.sqrt(start / paper.LAMBDA) / np.linalg.norm(ends, axis=1)[:, None]
        gap = _largest_gap(problem, data, graph, list(ends))
        for share in SHARES:
            eta = share / L
            m = int(np.ceil(1 / (FIRST * MU * eta * (1 - 4 * share))))
            rho, factor = rho_and_delta(L, MU, eta, m)
            solver = task.solver("S3GD", eta, m, inner_steps=m)
            solver.set_params(batch_size=1)
            state, excess = solver.init(problem, batch), [start - task.best]
            with single_threaded_blas():
                for _ in range(2 if cell["quick"] else 16):
                    solver.step(problem, state, batch)
                    found = evaluate(problem, data, data.native(state.coef), np.zeros(1))
                    excess.append(found.objective - task.best)
            yield {
                "eta L": share, "m": m, "rho": rho, "L": L, "gap": gap, "noise": noise,
                "Delta": factor * gap, "excess": excess,
            }  # fmt: skip

    def plot(self, rows: list[Row], path: Path) -> None:
        with panel(path, size=(4.2, 3.0)) as ax:
            for i, row in enumerate(where(rows, seed=0)):
                s = np.arange(len(row["excess"]))
                label = f"eta = {row['eta L']:g}/L, rho = {row['rho']:.2f}"
                ax.plot(s, row["excess"], f"C{i}o-", ms=3, label=label)
                ax.plot(s, row["excess"][0] * row["rho"] ** s, f"C{i}:")
            ax.set(
                yscale="log", xlabel="outer loops s", ylabel="F(w_s) - F*", ylim=(1e-6, 1),
                xticks=range(0, 17, 4),
            )  # fmt: skip
            ax.legend(fontsize=7)
