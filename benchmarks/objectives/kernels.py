"""Every kernel against its random features: bias, definiteness, noise of a block."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
from scipy.linalg import eigvalsh

from benchmarks.registry import Objective, Row
from kernelgrad import kernels as k
from kernelgrad.kernels import KERNELS, Kernel
from kernelgrad.testing import check_kernel
from kernelgrad.types import Float64Array

ROWS = 24
IMAGE = (6, 6)

Rows = Callable[[np.random.Generator], Float64Array]


def cube(rng: np.random.Generator) -> Float64Array:
    """Return uniform rows of the unit cube in three dimensions, spread by two."""
    return 2.0 * rng.random((ROWS, 3))


def normal(rng: np.random.Generator) -> Float64Array:
    """Return normal rows in five dimensions: entries of both signs, lengths about 2."""
    return rng.standard_normal((ROWS, 5))


def sphere(rng: np.random.Generator) -> Float64Array:
    """Return unit rows in five dimensions."""
    X = rng.standard_normal((ROWS, 5))
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def histograms(rng: np.random.Generator) -> Float64Array:
    """Return frequencies of eight values, a fifth of them zeros."""
    counts = rng.exponential(size=(ROWS, 8)) * (rng.random((ROWS, 8)) >= 0.2)
    counts[:, 0] += 0.1  # no row of zeros
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def wide_histograms(rng: np.random.Generator) -> Float64Array:
    """Return frequencies of 50 values: more than a block has features."""
    return rng.dirichlet(np.ones(50), ROWS)


def images(rng: np.random.Generator) -> Float64Array:
    """Return flat images of independent pixels in [0, 1]."""
    return rng.random((ROWS, *IMAGE)).reshape(ROWS, -1)


# Each registered kernel, with the settings that lead to other features.
CASES: list[tuple[Rows, list[Kernel]]] = [
    (
        cube,
        [
            k.Gaussian(0.7),
            k.Gaussian(0.7, form="phase"),
            k.Gaussian(0.7, sampling="orthogonal"),
            k.Gaussian(0.7, sampling="qmc"),
            k.Laplacian(0.7),
            k.Laplacian(0.7, form="phase"),
            k.Laplacian(0.7, sampling="qmc"),
            k.Cauchy(0.7),
            k.Cauchy(0.7, form="phase"),
            k.Cauchy(0.7, sampling="qmc"),
            k.Matern(0.5, 0.7),
            k.Matern(1.5, 0.7),
            k.Matern(1.5, 0.7, form="phase"),
            k.Matern(1.5, 0.7, sampling="orthogonal"),
            k.Matern(1.5, 0.7, sampling="qmc"),
            k.Matern(2.5, 0.7),
            k.SumKernel([k.Gaussian(0.7), k.Laplacian(0.3)], [0.7, 0.3]),
            k.ProductKernel([k.Gaussian(0.3), k.Laplacian(0.3)]),
            k.ProductKernel([k.Gaussian(0.3), k.Chi2()]),
        ],
    ),
    (
        histograms,
        [
            k.SkewedChi2(0.1),
            k.SkewedChi2(0.1, form="phase"),
            k.SkewedIntersection(0.1),
            k.SkewedIntersection(0.1, form="phase"),
            k.ExponentialSemigroup(),
            k.ExponentialSemigroup(1.0),
            k.ReciprocalSemigroup(),
            k.ReciprocalSemigroup(1.0),
            k.Hellinger(),
            *(
                cls(form)
                for cls in (k.Chi2, k.Intersection, k.JensenShannon)
                for form in ("coordinates", "hashed", "signs")
            ),
        ],
    ),
    (wide_histograms, [k.Chi2(), k.Intersection(), k.JensenShannon()]),
    (
        normal,
        [
            k.ArcCosine(0, bias=1.0),  # without a bias it does not see the control's stretch
            k.ArcCosine(1),
            k.ArcCosine(1, bias=1.0),
            k.ArcCosine(2),
        ],
    ),
    (
        sphere,
        [
            k.Polynomial(2),
            k.Polynomial(3, coef0=0.0),
            k.DotProduct(),
            k.DotProduct(p=1.5),
            k.DotProduct("vovk", gamma=0.3),
            k.DotProduct([0.5, 0.0, 1.0, 2.0]),
        ],
    ),
    (
        images,
        [
            k.ConvolutionKernel(IMAGE, 3),
            k.ConvolutionKernel(IMAGE, 3, stride=2, pool_size=1),
            k.ConvolutionKernel(IMAGE, 3, pool_size=4, normalize=True),
        ],
    ),
]


def measure(kernel: Kernel, rows: Rows, n_blocks: int, seeds: int) -> Row:
    """Run the contract of a kernel on some draws of rows and features; return what it found.

    Raises
    ------
    AssertionError
        The kernel breaks its contract.
    """
    z, control, variances, squares, definite = [], [], [], [], []
    for seed in range(seeds):
        X = rows(np.random.default_rng(seed))
        report = check_kernel(kernel, X=X, random_state=seed, n_blocks=n_blocks)
        z.append(np.abs(report.z))
        control.append(np.abs(report.z_wrong).max())
        variances.append(report.standard_error**2 * n_blocks)
        squares.append(report.exact**2)
        eigenvalues = eigvalsh(kernel.resolve(X, seed)(X))
        definite.append(eigenvalues[0] / eigenvalues[-1])
    return {
        "pairs": sum(map(len, z)),
        "max |z|": float(np.max(z)),
        "control |z|": float(min(control)),
        "least / largest eigenvalue": float(min(definite)),
        "noise of a block": float(np.sqrt(np.mean(variances) / np.mean(squares))),
    }


def parameters(kernel: Kernel) -> str:
    """Return the parameters that are not defaults, in one line."""
    text = " ".join(repr(kernel).split())
    return text[text.index("(") + 1 : -1]


def missing_cases() -> list[str]:
    """Return the names of registered kernels with random features that no case has."""
    covered = {kernel.name for _, kernels in CASES for kernel in kernels}
    random = {name for name, cls in KERNELS.items() if cls.has_random_features}
    return sorted(random - covered)


class Kernels(Objective):
    """Unbiasedness of random features, kernel by kernel, and what one block is worth.

    For pairs of rows of the kernel's domain: the largest distance of the average over blocks
    from the exact kernel in standard errors (below 5), and the same from the kernel of rows
    stretched by a quarter, a control that must be above 5. A kernel that breaks its contract
    stops the run. The noise is the standard deviation of one block of 32 features, root mean
    square over pairs, relative to the kernel.

    Blocks of quasi-Monte Carlo balance each other: their average is far closer than the
    standard error of independent blocks says.
    """

    name: ClassVar[str] = "kernels"
    repeat: ClassVar[int] = 3

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the number of blocks and a choice of kernels."""
        parser.add_argument("--blocks", type=int, default=None, help="blocks to average")
        parser.add_argument("--kernel", nargs="+", choices=sorted(KERNELS), default=None)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Yield one row per kernel and setting."""
        if missing := missing_cases():
            raise ValueError(
                f"No case for the registered kernels {', '.join(missing)}; add them to "
                "CASES in benchmarks/objectives/kernels.py."
            )
        n_blocks = args.blocks or (1000 if args.quick else 20_000)
        for rows, kernels in CASES:
            for kernel in kernels:
                if args.kernel is not None and kernel.name not in args.kernel:
                    continue
                row: Row = {
                    "kernel": kernel.name,
                    "parameters": parameters(kernel),
                    "rows": rows.__name__.replace("_", " "),
                    "blocks": n_blocks,
                }
                found = measure(kernel, rows, n_blocks, args.repeat)
                yield "kernels against their random features", row | found
