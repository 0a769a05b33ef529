import numpy as np
import pytest

from cases import every, raises
from kernelgrad import KernelClassifier, losses
from kernelgrad.kernels import Gaussian
from kernelgrad.papers.dsg.rivals import NORMA
from kernelgrad.papers.sbp.rivals import KernelPerceptron, Pegasos
from kernelgrad.solvers import contract as base
from kernelgrad.validation import CapabilityError
from oracles_losses import slope_of
from oracles_online import norma, pegasos, perceptron, projected
from steps import ONE_OUTPUT

N = 300
ALPHA = 1e-2
LOSSES = [losses.Perceptron(), *ONE_OUTPUT]


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


@every(
    ("loss", "average"),
    [
        *((loss, "linear") for loss in LOSSES),
        (losses.Hinge(), None),
        (losses.Hinge(), "uniform"),
    ],
)
def test_pegasos_is_the_recursion(loss, average):
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


@every(
    ("loss", "decay", "rows", "average"),
    [
        (losses.Hinge(), 0.5, 1, None),
        (losses.Absolute(), 0.0, 1, None),
        (losses.Hinge(), 0.5, 48, None),
        (losses.Hinge(), 0.5, 48, "uniform"),
    ],
)
def test_norma_is_functional_gradient_descent(loss, decay, rows, average):
    X, y = data(loss)
    solver = NORMA(step_size=0.3, decay=decay, average=average, rows_per_step=rows)
    size, order = (100, orders()) if rows == 1 else (288, orders()[:576])
    assert rows == 1 or solver.resolve_batch_size(5000) == size
    state, info = visit(solver, problem(loss), X, y, order, size=size)
    last, bias, mean = norma(
        gram(state, X), order.reshape(-1, rows), y[:, 0].astype(float), slope_of(loss), ALPHA,
        eta=0.3, decay=decay, bias=float(loss.intercept(y[order[:size]])[0]),
    )  # fmt: skip
    np.testing.assert_allclose(dense(state, state.current)[:, 0], last, atol=1e-6)
    expected = mean if average else last
    np.testing.assert_allclose(dense(state, state.average)[:, 0], expected, atol=1e-6)
    if average is None:
        np.testing.assert_allclose(state.intercept, bias, atol=1e-6)
    assert info.n_support == np.count_nonzero(last) == len(state.diagonal)
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
    raises(ValueError, "not both", NORMA(radius=B, rows_per_step=2).check)


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


def test_bad_problems_options_and_steps_are_named():
    check, ratio = NORMA().check_problem, losses.LeastSquaresDensityRatio()
    raises(CapabilityError, "'least_squares'", check, problem(ratio))
    joint = losses.SemiSupervised(losses.Hinge(), losses.SymmetricHinge())
    raises(CapabilityError, r"needs a convex loss.*'semi_supervised'", check, problem(joint))
    with pytest.raises(CapabilityError, match="perceptron_loss"):
        base.check_capabilities(KernelPerceptron(), losses.Hinge(), Gaussian())
    loss = losses.SquaredError()
    with pytest.raises(FloatingPointError, match="smaller steps"), np.errstate(all="ignore"):
        visit(NORMA(step_size=1e3), problem(loss), *data(loss), orders())


def test_pegasos_begins_where_the_penalty_is_large_as_published():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 2)), np.arange(60) % 2
    auto, published = (
        KernelClassifier(
            "logistic", solver=Pegasos(t0=t0), alpha=1.0, gamma=0.5, max_iter=60, random_state=0
        ).fit(X, y)
        for t0 in ("auto", 0)
    )
    np.testing.assert_array_equal(auto.decision_function(X), published.decision_function(X))
