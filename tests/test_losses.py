import sys

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone

import oracles_losses as oracles
from cases import every
from kernelgrad.losses import (
    LOSSES,
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    KLDensityRatio,
    KLRatio,
    LeastSquaresDensityRatio,
    Logistic,
    Loss,
    ModifiedLogistic,
    Multinomial,
    OneClass,
    Perceptron,
    Quantile,
    RelativeNovelty,
    SmoothedHinge,
    SquaredError,
    SquaredHinge,
    encode_labels,
    get_loss,
    loss_code,
    register_loss,
    scalar,
)
from kernelgrad.losses.base import monotone_root
from kernelgrad.testing import check_loss
from kernelgrad.validation import CapabilityError

VARIANTS = [
    *(cls() for cls in LOSSES.values()),
    Huber(delta=0.05),
    Huber(delta=np.float64(20.0)),
    EpsilonInsensitive(epsilon=0.0),
    EpsilonInsensitive(epsilon=np.float64(1.5)),
    Quantile(quantile=0.05),
    Quantile(quantile=np.float64(0.9)),
    OneClass(nu=0.4),
    SmoothedHinge(width=0.3),
    SmoothedHinge(width=np.float64(4.0)),
    ModifiedLogistic(beta=0.3),
    ModifiedLogistic(beta=np.float64(40.0)),
    KLRatio(floor=0.3),
    RelativeNovelty(rho=np.float64(2.0)),
]
KINKED = [Absolute(), Quantile(0.8), EpsilonInsensitive(0.0)]


def batch(loss, rng, n=60):
    if "regression" in loss.tasks:
        y = rng.standard_normal((n, 2))
        y = y if loss.lowest_target is None else np.abs(y)
    elif "classification" in loss.tasks:
        y = encode_labels(rng.integers(0, 3, n), 3, loss).astype(np.float64)
    else:
        y = np.where(np.arange(n) < n // 3, 1.0, -1.0)[:, None]
    return y, 2.0 * rng.standard_normal(y.shape)


@every("loss", VARIANTS[len(LOSSES) :])
def test_contract(loss):
    check_loss(loss, random_state=1)


@every("loss", VARIANTS)
def test_agrees_with_oracle(loss):
    y, f = batch(loss, np.random.default_rng(3))
    name, a = oracles.spec(loss)
    values, slopes = oracles.value(name, y, f, a).sum(1), oracles.slope(name, y, f, a)
    weights = oracles.curvature(name, y, f, a, 0.2).max(1)
    np.testing.assert_allclose(loss.value(y, f), values, rtol=1e-12)
    np.testing.assert_allclose(loss.gradient(y, f), slopes, rtol=1e-12)
    np.testing.assert_allclose(loss.curvature(y, f, 0.2), weights, rtol=1e-12)
    np.testing.assert_allclose(
        loss.value(y, f.astype(np.float32)), loss.value(y, f), rtol=1e-4, atol=1e-6
    )


class ByMethods(Loss):
    """Another loss's value and gradient, and no more."""

    name = "by_methods"

    def __init__(self, inner=None):
        self.inner = inner

    @property
    def is_multinomial(self):
        return self.inner.is_multinomial

    def value(self, y, f):
        return self.inner.value(y, f)

    def gradient(self, y, f):
        return self.inner.gradient(y, f)


@every("loss", VARIANTS)
@every("by_methods", [False, True])
def test_compiled_rows_are_those_of_the_methods(loss, by_methods):
    y, f = batch(loss, np.random.default_rng(4))
    code, params = loss_code(ByMethods(loss) if by_methods else loss, y.shape[1])
    if by_methods:
        kept = ByMethods(loss)
        code, params = loss_code(kept, y.shape[1])
        assert loss_code(kept, y.shape[1])[0] == code >= scalar.OWN
    f[0], slopes = 0.0, np.empty_like(f)
    for row in zip(y, f, slopes, strict=True):
        scalar.slopes_of_row(code, params, *row)
    values = [scalar.value_of_row(code, params, *row) for row in zip(y, f, strict=True)]
    np.testing.assert_allclose(slopes, loss.gradient(y, f), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(values, loss.value(y, f), rtol=1e-12, atol=1e-15)
    total, found = scalar.losses(code, params, y, f, np.full(len(y), 0.5))
    assert total == pytest.approx(0.5 * sum(values), rel=1e-12)
    np.testing.assert_array_equal(found, slopes)


def test_a_method_that_fails_gives_no_number_and_prints_why(monkeypatch):
    class Failing(ByMethods):
        def gradient(self, y, f):
            raise RuntimeError("no slope")

    loss, out, seen = Failing(Hinge()), np.zeros(1), []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: seen.append(str(found.exc_value)))
    scalar.slopes_of_row(*loss_code(loss, 1), np.ones(1), np.zeros(1), out)
    assert np.isnan(out).all()
    assert seen == ["no slope"]


@every("loss", VARIANTS)
def test_methods_on_arrays_compile_nothing(loss):
    compiled = scalar.value, scalar.slope, scalar.curvature, scalar.kink_distance
    before = [len(each.signatures) for each in compiled]
    y, f = batch(loss, np.random.default_rng(5))
    for dtype in (np.float16, np.longdouble):  # no loop has these
        loss.value(y, f.astype(dtype))
        loss.gradient(y, f.astype(dtype))
        loss.curvature(y, f.astype(dtype))
    assert [len(each.signatures) for each in compiled] == before


@pytest.mark.parametrize("loss", [*VARIANTS[:2], Logistic(), Multinomial()], ids=repr)
def test_the_numeric_curvature_is_that_of_the_formula(loss):
    y, f = batch(loss, np.random.default_rng(6))
    if isinstance(loss, Huber):
        f = y + np.where(np.abs(f - y) < 0.9, f - y, 0.0)
    found = ByMethods(loss).curvature(y, f, 1e-4)
    np.testing.assert_allclose(found, loss.curvature(y, f), rtol=1e-6)


def test_the_numeric_curvature_of_a_kink_is_its_jump_over_the_interval():
    f = np.array([[0.05], [0.3]])
    np.testing.assert_allclose(ByMethods(Absolute()).curvature(0 * f, f, 0.1), [10.0, 0.0])


def test_a_code_is_not_inherited_by_other_methods():
    class Half(Huber):
        def value(self, y, f):
            return 0.5 * super().value(y, f)

    class Named(Huber):
        pass

    y, f = np.zeros((2, 1)), np.array([[0.5], [3.0]])
    assert Half.code is None
    assert Named.code == Huber.code
    np.testing.assert_allclose(Half().value(y, f), [0.0625, 1.25])
    np.testing.assert_allclose(Half().curvature(y, f), Huber().curvature(y, f))


class FlippedSlope(Huber):
    def gradient(self, y, f):
        return -super().gradient(y, f)


class WrongSmoothness(Logistic):
    smoothness = 0.1


class Upcasting(Absolute):
    def value(self, y, f):
        return super().value(y, f).astype(np.float64)


class BiasedIntercept(Hinge):
    def intercept(self, y, sample_weight=None):
        return super().intercept(y, sample_weight) + 2.5


class Overflowing(Logistic):
    def value(self, y, f):
        return np.log1p(np.exp(-y.astype(f.dtype) * f)).sum(axis=1)


class Concave(Absolute):
    def value(self, y, f):
        return np.sqrt(np.abs(f - y.astype(f.dtype))).sum(axis=1)

    def gradient(self, y, f):
        z = f - y.astype(f.dtype)
        return 0.5 * np.sign(z) / np.sqrt(np.abs(z))


class Forgetful(Huber):
    def __init__(self, delta=1.0):
        super().__init__(2.0 * delta)


class RowNumbering(Huber):
    def value(self, y, f):
        return super().value(y, f) + np.arange(len(f), dtype=f.dtype)


class Mute(Huber):
    def check(self):
        if not self.delta > 0:
            raise ValueError("no")


@every(
    ("broken", "message"),
    [
        (FlippedSlope(), "not between"),
        (Mute(), "says only: no"),
        (WrongSmoothness(), "outside"),
        (Upcasting(), "float32"),
        (BiasedIntercept(), "intercept"),
        (Overflowing(), "not finite|overflow"),
        (Concave(), "central difference|convex"),
        (RowNumbering(), "permuted"),
    ],
)
def test_contract_rejects_broken_losses(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_loss(broken)


def test_contract_rejects_a_loss_that_clone_cannot_copy():
    with pytest.raises((AssertionError, RuntimeError), match=r"clone|constructor"):
        check_loss(Forgetful())


@every("loss", VARIANTS)
def test_weights_are_repeated_rows(loss):
    rng = np.random.default_rng(5)
    y = batch(loss, rng)[0]
    counts = rng.integers(0, 4, len(y))
    repeated = np.repeat(y, counts, axis=0)
    np.testing.assert_allclose(
        loss.intercept(y, counts), loss.intercept(repeated), rtol=1e-7, atol=1e-9
    )


@every("target", [1e-5, 0.3, 1.0 - 1e-9])
@every("step_function", [False, True])
def test_monotone_root_of_smooth_and_jumping_functions(target, step_function):
    def slope(t):
        return np.sign(t - target) if step_function else t**3 - target**3

    root = monotone_root(slope, 0.0, 1.0, slope(0.0), slope(1.0), rtol=1e-9, evaluations=200)
    assert root == pytest.approx(target, rel=2e-9)


@pytest.mark.parametrize("loss", KINKED, ids=repr)
def test_kink_weights_follow_the_scale_of_the_data(loss):
    y, f = batch(loss, np.random.default_rng(2))
    weight = loss.curvature(y, f)
    np.testing.assert_allclose(loss.curvature(1000 * y, 1000 * f), weight / 1000, rtol=1e-10)
    np.testing.assert_allclose(loss.intercept(1000 * y), 1000 * loss.intercept(y), rtol=1e-10)


@every(
    "loss",
    [
        *KINKED, Hinge(), Perceptron(), EpsilonInsensitive(0.4),
        SmoothedHinge(0.3), SmoothedHinge(), SmoothedHinge(2.5),
        ModifiedLogistic(1.0), ModifiedLogistic(20.0), KLRatio(3.0),
    ],
)  # fmt: skip
def test_kink_weights_give_a_parabola_above_the_loss(loss):
    rng = np.random.default_rng(4)
    if "regression" in loss.tasks:
        y, f = rng.standard_normal((2, 50, 1))
    else:
        y, f = np.sign(rng.standard_normal((50, 1))), rng.standard_normal((50, 1))
    weight = loss.curvature(y, f, 1e-12)
    for move in np.linspace(-4.0, 4.0, 33):
        model = loss.value(y, f) + move * loss.gradient(y, f)[:, 0] + weight * move**2 / 2
        assert np.all(loss.value(y, f + move) <= model + 1e-10)


def test_kink_weights_where_rows_sit_on_the_kink():
    y = np.zeros((5, 1), dtype=np.float32)
    assert np.all(Absolute().curvature(y, y) == 1.0)
    mostly = np.array([[0.0], [0.0], [0.0], [0.0], [5.0]], dtype=np.float32)
    np.testing.assert_allclose(
        Absolute().curvature(y, mostly), [10, 10, 10, 10, 0.2], rtol=1e-6
    )
    assert np.isfinite(Absolute().curvature(y, np.full_like(y, 1e-44))).all()
    with pytest.raises(ValueError, match=r"width must lie in \(0, inf\), got 0"):
        Absolute().curvature(y, y, width=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_smoothed_hinge_by_hand_and_by_its_limits(dtype):
    y, f = np.ones((5, 1)), np.array([[-1.0], [0.5], [0.75], [1.0], [3.0]], dtype)
    half = SmoothedHinge(0.5)
    np.testing.assert_array_equal(half.value(y, f), [1.75, 0.25, 0.0625, 0, 0])
    np.testing.assert_array_equal(half.gradient(y, f)[:, 0], [-1, -1, -0.5, 0, 0])
    np.testing.assert_array_equal(
        half.curvature(y, f), np.array([2 / 7, 2, 2, 2, 2 / 9], dtype)
    )
    assert (half.smoothness, half.typical_curvature) == (2.0, 1 / 1.5)
    assert half.set_params(width=4.0).smoothness == half.typical_curvature == 0.25

    f = np.linspace(-3, 3, 90, dtype=dtype)[:, None]
    y = np.where(np.arange(90) % 3, 1.0, -1.0)[:, None]
    hinge = Hinge().value(y, f)
    for width in (1e-1, 1e-3, 1e-300):
        below = hinge - SmoothedHinge(width).value(y, f)
        assert below.min() >= -1e-6
        assert below.max() <= width / 2 + 1e-6
        far = np.abs(1 - y * f) > width
        loss = SmoothedHinge(width)
        np.testing.assert_array_equal(loss.gradient(y, f)[far], Hinge().gradient(y, f)[far])
    np.testing.assert_allclose(loss.curvature(y, f), Hinge().curvature(y, f, 1e-30), rtol=1e-6)
    # where z <= width it is a multiple of the squared hinge
    wide = SmoothedHinge(8.0)
    np.testing.assert_allclose(wide.value(y, f), SquaredHinge().value(y, f) / 16, rtol=1e-5)


@every("width", [0.3, 1.0, 1.5, 5.0])
def test_smoothed_hinge_has_the_conjugate_of_the_dual_step(width):
    f = np.linspace(-12.0, 12.0, 240_001)[:, None]
    values = SmoothedHinge(width).value(np.ones_like(f), f)
    for u in (-1.0, -0.7, -0.2, 0.0):
        conjugate = np.max(u * f[:, 0] - values)
        assert conjugate == pytest.approx(u + width * u * u / 2, abs=1e-8)
    for u, end in ((-1.01, 0), (0.01, -1)):  # outside it grows with the range of f
        peak = u * f[:, 0] - values
        assert peak[end] == peak.max()


def check_constant(loss, y, w, end):
    """Return the constant for a row of each class, and the best one by search."""

    def total(b):
        return w @ loss.value(y, np.full((2, 1), b))

    [b] = loss.intercept(y, w)
    np.testing.assert_array_equal(loss.intercept(-y, w), [-b])
    np.testing.assert_array_equal(loss.intercept(y, [2.0, 2.0]), [0.0])
    bounds, options = (-end, end), {"xatol": 1e-10}
    best = minimize_scalar(total, bounds=bounds, method="bounded", options=options)
    assert total(b) <= best.fun + 1e-12
    return b, best


@every("width", [0.2, 1.0, 1.4, 3.0])
@every("lighter", [0.0, 0.4, 2.9])
def test_smoothed_hinge_has_the_best_constant(width, lighter):
    loss, y, w = SmoothedHinge(width), np.array([[1.0], [-1.0]]), np.array([lighter, 3.0])

    b, best = check_constant(loss, y, w, 2)
    assert -1.0 <= b < 0.0
    if lighter:  # else all below -1 is alike
        assert b == pytest.approx(best.x, abs=1e-6)


@every("beta", [0.5, 5.0, 900.0])
@every("lighter", [0.4, 2.9])
def test_modified_logistic_tends_to_the_hinge_and_has_the_best_constant(beta, lighter):
    loss, y, w = ModifiedLogistic(beta), np.array([[1.0], [-1.0]]), np.array([lighter, 3.0])
    f = np.linspace(-3, 3, 90)[:, None]
    above = loss.value(np.ones_like(f), f) - Hinge().value(np.ones_like(f), f)
    assert above.min() >= 0.0
    assert np.log(2) / beta - 0.02 <= above.max() <= np.log(2) / beta
    assert loss.smoothness == beta / 4
    [at_zero] = loss.curvature(y[:1], np.zeros((1, 1)))
    assert loss.typical_curvature == pytest.approx(at_zero)

    b, _ = check_constant(loss, y, w, 9)
    assert w @ loss.gradient(y, np.full((2, 1), b))[:, 0] == pytest.approx(0, abs=1e-9)
    assert np.isfinite(loss.intercept(y[:1])).all()


def test_intercepts_by_hand():
    y = np.array([[1.0], [2.0], [10.0], [4.0]])
    np.testing.assert_array_equal(SquaredError().intercept(y), [4.25])
    np.testing.assert_array_equal(Absolute().intercept(y), [3.0])
    np.testing.assert_array_equal(Absolute().intercept(y, [0, 0, 1, 0]), [10.0])
    np.testing.assert_array_equal(Quantile(0.9).intercept(y), [10.0])
    np.testing.assert_allclose(Huber(1e6).intercept(y), [4.25], rtol=1e-8)
    np.testing.assert_array_equal(Huber().intercept(np.full((3, 1), 7.0)), [7.0])
    signs = np.array([[1.0], [1.0], [1.0], [-1.0]])
    np.testing.assert_array_equal(Hinge().intercept(signs), [1.0])
    np.testing.assert_array_equal(Hinge().intercept(signs, [1, 1, 1, 3]), [0.0])
    np.testing.assert_array_equal(SquaredHinge().intercept(signs), [0.5])
    np.testing.assert_allclose(Logistic().intercept(signs), [np.log(3.0)], rtol=1e-14)
    for weight in (None, [1, 1, 1, 0]):
        alone = Logistic().intercept(signs[: 3 if weight is None else 4], weight)
        np.testing.assert_allclose(alone, [np.log(6.0)], rtol=1e-14)
    one_hot = encode_labels(np.array([0, 0, 0, 1]), 3, Multinomial())
    np.testing.assert_allclose(Multinomial().intercept(one_hot).sum(), 0.0, atol=1e-14)
    np.testing.assert_allclose(
        Multinomial().predict_proba(Multinomial().intercept(one_hot)[None]),
        [[3 / 4.5, 1 / 4.5, 0.5 / 4.5]],
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_perceptron_that_does_not_decide_is_mistaken(dtype):
    loss = Perceptron()
    y = np.array([[1.0], [-1.0], [1.0], [-1.0], [1.0], [-1.0]])
    f = np.array([[0.0], [0.0], [-0.0], [-0.0], [1e-30], [1e-30]], dtype)
    np.testing.assert_array_equal(loss.gradient(y, f), [[-1], [1], [-1], [1], [0], [1]])
    np.testing.assert_array_equal(loss.value(y, f), [0, 0, 0, 0, 0, dtype(1e-30)])
    np.testing.assert_array_equal(loss.intercept(y, [3, 1, 1, 1, 1, 1]), [0.0])
    with pytest.raises(ValueError, match="minimum -1"):
        loss.intercept(y, [-1.0, 1, 1, 1, 1, 1])


class Exponential(Loss):
    name = "exponential"
    tasks = frozenset({"classification"})

    def value(self, y, f):
        return np.exp(-y * f).sum(axis=1)

    def gradient(self, y, f):
        return -y * np.exp(-y * f)

    def curvature(self, y, f, width=None):
        return np.exp(-y * f).max(axis=1)


def test_default_intercept_searches_beyond_the_targets():
    y = np.array([[1.0]] * 200 + [[-1.0]])
    np.testing.assert_allclose(Exponential().intercept(y), [0.5 * np.log(200.0)], rtol=1e-7)
    np.testing.assert_allclose(Exponential().intercept(-y), [-0.5 * np.log(200.0)], rtol=1e-7)
    assert 1.0 < Exponential().intercept(y[:3])[0] < 3000.0


@every(
    ("weights", "message"),
    [
        ([1.0, 2.0], r"shape \(3,\), got \(2,\)"),
        ([1.0, -1.0, 1.0], "minimum -1"),
        ([1.0, np.nan, 1.0], "nan"),
        ([0.0, 0.0, 0.0], "sums to 0"),
    ],
)
@every("loss", [SquaredError(), Huber(), Hinge(), Quantile()])
def test_bad_weights_are_named(loss, weights, message):
    y = np.ones((3, 1))
    with pytest.raises(ValueError, match=message):
        loss.intercept(y, weights)


@pytest.mark.parametrize("loss", [SquaredError(), Huber(), Hinge(), Multinomial()], ids=repr)
def test_bad_arrays_are_named(loss):
    y = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"shape \(n, C\), got \(3, 2\) and \(3, 1\)"):
        loss.value(y, y[:, :1])
    with pytest.raises(ValueError, match="reshape"):
        loss.gradient(y[:, 0], y[:, 0])
    with pytest.raises(TypeError, match="int64"):
        loss.curvature(y, y.astype(np.int64))
    with pytest.raises(ValueError, match="0 rows"):
        loss.intercept(y[:0])


@every("width", [0.0, -1.0, np.inf, np.nan])
def test_bad_widths_are_named(width):
    with pytest.raises(ValueError, match=rf"width must lie in \(0, inf\), got {width}"):
        get_loss(SmoothedHinge(width), task="classification")
    with pytest.raises(TypeError, match="width must be a real number, got '1'"):
        get_loss(SmoothedHinge("1"), task="classification")


def test_registry_resolves_names_and_aliases():
    for name, cls in LOSSES.items():
        for task in cls.tasks:
            assert isinstance(get_loss(name, task=task, n_classes=3), cls)
    aliases = {
        "mse": SquaredError,
        "squared_error": SquaredError,
        "mae": Absolute,
        "absolute_error": Absolute,
        "pinball": Quantile,
    }
    for name, cls in aliases.items():
        assert type(get_loss(name, task="regression")) is cls
    assert type(get_loss("log_loss", task="classification", n_classes=2)) is Logistic
    assert type(get_loss("log_loss", task="classification", n_classes=3)) is Multinomial
    assert type(get_loss(Multinomial(), task="classification", n_classes=2)) is Logistic
    given = Huber(3.0)
    assert get_loss(given, task="regression") is given
    assert clone(given).get_params() == {"delta": 3.0}


def test_registry_errors():
    with pytest.raises(ValueError, match=r"Unknown loss 'hing' .*: .*hinge.*mse"):
        get_loss("hing", task="classification")
    with pytest.raises(ValueError, match=r"'hinge' is not for regression; .*absolute.*squared"):
        get_loss("hinge", task="regression")
    with pytest.raises(ValueError, match=r"'log_loss' is not for regression"):
        get_loss("log_loss", task="regression")
    with pytest.raises(ValueError, match=r"'huber' is not for classification; .*hinge"):
        get_loss(Huber(), task="classification")
    with pytest.raises(ValueError, match="give n_classes"):
        get_loss("log_loss", task="classification")
    with pytest.raises(ValueError, match="n_classes must be at least 2, got 1"):
        get_loss("log_loss", task="classification", n_classes=1)
    own = type("OwnMultinomial", (Multinomial,), {})()
    with pytest.raises(ValueError, match=r"OwnMultinomial\(\) .* for two classes give a loss"):
        get_loss(own, task="classification", n_classes=2)
    with pytest.raises(ValueError, match="Unknown task 'ranking'"):
        get_loss("squared", task="ranking")
    with pytest.raises(TypeError, match="instance of Loss"):
        get_loss(Huber, task="regression")


def test_register_loss(monkeypatch):
    monkeypatch.delitem(LOSSES, "exponential", raising=False)
    assert register_loss(Exponential) is Exponential
    try:
        assert isinstance(get_loss("exponential", task="classification"), Exponential)
        with pytest.raises(ValueError, match="'exponential' is taken"):
            register_loss(Exponential)
    finally:
        del LOSSES["exponential"]
    with pytest.raises(TypeError, match="subclass of Loss"):
        register_loss(int)
    with pytest.raises(ValueError, match="'mse' is taken"):
        register_loss(type("Alias", (Exponential,), {"name": "mse"}))
    with pytest.raises(ValueError, match=r"Nameless\.name"):
        register_loss(type("Nameless", (Exponential,), {"name": ""}))
    with pytest.raises(ValueError, match=r"Lost\.tasks"):
        register_loss(type("Lost", (Exponential,), {"name": "lost", "tasks": {"ranking"}}))


def test_encode_labels():
    codes = np.array([0, 1, 1])
    binary = encode_labels(codes, 2, Hinge())
    assert binary.dtype == np.float32
    np.testing.assert_array_equal(binary, [[-1], [1], [1]])
    np.testing.assert_array_equal(
        encode_labels(codes, 3, Logistic()), [[1, -1, -1], [-1, 1, -1], [-1, 1, -1]]
    )
    np.testing.assert_array_equal(
        encode_labels(codes, 2, Multinomial()), [[1, 0], [0, 1], [0, 1]]
    )
    with pytest.raises(ValueError, match=r"0\.\.1, got 0\.\.2"):
        encode_labels(np.array([0, 2]), 2, Hinge())
    with pytest.raises(ValueError, match="ravel"):
        encode_labels(codes[:, None], 2, Hinge())
    with pytest.raises(TypeError, match="float64"):
        encode_labels(codes.astype(float), 2, Hinge())
    with pytest.raises(ValueError, match="n_classes must be at least 2, got 1"):
        encode_labels(codes, 1, Hinge())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predict_proba(dtype):
    f = np.array([[0.0], [2.0], [-1e4], [1e4]], dtype=dtype)
    two = Logistic().predict_proba(f)
    s = 1.0 / (1.0 + np.exp(-2.0))
    np.testing.assert_allclose(two, [[0.5, 0.5], [1 - s, s], [1, 0], [0, 1]], rtol=1e-6)
    g = np.array([[0.0, 1.0, -1.0], [-1e4, -1e4, -1e4], [1e4, 1e4, -1e4]], dtype=dtype)
    sigmoids = 1.0 / (1.0 + np.exp(-g[0]))
    many = Logistic().predict_proba(g)
    np.testing.assert_allclose(many[0], sigmoids / sigmoids.sum(), rtol=1e-5)
    np.testing.assert_allclose(many[1:], [[1 / 3] * 3, [0.5, 0.5, 0]], rtol=1e-5)
    soft = Multinomial().predict_proba(g)
    np.testing.assert_allclose(soft[0], np.exp(g[0]) / np.exp(g[0]).sum(), rtol=1e-5)
    for result in (two, many, soft):
        assert result.dtype == dtype
        np.testing.assert_allclose(result.sum(axis=1), 1.0, rtol=1e-5)
    assert not Hinge.has_proba
    with pytest.raises(CapabilityError, match="'hinge' does not model probabilities"):
        Hinge().predict_proba(f)


def test_multinomial_needs_a_column_per_class():
    with pytest.raises(ValueError, match="one column per class, got 1"):
        Multinomial().value(np.ones((3, 1)), np.ones((3, 1)))


def test_several_quantiles_are_one_loss_each():
    rng = np.random.default_rng(5)
    loss = Quantile((0.1, 0.5, 0.8))
    check_loss(loss)
    y, f = rng.standard_normal((30, 3)), rng.standard_normal((30, 3))
    parts = [loss.for_output(c) for c in range(3)]
    assert [p.quantile for p in parts] == [0.1, 0.5, 0.8]
    one = [p.gradient(y[:, [c]], f[:, [c]]) for c, p in enumerate(parts)]
    np.testing.assert_array_equal(loss.gradient(y, f), np.hstack(one))
    np.testing.assert_allclose(
        loss.value(y, f), sum(p.value(y[:, [c]], f[:, [c]]) for c, p in enumerate(parts))
    )
    column = rng.standard_normal(1001)
    np.testing.assert_allclose(
        loss.intercept(np.tile(column[:, None], 3)),
        np.quantile(column, [0.1, 0.5, 0.8], method="inverted_cdf"),
    )
    assert loss.gradient(y.astype(np.float32), f.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("quantile", "message"),
    [((0.5, 0.5), "increase"), ((0.9, 0.1), "increase"), ((), "number"), ((0.5, 1.0), "1")],
)
def test_bad_quantiles_are_refused(quantile, message):
    with pytest.raises(ValueError, match=message):
        Quantile(quantile).check()


def test_the_level_of_one_class_is_a_weighted_quantile():
    f = np.random.default_rng(0).standard_normal((5000, 1))
    w = np.random.default_rng(1).integers(0, 3, 5000).astype(float)
    loss = OneClass(0.2)
    tau = loss.level(f, w)
    assert w @ (f[:, 0] < tau) / w.sum() == pytest.approx(0.2, abs=1e-3)
    intercept, r = loss.best_intercept(f, w)
    np.testing.assert_array_equal(intercept, -tau)
    assert set(np.unique(r[f < tau])) == {-1.0}
    assert set(np.unique(r[f > tau])) == {0.0}
    # the derivatives average to -nu, whatever the ties and the weights
    for values in (f, np.round(f), np.zeros_like(f), np.array([[1.0], [2.0]])):
        weight = w[: len(values)] + 0.5
        _, r = loss.best_intercept(values, weight)
        assert weight @ r[:, 0] / weight.sum() == pytest.approx(-0.2)


def test_ratio_losses_are_minimal_at_the_ratio():
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.3, 0.1])  # two laws on three points
    y = np.r_[np.ones(3), -np.ones(3)][:, None]
    w = np.r_[p, q]
    cases = [(KLDensityRatio(), np.log(p / q))]
    cases += [(loss, p / q) for loss in (LeastSquaresDensityRatio(), KLRatio())]
    for loss, best in cases:
        f = np.r_[best, best][:, None]
        slope = w * loss.gradient(y, f)[:, 0]
        np.testing.assert_allclose(slope[:3] + slope[3:], 0, atol=1e-12)
        np.testing.assert_allclose(loss.ratio(best), p / q)
    with pytest.raises(ValueError, match="both samples"):
        KLDensityRatio().intercept(np.ones((4, 1)))


@every("rho", [0.5, 2.0])
def test_relative_novelty_is_the_conjugate_of_its_divergence(rho):
    """r* of r(t) = max(0, rho - log t) on a grid of t; the minimiser is p/q or 0."""
    loss, grid = RelativeNovelty(rho), np.exp(np.linspace(-12, 12, 2_000_001))
    r = np.maximum(0, rho - np.log(grid))
    f = np.array([0.01, 0.1, 0.5, 1.0, 3.0])
    conjugate = [np.max(-g * grid - r) for g in f]
    ones = np.ones((5, 1))
    np.testing.assert_allclose(loss.value(ones, f[:, None]) - loss.bound, conjugate, atol=1e-4)
    f = np.linspace(0.0, 4.0, 40_001)[:, None]
    for part in (0.5 * np.exp(-rho), 2.0 * np.exp(-rho)):  # p/q
        total = part * loss.value(np.ones_like(f), f) + loss.value(-np.ones_like(f), f)
        expected = part if part > np.exp(-rho) else 0.0
        assert f[np.argmin(total), 0] == pytest.approx(expected, abs=1e-4)


@every("name", ["hinge", "smoothed_hinge", "squared_hinge", "logistic", "modified_logistic"])
def test_margins_of_target_0_have_neither_slope_nor_curvature(name):
    loss = get_loss(name, task="classification", n_classes=2)
    y, f = np.zeros((5, 1)), np.linspace(-2, 2, 5)[:, None]
    assert not loss.gradient(y, f).any()
    assert not loss.curvature(y, f, 0.1).any()
    assert loss.curvature(y + 1, f - 0.5, 0.1).any()
