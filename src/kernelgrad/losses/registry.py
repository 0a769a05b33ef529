"""Losses by name."""

from typing import TypeVar, get_args

from kernelgrad.losses import classification, regression, unsupervised
from kernelgrad.losses.base import Loss, Task
from kernelgrad.registry import Registry
from kernelgrad.validation import check_int, check_name

LossClass = TypeVar("LossClass", bound=type[Loss])

LOSSES: Registry[Loss] = Registry({})
ALIASES: dict[str, str] = {
    "squared_error": "squared", "mse": "squared",
    "absolute_error": "absolute", "mae": "absolute", "pinball": "quantile",
}  # fmt: skip


def register_loss(cls: LossClass) -> LossClass:
    """Register a loss class under its ``name``; usable as a decorator."""
    if cls.name in LOSSES or cls.name in ALIASES:
        raise ValueError(f"loss name {cls.name!r} is taken; choose another.")
    LOSSES.register(cls)
    return cls


for _loss in (
    regression.SquaredError, regression.LogSquaredError, regression.Huber,
    regression.EpsilonInsensitive,
    regression.Absolute, regression.Quantile, regression.Poisson, regression.Gamma,
    regression.Tweedie,
    classification.Hinge, classification.SmoothedHinge, classification.SquaredHinge,
    classification.Logistic, classification.ModifiedLogistic, classification.Perceptron,
    classification.Multinomial, unsupervised.OneClass, unsupervised.KLDensityRatio,
    unsupervised.LeastSquaresDensityRatio, unsupervised.KLRatio, unsupervised.RelativeNovelty,
):  # fmt: skip
    register_loss(_loss)


def get_loss(spec: str | Loss, *, task: Task, n_classes: int | None = None) -> Loss:
    """Return the loss given by a name or an object, after checking that it suits the task.

    Parameters
    ----------
    spec : str or Loss
        A registered name, an alias ("squared_error", "mse", "absolute_error", "mae",
        "pinball"), or a loss object, which is returned unchanged.
    task : {"classification", "regression", "novelty", "density_ratio"}
        The task that the loss must support.
    n_classes : int or None, default=None
        Number of classes. "log_loss" needs it: it means `Logistic` for two classes and
        `Multinomial` for more. A `Multinomial` loss needs at least three.

    Raises
    ------
    ValueError, TypeError
        The name is unknown, the loss does not suit the task or the number of classes, or a
        hyper-parameter is out of range.
    """
    if isinstance(spec, Loss):
        loss = spec
    elif isinstance(spec, str):
        name = ALIASES.get(spec, spec)
        if name not in LOSSES:
            names = {own: own for own in LOSSES} | ALIASES
            check_name(spec, (k for k, of in names.items() if task in LOSSES[of].tasks), "loss")
        if name == classification.Multinomial.name and task == "classification":
            if n_classes is None:
                raise ValueError(f"loss {spec!r} depends on the classes; give n_classes.")
            check_int(n_classes, "n_classes", low=2)
        loss = LOSSES[name]()
    else:
        raise TypeError(f"loss must be a name or an instance of Loss, got {spec!r}.")
    if task not in loss.tasks:
        check_name(task, get_args(Task), "task")
        fitting = ", ".join(sorted(name for name, cls in LOSSES.items() if task in cls.tasks))
        raise ValueError(f"loss {loss.name!r} is not for {task}; choose one of: {fitting}.")
    if loss.is_multinomial and n_classes == 2:  # two classes have one output
        if type(loss) is not classification.Multinomial:
            raise ValueError(
                f"{loss!r} has one output per class; for two classes give a loss of the "
                "margin such as 'logistic'."
            )
        loss = classification.Logistic()
    loss.check()
    return loss
