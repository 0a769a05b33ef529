"""Docstrings: entries that are "As in" another class are copied from it."""

import inspect
import re
import sys
from typing import Any

Entry = tuple[list[str], str]  # names, and all lines of the entry
_AS_IN = re.compile(r"\n    As in :class:`~?(?:\w+\.)*(\w+)`\.$")
DECLARED: dict[str, type] = {}  # all classes with parameters


def entries(doc: str | None, section: str = "Parameters") -> tuple[str, list[Entry]]:
    """Return the text of a section of a docstring, and its entries."""
    match = re.search(rf"{section}\n-+\n(.+?)(?=\n\n\S|\Z)", inspect.cleandoc(doc or ""), re.S)
    text = match[1] if match else ""
    parts = re.split(r"(?<!,)\n(?=\S)", text) if text else []
    return text, [(re.split(r",\s+", re.split(" : |\n    ", p)[0]), p) for p in parts]


def parameter_texts(doc: str) -> dict[str, str]:
    """Return the entries of the section on parameters of a docstring, by name."""
    return {name: text for names, text in entries(doc)[1] for name in names}


def whole(cls: type) -> str:
    """Return the docstring of a class with the entries "As in" others, and its own defaults."""
    doc, near = inspect.cleandoc(cls.__doc__ or ""), vars(sys.modules[cls.__module__])
    for section in ("Parameters", "Attributes"):
        text, parts = entries(doc, section)
        result: list[str] = []
        for names, part in parts:
            match = _AS_IN.search(part)
            other = (near | DECLARED).get(match[1]) if match else None
            if match is None or other is None:
                result.append(part)
                continue
            head = part[: match.start()]
            for own, lines in entries(whole(other), section)[1]:
                if shared := [name for name in own if name in names]:
                    first, _, rest = lines.partition("\n    ")
                    kind = (head if " : " in head else first).partition(" : ")
                    of_type = "".join((", ".join(shared), *kind[1:]))
                    result.append(f"{_with_default(cls, shared[0], of_type)}\n    {rest}")
        doc = doc.replace(text, "\n".join(result), 1) if text else doc
    return doc


def _with_default(cls: Any, name: str, head: str) -> str:
    field = getattr(cls, "__dataclass_fields__", {}).get(name)
    if field is None:
        return head
    value = f'"{field.default}"' if isinstance(field.default, str) else repr(field.default)
    return re.sub("default=.*", lambda _: f"default={value}", head)
