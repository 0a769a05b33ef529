"""Checks for parts that third parties write: pass your object, read the AssertionError."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from kernelgrad._typing import AnyArray, Float32Array, Float64Array, FloatArray, IntArray
from kernelgrad._validation import CapabilityError
from kernelgrad.features.base import FeatureMap, float32_rows
from kernelgrad.kernels import Gaussian, Kernel
from kernelgrad.losses import Hinge, Logistic, Loss, SquaredError, encode_labels
from kernelgrad.solvers import Problem, Solver, TrainBatch, check_capabilities

__all__ = ["KernelReport", "check_kernel", "check_loss", "check_solver"]

_ROWS = 40


def _require(condition: object, subject: Loss | Kernel, message: str) -> None:
    if not condition:
        raise AssertionError(f"{subject!r}: {message}")


def _loss_cases(loss: Loss, rng: np.random.Generator) -> Iterator[tuple[AnyArray, FloatArray]]:
    """Yield (y, f) in float64 for every task and number of outputs of the loss."""
    if "classification" in loss.tasks:
        for n_classes in (2, 3):
            codes = np.arange(_ROWS) * n_classes // _ROWS
            signs = encode_labels(codes, n_classes, loss).astype(np.float64)
            yield signs, 2.0 * rng.standard_normal(signs.shape)
    if "regression" in loss.tasks:
        for n_outputs in (1, 2) if loss.n_outputs is None else (loss.n_outputs,):
            y = 3.0 + rng.standard_normal((_ROWS, n_outputs))
            yield y, y + 2.0 * rng.standard_normal(y.shape)
    if loss.tasks & {"novelty", "density_ratio"}:
        sample = np.where(np.arange(_ROWS) < _ROWS // 2, 1.0, -1.0)[:, None]
        yield sample, 2.0 * rng.standard_normal(sample.shape)


def check_loss(loss: Loss, *, random_state: int = 0) -> None:
    """Check that a loss keeps the contract of `kernelgrad.losses.Loss`.

    On random data for each of its tasks, with one and with several outputs, this checks that

    - shapes are (n,), (n, C), (n,), (C,) and the dtype of ``f``, float32 or float64, is kept;
    - ``gradient`` agrees with central differences of ``value``: by convexity the difference
      quotient lies between the gradients at the two ends, also across a kink;
    - ``value`` is convex along lines and ``gradient`` monotone, and, where ``smoothness`` is a
      number L, ``|g(a) - g(b)| <= L |a - b|``;
    - ``curvature`` is finite and at least 0, and at most L;
    - no constant near ``intercept`` is better, and weights act as repeated rows;
    - ``|f| = 1e4`` gives finite results without warnings;
    - permuting rows permutes the results;
    - ``clone`` and ``get_params`` reproduce the loss;
    - ``directional_minimum`` is as good as a grid of steps, and 0 uphill.

    Parameters
    ----------
    loss : Loss
        The loss, with its hyper-parameters.
    random_state : int, default=0
        Seed of the random data, fixed so that a failure repeats.

    Raises
    ------
    AssertionError
        Naming the loss and the first property that fails.
    """
    _require(isinstance(loss, Loss), loss, "is not a kernelgrad.losses.Loss.")
    loss.check()
    rng = np.random.default_rng(random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            for y, f in _loss_cases(loss, rng):
                _check_arrays(loss, y, f, rng)
                _check_extremes(loss, y, f)
                _check_gradient(loss, y, f)
                _check_convexity(loss, y, f, rng)
                _check_intercept(loss, y, rng)
                _check_search(loss, y, f, rng)
        except Warning as warning:
            raise AssertionError(f"{loss!r}: warns: {warning}") from warning
    _check_params(loss, rng)


def _check_arrays(loss: Loss, y: AnyArray, f: FloatArray, rng: np.random.Generator) -> None:
    order = rng.permutation(len(y))
    for method, shape in (
        ("value", (len(y),)),
        ("gradient", f.shape),
        ("curvature", (len(y),)),
    ):
        call = getattr(loss, method)
        for dtype in (np.float32, np.float64):
            result = call(y, f.astype(dtype))
            _require(
                result.shape == shape and result.dtype == dtype,
                loss,
                f"{method} gives {result.shape} {result.dtype}, expected {shape} {dtype}.",
            )
        permuted = call(y[order], f[order])
        _require(
            np.allclose(permuted, result[order], rtol=1e-10, atol=1e-12),
            loss,
            f"{method} of permuted rows is not the permuted {method}.",
        )
    weight = loss.curvature(y, f)
    bound = np.inf if loss.smoothness is None else loss.smoothness * (1.0 + 1e-6)
    _require(
        np.all((weight >= 0.0) & (weight <= bound) & np.isfinite(weight)),
        loss,
        f"curvature spans [{weight.min():g}, {weight.max():g}], outside [0, {bound:g}].",
    )


def _check_extremes(loss: Loss, y: AnyArray, f: FloatArray) -> None:
    for dtype in (np.float32, np.float64):
        large = (1e4 * np.sign(f)).astype(dtype)
        for method in ("value", "gradient", "curvature"):
            result = getattr(loss, method)(y, large)
            _require(
                np.isfinite(result).all(),
                loss,
                f"{method} is not finite at |f| = 1e4, {dtype}.",
            )


def _check_gradient(loss: Loss, y: AnyArray, f: FloatArray) -> None:
    middle, step = loss.gradient(y, f), 1e-5
    scale = 1.0 + float(np.abs(loss.value(y, f)).max())
    for c in range(f.shape[1]):
        shift = step * (np.arange(f.shape[1]) == c)
        quotient = (loss.value(y, f + shift) - loss.value(y, f - shift)) / (2.0 * step)
        ends = loss.gradient(y, f - shift)[:, c], loss.gradient(y, f + shift)[:, c]
        for name, slope in (("central difference", quotient), ("gradient", middle[:, c])):
            error = np.maximum(ends[0] - slope, slope - ends[1])
            i = int(np.argmax(error))
            _require(
                error[i] <= 1e-8 * scale,
                loss,
                f"{name} {slope[i]:.6g} of output {c} at y={y[i]}, f={f[i]} is not between "
                f"the gradients {ends[0][i]:.6g} and {ends[1][i]:.6g} beside it.",
            )


def _check_convexity(loss: Loss, y: AnyArray, f: FloatArray, rng: np.random.Generator) -> None:
    for scale in (0.01, 0.1, 1.0, 10.0):
        g = f + scale * rng.standard_normal(f.shape)
        ends = 0.5 * (loss.value(y, f) + loss.value(y, g))
        excess = loss.value(y, 0.5 * (f + g)) - ends
        _require(
            np.all(excess <= 1e-10 * (1.0 + np.abs(ends))),
            loss,
            f"value is not convex: the middle of a line is {excess.max():.3g} above its ends.",
        )
        change = loss.gradient(y, f) - loss.gradient(y, g)
        inner = np.einsum("ic,ic->i", change, f - g)
        _require(np.all(inner >= -1e-10), loss, f"gradient is not monotone: {inner.min():.3g}.")
        if loss.smoothness is not None:
            ratio = np.linalg.norm(change, axis=1) / np.linalg.norm(f - g, axis=1)
            _require(
                np.all(ratio <= loss.smoothness * (1.0 + 1e-6)),
                loss,
                f"gradient changes at rate {ratio.max():.6g}, above L = {loss.smoothness:g}.",
            )


def _check_intercept(loss: Loss, y: AnyArray, rng: np.random.Generator) -> None:
    counts = rng.integers(1, 4, len(y))
    repeated = loss.intercept(np.repeat(y, counts, axis=0))
    best = loss.intercept(y, counts)
    _require(
        best.shape == y.shape[1:] and best.dtype == np.float64 and np.isfinite(best).all(),
        loss,
        f"intercept gives {best} of dtype {best.dtype}, expected finite float64 {y.shape[1:]}.",
    )

    def total(constant: Float64Array) -> float:
        return float(counts @ loss.value(y, np.tile(constant, (len(y), 1))))

    least = total(best)
    allowed = least + 1e-6 * (1.0 + abs(least))
    _require(total(repeated) <= allowed, loss, "intercept: weights do not act as repeats.")
    for c in range(y.shape[1]):
        for step in (-3.0, -1.0, -0.3, -0.1, -0.03, -0.01, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
            other = best + step * (np.arange(y.shape[1]) == c)
            _require(
                least <= total(other) + 1e-6 * (1.0 + abs(least)),
                loss,
                f"intercept {best} costs {least:.8g}, but {other} only {total(other):.8g}.",
            )


def _check_search(loss: Loss, y: AnyArray, f: FloatArray, rng: np.random.Generator) -> None:
    weights = rng.integers(0, 3, len(y)).astype(np.float64)
    downhill = loss.gradient(y, f)
    for h in (downhill, downhill + rng.standard_normal(f.shape), f, 1e-3 * downhill):
        if float(weights @ np.einsum("ic,ic->i", downhill, h)) <= 0.0:
            h = -h

        def total(step: float, h: FloatArray = h) -> float:
            return float(weights @ loss.value(y, f - step * h))

        step = loss.directional_minimum(y, f, h, weights)
        _require(
            isinstance(step, float) and 0.0 < step <= 1e6,
            loss,
            f"directional_minimum gives {step!r}, expected a float in (0, 1e6].",
        )
        grid = np.concatenate([np.geomspace(1e-4, 1e6, 101), step * np.linspace(0.5, 2.0, 151)])
        totals = [total(float(s)) for s in grid[grid <= 1e6]]
        gain = total(0.0) - min(totals)
        _require(
            total(step) <= min(totals) + 0.01 * gain + 1e-9,
            loss,
            f"directional_minimum {step:.6g} costs {total(step):.8g}, but step "
            f"{grid[int(np.argmin(totals))]:.6g} only {min(totals):.8g}.",
        )
        uphill = loss.directional_minimum(y, f, -h, weights)
        _require(uphill == 0.0, loss, f"directional_minimum uphill is {uphill}, expected 0.")


def _check_params(loss: Loss, rng: np.random.Generator) -> None:
    twin = clone(loss)
    _require(
        type(twin) is type(loss) and twin.get_params() == loss.get_params(),
        loss,
        f"clone gives {twin!r}; __init__ must store each argument under its own name.",
    )
    for y, f in _loss_cases(loss, rng):
        same = np.array_equal(twin.value(y, f), loss.value(y, f))
        _require(
            same, loss, "a clone gives other values; keep all state in __init__ arguments."
        )


@dataclass(frozen=True)
class KernelReport:
    """How far averages of random features are from the kernel, pair by pair of rows.

    Attributes
    ----------
    pairs : int array (p, 2)
        Row numbers of each pair.
    exact, estimate, standard_error : float64 arrays (p,)
        The kernel, the mean over blocks of ``phi_j(x) . phi_j(z)``, and its standard error.
    z : float64 array (p,)
        ``(estimate - exact) / standard_error``.
    z_wrong : float64 array (p,)
        The same against the kernel of rows stretched by a quarter, which must fail.
    """

    pairs: IntArray
    exact: Float64Array
    estimate: Float64Array
    standard_error: Float64Array
    z: Float64Array
    z_wrong: Float64Array

    def rows(self) -> list[tuple[float, ...]]:
        """Return (i, j, exact, estimate, standard error, z, z of the wrong kernel) per pair."""
        columns = (self.exact, self.estimate, self.standard_error, self.z, self.z_wrong)
        return list(zip(*self.pairs.T.tolist(), *(c.tolist() for c in columns), strict=True))

    def __str__(self) -> str:
        head = f"{'i':>3} {'j':>3} {'exact':>9} {'estimate':>9} {'se':>9} {'z':>7} {'wrong':>9}"
        lines = (
            "{:3.0f} {:3.0f} {:9.5f} {:9.5f} {:9.2e} {:7.2f} {:9.1f}".format(*row)
            for row in self.rows()
        )
        return "\n".join([head, *lines])


_FREQUENCIES = 32
_CHECKED_PAIRS = 12
_STRETCH = 1.25  # the wrong bandwidth
_ALLOWED = 5.0  # standard errors


def check_kernel(
    kernel: Kernel, *, X: FloatArray | None = None, random_state: int = 0, n_blocks: int = 400
) -> KernelReport:
    """Check that a kernel keeps the contract of `kernelgrad.kernels.Kernel`.

    - ``clone`` and ``get_params`` reproduce the kernel, and pickling its values;
    - the exact form is symmetric, positive semi-definite up to rounding, agrees with ``diag``,
      and is the same for any part of the rows and for sparse rows;
    - ``E[phi_j(x) . phi_j(z)] = k(x, z)`` within five standard errors, estimated from blocks
      (each is one independent estimate); against rows stretched by a quarter the same
      statistic must fail, else the check would be too weak to mean anything;
    - block ``j`` is a pure function of (seed, j), whatever was computed before and whatever
      the other rows are, and another seed or block gives other features;
    - ``predict`` is the sum of ``transform(X, j) @ coef_j``, and ``gradient`` is
      ``transform(X, j).T @ R``;
    - a feature map can be pickled.

    Parameters
    ----------
    kernel : Kernel
        The kernel, with its parameters; rules are resolved on `X`.
    X : float array (n, d) or None
        At least 8 rows of the kernel's domain, at distances where it is neither 0 nor 1. By
        default 24 rows of the unit cube in three dimensions, spread by two.
    random_state : int, default=0
        Seed of rows and features, fixed so that a failure repeats.
    n_blocks : int, default=400
        Blocks of 32 features to average.

    Returns
    -------
    KernelReport
        The z-scores; ``print`` gives a table. Empty for a kernel without random features.

    Raises
    ------
    AssertionError
        Naming the kernel and the first property that fails.
    """
    _require(isinstance(kernel, Kernel), kernel, "is not a kernelgrad.kernels.Kernel.")
    rng = np.random.default_rng(random_state)
    rows = 2.0 * rng.random((24, 3)) if X is None else np.asarray(X, np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            kernel.check()
            _check_kernel_params(kernel)
            kernel = kernel.resolve(rows, random_state)
            _check_exact(kernel, rows)
            if not kernel.has_random_features:
                none = np.empty(0)
                return KernelReport(np.empty((0, 2), int), none, none, none, none, none)
            _check_blocks(kernel, rows, random_state)
            _check_products(kernel, rows, random_state, rng)
            return _check_expectation(kernel, rows, random_state, n_blocks)
        except Warning as warning:
            raise AssertionError(f"{kernel!r}: warns: {warning}") from warning


def _check_kernel_params(kernel: Kernel) -> None:
    try:
        twin = clone(kernel)
    except RuntimeError as error:
        raise AssertionError(f"{kernel!r}: clone fails: {error}") from error
    _require(
        type(twin) is type(kernel) and repr(twin.get_params()) == repr(kernel.get_params()),
        kernel,
        f"clone gives {twin!r}; __init__ must store each argument under its own name.",
    )


def _check_exact(kernel: Kernel, X: Float64Array) -> None:
    K, n = kernel(X), len(X)
    diagonal = kernel.diag(X)
    _require(
        K.shape == (n, n) and K.dtype == np.float64 and np.isfinite(K).all(),
        kernel,
        f"the exact form gives {K.shape} {K.dtype}, expected finite float64 {(n, n)}.",
    )
    scale = max(1.0, float(np.abs(K).max()))
    skew = float(np.abs(K - K.T).max())
    _require(
        skew <= 1e-12 * scale, kernel, f"the exact form is not symmetric: off by {skew:.3g}."
    )
    _require(
        diagonal.shape == (n,)
        and np.allclose(diagonal, K.diagonal(), rtol=0, atol=1e-10 * scale),
        kernel,
        "diag does not agree with the exact form.",
    )
    least = float(np.linalg.eigvalsh(K)[0])
    _require(
        least >= -1e-10 * n * scale,
        kernel,
        f"the exact form is not positive semi-definite: eigenvalue {least:.3g}.",
    )
    others = {
        "of a part of the rows": (kernel(X[2:7], X[:5]), K[2:7, :5], 1e-6),
        "of sparse rows": (kernel(sp.csr_matrix(X)), K, 1e-6),
        "after pickling": (_pickled(kernel, kernel)(X), K, 0.0),
    }
    for what, (other, expected, tolerance) in others.items():
        same = np.allclose(other, expected, rtol=0, atol=tolerance * scale)
        _require(same, kernel, f"the exact form {what} differs.")


_T = TypeVar("_T")


def _pickled(kernel: Kernel, part: _T) -> _T:
    try:
        twin: _T = pickle.loads(pickle.dumps(part))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise AssertionError(f"{kernel!r}: pickle fails: {error}") from error
    return twin


def _map(kernel: Kernel, X: FloatArray, seed: int) -> FeatureMap:
    return kernel.feature_map(X.shape[1], seed, _FREQUENCIES)


def _prepared(features: FeatureMap, X: Any) -> Any:
    return float32_rows(features.prepare(X))


def _check_blocks(kernel: Kernel, X: Float64Array, seed: int) -> None:
    features = _map(kernel, X, seed)
    rows = _prepared(features, X)
    _require(
        features.width == features.planes * features.block_size,
        kernel,
        "width is not planes * block_size.",
    )
    blocks = [features.transform(rows, j) for j in range(4)]
    for block in blocks:
        _require(
            block.shape == (len(rows), features.width) and block.dtype == np.float32,
            kernel,
            f"transform gives {block.shape} {block.dtype}, expected float32 "
            f"{(len(rows), features.width)}.",
        )
    fresh = _map(kernel, X, seed)
    for j in (3, 0, 2, 0, 1):
        _require(
            np.array_equal(fresh.transform(rows, j), blocks[j]),
            kernel,
            f"block {j} is not a pure function of (seed, j): the order of calls changes it.",
        )
    twin = _pickled(kernel, features)
    _require(
        np.array_equal(twin.transform(rows, 1), blocks[1]),
        kernel,
        "pickle changes the features.",
    )
    # the median, because rounding of heavy-tailed frequencies may change a few features
    allowed = 1e-4 * max(1e-3, float(np.abs(blocks[1]).max()))
    parts = [features.transform(rows[a : a + 5], 1) for a in range(0, len(rows), 5)]
    _require(
        np.median(np.abs(np.vstack(parts) - blocks[1])) <= allowed,
        kernel,
        "features of a row depend on the other rows.",
    )
    sparse = features.transform(_prepared(features, sp.csr_matrix(X)), 1)
    _require(
        np.median(np.abs(sparse - blocks[1])) <= allowed,
        kernel,
        "features of sparse rows differ from those of dense rows.",
    )
    for what, other in (
        ("seed", (seed + 1, 1)),
        ("seed", (seed + 2**40, 1)),
        ("block", (seed, 2)),
    ):
        same = np.mean(_map(kernel, X, other[0]).transform(rows, other[1]) == blocks[1])
        _require(same < 0.9, kernel, f"another {what} gives the same features.")


def _check_products(
    kernel: Kernel, X: Float64Array, seed: int, rng: np.random.Generator
) -> None:
    features = _map(kernel, X, seed)
    rows = _prepared(features, X)
    n, n_blocks, F = len(rows), 3, features.block_size
    coef = np.zeros((features.planes, features.capacity(n_blocks), 2), np.float32)
    used = coef[:, : n_blocks * F]
    used[:] = rng.standard_normal(used.shape)
    R = rng.standard_normal((n, 2)).astype(np.float32)
    blocks = [features.transform(rows, j).astype(np.float64) for j in range(n_blocks)]
    planes = [coef[:, j * F : (j + 1) * F].reshape(features.width, 2) for j in range(n_blocks)]
    expected = 1.0 + sum(P @ A for P, A in zip(blocks, planes, strict=True))
    scale = float(np.abs(expected).max())
    for cache_bytes in (0, 2**20):
        out: Float32Array = np.ones((n, 2), np.float32)
        features.predict(rows, coef, n_blocks, out, cache_bytes)
        _require(
            np.allclose(out, expected, rtol=0, atol=1e-3 * scale),
            kernel,
            "predict does not add the sum over blocks of transform times coefficients.",
        )
    G = features.gradient(rows, R, 1)
    product = blocks[1].T @ R
    _require(
        G.shape == product.shape
        and np.allclose(G, product, rtol=0, atol=1e-3 * float(np.abs(product).max())),
        kernel,
        "gradient is not transform.T @ R.",
    )


def _check_expectation(
    kernel: Kernel, X: Float64Array, seed: int, n_blocks: int
) -> KernelReport:
    # features see float32 rows: so does the exact form, or rounding would count as bias
    rows = X[: 2 * _CHECKED_PAIRS].astype(np.float32)
    features = _map(kernel, rows, seed)
    prepared = _prepared(features, rows)
    half = len(rows) // 2
    left = np.concatenate([[0], np.arange(half)])
    right = np.concatenate([[0], half + np.arange(half)])
    estimates = np.empty((n_blocks, len(left)))
    for j in range(n_blocks):
        P = features.transform(prepared, j).astype(np.float64)
        estimates[j] = np.einsum("pf,pf->p", P[left], P[right])
    K = kernel(rows)
    stretched = (_STRETCH * rows).astype(np.float32)
    exact, wrong = K[left, right], kernel(stretched)[left, right]
    mean = estimates.mean(axis=0)
    # the floor is the rounding of float32 features
    error = np.hypot(
        estimates.std(axis=0, ddof=1) / np.sqrt(n_blocks), 1e-6 * np.maximum(1.0, np.abs(exact))
    )
    report = KernelReport(
        np.stack([left, right], axis=1),
        exact,
        mean,
        error,
        (mean - exact) / error,
        (mean - wrong) / error,
    )
    _require(
        np.abs(report.z).max() < _ALLOWED,
        kernel,
        f"features are more than {_ALLOWED:g} standard errors from the kernel:\n{report}",
    )
    _require(
        np.abs(report.z_wrong).max() > _ALLOWED,
        kernel,
        f"a wrong bandwidth passes as well; give more blocks or other rows:\n{report}",
    )
    return report


def check_solver(solver: Solver[Any], *, random_state: int = 0) -> None:
    """Check the contract of a solver on a small regression and a small classification.

    Parameters survive a clone; ``init`` and ``step`` are deterministic, count iterations and
    rows, keep finite values and lower the training loss; the tracker agrees with the
    expansion; a restored state continues to the same bits.

    Parameters
    ----------
    solver : Solver
    random_state : int, default=0

    Raises
    ------
    AssertionError
        Naming the broken promise.
    """
    solver.check()
    twin = clone(solver)
    _promise(
        repr(twin.get_params()) == repr(solver.get_params()), solver, "clone loses parameters"
    )
    rng = np.random.default_rng(random_state)
    X = rng.standard_normal((256, 3))
    target = np.sin(X[:, :1]) + X[:, 1:2]
    tasks: list[tuple[Loss, FloatArray]] = [
        (SquaredError(), target),
        (Logistic(), np.where(target > 0, 1.0, -1.0)),
        (Hinge(), np.where(target > 0, 1.0, -1.0)),
    ]
    for loss, y in tasks:
        try:
            check_capabilities(solver, loss, Gaussian(0.5))
        except CapabilityError:
            continue
        problem = Problem(loss, Gaussian(0.5), 1e-6, 1, 3, 11)
        batch = TrainBatch(X, y, np.ones(len(y)))
        runs = []
        for _ in range(2):
            state = solver.init(problem, batch)
            tracker = solver.track(state, X)
            losses = []
            for t in range(12):
                seen = state.rows_seen
                info = solver.step(problem, state, batch)
                tracker.advance(info)
                losses.append(info.train_loss)
                _promise(state.iteration == t + 1, solver, "iteration is not counted by step")
                _promise(state.rows_seen > seen, solver, "rows_seen is not counted")
            runs.append((state, tracker, losses))
        (state, tracker, losses), (again, _, losses2) = runs
        _promise(losses == losses2, solver, "two equal runs differ: hidden state or randomness")
        _promise(
            bool(np.isfinite(losses).all()), solver, f"a training loss is not finite: {losses}"
        )
        _promise(losses[-1] < losses[0], solver, f"the training loss did not fall: {losses}")
        f = solver.expansion(state).raw_prediction(X)
        close = np.allclose(tracker.raw_prediction(), f, atol=1e-4 * (1 + np.abs(f).max()))
        _promise(close, solver, "the tracker drifts from the expansion")
        restored = solver.restore(problem, *solver.state_arrays(state))
        for s in (again, restored):
            solver.step(problem, s, batch)
        same = np.array_equal(
            solver.expansion(again).raw_prediction(X),
            solver.expansion(restored).raw_prediction(X),
        )
        _promise(same, solver, "a restored state continues differently")


def _promise(kept: bool, solver: Solver[Any], message: str) -> None:
    if not kept:
        raise AssertionError(f"{type(solver).__name__}: {message}.")
