"""A second device by torch: bounds, sums, fits, predictions, errors.

What needs torch is skipped where it is not installed; with a GPU it is tested there, too.
"""

import sys
import types

import numpy as np
import pytest

import kernelgrad
from cases import every, raises
from kernelgrad import KernelClassifier, KernelRegressor, kernels
from kernelgrad.compute.backend import device_or_cpu
from kernelgrad.device import backend as devices
from kernelgrad.device.backend import SUB, DeviceBlockMatrix, DeviceRows, get_device
from kernelgrad.exceptions import CapabilityError
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.features import FeatureStream
from kernelgrad.kernels import KERNELS, Cauchy, Gaussian, Laplacian, Matern, Polynomial
from kernelgrad.solvers import DSG

try:
    import torch
except ImportError:
    torch = None

if torch is not None:
    torch.set_num_threads(1)  # more would fight with this package for the same cores
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
HERE = ["torch", "cuda"] if torch is not None and torch.cuda.is_available() else ["torch"]
U = 2.0**-24  # unit roundoff of float32
OPTIONS = {"gamma": 0.3, "alpha": 1e-4, "random_state": 0}


def gamma(m):
    return m * U / (1 - m * U)


def rows_of(n, d, seed=0):
    return np.abs(np.random.default_rng(seed).normal(size=(n, d)))


def regression(n=2000, d=4):
    X = np.random.default_rng(0).normal(size=(n, d))
    return X, np.sin(2 * X[:, 0] + X[:, 1]) + 0.1 * np.random.default_rng(1).normal(size=n)


@pytest.fixture(params=HERE)
def name(request):
    return request.param


@pytest.fixture
def device(name, monkeypatch):
    """The device, with a budget of its own for each test."""
    device = get_device(name)
    monkeypatch.setattr(device, "memory", None)
    return device


@pytest.fixture
def torch_is(monkeypatch):
    """Return a function that puts something in the place of torch; None is nothing."""
    monkeypatch.setattr(devices, "_devices", {})
    monkeypatch.setattr("kernelgrad.compute.backend._missing", set())
    return lambda fake: monkeypatch.setitem(sys.modules, "torch", fake)


def values_of(name, kernel, X, Z, wide=False):
    """Return the values on the CPU and on a device, and the rows prepared for the CPU."""
    found = []
    for where in ("cpu", name):
        exact = ExactKernel(kernel, X.shape[1], wide=wide)
        exact.device = where
        A, B = exact.prepare(X), exact.prepare(Z)
        found.append(exact.products(A, B, np.eye(len(Z))))
    return *found, A, B


# Names and errors


@every("unknown", ["gpu", "cuda:", "cuda:x", "torch:1", "CPU", ""])
def test_unknown_names_are_refused(unknown):
    raises(ValueError, r"Unknown device .*choose 'cpu', 'cuda'", get_device, unknown)
    assert get_device("cpu") is None


@pytest.mark.parametrize(
    ("gpu", "gpus", "message"),
    [
        ("cuda", None, r"install kernelgrad\[torch\]"),
        ("cuda", 0, "needs a GPU that torch can use"),
        ("cuda:3", 2, r"finds 2 GPU\(s\)"),
    ],
)
def test_without_torch_or_the_gpu_the_error_says_so(torch_is, gpu, gpus, message):
    cuda = types.SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus)
    torch_is(None if gpus is None else types.SimpleNamespace(cuda=cuda, __version__="0"))
    with pytest.raises(CapabilityError, match=message):
        KernelClassifier(device=gpu).fit(rows_of(9, 2), [0, 1, 1] * 3)


@needs_torch
@every(
    ("params", "message"),
    [
        ({"solver": "sdca"}, r"solver 'sdca' runs on the CPU only.*'block_descent'"),
        ({"kernel": lambda A, B: A @ B.T}, "exact callable kernel .* has no form"),
        (
            {"solver": "block_descent", "kernel": Matern(0.7)},
            "exact matern kernel .* has no form",
        ),
        ({"solver": "dsg", "kernel": "polynomial"}, "random features of the polynomial kernel"),
        ({"solver": "dsg", "kernel": Gaussian(1.0) + Laplacian(1.0)}, "of the sum kernel"),
    ],
)
def test_what_a_device_cannot_do_is_refused(name, params, message):
    model, X = KernelClassifier(device=name, **params), rows_of(30, 2)
    with pytest.MonkeyPatch.context() as patch:
        if "solver" in params:  # before any work
            target = "kernelgrad.estimators.base.fit"
            patch.setattr(target, lambda *args, **options: pytest.fail("works"))
        raises(CapabilityError, message, model.fit, X, [0, 1, 1] * 10)


# Values


def distance_bound(d, K, A, B):
    return 2 * gamma(d + 3) * np.add.outer(A.square, B.square) + 8 * U


def cubic_bound(d, K, A, B):
    size = np.outer(*(np.linalg.norm(r.values, axis=1) for r in (A, B)))
    return 2 * gamma(d + 4) * size * 3 * (size + 1) ** 2 + 8 * U * (size + 1) ** 3


BOUNDS = [
    (lambda d: Gaussian(0.5 / d), distance_bound),
    (lambda d: Matern(1.5, 0.5 / d), distance_bound),
    (lambda d: Matern(2.5, 0.5 / d), distance_bound),
    (lambda d: Laplacian(0.5 / d), lambda d, K, A, B: gamma(d + 4) + 8 * U),
    (lambda d: Cauchy(d**-0.5), lambda d, K, A, B: 2 * gamma(4 * d + 8) * K),
    (lambda d: Polynomial(3, 1 / d), cubic_bound),
]


@needs_torch
@every("d", [1, 7, 130])
@every(("kernel", "bound"), BOUNDS)
def test_values_keep_the_bounds_of_the_documentation(name, d, kernel, bound):
    X, Z = rows_of(300, d), rows_of(90, d, 1)
    Z[:40] = X[:40]
    K, values, A, B = values_of(name, kernel(d), X, Z)
    largest = bound(d, K, A, B)
    assert (np.abs(K - values) <= largest).all()
    assert np.max(largest) < 1e-3 * np.abs(K).max()  # says something


RESOLVED = [
    kernels.DotProduct("exponential", 0.1), kernels.DotProduct("vovk", 0.02),
    kernels.DotProduct([1, 2, 0, 0.5], 0.1), kernels.ArcCosine(0),
    kernels.ArcCosine(1, bias=0.5), kernels.ArcCosine(2), kernels.Chi2(),
    kernels.Intersection(), kernels.JensenShannon(), kernels.Hellinger(),
    kernels.ExponentialSemigroup(0.1), kernels.ReciprocalSemigroup(40.0),
    kernels.SkewedChi2(), kernels.SkewedIntersection(), Matern(0.5, 0.1),
    kernels.RootLaplacian(0.1), kernels.RootLaplacian(0.1, column_weights=[1, 0.5] * 4),
    Gaussian(0.1) * Laplacian(0.1), 0.5 * Gaussian(0.1) + 2.0 * Polynomial(2, 0.1),
]  # fmt: skip


@needs_torch
@every("kernel", RESOLVED)
def test_values_of_all_other_forms(name, kernel):
    X, Z = rows_of(150, 8), rows_of(40, 8, 1)
    X[::3, 2] = Z[::2, 5] = 0.0
    wide = kernel.needs_wide(X)
    K, values, *_ = values_of(name, kernel, X, Z, wide)
    # eight columns in float32, in another order
    np.testing.assert_allclose(values, K, rtol=2e-6, atol=2e-6)
    other = values_of(name, kernel, X, Z, not wide)[1]  # float64 rows or float32 ones
    np.testing.assert_allclose(other, K, rtol=1e-5, atol=2e-3)


def test_no_kernel_is_forgotten():
    tested = {type(k) for k in RESOLVED} | {Gaussian, Laplacian, Cauchy, Matern, Polynomial}
    names = {name for name, cls in KERNELS.items() if cls not in tested}
    assert names <= {"convolutional", "callable", "precomputed", "sum", "product"}


# Blocks


@needs_torch
def test_sums_over_many_rows_are_float64(device):
    n = 40 * SUB
    ones = DeviceRows(device, [np.ones((n, 1), np.float32)])
    matrix = DeviceBlockMatrix(ones, 1, lambda tensors: tensors[0])
    R = np.full((1, n), np.float32(0.1))
    R[0, 0] = 2.0**40  # beside it sums over SUB rows are lost in float32
    expected = R.astype(np.float64).sum()
    assert abs(matrix.product(R)[0, 0] - expected) < 0.1 * SUB + 2


@needs_torch
def test_what_stays_or_is_sent_in_chunks_changes_no_bit(device, monkeypatch):
    n, width, d = 9 * SUB + 11, 40, 6
    monkeypatch.setitem(devices._TILE_BYTES, device.where.type, 4 * SUB * width)
    monkeypatch.setattr(devices, "_CHUNK_BYTES", 4 * d * 2 * SUB)
    X = np.random.default_rng(3).normal(size=(n, d)).astype(np.float32)
    R = np.random.default_rng(0).normal(size=(2, n)).astype(np.float32)
    Z, results = device.put(X[:width]), []
    for memory in (10**9, 4 * n * d, 0):  # all stays; rows do; nothing does
        device.memory = memory
        rows = DeviceRows(device, [X])
        matrix = DeviceBlockMatrix(rows, width, lambda tensors: (tensors[0] @ Z.T).cos())
        out = np.empty((2, n), np.float32)
        first = matrix.product(R)
        matrix.responses(R[:, :width].copy(), out)
        assert (matrix.product(R) == first).all()
        assert matrix.n_tiles_made == (1 if memory == 10**9 else 3)
        results.append((first, out))
    K = np.cos(X.astype(float) @ X[:width].T)
    (products, responses), *others = results
    np.testing.assert_allclose(products, R.astype(float) @ K, atol=1e-5 * np.abs(R).sum())
    np.testing.assert_allclose(responses, R[:, :width] @ K.T, atol=1e-4)
    assert all((p == products).all() and (r == responses).all() for p, r in others)


@needs_torch
@every("before", ["highest", "medium"])
def test_products_are_full_float32_and_settings_are_set_back(device, before):
    parts = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)

    def settings():
        single = [getattr(part, "fp32_precision", None) for part in parts]
        return [*single, torch.get_float32_matmul_precision(), torch.is_grad_enabled()]

    at_first = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(before)
        outside = settings()
        kind = device.where.type
        with torch.autocast(kind, dtype=torch.bfloat16):
            with device.working():
                with device.working():
                    pass
                a = torch.full((64, 64), 1 + 2.0**-20, device=device.where)
                assert (a @ torch.eye(64, device=device.where) == a).all()  # no bit is lost
                assert {*settings()[:2]} <= {"ieee", None}
                assert settings()[0] or settings()[2] == "highest"  # torch before 2.9
                assert not settings()[3]
            assert torch.is_autocast_enabled(kind)
        assert settings() == outside
    finally:
        torch.set_float32_matmul_precision(at_first)


@needs_torch
def test_a_system_is_solved_if_it_is_positive_definite(device):
    A = np.random.default_rng(0).normal(size=(40, 40))
    H, G = A @ A.T, A[:, :2].astype(np.float32)
    expected = np.linalg.solve(H + 0.1 * np.eye(40), G)
    np.testing.assert_allclose(device.solve(H, 0.1, G), expected, rtol=1e-9, atol=1e-12)
    assert device.solve(H - 9 * np.eye(40), 0.1, G) is None


# Random features

MAPS = [
    Gaussian(0.1), Gaussian(0.1, form="phase"), Laplacian(0.1), Cauchy(0.3), Matern(1.5, 0.1),
    kernels.ArcCosine(1, bias=0.5), kernels.Hellinger(), kernels.ExponentialSemigroup(0.1),
    kernels.ReciprocalSemigroup(40.0), kernels.SkewedChi2(), Gaussian(0.1) * Laplacian(0.1),
]  # fmt: skip


def both_streams(name, *args):
    streams = [FeatureStream(*args) for _ in range(2)]
    streams[1].device = name
    return streams


def assert_close(pairs):
    for name, (expected, found) in pairs.items():
        if name == "H":
            expected, found = np.tril(expected), np.tril(found)
        close = 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=close, err_msg=name)


def moments(streams, X, *args):
    results = zip(*(s.moments(X, *args) for s in streams), strict=True)
    return dict(zip(("H", "penalty", "moment"), results, strict=True))


@needs_torch
@every("kernel", MAPS)
def test_features_and_their_sums(name, kernel):
    n, d, size = 700, 5, 96
    streams = both_streams(name, kernel, d, 7, size)
    X, rng = streams[0].prepare(rows_of(n, d)), np.random.default_rng(0)
    R = rng.normal(size=(n, 2)).astype(np.float32)
    root = rng.uniform(0.01, 0.05, size=(n, 1)).astype(np.float32)
    planes = streams[0].planes
    coef = np.zeros((planes, streams[0].map.capacity(3), 2), np.float32)
    coef[:, : 3 * size] = rng.normal(size=(planes, 3 * size, 2))
    f = np.zeros((2, n, 2), np.float32)
    for stream, out in zip(streams, f, strict=True):
        stream.predict(X, coef, 3, out)
    assert_close({
        "predict": f,
        "transform": [s.transform(X, 1) for s in streams],
        "gradient": [s.gradient(X, R, 1) for s in streams],
        **moments(streams, X, 1, root, 3, R, R),
    })  # fmt: skip


@needs_torch
def test_rows_of_the_covariance_are_counted_through_all_tiles(device, monkeypatch):
    monkeypatch.setitem(devices._TILE_BYTES, device.where.type, 0)
    n, stride = 2 * SUB + 50, 5
    streams = both_streams(device.name, Gaussian(0.1), 3, 7, 32)
    root = np.full((n, 1), n**-0.5, np.float32)
    root[stride * 400 :: stride] *= 9  # rows that a tile of SUB rows, no multiple, would miss
    X = streams[0].prepare(rows_of(n, 3))
    assert_close(moments(streams, X, 0, root, stride, root, root))


# Models


@needs_torch
def test_features_give_the_same_model(name):
    X, y = regression()
    solver = DSG(block_size=64, batch_size=600)
    f, g = (
        KernelRegressor(loss="squared", device=where, solver=solver, max_iter=6, **OPTIONS)
        .fit(X, y)
        .expansion_.raw_prediction(X)
        for where in ("cpu", name)
    )
    assert 0 < np.abs(f - g).max() < 2e-5 * f.std()


@needs_torch
def test_blocks_of_rows_reach_the_same_minimum(name):
    """Half the mean square of f1 - f2 is at most twice the sum of their gaps."""
    X, y = regression(600)
    exact = KernelRegressor(solver="direct", **OPTIONS).fit(X, y)
    model = KernelRegressor(device=name, max_iter=30, **OPTIONS).fit(X, y)
    assert model.solver_.name == "block_descent"
    assert f"device={name!r}" in model.history_["solver_reason"]
    residual = exact.predict(X) - y
    e = exact.expansion_
    f = e.exact.products(e.support, e.support, e.coef)
    least = 0.5 * np.mean(residual**2) + 0.5e-4 * float((e.coef * f).sum())
    gap = model.history_["objective"][-1] - least
    assert -1e-6 * least < gap < 1e-4 * least
    square = np.mean((model.predict(X) - exact.predict(X)) ** 2)
    assert 0.5 * square <= 2 * max(gap, 1e-6 * least)


@needs_torch
@every("solver", ["block_descent", "dsg"])
def test_a_repeated_fit_gives_the_same_bits(name, solver):
    X, y = regression(3000)
    model = KernelRegressor(solver=solver, device=name, max_iter=6, **OPTIONS)
    np.testing.assert_array_equal(model.fit(X, y).predict(X), model.fit(X, y).predict(X))


@needs_torch
@every("solver, rounding", [("newton", 1e-12), ("dsg", 1e-5)])
def test_a_fitted_model_predicts_anywhere(name, solver, rounding, tmp_path):
    """Large slopes of both signs need float64 kernel values, on each device."""
    X, y = regression(500)
    model = KernelRegressor(solver=solver, max_iter=9, **OPTIONS)
    expected = model.fit(X, y).predict(X)
    there = model.set_params(device=name).predict(X)
    assert 0 < np.abs(there - expected).max() < rounding
    model.save(tmp_path / "model")
    loaded = kernelgrad.load(tmp_path / "model")
    assert loaded.device == name
    np.testing.assert_array_equal(loaded.predict(X), there)
    np.testing.assert_array_equal(model.set_params(device="cpu").predict(X), expected)


def test_a_model_of_a_gpu_predicts_without_one(tmp_path, torch_is):
    """On the CPU, with one warning; a fit is refused."""
    X, y = regression(100)
    model = KernelRegressor(**OPTIONS).fit(X, y)
    expected = model.predict(X)
    model.set_params(device="cuda").save(tmp_path / "model")
    torch_is(None)
    loaded = kernelgrad.load(tmp_path / "model")
    with pytest.warns(UserWarning, match="on the CPU: device='cuda' needs torch"):
        np.testing.assert_array_equal(loaded.predict(X), expected)
    np.testing.assert_array_equal(loaded.predict(X), expected)  # another would be an error
    assert device_or_cpu("cuda") == "cpu"
    raises(CapabilityError, "needs torch", loaded.fit, X, y)
