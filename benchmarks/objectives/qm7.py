"""Energies of molecules from Coulomb matrices (Dai et al. 2014, Section 7.5)."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from benchmarks.datasets.qm7 import Molecules, Qm7, random_sorting, soft_steps
from benchmarks.objectives._shared import middle_row
from benchmarks.registry import Objective, Row
from kernelgrad import DSG, KernelRegressor
from kernelgrad.kernels import get_kernel


@dataclass(frozen=True)
class Sizes:
    """Permutations, steps and epochs of a run."""

    train_permutations: int = 40  # both as in the paper
    test_permutations: int = 20
    max_iter: int = 30
    block_size: int = 2048
    sorted_iter: int = 30
    sorted_block: int = 1024
    epochs: tuple[int, int, int] = (12, 6, 4)  # at each of RATES
    mlp_seconds: float = 300.0  # of processor time, about what kernelgrad takes
    molecules: int | None = None


QUICK = Sizes(3, 2, 3, 32, 3, 32, (1, 1, 1), molecules=100)
# Narrow blocks and few epochs rank the candidates in minutes.
TUNING = Sizes(
    test_permutations=4, max_iter=6, block_size=1024, sorted_iter=12, epochs=(1, 0, 0)
)


@dataclass(frozen=True)
class Ours:
    """Hyper-parameters of kernelgrad, and of the rows that it is given."""

    kernel: str = "laplacian"
    bandwidth_factor: float = 4.0
    alpha: float = 1e-9
    damping: float = 0.003
    momentum: float = 0.0
    noise: float = 1.0
    expansion: bool = False


@dataclass(frozen=True)
class Ridge:
    """Hyper-parameters of exact kernel ridge regression."""

    kernel: str
    bandwidth_factor: float
    alpha: float


@dataclass(frozen=True)
class Net:
    """Hyper-parameters of the neural network."""

    layers: tuple[int, ...] = (400, 100)
    alpha: float = 1e-6
    expansion: bool = False


# How the choice was made: `--tune` holds out a fifth of the training molecules, measures
# START and each change of it, for exact ridge a grid, and NETS. CHOSEN is START with the
# change that was best for MAE and RMSE alike (7.21 to 6.96 and 11.1 to 10.4; the choice is
# the smallest damping tried, and kernel, bandwidth, noise and rows stay as they were). START,
# the width of blocks and the batch came from shorter trials on the same held-out molecules.
# The network's choice is the narrower one: three candidates, one epoch each.
START = Ours()
CHOSEN = replace(START, damping=0.001)
CHOSEN_SORTED = replace(START, noise=0.0)
CHOSEN_RIDGE = [Ridge("laplacian", 16.0, 1e-8), Ridge("rbf", 2.0, 1e-4)]
CHOSEN_NET = Net()

CHANGES: list[dict[str, Any]] = [
    {"kernel": "rbf", "bandwidth_factor": 1.0},
    {"kernel": "matern", "bandwidth_factor": 1.0},
    {"bandwidth_factor": 2.0},
    {"bandwidth_factor": 8.0},
    {"alpha": 1e-7},
    {"damping": 0.03},
    {"damping": 0.001},
    {"momentum": 0.8},
    {"noise": 0.3},
    {"noise": 3.0},
    {"expansion": True},
]
SORTED_CHANGES: list[dict[str, Any]] = [
    {"bandwidth_factor": 2.0},
    {"bandwidth_factor": 8.0},
    {"damping": 0.03},
]
RIDGE_FACTORS = {"laplacian": (4.0, 16.0, 64.0), "rbf": (1.0, 2.0, 4.0)}
RIDGE_ALPHAS = (1e-8, 1e-6, 1e-4, 1e-2)
NETS = [Net(), Net(expansion=True), Net(layers=(200, 50))]

RATES = (1e-3, 3e-4, 1e-4)
SHARES = (0.55, 0.8, 1.0)  # of the network's time limit, at the end of each rate
MEMORY_LIMIT = 2**29  # bytes; the frequencies of all blocks stay in the quarter for caches

Predictor = Callable[[Any], Any]


class Energies:
    """Standardised energies of the training molecules and how to undo that."""

    def __init__(self, train: Molecules) -> None:
        self.mean, self.std = float(train.y.mean()), float(train.y.std())
        self.y = (train.y - self.mean) / self.std

    def errors(self, predicted: Any, test: Molecules) -> tuple[float, float]:
        """Return MAE and RMSE in kcal/mol; predictions of permutations are averaged."""
        energy = predicted.reshape(len(test.y), -1).mean(axis=1) * self.std + self.mean
        e = energy - test.y
        return float(np.abs(e).mean()), float(np.sqrt((e**2).mean()))


def rows(
    part: Molecules, n_permutations: int, noise: float, seed: int, *, expansion: bool
) -> Any:
    """Return randomly sorted matrices, or the sorted ones where there is no noise."""
    X = part.X_sorted
    if noise > 0:
        X = random_sorting(part.C, n_permutations, noise, seed)
    return soft_steps(X) if expansion else X


def fit_ours(
    X: Any, y: Any, params: Ours, block_size: int, max_iter: int, seed: int
) -> tuple[Predictor, str]:
    """Fit kernelgrad by DSG with a new block in every step."""
    solver = DSG(
        block_size=block_size,
        batch_size=8 * block_size,
        damping=params.damping,
        momentum=params.momentum,
    )
    model = KernelRegressor(
        kernel=params.kernel,
        bandwidth_factor=params.bandwidth_factor,
        alpha=params.alpha,
        solver=solver,
        max_iter=max_iter,
        memory_limit=MEMORY_LIMIT,
        random_state=seed,
    ).fit(X, y)
    return model.predict, f"{model.n_random_features_:,} features"


def fit_ridge(X: Any, y: Any, params: Ridge, seed: int = 0) -> tuple[Predictor, str]:
    """Fit exact kernel ridge regression."""
    gamma = _gamma(X, params.kernel, params.bandwidth_factor)
    model = KernelRidge(kernel=params.kernel, gamma=gamma, alpha=params.alpha)
    model.fit(X.astype(np.float64), y)
    return lambda Z: model.predict(Z.astype(np.float64)), ""


def _gamma(X: Any, kernel: str, factor: float) -> float:
    """Return gamma for a multiple of the median distance."""
    rule = get_kernel(kernel, gamma="median", bandwidth_factor=factor)
    return float(rule.resolve(X, 0).gamma_value)


def fit_net(X: Any, y: Any, params: Net, sizes: Sizes, seed: int) -> tuple[Predictor, str]:
    """Fit the network by Adam at three falling rates; each ends with its share of time."""
    scale = StandardScaler().fit(X.astype(np.float64))

    def scaled(X: Any) -> Any:
        return scale.transform(X.astype(np.float64)).astype(np.float32)

    model = MLPRegressor(
        hidden_layer_sizes=params.layers,
        alpha=params.alpha,
        batch_size=min(256, len(y)),
        max_iter=1,
        warm_start=True,
        random_state=np.random.RandomState(seed),  # a number would repeat the first order
    )
    start, done = time.process_time(), 0
    X = scaled(X)
    for rate, epochs, share in zip(RATES, sizes.epochs, SHARES, strict=True):
        model.set_params(learning_rate_init=rate)
        for _ in range(epochs):
            if done and time.process_time() - start > share * sizes.mlp_seconds:
                break
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(X, y.astype(np.float32))
            done += 1
    notes = f"{done} of {sum(sizes.epochs)} epochs"
    if done < sum(sizes.epochs):
        notes += f" in {sizes.mlp_seconds:g} s of processor time"
    return lambda Z: model.predict(scaled(Z)), notes


@dataclass(frozen=True)
class Method:
    """One line of the comparison: which rows, and how a model is fitted to them."""

    name: str
    params: Any
    fit: Callable[..., tuple[Predictor, str]]
    noise: float = 0.0
    expansion: bool = False


def methods(sizes: Sizes) -> list[Method]:
    """Return all methods with the chosen hyper-parameters."""
    found = [
        _ours("kernelgrad, permuted", CHOSEN, sizes.block_size, sizes.max_iter),
        _net("MLP, permuted", CHOSEN_NET, sizes),
    ]
    found += [
        Method(f"exact KRR {p.kernel}, sorted", p, partial(fit_ridge, params=p))
        for p in CHOSEN_RIDGE
    ]
    found.append(
        _ours("kernelgrad, sorted", CHOSEN_SORTED, sizes.sorted_block, sizes.sorted_iter)
    )
    return found


def _ours(name: str, params: Ours, block_size: int, max_iter: int) -> Method:
    fit = partial(fit_ours, params=params, block_size=block_size, max_iter=max_iter)
    return Method(name, params, fit, params.noise, params.expansion)


def _net(name: str, params: Net, sizes: Sizes) -> Method:
    fit = partial(fit_net, params=params, sizes=sizes)
    # the network sees the permutations that kernelgrad sees
    return Method(name, params, fit, CHOSEN.noise, params.expansion)


def measure(method: Method, train: Molecules, test: Molecules, sizes: Sizes, seed: int) -> Row:
    """Fit once and return the errors on the test molecules, and seconds."""
    energies = Energies(train)
    X, Z = (
        rows(part, n, method.noise, s, expansion=method.expansion)
        for part, n, s in (
            (train, sizes.train_permutations, 2 * seed),
            (test, sizes.test_permutations, 2 * seed + 1),
        )
    )
    y = np.repeat(energies.y, len(X) // len(train.y))
    start, cpu = time.perf_counter(), time.process_time()
    predict, notes = method.fit(X, y, seed=seed)
    fitted, cpu = time.perf_counter(), time.process_time() - cpu
    predicted = predict(Z)
    mae, rmse = energies.errors(predicted, test)
    return {
        "method": method.name,
        "rows": len(X),
        "MAE": mae,
        "RMSE": rmse,
        "fit s": fitted - start,
        "fit CPU s": cpu,
        "predict s": time.perf_counter() - fitted,
        "parameters": asdict(method.params),
        "notes": notes,
    }


def summary(repeats: list[Row]) -> Row:
    """Return medians of what is a number, and the range of the MAE."""
    errors = [row["MAE"] for row in repeats]
    return middle_row(repeats) | {"min MAE": min(errors), "max MAE": max(errors)}


def validation_split(train: Molecules) -> tuple[Molecules, Molecules]:
    """Return training molecules, and a fifth of them that validates."""
    order = np.random.default_rng(0).permutation(len(train.y))
    cut = len(order) // 5
    return train.take(order[cut:]), train.take(order[:cut])


def tune(train: Molecules, sizes: Sizes) -> Iterator[tuple[str, Row]]:
    """Measure the candidates on a fifth of the training molecules."""
    part, held = validation_split(train)

    def candidate(method: Method) -> Row:
        row = measure(method, part, held, sizes, seed=0)
        return {key: row[key] for key in ("parameters", "MAE", "RMSE", "fit s", "notes")}

    for change in [{}, *CHANGES]:
        params = replace(START, **change)
        method = _ours("permuted", params, sizes.block_size, sizes.max_iter)
        yield "tuning: kernelgrad, permuted", {"change": change} | candidate(method)
    for change in [{}, *SORTED_CHANGES]:
        params = replace(CHOSEN_SORTED, **change)
        method = _ours("sorted", params, sizes.sorted_block, sizes.sorted_iter)
        yield "tuning: kernelgrad, sorted", {"change": change} | candidate(method)
    yield from _tune_ridge(part, held)
    for net in NETS:
        yield "tuning: MLP, permuted", candidate(_net("MLP", net, sizes))


def _tune_ridge(part: Molecules, held: Molecules) -> Iterator[tuple[str, Row]]:
    """Measure exact ridge regressions; distances are computed once."""
    energies = Energies(part)
    X, Z = (p.X_sorted.astype(np.float64) for p in (part, held))
    for kernel, factors in RIDGE_FACTORS.items():
        distances = manhattan_distances if kernel == "laplacian" else euclidean_distances
        power = 1 if kernel == "laplacian" else 2
        D, E = (distances(A, X) ** power for A in (X, Z))
        for factor in factors:
            gamma = _gamma(X, kernel, factor)
            K, L = np.exp(-gamma * D), np.exp(-gamma * E)
            for alpha in RIDGE_ALPHAS:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # singular: a candidate that may lose
                    model = KernelRidge(kernel="precomputed", alpha=alpha).fit(K, energies.y)
                mae, rmse = energies.errors(model.predict(L), held)
                params = asdict(Ridge(kernel, factor, alpha))
                yield "tuning: exact KRR, sorted", params | {"MAE": mae, "RMSE": rmse}


class Qm7Energies(Objective):
    """MAE and RMSE (kcal/mol) on QM7 of kernelgrad, a neural network and exact ridge.

    As in Section 7.5 of the DSG paper, a training molecule gives 40 randomly sorted Coulomb
    matrices and a test molecule 20, whose predictions are averaged. The paper has 2^20
    features and batches of 50,000; this runs in minutes on two cores.
    """

    name: ClassVar[str] = "qm7"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the steps of the fit, and the choice of hyper-parameters."""
        parser.add_argument("--max-iter", type=int, default=None, help="kernelgrad's steps")
        parser.add_argument(
            "--tune", action="store_true", help="choose hyper-parameters instead"
        )

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take all methods in turn in every repeat; or tune."""
        train, test = Qm7().molecules()
        sizes = TUNING if args.tune else Sizes()
        if args.quick:
            sizes = QUICK
        if args.max_iter is not None:
            sizes = replace(sizes, max_iter=args.max_iter)
        train, test = (part.take(slice(sizes.molecules)) for part in (train, test))
        if args.tune:
            yield from tune(train, sizes)
            return
        every = methods(sizes)
        results: dict[str, list[Row]] = {method.name: [] for method in every}
        for seed in range(args.repeat):
            for method in every:
                row = measure(method, train, test, sizes, seed)
                results[method.name].append(row)
        for repeats in results.values():
            yield "energies in kcal/mol", summary(repeats)
