"""Export of fitted functions as ONNX graphs, for programs without Python."""

from kernelgrad.onnx import numerics
from kernelgrad.onnx.functions import add_features, add_function, add_scaling
from kernelgrad.onnx.graph import IR_VERSION, ML_OPSET, OPSET, Graph, Value, joined
from kernelgrad.onnx.kernels import ExactForm

__all__ = [
    "IR_VERSION",
    "ML_OPSET",
    "OPSET",
    "ExactForm",
    "Graph",
    "Value",
    "add_features",
    "add_function",
    "add_scaling",
    "joined",
    "numerics",
]
