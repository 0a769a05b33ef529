"""Losses: what a prediction costs, its gradient and its curvature."""

from kernelgrad.losses.base import Loss, Task
from kernelgrad.losses.classification import (
    Hinge,
    Logistic,
    ModifiedLogistic,
    Multinomial,
    Perceptron,
    SmoothedHinge,
    SquaredHinge,
    encode_labels,
)
from kernelgrad.losses.registry import ALIASES, LOSSES, get_loss, loss_code, register_loss
from kernelgrad.losses.regression import (
    Absolute,
    EpsilonInsensitive,
    Huber,
    Quantile,
    SquaredError,
)
from kernelgrad.losses.unlabelled import (
    UNLABELLED_LOSSES,
    GaussianBump,
    Ramp,
    SemiSupervised,
    SquaredSymmetricHinge,
    SymmetricHinge,
    UnlabelledLoss,
    get_unlabelled_loss,
)
from kernelgrad.losses.unsupervised import (
    KLDensityRatio,
    KLRatio,
    LeastSquaresDensityRatio,
    OneClass,
    RatioLoss,
    RelativeNovelty,
)

__all__ = [
    "ALIASES",
    "LOSSES",
    "UNLABELLED_LOSSES",
    "Absolute",
    "EpsilonInsensitive",
    "GaussianBump",
    "Hinge",
    "Huber",
    "KLDensityRatio",
    "KLRatio",
    "LeastSquaresDensityRatio",
    "Logistic",
    "Loss",
    "ModifiedLogistic",
    "Multinomial",
    "OneClass",
    "Perceptron",
    "Quantile",
    "Ramp",
    "RatioLoss",
    "RelativeNovelty",
    "SemiSupervised",
    "SmoothedHinge",
    "SquaredError",
    "SquaredHinge",
    "SquaredSymmetricHinge",
    "SymmetricHinge",
    "Task",
    "UnlabelledLoss",
    "encode_labels",
    "get_loss",
    "get_unlabelled_loss",
    "loss_code",
    "register_loss",
]
