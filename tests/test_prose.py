"""Names, sentences and lengths in the sources are those of a text to be read."""

import ast
import io
import re
import tokenize
from pathlib import Path

from cases import every

SOURCE = Path(__file__).parents[1] / "src" / "kernelgrad"
VAGUE = re.compile(r"_*(found|some|told|kept|given|place|known|said|held|made|apart)_*")
FRAGMENT = re.compile(r"(of|whose|as|where|that)\b", re.I)
PUBLIC, PRIVATE, DOCSTRING = 60, 80, 120  # lines of code of functions, lines of docstrings


def names_of(node):
    """Return the names that a node gives to values."""
    if isinstance(node, ast.arg):
        return [node.arg]
    stores = isinstance(getattr(node, "ctx", None), ast.Store)
    return [getattr(node, name) for name in ("id", "attr") if stores and hasattr(node, name)]


def code_lines(node, lines):
    body = node.body[ast.get_docstring(node) is not None :]
    code = lines[body[0].lineno - 1 : node.end_lineno] if body else []
    return sum(not re.match(r"\s*(#|$)", line) for line in code)


def comments(text):
    """Yield line and text of each comment; lines below one another are one comment."""
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, alone = token.start[0], not token.line[: token.start[1]].strip()
            if not (alone and line == last + 1):
                yield line, token.string.lstrip("#: ")
            last = line if alone else -1


def violations(text):
    """Yield line and description of each violation in a module."""
    for line, comment in comments(text):
        if FRAGMENT.match(comment):
            yield line, f"comment {comment[:40]!r}"
    source = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        line, lines, most = getattr(node, "lineno", 1), 0, 0
        yield from ((line, f"name {it}") for it in names_of(node) if VAGUE.fullmatch(it))
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            continue
        prose = ast.get_docstring(node) or ""
        if FRAGMENT.match(prose):
            yield line, f"docstring {prose[:40]!r}"
        if isinstance(node, ast.FunctionDef):
            most = PRIVATE if node.name.startswith("_") else PUBLIC
            lines = code_lines(node, source)
        elif isinstance(node, ast.ClassDef):
            lines, most = len(prose.splitlines()), DOCSTRING
        if lines > most:
            yield line, f"{node.name}: {lines} lines, at most {most}"


def test_sources_keep_the_rules():
    breaches = []
    for path in sorted(SOURCE.rglob("*.py")):
        for line, what in violations(path.read_text(encoding="utf-8")):
            breaches.append(f"{path}:{line}: {what}")
        if re.match(r"_(?!_)", path.name):
            breaches.append(f"{path}:1: a module begins with an underscore")
    assert not breaches, "\n".join(["", *breaches])


LONG = "():\n" + " 0\n" * 81


@every(
    "text", ["told = 1", "x._kept = y", "# of this", "'Where'", "def f" + LONG, "def _f" + LONG]
)
def test_each_rule_is_checked(text):
    assert len(list(violations(text))) == 1
