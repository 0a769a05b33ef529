import numpy as np
import pytest
from scipy.optimize import minimize

from cases import every
from kernelgrad import losses
from kernelgrad.kernels import Gaussian
from kernelgrad.papers.dsg.rivals import NORMA
from kernelgrad.papers.sbp.rivals import KernelPerceptron, Pegasos
from kernelgrad.solvers import contract as base
from kernelgrad.validation import CapabilityError
from oracles_losses import slope_of
from oracles_online import norma, pegasos, perceptron, projected

N = 300
ALPHA = 1e-2
LOSSES = [
    losses.Hinge(), losses.SmoothedHinge(0.6), losses.ModifiedLogistic(5.0),
    losses.SquaredHinge(), losses.Logistic(), losses.Perceptron(), losses.SquaredError(),
    losses.Huber(0.3), losses.EpsilonInsensitive(0.2), losses.Absolute(), losses.Quantile(0.8),
]  # fmt: skip


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


def visit(solver, p, X, y, order, *, size=64, weight=None, numbers=True, state=None):
    """Visit rows in batches of `size`."""
    weight = np.ones(len(y)) if weight is None else weight
    for a in range(0, len(order), size):
        i = order[a : a + size]
        batch = base.TrainBatch(X[i], y[i], weight[i], i if numbers else None)
        state = solver.init(p, batch) if state is None else state
        info = solver.step(p, state, batch)
    return state, info


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
        check_pegasos(losses.Hinge(), average)


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


def test_projection_is_on_the_ball():
    X, y = data(losses.Hinge())
    order = orders()
    free, ball = (
        visit(
            Pegasos(average=None, t0=0.0, projection=p), problem(losses.Hinge()), X, y, order
        )[0]
        for p in (False, True)
    )
    oracle = [
        pegasos(
            gram(ball, X), order, y[:, 0].astype(float), slope_of(losses.Hinge()), ALPHA,
            bias=float(losses.Hinge().intercept(y[order[:64]])[0]), radius=r,
        )[0]
        for r in (np.inf, ALPHA**-0.5)
    ]  # fmt: skip
    for state, a in zip((free, ball), oracle, strict=True):
        np.testing.assert_allclose(dense(state, state.current)[:, 0], a, atol=1e-5)
    assert np.abs(oracle[0] - oracle[1]).max() > 1e-2
    with pytest.raises(CapabilityError, match="projection=False"):
        visit(Pegasos(projection=True), problem(losses.Logistic()), X, y, order)


@pytest.mark.parametrize(
    ("loss", "limit", "decay"),
    [(losses.Hinge(), None, 0.5), (losses.Absolute(), 40, 0.0), (losses.Hinge(), 7, 0.5)],
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


@every("B", [0.8, 5.0])
def test_norma_in_a_ball_is_gradient_descent_on_the_mean_loss(B):
    X, y = data(losses.Hinge())
    order = orders(passes=6)
    solver = NORMA(step_size=B, decay=0.5, radius=B, average="uniform")
    p = problem(losses.Hinge(), alpha=0.0, fit_intercept=False)
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
    X, y = data(losses.Perceptron())
    order = orders()
    weight = np.random.default_rng(1).integers(0, 3, N).astype(float)
    per_visit = [
        weight[i] / weight[order[: a + 64]].mean()
        for a in range(0, len(order), 64)
        for i in order[a : a + 64]
    ]
    p = problem(losses.Perceptron(), fit_intercept=fit_intercept)
    state, _ = visit(KernelPerceptron(average=average), p, X, y, order, weight=weight)
    last, mean = perceptron(
        gram(state, X), order, y[:, 0].astype(float), per_visit, constant=float(fit_intercept)
    )
    coef = dense(state, state.average)[:, 0]
    np.testing.assert_allclose(coef, mean if average else last, atol=1e-9)
    expected = coef.sum() if fit_intercept else 0.0
    np.testing.assert_allclose(state.intercept, expected, atol=1e-9)


def test_weights_multiply_the_derivative_in_parts_of_a_mean_weight():
    X, y = data(losses.SquaredError())
    order = orders()
    heavy = np.full(N, 7.0)
    p = problem(losses.SquaredError())
    plain, equal = (
        visit(NORMA(step_size=0.2), p, X, y, order, weight=w)[0] for w in (None, heavy)
    )
    np.testing.assert_allclose(equal.current, plain.current, rtol=1e-12)
    # a row without weight beside each: a step of 0.2, and one on what is left, the kernel is 1
    zero = np.ones(N)
    zero[1::2] = 0.0
    p = problem(losses.SquaredError(), fit_intercept=False)
    halved, _ = visit(NORMA(step_size=0.2), p, X, y, np.arange(N), size=2, weight=zero)
    assert set(halved.numbers) == set(range(0, N, 2))
    first = dense(halved, halved.current)[0, 0] / (1 - 0.2 * ALPHA) ** (N - 1)
    np.testing.assert_allclose(first, (0.2 + 0.2 * 0.8) * y[0, 0], rtol=1e-6)


def test_multinomial_gradients_couple_the_outputs():
    loss = losses.Multinomial()
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


@every(
    ("solver", "loss"), [(Pegasos(), losses.Hinge()), (KernelPerceptron(), losses.Perceptron())]
)
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
    X, y = data(losses.SquaredError())
    Z, z = data(losses.SquaredError(), seed=1)
    Z[:20] = X[:20]
    p, solver = problem(losses.SquaredError()), NORMA(step_size=0.2)
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


@every("limit", [20, 120])
def test_truncation_stays_within_its_bound(limit):
    X, y = data(losses.SquaredError())
    loss, eta, alpha = losses.Absolute(), 0.5, 0.1
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


@pytest.mark.slow
def test_pegasos_reaches_the_optimum_at_its_rate():
    n = 150
    X, y = data(losses.Hinge(), n)
    p = problem(losses.Hinge(), fit_intercept=False)
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
    p = problem(losses.Perceptron(), fit_intercept=False)
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


def test_bad_problems_are_named():
    X, y = data(losses.Hinge())
    batch = base.TrainBatch(X, y, np.ones(N))
    with pytest.raises(ValueError, match="needs alpha > 0"):
        Pegasos().init(problem(losses.Hinge(), 0.0), batch)
    with pytest.raises(CapabilityError, match=r"needs a convex loss.*'least_squares'"):
        NORMA().init(problem(losses.LeastSquaresDensityRatio()), batch)
    with pytest.raises(CapabilityError, match=r"needs a convex loss.*'semi_supervised'"):
        NORMA().check_problem(
            problem(losses.SemiSupervised(losses.Hinge(), losses.SymmetricHinge()))
        )
    with pytest.raises(CapabilityError, match="perceptron_loss"):
        base.check_capabilities(KernelPerceptron(), losses.Hinge(), Gaussian())
    for solver in (Pegasos(average="linear"), KernelPerceptron(average=True)):
        with pytest.raises(ValueError, match="set average='auto'"):
            solver.set_params(max_support=5).check()
    with pytest.raises(FloatingPointError, match="smaller steps"), np.errstate(all="ignore"):
        visit(
            NORMA(step_size=1e3),
            problem(losses.SquaredError()),
            *data(losses.SquaredError()),
            orders(),
        )
