"""The contract of a loss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.base import clone

from kernelgrad.losses import Loss, UnlabelledLoss, encode_labels
from kernelgrad.testing.parameters import check_parameters, require, without_warnings
from kernelgrad.types import AnyArray, Float64Array, FloatArray

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
    value, also next to a kink, and the second derivative is at most ``smoothness``; the
    curvature is that of a parabola which touches the value and lies above it; sides are signs;
    shapes and dtypes are kept; float32 and ``|f| = 1e4`` give finite results without warnings.
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
                for method, shape in _shapes(f).items():
                    result = getattr(loss, method)(response)
                    same = result.shape == shape and result.dtype == dtype
                    message = (
                        f"gives {result.shape} {result.dtype}, not finite {shape} {dtype}."
                    )
                    require(same and np.isfinite(result).all(), loss, message)
    one = np.sort(np.abs(f[:, :1]), axis=0)
    value, slope, bend = loss.value(one), loss.gradient(one)[:, 0], loss.curvature(one)
    require(np.array_equal(value, loss.value(-one)), loss, "value is not even.")
    require(np.array_equal(slope, -loss.gradient(-one)[:, 0]), loss, "gradient is not odd.")
    require(np.all(np.diff(value) <= 0.0), loss, "value grows away from zero.")
    side = loss.sides(one)
    require(np.isin(side, (0.0, 1.0)).all(), loss, "the sides of f > 0 are not 0 or +1.")
    step = 1e-6
    near = [loss.gradient(one + s)[:, 0] for s in (-step, step)]
    quotient = (loss.value(one + step) - loss.value(one - step)) / (2.0 * step)
    between = (quotient >= np.minimum(*near) - 1e-4) & (quotient <= np.maximum(*near) + 1e-4)
    require(between.all(), loss, "the gradient is not the derivative of the value.")
    if loss.smoothness is not None:
        rate = (near[1] - near[0]) / (2.0 * step)  # signed: no bound of what is concave
        require(rate.max() <= loss.smoothness * (1.0 + 1e-6), loss, "smoothness is too small.")
    for other in np.linspace(0.0, 3.0, 61):
        parabola = value + slope * (other - one[:, 0]) + 0.5 * bend * (other - one[:, 0]) ** 2
        excess = loss.value(np.array([[other]]))[0] - parabola
        message = f"the parabola of curvature does not lie above the value at {other:g}."
        require(np.all(excess <= 1e-9 + 1e-9 * np.abs(parabola)), loss, message)
