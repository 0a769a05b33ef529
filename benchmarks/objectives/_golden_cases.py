"""What `golden` fits: a table of cases, made of public names of kernelgrad alone."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

import kernelgrad as kg
from kernelgrad import kernels, losses, solvers

RELEASED = Path(__file__).parents[2] / "tests" / "data" / "v0.1.0"
FOLDER = tempfile.TemporaryDirectory(prefix="golden-")  # removed when the process ends
RENAMED = {"cached": "block_descent"}  # the new name in trees that have it
PLAIN: dict[str, Any] = {  # nothing is searched
    "kernel": "gaussian", "gamma": "median", "metric": None, "standardize": False,
    "probability": False, "alpha": 1e-3, "max_iter": 5,
}  # fmt: skip
SEARCHED: dict[str, Any] = {"kernel": "auto", "alpha": "auto", "gamma": "auto"}
GROUPS = {
    "exact": ("direct", "newton", "working_set"),
    "block descent": ("cached",),
    "random features": ("dsg", "udsg", "cdsg"),
    "row by row": ("sbp", "sdca", "pegasos", "norma", "perceptron"),
    "linear": ("s3gd", "svrg", "saga", "sgd", "ssgd", "scv", "pegasos", "sdca", "rbcd", "sbmd"),
}  # fmt: skip
LOSSES = {
    "Classifier": {
        "hinge": "label", "smoothed_hinge": "label", "squared_hinge": "label3",
        "logistic": "label", "log_loss": "label3", "modified_logistic": "label",
        "perceptron": "label3", "squared": "label3",
    },
    "Regressor": {
        "squared": "pair", "huber": "signal", "absolute": "signal", "quantile": "signal",
        "epsilon_insensitive": "signal", "poisson": "counts", "gamma": "amounts",
        "log_squared": "amounts", "tweedie": "counts",
    },
}  # fmt: skip
STREAMS = ("dsg", "udsg", "cdsg", "pegasos", "norma", "perceptron", "sgd", "sbmd")
HINGES = {"hinge": ("working_set", "sbp"), "perceptron": ("perceptron",)}
DAI = ("solver", "kernel")  # what a novelty detector takes of the paper
RIVALS = [f"{x}-{name}" for x in "nr" for name in ("pegasos", "rbcd", "sbmd", "sdca")]
SEMI = ["soft_labels", "tsg", "fr_s3vm", "bgs3vm", "cccp_s3vm", "s3vm_light"]
UNLABELLED = ["symmetric_hinge", "squared_symmetric_hinge", "ramp", "gaussian"]
RATIOS = ["kl", "kl_ratio", "least_squares", "relative_novelty"]
KERNELS = (
    "rbf", "laplacian", "cauchy", "matern", "polynomial", "linear", "hellinger", "chi2",
    "intersection", "jensen_shannon", "skewed_chi2", "skewed_intersection", "arc_cosine",
    "exponential_semigroup", "reciprocal_semigroup", "root_laplacian",
)  # fmt: skip


def part(module: Any, name: str, *args: Any, **options: Any) -> Any:
    """Return a kernel, a loss or a solver, made when its case runs."""
    return partial(lambda: getattr(module, name)(*args, **options))


def solver(name: str, **options: Any) -> Any:
    return partial(lambda: solvers.SOLVERS[renamed(name)](**options))


def paper(name: str, only: tuple[str, ...] = (), **symbols: Any) -> Any:
    """Return parameters of an estimator by the symbols of a paper, likewise."""

    def parameters() -> dict[str, Any]:
        found = {**solvers.LINEAR_SOLVERS, **solvers.SOLVERS}[name].paper(**symbols)
        return {k: v for k, v in found.items() if not only or k in only}

    return partial(parameters)


def combined(operator: str) -> Any:
    first, second = kernels.Gaussian(gamma=0.5), kernels.Laplacian(gamma=0.4)
    return first + second if operator == "sum" else first * second


def affine(X: Any, Z: Any) -> Any:
    products = X @ Z.T
    return 1.0 + (products.toarray() if sp.issparse(products) else products)


gaussian, matern = partial(part, kernels, "Gaussian"), partial(part, kernels, "Matern")
OBJECTS: dict[str, Any] = {
    "sum": partial(combined, "sum"), "product": partial(combined, "product"),
    "dot_product": part(kernels, "DotProduct", (1.0, 1.0, 0.5), gamma=0.1),
    "convolutional": part(kernels, "ConvolutionKernel", (3, 3), patch_size=2, gamma=0.5),
    "matern half": matern(0.5), "matern 5 halves": matern(2.5),
    "phase": gaussian(form="phase"),
    "cubic": part(kernels, "Polynomial", degree=3),
    "arc_cosine 2": part(kernels, "ArcCosine", 2), "function": affine,
}  # fmt: skip
COLUMNS = {"convolutional": "image", "matern 5 halves": "wide"}
OPTIONS: dict[str, dict[str, Any]] = {
    "blocks": SEARCHED | {"solver": "cached", "metric": "auto"},
    "dsg": SEARCHED | {"solver": "dsg", "metric": "auto"},
    "diagonal": SEARCHED | {"metric": "diagonal"},
    "early": {"early_stopping": True, "solver": "dsg"},
    "limited features": {"solver": solver("dsg", max_features=64)},
    "monotone": {"monotonic_cst": [0, 1, 0, 0, 0, 0]},
    "no constant": {"fit_intercept": False},
    "scaled laplacian": {"kernel": "laplacian", "standardize": True, "gamma": "scale"},
    "small blocks": {"solver": solver("cached", block_size=40), "max_iter": 10},
}


def renamed(name: Any) -> Any:
    new = RENAMED.get(name) if isinstance(name, str) else None
    return new if new in solvers.SOLVERS else name


def make(cls: str, *args: Any, plain: bool = True, paper: Any = dict, **options: Any) -> Any:
    """Return an estimator; partial objects among its parameters are called."""

    def called(value: Any) -> Any:
        return value() if isinstance(value, partial) else renamed(value)

    known = getattr(kg, cls)().get_params()
    given = {k: v for k, v in (PLAIN if plain else {}).items() if k in known}
    given |= {"random_state": 0} | paper() | {k: called(v) for k, v in options.items()}
    return getattr(kg, cls)(*map(called, args), **given)


def rival(name: str, **options: Any) -> Any:
    return importlib.import_module("kernelgrad.estimators").competitor(name, **options)


@dataclass
class Rows:
    """Arguments of `fit`, and rows to predict."""

    args: tuple[Any, ...]
    new: Any
    options: dict[str, Any] = field(default_factory=dict)


@cache
def rows(spec: str, n: int) -> Rows:
    """Return n rows of "kind target [weighted]", and half as many to predict."""
    kind, target, *more = spec.split()
    if kind == "released":
        with np.load(RELEASED / "predictions.npz") as arrays:
            return Rows((), arrays[target])
    rng, m = np.random.default_rng(0), n + n // 2
    X = rng.random((m, {"wide": 80, "image": 9}.get(kind, 6))) + 0.05
    signal = np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * rng.standard_normal(m)
    label3 = np.digitize(signal, np.quantile(signal, (1 / 3, 2 / 3)))
    label = (signal > np.median(signal)).astype(int)
    y: Any = {
        "signal": signal, "label": label, "label3": label3, "none": None,
        "counts": rng.poisson(np.exp(signal)), "amounts": np.exp(signal),
        "pair": np.column_stack([signal, X[:, 2] - signal]),
        "text": np.array(["low", "mid", "top"])[label3],
        "marked": np.where(np.arange(m) % 5, -1, label),
    }[target]  # fmt: skip
    table: Any = X
    if kind == "csr":
        table = sp.csr_matrix(np.where(rng.random(X.shape) < 0.4, X, 0))
    elif kind == "gram":
        table = np.exp(-((X[:, None] - X[None, :n]) ** 2).sum(axis=2))
    elif kind in ("frame", "csv"):
        table = pd.DataFrame(X, columns=list("abcdef"))
        table["d"] = table["d"].where(rng.random(m) > 0.2)
        table["city"] = np.array(["Bern", "Graz", "Linz", None], object)[rng.integers(0, 4, m)]
        table["size"] = pd.Categorical(np.array(["s", "m", "l"])[label3], ["s", "m", "l"])
    args = (table[:n], *([] if y is None else [y[:n]]))
    if kind in ("parquet", "csv"):
        path = Path(FOLDER.name) / f"{target} {n}.{kind}"
        frame = pd.DataFrame(table[:n]).rename(columns=str).assign(target=y[:n])
        (frame.to_parquet if kind == "parquet" else frame.to_csv)(path, index=False)
        args = (kg.open_source(path, target="target", as_frame=kind == "csv"),)
    options: dict[str, Any] = {}
    if "weighted" in more:
        options["sample_weight"] = rng.integers(1, 4, n).astype(float)
    if "ratio" in more:
        args, options["denominator"] = (X[: n // 2],), X[n // 2 : n] ** 2
    return Rows(args, table[n:], options)


def fit(model: Any, data: Rows) -> Any:
    return model.fit(*data.args, **data.options) if data.args else model


def stream(model: Any, data: Rows) -> Any:
    for index in np.array_split(np.arange(data.args[0].shape[0]), 4):
        model.partial_fit(*(each[index] for each in data.args))
    return model


def again(model: Any, data: Rows) -> Any:
    return fit(model.set_params(warm_start=True), data)


@dataclass
class Case:
    """How to make an estimator, on which rows it is fitted, and how a fit goes on."""

    rows: str
    make: Callable[[], Any]
    fit: Callable[[Any, Rows], Any] = fit
    resume: Callable[[Any, Rows], Any] | None = None


def cases() -> dict[str, Case]:
    """Return all cases by name, "family/what/case"; the process of a family runs it alone."""
    found: dict[str, Case] = {}

    def add(name: str, data: str, *args: Any, **options: Any) -> None:
        if name in found:
            raise ValueError(f"two cases are named {name!r}")
        how = {k: options.pop(k) for k in ("fit", "resume") if k in options}
        found[name] = Case(data, partial(make, *args, **options), **how)

    for group, name in ((group, name) for group, names in GROUPS.items() for name in names):
        kind = "Linear" if group == "linear" else "Kernel"
        for task, targets in LOSSES.items():
            for loss, y in targets.items():
                title = f"{group}/{name}/{task} {loss}"
                add(title, f"dense {y}", kind + task, loss=loss, solver=name)
        loss = next((each for each, names in HINGES.items() if name in names), "squared")
        case = {"cls": f"{kind}Classifier", "loss": loss, "solver": name}
        add(f"{group}/{name}/csr", "csr label weighted", **case)
        add(f"resume/{kind} {name}/fit", "dense label", **case, resume=again)
        if name in STREAMS:
            add(f"stream/{kind} {name}/fit", "dense label", **case, fit=stream, resume=stream)
        for penalty in ("l1", "elasticnet") if kind == "Linear" else ():
            if (name, penalty) != ("sdca", "l1"):
                add(f"{group}/{name}/{penalty}", "csr label", **case, penalty=penalty)

    for name in [*KERNELS, *OBJECTS]:
        X, kernel = COLUMNS.get(name, "dense"), OBJECTS.get(name, name)
        for which in ("direct", "dsg", "cached"):
            case = {"cls": "KernelRegressor", "solver": which, "kernel": kernel}
            add(f"kernels/{which}/{name}", f"{X} signal", **case)
        case = {"cls": "KernelClassifier", "loss": "logistic", "kernel": kernel}
        sparse = "csr" if X == "dense" else X
        add(f"kernels/newton/{name} {sparse}", f"{sparse} label", **case, solver="newton")
        add(f"kernels/searched/{name}", f"{X} label", **case, alpha="auto", gamma="auto")
        case = {"cls": "RandomFeatures", "kernel": kernel, "n_components": 64}
        add(f"features/transform/{name}", f"{X} none", **case)
    for name, loss in (("direct", "squared"), ("working_set", "hinge"), ("cached", "squared")):
        case = {"loss": loss, "kernel": "precomputed", "solver": name}
        add(f"kernels/{name}/precomputed", "gram label", "KernelClassifier", **case)

    semi = "SemiSupervisedKernelClassifier"
    for name in SEMI:
        for loss in ("hinge", "logistic", "squared_hinge"):
            add(f"few labels/{name}/{loss}", "dense marked", semi, loss=loss, solver=name)
        for loss in UNLABELLED:
            case = {"loss": "hinge", "unlabelled_loss": loss, "solver": name}
            add(f"few labels/{name}/{loss}", "dense marked", semi, **case)
        add(f"resume/{semi} {name}/fit", "csr marked", semi, solver=name, resume=again)

    for task, targets in LOSSES.items():
        for loss, y in targets.items():
            case = {"cls": f"Kernel{task}", "loss": loss, "plain": False}
            add(f"defaults/{case['cls']}/{loss}", f"dense {y}", **case)
        y = "label" if task == "Classifier" else "signal"
        for cls in (f"Kernel{task}", f"Linear{task}"):
            add(f"stream/{cls}/auto", f"dense {y}", cls, fit=stream, resume=stream)
            add(f"options/{cls}/weighted", f"dense {y} weighted", cls)
            for X in ("frame", "csr", "parquet", "csv"):
                add(f"defaults/{cls}/{X}", f"{X} {y}", cls, plain=False)
            for X in ("frame", "csr"):
                add(f"onnx/{cls}/{X}", f"{X} {y}", cls)
        for title, options in OPTIONS.items():
            add(f"options/Kernel{task}/{title}", f"dense {y}", f"Kernel{task}", **options)
        for name in ("cached", "dsg"):
            title, data = f"options/Kernel{task}/file {name}", f"parquet {y}"
            add(title, data, f"Kernel{task}", solver=name)
    for title, data, case in (
        ("balanced", "text", {"class_weight": "balanced", "probability": True}),
        ("pairs", "label3", {"loss": "hinge", "multi_class": "ovo"}),
        ("probability", "label3", {"solver": "dsg", "probability": True}),
    ):
        add(f"options/KernelClassifier/{title}", f"dense {data}", "KernelClassifier", **case)
    for title, loss in (
        ("quantiles", part(losses, "Quantile", (0.1, 0.9))),
        ("narrow huber", part(losses, "Huber", delta=0.2)),
        ("wide tube", part(losses, "EpsilonInsensitive", epsilon=0.5)),
    ):
        for name in ("auto", "dsg", "cached"):
            title = f"options/KernelRegressor/{title} {name}"
            add(title, "dense signal", "KernelRegressor", loss=loss, solver=name)

    for cls, data in (
        ("KernelGaussianProcessRegressor", "signal"), ("KernelNoveltyDetector", "none"),
        (semi, "marked"), ("KernelDensityRatio", "none ratio"),
    ):  # fmt: skip
        add(f"defaults/{cls}/dense", f"dense {data}", cls, plain=False)
        if cls != "KernelDensityRatio":  # its default has random features
            add(f"onnx/{cls}/dense", f"dense {data}", cls, max_iter=5)
        for name in ("dsg", "cached", "direct", "working_set") if cls != semi else ():
            add(f"options/{cls}/{name}", f"dense {data}", cls, solver=name, max_iter=10)
    for loss in RATIOS:
        add(f"options/ratio/{loss}", "dense none ratio", "KernelDensityRatio", loss)
    process = {"cls": "KernelGaussianProcessRegressor", "noise_variance": 0.04, "gamma": 2.0}
    add("options/process/given", "dense signal", **process, signal_variance=1.0)
    add("options/process/matern", "frame signal", **process, kernel="matern")

    for name in ("dsg", "udsg", "cdsg"):
        symbols = paper(name, nu=1e-2, batch_size=16, block_size=8)
        for cls, loss, y in (
            ("KernelClassifier", "hinge", "label"), ("KernelClassifier", "log_loss", "label3"),
            ("KernelRegressor", "squared", "signal"),
        ):  # fmt: skip
            case = {"cls": cls, "loss": loss, "paper": symbols, "max_iter": 40}
            add(f"papers/{name}/{loss}", f"dense {y}", **case)
    for name, data, cls, symbols in (
        ("dsg/novelty", "none", "KernelNoveltyDetector", paper("dsg", DAI, nu=0.1)),
        ("tsg/tsg", "marked", semi, paper("tsg", C=100.0, sigma=0.5, eta=10.0)),
        ("tsg/fr_s3vm", "marked", semi, paper("fr_s3vm", C=100.0, sigma=0.5, eta=10.0)),
        ("sbp/separable", "label", "KernelClassifier", paper("sbp", nu=0.0, sigma=0.5)),
        ("sbp/nu", "label", "KernelClassifier", paper("sbp", nu=0.01, sigma=0.5, bias=True)),
        ("s3gd/plain", "label", "LinearClassifier", paper("s3gd", eta=0.1)),
        ("s3gd/balanced", "label", "LinearClassifier", paper("s3gd", eta=0.1, balanced=True)),
    ):
        loss = {"LinearClassifier": ("logistic",), "KernelClassifier": ("hinge",)}.get(cls, ())
        add(f"papers/{name}", f"dense {data}", cls, *loss, paper=symbols)
    for name in RIVALS:
        build = partial(rival, name, gamma=1.0, n_features=32, alpha=1e-3, random_state=0)
        found[f"papers/rivals/{name}"] = Case("dense label", build)
    for path in sorted(RELEASED.rglob("*.kgm")):
        X = "short_X" if path.stem.startswith("short") else "Z"
        title = f"released/{path.parent.name}/{path.stem}"
        found[title] = Case(f"released {X}", partial(kg.load, path))
    return found
