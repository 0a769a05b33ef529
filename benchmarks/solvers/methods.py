"""The estimators of ``time_to_error``: ours, exact machines, linear models, boosted trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC, SVR, LinearSVC

from benchmarks.solvers.nystroem import NormalEquations
from kernelgrad import KernelClassifier, KernelRegressor, get_num_threads
from kernelgrad.losses import EpsilonInsensitive
from kernelgrad.solvers import BlockDescent

CACHE_MB = 2000
FEW_ROWS = {"flights13": 40_000}  # of exact machines: their time grows with the square
Params = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What an estimator is built for; sizes are chosen by the run, the same for all."""

    classify: bool
    params: Params
    gamma: float
    seed: int
    max_iter: int
    n_components: int
    rows: int


@dataclass(frozen=True)
class Method:
    """An estimator with the family whose hyper-parameters it shares.

    The installed method of highest `rank` tunes for its family. The weight of the penalty is
    always given as C, ``sum_i loss_i + |f|^2 / (2 C)`` as in scikit-learn's SVC: it is a prior
    of the function, so that the best one of 8,000 rows is near that of all n rows, whereas
    ``alpha = 1 / (C n)`` is not.
    """

    family: str
    build: Callable[[Setting], Any]
    rank: int = 0
    module: str | None = None  # that must be installed
    curve: bool = False  # fit with growing numbers of iterations
    default: bool = True  # part of a run without --method
    regression: bool = True
    exact: bool = False  # its time grows with the square of the rows

    def missing(self) -> str | None:
        """Return why the method cannot run here, or None."""
        if self.module is None or find_spec(self.module) is not None:
            return None
        return f"{self.module} is not installed"

    def row_limit(self, dataset: str) -> int | None:
        """Return the training rows that the method can bear, or None."""
        return FEW_ROWS.get(dataset) if self.exact else None

    def grid(self, classify: bool, factors: list[float]) -> list[Params]:
        """Return the candidates of the family, none for a task that the method lacks."""
        if not (classify or self.regression):
            return []
        if self.family in ("kernelgrad (defaults)", "kernelgrad (auto)"):
            return [{}]
        axes: dict[str, Any] = {"bandwidth_factor": factors, "C": (1.0, 10.0, 100.0)}
        if self.family == "gradient boosting":
            sizes = ((31, 200), (31, 500), (127, 200))
            return [
                {"learning_rate": rate, "max_leaf_nodes": leaves, "max_iter": trees}
                for rate in (0.05, 0.1, 0.2)
                for leaves, trees in sizes
            ]
        if self.family == "kernelgrad":
            axes["loss"] = ("log_loss", "hinge", "squared_hinge") if classify else ("squared",)
        if self.family == "support vectors" and not classify:
            axes["epsilon"] = (0.1, 0.01)
        return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def block_descent(solver: Callable[[], Any]) -> Callable[[Setting], Any]:
    """Return what builds our estimator with a given solver."""

    def build(s: Setting) -> Any:
        cls = KernelClassifier if s.classify else KernelRegressor
        return cls(
            loss=s.params["loss"], gamma=s.gamma, C=s.params["C"], solver=solver(),
            max_iter=s.max_iter, random_state=s.seed,
        )  # fmt: skip

    return build


def support_vectors(s: Setting) -> Any:
    """Return SVC's and SVR's model by our exact solver; classes in pairs, as SVC has them."""
    given: Params = {"gamma": s.gamma, "C": s.params["C"], "random_state": s.seed}
    if s.classify:  # without probabilities, as SVC's default
        return KernelClassifier("hinge", multi_class="ovo", probability=False, **given)
    return KernelRegressor(EpsilonInsensitive(s.params["epsilon"]), **given)


def defaults(**given: Any) -> Callable[[Setting], Any]:
    """Return what builds our estimator with nothing but what is given here."""

    def build(s: Setting) -> Any:
        cls = KernelClassifier if s.classify else KernelRegressor
        return cls(random_state=s.seed, **given)

    return build


def libsvm(s: Setting, svc: Any = SVC, svr: Any = SVR) -> Any:
    given = {"gamma": s.gamma, "C": s.params["C"], "cache_size": CACHE_MB}
    return svc(**given) if s.classify else svr(epsilon=s.params["epsilon"], **given)


def intelex(s: Setting) -> Any:
    """Return the machine of scikit-learn-intelex on as many threads as kernelgrad has."""
    import_module("daal4py").daalinit(get_num_threads())
    module = import_module("sklearnex.svm")
    return libsvm(s, module.SVC, module.SVR)


def normal_equations(centres: int) -> Callable[[Setting], Any]:
    """Return what builds normal equations with so many centres."""
    return lambda s: NormalEquations(
        s.gamma, s.params["C"], min(centres, s.n_components), s.seed, classify=s.classify
    )


def on_nystroem(centres: int, hinge: bool = False) -> Callable[[Setting], Any]:
    """Return what builds a linear model on Nystroem features."""

    def build(s: Setting) -> Any:
        C, m = s.params["C"], min(centres, s.n_components)
        if hinge:
            model: Any = LinearSVC(C=C, dual=False, random_state=s.seed)
        else:
            model = LogisticRegression(C=C, max_iter=500) if s.classify else Ridge(alpha=1 / C)
        features = Nystroem(gamma=s.gamma, n_components=m, random_state=s.seed)
        return make_pipeline(features, model)

    return build


def random_features(s: Setting) -> Any:
    """Return SGD on random features; their rows have norm 1, which bears large steps."""
    m = min(2000, s.n_components)
    features = RBFSampler(gamma=s.gamma, n_components=m, random_state=s.seed)
    given: Params = {"alpha": 1 / (s.params["C"] * s.rows), "random_state": s.seed}
    if s.classify:
        return make_pipeline(features, SGDClassifier(n_jobs=get_num_threads(), **given))
    return make_pipeline(features, SGDRegressor(learning_rate="adaptive", eta0=0.1, **given))


def boosting(s: Setting) -> Any:
    """Return boosted trees on dense rows, without early stopping."""
    cls = HistGradientBoostingClassifier if s.classify else HistGradientBoostingRegressor
    trees = min(s.params["max_iter"], s.n_components)
    model = cls(early_stopping=False, random_state=s.seed, **s.params | {"max_iter": trees})
    return make_pipeline(FunctionTransformer(dense, accept_sparse=True), model)


def dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else np.asarray(X)


FEATURES, MACHINE = "normal equations", "support vectors"
METHODS = {
    "kernelgrad": Method("kernelgrad", block_descent(BlockDescent), curve=True),
    "kernelgrad (dsg)": Method(
        "kernelgrad", block_descent(lambda: "dsg"), curve=True, default=False
    ),
    "kernelgrad (support vectors)": Method(MACHINE, support_vectors, rank=-1, exact=True),
    "kernelgrad (defaults)": Method("kernelgrad (defaults)", defaults()),
    "kernelgrad (auto)": Method("kernelgrad (auto)", defaults(alpha="auto", gamma="auto")),
    "SVC/SVR (LIBSVM)": Method(MACHINE, libsvm, exact=True),
    "SVC/SVR (intelex)": Method(MACHINE, intelex, rank=1, module="sklearnex", exact=True),
    "normal equations (2000)": Method(FEATURES, normal_equations(2000), rank=1),
    "normal equations (4000)": Method(FEATURES, normal_equations(4000)),
    "normal equations (8000)": Method(FEATURES, normal_equations(8000)),
    "Nystroem(1000)+LR/Ridge": Method(FEATURES, on_nystroem(1000)),
    "Nystroem(3000)+LR/Ridge": Method(FEATURES, on_nystroem(3000)),
    "Nystroem(1000)+LinearSVC": Method(MACHINE, on_nystroem(1000, hinge=True),
                                       rank=-1, regression=False),
    "Nystroem(3000)+LinearSVC": Method(MACHINE, on_nystroem(3000, hinge=True),
                                       rank=-1, regression=False),
    "RBFSampler(2000)+SGD": Method("RBFSampler+SGD", random_features),
    "gradient boosting": Method("gradient boosting", boosting),
}  # fmt: skip
