"""Graphs of ONNX operators, written as arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kernelgrad.validation import CapabilityError
from kernelgrad.version import __version__

# The oldest versions that have what is used here: transforms, and axes as inputs.
OPSET, ML_OPSET, IR_VERSION = 18, 3, 8
MOST_BYTES = 2**31 - 2**20  # a protobuf holds 2 GiB
ML = "ai.onnx.ml"  # domain of operators on texts
_LOGICAL = ("Equal", "Greater", "IsNaN", "Less")
_INTEGER = ("ArgMax", "Shape")


_Binary = Callable[["Value", Any], "Value"]


def _operators(kind: str) -> tuple[_Binary, _Binary]:
    """Return the methods by which a value is the left or the right side of an operator."""
    return (
        lambda value, other: value.graph.op(kind, value, other),
        lambda value, other: value.graph.op(kind, other, value),
    )


class Value:
    """A tensor of a graph, known when it runs; operators on it become nodes of the graph."""

    __array_ufunc__ = None  # arrays leave arithmetic with values to them

    def __init__(self, graph: Graph, name: str, dtype: Any) -> None:
        self.graph, self.name, self.dtype = graph, name, np.dtype(dtype)

    __add__, __radd__ = _operators("Add")
    __sub__, __rsub__ = _operators("Sub")
    __mul__, __rmul__ = _operators("Mul")
    __truediv__, __rtruediv__ = _operators("Div")
    __matmul__ = _operators("MatMul")[0]
    __gt__, __lt__ = _operators("Greater")[0], _operators("Less")[0]

    def __neg__(self) -> Value:
        return self.graph.op("Neg", self)

    def sum(self, axis: int, *, keepdims: bool = True) -> Value:
        return self.graph.op("ReduceSum", self, np.array([axis]), keepdims=int(keepdims))

    def max(self, axis: int) -> Value:
        """Return the maximum along an axis, which stays."""
        return self.graph.op("ReduceMax", self, np.array([axis]))

    def argmax(self) -> Value:
        return self.graph.op("ArgMax", self, axis=1, keepdims=1)

    def squares(self) -> Value:
        """Return the sum of squares of each row, (n, 1)."""
        return self.graph.op("ReduceSumSquare", self, np.array([1]))

    def take(self, index: Any, axis: int = 1) -> Value:
        """Return entries along an axis, by numbers or by values that are numbers."""
        index = index if isinstance(index, Value) else np.asarray(index, np.int64)
        return self.graph.op("Gather", self, index, axis=axis)

    def reshape(self, *shape: int) -> Value:
        """Return another shape; 0 keeps a length, -1 is what is left."""
        return self.graph.op("Reshape", self, np.array(shape))

    def astype(self, dtype: Any) -> Value:
        if self.dtype == np.dtype(dtype):
            return self
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.graph.op("Cast", self, dtype=dtype, to=to)


class Graph:
    """Nodes, constants and inputs of a model that grows."""

    def __init__(self, prefix: str = "kernelgrad", dtype: Any = np.float64) -> None:
        self.prefix, self.dtype, self.n_bytes = prefix, np.dtype(dtype), 0
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def input(self, name: str, dtype: Any, width: int) -> Value:
        """Return a new input (rows, width), numbers as float64; `dtype` str is text."""
        own = str if dtype is str else self.dtype
        self.inputs.append(_described(name, own, width))
        return (
            Value(self, name, object) if dtype is str else Value(self, name, own).astype(dtype)
        )

    def constant(self, array: Any) -> Value:
        """Return an array that the model holds; text where it is of str."""
        array = np.asarray(array)
        if array.dtype.kind == "U":
            array = array.astype(object)
        self.n_bytes += array.nbytes
        if self.n_bytes > MOST_BYTES:
            raise CapabilityError(
                "The ONNX model would be larger than 2 GiB, which a file of that format cannot "
                "be: it holds all frequencies or support rows. Fit fewer random features "
                "(max_iter, block_size) or fewer support rows, or serve the file of save."
            )
        name = f"{self.prefix}/constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return Value(self, name, array.dtype)

    def op(self, kind: str, *inputs: Any, dtype: Any = None, **attributes: Any) -> Value:
        """Return what an operator makes of values, arrays and numbers.

        Floats become constants in the precision of the first value that has one.
        """
        return self.ops(kind, *inputs, dtypes=(dtype,), **attributes)[0]

    def ops(
        self, kind: str, *inputs: Any, dtypes: Sequence[Any], domain: str = "",
        **attributes: Any,
    ) -> list[Value]:  # fmt: skip
        """Return the outputs of an operator, one for each of `dtypes`; None is the usual."""
        types = [v.dtype for v in inputs if isinstance(v, Value)]
        floats = [d for d in types if d.kind == "f"]
        values = [v if isinstance(v, Value) else self._number(v, floats) for v in inputs]
        usual = np.dtype(np.int64) if kind in _INTEGER else (floats or types)[0]
        if kind in ("Gather", "Reshape", "Concat", "Expand"):
            usual = values[0].dtype
        if kind == "Where":
            usual = values[1].dtype
        usual = np.dtype(bool) if kind in _LOGICAL else usual
        number = len(self.nodes)
        outputs = [
            Value(self, f"{self.prefix}/{kind}{number}.{i}", usual if d is None else d)
            for i, d in enumerate(dtypes)
        ]
        names = [v.name for v in values], [v.name for v in outputs]
        name = names[1][0]  # onnxruntime 1.18 needs one for nodes that it fuses
        self.nodes.append(
            helper.make_node(kind, *names, name=name, domain=domain, **attributes)
        )
        return outputs

    def _number(self, value: Any, floats: list[Any]) -> Value:
        array = np.asarray(value)
        if floats and (array.dtype.kind == "f" or isinstance(value, int | float)):
            array = array.astype(floats[0])
        return self.constant(array)

    def scan(
        self, step: Callable[[Value, Value, Value], Value], start: Value, a: Value, b: Value
    ) -> Value:
        """Return what comes of `start` by a step for each a[i] and b[i]."""
        body = Graph(f"{self.prefix}/body{len(self.nodes)}")
        names = [f"{body.prefix}/{name}" for name in ("state", "a", "b")]
        args = [
            Value(body, name, v.dtype) for name, v in zip(names, (start, a, b), strict=True)
        ]
        out = step(*args)
        described = [_described(v.name, v.dtype, None) for v in (*args, out)]
        inner = helper.make_graph(
            body.nodes, body.prefix, described[:3], described[3:], body.constants
        )
        return self.op("Scan", start, a, b, body=inner, num_scan_inputs=2)

    def model(
        self, outputs: dict[str, tuple[Value, int | None]], props: dict[str, str], about: str
    ) -> onnx.ModelProto:
        """Return the model of some values, with the number of columns of each, if any.

        `props` is metadata for programs, `about` for people. An output named as an input is
        called ``predicted_`` that.
        """
        taken = {v.name for v in self.inputs}
        described = []
        for name, (value, width) in outputs.items():
            name = f"predicted_{name}" if name in taken else name
            self.nodes.append(helper.make_node("Identity", [value.name], [name]))
            described.append(_described(name, value.dtype, width, rows=True))
        graph = helper.make_graph(
            self.nodes, "kernelgrad", self.inputs, described, self.constants
        )
        sets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
        model = helper.make_model(
            graph, opset_imports=sets, ir_version=IR_VERSION, producer_name="kernelgrad",
            producer_version=__version__, doc_string=about,
        )  # fmt: skip
        helper.set_model_props(model, props)
        return model


def summed(values: Iterable[Value]) -> Value:
    return reduce(Value.__add__, values)


def multiplied(values: Iterable[Value]) -> Value:
    return reduce(Value.__mul__, values)


def _described(name: str, dtype: Any, width: int | None = None, *, rows: bool = False) -> Any:
    """Return name and type of a tensor, and its shape (rows,) or (rows, width) if known."""
    text = dtype is str or np.dtype(dtype).kind in "OU"
    kind = TensorProto.STRING if text else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape = ["rows"] * (rows or width is not None) + ([] if width is None else [width])
    return helper.make_tensor_value_info(name, kind, shape or None)
