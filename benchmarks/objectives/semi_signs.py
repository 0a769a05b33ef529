"""Derivatives of the unlabelled losses, and what their sign is worth on two moons."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from sklearn.datasets import make_moons

from benchmarks.registry import Objective, Row
from kernelgrad import SemiSupervisedKernelClassifier
from kernelgrad.losses import UNLABELLED_LOSSES, SymmetricHinge

GRADIENTS, MOONS = "gradients", "two moons"
STEP = 1e-6


class Attracting(SymmetricHinge):
    """The symmetric hinge with the sign of Table 2 read literally: rows go to the boundary."""

    name: ClassVar[str] = "attracting"

    def _slope(self, a: Any) -> Any:
        return -super()._slope(a)


def largest_error(name: str) -> float:
    """Return the largest difference from central differences, away from kinks."""
    loss = UNLABELLED_LOSSES[name]()
    r = np.linspace(-1.5, 1.5, 400)
    kinks = np.array([0.0, 1.0, -getattr(loss, "s", 0.0)])
    r = r[np.abs(np.abs(r)[:, None] - kinks).min(axis=1) > 10 * STEP][:, None]
    slope = (loss.value(r + STEP) - loss.value(r - STEP)) / (2 * STEP)
    return float(np.abs(loss.gradient(r)[:, 0] - slope).max())


def moons(seed: int, **params: Any) -> float:
    """Return the error on the unlabelled rows of 300, ten of which have a label."""
    X, t = make_moons(300, noise=0.1, random_state=seed)
    rng = np.random.default_rng(seed)
    y = np.full(300, -1)
    for c in (0, 1):
        some = rng.permutation(np.flatnonzero(t == c))[:5]
        y[some] = c
    model = SemiSupervisedKernelClassifier(
        solver="tsg", gamma=5.0, random_state=seed, **params
    ).fit(X, y)
    return float(np.mean(model.transduction_[y < 0] != t[y < 0]))


class SemiSigns(Objective):
    """Finite differences of every unlabelled loss; two moons with the right and wrong sign.

    "more error than right" is the mean over seeds, with its standard error, of the difference
    to the symmetric hinge on the same rows.
    """

    name: ClassVar[str] = "semi_signs"
    repeat: ClassVar[int] = 12

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Check the losses, then fit."""
        for name in UNLABELLED_LOSSES:
            yield GRADIENTS, {"loss": name, "largest error": largest_error(name)}
        cases: dict[str, Row] = {
            "right": {},
            "wrong": {"unlabelled_loss": Attracting()},
            "none": {"C_star": 0.0},
        }
        errors = {
            name: np.array([moons(seed, **params) for seed in range(args.repeat)])
            for name, params in cases.items()
        }
        for name, values in errors.items():
            more = values - errors["right"]
            root = np.sqrt(max(1, len(values)))
            spread = float(more.std(ddof=1) / root) if len(values) > 1 else 0.0
            yield MOONS, {
                "sign": name, "error": float(values.mean()),
                "more error than right": float(more.mean()), "s.e.": spread,
            }  # fmt: skip
