"""References for exact kernel machines; they share no code with kernelgrad."""

import numpy as np
from scipy.optimize import linprog

from oracles import gaussian as gaussian
from oracles_s3vm import box_program


def level_program(c, volume, weight, y=None):
    """max gamma: gamma <= c_i + y_i b + xi_i, xi >= 0, weight . xi <= volume; b = 0 if no y."""
    n = len(c)
    columns = [-np.eye(n), np.ones((n, 1))] + ([] if y is None else [-y[:, None]])
    free = len(columns) - 1
    A = np.vstack([np.hstack(columns), np.r_[weight, np.zeros(free)]])
    objective = np.r_[np.zeros(n), -1.0, np.zeros(free - 1)]
    bounds = [(0, None)] * n + [(None, None)] * free
    program = linprog(objective, A_ub=A, b_ub=np.r_[c, volume], bounds=bounds, method="highs")
    assert program.status == 0
    return -program.fun


def level_by_sort(c, volume, weight):
    """Level of one basin: the largest j whose lowest j rows the volume covers."""
    order = [i for i in np.argsort(c) if weight[i] > 0]
    c, weight = c[order], weight[order]
    mass, total = np.cumsum(weight), np.cumsum(weight * c)
    j = np.flatnonzero(c * mass - total <= volume)[-1]
    return (volume + total[j]) / mass[j]


def optimal_biases(c, volume, weight, y, level):
    """Ends of {b: the level of c + y b is `level`}: at each a row comes to the surface."""
    candidates = y * (level - c)
    levels = [level_by_sort(c + y * b, volume, weight) for b in candidates]
    best = candidates[np.abs(np.array(levels) - level) < 1e-12]
    return best.min(), best.max()


def keyed(seed, t):
    """Generator of update t: Philox keyed by (seed, 0x736270, t)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 0x736270, t])))


def level(c, volume):
    return level_by_sort(c, volume, np.ones(len(c)))


def basins(c, y, volume):
    """Level, bias, and the rows under water of both classes, lowest first."""
    rows = [np.flatnonzero(y == s)[np.argsort(c[y == s], kind="stable")] for s in (1, -1)]
    n = min(map(len, rows))
    a, b = (np.append(c[r], np.inf) for r in rows)
    u = level(a[:n] + b[:n], volume)
    k = np.count_nonzero(a[:n] + b[:n] < u)
    low, high = max(a[k - 1], u - b[k]), min(a[k], u - b[k - 1])
    return u / 2, u / 2 - (low + high) / 2, rows[0][:k], rows[1][:k]


def batch_perceptron(K, y, nu, updates, m, seed, power, bias=False, eta0=None):
    """Algorithm 1: coefficients and intercept of the average, weights t^power (None: last).

    The step is eta0 / sqrt(t), or 1 / sqrt(sum |g|^2) over all mean gradients g so far. Draws
    invert the uniform distribution over the rows under water, in ascending order, or lowest
    first with a bias.
    """
    n = len(y)
    a, mean, squares, total = np.zeros(n), np.zeros(n), 0.0, 0.0
    for t in range(1, updates + 1):
        rng, c = keyed(seed, t), y * (K @ (a * y))
        if bias:
            _, _, up, down = basins(c, y, n * nu)
            sizes = (m - m // 2, m // 2) if rng.random() < 0.5 else (m // 2, m - m // 2)
            pools = zip((up, down), sizes, strict=True)
        else:
            pools = [(np.flatnonzero(c < level(c, n * nu) if nu else c == c.min()), m)]
        g = np.zeros(n)
        for pool, size in pools:
            np.add.at(g, pool[(rng.random(size) * len(pool)).astype(int)], 1 / m)
        squares += (g * y) @ K @ (g * y)
        a = a + g * (1 / np.sqrt(squares) if eta0 is None else eta0 / np.sqrt(t))
        a /= max(1.0, np.sqrt((a * y) @ K @ (a * y)))
        omega = 1.0 if power is None else t**power
        total = omega + (0.0 if power is None else total)
        mean += omega / total * (a - mean)
    c = y * (K @ (mean * y))
    gamma, b, *_ = basins(c, y, n * nu) if bias else (level(c, n * nu), 0.0)
    return mean * y / gamma, b / gamma


def svm(K, y, cost):
    """Coefficients of min |w|^2 / 2 + cost sum_i hinge_i, all rows with a label."""
    return box_program(K, y, np.ones(len(y)), 0.0, 1 / cost, 0.0, np.zeros(len(y)))


def primal(K, y, a, b, alpha):
    """Return alpha / 2 |w|^2 plus the mean hinge loss of K a + b."""
    return alpha / 2 * a @ K @ a + np.maximum(0, 1 - y * (K @ a + b)).mean()
