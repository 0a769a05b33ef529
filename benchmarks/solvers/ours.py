"""kernelgrad: cached-response block descent, tuned, and its defaults, untouched."""

from __future__ import annotations

from typing import Any, ClassVar

from benchmarks.registry import Budget, Dataset
from benchmarks.solvers._base import Method, Params, grid, is_classification
from benchmarks.solvers.peers import SupportVectors
from kernelgrad import KernelClassifier, KernelRegressor
from kernelgrad.losses import EpsilonInsensitive
from kernelgrad.solvers import CachedBlockDescent


class KernelGrad(Method):
    name: ClassVar[str] = "kernelgrad"
    family = "kernelgrad"
    curve = True

    def grid(self, dataset: Dataset, factors: list[float]) -> list[Params]:
        """Return bandwidth factors times C, with three losses for classes."""
        if is_classification(dataset):
            losses = ("log_loss", "hinge", "squared_hinge")
            return grid(factors, (1.0, 10.0, 100.0), loss=losses)
        return grid(factors, (1.0, 10.0, 100.0), loss=("squared",))

    def build(
        self, dataset: Dataset, params: Params, gamma: float, budget: Budget, seed: int
    ) -> Any:
        """Return the estimator with a solver that keeps all responses."""
        cls = KernelClassifier if is_classification(dataset) else KernelRegressor
        return cls(
            loss=params["loss"],
            gamma=gamma,
            C=params["C"],
            solver=self.solver(),
            max_iter=budget.max_iter,
            random_state=seed,
        )

    def solver(self) -> Any:
        """Return block descent, which is early, on blocks of training rows."""
        return CachedBlockDescent()


class KernelGradFeatures(KernelGrad):
    name: ClassVar[str] = "kernelgrad (features)"
    default = False

    def solver(self) -> Any:
        """Return blocks of random features."""
        return CachedBlockDescent(blocks="features")


class KernelGradStreaming(KernelGrad):
    name: ClassVar[str] = "kernelgrad (dsg)"
    default = False

    def solver(self) -> Any:
        """Return the solver for rows that do not fit in memory."""
        return "dsg"


class KernelGradMachine(SupportVectors):
    """SVC's and SVR's model at their settings, by the exact solver."""

    name: ClassVar[str] = "kernelgrad (support vectors)"
    rank = -1  # the settings are those that the peers chose

    def build(
        self, dataset: Dataset, params: Params, gamma: float, budget: Budget, seed: int
    ) -> Any:
        """Return the estimator of the task; classes in pairs, as SVC has them."""
        given = {"gamma": gamma, "C": params["C"], "random_state": seed}
        if is_classification(dataset):  # without probabilities, as SVC's default
            return KernelClassifier("hinge", multi_class="ovo", probability=False, **given)
        return KernelRegressor(EpsilonInsensitive(params["epsilon"]), **given)


class KernelGradDefaults(Method):
    """The estimator as its users get it without a word."""

    name: ClassVar[str] = "kernelgrad (defaults)"
    family: ClassVar[str] = "kernelgrad (defaults)"
    given: ClassVar[Params] = {}

    def grid(self, dataset: Dataset, factors: list[float]) -> list[Params]:
        """Return the one candidate: nothing is tuned outside a fit."""
        return [{}]

    def build(
        self, dataset: Dataset, params: Params, gamma: float, budget: Budget, seed: int
    ) -> Any:
        """Return the estimator with nothing but what the class gives it."""
        cls = KernelClassifier if is_classification(dataset) else KernelRegressor
        return cls(random_state=seed, **self.given)


class KernelGradAuto(KernelGradDefaults):
    """It chooses bandwidth and penalty on rows it holds out, in the time of the fit."""

    name: ClassVar[str] = "kernelgrad (auto)"
    family = "kernelgrad (auto)"
    given: ClassVar[Params] = {"alpha": "auto", "gamma": "auto"}
