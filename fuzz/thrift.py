"""Thrift's compact protocol, as far as footers of Parquet need it, for changes of values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuzz.mutate import mutate_bytes, some_integer

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12
_INTEGERS = (4, 5, 6)


@dataclass
class Node:
    """A value with its type: a number, bytes, a list of nodes, or a list of (id, node)."""

    kind: int
    value: Any = None
    of: int = field(default=0)  # the type of the elements of a list


def decode(data: bytes) -> Node:
    """Return the structure that some bytes hold."""
    return _Reader(data).value(_STRUCT)


def encode(node: Node) -> bytes:
    """Return the bytes of a value."""
    kind, value = node.kind, node.value
    if kind in (_TRUE, _FALSE):
        return b""
    if kind in _INTEGERS:
        return _varint(((value << 1) ^ (value >> 63)) % 2**64)
    if kind == _BINARY:
        return _varint(len(value)) + value
    if kind == _LIST:
        head = bytes([len(value) << 4 | node.of]) if len(value) < 15 else bytes([240 | node.of])
        head += _varint(len(value)) if len(value) > 14 else b""
        one = [bytes([n.kind]) if node.of in (_TRUE, _FALSE) else encode(n) for n in value]
        return head + b"".join(one)
    if kind == _STRUCT:
        fields = [bytes([n.kind]) + _varint(i << 1) + encode(n) for i, n in value]
        return b"".join(fields) + b"\0"
    return bytes(value)


def mutate(root: Node, rng: np.random.Generator) -> None:
    """Change one to three values of a structure, or which there are."""
    for _ in range(int(rng.integers(1, 4))):
        nodes = _below(root)
        node = nodes[int(rng.integers(len(nodes)))]
        if node.kind in (_TRUE, _FALSE):
            node.kind = _TRUE + _FALSE - node.kind
        elif node.kind in _INTEGERS:
            near = node.value + int(rng.integers(-2, 3))
            node.value = near if rng.random() < 0.5 else some_integer(rng)
        elif node.kind in (_LIST, _STRUCT) and node.value:
            i, j = rng.integers(len(node.value), size=2)
            how = int(rng.integers(4))
            if how == 0:
                del node.value[i]
            elif how == 1:
                node.value.insert(i, node.value[j])
            elif how == 2:
                node.value[i], node.value[j] = node.value[j], node.value[i]
            elif node.kind == _STRUCT:
                node.value[i] = (int(rng.integers(1, 20)), node.value[i][1])
        elif node.kind == _BINARY:
            node.value = mutate_bytes(node.value, rng)


def _below(node: Node) -> list[Node]:
    if node.kind not in (_LIST, _STRUCT):
        return [node]
    inner = [n for _, n in node.value] if node.kind == _STRUCT else node.value
    return [node, *(found for n in inner for found in _below(n))]


def _varint(n: int) -> bytes:
    parts = []
    while n > 127:
        parts.append(n & 127 | 128)
        n >>= 7
    return bytes([*parts, n])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _bytes(self, n: int) -> bytes:
        self._at += n
        return self._data[self._at - n : self._at]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 127:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def value(self, kind: int) -> Node:
        if kind in (_TRUE, _FALSE):
            return Node(kind)
        if kind in _INTEGERS:
            n = self._number()
            return Node(kind, (n >> 1) ^ -(n & 1))
        if kind == _BINARY:
            return Node(kind, self._bytes(self._number()))
        if kind == _LIST:
            head = self._byte()
            n, of = head >> 4 if head < 240 else self._number(), head & 15
            flags = of in (_TRUE, _FALSE)
            return Node(kind, [self.value(self._byte() if flags else of) for _ in range(n)], of)
        if kind == _STRUCT:
            fields, number = [], 0
            while head := self._byte():
                number = number + (head >> 4) if head >> 4 else self._number() >> 1
                fields.append((number, self.value(head & 15)))
            return Node(kind, fields)
        return Node(kind, self._bytes({_BYTE: 1, _DOUBLE: 8}[kind]))
