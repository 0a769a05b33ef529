import hashlib
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl

from cases import every, raises
from kernelgrad.compute import elementary, lapack, linalg, rng, threads
from kernelgrad.compute.threads import parallel_for, set_num_threads, single_threaded_blas
from steps import draw

# Digests of variates from two places on: a model file holds the seed in place of features
LAWS = {
    "normal": ("0eaa88a71ff00b36", "068fd9419f8bcb2a"),
    "cauchy": ("b317fa708ab67206", "3d72ed4b93a265fd"),
    "laplace": ("008368824b6ce65a", "0df92ec31b17232f"),
    "sech": ("dd051021bdb3244b", "9604c567cf20a4b7"),
    "levy": ("78a1a9e5b3f6843a", "efeeddf32478ea44"),
    "exponential": ("3b61ea92212e5c25", "d1466ea3f5ac920c"),
    "rademacher": ("8036dbc402d4f00c", "7dcaf3e53265161d"),
}


def digest(a):
    return hashlib.blake2b(np.ascontiguousarray(a), digest_size=8).hexdigest()


def test_draws_keep_their_bits():
    for law, (first, later) in LAWS.items():
        assert digest(draw(law, seed=2**40 + 9)) == first
        assert digest(draw(law, seed=2**40 + 9, first=2**32 - 300)) == later
    phases = rng.phases(3, 2**32 - 100, 4096)
    assert digest(phases) == "fd7269c8f5994da0"
    assert -0.5 <= phases.min() < phases.max() < 0.5
    assert digest(rng.uniforms(1, 0, 4096, rng.TAG_AUXILIARY)) == "b8fa4e8eff4988d1"


@pytest.mark.parametrize("law", ["normal", "cauchy", "laplace"])
def test_columns_tiles_and_first_only_select(law):
    full = draw(law, n_tiles=4, d=13, tile=64)
    for columns in ([0, 3, 4, 9, 12], [5, 6]):
        some = draw(law, n_tiles=4, columns=columns, tile=64)
        np.testing.assert_array_equal(some, full[:, columns])
    flat = full.transpose(1, 0, 2).reshape(13, 256)
    np.testing.assert_array_equal(draw(law, n_tiles=1, d=13)[0], flat)
    np.testing.assert_array_equal(
        draw(law, n_tiles=1, d=13, first=100, tile=50)[0], flat[:, 100:150]
    )
    np.testing.assert_array_equal(draw(law, n_tiles=4, d=13, tile=64, scale=0.25), full / 4)
    assert not np.isin(draw(law, seed=6, n_tiles=4, d=13, tile=64), full).mean() > 0.01


def test_cos_sin_turns_error():
    t = np.linspace(-0.5, 0.5, 2**20 + 1).astype(np.float32)
    c, s = t.copy(), np.empty_like(t)
    elementary.cos_sin_turns(c, s)
    angle = 2 * np.pi * t.astype(float)
    assert np.abs(c - np.cos(angle)).max() < 2.5e-7
    assert np.abs(s - np.sin(angle)).max() < 2.5e-7


def test_reduction_of_large_turns_is_exact():
    fraction = np.arange(-512, 512) / 1024
    for whole in (0, 1, -1, 77, 4096, -8191):
        t = (whole + fraction).astype(np.float32)
        small = fraction.astype(np.float32)
        assert np.array_equal(t.astype(float), whole + fraction)
        c, s, c0, s0 = t.copy(), t.copy(), small.copy(), small.copy()
        elementary.cos_sin_turns(c, s)
        elementary.cos_sin_turns(c0, s0)
        np.testing.assert_array_equal(c, c0)
        inside = np.abs(fraction) < 0.5  # at half a turn sin is 0 up to sign
        np.testing.assert_array_equal(s[inside], s0[inside])
        assert np.abs(s).max() <= 1 + 2.5e-7
    for bad in (np.nan, np.inf, -np.inf):
        t = np.array([bad, 0.25, 0.0], np.float32)
        s = np.empty_like(t)
        elementary.cos_sin_turns(t, s)
        np.testing.assert_allclose([t, s], [[np.nan, 0, 1], [np.nan, 1, 0]], atol=1e-6)


@every("index_dtype", [np.int32, np.int64])
def test_csr_times_tile_against_scipy(index_dtype):
    g = np.random.default_rng(0)
    D = g.standard_normal((50, 30)) * (np.arange(30) < np.arange(50)[:, None] % 10)
    X = sp.csr_matrix(D.astype(np.float32))
    X.data[3] = 0  # stored zero
    X.indices, X.indptr = X.indices.astype(index_dtype), X.indptr.astype(index_dtype)
    W = g.standard_normal((30, 20)).astype(np.float32)
    reverse = X.copy()
    for i in range(50):  # columns out of order within a row
        part = slice(reverse.indptr[i], reverse.indptr[i + 1])
        reverse.indices[part] = reverse.indices[part][::-1].copy()
        reverse.data[part] = reverse.data[part][::-1].copy()
    for S in (X, reverse):
        out = np.full((45, 20), np.nan, np.float32)
        linalg.csr_times_tile(S.indptr, S.indices, S.data, 3, 48, W, out)
        np.testing.assert_allclose(out, X[3:48] @ W, atol=1e-5)


@every("m", [1, 127, 128, 129, 300])
def test_gram_is_the_lower_triangle(m):
    P = np.random.default_rng(m).standard_normal((90, m)).astype(np.float32)
    results = []
    for n_threads in (1, 2):
        set_num_threads(n_threads)
        with single_threaded_blas():
            results.append(linalg.gram(P[50:], linalg.gram(P[:50])))  # adds to what is there
    assert results[0].dtype == np.float64
    np.testing.assert_array_equal(*results)
    exact = P.T.astype(float) @ P.astype(float)
    np.testing.assert_allclose(np.tril(results[0]), np.tril(exact), atol=1e-4)


def test_damped_systems_have_a_floor():
    floor = 1.0 / linalg.solve_damped(np.diag([1.0, 0.0]), 0.0, np.ones((2, 1)))[1, 0]
    assert floor == pytest.approx(np.finfo(np.float32).eps)  # rounding of float32 products
    assert np.isfinite(linalg.solve_damped(np.diag([1.0, -1e-5]), 0.0, np.ones((2, 1)))).all()


def test_a_damped_factor_keeps_what_it_is_of():
    g = np.random.default_rng(0)
    P = g.standard_normal((300, 200))
    H, ridge = P.T @ P, np.linspace(0.1, 1.0, 200)
    before = H.copy()
    L, damping = linalg.damped_cholesky(H, 2.0, ridge=ridge)
    np.testing.assert_array_equal(H, before)
    assert damping == 2.0
    assert not np.triu(L, 1).any()
    np.testing.assert_allclose(L @ L.T, H + np.diag(ridge + 2.0), rtol=1e-12, atol=1e-10)
    again, _ = linalg.damped_cholesky(np.tril(H), 2.0, ridge=ridge, in_place=True)
    np.testing.assert_array_equal(np.tril(again), L)
    for indefinite in (np.diag([1.0, -1e-7]), np.zeros((2, 2))):
        L, damping = linalg.damped_cholesky(indefinite)
        np.testing.assert_allclose(L @ L.T, indefinite + damping * np.eye(2))
        assert damping <= 1e-6
    with pytest.raises(FloatingPointError, match="far from positive"):
        linalg.damped_cholesky(np.array([[1.0, 1e9], [1e9, 1.0]]))


def test_conjugate_gradients_solve_independent_systems():
    g = np.random.default_rng(0)
    P = g.standard_normal((60, 40))
    A, B = P.T @ P, g.standard_normal((4, 40))
    B[1] = 0.0

    def inner(u, v):
        return (u * v).sum(axis=1, keepdims=True)

    def product(p):
        q = p @ A
        q[3] = 0.0  # the fourth system is singular
        return q, inner(p, q)

    def precondition(x, r):
        return None if (abs(r[:3]) < 1e-12).all() else (r / 60, inner(r, r / 60))

    x = linalg.conjugate_gradients(product, precondition, B, 200)
    np.testing.assert_allclose(x[:3] @ A, B[:3], atol=1e-10)
    assert not x[[1, 3]].any()


def test_steps_are_shortened_until_they_gain():
    curvature = np.array([1.0, 5.0, 1e30])  # objectives x^2 / 2, from x = 1 in direction -1
    steps = linalg.backtracked(lambda s: s - curvature * s**2 / 2, np.ones(3), 0.1)
    np.testing.assert_array_equal(steps, [1.0, 0.25, 0.0])


@every("n_threads", [1, 2, 5])
def test_every_task_runs_once_and_exceptions_leave_the_pool_alive(n_threads):
    set_num_threads(n_threads)

    def task(i):
        if i == 3:
            raise ZeroDivisionError("task 3")

    for _ in range(3):
        raises(ZeroDivisionError, "task 3", parallel_for, 10, task)
    for n_tasks in (0, 1, 2, 100):
        seen = []
        parallel_for(n_tasks, seen.append)
        assert sorted(seen) == list(range(n_tasks))
    where = set()
    parallel_for(2, lambda i: where.add((time.sleep(0.03), threading.get_ident())))
    assert n_threads > 1 or where == {(None, threading.get_ident())}


def test_no_task_is_left_running_after_an_exception():
    set_num_threads(3)
    barrier = threading.Barrier(3)
    running = []

    def task(i):
        barrier.wait(10)
        name = threading.current_thread().name
        if name.endswith("_0"):
            raise ZeroDivisionError
        if name.endswith("_1"):
            running.append(i)
            time.sleep(0.05)
            running.remove(i)

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            parallel_for(3, task)
        assert not running
        time.sleep(0.1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which Windows lacks")
def test_parallel_for_inside_a_forked_child():
    set_num_threads(2)
    parallel_for(4, lambda i: time.sleep(0.001))  # the parent's pool has threads
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        seen = []
        with single_threaded_blas():
            parallel_for(8, seen.append)
        os._exit(0 if sorted(seen) == list(range(8)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_number_of_threads(monkeypatch):
    monkeypatch.delenv("KERNELGRAD_NUM_THREADS", raising=False)
    default = threads.get_num_threads()
    assert 1 <= default <= os.cpu_count()
    monkeypatch.setenv("KERNELGRAD_NUM_THREADS", "7")
    assert threads.get_num_threads() == 7
    set_num_threads(3)
    assert threads.get_num_threads() == 3
    with threads.at_most(2), threads.at_most(9):
        assert threads.get_num_threads() == 2
    set_num_threads(None)
    assert threads.get_num_threads() == 7
    for bad in ("0", "-1", "two", "1.5", ""):
        monkeypatch.setenv("KERNELGRAD_NUM_THREADS", bad)
        raises(ValueError, f"KERNELGRAD_NUM_THREADS must be .*{bad!r}", threads.get_num_threads)
    for bad, error, message in ((0, ValueError, "at least 1"), (1.5, TypeError, "an integer")):
        raises(error, f"n_threads must be {message}", set_num_threads, bad)


def blas_threads():
    return {
        i["num_threads"] for i in threadpoolctl.threadpool_info() if i["user_api"] == "blas"
    }


def test_single_threaded_blas_nests_and_restores():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("needs a BLAS of several threads; this one has one")
        with single_threaded_blas():
            assert blas_threads() == {1}
            with single_threaded_blas():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}
        with pytest.raises(ZeroDivisionError), single_threaded_blas():
            raise ZeroDivisionError
        assert blas_threads() == {2}
        with ThreadPoolExecutor(1) as pool:  # a thread that has set no limits before
            assert pool.submit(limited_and_after).result() == ({1}, {2})
        with single_threaded_blas():
            assert blas_threads() == {1}


def limited_and_after():
    with single_threaded_blas():
        inside = blas_threads()
    return inside, blas_threads()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_row_hashes_see_values_alone(dtype, monkeypatch):
    X = np.random.default_rng(0).integers(-1, 2, (60, 7)).astype(dtype)
    X[3] = 0
    X = np.concatenate([X, -(-X + 0.0), X[:, ::-1]])
    X[63] = -0.0
    hashes = linalg.row_hashes(X)
    pairs = (X[:, None] == X[None]).all(axis=2)
    np.testing.assert_array_equal(hashes[:, None] == hashes[None], pairs)
    sparse = sp.csr_matrix(X)
    sparse.data[5] = 0  # stored, and no other row
    dense = linalg.row_hashes(sparse.toarray())
    for step in (1, 50, 10**6):
        monkeypatch.setattr(linalg, "_HASHED", step)
        np.testing.assert_array_equal(linalg.row_hashes(np.asfortranarray(X)), hashes)
        np.testing.assert_array_equal(linalg.row_hashes(sparse), dense)
        np.testing.assert_array_equal(linalg.row_hashes(sparse[20:40]), dense[20:40])
    assert len(linalg.row_hashes(X[:0])) == 0


def test_a_blas_that_is_loaded_later_has_one_thread_too():
    code = """
from kernelgrad.compute.threads import single_threaded_blas
with single_threaded_blas():
    pass
import threadpoolctl
import scipy.linalg
with single_threaded_blas():
    hashes = threadpoolctl.threadpool_info()
print({library["num_threads"] for library in hashes if library["user_api"] == "blas"})
"""
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{1}"


FAULTS = """
import resource
import numpy as np
from kernelgrad.compute.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(2**18)  # 512 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs malloc of glibc")
def test_freed_memory_is_kept_where_a_nanny_wants_it_back():
    environment = os.environ | {"MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", FAULTS]
    output = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    before, after = map(int, output.split())
    assert before > 20 * 400
    assert after < before / 10


def test_loops_within_a_task_run_in_its_thread():
    set_num_threads(2)
    assert set(threads.parallel_map(lambda _: threads.get_num_threads(), range(8))) == {1}
    assert threads.get_num_threads() == 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "whole"), [(60, 800), (301, 50), (301, 150)])
def test_upper_triangles_are_factored_inverted_and_solved(monkeypatch, dtype, m, whole):
    monkeypatch.setattr(lapack, "_WHOLE", whole)
    rng = np.random.default_rng(0)
    A = rng.standard_normal((m, m))
    A, B = (A @ A.T + m * np.eye(m)).astype(dtype), rng.standard_normal((m, 3))
    below = np.tril(rng.standard_normal((m, m)).astype(dtype), -1)
    R = np.triu(A) + below
    assert lapack.factor(R)
    np.testing.assert_array_equal(np.tril(R, -1), below)
    tolerance = 1e3 * np.finfo(dtype).eps / m
    np.testing.assert_allclose(lapack.solve(R, B), np.linalg.solve(A, B), atol=tolerance)
    assert lapack.invert(R)
    np.testing.assert_allclose(np.triu(R), np.triu(np.linalg.inv(A)), atol=tolerance)
    assert not lapack.factor(A - 1e3 * m * np.eye(m, dtype=dtype))
    for i in (0, m - 1):
        bad = A.copy()
        bad[i, i] = 0.0
        assert not lapack.factor(bad)
