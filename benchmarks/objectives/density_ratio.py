"""Ratios of known densities, beside the package densratio."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, ClassVar

import numpy as np

from benchmarks.objectives._shared import timed
from benchmarks.objectives.one_class import limited, one_thread
from benchmarks.registry import Objective, Row
from kernelgrad import KernelDensityRatio

ALPHAS = [1e-4, 1e-3, 1e-2, 1e-1]
SHIFT = 0.5
FLOOR = 1e-3  # of estimated ratios: those of least squares may be zero
PEER = "densratio (uLSIF)"
MEASURES = ("rmse of log ratio", "rmse of ratio", "fit s", "all s")


def draw(n: int, d: int, seed: int) -> tuple[Any, Any]:
    """Return samples of N(0, 1) and of N((SHIFT, 0, ..., 0), 1)."""
    rng = np.random.default_rng([seed, n, d])
    p, q = rng.standard_normal((n, d)), rng.standard_normal((n, d))
    q[:, 0] += SHIFT
    return p, q


def points(d: int) -> tuple[Any, Any, Any]:
    """Return rows, their weights under p, and the log ratio there."""
    if d == 1:
        X = np.linspace(-4, 4, 801)[:, None]
        weight = np.exp(-(X[:, 0] ** 2) / 2)
    else:
        X = np.random.default_rng(0).standard_normal((4000, d))
        weight = np.ones(len(X))
    return X, weight / weight.sum(), SHIFT**2 / 2 - SHIFT * X[:, 0]


def errors(ratio: Any, d: int) -> tuple[float, float]:
    """Return the root mean squared errors of the log ratio and of the ratio under p."""
    _, weight, truth = points(d)
    logs = np.log(np.maximum(ratio, FLOOR)) - truth
    return tuple(float(np.sqrt(weight @ e**2)) for e in (logs, ratio - np.exp(truth)))


def choose_alpha(loss: str, p: Any, q: Any, max_iter: int, seed: int) -> float:
    """Return the alpha with the best score on the last fifth of both samples."""
    cut = len(p) - len(p) // 5
    scores = {}
    for alpha in ALPHAS:
        model = KernelDensityRatio(loss, alpha=alpha, max_iter=max_iter, random_state=seed)
        model.fit(p[:cut], denominator=q[:cut])
        scores[alpha] = model.score(p[cut:], denominator=q[cut:])
    return max(scores, key=lambda alpha: scores[alpha])


def ours(loss: str, alpha: float | None, n: int, d: int, max_iter: int, seed: int) -> Row:
    """Measure one fit; without alpha it is chosen first."""
    p, q = draw(n, d, seed)
    begin = time.perf_counter()
    if alpha is None:
        alpha = choose_alpha(loss, p, q, max_iter, seed)
    start = time.perf_counter()
    model = KernelDensityRatio(loss, alpha=alpha, max_iter=max_iter, random_state=seed)
    model.fit(p, denominator=q)
    end = time.perf_counter()
    values = (*errors(model.predict(points(d)[0]), d), end - start, end - begin)
    return dict(zip(MEASURES, values, strict=True)) | {"alpha": alpha}


def peer_case(connection: Any, n: int, d: int, seed: int) -> None:
    """Report the row of densratio, which chooses its bandwidth and its penalty itself."""
    from densratio import densratio

    p, q = draw(n, d, seed)
    np.random.seed(seed)  # noqa: NPY002 - densratio draws its centres from there
    densratio(p[:50], q[:50], verbose=False)  # compiles
    connection.send(None)
    with one_thread():
        seconds, model = timed(densratio, p, q, verbose=False)
    ratio = np.ravel(model.compute_density_ratio(points(d)[0]))
    values = (*errors(ratio, d), seconds, seconds)
    connection.send(dict(zip(MEASURES, values, strict=True)))


class DensityRatio(Objective):
    """Error of the log ratio of two Gaussians one half apart, and seconds.

    The error is the root mean square under p: on a grid in one dimension, on rows drawn from
    p in more. Estimated ratios below 0.001 count as 0.001. alpha is chosen out of four by
    ``score`` on a fifth of the rows ("all s" has that time too) or left at its default;
    densratio chooses bandwidth and penalty by cross-validation. No ratio at all, log p/q = 0,
    has an error of about one half. All methods have one thread.
    """

    name: ClassVar[str] = "density_ratio"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add sizes and iterations."""
        parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000])
        parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 5])
        parser.add_argument("--max-iter", type=int, default=40, help="kernelgrad's steps")
        parser.add_argument("--limit", type=float, default=600.0, help="seconds for densratio")
        parser.add_argument(
            "--once-from", type=int, default=5000, help="rows from which densratio runs once"
        )

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take the methods in turn in every repeat; every repeat draws its own samples."""
        sizes, max_iter = ([200], 5) if args.quick else (args.rows, args.max_iter)
        peer = importlib.util.find_spec("densratio") is not None
        if not peer:
            print(f"{PEER} skipped: it is not installed (pip install densratio)", flush=True)
        default = KernelDensityRatio().alpha
        methods = [
            (f"kernelgrad {loss}, {text}", loss, alpha)
            for loss in ("kl", "least_squares")
            for text, alpha in (("alpha by score", None), (f"alpha {default:g}", default))
        ]
        ours("kl", default, 200, 1, 2, 0)  # compiles
        for d in args.dimensions:
            for n in sizes:
                found: dict[str, list[Row]] = {name: [] for name, _, _ in methods}
                late = False
                for seed in range(args.repeat):
                    for name, loss, alpha in methods:
                        with one_thread():
                            row = ours(loss, alpha, n, d, max_iter, seed)
                        found[name].append(row)
                    if peer and not late and (seed == 0 or n < args.once_from):
                        theirs = limited(args.limit, peer_case, n, d, seed)
                        late = theirs is None
                        found.setdefault(PEER, []).extend([] if late else [theirs])
                for name, rows in found.items():
                    yield (
                        "density ratio",
                        {"dimensions": d, "rows of each": n, "method": name}
                        | (self._summary(rows) if rows else {})
                        | {"notes": f"over {args.limit:g} s" if not rows else ""},
                    )

    @staticmethod
    def _summary(rows: list[Row]) -> Row:
        result: Row = {key: median(row[key] for row in rows) for key in MEASURES}
        first = [row[MEASURES[0]] for row in rows]
        result |= {"min": min(first), "max": max(first), "repeats": len(rows)}
        if "alpha" in rows[0]:
            result["alpha"] = median(row["alpha"] for row in rows)
        return result
