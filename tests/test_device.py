"""A second device by torch, on torch's CPU: bounds, sums, fits, predictions, errors.

What needs torch is skipped where it is not installed.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import pickle
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import kernelgrad
from cases import every
from kernelgrad import (
    KernelClassifier,
    KernelDensityRatio,
    KernelNoveltyDetector,
    KernelRegressor,
)
from kernelgrad.compute.backend import device_or_cpu
from kernelgrad.data import open_npy
from kernelgrad.device import backend as devices
from kernelgrad.device.backend import (
    SUB,
    DeviceBlockMatrix,
    DeviceRows,
    TorchDevice,
    get_device,
)
from kernelgrad.exceptions import CapabilityError
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.features import FeatureStream
from kernelgrad.kernels import (
    KERNELS,
    ArcCosine,
    CallableKernel,
    Cauchy,
    Chi2,
    DotProduct,
    ExponentialSemigroup,
    Gaussian,
    Hellinger,
    Intersection,
    JensenShannon,
    Laplacian,
    Matern,
    Polynomial,
    ReciprocalSemigroup,
    SkewedChi2,
    SkewedIntersection,
)
from kernelgrad.solvers import DSG, CachedBlockDescent
from kernelgrad.solvers.block_descent import solver as block_descent

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
U = 2.0**-24  # unit roundoff of float32


def gamma(m):
    return m * U / (1 - m * U)


@pytest.fixture(autouse=True)
def one_thread():
    """Threads of torch and of this package would fight for the same cores."""
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def torch_cpu(monkeypatch):
    """The device, with a budget of its own for each test."""
    device = get_device("torch")
    monkeypatch.setattr(device, "memory", None)
    return device


@pytest.fixture
def torch_is(monkeypatch):
    """Return a function that puts something in the place of torch; None is nothing."""
    found = importlib.import_module
    monkeypatch.setattr(devices, "_devices", {})
    monkeypatch.setattr(devices, "_missed", set())

    def put(fake):
        def imported(name, *args):
            if name != "torch":
                return found(name, *args)
            if fake is None:
                raise ImportError(name)
            return fake

        monkeypatch.setattr(importlib, "import_module", imported)

    return put


def rows_of(n, d, seed=0):
    return np.abs(np.random.default_rng(seed).normal(size=(n, d)))


def values_on(name, kernel, X, Z, wide=False):
    exact = ExactKernel(kernel, X.shape[1], wide=wide)
    exact.device = name
    A, B = exact.prepare(X), exact.prepare(Z)
    return exact.products(A, B, np.eye(len(Z))), A, B


# Names and errors


@every("name", ["gpu", "cuda:", "cuda:x", "torch:1", "CPU", ""])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match=r"Unknown device .*choose 'cpu', 'cuda'"):
        get_device(name)
    with pytest.raises(ValueError, match="Unknown device"):
        KernelRegressor(device=name).fit(rows_of(9, 2), np.arange(9.0))


def test_names_are_strings():
    with pytest.raises(TypeError, match="must be a name such as 'cpu'"):
        KernelRegressor(device=None).fit(rows_of(9, 2), np.arange(9.0))


def test_the_default_is_numpy_and_imports_no_torch():
    assert get_device("cpu") is None
    code = (
        "import sys; import numpy as np; from kernelgrad import KernelRegressor;"
        "X = np.arange(60.0).reshape(20, 3); KernelRegressor().fit(X, X[:, 0]).predict(X);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_torch_the_error_names_the_extra(torch_is):
    torch_is(None)
    with pytest.raises(CapabilityError, match=r"install kernelgrad\[torch\]"):
        KernelRegressor(device="cuda").fit(rows_of(9, 2), np.arange(9.0))


@pytest.mark.parametrize(
    ("name", "gpus", "message"),
    [("cuda", 0, "needs a GPU that torch can use"), ("cuda:3", 2, r"finds 2 GPU\(s\)")],
)
def test_without_the_gpu_the_error_says_so(torch_is, name, gpus, message):
    cuda = types.SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus)
    torch_is(types.SimpleNamespace(cuda=cuda, __version__="0"))
    with pytest.raises(CapabilityError, match=message):
        KernelClassifier(device=name).fit(rows_of(9, 2), [0, 1, 1] * 3)


@needs_torch
@every(
    ("params", "message"),
    [
        ({"solver": "sdca"}, r"solver 'sdca' runs on the CPU only.*'cached'"),
        ({"kernel": lambda A, B: A @ B.T}, "exact callable kernel .* has no form"),
        ({"solver": "cached", "kernel": Matern(0.7)}, "exact matern kernel .* has no form"),
        ({"solver": "dsg", "kernel": "polynomial"}, "random features of the polynomial kernel"),
        ({"solver": "dsg", "kernel": Gaussian(1.0) + Laplacian(1.0)}, "of the sum kernel"),
    ],
)
def test_what_a_device_cannot_do_is_refused(params, message):
    model, X = KernelClassifier(device="torch", **params), rows_of(30, 2)
    with pytest.MonkeyPatch.context() as patch:
        if "solver" in params:  # before any work
            patch.setattr(KernelClassifier, "_fit", lambda *args: pytest.fail("works"))
        with pytest.raises(CapabilityError, match=message):
            model.fit(X, [0, 1, 1] * 10)


@needs_torch
def test_kernels_without_a_form_are_refused_by_name():
    function = CallableKernel(lambda A, B: A @ B.T)
    for kernel in (function, Matern(nu=0.7, gamma=1.0), Gaussian(1.0) + function):
        with pytest.raises(CapabilityError, match=r"no form for device='torch'.*laplacian"):
            values_on("torch", kernel, rows_of(5, 2), rows_of(4, 2))


# Values


@needs_torch
@pytest.mark.parametrize("d", [1, 7, 130])
def test_values_keep_the_bounds_of_the_documentation(d):
    X, Z = rows_of(300, d), rows_of(90, d, 1)
    Z[:40] = X[:40]
    for kernel in (Gaussian(0.5 / d), Matern(1.5, 0.5 / d), Matern(2.5, 0.5 / d)):
        (K, A, B), (found, _, _) = (values_on(w, kernel, X, Z) for w in ("cpu", "torch"))
        bound = 2 * gamma(d + 3) * np.add.outer(A.square, B.square) + 8 * U
        assert (np.abs(K - found) <= bound).all()
        assert bound.max() < 1e-3  # says something
    K, found = (values_on(w, Laplacian(0.5 / d), X, Z)[0] for w in ("cpu", "torch"))
    assert np.abs(K - found).max() <= gamma(d + 4) + 8 * U
    K, found = (values_on(w, Cauchy(d**-0.5), X, Z)[0] for w in ("cpu", "torch"))
    assert (np.abs(K - found) <= 2 * gamma(4 * d + 8) * K).all()
    (K, A, B), (found, _, _) = (
        values_on(w, Polynomial(3, 1 / d), X, Z) for w in ("cpu", "torch")
    )
    size = np.outer(*(np.linalg.norm(r.values, axis=1) for r in (A, B)))
    bound = 2 * gamma(d + 4) * size * 3 * (size + 1) ** 2 + 8 * U * (size + 1) ** 3
    assert (np.abs(K - found) <= bound).all()


@needs_torch
def test_rows_in_the_precision_of_tensor_cores_break_the_bound():
    """The bound tells full float32 from TF32, which keeps ten bits."""
    d = 20
    X, kernel = rows_of(200, d), Gaussian(0.5 / 20)
    K, A, B = values_on("cpu", kernel, X, X)
    coarse = (X.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    found, _, _ = values_on("torch", kernel, coarse, coarse)
    bound = 2 * gamma(d + 3) * np.add.outer(A.square, B.square) + 8 * U
    assert (np.abs(K - found) > bound).any()


RESOLVED = [
    DotProduct("exponential", 0.1), DotProduct("vovk", 0.02), DotProduct([1, 2, 0, 0.5], 0.1),
    ArcCosine(0), ArcCosine(1, bias=0.5), ArcCosine(2), Chi2(), Intersection(),
    JensenShannon(), Hellinger(), ExponentialSemigroup(0.1), ReciprocalSemigroup(40.0),
    SkewedChi2(), SkewedIntersection(), Matern(0.5, 0.1), Gaussian(0.1) * Laplacian(0.1),
    0.5 * Gaussian(0.1) + 2.0 * Polynomial(2, 0.1),
]  # fmt: skip


@needs_torch
@every("kernel", RESOLVED)
def test_values_of_all_other_forms(kernel):
    X, Z = rows_of(150, 8), rows_of(40, 8, 1)
    X[::3, 2] = Z[::2, 5] = 0.0
    wide = kernel.needs_wide(X)
    K, found = (values_on(w, kernel, X, Z, wide)[0] for w in ("cpu", "torch"))
    np.testing.assert_allclose(found, K, rtol=2e-6, atol=2e-6)
    some, _, _ = values_on("torch", kernel, X, Z, not wide)  # float64 rows or float32 ones
    np.testing.assert_allclose(some, K, rtol=1e-5, atol=2e-3)


def test_no_kernel_is_forgotten():
    tested = {type(k) for k in RESOLVED} | {Gaussian, Laplacian, Cauchy, Matern, Polynomial}
    names = {name for name, cls in KERNELS.items() if cls not in tested}
    assert names <= {"convolutional", "callable", "precomputed", "sum", "product"}


@needs_torch
def test_sparse_rows_are_those_of_their_arrays():
    X = rows_of(3000, 30)
    X[X < 2.0] = 0.0
    exact = ExactKernel(Gaussian(0.1), 30)
    exact.device = "torch"
    both = []
    for rows in (exact.prepare(X), exact.prepare(sp.csr_matrix(X))):
        assert sp.issparse(rows.values) == bool(both)
        both.append(exact.products(rows, rows, np.ones((3000, 1))))
    np.testing.assert_allclose(both[1], both[0], rtol=1e-6)


# Blocks


def block_matrix(device, n, width, d=6, **more):
    X = np.random.default_rng(3).normal(size=(n, d)).astype(np.float32)
    Z = device.put(X[:width])
    rows = DeviceRows(device, [X])
    return X, DeviceBlockMatrix(rows, width, lambda some: (some[0] @ Z.T).cos(), **more)


@needs_torch
@pytest.mark.parametrize("n", [5, SUB, 3 * SUB + 77])
def test_products_and_responses(torch_cpu, n):
    X, matrix = block_matrix(torch_cpu, n, 5)
    K = np.cos(X.astype(float) @ X[:5].T)
    R = np.random.default_rng(0).normal(size=(3, n)).astype(np.float32)
    V, out = R[:, :5].copy(), np.empty((3, n), np.float32)
    matrix.responses(V, out)
    np.testing.assert_allclose(out, V @ K.T, atol=1e-5)
    bound = gamma(SUB + 8) * (np.abs(R).astype(float) @ np.abs(K)) + 4e-6 * np.abs(R).sum()
    assert (np.abs(matrix.product(R) - R.astype(float) @ K) <= bound).all()
    assert matrix.n_tiles_made == 1


@needs_torch
def test_sums_over_many_rows_are_float64(torch_cpu):
    n = 40 * SUB
    ones = DeviceRows(torch_cpu, [np.ones((n, 1), np.float32)])
    matrix = DeviceBlockMatrix(ones, 1, lambda some: some[0])
    R = np.full((1, n), np.float32(0.1))
    R[0, 0] = 2.0**40  # beside it sums over SUB rows are lost in float32
    expected = R.astype(np.float64).sum()
    assert abs(matrix.product(R)[0, 0] - expected) < 0.1 * SUB + 2


@needs_torch
def test_what_is_kept_or_sent_in_chunks_changes_no_bit(torch_cpu, monkeypatch):
    n, width, d = 9 * SUB + 11, 40, 6
    monkeypatch.setattr(devices, "_TILE_BYTES", {"cpu": 4 * SUB * width})
    monkeypatch.setattr(devices, "_CHUNK_BYTES", 4 * d * 2 * SUB)
    R = np.random.default_rng(0).normal(size=(2, n)).astype(np.float32)
    found = []
    for memory in (10**9, 4 * n * d, 0):  # all is kept; rows are; nothing is
        torch_cpu.memory = memory
        _, matrix = block_matrix(torch_cpu, n, width)
        out = np.empty((2, n), np.float32)
        first = matrix.product(R)
        matrix.responses(R[:, :width].copy(), out)
        assert (matrix.product(R) == first).all()
        assert matrix.n_tiles_made == (1 if memory == 10**9 else 3)
        found.append((first, out))
    for first, out in found[1:]:
        assert (first == found[0][0]).all()
        assert (out == found[0][1]).all()


class Steps:
    """A stream of a GPU that notes what is asked of it; the work is done at once."""

    def __init__(self, log):
        self.log, self.n = log, 0

    def record_event(self):
        self.n += 1
        name = f"{self.n}"
        self.log.append(f"sent {name}" if self is self.log[0] else f"worked {name}")
        return types.SimpleNamespace(
            name=name, synchronize=lambda: self.log.append(f"waited for {name}")
        )

    def wait_event(self, event):
        self.log.append(f"works after {event.name}")


@needs_torch
def test_chunks_travel_while_others_are_worked_on(monkeypatch):
    """The order of what a GPU is asked for, on a stream that only takes notes."""
    log = []
    copies, here = Steps(log), Steps(log)
    log.append(copies)
    monkeypatch.setattr(torch.cuda, "device", lambda where: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda where: here)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())
    kept = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, s: kept.append(s))
    monkeypatch.setattr(devices, "_CHUNK_BYTES", 0)
    device = TorchDevice("torch", torch, torch.device("cpu"))
    device._copies, device.memory = copies, 0
    monkeypatch.setattr(devices, "_TILE_BYTES", {"cpu": 0})
    X, matrix = block_matrix(device, 4 * SUB, 3)
    found = matrix.product(np.ones((1, 4 * SUB), np.float32))
    np.testing.assert_allclose(found[0], np.cos(X.astype(float) @ X[:3].T).sum(0), atol=0.01)
    assert kept == [here] * 4
    assert log[1:] == [
        "sent 1", "sent 2", "works after 1", "worked 1", "sent 3", "works after 2", "worked 2",
        "waited for 1", "sent 4", "works after 3", "worked 3", "works after 4",
    ]  # fmt: skip


@needs_torch
def test_the_same_rows_are_sent_once(torch_cpu, monkeypatch):
    sent = []
    send = type(torch_cpu).sent

    def counted(self, arrays, rows):
        sent.append(rows)
        return send(self, arrays, rows)

    monkeypatch.setattr(type(torch_cpu), "sent", counted)
    stream = FeatureStream(Gaussian(1.0), 3, 0, 64)
    stream.device = "torch"
    X = rows_of(50, 3).astype(np.float32)
    rows = stream.prepare(X)
    first = stream.transform(rows, 0)
    stream.transform(rows, 1)
    assert len(sent) == 1
    X[:] = 0.0  # the same memory, prepared anew: other rows
    again = stream.transform(stream.prepare(X), 0)
    assert len(sent) == 2
    assert not np.array_equal(first, again)


# Precision


@needs_torch
@pytest.mark.parametrize("before", ["highest", "high", "medium"])
def test_products_are_full_float32_and_settings_are_set_back(torch_cpu, before):
    at_first = torch.get_float32_matmul_precision()
    new = hasattr(torch.backends.cuda.matmul, "fp32_precision")
    try:
        torch.set_float32_matmul_precision(before)
        parts = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul) if new else ()
        given = [part.fp32_precision for part in parts]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch_cpu.working():
                with torch_cpu.working():
                    pass
                a = torch.full((64, 64), 1 + 2.0**-20)
                assert (a @ torch.eye(64) == a).all()  # no bit is lost
                assert not torch.is_grad_enabled()
                assert {part.fp32_precision for part in parts} <= {"ieee"}
                assert new or torch.get_float32_matmul_precision() == "highest"
            assert torch.is_autocast_enabled("cpu")
            assert torch.is_grad_enabled()
        assert torch.get_float32_matmul_precision() == before
        assert [part.fp32_precision for part in parts] == given
    finally:
        torch.set_float32_matmul_precision(at_first)


# Random features

MAPS = [
    Gaussian(0.1), Gaussian(0.1, form="phase"), Gaussian(0.1, sampling="qmc"),
    Gaussian(0.1, sampling="orthogonal"), Laplacian(0.1), Cauchy(0.3), Matern(1.5, 0.1),
    ArcCosine(0), ArcCosine(1, bias=0.5), ArcCosine(2), Hellinger(), ExponentialSemigroup(0.1),
    ReciprocalSemigroup(40.0), SkewedChi2(), Gaussian(0.1) * Laplacian(0.1),
]  # fmt: skip


@needs_torch
@every("kernel", MAPS)
def test_features_and_their_sums(kernel):
    n, d, size = 700, 5, 96
    cpu, there = (FeatureStream(kernel, d, 7, size) for _ in range(2))
    there.device = "torch"
    X = cpu.prepare(rows_of(n, d))
    rng = np.random.default_rng(0)
    R = rng.normal(size=(n, 2)).astype(np.float32)
    root = rng.uniform(0.01, 0.05, size=(n, 1)).astype(np.float32)
    coef = np.zeros((cpu.planes, cpu.map.capacity(3), 2), np.float32)
    coef[:, : 3 * size] = rng.normal(size=(cpu.planes, 3 * size, 2))
    f = np.zeros((2, n, 2), np.float32)
    for stream, out in ((cpu, f[0]), (there, f[1])):
        stream.predict(X, coef, 3, out)
    pairs = {
        "predict": f,
        "transform": [s.transform(X, 1) for s in (cpu, there)],
        "gradient": [s.gradient(X, R, 1) for s in (cpu, there)],
    }
    moments = zip(*(s.moments(X, 1, root, 3, R, R) for s in (cpu, there)), strict=True)
    pairs |= dict(zip(("H", "penalty", "moment"), moments, strict=True))
    pairs["H"] = [np.tril(H) for H in pairs["H"]]
    for name, (expected, found) in pairs.items():
        close = 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=close, err_msg=name)


@needs_torch
def test_rows_of_the_covariance_are_counted_through_all_tiles(monkeypatch):
    monkeypatch.setattr(devices, "_TILE_BYTES", {"cpu": 0})
    n, every = 2 * SUB + 50, 5
    cpu, there = (FeatureStream(Gaussian(0.1), 3, 7, 32) for _ in range(2))
    there.device = "torch"
    X = cpu.prepare(rows_of(n, 3))
    root = np.full((n, 1), n**-0.5, np.float32)
    root[every * 400 :: every] *= 9  # rows that a tile of SUB rows, no multiple, would miss
    (H, penalty, gradient), found = (
        s.moments(X, 0, root, every, root, root) for s in (cpu, there)
    )
    np.testing.assert_allclose(np.tril(found[0] - H), 0, atol=1e-5 * np.abs(H).max())
    np.testing.assert_allclose(found[1], penalty, atol=1e-5 * np.abs(penalty).max())
    np.testing.assert_allclose(found[2], gradient, atol=1e-5 * np.abs(gradient).max())


@needs_torch
def test_cosines_keep_the_bound_of_the_documentation():
    d, scale = 40, 96**-0.5
    cpu, there = (FeatureStream(Gaussian(0.5), d, 7, 96) for _ in range(2))
    there.device = "torch"
    X = cpu.prepare(rows_of(500, d))
    W = cpu.map.frequencies(0, 1, 96, np.arange(d))[0]
    size = np.outer(np.linalg.norm(X, axis=1), np.linalg.norm(W, axis=0))
    bound = (4 * np.pi * gamma(d + 2) * size + 8 * U) * scale
    error = np.abs(there.transform(X, 0) - cpu.transform(X, 0))
    assert (error <= np.hstack([bound, bound])).all()


@needs_torch
def test_orthogonal_features_of_wide_rows_are_refused():
    stream = FeatureStream(Gaussian(0.1, sampling="orthogonal"), 70, 7, 64)
    stream.device = "torch"
    with pytest.raises(CapabilityError, match="sampling='orthogonal' above 64 columns"):
        stream.transform(stream.prepare(rows_of(4, 70)), 0)


# Models


def regression(n=2000, d=4):
    X = np.random.default_rng(0).normal(size=(n, d))
    return X, np.sin(2 * X[:, 0] + X[:, 1]) + 0.1 * np.random.default_rng(1).normal(size=n)


@needs_torch
@pytest.mark.parametrize("preconditioned", [True, False])
@pytest.mark.parametrize("batch_size", [2000, 600])  # rows that come again, and others
def test_doubly_stochastic_gradients_give_the_same_model(preconditioned, batch_size):
    X, y = regression()
    found = []
    for name in ("cpu", "torch"):
        solver = DSG(block_size=64, batch_size=batch_size, preconditioned=preconditioned)
        model = KernelRegressor(
            solver=solver, gamma=0.3, alpha=1e-5, max_iter=12, random_state=0, device=name
        )
        found.append(model.fit(X, y).predict(X))
    assert np.std(y - found[0]) < 0.95 * np.std(y)  # something was learned
    assert 0 < np.abs(found[1] - found[0]).max() < 2e-5 * np.std(y)


def descended(name, X, y, cls=KernelRegressor, loss="squared", max_iter=6, **options):
    solver = CachedBlockDescent(**options)
    model = cls(
        solver=solver, loss=loss, gamma=0.3, alpha=1e-4, max_iter=max_iter, random_state=0,
        device=name,
    )  # fmt: skip
    return model.fit(X, y)


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(block_descent, "SHARD", 700)


@needs_torch
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "hinge"])
def test_blocks_of_features_give_the_same_model(loss, small_shards):
    X, y = regression()
    cls = KernelClassifier if loss in ("logistic", "hinge") else KernelRegressor
    if cls is KernelClassifier:
        y = np.digitize(y, [-0.5, 0.5])
    cpu, there = (
        descended(name, X, y, cls, loss, blocks="features", block_size=128)
        for name in ("cpu", "torch")
    )
    f, g = (model.expansion_.raw_prediction(X) for model in (cpu, there))
    assert 0 < np.abs(f - g).max() < 2e-4 * f.std()
    assert there.history_["audit"]["drift"] < 1e-4


@needs_torch
def test_blocks_of_rows_reach_the_same_minimum():
    """Half the mean square of f1 - f2 is at most twice the sum of their gaps."""
    X, y = regression(600)
    exact = KernelRegressor(solver="direct", gamma=0.3, alpha=1e-4).fit(X, y)
    model = descended("torch", X, y, max_iter=30)
    residual = exact.predict(X) - y
    e = exact.expansion_
    f = e.exact.products(e.support, e.support, e.coef)
    least = 0.5 * np.mean(residual**2) + 0.5e-4 * float((e.coef * f).sum())
    gap = model.history_["objective"][-1] - least
    assert -1e-6 * least < gap < 1e-4 * least
    square = np.mean((model.predict(X) - exact.predict(X)) ** 2)
    assert 0.5 * square <= 2 * max(gap, 1e-6 * least)


@needs_torch
def test_several_blocks_of_rows_go_as_far(small_shards):
    X, y = regression()
    cpu, there = (descended(name, X, y, block_size=200) for name in ("cpu", "torch"))
    first, last = cpu.history_["objective"][0], cpu.history_["objective"][-1]
    assert abs(there.history_["objective"][-1] - last) < 0.1 * (first - last) + 0.02 * last
    assert there.history_["audit"]["drift"] < 1e-3


@needs_torch
def test_a_fit_is_the_same_again():
    X, y = regression()
    first, second = (descended("torch", X, y, block_size=200) for _ in range(2))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))


@needs_torch
@pytest.mark.parametrize("blocks", ["support", "features"])
def test_little_memory_on_the_device_changes_no_bit(torch_cpu, blocks, small_shards):
    X, y = regression()
    found = []
    for memory in (None, 0):
        torch_cpu.memory = memory
        model = descended("torch", X, y, blocks=blocks, block_size=128)
        found.append(model.predict(X))
    np.testing.assert_array_equal(*found)


@needs_torch
def test_rows_of_a_file_on_the_device(tmp_path, small_shards):
    X, y = regression()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    source = open_npy(tmp_path / "X.npy", tmp_path / "y.npy")
    source.in_memory = False
    solver = CachedBlockDescent(blocks="features", block_size=128)
    options = {"gamma": 0.3, "alpha": 1e-4, "max_iter": 6, "random_state": 0}
    cpu, there = (
        KernelRegressor(solver=solver, device=name, memory_limit=1000.0, **options).fit(source)
        for name in ("cpu", "torch")
    )
    assert 0 < np.abs(there.predict(X) - cpu.predict(X)).max() < 2e-4 * y.std()


@needs_torch
def test_auto_on_a_device_is_block_descent():
    X, y = regression(300)
    model = KernelRegressor(gamma=0.3, alpha=1e-4, device="torch", max_iter=3).fit(X, y)
    assert model.solver_.name == "cached"
    assert "device='torch'" in model.history_["solver_reason"]


@needs_torch
@pytest.mark.parametrize("solver", ["cached", "dsg"])
def test_a_fit_goes_on_elsewhere(solver):
    X, y = regression()
    found = []
    for name in ("cpu", "torch"):
        model = KernelRegressor(
            solver=solver, gamma=0.3, alpha=1e-4, max_iter=3, random_state=0, warm_start=True
        )
        model.fit(X, y).set_params(max_iter=5, device=name).fit(X, y)
        found.append(model.expansion_.raw_prediction(X))
    assert model.expansion_.exact.device == "torch" if solver == "cached" else True
    assert 0 < np.abs(found[1] - found[0]).max() < (0.05 if solver == "cached" else 1e-4)


@needs_torch
def test_searches_are_those_of_the_cpu(monkeypatch):
    X, y = regression(300)
    seen = []
    study = KernelRegressor._study

    def watched(self, wanted, rows, problem, *options):
        seen.append(problem.device)
        return study(self, wanted, rows, problem, *options)

    monkeypatch.setattr(KernelRegressor, "_study", watched)
    cpu, there = (
        KernelRegressor(solver="dsg", max_iter=3, random_state=0, device=name).fit(X, y)
        for name in ("cpu", "torch")
    )
    assert seen == ["cpu", "cpu"]
    assert there.alpha_ == cpu.alpha_
    assert there.kernel_.gamma == cpu.kernel_.gamma
    np.testing.assert_array_equal(there.metric_, cpu.metric_)
    f = cpu.predict(X)
    assert 0 < np.abs(there.predict(X) - f).max() < 1e-4 * f.std()  # the fit is not the CPU's


@needs_torch
@pytest.mark.parametrize("cls", [KernelNoveltyDetector, KernelDensityRatio])
def test_estimators_without_targets(cls):
    X = regression(400)[0]
    y = (np.arange(400) % 2,) if cls is KernelDensityRatio else ()
    found = [
        cls(solver="dsg", gamma=0.5, max_iter=3, random_state=0, device=name)
        .fit(X, *y)
        .expansion_.raw_prediction(X)
        for name in ("cpu", "torch")
    ]
    np.testing.assert_allclose(found[1], found[0], atol=1e-4 * np.abs(found[0]).max())


@needs_torch
@pytest.mark.parametrize("solver", ["newton", "dsg"])
def test_a_fitted_model_predicts_anywhere(solver, tmp_path):
    X, y = regression(500)
    model = KernelRegressor(solver=solver, gamma=0.3, alpha=1e-4, max_iter=9, random_state=0)
    expected = model.fit(X, y).predict(X)
    there = model.set_params(device="torch").predict(X)
    assert 0 < np.abs(there - expected).max() < 1e-5
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(twin.predict(X), there)
    model.save(tmp_path / "model")
    loaded = kernelgrad.load(tmp_path / "model")
    assert loaded.device == "torch"
    np.testing.assert_array_equal(loaded.predict(X), there)
    np.testing.assert_array_equal(model.set_params(device="cpu").predict(X), expected)
    assert clone(loaded).device == "torch"


def test_a_model_of_a_gpu_predicts_without_one(tmp_path, torch_is):
    """On the CPU, with one warning; a fit is refused."""
    X, y = regression(100)
    model = KernelRegressor(gamma=0.3, alpha=1e-4, random_state=0).fit(X, y)
    expected = model.predict(X)
    model.set_params(device="cuda").save(tmp_path / "model")
    torch_is(None)
    loaded = kernelgrad.load(tmp_path / "model")
    with pytest.warns(UserWarning, match="on the CPU: device='cuda' needs torch"):
        np.testing.assert_array_equal(loaded.predict(X), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(loaded.predict(X), expected)
    assert device_or_cpu("cuda") == "cpu"
    with pytest.raises(CapabilityError, match="needs torch"):
        loaded.fit(X, y)
