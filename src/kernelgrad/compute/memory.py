"""Large buffers that may stay mostly unused."""

from __future__ import annotations

import mmap

import numpy as np

from kernelgrad._typing import Float32Array


def untouched(n_rows: int, n_columns: int) -> Float32Array:
    """Return an array (n_rows, n_columns) whose pages take memory once they are written.

    NumPy asks for huge pages, which the system clears as a whole and may have to assemble
    first: a buffer that fills slowly is then up to four times slower to write, and takes
    memory for what is never used.
    """
    size = max(1, 4 * n_rows * n_columns)
    if hasattr(mmap, "MAP_PRIVATE"):
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:  # Windows
        pages = mmap.mmap(-1, size)
    flat: Float32Array = np.frombuffer(pages, np.float32, count=n_rows * n_columns)
    return flat.reshape(n_rows, n_columns)
