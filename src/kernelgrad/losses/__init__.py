"""Losses: targets and responses come in, values, slopes and curvatures go out."""

from typing import TYPE_CHECKING

from kernelgrad.losses.base import Loss as Loss
from kernelgrad.losses.base import Task as Task
from kernelgrad.losses.classification import Hinge as Hinge
from kernelgrad.losses.classification import Logistic as Logistic
from kernelgrad.losses.classification import ModifiedLogistic as ModifiedLogistic
from kernelgrad.losses.classification import Multinomial as Multinomial
from kernelgrad.losses.classification import Perceptron as Perceptron
from kernelgrad.losses.classification import SmoothedHinge as SmoothedHinge
from kernelgrad.losses.classification import SquaredHinge as SquaredHinge
from kernelgrad.losses.classification import encode_labels as encode_labels
from kernelgrad.losses.registry import ALIASES as ALIASES
from kernelgrad.losses.registry import LOSSES as LOSSES
from kernelgrad.losses.registry import get_loss as get_loss
from kernelgrad.losses.registry import register_loss as register_loss
from kernelgrad.losses.regression import Absolute as Absolute
from kernelgrad.losses.regression import EpsilonInsensitive as EpsilonInsensitive
from kernelgrad.losses.regression import Gamma as Gamma
from kernelgrad.losses.regression import Huber as Huber
from kernelgrad.losses.regression import LogSquaredError as LogSquaredError
from kernelgrad.losses.regression import Poisson as Poisson
from kernelgrad.losses.regression import Quantile as Quantile
from kernelgrad.losses.regression import SquaredError as SquaredError
from kernelgrad.losses.regression import Tweedie as Tweedie
from kernelgrad.losses.unlabelled import UNLABELLED_LOSSES as UNLABELLED_LOSSES
from kernelgrad.losses.unlabelled import GaussianBump as GaussianBump
from kernelgrad.losses.unlabelled import Ramp as Ramp
from kernelgrad.losses.unlabelled import SemiSupervised as SemiSupervised
from kernelgrad.losses.unlabelled import SquaredSymmetricHinge as SquaredSymmetricHinge
from kernelgrad.losses.unlabelled import SymmetricHinge as SymmetricHinge
from kernelgrad.losses.unlabelled import UnlabelledLoss as UnlabelledLoss
from kernelgrad.losses.unlabelled import get_unlabelled_loss as get_unlabelled_loss
from kernelgrad.losses.unsupervised import KLDensityRatio as KLDensityRatio
from kernelgrad.losses.unsupervised import KLRatio as KLRatio
from kernelgrad.losses.unsupervised import LeastSquaresDensityRatio as LeastSquaresDensityRatio
from kernelgrad.losses.unsupervised import OneClass as OneClass
from kernelgrad.losses.unsupervised import RatioLoss as RatioLoss
from kernelgrad.losses.unsupervised import RelativeNovelty as RelativeNovelty
from kernelgrad.registry import lazy_names

if TYPE_CHECKING:
    from kernelgrad.linear.row_losses import loss_code as loss_code

__getattr__, _ = lazy_names(__name__, paths={"loss_code": "linear.row_losses"})
