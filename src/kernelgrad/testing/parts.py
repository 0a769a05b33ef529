"""What all contracts share, and those of parameters, of losses, and of kernels."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from kernelgrad.features.base import FeatureMap, float32_rows
from kernelgrad.kernels import Kernel
from kernelgrad.losses import Loss, UnlabelledLoss, encode_labels
from kernelgrad.params import outside_values
from kernelgrad.types import AnyArray, Float32Array, Float64Array, FloatArray

T = TypeVar("T")


def require(condition: object, subject: object, message: str) -> None:
    """Raise AssertionError naming `subject` unless `condition` holds."""
    if not condition:
        raise AssertionError(f"{subject!r}: {message}")


@contextmanager
def without_warnings(subject: object) -> Iterator[None]:
    """Raise AssertionError naming `subject` for a warning inside."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            yield
        except Warning as warning:
            raise AssertionError(f"{subject!r}: warns: {warning}") from warning


def pickled(part: T, subject: object) -> T:
    """Return `part` after a round trip through pickle."""
    try:
        twin: T = pickle.loads(pickle.dumps(part))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise AssertionError(f"{subject!r}: pickle fails: {error}") from error
    return twin


def check_parameters(part: Any, validate: Callable[[Any], object] | None = None) -> None:
    """Check the parameters of a loss, kernel, solver or estimator.

    ``clone`` and ``get_params`` must reproduce `part`. Each declared domain
    (`kernelgrad.params`) is violated in turn: `validate`, by default ``part.check()``, must
    then raise ValueError or TypeError and name the parameter and its value.
    """
    try:
        twin = clone(part)
    except RuntimeError as error:
        raise AssertionError(f"{part!r}: clone fails: {error}") from error
    require(
        type(twin) is type(part) and repr(twin.get_params()) == repr(part.get_params()),
        part,
        f"clone gives {twin!r}; __init__ must store each argument under its own name.",
    )
    names = part.get_params(deep=False)
    for name, value in outside_values(part) if dataclasses.is_dataclass(part) else ():
        if name not in names:  # the part hides a parameter of its base class
            continue
        wrong: Any = clone(part).set_params(**{name: value})
        try:
            wrong.check() if validate is None else validate(wrong)
        except (ValueError, TypeError) as error:
            clear = name in str(error) and repr(value) in str(error)
            require(clear, part, f"the refusal of {name}={value!r} says only: {error}")
        else:
            raise AssertionError(f"{part!r}: {name}={value!r} is accepted.")


_ROWS = 40


def _loss_cases(loss: Loss, rng: np.random.Generator) -> Iterator[tuple[AnyArray, FloatArray]]:
    """Yield (y, f) in float64 for every task and number of outputs of the loss."""
    if "classification" in loss.tasks:
        for n_classes in (2, 3):
            codes = np.arange(_ROWS) * n_classes // _ROWS
            signs = encode_labels(codes, n_classes, loss).astype(np.float64)
            yield signs, 2.0 * rng.standard_normal(signs.shape)
    if "regression" in loss.tasks:
        for n_outputs in (1, 2) if loss.n_outputs is None else (loss.n_outputs,):
            y = np.abs(3.0 + rng.standard_normal((_ROWS, n_outputs)))
            yield y, y + 2.0 * rng.standard_normal(y.shape)
    if loss.tasks & {"novelty", "density_ratio"}:
        sample = np.where(np.arange(_ROWS) < _ROWS // 2, 1.0, -1.0)[:, None]
        yield sample, 2.0 * rng.standard_normal(sample.shape)


def check_loss(loss: Loss, *, random_state: int = 0) -> None:
    """Check that a loss fulfils the contract of `kernelgrad.losses.Loss`.

    On random data of the seed `random_state`, for each of its tasks, with one and with several
    outputs, this checks that

    - shapes are (n,), (n, C), (n,), (C,) and the dtype of ``f``, float32 or float64, is kept;
    - ``gradient`` agrees with central differences of ``value``: by convexity the difference
      quotient lies between the gradients at the two ends, also across a kink;
    - ``value`` is convex along lines and ``gradient`` monotone, and, where ``smoothness`` is a
      number L, ``|g(a) - g(b)| <= L |a - b|``;
    - ``curvature`` is finite and at least 0, and at most L;
    - no constant near ``intercept`` has a lower loss, weights act as repeated rows, and their
      unit, a power of two, changes no bit;
    - ``|f| = 1e4`` gives finite results without warnings;
    - permuting rows permutes the results; ``clone`` and ``get_params`` reproduce the loss.

    AssertionError names the loss and the first property that fails.
    """
    require(isinstance(loss, Loss), loss, "is not a kernelgrad.losses.Loss.")
    loss.check()
    check_parameters(loss)
    rng, twin = np.random.default_rng(random_state), clone(loss)
    with without_warnings(loss):
        for y, f in _loss_cases(loss, rng):
            _check_arrays(loss, y, f, rng)
            _check_gradient(loss, y, f)
            _check_convexity(loss, y, f, rng)
            _check_intercept(loss, y, rng)
            same = np.array_equal(twin.value(y, f), loss.value(y, f))
            message = "a clone gives other values; keep all state in __init__ arguments."
            require(same, loss, message)


def _shapes(f: FloatArray) -> dict[str, tuple[int, ...]]:
    return {"value": f.shape[:1], "gradient": f.shape, "curvature": f.shape[:1]}


def _check_arrays(loss: Loss, y: AnyArray, f: FloatArray, rng: np.random.Generator) -> None:
    order = rng.permutation(len(y))
    for method, shape in _shapes(f).items():
        call = getattr(loss, method)
        for dtype in (np.float32, np.float64):
            result = call(y, f.astype(dtype))
            message = f"{method} gives {result.shape} {result.dtype}, expected {shape} {dtype}."
            require(result.shape == shape and result.dtype == dtype, loss, message)
            finite = np.isfinite(call(y, (1e4 * np.sign(f)).astype(dtype))).all()
            require(finite, loss, f"{method} is not finite at |f| = 1e4, {dtype}.")
        same = np.allclose(call(y[order], f[order]), result[order], rtol=1e-10, atol=1e-12)
        require(same, loss, f"{method} of permuted rows is not the permuted {method}.")
    weight = loss.curvature(y, f)
    bound = np.inf if loss.smoothness is None else loss.smoothness * (1.0 + 1e-6)
    message = f"curvature spans [{weight.min():g}, {weight.max():g}], outside [0, {bound:g}]."
    require(np.all((weight >= 0) & (weight <= bound) & np.isfinite(weight)), loss, message)


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
            message = (
                f"{name} {slope[i]:.6g} of output {c} at y={y[i]}, f={f[i]} is not between "
                f"the gradients {ends[0][i]:.6g} and {ends[1][i]:.6g} beside it."
            )
            require(error[i] <= 1e-8 * scale, loss, message)


def _check_convexity(loss: Loss, y: AnyArray, f: FloatArray, rng: np.random.Generator) -> None:
    for scale in (0.01, 0.1, 1.0, 10.0):
        g = f + scale * rng.standard_normal(f.shape)
        ends = 0.5 * (loss.value(y, f) + loss.value(y, g))
        excess = loss.value(y, 0.5 * (f + g)) - ends
        message = f"value is not convex: a line's middle is {excess.max():.3g} above its ends."
        require(np.all(excess <= 1e-10 * (1.0 + np.abs(ends))), loss, message)
        change = loss.gradient(y, f) - loss.gradient(y, g)
        inner = np.einsum("ic,ic->i", change, f - g)
        require(np.all(inner >= -1e-10), loss, f"gradient is not monotone: {inner.min():.3g}.")
        if loss.smoothness is not None:
            ratio = np.linalg.norm(change, axis=1) / np.linalg.norm(f - g, axis=1)
            message = (
                f"gradient changes at rate {ratio.max():.6g}, above L = {loss.smoothness:g}."
            )
            require(np.all(ratio <= loss.smoothness * (1.0 + 1e-6)), loss, message)


def _check_intercept(loss: Loss, y: AnyArray, rng: np.random.Generator) -> None:
    counts = rng.integers(1, 4, len(y))
    repeated = loss.intercept(np.repeat(y, counts, axis=0))
    best = loss.intercept(y, counts)
    shape = y.shape[1:]
    good = best.shape == shape and best.dtype == np.float64 and np.isfinite(best).all()
    message = f"intercept gives {best} of dtype {best.dtype}, expected finite float64 {shape}."
    require(good, loss, message)

    def total(constant: Float64Array) -> float:
        return float(counts @ loss.value(y, np.tile(constant, (len(y), 1))))

    least = total(best)
    allowed = least + 1e-6 * (1.0 + abs(least))
    require(total(repeated) <= allowed, loss, "intercept: weights do not act as repeats.")
    for unit in (0.25, 4.0, 2.0**20):
        same = np.array_equal(loss.intercept(y, unit * counts), best)
        require(same, loss, f"intercept: weights times {unit:g} change its bits.")
    for c in range(y.shape[1]):
        for step in (-3.0, -1.0, -0.3, -0.1, -0.03, -0.01, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
            other = best + step * (np.arange(y.shape[1]) == c)
            message = (
                f"intercept {best} costs {least:.8g}, but {other} only {total(other):.8g}."
            )
            require(least <= total(other) + 1e-6 * (1.0 + abs(least)), loss, message)


def check_unlabelled_loss(loss: UnlabelledLoss, *, random_state: int = 0) -> None:
    """Check that a loss fulfils the contract of `kernelgrad.losses.UnlabelledLoss`.

    The loss is even and does not increase with ``|f|``; the gradient is the derivative of the
    value, also next to a kink, and the second derivative is at most ``smoothness``; shapes and
    dtypes are kept; float32 and ``|f| = 1e4`` give finite results without warnings.
    Parameters and errors are those of :func:`check_loss`.
    """
    require(isinstance(loss, UnlabelledLoss), loss, "is not an UnlabelledLoss.")
    loss.check()
    check_parameters(loss)
    rng = np.random.default_rng(random_state)
    f = 1.2 * rng.standard_normal((_ROWS, 2))
    with without_warnings(loss):
        for dtype in (np.float32, np.float64):
            for response in (f.astype(dtype), np.full(f.shape, 1e4, dtype)):
                for method, shape in (("value", f.shape[:1]), ("gradient", f.shape)):
                    result = getattr(loss, method)(response)
                    same = result.shape == shape and result.dtype == dtype
                    message = (
                        f"gives {result.shape} {result.dtype}, not finite {shape} {dtype}."
                    )
                    require(same and np.isfinite(result).all(), loss, message)
    one = np.sort(np.abs(f[:, :1]), axis=0)
    value, slope = loss.value(one), loss.gradient(one)[:, 0]
    require(np.array_equal(value, loss.value(-one)), loss, "value is not even.")
    require(np.array_equal(slope, -loss.gradient(-one)[:, 0]), loss, "gradient is not odd.")
    require(np.all(np.diff(value) <= 0.0), loss, "value grows away from zero.")
    step = 1e-6
    near = [loss.gradient(one + s)[:, 0] for s in (-step, step)]
    quotient = (loss.value(one + step) - loss.value(one - step)) / (2.0 * step)
    between = (quotient >= np.minimum(*near) - 1e-4) & (quotient <= np.maximum(*near) + 1e-4)
    require(between.all(), loss, "the gradient is not the derivative of the value.")
    if loss.smoothness is not None:
        rate = (near[1] - near[0]) / (2.0 * step)  # signed: no bound of what is concave
        require(rate.max() <= loss.smoothness * (1.0 + 1e-6), loss, "smoothness is too small.")


_FREQUENCIES = 32
_CHECKED_PAIRS = 12
_ALLOWED = 5.0  # standard errors


def check_kernel(
    kernel: Kernel, *, X: FloatArray | None = None, random_state: int = 0, n_blocks: int = 400
) -> None:
    """Check that a kernel fulfils the contract of `kernelgrad.kernels.Kernel`.

    - ``clone`` and ``get_params`` reproduce the kernel, and pickling preserves its values;
    - the exact form is symmetric, positive semi-definite up to rounding, agrees with ``diag``,
      and is the same for any part of the rows and for sparse rows;
    - ``E[phi_j(x) . phi_j(z)] = k(x, z)`` within five standard errors, estimated from
      `n_blocks` blocks of 32 features, neighbours of which are uncorrelated; for rows scaled by
      1.25 the same statistic must fail;
    - block ``j`` is a pure function of (seed, j), whatever was computed before, and up to
      rounding whatever the other rows are; another seed or block gives other features;
    - ``predict`` is the sum of ``transform(X, j) @ coef_j``, and ``gradient`` is
      ``transform(X, j).T @ R``; a feature map can be pickled.

    AssertionError names the kernel and the first property that fails.

    Parameters
    ----------
    kernel : Kernel
        The kernel, with its parameters; rules are resolved on `X`.
    X : float array (n, d) or None
        At least 8 rows of the kernel's domain, at distances where it is neither 0 nor 1. None
        means 24 rows, uniform in the cube [0, 2)^3.
    random_state : int, default=0
        Seed of rows and features, fixed so that a failure can be repeated.
    n_blocks : int, default=400
        Number of blocks to average.
    """
    require(isinstance(kernel, Kernel), kernel, "is not a kernelgrad.kernels.Kernel.")
    rng = np.random.default_rng(random_state)
    rows = 2.0 * rng.random((24, 3)) if X is None else np.asarray(X, np.float64)
    with without_warnings(kernel):
        kernel.check()
        check_parameters(kernel)
        kernel = kernel.resolve(rows, random_state)
        _check_exact(kernel, rows)
        if kernel.has_random_features:
            _check_blocks(kernel, rows, random_state)
            _check_products(kernel, rows, random_state, rng)
            _check_expectation(kernel, rows, random_state, n_blocks)


def _check_exact(kernel: Kernel, X: Float64Array) -> None:
    K, n, diagonal, form = kernel(X), len(X), kernel.diag(X), "the exact form"
    good = K.shape == (n, n) and K.dtype == np.float64 and bool(np.isfinite(K).all())
    message = f"{form} gives {K.shape} {K.dtype}, expected finite float64 {(n, n)}."
    require(good, kernel, message)
    scale = max(1.0, float(np.abs(K).max()))
    skew = float(np.abs(K - K.T).max())
    require(skew <= 1e-12 * scale, kernel, f"{form} is not symmetric: off by {skew:.3g}.")
    good = diagonal.shape == (n,) and _near(diagonal, K.diagonal(), 1e-10 * scale)
    require(good, kernel, f"diag does not agree with {form}.")
    least = float(np.linalg.eigvalsh(K)[0])
    message = f"{form} is not positive semi-definite: eigenvalue {least:.3g}."
    require(least >= -1e-10 * n * scale, kernel, message)
    others = {
        "of a part of the rows": (kernel(X[2:7], X[:5]), K[2:7, :5], 1e-6),
        "of sparse rows": (kernel(sp.csr_matrix(X)), K, 1e-6),
        "after pickling": (pickled(kernel, kernel)(X), K, 0.0),
    }
    for what, (other, expected, tolerance) in others.items():
        same = _near(other, expected, tolerance * scale)
        require(same, kernel, f"{form} {what} differs.")


def _near(values: FloatArray, expected: FloatArray | float, tolerance: float) -> bool:
    return np.allclose(values, expected, rtol=0, atol=tolerance)


def _map(kernel: Kernel, X: FloatArray, seed: int) -> FeatureMap:
    return kernel.feature_map(X.shape[1], seed, _FREQUENCIES)


def _prepared(features: FeatureMap, X: Any) -> Any:
    return float32_rows(features.prepare(X))


def _check_blocks(kernel: Kernel, X: Float64Array, seed: int) -> None:
    features = _map(kernel, X, seed)
    rows = _prepared(features, X)
    planar = features.width == features.planes * features.block_size
    require(planar, kernel, "width is not planes * block_size.")
    blocks, shape = [features.transform(rows, j) for j in range(4)], (len(rows), features.width)
    for block in blocks:
        good = block.shape == shape and block.dtype == np.float32
        message = f"transform gives {block.shape} {block.dtype}, expected float32 {shape}."
        require(good, kernel, message)
    fresh = _map(kernel, X, seed)
    for j in (3, 0, 2, 0, 1):
        same = np.array_equal(fresh.transform(rows, j), blocks[j])
        message = f"block {j} is not a pure function of (seed, j): the order of calls matters."
        require(same, kernel, message)
    same = np.array_equal(pickled(features, kernel).transform(rows, 1), blocks[1])
    require(same, kernel, "pickle changes the features.")
    # the median, because rounding of heavy-tailed frequencies may change a few features
    allowed = 1e-4 * max(1e-3, float(np.abs(blocks[1]).max()))
    parts = [features.transform(rows[a : a + 5], 1) for a in range(0, len(rows), 5)]
    same = np.median(np.abs(np.vstack(parts) - blocks[1])) <= allowed
    require(same, kernel, "features of a row depend on the other rows.")
    sparse = features.transform(_prepared(features, sp.csr_matrix(X)), 1)
    same = np.median(np.abs(sparse - blocks[1])) <= allowed
    require(same, kernel, "features of sparse rows differ from those of dense rows.")
    for what, other_seed, j in (
        ("seed", seed + 1, 1), ("seed", seed + 2**40, 1), ("block", seed, 2),
    ):  # fmt: skip
        share = np.mean(_map(kernel, X, other_seed).transform(rows, j) == blocks[1])
        require(share < 0.9, kernel, f"another {what} gives the same features.")


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
        message = "predict does not add the sum over blocks of transform times coefficients."
        require(_near(out, expected, 1e-3 * scale), kernel, message)
    G = features.gradient(rows, R, 1)
    product = blocks[1].T @ R
    tolerance = 1e-3 * float(np.abs(product).max())
    same = G.shape == product.shape and _near(G, product, tolerance)
    require(same, kernel, "gradient is not transform.T @ R.")


def _check_expectation(kernel: Kernel, X: Float64Array, seed: int, n_blocks: int) -> None:
    # features are of float32 rows, so the exact form gets the same: rounding is no bias
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
    stretched = (1.25 * rows).astype(np.float32)  # a wrong bandwidth
    exact, wrong = K[left, right], kernel(stretched)[left, right]
    mean = estimates.mean(axis=0)
    # the floor is the rounding of float32 features
    error = np.hypot(
        estimates.std(axis=0, ddof=1) / np.sqrt(n_blocks), 1e-6 * np.maximum(1.0, np.abs(exact))
    )
    z, z_wrong = np.abs(mean - exact) / error, np.abs(mean - wrong) / error
    at = int(z.argmax())
    message = f"features estimate {mean[at]:.5g} +- {error[at]:.2g} of a value {exact[at]:.5g}."
    require(z.max() < _ALLOWED, kernel, message)
    scaled = (estimates - mean) / error
    lag = float(np.mean(scaled[1:] * scaled[:-1])) / np.sqrt(n_blocks)
    require(abs(lag) < _ALLOWED, kernel, "the features of neighbouring blocks are related.")
    message = "a wrong bandwidth passes as well; give more blocks or other rows."
    require(z_wrong.max() > _ALLOWED, kernel, message)
