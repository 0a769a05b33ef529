"""The table of losses: derivatives, compiled rows, constants, names and errors."""

import numpy as np
import pytest
from sklearn.base import clone

import kernelgrad.losses as kl
import oracles_losses as oracles
from cases import every, raises
from kernelgrad import CapabilityError, LinearRegressor
from kernelgrad.linear import loops as row_losses
from kernelgrad.losses import LOSSES, Loss, encode_labels, get_loss, register_loss
from kernelgrad.testing import check_loss, check_unlabelled_loss
from plain import plain_regressor

OTHERS = [
    kl.LogSquaredError(shift=1.0, factor=1.2, low=0.5, high=3.0),
    kl.Huber(delta=0.05), kl.Huber(delta=np.float64(20.0)), kl.EpsilonInsensitive(epsilon=0.0),
    kl.EpsilonInsensitive(epsilon=np.float64(1.5)), kl.Quantile(quantile=0.05),
    kl.Quantile(quantile=np.float64(0.9)), kl.OneClass(nu=0.4), kl.SmoothedHinge(width=0.3),
    kl.SmoothedHinge(width=np.float64(4.0)), kl.ModifiedLogistic(beta=0.3),
    kl.ModifiedLogistic(beta=np.float64(40.0)), kl.KLRatio(floor=0.3),
    kl.RelativeNovelty(rho=np.float64(2.0)), kl.Tweedie(power=1.1), kl.Tweedie(power=1.9),
]  # fmt: skip
VARIANTS = [*(cls() for cls in LOSSES.values()), *OTHERS]


def batch(loss, rng, n=60):
    if "regression" in loss.tasks:
        y = rng.standard_normal((n, 2))
        y = y if loss.lowest_target is None else np.abs(y)
    elif "classification" in loss.tasks:
        y = encode_labels(rng.integers(0, 3, n), 3, loss).astype(np.float64)
    else:
        y = np.where(np.arange(n) < n // 3, 1.0, -1.0)[:, None]
    return y, 2.0 * rng.standard_normal(y.shape)


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


def width_of(monkeypatch, width):
    """Let curvatures stop growing at this distance from a kink."""
    monkeypatch.setattr(kl.base, "smoothing_width", lambda distance: width)


@every("loss", VARIANTS)
def test_methods_and_compiled_rows_agree_with_the_formulas(loss, monkeypatch):
    width_of(monkeypatch, 0.2)
    y, f = batch(loss, np.random.default_rng(3))
    name, a = oracles.spec(loss)
    values, slopes = oracles.value(name, y, f, a).sum(1), oracles.slope(name, y, f, a)
    np.testing.assert_allclose(loss.value(y, f), values, rtol=1e-12)
    np.testing.assert_allclose(loss.gradient(y, f), slopes, rtol=1e-12)
    weights = oracles.curvature(name, y, f, a, 0.2).max(1)
    np.testing.assert_allclose(loss.curvature(y, f), weights, rtol=1e-12)
    np.testing.assert_allclose(loss.value(y, f.astype("f")), values, rtol=1e-4, atol=1e-6)
    f[0] = 0.0
    values, slopes = loss.value(y, f), loss.gradient(y, f)
    call = loss.code, loss.params(y.shape[1])
    out = np.zeros_like(f)
    rows = zip(y, f, out, strict=True)
    each = [row_losses.loss_of_row(*call, *row) for row in rows]
    np.testing.assert_allclose(each, values, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(out, slopes, rtol=1e-12, atol=1e-15)
    total, all_slopes = row_losses.losses(*call, y, f, np.full(len(y), 0.5))
    assert total == pytest.approx(0.5 * values.sum(), rel=1e-12)
    np.testing.assert_array_equal(all_slopes, out)


@pytest.mark.slow
@every("loss", OTHERS)
def test_contract(loss):
    check_loss(loss, random_state=1)


def test_the_smoothness_is_the_largest_curvature():
    f = np.linspace(-5, 5, 4001)
    for loss in VARIANTS:
        if loss.smoothness is not None and not loss.is_multinomial:
            slopes = [loss.gradient(y + 0 * f[:, None], f[:, None])[:, 0] for y in (1.0, -1.0)]
            largest = np.max(np.diff(slopes)) / (f[1] - f[0])
            assert largest == pytest.approx(loss.smoothness, rel=0.05), loss


def test_logarithms_of_targets_and_back():
    y = np.array([[0.0], [2.0], [50.0]])
    loss = kl.LogSquaredError(shift=1.0, factor=1.2, low=0.5, high=30.0)
    f = loss.targets(y)
    np.testing.assert_allclose(f, np.log1p(y))
    np.testing.assert_allclose(loss.mean(f), [[0.5], [2.6], [30.0]])
    plain = kl.LogSquaredError()
    assert np.isfinite(plain.mean(np.array([[1e6]]))).all()
    np.testing.assert_allclose(plain.mean(plain.targets(y[1:])), y[1:])
    assert plain.lowest_target > 0 == loss.lowest_target


def test_curvatures_where_rows_sit_on_a_kink(monkeypatch):
    y = np.zeros((5, 1), dtype=np.float32)
    assert np.all(kl.Absolute().curvature(y, y) == 1.0)
    kinks = (kl.Hinge(), y + 1), (kl.Absolute(), y + 1), (kl.EpsilonInsensitive(0.5), y + 1.5)
    assert not any(loss.gradient(y + 1, at).any() for loss, at in kinks)
    mostly = np.array([[0.0], [0.0], [0.0], [0.0], [5.0]], dtype=np.float32)
    expected = [10, 10, 10, 10, 0.2]
    for scale in (1, 1000):  # the width follows the scale of the rows
        weights = scale * kl.Absolute().curvature(y, scale * mostly)
        np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert np.isfinite(kl.Absolute().curvature(y, np.full_like(y, 1e-44))).all()
    # without a formula it is the jump of the slope over the width
    f = np.array([[0.05], [0.3]])
    width_of(monkeypatch, 0.1)
    np.testing.assert_allclose(ByMethods(kl.Absolute()).curvature(0 * f, f), [10.0, 0.0])
    width_of(monkeypatch, 1e-4)
    weights = ByMethods(kl.Logistic()).curvature(np.ones((2, 1)), f)
    np.testing.assert_allclose(weights, kl.Logistic().curvature(np.ones((2, 1)), f), rtol=1e-6)


@every("name", ["hinge", "smoothed_hinge", "squared_hinge", "logistic", "modified_logistic"])
def test_margins_of_target_0_have_neither_slope_nor_curvature(name):
    loss = get_loss(name, task="classification", n_classes=2)
    y, f = np.zeros((5, 1)), np.linspace(-2, 2, 5)[:, None]
    assert not loss.gradient(y, f).any()
    assert not loss.curvature(y, f).any()
    assert loss.curvature(y + 1, f - 0.5).any()


def test_a_perceptron_that_does_not_decide_is_mistaken():
    y = np.resize([1.0, -1.0], 6)[:, None]
    f = np.repeat([0.0, -0.0, 1e-30], 2)[:, None]
    assert kl.Perceptron().gradient(y, f).ravel().tolist() == [-1, 1, -1, 1, 0, 1]


def test_a_code_is_not_inherited_by_other_methods():
    class Half(kl.Huber):
        def value(self, y, f):
            return 0.5 * super().value(y, f)

    assert Half.code is None
    assert type("Named", (kl.Huber,), {}).code == kl.Huber.code
    y, f = np.zeros((2, 1)), np.array([[0.5], [3.0]])
    np.testing.assert_allclose(Half().value(y, f), [0.0625, 1.25])
    np.testing.assert_allclose(Half().curvature(y, f), kl.Huber().curvature(y, f))


def broken(base, **methods):
    return type("Broken", (base,), methods)


def with_delta(self, delta=1.0):
    kl.Huber.__init__(self, 2.0 * delta)


def refuse(self):
    if not self.delta > 0:
        raise ValueError("no")


@every(
    ("base", "message", "methods"),
    [
        (kl.Huber, "not between", {"gradient": lambda s, y, f: -kl.Huber.gradient(s, y, f)}),
        (kl.Huber, "says only: no", {"check": refuse}),
        (kl.Logistic, "outside", {"smoothness": 0.1}),
        (kl.Absolute, "float32", {"value": lambda s, y, f: np.abs(f - y).sum(1)}),
        (kl.Hinge, "intercept", {"intercept": lambda s, y, w=None: np.full(y.shape[1], 2.5)}),
        (kl.Logistic, "overflow", {"value": lambda s, y, f: np.exp(-y.astype("f") * f).sum(1)}),
        (kl.Huber, "clone|constructor", {"__init__": with_delta}),
    ],
)
def test_contract_rejects_broken_losses(base, message, methods):
    raises((AssertionError, RuntimeError), message, check_loss, broken(base, **methods)())


def test_constants_that_are_not_the_only_best_ones():
    y = np.array([[1.0], [2.0], [10.0], [4.0]])
    signs = np.array([[1.0], [1.0], [1.0], [-1.0]])
    for loss, targets, weights, expected in [
        (kl.Absolute(), y, None, 3.0), (kl.Hinge(), signs, [1, 1, 1, 3], 0.0),
        (kl.SmoothedHinge(3.0), signs, [1, 1, 1, 3], 0.0), (kl.Perceptron(), signs, None, 0.0),
        (kl.Logistic(), signs, [1, 1, 1, 0], np.log(6.0)),
        (kl.ModifiedLogistic(5.0), signs, [1, 1, 1, 3], 0.0),
    ]:  # fmt: skip
        assert loss.intercept(targets, weights) == pytest.approx(expected, rel=1e-8), loss
        if "regression" not in loss.tasks:
            turned = -loss.intercept(-targets, weights)
            np.testing.assert_allclose(turned, loss.intercept(targets, weights), atol=1e-12)
    one_hot = encode_labels(np.array([0, 0, 0, 1]), 3, kl.Multinomial())
    constant = kl.Multinomial().intercept(one_hot)
    np.testing.assert_allclose(
        kl.Multinomial().predict_proba(constant[None]), [[3 / 4.5, 1 / 4.5, 0.5 / 4.5]]
    )
    raises(ValueError, "both samples", kl.KLDensityRatio().intercept, np.ones((4, 1)))


class Exponential(Loss):
    name = "exponential"
    tasks = frozenset({"classification"})

    def value(self, y, f):
        return np.exp(-y * f).sum(axis=1)

    def gradient(self, y, f):
        return -y * np.exp(-y * f)


def test_default_constants_are_searched_beyond_the_targets():
    y = np.array([[1.0]] * 200 + [[-1.0]])
    for sign in (1.0, -1.0):
        constant = Exponential().intercept(sign * y)
        np.testing.assert_allclose(constant, [sign * 0.5 * np.log(200.0)], rtol=1e-7)
    assert 1.0 < Exponential().intercept(y[:3])[0] < 3000.0


def test_the_level_of_one_class_is_a_weighted_quantile():
    f = np.random.default_rng(0).standard_normal((5000, 1))
    w = np.random.default_rng(1).integers(0, 3, 5000).astype(float)
    loss = kl.OneClass(0.2)
    tau = loss.level(f, w)
    assert w @ (f[:, 0] < tau) / w.sum() == pytest.approx(0.2, abs=1e-3)
    intercept, r = loss.best_intercept(f, w)
    np.testing.assert_array_equal(intercept, -tau)
    assert set(np.unique(r[f != tau])) == {-1.0, 0.0}
    # the derivatives average to -nu, whatever the ties and the weights
    for values in (f, np.round(f), np.zeros_like(f), np.array([[1.0], [2.0]])):
        weight = w[: len(values)] + 0.5
        _, r = loss.best_intercept(values, weight)
        assert weight @ r[:, 0] / weight.sum() == pytest.approx(-0.2)


def test_ratio_losses_are_minimal_at_the_ratio():
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.3, 0.1])  # two laws on three points
    y, w = np.r_[np.ones(3), -np.ones(3)][:, None], np.r_[p, q]
    ratios = (kl.KLDensityRatio(), kl.LeastSquaresDensityRatio(), kl.KLRatio())
    for loss in (*ratios, kl.RelativeNovelty(9.0)):
        best = np.log(p / q) if loss.name == "kl" else p / q
        slope = w * loss.gradient(y, np.r_[best, best][:, None])[:, 0]
        np.testing.assert_allclose(slope[:3] + slope[3:], 0, atol=1e-12)
        np.testing.assert_allclose(loss.ratio(best), p / q)
    assert np.isfinite(kl.KLDensityRatio().ratio(np.array([1e4]))).all()  # no overflow


def test_several_quantiles_are_one_loss_each():
    rng = np.random.default_rng(5)
    loss = kl.Quantile((0.1, 0.5, 0.8))
    check_loss(loss)
    y, f = rng.standard_normal((2, 30, 3))
    parts = [loss.for_output(c) for c in range(3)]
    one = [p.gradient(y[:, [c]], f[:, [c]]) for c, p in enumerate(parts)]
    np.testing.assert_array_equal(loss.gradient(y, f), np.hstack(one))
    values = sum(p.value(y[:, [c]], f[:, [c]]) for c, p in enumerate(parts))
    np.testing.assert_allclose(loss.value(y, f), values)
    column = rng.standard_normal(1001)
    np.testing.assert_allclose(
        loss.intercept(np.tile(column[:, None], 3)),
        np.quantile(column, [0.1, 0.5, 0.8], method="inverted_cdf"),
    )


@every("dtype", [np.float32, np.float64])
def test_probabilities(dtype):
    f = np.array([[0.0], [2.0], [-1e4], [1e4]], dtype=dtype)
    g = np.array([[0.0, 1.0, -1.0], [-1e4, -1e4, -1e4], [1e4, 1e4, -1e4]], dtype=dtype)
    s, sigmoids = 1.0 / (1.0 + np.exp(-2.0)), 1.0 / (1.0 + np.exp(-g[0]))
    powers, ends = np.exp(g[0]), [[1 / 3] * 3, [0.5, 0.5, 0]]
    for loss, raw, expected in [
        (kl.Logistic(), f, [[0.5, 0.5], [1 - s, s], [1, 0], [0, 1]]),
        (kl.Logistic(), g, [sigmoids / sigmoids.sum(), *ends]),
        (kl.Multinomial(), g, [powers / powers.sum(), *ends]),
    ]:
        p = loss.predict_proba(raw)
        assert p.dtype == dtype
        np.testing.assert_allclose(p, expected, rtol=1e-5)
    raises(CapabilityError, "'hinge' does not model probabilities", kl.Hinge().predict_proba, f)


def test_names():
    for name, cls in LOSSES.items():
        for task in cls.tasks:
            assert isinstance(get_loss(name, task=task, n_classes=3), cls)
    for name, cls in {
        "mse": kl.SquaredError, "squared_error": kl.SquaredError, "mae": kl.Absolute,
        "absolute_error": kl.Absolute, "pinball": kl.Quantile,
    }.items():  # fmt: skip
        assert type(get_loss(name, task="regression")) is cls
    for n, cls in ((2, kl.Logistic), (3, kl.Multinomial)):
        assert type(get_loss("log_loss", task="classification", n_classes=n)) is cls
    assert type(get_loss(kl.Multinomial(), task="classification", n_classes=2)) is kl.Logistic
    own = kl.Huber(3.0)
    assert get_loss(own, task="regression") is own
    assert clone(own).get_params() == {"delta": 3.0}


def of(spec, task="classification", **options):
    return lambda: get_loss(spec, task=task, **options)


ONES, PAIRS, CODES = np.ones((3, 1)), np.zeros((3, 2)), np.array([0, 1, 1])
OWN_MULTINOMIAL = type("OwnMultinomial", (kl.Multinomial,), {})()


@every(
    ("call", "error", "message"),
    [
        (of("hing"), ValueError, r"Unknown loss 'hing' .*: .*hinge.*mse"),
        (of("hinge", "regression"), ValueError, r"'hinge' is not for regression; .*absolute"),
        (of(kl.Huber()), ValueError, r"'huber' is not for classification; .*hinge"),
        (of("log_loss"), ValueError, "give n_classes"),
        (of("log_loss", n_classes=1), ValueError, "n_classes must be at least 2, got 1"),
        (of(OWN_MULTINOMIAL, n_classes=2), ValueError, "for two classes give a loss"),
        (of("squared", "ranking"), ValueError, "Unknown task 'ranking'"),
        (of(kl.Huber, "regression"), TypeError, "instance of Loss"),
        (of(kl.RelativeNovelty(-70), "density_ratio"), ValueError, r"\[-69, 69\], got -70"),
        (lambda: kl.Multinomial().value(ONES, ONES), ValueError, "one column per class, got 1"),
        *[
            case
            for loss in (kl.SquaredError(), kl.Hinge(), kl.Multinomial())
            for case in [
                (lambda a=loss: a.value(PAIRS, ONES), ValueError, r"\(3, 2\) and \(3, 1\)"),
                (lambda a=loss: a.gradient(PAIRS[:, 0], PAIRS[:, 0]), ValueError, "reshape"),
                (lambda a=loss: a.curvature(PAIRS, PAIRS.astype(int)), TypeError, "int64"),
                (lambda a=loss: a.intercept(PAIRS[:0]), ValueError, "0 rows"),
            ]
        ],
        *[
            (lambda a=loss, w=w: a.intercept(ONES, w), ValueError, message)
            for loss in (kl.SquaredError(), kl.Huber(), kl.Hinge(), kl.Perceptron())
            for w, message in [
                ([1.0, 2.0], r"shape \(3,\), got \(2,\)"), ([1.0, -1.0, 1.0], "minimum -1"),
                ([1.0, np.nan, 1.0], "nan"), ([0.0, 0.0, 0.0], "sums to 0"),
            ]
        ],
        (lambda: encode_labels(np.array([0, 2]), 2, kl.Hinge()), ValueError, r"0\.\.1, got 0"),
        (lambda: encode_labels(CODES[:, None], 2, kl.Hinge()), ValueError, "ravel"),
        (lambda: encode_labels(CODES + 0.0, 2, kl.Hinge()), TypeError, "float64"),
        (lambda: encode_labels(CODES, 1, kl.Hinge()), ValueError, "at least 2, got 1"),
        (lambda: register_loss(broken(Loss, name="mse")), ValueError, "'mse' is taken"),
    ],
)  # fmt: skip
def test_errors_name_the_value(call, error, message):
    raises(error, message, call)


def test_labels_as_targets():
    binary = encode_labels(CODES, 2, kl.Hinge())
    assert binary.dtype == np.float32
    np.testing.assert_array_equal(binary, [[-1], [1], [1]])
    signs = encode_labels(CODES, 3, kl.Logistic())
    np.testing.assert_array_equal(signs, [[1, -1, -1], [-1, 1, -1], [-1, 1, -1]])
    one_hot = encode_labels(CODES, 2, kl.Multinomial())
    np.testing.assert_array_equal(one_hot, [[1, 0], [0, 1], [0, 1]])


R = np.linspace(-2, 2, 400)[:, None]


def two_ramps(s):
    """Return the ramp through its two pseudo-labels."""

    def ramp(z):
        return np.maximum(0, 1 - z) - np.maximum(0, s - z)

    return lambda r: ramp(r) + ramp(-r) - (1 - s)


DEFINITIONS = [  # Table 2 of the paper, written out
    (kl.SymmetricHinge(), lambda r: np.maximum(0, 1 - np.abs(r))),
    (kl.SquaredSymmetricHinge(), lambda r: np.maximum(0, 1 - np.abs(r)) ** 2 / 2),
    (kl.GaussianBump(), lambda r: np.exp(-5 * r**2)),
    *((kl.Ramp(s), two_ramps(s)) for s in (-0.8, -0.3, 0.0)),
]


@every("loss, definition", DEFINITIONS)
def test_losses_are_their_definitions(loss, definition):
    np.testing.assert_allclose(loss.value(R), definition(R[:, 0]), atol=1e-12)
    check_unlabelled_loss(loss)  # the gradient is the derivative of the value
    step = -loss.gradient(R)  # moves off zero, unlike one of the sign printed there
    assert (step * np.sign(R) >= 0).all()
    assert (step != 0).any()
    assert not loss.gradient(np.zeros((2, 3))).any()
    f = np.random.default_rng(0).standard_normal((7, 3))
    np.testing.assert_allclose(loss.value(f), sum(loss.value(c[:, None]) for c in f.T))


def test_names_of_unlabelled_losses():
    assert {type(loss) for loss, _ in DEFINITIONS} == set(kl.UNLABELLED_LOSSES.values())
    assert kl.get_unlabelled_loss("ramp").s == -0.3
    loss = kl.Ramp(-0.5)
    assert kl.get_unlabelled_loss(loss) is loss
    raises(ValueError, "symmetric_hinge", kl.get_unlabelled_loss, "hinge")
    raises(TypeError, "UnlabelledLoss", kl.get_unlabelled_loss, 3)
    for s in (-1.0, 0.1, np.nan):
        raises(ValueError, "s ", kl.get_unlabelled_loss, kl.Ramp(s))


def test_parts_of_the_joint_loss():
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 0.0, 1.0], 30)[:, None]
    f, weight = 2 * rng.standard_normal((30, 1)), rng.random(30)
    loss = kl.SemiSupervised(kl.Hinge(), kl.Ramp(), 0.25)
    value = np.where(y == 0, 0.25 * two_ramps(-0.3)(f), np.maximum(0, 1 - y * f))
    np.testing.assert_allclose(loss.value(y, f), value[:, 0], atol=1e-12)
    slope = np.where(y == 0, 0.25 * kl.Ramp().gradient(f), kl.Hinge().gradient(y, f))
    np.testing.assert_allclose(loss.gradient(y, f), slope, atol=1e-12)
    labelled = y[:, 0] != 0
    mean = np.average(y[labelled], axis=0, weights=weight[labelled])
    np.testing.assert_allclose(loss.intercept(y, weight), mean)
    assert loss.intercept(np.zeros((3, 2))).tolist() == [0.0, 0.0]
    raises(ValueError, "ratio", kl.SemiSupervised(kl.Hinge(), kl.Ramp(), -1.0).check)


# Losses that users write are used by their names in all but the compiled loops


class OwnHuber(Loss):
    """The loss of Huber with delta = 1, by value and gradient alone."""

    name = "own_huber"
    tasks = frozenset({"regression"})
    smoothness = 1.0

    def value(self, y, f):
        z = np.abs(f - y)
        return np.sum(np.where(z < 1, 0.5 * z * z, z - 0.5), axis=1).astype(f.dtype)

    def gradient(self, y, f):
        return np.clip(f - y, -1, 1).astype(f.dtype)


@pytest.fixture
def registered():
    assert register_loss(OwnHuber) is OwnHuber
    raises(ValueError, "'own_huber' is taken", register_loss, OwnHuber)
    yield
    del LOSSES["own_huber"]


PAPERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("udsg", "cdsg")]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("solver", ["dsg", "block_descent", *PAPERS])
def test_solvers_learn_by_a_loss_of_ones_own(solver):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (150, 2))
    y = 2.0 * X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(150)
    options = {"solver": solver, "alpha": 1e-3, "max_iter": 60, "random_state": 0}
    model = plain_regressor("own_huber", gamma=0.5, **options).fit(X, y)
    assert model.score(X, y) > 0.9
    theirs = plain_regressor(kl.Huber(1.0), gamma=0.5, **options).fit(X, y)
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), atol=0.1)


@pytest.mark.usefixtures("registered")
def test_compiled_loops_refuse_a_loss_of_ones_own():
    for model in (LinearRegressor("own_huber"), plain_regressor("own_huber", solver="norma")):
        raises(CapabilityError, "own_huber", model.fit, np.ones((9, 2)), np.arange(9.0))
