"""Courses of the experiments on UDSG and CDSG."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.cdsg import _courses as courses

from kernelgrad.data import ArraySource
from kernelgrad.solvers import CDSG


@pytest.fixture
def task():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] > 0, 3, 7)
    source = ArraySource(X[:300], y[:300])
    parts = (X[:300], y[:300]), (X[300:], y[300:])
    return courses.Task(source, lambda A: A, "log_loss", np.unique(y), *parts)


SIZE = courses.Size(16, 64, 12)


def test_a_course_tells_the_model_of_the_preset(task):
    chosen = courses.preset("CDSG", 1e-3, SIZE, 2.0)
    assert isinstance(chosen["solver"], CDSG)
    rows = courses.follow(task, chosen, 5, 12)
    solver, state = chosen["solver"], None
    problem = task.problem(chosen, 5)
    for batch, _ in zip(task.batches(64, 5), range(12), strict=False):
        state = solver.init(problem, batch) if state is None else state
        solver.step(problem, state, batch)
    f = solver.expansion(state).raw_prediction(task.X)
    assert rows[-1]["objective"] == pytest.approx(np.mean(np.log1p(np.exp(-task.y * f))), 1e-4)
    g = solver.expansion(state).raw_prediction(task.Z)
    assert rows[-1]["test"] == np.mean((g > 0) != (task.z > 0)) < 0.5
    assert rows[-1]["features"] == state.iterates.x.n_random_features
    assert len(courses.follow(task, chosen, 5, 12, limit=1e-9)) == 1


def test_methods_are_tuned_and_compared_at_equal_time(task):
    steps = courses.tune(task, 1e-3, SIZE, ["DSG", "UDSG"])

    def end(step):
        chosen = courses.preset("DSG", 1e-3, SIZE, step)
        return courses.follow(task, chosen, 10**6, 18)[-1]["objective"]

    best = steps["DSG"]
    assert end(best) < min(end(best / 50), end(best * 30))
    rows = list(courses.courses(task, 1e-3, SIZE, 0, steps))
    ends = {row["method"]: row for row in rows}
    assert ends["UDSG"]["seconds"] >= ends["DSG"]["seconds"]
    assert ends["DSG"]["features"] == 2 * 16 * 12
    svrg = list(courses.fixed_features(task, 32, 1e-3, 0, 0.05))
    assert svrg[-1]["objective"] < 0.67
    assert {row["features"] for row in svrg} == {64}
