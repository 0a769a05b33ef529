"""Algorithms 1 and 2 of Dai et al. (2014), as printed and as the library's solver."""

import numpy as np
import pytest

from kernelgrad import KernelRegressor
from kernelgrad.papers.cdsg import CDSG, UDSG
from kernelgrad.papers.dsg import DSG, gaussian_features, predict, train


@pytest.mark.parametrize(("B", "m"), [(1, 1), (4, 3)])
def test_the_preset_is_the_printed_algorithm_on_the_same_draws(B, m):
    rng, t, nu = np.random.default_rng(0), 20, 1e-2
    X = rng.standard_normal((t, B, 3))
    y = np.sin(X[..., 0]) + 0.1 * rng.standard_normal((t, B))
    preset = DSG.paper(nu=nu, sigma=1.5, batch_size=B, block_size=m)
    model = KernelRegressor("squared", **preset, random_state=3)
    for rows, targets in zip(X, y, strict=True):
        model.partial_fit(rows, targets)
    stream = model.expansion_.stream
    features = {}

    def phi(x, i):
        key = (x.tobytes(), i)
        if key not in features:
            features[key] = stream.transform(stream.prepare(x), i - 1).astype(float)
        return features[key]

    def gamma(i):
        return 1 / (nu * i)

    alpha = train(lambda i: (X[i - 1], y[i - 1]), phi, np.subtract, gamma, nu, t)
    expected = np.concatenate(alpha)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        model.expansion_.coef[0, : t * m, 0], expected, atol=1e-4 * scale
    )
    Z = rng.standard_normal((9, 3))
    np.testing.assert_allclose(model.predict(Z), predict(Z, alpha, phi), atol=1e-5 * scale)


def test_features_estimate_the_gaussian_kernel_and_fit():
    rng = np.random.default_rng(0)
    X, phi = rng.standard_normal((200, 2)), gaussian_features(1.5, 20)
    K = np.mean([phi(X[:9], i) @ phi(X[:9], i).T for i in range(1, 2001)], axis=0)
    squares = ((X[:9, None] - X[None, :9]) ** 2).sum(axis=2)
    np.testing.assert_allclose(K, np.exp(-squares / (2 * 1.5**2)), atol=0.05)
    y = np.sin(X[:, 0])
    alpha = train(lambda i: (X, y), phi, np.subtract, lambda i: 5 / (10 + i), 1e-3, 100)
    assert np.mean((predict(X, alpha, phi) - y) ** 2) < 0.1 * np.var(y)


def published_steps(X, y, phi, nu, damping):
    """Return the responses on X of the authors' program, squared loss, all rows a step."""
    coef, phis = [], []
    for t in range(6):
        gamma = 1 / (1 + 1e-4 * t)
        P = phi(X, t)
        H = P.T @ P / len(y)
        ridge = damping * np.trace(H) / len(H) * np.eye(len(H))
        r = sum((Q @ a for Q, a in zip(phis, coef, strict=True)), np.zeros_like(y)) - y
        coef = [(1 - gamma * nu) * a for a in coef]
        coef.append(-gamma * np.linalg.solve(H + ridge, P.T @ r / len(y)))
        phis.append(P)
    return sum(Q @ a for Q, a in zip(phis, coef, strict=True))


@pytest.mark.parametrize("damping", [1.0, 0.05])
@pytest.mark.parametrize("solver", [DSG, UDSG, CDSG])
def test_the_program_has_the_covariance_and_a_decoupled_penalty(solver, damping):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((400, 3))
    y = np.sin(X[:, 0]) + X[:, 1]
    only_new = {UDSG: {"reused_blocks": 0}, CDSG: {"spread": 1e9}}.get(solver, {})
    chosen = DSG.program(nu=0.05, damping=damping, sigma=1.5, batch_size=400, block_size=8)
    chosen["solver"] = solver(**chosen["solver"].get_params() | only_new)
    model = KernelRegressor("squared", **chosen, max_iter=6, random_state=3).fit(X, y)
    stream = model.expansion_.stream
    expected = published_steps(
        X, y, lambda Z, t: stream.transform(stream.prepare(Z), t).astype(float), 0.05, damping
    )
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-6 * np.abs(expected).max())
