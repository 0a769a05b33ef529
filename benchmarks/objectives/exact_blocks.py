"""Blocks of exact kernels against a matrix product, `pairwise`, and scikit-learn."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from statistics import median
from typing import ClassVar

import numpy as np
from sklearn.metrics import pairwise as reference

from benchmarks.objectives._shared import in_turns
from benchmarks.registry import Objective, Row
from kernelgrad import kernels as k
from kernelgrad import set_num_threads
from kernelgrad._typing import Float64Array
from kernelgrad.compute.threads import single_threaded_blas
from kernelgrad.functions.exact import COLUMN_TILE
from kernelgrad.kernels import Kernel

D = 22
ROWS = 256

Call = Callable[[], object]


def signed(n: int, d: int) -> Float64Array:
    """Return normal rows."""
    return np.random.default_rng(0).standard_normal((n, d))


def histograms(n: int, d: int) -> Float64Array:
    """Return rows of positive entries with sum 1."""
    return np.random.default_rng(0).dirichlet(np.ones(d), n)


def unit(n: int, d: int) -> Float64Array:
    """Return normal rows of length 1."""
    X = signed(n, d)
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


G = 0.5 / D
# rows, kernel, and what scikit-learn has of the same cost
CASES: list[tuple[Callable[[int, int], Float64Array], Kernel, Callable[..., object] | None]] = [
    (signed, k.Gaussian(G), lambda A, B: reference.rbf_kernel(A, B, gamma=G)),
    (signed, k.Matern(0.5, G), None),
    (signed, k.Matern(1.5, G), None),
    (signed, k.Matern(2.5, G), None),
    (signed, k.Matern(1.2, G), None),
    (signed, k.Laplacian(G), lambda A, B: reference.laplacian_kernel(A, B, gamma=G)),
    (signed, k.Cauchy(0.1), None),
    (unit, k.DotProduct(), None),
    (unit, k.DotProduct("vovk", 0.5), None),
    (unit, k.DotProduct([1.0, 1.0, 0.5, 0.2]), None),
    (unit, k.Polynomial(3), lambda A, B: reference.polynomial_kernel(A, B, degree=3, gamma=1)),
    (histograms, k.Hellinger(), lambda A, B: reference.linear_kernel(A, B)),
    (histograms, k.Chi2(), lambda A, B: reference.additive_chi2_kernel(A, B)),
    (histograms, k.Intersection(), lambda A, B: reference.manhattan_distances(A, B)),
    (histograms, k.JensenShannon(), None),
    (histograms, k.SkewedChi2(0.05), None),
    (histograms, k.SkewedIntersection(0.05), None),
    (histograms, k.ExponentialSemigroup(0.1), None),
    (histograms, k.ReciprocalSemigroup(2.0), None),
    (signed, k.ArcCosine(0), None),
    (signed, k.ArcCosine(1), None),
    (signed, k.ArcCosine(2), None),
    (signed, k.SumKernel([k.Gaussian(G), k.Laplacian(G)]), None),
    (signed, k.ProductKernel([k.Gaussian(G), k.Laplacian(G)]), None),
    (signed, k.ConvolutionKernel((2, 11), 2, gamma=0.1), None),
]


def rbf_row(n: int, d: int, m: int, repeat: int) -> Row:
    """Return the Gaussian block of n and m rows beside a matrix product of these shapes."""
    A, B = signed(n, d), signed(m, d)
    kernel = k.Gaussian(0.5 / d)
    a, b = kernel.exact_rows(A), kernel.exact_rows(B)
    A32, B32 = A.astype(np.float32), B.astype(np.float32)
    wide_a, wide_b = (kernel.exact_rows(Z, wide=True) for Z in (A, B))
    calls: dict[str, Call] = {
        "block": lambda: kernel.values(a, b),
        "wide": lambda: kernel.values(wide_a, wide_b),
        "product": lambda: A32 @ B32.T,
    }
    seconds = {name: median(s) for name, s in in_turns(calls, repeat).items()}
    flops = 2e-9 * n * m * d
    return {
        "rows": n,
        "columns": m,
        "d": d,
        "block ns": 1e9 * seconds["block"] / (n * m),
        "wide ns": 1e9 * seconds["wide"] / (n * m),
        "sgemm ns": 1e9 * seconds["product"] / (n * m),
        "block GFLOP/s": flops / seconds["block"],
        "sgemm GFLOP/s": flops / seconds["product"],
    }


class ExactBlocks(Objective):
    """Nanoseconds per value of an exact kernel, on one thread.

    The Gaussian kernel beside ``A @ B.T`` in float32 alone (its GFLOP/s count the products
    only, not the exponentials), with blocks of as many rows as a step of a solver asks for.
    Then every kernel in the precision that its rows need beside ``pairwise``, and beside the
    function of scikit-learn that computes it or, for the histogram intersection, the L1
    distance; both in float64.
    """

    name: ClassVar[str] = "exact_blocks"
    repeat: ClassVar[int] = 7

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the shapes."""
        parser.add_argument("--d", type=int, nargs="+", default=[8, 22, 123, 784])
        parser.add_argument("--rows", type=int, nargs="+", default=[8, 32, 256])

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Yield a row per shape, then a row per kernel."""
        m, rows = (128, 16) if args.quick else (COLUMN_TILE, ROWS)
        set_num_threads(1)
        try:
            with single_threaded_blas():
                for d in args.d:
                    for n in args.rows:
                        yield "Gaussian blocks", rbf_row(n, d, m, args.repeat)
                for make, kernel, other in CASES:
                    yield "kernels", self._kernel(kernel, make(rows + m, D), rows, other, args)
        finally:
            set_num_threads(None)

    def _kernel(
        self,
        kernel: Kernel,
        X: Float64Array,
        n: int,
        other: Callable[..., object] | None,
        args: argparse.Namespace,
    ) -> Row:
        A, B = X[:n], X[n:]
        wide = kernel.needs_wide(X)
        a, b = (kernel.exact_rows(Z, wide=wide) for Z in (A, B))
        calls: dict[str, Call] = {
            "block": lambda: kernel.values(a, b),
            "pairwise": lambda: kernel.pairwise(A, B),
        }
        if other is not None:
            calls["scikit-learn"] = lambda: other(A, B)
        seconds = {name: median(s) for name, s in in_turns(calls, args.repeat).items()}
        error = np.abs(kernel.values(a, b) - kernel.pairwise(A, B)).max()
        values = n * len(B)
        return {
            "kernel": kernel.name,
            "parameters": " ".join(repr(kernel).split()),
            "d": X.shape[1],
            "wide": wide,
            "block ns": 1e9 * seconds["block"] / values,
            "pairwise ns": 1e9 * seconds["pairwise"] / values,
            "scikit-learn ns": (
                1e9 * seconds["scikit-learn"] / values if "scikit-learn" in seconds else None
            ),
            "error / max k": float(error / kernel.diag(X).max()),
        }
