"""Slow references for solvers on exact kernels, from the formulas alone."""

import numpy as np
from scipy.optimize import linprog


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
