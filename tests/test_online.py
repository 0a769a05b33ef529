from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from kernelgrad._validation import CapabilityError
from kernelgrad.kernels import Gaussian, Polynomial
from kernelgrad.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    LeastSquaresDensityRatio,
    Logistic,
    Loss,
    ModifiedLogistic,
    Multinomial,
    Perceptron,
    Quantile,
    SemiSupervised,
    SmoothedHinge,
    SquaredError,
    SquaredHinge,
    SymmetricHinge,
)
from kernelgrad.solvers import base
from kernelgrad.solvers.kernel import online
from kernelgrad.solvers.kernel.online import NORMA, KernelPerceptron, Pegasos
from oracles_losses import slope_of
from oracles_online import norma, pegasos, perceptron, projected

N = 300
ALPHA = 1e-2
LOSSES = [
    Hinge(),
    SmoothedHinge(0.6),
    ModifiedLogistic(5.0),
    SquaredHinge(),
    Logistic(),
    Perceptron(),
    SquaredError(),
    Huber(0.3),
    EpsilonInsensitive(0.2),
    Absolute(),
    Quantile(0.8),
]
SOLVERS = [
    (Pegasos(), Hinge()),
    (Pegasos(average=None, t0=0.0, projection=True), Hinge()),
    (NORMA(), Logistic()),
    (NORMA(max_support=70, decay=0.5), Hinge()),
    (KernelPerceptron(), Perceptron()),
]


def data(loss, n=N, n_outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    f = np.sin(2 * X[:, :1]) + X[:, 1:2] * (1 + np.arange(n_outputs)) - 0.3
    y = f + 0.3 * rng.standard_normal(f.shape)
    if loss.name == "log_loss":
        return X, (y == y.max(axis=1, keepdims=True)).astype(np.float32)
    signs = "classification" in loss.tasks and loss.name != "squared"
    return X, (np.where(y > 0, 1, -1) if signs else y).astype(np.float32)


def problem(loss, alpha=ALPHA, n_outputs=1, **options):
    return base.Problem(loss, Gaussian(0.4), alpha, n_outputs, 3, 7, **options)


def orders(n=N, passes=2):
    return np.concatenate([np.random.default_rng(e).permutation(n) for e in range(passes)])


def visit(
    solver, p, X, y, order, *, size=64, weight=None, numbers=True, state=None, tracked=None
):
    """Visit rows in batches of `size`; a tracked matrix gives its responses as well."""
    weight = np.ones(len(y)) if weight is None else weight
    tracker = None
    for a in range(0, len(order), size):
        i = order[a : a + size]
        batch = base.TrainBatch(X[i], y[i], weight[i], i if numbers else None)
        state = solver.init(p, batch) if state is None else state
        if tracked is not None and tracker is None:
            tracker = solver.track(state, tracked)
        info = solver.step(p, state, batch)
        if tracker is not None:
            tracker.advance(info)
    return (state, info) if tracker is None else (state, tracker.raw_prediction())


def dense(state, coef, n=N):
    """Coefficients by the number of the row."""
    out = np.zeros((n, coef.shape[1]))
    out[state.numbers] = coef
    return out


def gram(state, X):
    rows = state.exact.prepare(X)
    return state.exact.matrix(rows, rows).astype(np.float64)


def test_pegasos_is_the_recursion():
    for loss in LOSSES:
        check_pegasos(loss, "linear")
    for average in (None, "uniform"):
        check_pegasos(Hinge(), average)


def check_pegasos(loss, average):
    X, y = data(loss)
    order = orders()
    t0 = 0.0 if loss.name == "hinge" else 120.0
    p = problem(loss)
    state, _ = visit(Pegasos(average=average, t0=t0), p, X, y, order)
    omega = {None: None, "uniform": lambda t: 1.0, "linear": float}[average]
    bias = float(loss.intercept(y[order[:64]])[0])
    last, mean = pegasos(
        gram(state, X), order, y[:, 0].astype(float), slope_of(loss), ALPHA,
        t0=t0, bias=bias, omega=omega,
    )  # fmt: skip
    scale = np.abs(last).max()
    np.testing.assert_allclose(dense(state, state.current)[:, 0], last, atol=1e-6 * scale)
    expected = last if average is None else mean
    np.testing.assert_allclose(dense(state, state.average)[:, 0], expected, atol=1e-6 * scale)
    np.testing.assert_allclose(state.intercept, bias, rtol=1e-12)
    f = Pegasos(average=average, t0=t0).expansion(state).raw_prediction(X)
    np.testing.assert_allclose(f[:, 0], bias + gram(state, X) @ expected, atol=1e-4 * scale)


def test_projection_is_on_the_ball():
    X, y = data(Hinge())
    order = orders()
    free, ball = (
        visit(Pegasos(average=None, t0=0.0, projection=p), problem(Hinge()), X, y, order)[0]
        for p in (False, True)
    )
    oracle = [
        pegasos(
            gram(ball, X), order, y[:, 0].astype(float), slope_of(Hinge()), ALPHA,
            bias=float(Hinge().intercept(y[order[:64]])[0]), radius=r,
        )[0]
        for r in (np.inf, ALPHA**-0.5)
    ]  # fmt: skip
    for state, a in zip((free, ball), oracle, strict=True):
        np.testing.assert_allclose(dense(state, state.current)[:, 0], a, atol=1e-5)
    assert np.abs(oracle[0] - oracle[1]).max() > 1e-2
    with pytest.raises(CapabilityError, match="projection=False"):
        visit(Pegasos(projection=True), problem(Logistic()), X, y, order)


@pytest.mark.parametrize(
    ("loss", "limit", "decay"), [(Hinge(), None, 0.5), (Absolute(), 40, 0.0), (Hinge(), 7, 0.5)]
)
def test_norma_is_the_recursion(loss, limit, decay):
    X, y = data(loss)
    order = orders()
    solver = NORMA(step_size=0.3, decay=decay, average=None, max_support=limit)
    state, info = visit(solver, problem(loss), X, y, order, size=100)
    start = float(loss.intercept(y[order[:100]])[0])
    coef, bias = norma(
        gram(state, X), order, y[:, 0].astype(float), slope_of(loss), ALPHA,
        eta=0.3, decay=decay, bias=start, limit=limit or N,
    )  # fmt: skip
    np.testing.assert_allclose(dense(state, state.current)[:, 0], coef, atol=1e-6)
    np.testing.assert_allclose(state.intercept, bias, atol=1e-6)
    assert info.n_support == np.count_nonzero(coef) == len(state.diagonal)
    np.testing.assert_allclose(state.diagonal, 1.0, rtol=1e-6)


@pytest.mark.parametrize("B", [0.8, 5.0])
def test_norma_in_a_ball_is_gradient_descent_on_the_mean_loss(B):
    X, y = data(Hinge())
    order = orders(passes=6)
    solver = NORMA(step_size=B, decay=0.5, radius=B, average="uniform")
    p = problem(Hinge(), alpha=0.0, fit_intercept=False)
    state, _ = visit(solver, p, X, y, order, size=100)
    K, s = gram(state, X), y[:, 0].astype(float)
    expected = projected(K, order, s, B)
    np.testing.assert_allclose(dense(state, state.average)[:, 0], expected, atol=1e-6)
    a = dense(state, state.current)[:, 0]
    assert np.sqrt(a @ K @ a) <= B * (1 + 1e-6)
    with pytest.raises(ValueError, match="leave one of the two None"):
        NORMA(radius=B, max_support=9).check()


@pytest.mark.parametrize(("fit_intercept", "average"), [(False, True), (True, False)])
def test_perceptron_is_the_recursion(fit_intercept, average):
    X, y = data(Perceptron())
    order = orders()
    weight = np.random.default_rng(1).integers(0, 3, N).astype(float)
    per_visit = [
        weight[i] / weight[order[: a + 64]].mean()
        for a in range(0, len(order), 64)
        for i in order[a : a + 64]
    ]
    p = problem(Perceptron(), fit_intercept=fit_intercept)
    state, _ = visit(KernelPerceptron(average=average), p, X, y, order, weight=weight)
    last, mean = perceptron(
        gram(state, X), order, y[:, 0].astype(float), per_visit, constant=float(fit_intercept)
    )
    coef = dense(state, state.average)[:, 0]
    np.testing.assert_allclose(coef, mean if average else last, atol=1e-9)
    expected = coef.sum() if fit_intercept else 0.0
    np.testing.assert_allclose(state.intercept, expected, atol=1e-9)


def test_weights_multiply_the_derivative_in_parts_of_a_mean_weight():
    X, y = data(SquaredError())
    order = orders()
    heavy = np.full(N, 7.0)
    p = problem(SquaredError())
    plain, equal = (
        visit(NORMA(step_size=0.2), p, X, y, order, weight=w)[0] for w in (None, heavy)
    )
    np.testing.assert_allclose(equal.current, plain.current, rtol=1e-12)
    # a row without weight beside each: a step of 0.2, and one on what is left, the kernel is 1
    zero = np.ones(N)
    zero[1::2] = 0.0
    p = problem(SquaredError(), fit_intercept=False)
    halved, _ = visit(NORMA(step_size=0.2), p, X, y, np.arange(N), size=2, weight=zero)
    assert set(halved.numbers) == set(range(0, N, 2))
    first = dense(halved, halved.current)[0, 0] / (1 - 0.2 * ALPHA) ** (N - 1)
    np.testing.assert_allclose(first, (0.2 + 0.2 * 0.8) * y[0, 0], rtol=1e-6)


class OwnHuber(Loss):
    """A loss that has its value and its gradient only."""

    name, tasks = "own_huber", frozenset({"regression"})

    def value(self, y, f):
        return Huber(0.3).value(y, f)

    def gradient(self, y, f):
        return Huber(0.3).gradient(y, f)


@pytest.mark.parametrize("solver", [Pegasos(t0=50.0), NORMA(max_support=70, step_size=0.3)])
def test_a_loss_with_value_and_gradient_only_is_enough(solver):
    X, y = data(Huber(0.3), n_outputs=2)
    own, known = (
        visit(solver, problem(loss, n_outputs=2), X, y, orders())[0]
        for loss in (OwnHuber(), Huber(0.3))
    )
    scale = np.abs(known.average).max()
    np.testing.assert_allclose(own.average, known.average, atol=1e-6 * scale)
    np.testing.assert_allclose(own.intercept, known.intercept, atol=1e-6)


@pytest.mark.parametrize(
    ("solver", "loss"), [(Pegasos(t0=120.0), Hinge()), (NORMA(step_size=0.3), Absolute())]
)
def test_outputs_are_independent_but_share_rows(solver, loss):
    X, y = data(loss, n_outputs=3)
    order = orders()
    together, _ = visit(solver, problem(loss, n_outputs=3), X, y, order)
    for c in range(3):
        alone, _ = visit(solver, problem(loss), X, y[:, c : c + 1], order)
        np.testing.assert_allclose(
            dense(together, together.average)[:, c],
            dense(alone, alone.average)[:, 0],
            atol=1e-9,
        )


def test_multinomial_gradients_couple_the_outputs():
    loss = Multinomial()
    X, y = data(loss, n_outputs=3)
    p = problem(loss, n_outputs=3, fit_intercept=False)
    order = orders(passes=1)
    state, _ = visit(NORMA(step_size=0.5, average=None), p, X, y, order)
    K, A = gram(state, X), np.zeros((N, 3))
    for i in order:
        e = np.exp(K[i] @ A)
        A *= 1 - 0.5 * ALPHA
        A[i] -= 0.5 * (e / e.sum() - y[i])
    np.testing.assert_allclose(dense(state, state.current), A, atol=1e-6)


@pytest.mark.parametrize(("solver", "loss"), SOLVERS[1:4], ids=repr)
def test_groups_and_batches_change_nothing(solver, loss, monkeypatch):
    X, y = data(loss)
    order = orders()
    reference, _ = visit(solver, problem(loss), X, y, order, size=64)
    fixed = solver.init(
        problem(loss), base.TrainBatch(X[order[:64]], y[order[:64]], np.ones(64))
    )
    for group, tile, size in ((32, 16, 64), (256, 50, 300), (1, 1024, 37)):
        monkeypatch.setattr(online, "GROUP", group)
        monkeypatch.setattr(online, "TILE", tile)
        state, _ = visit(solver, problem(loss), X, y, order, size=size, state=fixed.copy())
        for name in ("current", "average"):
            a, b = (dense(s, getattr(s, name)) for s in (state, reference))
            np.testing.assert_allclose(a, b, atol=1e-10 * max(1.0, np.abs(b).max()))


def test_pruned_entries_are_the_smallest():
    X, y = data(Hinge())
    p = problem(Hinge(), fit_intercept=False)
    order = orders(passes=1)
    free, pruned = (
        visit(Pegasos(average=None, t0=50.0, max_support=m), p, X, y, order, size=N)[0]
        for m in (None, 60)
    )
    # one group of 256, then the rest: the first pruning is of what the free run had then
    first, _ = visit(Pegasos(average=None, t0=50.0), p, X, y, order[:256], size=256)
    assert free.n_support > 100
    assert pruned.n_support == 60
    size = np.abs(first.current[:, 0])
    kept = first.numbers[np.argsort(size, kind="stable")[-60:]]
    assert set(pruned.numbers) <= set(kept) | set(order[256:])


@pytest.mark.parametrize(("solver", "loss"), [*SOLVERS[:3], SOLVERS[4]], ids=repr)
def test_merged_rows_are_appended_duplicates(solver, loss):
    X, y = data(loss)
    p = problem(loss)
    order = np.concatenate([orders(), [5, 5, 5, 9, 5]])
    merged, _ = visit(solver, p, X, y, order)
    stream, _ = visit(solver, p, X, y, order, numbers=False)
    assert merged.n_support <= N
    assert len(np.unique(merged.numbers)) == merged.n_support < stream.n_support
    a, b = (solver.expansion(s).raw_prediction(X) for s in (merged, stream))
    np.testing.assert_allclose(a, b, atol=1e-4 * np.abs(a).max())


def test_numbers_of_another_source_do_not_merge():
    X, y = data(SquaredError())
    Z, z = data(SquaredError(), seed=1)
    Z[:20] = X[:20]
    p, solver = problem(SquaredError()), NORMA(step_size=0.2)
    state, _ = visit(solver, p, X, y, np.arange(N))
    twin = state.copy()
    state, _ = visit(solver, p, Z, z, np.arange(N), state=state)
    appended, _ = visit(solver, p, Z, z, np.arange(N), numbers=False, state=twin)
    assert state.n_support == 2 * N - 20
    assert appended.n_support == 2 * N
    np.testing.assert_allclose(
        solver.expansion(state).raw_prediction(X),
        solver.expansion(appended).raw_prediction(X),
        atol=1e-5,
    )


def test_rows_of_a_sum_of_kernels():
    X, y = data(SquaredError())
    Z, z = data(SquaredError(), seed=1)
    kernel = 0.5 * Gaussian(0.4) + Polynomial(degree=2, gamma=0.2)
    p = replace(problem(SquaredError(), fit_intercept=False), kernel=kernel)
    solver = NORMA(step_size=0.1, average=None)
    state, _ = visit(solver, p, X, y, orders())
    assert state.n_support == N
    centre = state.exact.scaling.centre
    rows = X if centre is None else X - centre
    coef, _ = norma(
        kernel(rows), orders(), y[:, 0].astype(float), slope_of(SquaredError()),
        ALPHA, eta=0.1, decay=0.0, bias=0.0, limit=N, learn_bias=False,
    )  # fmt: skip
    np.testing.assert_allclose(dense(state, state.current)[:, 0], coef, atol=1e-4)
    visit(solver, p, Z, z, np.arange(N), state=state)
    assert state.n_support == 2 * N


def test_a_smaller_limit_drops_the_oldest_first():
    X, y = data(SquaredError())
    p = problem(SquaredError())
    state, _ = visit(NORMA(average=None), p, X, y, np.arange(N))
    tracker = NORMA(max_support=50).track(state, X)
    batch = base.TrainBatch(X[:10], y[:10], np.ones(10), np.arange(10))
    tracker.advance(NORMA(max_support=50).step(p, state, batch))
    assert set(state.numbers) == {*range(10), *range(260, 300)}
    f = NORMA(max_support=50).expansion(state).raw_prediction(X)
    np.testing.assert_allclose(tracker.raw_prediction(), f, atol=1e-4)


@pytest.mark.parametrize("limit", [20, 60, 120])
def test_truncation_stays_within_its_bound(limit):
    X, y = data(SquaredError())
    loss, eta, alpha = Absolute(), 0.5, 0.1
    p = problem(loss, alpha, fit_intercept=False)
    order = orders(passes=1)
    state, _ = visit(
        NORMA(step_size=eta, max_support=limit), p, X, y, order, numbers=False, size=100
    )
    rows = state.exact.prepare(X)
    K = state.exact.matrix(rows, rows).astype(float)
    # the same terms, none dropped: derivatives are those of the truncated run
    terms, dropped = {}, {}
    for i in order:
        g = np.sign(sum(c * K[i, j] for j, c in terms.items()) - y[i, 0])
        for some in (terms, dropped):
            for j in some:
                some[j] *= 1 - eta * alpha
        terms[i] = -eta * g
        if len(terms) > limit:
            oldest = next(iter(terms))
            dropped[oldest] = terms.pop(oldest)
    lost = np.array([dropped.get(j, 0.0) for j in range(N)])
    f = NORMA().expansion(state).raw_prediction(X)[:, 0]
    full = f + K @ lost
    bound = (1 - eta * alpha) ** limit / alpha
    assert np.sqrt(lost @ K @ lost) <= bound
    assert np.abs(full - f).max() <= bound
    # dropping the newest terms instead breaks the bound
    newest = np.array([terms.get(j, 0.0) for j in range(N)])
    if limit == 120:
        assert np.sqrt(newest @ K @ newest) > bound


def svm_minimum(K, y, alpha):
    """Least mean hinge + alpha/2 |w|^2: the maximum of its dual, by bounded L-BFGS."""
    n = len(y)

    def negative(b):
        g = K @ (b * y) * y / (alpha * n * n) - 1 / n
        return b @ (K @ (b * y) * y) / (2 * alpha * n * n) - b.sum() / n, g

    result = minimize(
        negative, np.full(n, 0.5), jac=True, method="L-BFGS-B", bounds=[(0, 1)] * n,
        options={"maxiter": 20000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-10},
    )  # fmt: skip
    return -result.fun


def test_pegasos_reaches_the_optimum_at_its_rate():
    n = 150
    X, y = data(Hinge(), n)
    p = problem(Hinge(), fit_intercept=False)
    K = gram(NORMA().init(p, base.TrainBatch(X, y, np.ones(n))), X)
    least = svm_minimum(K, y[:, 0].astype(float), ALPHA)
    passes = np.array([5, 20, 80])

    def gaps(solver):
        found, state = [], None
        for more in np.diff(passes, prepend=0):
            state, _ = visit(solver, p, X, y, orders(n, more), size=n, state=state)
            a = dense(state, state.average, n)[:, 0]
            hinge = np.maximum(0.0, 1 - y[:, 0] * (K @ a)).mean()
            found.append(hinge + ALPHA / 2 * a @ K @ a - least)
        return np.array(found)

    linear, uniform = (gaps(Pegasos(average=a, t0=0.0)) for a in ("linear", "uniform"))
    rate = 1 / (ALPHA * n * passes)
    # Theorem 1 of the paper bounds subgradients by G = 2 here: G^2 (1 + log T) / (2 alpha T)
    assert np.all(uniform <= 2 * (1 + np.log(n * passes)) * rate)
    assert np.all(linear <= 2 * rate)
    for found in (linear, uniform):
        assert -1e-6 < found[2] < found[0] / 8
    floor = gaps(NORMA(average=None, step_size=1.0))  # a constant step has one
    assert floor[2] > floor[0] / 8
    assert floor[2] > 2 * rate[2]


def test_perceptron_mistakes_on_separable_rows():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((N, 3))
    p = problem(Perceptron(), fit_intercept=False)
    state = KernelPerceptron().init(p, base.TrainBatch(X, np.ones((N, 1)), np.ones(N)))
    K = gram(state, X)
    u = np.zeros(N)
    u[:20] = rng.choice([-1.0, 1.0], 20)
    margin = np.abs(K @ u) / np.sqrt(u @ K @ u)
    far = margin > 0.05
    X, y = X[far], np.sign(K @ u)[far][:, None]
    gamma = margin[far].min()
    order = orders(len(X), 30)

    def mistakes(targets):
        state, info = visit(KernelPerceptron(average=False), p, X, targets, order)
        return np.abs(state.current).sum(), info.train_loss

    total, loss = mistakes(y)
    assert 10 < total <= 1 / gamma**2
    assert loss == 0.0
    noise = np.where(rng.random(y.shape) < 0.3, -y, y)  # no u separates these as well
    assert mistakes(noise)[0] > 1 / gamma**2


def test_fixed_rows_are_visited_in_a_keyed_order():
    X, y = data(Hinge())
    p = problem(Hinge(), fixed_rows=True)
    batch = base.TrainBatch(X, y, np.ones(N))
    solver = Pegasos()
    state = solver.init(p, batch)
    for _ in range(3):
        solver.step(p, state, batch)
    assert state.n_support <= N
    assert len(np.unique(state.numbers)) == state.n_support
    other = solver.init(problem(Hinge(), fixed_rows=True), batch)
    solver.step(p, other, batch)
    in_order = solver.init(p, batch)
    solver.step(problem(Hinge()), in_order, batch)
    f, g = (solver.expansion(s).raw_prediction(X) for s in (other, in_order))
    assert np.abs(f - g).max() > 1e-3


def test_kernel_evaluations_are_those_needed():
    X, y = data(SquaredError())
    state, info = visit(NORMA(), problem(SquaredError()), X, y, np.arange(N), size=100)
    one = 100 * 101 // 2
    assert info.kernel_evaluations == 3 * one + 100 * 100 + 100 * 200
    assert info.n_support == state.n_support == N
    assert state.rows_seen == N


def test_bad_problems_are_named():
    X, y = data(Hinge())
    batch = base.TrainBatch(X, y, np.ones(N))
    with pytest.raises(ValueError, match="needs alpha > 0"):
        Pegasos().init(problem(Hinge(), 0.0), batch)
    with pytest.raises(CapabilityError, match=r"needs a convex loss.*'least_squares'"):
        NORMA().init(problem(LeastSquaresDensityRatio()), batch)
    with pytest.raises(CapabilityError, match=r"needs a convex loss.*'semi_supervised'"):
        NORMA().check_problem(problem(SemiSupervised(Hinge(), SymmetricHinge())))
    with pytest.raises(CapabilityError, match="perceptron_loss"):
        base.check_capabilities(KernelPerceptron(), Hinge(), Gaussian())
    for solver in (Pegasos(average="linear"), KernelPerceptron(average=True)):
        with pytest.raises(ValueError, match="set average='auto'"):
            solver.set_params(max_support=5).check()
    with pytest.raises(FloatingPointError, match="smaller steps"), np.errstate(all="ignore"):
        visit(NORMA(step_size=1e3), problem(SquaredError()), *data(SquaredError()), orders())
