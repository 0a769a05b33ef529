"""The study before a fit: what it finds, keeps, leaves alone and says."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score

from cases import every, raises
from conftest import DATA
from kernelgrad import KernelClassifier, KernelRegressor, load
from kernelgrad.exceptions import ModelFileError
from kernelgrad.files.records import restoring
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import Matern
from kernelgrad.losses import SquaredError
from kernelgrad.packing import pack, unpack
from kernelgrad.search import search as _search
from kernelgrad.tasks import Regression
from kernelgrad.testing import check_checkpoints
from sources import named, opened


def function(X):
    return np.sin(2 * X[:, 0] + X[:, 1]) + X[:, 2] * np.cos(X[:, 3])


def rows(n=240, d=7, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, function(X) + noise * rng.standard_normal(n)


X, Y = rows()
TEST = np.random.default_rng(99).standard_normal((1000, 7))


def regressor(**parameters):
    return KernelRegressor(random_state=0, **parameters)


def classifier(**parameters):
    return KernelClassifier(random_state=0, probability=False, **parameters)


def error(model):
    return np.sqrt(np.mean((model.predict(TEST) - function(TEST)) ** 2))


@pytest.fixture(scope="module")
def plain():
    return regressor().fit(X, Y)


def test_the_columns_that_count_are_found(plain):
    model = plain
    weights = model.metric_
    assert weights.max() == 1
    assert weights[:4].min() > 2 * weights[4:].max()
    assert model.feature_importances_[:4].min() > 2 * model.feature_importances_[4:].max()
    assert error(model) < 0.7 * error(regressor(metric=None).fit(X, Y))
    told = model.history_["metric"]
    assert {"weights", "equal weights"} <= {each["round"] for each in told}
    others = [t["score"] for t in told if t["round"] == "equal weights"]
    assert min(t["score"] for t in told if t["round"] == "weights") < min(others) - 0.05


@pytest.mark.slow
def test_targets_without_sense_give_no_metric():
    rng = np.random.default_rng(5)
    models = [KernelRegressor(random_state=k).fit(X, rng.permutation(Y)) for k in range(3)]
    none = [model for model in models if model.metric_ is None]
    assert len(none) >= 2  # by chance weights are better by a standard error now and then
    held = rng.standard_normal(1000)
    worse = [np.mean((held - m.predict(TEST) / Y.std()) ** 2) for m in models]
    assert np.mean(worse) < 1.1 * np.mean(held**2)
    loose = regressor(gamma=0.1, alpha=1e-6).fit(X, rng.standard_normal(240))
    assert np.mean((held - loose.predict(TEST)) ** 2) > 1.5  # what the study avoids


def test_columns_of_one_category_share_a_weight():
    rng = np.random.default_rng(0)
    kind, other = rng.choice(list("abcd"), 300), rng.choice(list("uvw"), 300)
    x = rng.standard_normal(300)
    y = np.select([kind == "a", kind == "b"], [2.0, -1.0], 0.5) + np.sin(x)
    table = pd.DataFrame({"kind": kind, "x": x, "other": other})
    noise = 0.1 * rng.standard_normal(300)
    model = regressor(metric="diagonal").fit(table, y + noise)
    assert len(model.metric_) == 8
    assert len(set(model.metric_)) == 3
    importances = model.feature_importances_
    assert importances.shape == (3,)
    assert importances.sum() == pytest.approx(1)
    assert importances[2] < 0.1 * importances[:2].min()


def test_weights(plain):
    same = regressor().fit(X, Y, sample_weight=np.full(240, 3.0))
    np.testing.assert_allclose(same.metric_, plain.metric_, rtol=1e-9)
    assert same.alpha_ == pytest.approx(plain.alpha_, rel=1e-9)
    # rows of the half with another law count as they weigh
    half = np.where(np.arange(240) < 120, Y, 2 * np.sin(2 * X[:, 5]))
    first = np.repeat([1.0, 0.02], 120)
    column = [
        regressor().fit(X, half, sample_weight=w).metric_[5] for w in (first, first[::-1])
    ]
    assert column[0] < 0.5
    assert column[1] == 1.0


@pytest.mark.parametrize(
    ("make", "loss", "y"),
    [
        (regressor, "absolute", Y),
        (classifier, "hinge", Y > 0),
        (classifier, "log_loss", np.digitize(Y, [-0.5, 0.5])),
    ],
)
def test_alpha_of_another_loss_is_chosen_on_that_loss(make, loss, y):
    model = make(loss=loss).fit(X, y)
    assert model.metric_[:4].mean() > 2 * model.metric_[4:].mean()
    trials = model.history_["search"]
    own = [t for t in trials if "candidate" in t]
    assert len(own) == len(trials) >= 3
    least = min(t["loss"] for t in own)  # several have it, up to rounding
    best = max((t for t in own if t["loss"] < 1.000001 * least), key=lambda t: t["alpha"])
    assert own[0]["alpha"] < best["alpha"] < own[-1]["alpha"]
    assert model.alpha_ * 240 == pytest.approx(best["alpha"] * best["rows"])
    assert all(np.isfinite(t["loss"]) for t in trials)


def test_several_outputs():
    both = regressor().fit(X, np.stack([Y, 1e3 * np.sin(3 * X[:, 5])], axis=1))
    importances = both.feature_importances_  # the rough part may have found column 5
    assert importances[[0, 5]].min() > 3 * importances[[4, 6]].max()


def test_what_is_given_stays(plain):
    none = regressor(metric=None, gamma=0.2, alpha=1e-3).fit(X, Y)
    assert none.kernel_.gamma == 0.2
    assert not {"search", "metric"} & none.history_.keys()
    alpha = regressor(alpha=1e-2).fit(X, Y)
    assert alpha.alpha_ == 1e-2
    assert alpha.history_["search"] == []
    C = regressor(C=5.0).fit(X, Y)
    assert C.alpha_ == pytest.approx(1 / (5.0 * 240))
    assert C.metric_ is not None
    gamma = regressor(metric="diagonal", gamma=0.4).fit(X, Y)
    assert gamma.kernel_.gamma == pytest.approx(0.4, rel=1e-9)
    assert gamma.metric_[:4].min() > 1.5 * gamma.metric_[4:].max()
    assert 0 < gamma.alpha_ != 1e-2
    searched = regressor(metric=None, gamma=0.2).fit(X, Y)
    assert (searched.kernel_.gamma, searched.metric_) == (0.2, None)
    assert len(searched.history_["search"]) > 2
    wide = regressor(bandwidth_factor=3.0).fit(X, Y)
    assert wide.kernel_.gamma == pytest.approx(plain.kernel_.gamma / 9)
    matern = regressor(kernel="matern").fit(X, Y)
    assert {t["kernel"].split("(")[0] for t in matern.history_["metric"]} == {"Matern"}
    assert matern.kernel_.nu == Matern().nu


GIVEN = np.array([1.0, 0.5, 0.5, 2.0, 0.0, 0.1, 0.3])


@pytest.mark.parametrize("solver", ["auto", "block_descent", "dsg"])
def test_an_array_scales_the_columns(solver):
    given = {"gamma": 0.2, "alpha": 1e-3, "solver": solver, "max_iter": 20}
    for metric in (GIVEN, np.diag(GIVEN)[:, :5] + 0.05):
        scaled, test = (Z * metric if metric.ndim == 1 else Z @ metric for Z in (X, TEST))
        a = regressor(metric=metric, **given).fit(X, Y)
        b = regressor(metric=None, **given).fit(scaled, Y)
        np.testing.assert_array_equal(a.metric_, metric)
        np.testing.assert_allclose(a.predict(TEST), b.predict(test), atol=2e-4)


@every(
    ("parameters", "message"),
    [
        ({"metric": "diag"}, "Unknown metric 'diag' .*: auto, diagonal, full, None, w"),
        ({"metric": [1.0, 2.0]}, "metric has 2 rows, but the rows have 7 columns"),
        ({"metric": np.ones(8)}, "metric has 8 rows"),
        ({"metric": np.ones((3, 7))}, "metric has 3 rows"),
        ({"metric": np.ones((7, 7, 7))}, r"weights of the columns \(d,\) or a matrix"),
        ({"metric": [-1.0] + [1.0] * 6}, "give weights >= 0"),
        ({"metric": np.zeros(7)}, "no weight above 0"),
        ({"metric": [np.nan] * 7}, "finite numbers"),
        ({"metric": ["a"] * 7}, "finite numbers"),
        ({"metric": "diagonal", "gamma": "scale"}, "gamma a number or 'auto'"),
        ({"alpha": "best"}, "rule for alpha"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    raises(ValueError, message, regressor(**parameters).fit, X, Y)


@pytest.mark.slow
def test_a_matrix():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 6))
    one = x @ np.array([1.0, 1, 1, -1, 0, 0])
    model = regressor(metric="full").fit(x, np.sin(one) + 0.05 * rng.standard_normal(300))
    u, s, _ = np.linalg.svd(model.metric_)
    assert s[0] == pytest.approx(1)
    assert s[1] < 0.5
    assert abs(u[:, 0] @ [0.5, 0.5, 0.5, -0.5, 0, 0]) > 0.98
    assert model.feature_importances_[4:].max() < 0.05
    assert model.history_["metric"][-1]["round"] == "matrix"
    with pytest.raises(ValueError, match="up to 300 columns, and the rows have 301"):
        regressor(metric="full").fit(rng.standard_normal((50, 301)), Y[:50])


@pytest.mark.slow
def test_scalings_of_columns():
    # unscaled rows far from 0 are as good as others
    model = regressor(standardize=False).fit(X + 1e5, Y)
    assert np.sqrt(np.mean((model.predict(TEST + 1e5) - function(TEST)) ** 2)) < 0.45
    assert model.metric_[:4].min() > 2 * model.metric_[4:].max()
    # warps undo what ranks would undo
    x, y = rows(1200)
    model = regressor().fit(np.sinh(2 * x), y)
    assert {t["scaling"] for t in model.history_["metric"]} == {"robust"}
    warped = np.mean((model.predict(np.sinh(2 * TEST)) - function(TEST)) ** 2)
    plain = regressor(kernel="rbf").fit(np.sinh(2 * x), y)
    assert warped < 0.8 * np.mean((plain.predict(np.sinh(2 * TEST)) - function(TEST)) ** 2)


def test_streams_learn_from_their_first_rows():
    x, y = rows(900)
    model = regressor(solver="dsg").partial_fit(x[:300], y[:300])
    weights = model.metric_.copy()
    assert weights[:4].min() > 2 * weights[4:].max()
    # alpha is that of many rows, as nobody knows how many will come
    assert model.alpha_ < 0.1 * regressor(solver="dsg", max_iter=1).fit(x[:300], y[:300]).alpha_
    model.partial_fit(x[300:], y[300:])
    np.testing.assert_array_equal(model.metric_, weights)
    few = regressor(solver="dsg").partial_fit(x[:20], y[:20])
    assert few.metric_ is None
    assert "too few rows" in few.history_["metric_reason"]


def test_sparse_rows():
    x, y = rows()
    x = np.where(np.abs(x) > 0.2, x, 0.0)
    dense = regressor(kernel="rbf", standardize=False).fit(x, y)
    sparse = regressor(kernel="rbf").fit(sp.csr_matrix(x), y)
    assert sparse.metric_[:4].min() > 1.5 * sparse.metric_[4:].max()
    np.testing.assert_allclose(sparse.metric_, dense.metric_, rtol=0.02, atol=1e-3)
    # neither warps nor a rough part, which need dense rows
    model = regressor().fit(sp.csr_matrix(x), y)
    assert (model.kernel_.name, model.expansion_.scaling.warp) == ("matern", None)
    wide = sp.random(60, 3000, 0.01, format="csr", random_state=0)
    model = regressor().fit(wide, Y[:60])
    assert model.metric_ is None
    assert model.history_["metric_reason"] == "more than 2,000 columns"
    assert model.alpha_ > 0


def test_where_there_is_nothing_to_learn():
    constant = regressor().fit(X, np.full(240, 2.5))
    np.testing.assert_allclose(constant.predict(TEST), 2.5)
    assert constant.history_["metric_reason"] == "the targets are constant"
    for n in (1, 3, 39):
        few = regressor().fit(X[:n], Y[:n])
        assert few.metric_ is None
        assert "too few rows" in few.history_["metric_reason"]
    reason = regressor().fit(X[:40], Y[:40]).history_["metric_reason"]
    assert "the errors on rows that were not fitted" in reason
    one = regressor().fit(X[:, :1], np.sin(3 * X[:, 0]))
    assert one.metric_ is None
    assert one.score(X[:, :1], np.sin(3 * X[:, 0])) > 0.99
    flat = regressor().fit(np.zeros((50, 3)), Y[:50])
    np.testing.assert_allclose(flat.predict(TEST[:, :3]), Y[:50].mean(), atol=0.2)


@pytest.mark.parametrize("kernel", ["laplacian", "polynomial", "precomputed"])
def test_kernels_without_a_metric_get_their_alpha(kernel):
    a, b = np.abs(X), np.abs(TEST)
    y, truth = np.sin(a[:, 0]) + a[:, 1], np.sin(b[:, 0]) + b[:, 1]
    y = y + 0.2 * np.random.default_rng(0).standard_normal(240)
    if kernel == "precomputed":
        a, b = a @ a.T, b @ a.T
    model = regressor(kernel=kernel).fit(a, y)
    assert model.metric_ is None
    assert "no metric" in model.history_["metric_reason"]
    assert 1 - model.score(b, truth) < 0.35
    trials = model.history_["search"]
    ends = [regressor(kernel=kernel, alpha=model.alpha_ * f).fit(a, y) for f in (1e-4, 1e4)]
    assert model.score(b, truth) > max(end.score(b, truth) for end in ends) - 0.02
    least = min(trials, key=lambda t: t["loss"])
    near = [t for t in trials if t["loss"] < least["loss"] + 2e-3]
    assert any(0.5 < model.alpha_ / t["alpha"] < 2 for t in near)
    gammas = {t["gamma"] for t in trials}
    assert len(gammas) >= 4 if kernel == "laplacian" else len(gammas) == 1
    assert kernel != "laplacian" or model.kernel_.gamma == least["gamma"]


def test_trials_of_bandwidths_go_on_after_a_small_rise_only():
    def chosen(*losses):
        return _search.best_narrowing(
            dict(zip((1.0, 2.0, 4.0, 8.0, 16.0), losses, strict=True)).get, 1.0
        )

    assert chosen(1.0, 1.005, 0.9, 0.8, 0.85) == 8.0
    assert chosen(1.0, 1.005, 1.004, 0.8, 0.7) == 1.0
    assert chosen(1.0, 1.005, 0.999, 1.005, 0.7) == 16.0
    assert chosen(1.0, 1.02, 0.9, 0.8, 0.7) == 1.0
    assert chosen(1.0, 0.9, 0.905, 0.908, 0.8) == 2.0
    assert chosen(1.0, 0.9, 0.8, 0.7, 0.6) == 16.0


def test_a_sum_of_a_smooth_and_a_rough_part_on_warped_columns(plain):
    model = regressor().fit(X[:, :3], np.sign(X[:, 0]) + np.sign(X[:, 1]))
    smooth, rough = model.kernel_.kernels
    assert (smooth.name, rough.name) == ("matern", "root_laplacian")
    q = model.kernel_.weights[1]
    assert sum(model.kernel_.weights) == pytest.approx(1)
    warp = model.expansion_.scaling.warp
    assert warp.shape == (2, 11, 3)
    assert (np.diff(warp, axis=1) > 0).all()
    np.testing.assert_allclose(model.predict(X[:1, :3]), model.predict(X[:, :3])[:1], atol=1e-5)
    assert model.feature_importances_[2] < 0.1
    # a smooth function has a Gaussian kernel, or at least a smaller rough part
    kernel = plain.kernel_
    assert kernel.name == "rbf" or kernel.weights[1] < q / 2


# The loss that a search chooses


def skewed(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4))
    mean = np.exp(1.2 * x[:, 0] + np.sin(2 * x[:, 1]))
    return x, mean, mean * np.exp(0.3 * rng.standard_normal(n))


def test_skewed_targets_are_fitted_by_their_logarithms(tmp_path):
    x, mean, y = skewed(200)
    model = regressor(warm_start=True).fit(x, y)
    loss = model.loss_
    assert (loss.name, loss.shift) == ("log_squared", 0.0)
    assert (loss.low, loss.high) == (y.min(), y.max())
    predicted = model.predict(10.0 * skewed(1000, seed=1)[0])
    assert y.min() <= predicted.min() < predicted.max() <= y.max()
    assert model.score(x, mean) > 0.8
    targets, logs = model.history_["search"][-2:]
    assert (targets["candidate"], logs["candidate"]) == ("targets", "logarithms")
    assert logs["loss"] < targets["loss"]
    # a chosen loss is part of the model, not of the parameters
    assert model.get_params()["loss"] == "auto"
    assert not hasattr(clone(model), "loss_")
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert repr(again.loss_) == repr(loss)
    kernel = repr(model.kernel_)
    model.fit(x, y)  # goes on with what was found
    assert (repr(model.loss_), repr(model.kernel_)) == (repr(loss), kernel)


def test_zeros_are_shifted_and_other_targets_stay():
    x, _, y = skewed(60)
    loss = regressor().fit(x, np.floor(y)).loss_
    assert (loss.name, loss.shift, loss.low) == ("log_squared", 1.0, 0.0)
    for other in (y - 5.0, np.sqrt(np.log1p(y)), np.stack([y, y], axis=1)):
        assert regressor().fit(x, other).loss_.name == "squared"
    assert regressor(loss="squared").fit(x, y).loss_.name == "squared"
    assert regressor(alpha=1e-3).fit(x, y).loss_.name == "squared"


def labels(n, seed=0, noise=0.0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3))
    return x, x[:, 0] + x[:, 1] + noise * rng.standard_normal(n)


def log_loss(p, y):
    return -np.mean(np.log(p[np.arange(len(y)), y]))


@pytest.mark.slow
def test_rare_separable_classes_have_probabilities():
    x, z = labels(400)
    test, truth = labels(2000, seed=1)
    y = (z > 2.6).astype(int)  # some 3 % of the rows
    truth = (truth > 2.6).astype(int)
    model = KernelClassifier(random_state=0).fit(x, y)
    p = model.predict_proba(test)
    base = np.array([1 - y.mean(), y.mean()]) * np.ones((2000, 1))
    assert log_loss(p, truth) < 0.8 * log_loss(base, truth)
    assert np.mean(model.predict(test) != truth) < 0.6 * truth.mean()


def test_the_log_loss_competes_with_the_squared_one(tmp_path):
    x, z = labels(200)
    y = np.digitize(z, [-1.0, 1.0])
    model = KernelClassifier(random_state=0, warm_start=True).fit(x, y)
    trials = model.history_["search"]
    least = {
        name: min(t["loss"] for t in trials if t["candidate"] == name)
        for name in ("squared", "log_loss")
    }
    assert least["log_loss"] < 0.8 * least["squared"]
    assert model.loss_.name == "log_loss"
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    assert clone(model).get_params()["loss"] == "auto"
    model.fit(x, y)
    assert model.loss_.name == "log_loss"
    squared = classifier().fit(x, y)  # without probabilities there is no log loss to lower
    assert (squared.loss_.name, squared.history_["search"]) == ("squared", [])


def test_the_study_sees_no_weights_of_classes(tmp_path):
    x, z = labels(60, noise=1.0)
    rare = (z > 1).astype(int)
    unweighted = classifier().fit(x, rare)
    for source in ((x, rare), (opened(tmp_path, "npy", x, rare),)):
        weighted = classifier(class_weight={0: 1.0, 1: 4.0}).fit(*source)
        np.testing.assert_array_equal(weighted.metric_, unweighted.metric_)
        assert repr(weighted.kernel_) == repr(unweighted.kernel_)
        assert weighted.predict(x).sum() > unweighted.predict(x).sum()  # but the fit does
        share = rare.mean()
        effective = (1 + 3 * share) ** 2 / (1 + 15 * share)  # share of the rows (Kish 1965)
        assert weighted.alpha_ == pytest.approx(unweighted.alpha_ / effective)


def unbalanced(name, n):
    """Return rows and whether they are of the rare class, the first `n` for training."""
    if name.startswith("made"):
        seed, size = int(name[-1]), n + 3000
        if seed == 5:
            X = np.random.default_rng(5).normal(size=(size, 44))
            f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3]
            return X, f > np.quantile(f, 0.96)
        return make_classification(
            size, 20, n_informative=8, weights=[0.95], flip_y=0.01, random_state=seed
        )
    path = DATA / "tables" / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"needs {path} (set KERNELGRAD_DATA to the folder)")
    table = pd.read_parquet(path).sample(frac=1, random_state=0)
    y = table.pop({"so_remote": "Remote", "lending_club": "Class"}.get(name, "ThryroidClass"))
    return table, (y == y.value_counts().index[-1]).to_numpy()


@pytest.mark.slow
@every("name", ["made1", "made4", "made5", "so_remote", "lending_club", "thyroid"])
def test_weights_of_classes_keep_the_order_of_rows(name):
    n = 800
    X, y = unbalanced(name, n)
    plain, balanced = (
        KernelClassifier(random_state=0, class_weight=weight)
        .fit(X[:n], y[:n])
        .decision_function(X[n:])
        for weight in (None, "balanced")
    )
    plain, balanced = (average_precision_score(y[n:], f) for f in (plain, balanced))
    assert balanced > plain - 0.05


@pytest.mark.slow
def test_checkpoints_hold_the_loss():
    x, _, y = skewed(100)
    check_checkpoints(regressor(), x, y)


def test_the_penalty_is_the_one_that_the_rows_that_judge_chose():
    Z, z = rows(1600, 4, noise=0.02)
    model = regressor(loss="squared").fit(Z, z)
    kernel = repr(model.kernel_)
    ridges = [e["ridge"] for e in model.history_["metric"] if e["kernel"] == kernel]
    assert 1600 * model.alpha_ == pytest.approx(ridges[-1], rel=1e-9)
    assert len(ridges) == 1


def test_unseen_rows_have_responses_in_the_units_of_the_targets():
    weight = np.array([0.5, 1.5, 1.0])
    pool = SimpleNamespace(y=np.array([1.0, 2.0, 6.0]), weight=weight)
    best = SimpleNamespace(outputs=np.array([[0.0], [1.0]]))
    study = SimpleNamespace(pool=pool, best=best, validation=np.array([2, 0, 1]), source="rows")
    unseen = _search.unseen_of(study, Regression(SquaredError(), 1, "model", 1))
    mean = np.average(pool.y, weights=weight)
    deviation = np.sqrt(np.average((pool.y - mean) ** 2, weights=weight))
    np.testing.assert_allclose(unseen.values[:, 0], [mean, mean + deviation])
    np.testing.assert_array_equal(unseen.y, [6.0, 1.0])


def test_what_was_found_is_given_back(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=list("abcdefg")).assign(h=rng.choice(["u", "v"], len(X)))
    frame, y = frame[:120], Y[:120]
    for model, rows, targets in (
        (regressor(kernel="precomputed"), X[:120] @ X[:120].T, y),
        (regressor(), frame, y),
        (KernelClassifier(), frame, y > 0),
        (regressor(C=1.0), frame, y),
    ):
        model.fit(rows, targets)
        twin = clone(model).set_params(**model.best_params_).fit(rows, targets)
        assert np.array_equal(twin.predict(rows), model.predict(rows))
        assert "metric" not in twin.history_
        twin.save(tmp_path / "m")
        assert np.array_equal(load(tmp_path / "m").predict(rows), twin.predict(rows))
    with pytest.raises(ValueError, match="give that kernel as an object"):
        regressor(standardize=model.best_params_["standardize"]).fit(frame, y)
    with pytest.raises(ValueError, match="scaling of 9 columns, but the rows have 3"):
        clone(twin).set_params(metric=None).fit(X[:, :3], Y)
    before = model.best_params_["kernel"]  # the kernel of the fit, whatever is set later
    assert model.set_params(kernel="rbf", gamma=1.0).best_params_["kernel"] is before


def test_a_scaling_in_a_file_is_checked(tmp_path):
    scaling = InputScaling(np.zeros(2), np.ones(2), warp=np.ones((2, 3, 2)))
    packed = pack(scaling)
    assert all(
        np.array_equal(a, unpack(packed).arrays()[k]) for k, a in scaling.arrays().items()
    )
    for wrong in (
        {"scaling": {"scale": pack(-np.ones(2))}},
        {"scaling": {"scale": None}},
        {"scaling": None},
        {"scaling": {"warp": packed["scaling"]["scale"]}},
        {"array": np.ones(5), "shape": [2, 3]},
    ):
        with pytest.raises(ModelFileError), restoring("file"):
            unpack(wrong)


def test_effort_sets_the_study_only(plain):
    fits = {e: regressor(effort=e).fit(X, Y) for e in ("fast", "best")} | {"default": plain}
    names = {e: [r["candidate"] for r in m.history_["metric"]] for e, m in fits.items()}
    assert names["fast"] == ["weights", "equal weights", "Matern"]
    assert len(names["best"]) >= len(names["default"]) > 2
    given = [
        regressor(effort=e, kernel="rbf", gamma=0.1, alpha=1e-3).fit(X, Y).predict(TEST)
        for e in fits
    ]
    assert np.array_equal(given[0], given[1])
    assert np.array_equal(given[0], given[2])


def test_fast_fits_take_some_of_many_rows_from_memory_and_from_files(tmp_path, monkeypatch):
    monkeypatch.setattr("kernelgrad.families.kernel._FAST_ROWS", 400)
    many, y = rows(800)
    model, all_rows = (regressor(effort=e).fit(many, y) for e in ("fast", "default"))
    assert model.history_["rows_fitted"] == model.n_support_ == 400
    assert "rows_fitted" not in all_rows.history_
    assert all_rows.score(TEST, function(TEST)) > model.score(TEST, function(TEST)) > 0.9
    given = regressor(effort="fast").set_params(**model.best_params_).fit(many, y)
    assert np.allclose(given.predict(TEST), model.predict(TEST), atol=1e-6)
    monkeypatch.setattr("kernelgrad.families.reading.Reader.loads", lambda self, source: False)
    from_file = regressor(effort="fast").fit(opened(tmp_path, "npy", many, y))
    assert np.array_equal(from_file.predict(TEST), model.predict(TEST))
    # rows too wide for the limit stay where they are, and all are fitted
    monkeypatch.setattr("kernelgrad.families.kernel._FAST_ROWS", 10**6)
    monkeypatch.setattr("kernelgrad.training_rows.TrainingRows.some", None)
    assert "rows_fitted" not in regressor(effort="fast", memory_limit=1e8).fit(many, y).history_


def test_a_rare_class_keeps_a_row_of_a_fast_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("kernelgrad.families.kernel._FAST_ROWS", 300)
    many, y = rows(1200)
    labels = np.where(y > 0, "high", "low").astype(object)
    labels[:3], many[:3] = ["rare", "rarer", "rarest"], 30.0 * np.eye(3, 7)
    weights = dict.fromkeys(labels[:3], 100.0)
    model = classifier(effort="fast", class_weight=weights)
    twins, counted = np.repeat(many, 2, axis=0), np.tile([0.0, 1.0], 1200)  # each twice
    model.fit(twins, np.repeat(labels, 2), counted)
    assert list(model.predict(many[:3])) == ["rare", "rarer", "rarest"]
    model.fit(many, labels)
    assert 300 <= model.history_["rows_fitted"] <= 305
    assert list(model.predict(many[:3])) == ["rare", "rarer", "rarest"]
    monkeypatch.setattr("kernelgrad.families.reading.Reader.loads", lambda self, source: False)
    model.fit(opened(tmp_path, "parquet", many, labels))
    assert list(model.predict(named(model, many[:3]))) == ["rare", "rarer", "rarest"]


def test_an_array_of_weights_leaves_the_rest_to_the_search():
    for metric in (np.array([1.0, 1, 1, 1, 0, 0, 0]), np.eye(7)[:, :4]):
        model = regressor(metric=metric).fit(X, Y)
        assert model.score(TEST, function(TEST)) > 0.9
        assert np.array_equal(model.metric_, metric)
