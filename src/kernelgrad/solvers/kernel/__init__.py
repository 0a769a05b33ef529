"""Solvers on exact kernels."""
