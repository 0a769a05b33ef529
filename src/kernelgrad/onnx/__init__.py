"""ONNX: a fitted model comes in, a graph for programs without Python goes out."""

from kernelgrad.onnx.functions import add_function, add_scaling
from kernelgrad.onnx.graph import IR_VERSION, ML_OPSET, OPSET, Graph

__all__ = ["IR_VERSION", "ML_OPSET", "OPSET", "Graph", "add_function", "add_scaling"]
