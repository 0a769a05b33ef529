"""Changes of bytes and of text that readers are known to stumble over."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

import numpy as np

_INTEGERS = (0, 1, -1, 2, 7, 127, 128, 255, 2**15 - 1, 2**16, 2**31 - 1, -(2**31), 2**32 - 1)
_LARGE = (2**53, 2**62, 2**63 - 1, -(2**63), 10**12)
NUMBERS = (
    "0", "-0", "-1", "1", "1e400", "-1e400", "1e-400", "1e39", "1e308", "nan", "inf", "-inf",
    "2147483647", "2147483648", "4294967295", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "500000000", "1_000", "0x10", "1.5.2", "1e", "٣", "+1", " 1 ", "",
)  # fmt: skip
TOKENS = (
    *NUMBERS, "\n", "\r", "\r\n", "\0", '"', '""', "'", ",", ";", "\t", ":", "#", "\ufeff",
    "true", "False", "None", "null", "NA", "2020-01-01", "2020-13-45T99:00:00Z", "é", "𝕏",
    "qid:1", "-1:1", "1:", ":1", "1:1:1", "{", "[", "]]", "\\", "\u2028", "a" * 5000,
)  # fmt: skip


def mutate_bytes(data: bytes, rng: np.random.Generator, others: Sequence[bytes] = ()) -> bytes:
    """Return some bytes after one to four changes; `others` are joined with them at times."""
    for _ in range(int(rng.integers(1, 5))):
        change = _BYTES[int(rng.integers(len(_BYTES)))]
        if change is _splice:
            data = _splice(data, rng, others[int(rng.integers(len(others)))] if others else b"")
        else:
            data = change(data, rng)
    return data


def mutate_text(data: bytes, rng: np.random.Generator, others: Sequence[bytes] = ()) -> bytes:
    """Return text after one to four changes of its lines, fields and numbers."""
    for _ in range(int(rng.integers(1, 5))):
        data = _TEXT[int(rng.integers(len(_TEXT)))](data, rng)
    return mutate_bytes(data, rng, others) if rng.random() < 0.3 else data


def pick(items: Sequence[str], rng: np.random.Generator) -> str:
    return items[int(rng.integers(len(items)))]


def some_integer(rng: np.random.Generator) -> int:
    """Return an integer at which something ends, or one beside it."""
    known = (*_INTEGERS, *_LARGE)
    return known[int(rng.integers(len(known)))] + int(rng.integers(-1, 2))


def _span(data: bytes, rng: np.random.Generator) -> tuple[int, int]:
    """Return a range, short ones more often."""
    start = int(rng.integers(len(data) + 1))
    length = int(2 ** rng.uniform(0, np.log2(len(data) + 2)))
    return start, min(len(data), start + length)


def _flip(data: bytes, rng: np.random.Generator) -> bytes:
    if not data:
        return data
    found = bytearray(data)
    for at in rng.integers(len(data), size=int(rng.integers(1, 4))):
        found[at] ^= 1 << int(rng.integers(8))
    return bytes(found)


def _set_byte(data: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(data) + 1))
    return data[:at] + rng.bytes(1) + data[at + 1 :]


def _set_integer(data: bytes, rng: np.random.Generator) -> bytes:
    code = pick("bhiqBHIQ", rng)
    width = struct.calcsize(code)
    raw = (some_integer(rng) % 256**width).to_bytes(
        width, "little" if rng.random() < 0.8 else "big"
    )
    at = int(rng.integers(len(data) + 1))
    return data[:at] + raw + data[at + width :]


def _delete(data: bytes, rng: np.random.Generator) -> bytes:
    a, b = _span(data, rng)
    return data[:a] + data[b:]


def _repeat(data: bytes, rng: np.random.Generator) -> bytes:
    a, b = _span(data, rng)
    return data[:b] + data[a:b] * int(rng.integers(1, 4)) + data[b:]


def _insert(data: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(data) + 1))
    return data[:at] + rng.bytes(int(rng.integers(1, 17))) + data[at:]


def _truncate(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: int(rng.integers(len(data) + 1))]


def _move(data: bytes, rng: np.random.Generator) -> bytes:
    a, b = _span(data, rng)
    at = int(rng.integers(len(data) + 1))
    return data[:at] + data[a:b] + data[at + b - a :]


def _splice(data: bytes, rng: np.random.Generator, other: bytes = b"") -> bytes:
    a, b = _span(other, rng)
    at = int(rng.integers(len(data) + 1))
    return data[:at] + other[a:b] + data[at + int(rng.integers(2)) * (b - a) :]


def _token(data: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(data) + 1))
    return data[:at] + pick(TOKENS, rng).encode() + data[at:]


def _number(data: bytes, rng: np.random.Generator) -> bytes:
    return _replaced(data, rng, rb"[-+.\w]+", NUMBERS)


def _field(data: bytes, rng: np.random.Generator) -> bytes:
    return _replaced(data, rng, rb"[^,;\t \n]+|,|\n", TOKENS)


def _replaced(data: bytes, rng: np.random.Generator, what: bytes, by: Sequence[str]) -> bytes:
    found = list(re.finditer(what, data))
    if not found:
        return data
    a, b = found[int(rng.integers(len(found)))].span()
    return data[:a] + pick(by, rng).encode() + data[b:]


def _lines(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.split(b"\n")
    i, j = rng.integers(len(lines), size=2)
    how = int(rng.integers(4))
    if how == 0:
        del lines[i]
    elif how == 1:
        lines[i], lines[j] = lines[j], lines[i]
    elif how == 2:
        lines[i:i] = [lines[j]] * int(rng.integers(1, 5))
    else:
        lines[i] += lines[j]
    return b"\n".join(lines)


def _newlines(data: bytes, rng: np.random.Generator) -> bytes:
    old, new = (pick(("\n", "\r", "\r\n", "\n\n"), rng).encode() for _ in range(2))
    return data.replace(old, new, int(rng.choice([-1, 1, 2])))


def _delimiters(data: bytes, rng: np.random.Generator) -> bytes:
    old, new = (pick((",", ";", "\t", " ", ":", '"'), rng).encode() for _ in range(2))
    return data.replace(old, new, int(rng.choice([-1, 1, 2])))


_Change = Callable[[bytes, np.random.Generator], bytes]
_BYTES: tuple[_Change, ...] = (
    _flip, _flip, _flip, _set_byte, _set_byte, _set_integer, _set_integer, _delete, _repeat,
    _insert, _truncate, _move, _splice,
)  # fmt: skip
_TEXT: tuple[_Change, ...] = (
    _token, _number, _number, _field, _field, _lines, _lines, _newlines, _delimiters,
)  # fmt: skip
