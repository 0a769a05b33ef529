"""Leave-one-out objectives of a learned kernel, by solving again without each row."""

import numpy as np

PROFILES = {
    0.5: lambda r: np.exp(-r),
    1.5: lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
    2.5: lambda r: (1 + 5**0.5 * r + 5 * r * r / 3) * np.exp(-(5**0.5) * r),
    np.inf: lambda r: np.exp(-r * r / 2),
}


def kernel(nu, groups, edges, theta, X, power=0.5):
    """Return K (m, m) of rows; edges (b + 1, d) of the bins of the warps, or None."""
    if "warp" in theta:
        rises = np.diff(edges, axis=0) * np.exp(theta["warp"])
        values = np.vstack([edges[:1], edges[0] + np.cumsum(rises, axis=0)])
        X = np.stack(
            [np.interp(x, *e) for x, *e in zip(X.T, edges.T, values.T, strict=True)], 1
        )
    Z = X @ theta.get("matrix", np.diag(np.exp(theta["smooth"])[groups]))
    K = PROFILES[nu](np.sqrt(((Z[:, None] - Z) ** 2).sum(axis=2)))
    if "rough" not in theta:
        return K
    q = 1 / (1 + np.exp(-theta["mix"][0]))
    S = (np.abs(X[:, None] - X) * np.exp(theta["rough"])[groups]).sum(axis=2)
    return (1 - q) * K + q * np.exp(-(S**power))


def left_out(K, Y, weight, ridge):
    """Return the outputs (m, C) of weighted ridge regressions without each row."""
    out = np.empty(Y.shape)
    for i in range(len(Y)):
        rest = np.arange(len(Y)) != i
        a = np.linalg.solve(K[np.ix_(rest, rest)] + np.diag(ridge / weight[rest]), Y[rest])
        out[i] = K[i, rest] @ a
    return out


def squared(K, Y, weight, ridge):
    errors = ((Y - left_out(K, Y, weight, ridge)) ** 2).sum(axis=1)
    return 0.5 * np.log(weight @ errors / (weight @ (Y**2).sum(axis=1))), errors


def newton(K, sign, weight, ridge, steps=5):
    """Return targets and weights of the last of some Newton steps for y = 1, -1."""
    f = np.zeros(len(K))
    for step in range(steps):
        p = 1 / (1 + np.exp(-f))
        curve = np.maximum(p * (1 - p), 1e-3)
        z = f + ((sign > 0) - p) / curve
        if step < steps - 1:
            new = K @ np.linalg.solve(K + np.diag(ridge / (weight * curve)), z)
            f = f + np.clip(new - f, -4, 4)
    return z, weight * curve


def logistic(K, signs, weight, ridge, steps):
    """Return the summed log losses of the outputs that the Newton steps (z, weights) give."""
    total = 0.0
    for sign, (z, own) in zip(signs.T, steps, strict=True):
        f = left_out(K, z[:, None], own, ridge)[:, 0]
        total += weight @ np.logaddexp(0, -sign * f) / len(K)
    return total


def slope(f, x, h=1e-5):
    """Return central differences of f by the entries of x."""
    steps = h * np.eye(x.size).reshape(-1, *x.shape)
    return np.array([f(x + s) - f(x - s) for s in steps]).reshape(x.shape) / (2 * h)
