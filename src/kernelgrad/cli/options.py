"""Options of ``fit`` that are declared parameters of the estimators."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

F = TypeVar("F", bound=Callable[..., Any])

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
    "loss": "Such as squared, log_loss, or with parameters huber:delta=2.",
    "kernel": "Such as rbf, laplacian, or with parameters matern:nu=1.5 (of scaled columns).",
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
    "effort": "",
    "memory_limit": "",
    "time_limit": "",
    "random_state": "",
}
_FLAGS = {"C": ("-C", "--cost"), "random_state": ("--seed",)}


def options(**helps: str) -> Callable[[F], F]:
    """Decorate a command: typer sees its options with their help; a bool is a flag."""

    def option(p: inspect.Parameter) -> inspect.Parameter:
        if p.name not in helps:
            return p
        flags = [f"--{p.name.replace('_', '-')}"] if p.annotation is bool else []
        default = ... if p.default is p.empty else p.default
        return p.replace(default=typer.Option(default, *flags, help=helps[p.name]))

    def decorate(command: F) -> F:
        own = inspect.signature(command, eval_str=True).parameters.values()
        _set(command, [option(p) for p in own if p.kind is not p.VAR_KEYWORD])
        return command

    return decorate


def set_options(command: Callable[..., Any], added: list[inspect.Parameter]) -> None:
    """Let typer see these options of a command, after its task, for its ``**parameters``."""
    own = [
        p for p in inspect.signature(command).parameters.values() if p.name not in PARAMETERS
    ]
    start = [p.name for p in own].index("task") + 1
    _set(command, [*own[:start], *added, *own[start:]])


def _set(command: Any, parameters: list[inspect.Parameter]) -> None:
    keyword = inspect.Parameter.KEYWORD_ONLY  # defaults in any order
    command.__signature__ = inspect.Signature([p.replace(kind=keyword) for p in parameters])


def parameter_options() -> list[inspect.Parameter]:
    """Return the options as arguments of a function, as typer reads them."""
    from kernelgrad import KernelClassifier
    from kernelgrad.docstrings import parameter_texts

    texts = parameter_texts(inspect.getdoc(KernelClassifier) or "")
    added = []
    for name, text in PARAMETERS.items():
        field = KernelClassifier.__dataclass_fields__[name]
        is_flag = str(field.type).startswith("bool")
        text = text or _help(texts.get(name, name), is_flag, field.default)
        metavar = None if is_flag else "<value>"
        if field.default is not None:
            text += f" [default: {'no' if field.default is False else field.default}]"
        option = typer.Option(None, *_FLAGS.get(name, ()), help=text, metavar=metavar)
        keyword, kind = inspect.Parameter.KEYWORD_ONLY, bool if is_flag else str
        added.append(inspect.Parameter(name, keyword, default=option, annotation=kind | None))
    return added


def _help(entry: str, is_flag: bool, default: Any) -> str:
    """Return the first sentence of an entry of a docstring, and which values it allows."""
    head, _, body = entry.partition("\n")
    flat = re.sub(r"\s*\([^()]*\)", "", " ".join(body.split()))
    sentence = re.split(r"[.:;](?:\s|$)", flat)[0]
    kinds = re.split(r", (?![^(]*\))| or ", head.partition(" : ")[2].split(", default=")[0])
    words = [kind for kind in kinds if re.match('float|int|[{"]', kind)]
    words += ["none"] * ("None" in kinds and default is not None)
    if words and not is_flag:
        sentence += ": " + " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return re.sub('[`"{}]', "", f"{sentence}.")


def parsed(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the values of options that are set: parts with their parameters as objects."""
    result = {name: parse(text) for name, text in parameters.items() if text is not None}
    for name in {"loss", "kernel", "solver"} & result.keys():
        part, _, settings = str(result[name]).partition(":")
        if settings:
            result[name] = _part_with(name, part, settings)
            if name == "kernel":  # the columns would stay as they are
                result.setdefault("standardize", True)
    return result


def _part_with(kind: str, name: str, settings: str) -> Any:
    """Return a loss, kernel or solver whose parameters are texts such as "delta=2,nu=1"."""
    from kernelgrad.kernels import KERNELS
    from kernelgrad.losses import LOSSES
    from kernelgrad.solvers import SOLVERS
    from kernelgrad.validation import check_name

    registry: Any = {"loss": LOSSES, "kernel": KERNELS, "solver": SOLVERS}[kind]
    pairs = [each.partition("=") for each in settings.split(",")]
    with usage_errors():
        part = registry[check_name(name, registry, kind)]
        part = part(**{key: parse(value) for key, _, value in pairs})
        part.check()
        return part


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn errors of values into those of a wrong command line."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None


def parse(text: str | bool) -> Any:
    """Return the value of an option: a bool, a number, None for "none", or the text itself."""
    if isinstance(text, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(text)
    return None if text == "none" else text
