"""Options of ``fit`` that are declared parameters of the estimators."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

DataFile = Annotated[
    Path,
    typer.Argument(
        help="CSV, Parquet, LIBSVM, .npz or .npy file, folder of these, or quoted pattern; - "
        "reads CSV from the standard input."
    ),
]
ModelFile = Annotated[Path, typer.Argument(help="Model file that kernelgrad wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
# Parameters, each with its help; an empty text takes the help from the declaration.
PARAMETERS = {
    "loss": "Such as squared, log_loss or hinge.",
    "kernel": "Such as rbf, laplacian or matern.",
    "gamma": "",
    "metric": "",
    "bandwidth_factor": "",
    "solver": "",
    "alpha": "",
    "C": "",
    "max_iter": "",
    "early_stopping": "Stop once the score of held-out rows no longer improves.",
    "validation_fraction": "",
    "class_weight": "balanced weighs classes inversely to their frequency.",
    "standardize": "",
    "time_limit": "",
    "random_state": "",
}
_FLAGS = {"C": ("-C", "--cost"), "random_state": ("--seed",)}


def set_options(command: Callable[..., Any], options: list[inspect.Parameter]) -> None:
    """Let typer see these options of a command, after its task, for its ``**parameters``."""
    seen = inspect.signature(command, eval_str=True).parameters.values()
    own = [p for p in seen if p.kind is not p.VAR_KEYWORD and p.name not in PARAMETERS]
    start = [p.name for p in own].index("task") + 1
    signature = inspect.Signature([*own[:start], *options, *own[start:]])
    command.__signature__ = signature  # type: ignore[attr-defined]


def parameter_options() -> list[inspect.Parameter]:
    """Return the options as arguments of a function, as typer reads them."""
    from kernelgrad import KernelClassifier
    from kernelgrad.params import parameter_texts

    texts = parameter_texts(inspect.getdoc(KernelClassifier) or "")
    options = []
    for name, text in PARAMETERS.items():
        field = KernelClassifier.__dataclass_fields__[name]
        is_flag = str(field.type).startswith("bool")
        text = text or _help(texts.get(name, name), is_flag, field.default)
        metavar = None if is_flag else "<value>"
        if field.default is not None:
            text += f" [default: {'no' if field.default is False else field.default}]"
        option = typer.Option(None, *_FLAGS.get(name, ()), help=text, metavar=metavar)
        keyword, kind = inspect.Parameter.POSITIONAL_OR_KEYWORD, bool if is_flag else str
        options.append(inspect.Parameter(name, keyword, default=option, annotation=kind | None))
    return options


def _help(entry: str, is_flag: bool, default: Any) -> str:
    """Return the first sentence of an entry of a docstring, and which values it allows."""
    head, _, body = entry.partition("\n")
    flat = re.sub(r"\s*\([^()]*\)", "", " ".join(body.split()))
    sentence = re.split(r"[.:;](?:\s|$)", flat)[0]
    kinds = re.split(r", (?![^(]*\))| or ", head.partition(" : ")[2].split(", default=")[0])
    words = [kind for kind in kinds if re.match('float|int|"', kind)]
    words += ["none"] * ("None" in kinds and default is not None)
    if words and not is_flag:
        sentence += ": " + " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return re.sub('[`"]', "", f"{sentence}.")


def parse(text: str | bool) -> Any:
    """Return the value of an option: a bool, a number, None for "none", or the text itself."""
    if isinstance(text, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(text)
    return None if text == "none" else text
