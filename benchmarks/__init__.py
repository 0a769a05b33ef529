"""Benchmarks of kernelgrad; run them with ``python -m benchmarks.run``."""

import os

# An older core type forced on OpenBLAS halves the speed of its products. The choice is made
# when NumPy is loaded, so it is undone before anything here imports NumPy.
FORCED_CORE_TYPE = os.environ.pop("OPENBLAS_CORETYPE", None)
