"""Linear functions with L1 and L2 penalties: rows and a loss come in, coefficients go out."""

from kernelgrad.linear.base import LinearProblem, LinearSolver
from kernelgrad.linear.competitors import COMPETITORS, competitor
from kernelgrad.linear.estimators import LinearClassifier, LinearRegressor
from kernelgrad.linear.rbcd import RBCD
from kernelgrad.linear.sdca import LinearSDCA
from kernelgrad.linear.stochastic import SGD, SVRG
from kernelgrad.linear.transformer import RandomFeatures

__all__ = [
    "COMPETITORS", "RBCD", "SGD", "SVRG", "LinearClassifier", "LinearProblem",
    "LinearRegressor", "LinearSDCA", "LinearSolver", "RandomFeatures", "competitor",
]  # fmt: skip
