"""Table 2: losses of unlabelled rows and their derivatives."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from benchmarks.objectives._shared import distinct, picture, where
from sklearn.datasets import make_moons

from experiments.base import Cell, Claim, Experiment, Row, Rows
from kernelgrad import SemiSupervisedKernelClassifier
from kernelgrad.losses import SymmetricHinge
from kernelgrad.solvers import TSG

STEP, KNEE = 1e-6, -0.3
# name: loss, derivative as printed, the derivative; of r
LOSSES = {
    "SHG": (
        lambda r: np.maximum(0.0, 1.0 - np.abs(r)),
        lambda r: -1.0 * (np.abs(r) < 1),
        lambda r: -np.sign(r) * (np.abs(r) < 1),
    ),
    "SSHG": (
        lambda r: 0.5 * np.maximum(0.0, 1.0 - np.abs(r)) ** 2,
        lambda r: (np.abs(r) - 1.0) * (np.abs(r) < 1),
        lambda r: np.sign(r) * (np.abs(r) - 1.0) * (np.abs(r) < 1),
    ),
    "Ramp": (
        lambda r: np.maximum(0.0, 1.0 - r) - np.maximum(0.0, KNEE - r),
        lambda r: -1.0 * (r < 1) + (r < KNEE),
        lambda r: -1.0 * (r < 1) + (r < KNEE),
    ),
    "DA": (
        lambda r: np.exp(-5.0 * r**2),
        lambda r: -10.0 * r * np.exp(-5.0 * r**2),
        lambda r: -10.0 * r * np.exp(-5.0 * r**2),
    ),
}
MOONS, LABELS, COST = 300, 10, 100.0


class Printed(SymmetricHinge):
    """The symmetric hinge with the derivative as printed: all rows go to the positive side."""

    name: ClassVar[str] = "printed"

    def gradient(self, f: Any) -> Any:
        """Return -1 for ``|f| < 1``, whatever the side."""
        return self._slope(np.abs(f))


PAPER = TSG.paper(C=COST, sigma=5.0, eta=100.0, n_labelled=LABELS, redraw=False)
VARIANTS: dict[str, dict[str, Any]] = {
    "as printed": {"unlabelled_loss": Printed(), "C_star": COST / (2 * LABELS)},
    "with the sign": {"C_star": COST / (2 * LABELS)},
    "no unlabelled loss": {"C_star": 0.0},
}


def moons(seed: int, variant: str) -> Row:
    """Return error and doubtful rows of those without a label, on two moons."""
    X, t = make_moons(MOONS, noise=0.1, random_state=seed)
    rng = np.random.default_rng(seed)
    y = np.full(MOONS, -1)
    for c in (0, 1):
        some = rng.permutation(np.flatnonzero(t == c))[: LABELS // 2]
        y[some] = c
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of class fractions
        model = SemiSupervisedKernelClassifier(
            **PAPER | VARIANTS[variant], max_iter=200, random_state=seed
        ).fit(X, y)
    f, others = model.decision_function(X), y < 0
    return {
        "variant": variant, "error": float(np.mean((f > 0)[others] != t[others])),
        "doubtful": float(np.mean(np.abs(f[others]) < 1)),
    }  # fmt: skip


def _derivative(name: str) -> Claim:
    def wrong(rows: list[Row]) -> float:
        return float(max(row["wrong"] for row in where(rows, cell="derivatives", loss=name)))

    return Claim(
        f"The derivative of {name} is that of its loss, to 1e-4 in finite differences",
        "printed as one", lambda rows: f"off by {wrong(rows):.2g}",
        lambda rows: [1e-4 - wrong(rows)], error=0.0,
    )  # fmt: skip


def _means(rows: list[Row], key: str) -> str:
    mine = where(rows, cell="two moons")
    return "; ".join(
        f"{v}: {np.mean([r[key] for r in where(mine, variant=v)]):.3f}" for v in VARIANTS
    )


class Derivatives(Experiment):
    """Printed derivatives of the losses of unlabelled rows, and what a lost sign costs.

    Finite differences away from kinks, the ramp with s = -.3; then triply stochastic gradients
    on two moons, 300 rows of which ten have labels, with the derivative of the symmetric hinge
    as printed, with its sign, and without the loss. Drawn: derivatives, printed and true, and
    test errors.
    """

    label = "Table 2"
    cause = "the paper's"
    kind = "level"
    departures = """
    The paper has no two moons; they are here to tell what a misprint would do: C = 100, C* = C
    / 2, sigma = 5, eta = 100, 200 iterations; all ten labels once in each batch."""
    explanation = """
    Table 2 prints u'(r) of SHG and SSHG for r > 0. By it all unlabelled rows with r < 0 go to
    the positive side too. The same fits with the sign put back, which the library has, are the
    control."""
    claims = (
        *(_derivative(name) for name in LOSSES),
        Claim(
            "Section 3.1: u keeps unlabelled rows away from the hyperplane; with u' of SHG as "
            "printed fewer rows have |f| < 1 than with its sign, or as few", "as few",
            lambda rows: _means(rows, "doubtful"), lambda rows: _differences(rows, "doubtful"),
        ),
        Claim(
            "The algorithm works with u' of SHG as printed: its error is no higher than with "
            "the sign", "no higher", lambda rows: _means(rows, "error"),
            lambda rows: _differences(rows, "error"),
        ),
    )  # fmt: skip

    def cells(self, quick: bool) -> list[Cell]:
        seeds = range(2 if quick else 12)
        return [{"cell": "derivatives", "seed": 0}] + [
            {"cell": "two moons", "seed": seed} for seed in seeds
        ]

    def measure(self, cell: Cell) -> Rows:
        """Compare derivatives, or fit."""
        if cell["cell"] == "two moons":
            yield from (moons(cell["seed"], variant) for variant in VARIANTS)
            return
        r = np.linspace(-1.5, 1.5, 400)
        r = r[np.abs(r[:, None] - [-1.0, KNEE, 0.0, 1.0]).min(axis=1) > 10 * STEP]
        for name, (loss, printed, true) in LOSSES.items():
            slope = (loss(r + STEP) - loss(r - STEP)) / (2 * STEP)
            yield {
                "loss": name, "wrong": float(np.abs(printed(r) - slope).max()),
                "corrected": float(np.abs(true(r) - slope).max()),
            }  # fmt: skip

    def plot(self, rows: list[Row], path: Path) -> None:
        r = np.linspace(-1.5, 1.5, 601)
        fits = where(rows, cell="two moons")
        with picture(path, 1, 5, size=(2.4, 2.6)) as axes:
            for ax, (name, (_, printed, true)) in zip(axes[0], LOSSES.items(), strict=False):
                ax.plot(r, true(r), "C0-", label="derivative")
                ax.plot(r, printed(r), "C1--", label="as printed")
                ax.set(title=name, xlabel="r")
            axes[0][0].legend(fontsize=7)
            variants = distinct(fits, "variant")
            axes[0][4].boxplot(
                [[row["error"] for row in where(fits, variant=v)] for v in variants]
            )
            shown = [variant.replace(" ", "\n") for variant in variants]
            axes[0][4].set_xticks(range(1, len(variants) + 1), shown, fontsize=7)
            axes[0][4].set(title="two moons", ylabel="error")


def _differences(rows: list[Row], key: str) -> list[float]:
    """Return with-the-sign less as-printed of every seed."""
    mine = where(rows, cell="two moons")
    one, other = (where(mine, variant=v) for v in ("with the sign", "as printed"))
    return [a[key] - b[key] for a, b in zip(one, other, strict=True)]
