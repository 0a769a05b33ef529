"""Structured frequencies against independent ones: speed, variance and bias."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, ClassVar

import numpy as np

from benchmarks.objectives._shared import in_turns
from benchmarks.registry import Objective, Row
from kernelgrad import set_num_threads
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.features import fused as projections
from kernelgrad.features.projections import ProjectionMap
from kernelgrad.kernels import Gaussian, Matern, StationaryKernel
from kernelgrad.special_kernels.features import hadamard
from kernelgrad.special_kernels.features.structured import HadamardMap

CACHE = 2**31
CHUNK = 2**16  # frequencies of one block in the check of the bias


def speed(
    operation: str, d: int, C: int, threads: int, *, n: int, frequencies: int, repeat: int
) -> Row:
    """Return ns per row and frequency, kept in memory and drawn again, and their ratios."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n, d), np.float32) / np.float32(np.sqrt(d))
    kernel = Gaussian(0.5)
    iid = ProjectionMap(kernel.weights(), d, 0, frequencies)
    fast = HadamardMap(kernel.weights(), d, 0, frequencies)
    ways: dict[str, Callable[[], Any]]
    if operation == "predict":
        coef = random.standard_normal((2, frequencies, C), np.float32)
        out = np.zeros((n, C), np.float32)
        ways = {
            "iid, kept": lambda: iid.predict(X, coef, 1, out, CACHE),
            "hadamard, kept": lambda: fast.predict(X, coef, 1, out, CACHE),
            "iid, drawn": lambda: iid.predict(X, coef, 1, out, 0),
            "hadamard, drawn": lambda: fast.predict(X, coef, 1, out, 0),
        }
    else:
        R = random.standard_normal((n, C), np.float32)
        tile = projections.TILE
        W = iid.frequencies(0, frequencies // tile, tile, np.arange(d))
        stacks = fast.stacks(0, -(-frequencies // fast.order))
        tiles = np.empty((2, len(W), tile, C), np.float32)
        G = np.empty((2, frequencies, C), np.float32)
        none = np.empty(0, np.float32)
        kind = projections.PAIR
        ways = {
            "iid, kept": lambda: projections.gradient(X, W, none, kind, R, tiles),
            "hadamard, kept": lambda: hadamard.gradient(X, stacks, none, kind, 0, R, G),
            "iid, drawn": lambda: iid.gradient(X, R, 0),
            "hadamard, drawn": lambda: fast.gradient(X, R, 0),
        }
    set_num_threads(threads)
    seconds = in_turns(ways, repeat)
    row = {"operation": operation, "d": d, "order": fast.order, "C": C, "threads": threads}
    row |= {f"{way} ns": 1e9 * median(s) / (n * frequencies) for way, s in seconds.items()}
    for kind in ("kept", "drawn"):
        pairs = zip(seconds[f"iid, {kind}"], seconds[f"hadamard, {kind}"], strict=True)
        row[f"speed-up, {kind}"] = median(a / b for a, b in pairs)
    return row


def squared_errors(
    kernel: StationaryKernel, X: np.ndarray, frequencies: int, seeds: range
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean squared errors over pairs of rows, per seed, and errors per seed and pair."""
    pairs = np.triu_indices(len(X), 1)
    exact = kernel(X)[pairs]
    errors = np.empty((len(seeds), len(exact)))
    for i, seed in enumerate(seeds):
        P = kernel.feature_map(X.shape[1], seed, frequencies).transform(X, 0).astype(float)
        errors[i] = (P @ P.T)[pairs] - exact
    return (errors**2).mean(axis=1), errors


def bias(sampling: str, d: int, direction: str, t: float, frequencies: int) -> Row:
    """Return mean error and standard error of ``cos(w . x)`` at ``|x| = t``, gamma = 1/2."""
    x = np.zeros((1, d), np.float32)
    x[0, : {"one column": 1, "two columns": min(d, 2), "all columns": d}[direction]] = 1.0
    x *= np.float32(t / np.linalg.norm(x))
    features = Gaussian(0.5, sampling=sampling).feature_map(d, 1, CHUNK)
    n_blocks = frequencies // CHUNK
    means = np.empty(n_blocks)
    for j in range(n_blocks):
        means[j] = features.transform(x, j)[0, :CHUNK].mean(dtype=float) * np.sqrt(CHUNK)
    error = means - np.exp(-0.5 * float(np.linalg.norm(x.astype(float))) ** 2)
    se = float(error.std(ddof=1) / np.sqrt(n_blocks))
    return {
        "sampling": sampling,
        "d": d,
        "direction": direction,
        "t": t,
        "frequencies": n_blocks * CHUNK,
        "bias": float(error.mean()),
        "standard error": se,
        "z": float(error.mean() / se),
    }


class Frequencies(Objective):
    """Frequencies that are independent, orthogonal, or quasi-Monte Carlo points.

    Speed: Walsh-Hadamard transforms against matrix products, with frequencies kept in memory
    and drawn again, everything in turn within each repeat. Variance: squared error of the
    kernel estimate on standard normal rows with the bandwidth at the median distance or
    half of it, 64 seeds a repeat. Bias: many frequencies at one distance.
    """

    name: ClassVar[str] = "frequencies"
    repeat: ClassVar[int] = 5

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the shapes."""
        parser.add_argument("--d", type=int, nargs="+", default=[64, 128, 784, 4096])
        parser.add_argument("--outputs", type=int, nargs="+", default=[1, 10])
        parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
        parser.add_argument("--widths", type=int, nargs="+", default=[2, 8, 32, 128, 784])

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Speed first, then variance and bias."""
        yield from self._speed(args)
        try:
            set_num_threads(None)
            with single_threaded_blas():
                yield from self._variance(args)
                yield from self._bias(args)
        finally:
            set_num_threads(None)

    def _speed(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        n, frequencies = (256, 512) if args.quick else (2048, 4096)
        widths = args.d[:1] if args.quick else args.d
        shapes = itertools.product(("predict", "gradient"), widths, args.outputs, args.threads)
        try:
            with single_threaded_blas():
                for shape in shapes:
                    yield (
                        "ns per row and frequency",
                        speed(*shape, n=n, frequencies=frequencies, repeat=args.repeat),
                    )
        finally:
            set_num_threads(None)

    def _variance(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        frequencies, seeds = (64, 8) if args.quick else (1024, 64 * args.repeat)
        widths = args.widths[:2] if args.quick else args.widths
        for d, factor in itertools.product(widths, (1.0, 0.5)):
            X = np.random.default_rng(d).standard_normal((24, d))
            for cls in (Gaussian, Matern):
                kernel = cls(gamma="median", bandwidth_factor=factor).resolve(X, 0)
                row: Row = {
                    "kernel": kernel.name,
                    "d": d,
                    "bandwidth": f"{factor:g} median",
                    "frequencies": frequencies,
                }
                base = np.nan
                for sampling in ("iid", "orthogonal", "qmc"):
                    kernel.set_params(sampling=sampling)
                    mse, errors = squared_errors(
                        kernel, X.astype(np.float32), frequencies, range(seeds)
                    )
                    mean, se = float(mse.mean()), float(mse.std(ddof=1) / np.sqrt(seeds))
                    base = mean if sampling == "iid" else base
                    row[f"{sampling} 1e6 MSE"] = 1e6 * mean
                    row[f"{sampling} s.e."] = 1e6 * se
                    if sampling != "iid":
                        row[f"{sampling} / iid"] = mean / base
                    z = errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / np.sqrt(seeds))
                    row[f"{sampling} largest z"] = float(np.abs(z).max())
                yield "squared error of the kernel estimate", row

    def _bias(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        frequencies = 4 * CHUNK if args.quick else 2**25
        widths = (65,) if args.quick else (32, 128, 784)
        directions = ("one column", "two columns", "all columns")
        for d, direction, t in itertools.product(widths, directions, (1.0, 2.0)):
            yield "bias", bias("orthogonal", d, direction, t, frequencies)
