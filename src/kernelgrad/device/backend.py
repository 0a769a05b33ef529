"""Computation on a second device, usually a GPU, with tensors of torch.

With device "cpu" all computations use NumPy and numba. Otherwise rows are sent to the device,
once if they fit and in chunks if not; tiles are computed and used there, and only coefficients,
slopes and responses are transferred. Within :meth:`TorchDevice.working` float32 products are
computed in full float32 (no TF32, no bfloat16). Sums over rows are in float32 within
:data:`SUB` rows and in float64 beyond, in an order that depends on shapes only. Only
:meth:`TorchDevice.get` waits for the device, and sending chunks, which waits for the chunk
before the last.

torch is imported when a device is first requested.
"""

from __future__ import annotations

import importlib
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from kernelgrad.compute.backend import CPU
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.memory import system_bytes
from kernelgrad.types import AnyArray, Float32Array, Float64Array, FloatArray, Matrix
from kernelgrad.validation import CapabilityError

SUB = 2048  # rows whose products are summed in float32
# Size of a tile: on a GPU large enough that launches cost little, on a CPU as large as a cache.
_TILE_BYTES = {"cuda": 64 * 2**20, "cpu": 8 * 2**20}
_CHUNK_BYTES = 128 * 2**20  # rows sent at once
# Fractions of the memory left free by kept rows and by kept values; rows have precedence.
_BESIDE_ROWS, _BESIDE_VALUES = 0.15, 0.5
_NAME = re.compile(r"(cuda)(?::(\d+))?|(torch)(?::cpu)?")

Tensor = Any  # torch, and with it its types, may not be installed

_devices: dict[str, TorchDevice] = {}
_lock = threading.RLock()
_depth = 0
_undo: list[Callable[[], None]] = []  # what restores torch's precision of products


def get_device(name: str) -> TorchDevice | None:
    """Return the device with the given name; None for "cpu".

    ``"cuda"`` or ``"cuda:1"`` is a GPU used by torch; ``"torch"`` is torch on the CPU, which is
    slower than ``"cpu"`` and allows testing the same code anywhere.
    """
    if not isinstance(name, str):
        raise TypeError(f"device must be a name such as 'cpu' or 'cuda', got {name!r}.")
    if name == CPU:
        return None
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(
            f"Unknown device {name!r}; choose 'cpu', 'cuda', 'cuda:N' or 'torch' (torch's CPU)."
        )
    with _lock:
        if name not in _devices:
            _devices[name] = _open(name, match)
        return _devices[name]


def _open(name: str, match: re.Match[str]) -> TorchDevice:
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise CapabilityError(
            f"device={name!r} needs torch, which is not installed here; install "
            "kernelgrad[torch], or leave device='cpu'."
        ) from error
    if match[1] is None:
        return TorchDevice(name, torch, torch.device("cpu"))
    if not torch.cuda.is_available():
        raise CapabilityError(
            f"device={name!r} needs a GPU that torch can use, and torch {torch.__version__} "
            "finds none here; install a build of torch for the GPU and its driver, or leave "
            "device='cpu'."
        )
    number, count = int(match[2] or 0), torch.cuda.device_count()
    if number >= count:
        raise CapabilityError(
            f"device={name!r} does not exist: torch finds {count} GPU(s), numbered from 0."
        )
    return TorchDevice(name, torch, torch.device("cuda", number))


class TorchDevice:
    """A device of torch: transfers, and sums over tiles."""

    # bytes that kept rows or values may take; None queries the device each time
    memory: int | None = None

    def __init__(self, name: str, torch: Any, where: Any) -> None:
        self.name, self.torch, self.where = name, torch, where
        self.is_gpu = where.type == "cuda"

    @contextmanager
    def working(self) -> Iterator[None]:
        """Context for work on this device, with full float32 and without gradients."""
        torch = self.torch
        with ExitStack() as stack:
            stack.enter_context(_full_float32(torch))
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch.autocast(self.where.type, enabled=False))
            if self.is_gpu:
                stack.enter_context(torch.cuda.device(self.where))
            yield

    def put(self, a: AnyArray) -> Tensor:
        """Return an array on the device, by an asynchronous copy from pinned memory."""
        a = np.ascontiguousarray(a)
        t = self.torch.from_numpy(a if a.flags.writeable else a.copy())
        if not self.is_gpu:
            return t
        # torch keeps the pinned copy until the device has read it
        return t.pin_memory().to(self.where, non_blocking=True)

    def get(self, t: Tensor) -> AnyArray:
        """Return a tensor as an array, after waiting for all queued work."""
        if self.is_gpu:  # pinned memory takes copies at the full rate of the bus
            t = self.torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(t)
        result: AnyArray = t.cpu().numpy()
        return result

    def empty(self, *shape: int, dtype: str = "float32") -> Tensor:
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device=self.where)

    def zeros(self, *shape: int) -> Tensor:
        """Return a tensor of float64 zeros, for sums."""
        return self.torch.zeros(shape, dtype=self.torch.float64, device=self.where)

    def free(self, beside: float = _BESIDE_ROWS) -> int:
        """Return the bytes that may still be kept if a fraction `beside` must stay free."""
        if self.memory is not None:
            return self.memory
        if not self.is_gpu:
            return system_bytes() // 4
        unused, total = self.torch.cuda.mem_get_info(self.where)
        cached = self.torch.cuda.memory_reserved(self.where)
        cached -= self.torch.cuda.memory_allocated(self.where)
        return int(unused + cached - beside * total)

    def height(self, width: int) -> int:
        """Return the number of rows of a tile of `width` columns, a multiple of :data:`SUB`."""
        return SUB * max(1, _TILE_BYTES[self.where.type] // (4 * SUB * max(1, width)))

    def add_product(self, R: Tensor, K: Tensor, total: Tensor, unit: int = SUB) -> None:
        """Add ``R K`` to `total` (C, M) float64, for R (C, t) and K (t, M) float32.

        Sums are in float32 within `unit` rows of K.
        """
        C, t = R.shape
        whole = t // unit * unit
        if whole:
            left = R[:, :whole].reshape(C, -1, unit).transpose(0, 1)
            parts = self.torch.bmm(left, K[:whole].reshape(-1, unit, K.shape[1]))
            total += parts.sum(0, dtype=total.dtype)
        if whole < t:
            total += R[:, whole:] @ K[whole:]

    def add_gram(self, P: Tensor, total: Tensor) -> None:
        """Add ``P^T P`` (M, M) of P (t, M), summed in float64 beyond :data:`SUB` rows."""
        for a in range(0, len(P), SUB):
            part = P[a : a + SUB]
            total += part.T @ part

    def solve(self, H: Float64Array, damping: float, G: FloatArray) -> Float64Array | None:
        """Return ``(H + damping I)^-1 G``, or None if this matrix is not positive definite."""
        linalg = self.torch.linalg
        with self.working():
            A = self.put(H).clone()  # H may be needed again
            A.diagonal().add_(damping)
            L, failed = linalg.cholesky_ex(A)
            if self.get(failed):
                return None
            solution: Float64Array = self.get(
                self.torch.cholesky_solve(self.put(G).to(A.dtype), L)
            )
            return solution


@contextmanager
def _full_float32(torch: Any) -> Iterator[None]:
    """Use full float32 products within the context; the last thread restores the setting."""
    global _depth
    with _lock:
        if _depth == 0:
            cuda, key = torch.backends.cuda.matmul, "fp32_precision"
            if hasattr(cuda, key):
                for module in (cuda, torch.backends.mkldnn.matmul):
                    _undo.append(partial(setattr, module, key, getattr(module, key)))
                    setattr(module, key, "ieee")
            else:  # torch before 2.9
                before = torch.get_float32_matmul_precision()
                _undo.append(partial(torch.set_float32_matmul_precision, before))
                torch.set_float32_matmul_precision("highest")
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            while _undo and _depth == 0:
                _undo.pop()()


class DeviceRows:
    """Arrays of n rows each, kept on the device if they fit, otherwise sent for each use.

    CSR rows are converted to dense ones, one chunk at a time.
    """

    def __init__(self, device: TorchDevice, arrays: Sequence[Matrix | None]) -> None:
        self.device, self._arrays = device, list(arrays)
        self.n = next(int(a.shape[0]) for a in arrays if a is not None)
        self._row_bytes = sum(
            a.dtype.itemsize * int(np.prod(a.shape[1:])) for a in arrays if a is not None
        )
        self._tensors: list[Tensor] | None = None
        if self.n * self._row_bytes <= device.free():
            self._tensors = self._all()

    def _all(self) -> list[Tensor]:
        device = self.device
        with device.working():
            whole = [
                None if a is None else device.empty(*a.shape, dtype=a.dtype.name)
                for a in self._arrays
            ]
            for rows, chunk in self._chunks(SUB):
                for target, part in zip(whole, chunk, strict=True):
                    if target is not None:
                        target[rows] = part
            return whole

    def _chunks(self, height: int) -> Iterator[tuple[slice, list[Tensor]]]:
        """Yield chunks of whole tiles; copies are queued as the work on them is."""
        size = max(1, _CHUNK_BYTES // max(1, height * self._row_bytes)) * height
        for a in range(0, self.n, size):
            rows = slice(a, min(self.n, a + size))
            put = self.device.put
            yield rows, [None if x is None else put(dense(x[rows])) for x in self._arrays]

    def tiles(self, height: int) -> Iterator[tuple[slice, list[Tensor]]]:
        """Yield tiles of `height` rows in order, which are the same for kept and sent rows."""
        whole: Any = [(slice(0, self.n), self._tensors)]
        for chunk, tensors in whole if self._tensors is not None else self._chunks(height):
            for a in range(chunk.start, chunk.stop, height):
                rows = slice(a, min(chunk.stop, a + height))
                part = slice(a - chunk.start, rows.stop - chunk.start)
                yield rows, [None if t is None else t[part] for t in tensors]

    def all(self) -> list[Tensor]:
        """Return all rows on the device, even if they do not stay there."""
        return self._all() if self._tensors is None else self._tensors


class Resident:
    """Cache of rows on a device, by the identity of their object on the host."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Any, DeviceRows]] = {}

    def of(self, rows: Any, send: Callable[[], DeviceRows]) -> DeviceRows:
        key = id(rows)
        if key not in self._rows:
            forget = weakref.ref(rows, lambda _: self._rows.pop(key, None))
            self._rows[key] = forget, send()
        return self._rows[key][1]


class DeviceBlockMatrix:
    """The n x M values of a block for all rows on a device, kept if they fit, else recomputed.

    The tiles are the same in both cases, so results do not depend on the memory. `tile` returns
    the values (t, M) in float32 of a tile of rows from :meth:`DeviceRows.tiles`.
    """

    def __init__(
        self, rows: DeviceRows, width: int, tile: Callable[[list[Tensor]], Tensor]
    ) -> None:
        self.n, self.width, self.n_tiles_made = rows.n, width, 0
        self._rows, self._tile, self._device = rows, tile, rows.device
        fits = 4 * self.n * width <= self._device.free(_BESIDE_VALUES)
        self._values = self._device.empty(self.n, width) if fits else None
        self._filled = False

    def _pieces(self) -> Iterator[tuple[slice, Tensor]]:
        height = self._device.height(self.width)
        if self._filled and self._values is not None:
            for a in range(0, self.n, height):
                yield slice(a, min(self.n, a + height)), self._values[a : a + height]
            return
        for rows, tensors in self._rows.tiles(height):
            values = self._tile(tensors)
            if self._values is not None:
                self._values[rows] = values
            yield rows, values
        self._filled = self._values is not None
        self.n_tiles_made += 1

    def product(self, R: Float32Array) -> Float64Array:
        """Return ``R K`` for R (C, n), shape (C, M), summed in float64 over tiles in order."""
        device = self._device
        with device.working():
            slopes, total = device.put(R), device.zeros(len(R), self.width)
            for rows, K in self._pieces():
                device.add_product(slopes[:, rows], K, total)
            result: Float64Array = device.get(total)
            return result

    def responses(self, V: Float32Array, out: Float32Array) -> None:
        """Write ``V K^T`` for V (C, M) to `out` (C, n)."""
        device = self._device
        with device.working():
            moves, responses = device.put(V), device.empty(len(V), self.n)
            for rows, K in self._pieces():
                responses[:, rows] = moves @ K.T
            out[:] = device.get(responses)

    def squares(self, root: Float32Array) -> Float64Array:
        """Return ``P^T P`` of ``P = [root K, root]`` in float64, for root (n, 1)."""
        device, torch = self._device, self._device.torch
        with device.working():
            roots = device.put(root).double()
            total = device.zeros(self.width + 1, self.width + 1)
            for rows, K in self._pieces():
                part = roots[rows]
                device.add_gram(torch.cat([K * part, part], 1), total)
            result: Float64Array = device.get(total)
            return result

    def all(self) -> Float32Array:
        """Return K, (n, M)."""
        with self._device.working():
            values = [K for _, K in self._pieces()]
            result: Float32Array = self._device.get(self._device.torch.cat(values))
            return result
