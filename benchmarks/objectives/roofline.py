"""Fused tiles against the speed of their parts."""

from __future__ import annotations

import argparse
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar

import numpy as np
from numba import njit

from benchmarks.registry import Objective, Row
from kernelgrad import set_num_threads
from kernelgrad.compute import rng
from kernelgrad.compute.threads import parallel_for, single_threaded_blas
from kernelgrad.features import fused as projections

TILE = projections.TILE


# The parts as compiled loops over the tiles of one task: no Python between two calls.


@njit(nogil=True, cache=True)
def _angles(X: Any, W: Any, T: Any) -> None:
    for a in range(W.shape[0]):
        np.dot(X, W[a], T)


@njit(nogil=True, cache=True)
def _pairs(T: Any, S: Any, count: int) -> None:
    for _ in range(count):
        projections.cos_sin_turns(T.reshape(T.size), S.reshape(S.size))


@njit(nogil=True, cache=True)
def _phased(T: Any, phase: Any, count: int) -> None:
    for _ in range(count):
        projections.cos_phase_turns(T, phase)


@njit(nogil=True, cache=True)
def _products(P: Any, A: Any, out: Any) -> None:
    for a in range(A.shape[0]):
        np.dot(P, A[a], out)


@njit(nogil=True, cache=True)
def _transposed_products(P: Any, R: Any, out: Any, count: int) -> None:
    for _ in range(count):
        np.dot(P.T, R, out)


# The same parts as single calls from Python: NumPy brings its own BLAS.


def _angles_numpy(X: Any, W: Any, T: Any) -> None:
    for w in W:
        np.dot(X, w, out=T)


def _products_numpy(P: Any, A: Any, out: Any) -> None:
    for coef in A:
        np.dot(P, coef, out=out)


def _transposed_products_numpy(P: Any, R: Any, out: Any, count: int) -> None:
    for _ in range(count):
        np.dot(P.T, R, out=out)


class _Buffers(threading.local):
    """The tile buffers of one thread, allocated once."""

    def __init__(self, rows: int, C: int) -> None:
        start = np.random.default_rng(0).standard_normal((2, rows, TILE), np.float32)
        self.T, self.S = start
        self.forward = np.empty((rows, C), np.float32)
        self.backward = np.empty((TILE, C), np.float32)


@dataclass
class Case:
    """One shape; `parts` lists, for each part of the roofline, ways to do it."""

    row: Row
    units: int
    fused: Callable[[], None]
    parts: dict[str, list[Callable[[], None]]]
    launch: Callable[[], None] | None = None
    seconds: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def measure(self) -> None:
        """Time the fused loop and every part, one after the other."""
        set_num_threads(self.row["threads"])
        todo = {("fused", 0): self.fused}
        if self.launch is not None:
            todo["launch", 0] = self.launch
        for name, ways in self.parts.items():
            todo |= {(name, i): way for i, way in enumerate(ways)}
        for key, call in todo.items():
            start = time.perf_counter()
            call()
            self.seconds.setdefault(key, []).append(time.perf_counter() - start)

    def result(self) -> Row:
        """Return medians in ns per row and frequency; each part at its fastest way.

        What it costs to hand out tasks is not part of the roofline.
        """
        ns = {key: 1e9 * median(s) / self.units for key, s in self.seconds.items()}
        launch = ns["launch", 0]
        best = {
            name: min(ns[name, i] for i in range(len(ways))) - launch
            for name, ways in self.parts.items()
        }
        roofline = sum(best.values())
        fused = ns["fused", 0]
        return {
            **self.row,
            "fused ns": fused,
            **{f"{name} ns": value for name, value in best.items()},
            "launch ns": launch,
            "roofline ns": roofline,
            "fraction": roofline / fused,
        }


def make_case(
    operation: str, form: str, d: int, C: int, threads: int, n: int, frequencies: int
) -> Case:
    """Return the case of one shape."""
    random = np.random.default_rng(0)
    n_tiles, planes = frequencies // TILE, 2 if form == "pair" else 1
    rows = min(n, projections.ROWS_WIDE if d >= projections.WIDE else projections.ROWS)
    X = random.standard_normal((n, d), np.float32)
    W = np.empty((n_tiles, d, TILE), np.float32)
    rng.fill_tiles(W, np.arange(d), 0, 0, rng.NORMAL, 1.0 / (2 * np.pi * np.sqrt(d)))
    phase = rng.phases(0, 0, frequencies) if form == "phase" else np.empty(0, np.float32)
    kind = projections.PHASE if form == "phase" else projections.PAIR
    R = random.standard_normal((n, C), np.float32)
    coef = random.standard_normal((planes, frequencies, C), np.float32)
    G = np.empty((planes, n_tiles, TILE, C), np.float32)
    out = np.zeros((n, C), np.float32)
    buffers = _Buffers(rows, C)

    def fused() -> None:
        if operation == "predict":
            projections.predict(X, W, phase, kind, coef, out)
        else:
            projections.gradient(X, W, phase, kind, R, G)

    def by_rows(task: Callable[[int], None]) -> Callable[[], None]:
        return lambda: parallel_for(n // rows, task)

    def angles(a: int) -> None:
        _angles(X[a * rows : (a + 1) * rows], W, buffers.T)

    def angles_numpy(a: int) -> None:
        _angles_numpy(X[a * rows : (a + 1) * rows], W, buffers.T)

    def cosine(a: int) -> None:
        if form == "pair":
            _pairs(buffers.T, buffers.S, n_tiles)
        else:
            _phased(buffers.T, phase[:TILE], n_tiles)

    def cosine_calls(a: int) -> None:
        T, S = buffers.T, buffers.S
        for _ in range(n_tiles):
            if form == "pair":
                projections.cos_sin_turns(T.reshape(-1), S.reshape(-1))
            else:
                projections.cos_phase_turns(T, phase[:TILE])

    def second(a: int, *, compiled: bool) -> None:
        for p in range(planes):
            P = buffers.T if p == 0 else buffers.S
            if operation == "predict":
                A = coef[p].reshape(n_tiles, TILE, C)
                if C == 1 and compiled:
                    _products(P, A.reshape(n_tiles, TILE), buffers.forward.reshape(-1))
                else:
                    (_products if compiled else _products_numpy)(P, A, buffers.forward)
            else:
                r, g = R[a * rows : (a + 1) * rows], buffers.backward
                if C == 1 and compiled:
                    _transposed_products(P, r.reshape(-1), g.reshape(-1), n_tiles)
                else:
                    (_transposed_products if compiled else _transposed_products_numpy)(
                        P, r, g, n_tiles
                    )

    return Case(
        row={"operation": operation, "form": form, "d": d, "C": C, "threads": threads},
        units=n * frequencies,
        fused=fused,
        launch=by_rows(lambda a: None),
        parts={
            "sgemm": [by_rows(angles), by_rows(angles_numpy)],
            "cosine": [by_rows(cosine), by_rows(cosine_calls)],
            "second product": [
                by_rows(lambda a: second(a, compiled=True)),
                by_rows(lambda a: second(a, compiled=False)),
            ],
        },
    )


def make_generation(d: int, threads: int, frequencies: int) -> Case:
    """Return the case of drawing frequencies; its unit is one normal."""
    W = np.empty((frequencies // TILE, d, TILE), np.float32)
    columns = np.arange(d)
    return Case(
        row={"d": d, "threads": threads},
        units=W.size,
        fused=lambda: rng.fill_tiles(W, columns, 0, 0, rng.NORMAL, 1.0),
        parts={},
    )


class Roofline(Objective):
    """Fused prediction and gradient as a fraction of (sgemm + cosine + second product).

    The parts run in the same process, on the same tile shapes, spread over as many threads
    at the same time, each BLAS call on one thread. Every part is done in two ways, from a
    compiled loop (SciPy's BLAS) and from Python (NumPy's BLAS), and the faster one counts.
    """

    name: ClassVar[str] = "roofline"
    repeat: ClassVar[int] = 7

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--d", type=int, nargs="+", default=[18, 54, 784])
        parser.add_argument("--outputs", type=int, nargs="+", default=[1, 10])
        parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        n = frequencies = 512 if args.quick else 4096
        widths = args.d[:1] if args.quick else args.d
        cases = [
            make_case(operation, form, d, C, threads, n, frequencies)
            for operation, form, d, C, threads in itertools.product(
                ("predict", "gradient"), ("pair", "phase"), widths, args.outputs, args.threads
            )
        ]
        draws = [
            make_generation(d, threads, frequencies)
            for d, threads in itertools.product(widths, args.threads)
        ]
        try:
            with single_threaded_blas():
                for case in [*cases, *draws]:
                    case.measure()  # compiles
                    case.seconds.clear()
                for _ in range(args.repeat):
                    for case in [*cases, *draws]:
                        case.measure()
        finally:
            set_num_threads(None)
        for case in cases:
            yield "ns per row and frequency", case.result()
        for case in draws:
            seconds = case.seconds["fused", 0]
            yield (
                "generation of frequencies",
                {**case.row, "ns per normal": 1e9 * median(seconds) / case.units},
            )
