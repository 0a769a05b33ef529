"""Attacks of files, of numbers and by drawn fits: some hold, and what is wrong is found."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fuzz import abuse, estimators, faults, references, runner, soak
from fuzz import target as fuzz_target
from fuzz.target import Finding

from cases import every, raises
from hostile import INPUTS, Hostile
from kernelgrad import KernelRegressor, RandomFeatures
from kernelgrad.testing import estimator as contract

# Files

TARGETS = fuzz_target.targets()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_corpus_and_fresh_inputs_have_fit_answers(name, tmp_path):
    target = TARGETS[name]
    target.few = True
    target.prepare()
    corpus = [fuzz_target.Case(n, data, True) for n, data in target.inputs.items()]
    fresh = list(target.cases(0, 0, target.quick))
    found = [(case, *runner.attempt(target, case, tmp_path)) for case in corpus + fresh]
    assert [(case.name, *what) for case, *what in found if what[0] == "finding"] == []
    # its name tells what must become of a file; "either" depends on what is installed
    for case, outcome, *_ in found[: len(corpus)]:
        kind = case.name.partition("-")[0]
        assert kind == "either" or (outcome == "clear") == (kind == "refused"), case.name


def test_runner_finds_keeps_and_goes_on(tmp_path):
    for n in (4, len(INPUTS)):
        state = runner.run(Hostile(), seed=0, output=tmp_path, executions=n)
    assert state.executions == len(INPUTS)
    assert state.outcomes == {"identical": 2, "clear": 1, "finding": 6}
    kinds = {found["kind"].split(" in ")[0]: found for found in state.findings}
    crash = next(kinds.pop(kind) for kind in list(kinds) if kind.startswith("crash (SIGABRT)"))
    assert set(kinds) == {
        "a silent change", "an error that does not name the file", "hang", "MemoryError"
    }  # fmt: skip
    assert kinds["an error that does not name the file"]["executions"] == [4, 5]
    assert "hostile.py" in crash["detail"]
    kept = {path.read_bytes() for path in (tmp_path / "hostile-findings").iterdir()}
    assert kept == {b"crash", b"change", b"unnamed", b"hang", b"memory"}


def test_faults_are_small_and_can_be_run(tmp_path):
    path = tmp_path / "part.py"
    lines = [
        '"""Text with 1 + 1."""', "def f(n, tol=1e-3):", "    if not n < 2 and n is not f:",
        '        raise ValueError(f"{n - 1}")', "    return -(n // 2) * tol",
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    found = set()
    for a, b, new in faults.faults(path):
        data = path.read_bytes()
        changed = (data[:a] + new + data[b:]).decode()
        compile(changed, "part.py", "exec")
        found |= {line.strip() for line in changed.splitlines() if line not in lines}
    assert found == {
        "def f(n, tol=0.002):", "if  n < 2 and n is not f:", "if not n <= 2 and n is not f:",
        "if not n < 3 and n is not f:", "if not n < 2 or n is not f:",
        "if not n < 2 and n is f:", "pass",
        "return (n // 2) * tol", "return -(n * 2) * tol", "return -(n // 3) * tol",
        "return -(n // 2) / tol",
    }  # fmt: skip


# Hostile numbers end in a clear error, or in a model that is as good as it can be or warns

as_usual = pytest.mark.filterwarnings("default")


def found(*args, **options):
    return [case for case in abuse.run(*args, **options) if case[2].kind in abuse.FINDINGS]


# the defaults, a stream, dual variables, and linear functions
CORE = "KernelClassifier squared auto,hinge sdca,squared dsg,LinearRegressor squared auto"


SHARES = [(only, 0.04) for only in CORE.split(",")]
ALL = [(only, 1.0) for only in sorted({abuse.title(each) for each in estimators.every()})]


@as_usual
@pytest.mark.parametrize(
    ("only", "share"),
    [*SHARES, *(pytest.param(*each, marks=pytest.mark.slow) for each in ALL)],
)
def test_a_share_of_the_fits_or_all(only, share):
    assert found(0, only, share=share) == []


class Constant(KernelRegressor):
    def predict(self, X):
        return np.zeros(X.shape[0])


class Broken(KernelRegressor):
    def fit(self, X, y, sample_weight=None):
        raise ZeroDivisionError


class Unreal(KernelRegressor):
    def predict(self, X):
        return np.full(X.shape[0], np.nan)


@as_usual
@pytest.mark.parametrize(
    ("cls", "kind"),
    [(Constant, "silent wrong"), (Broken, "unexpected exception"), (Unreal, "not finite")],
)
def test_wrong_answers_to_hostile_numbers_are_found(cls, kind):
    rows = abuse.clean(np.random.default_rng(0))
    assert abuse.attempt(cls(gamma=0.5, alpha=1e-6), rows, 0.9, rows).kind == kind


# Drawn fits beside references and twins


def execute(number, seed=0):
    target = soak.Soak()
    return target.execute(target.case(seed, number), Path())


def test_some_drawn_fits_hold():
    found = [execute(number) for number in range(3)]
    assert set(found) <= {"identical", "clear", "other"}
    assert found.count("identical") >= 2


class Restless(KernelRegressor):
    """Another model each time."""

    def fit(self, X, y, sample_weight=None):
        shift = np.random.default_rng().random()
        return super().fit(X, y + shift, sample_weight=sample_weight)


class Unbounded(KernelRegressor):
    """A model whose predictions may not be numbers."""

    def predict(self, X):
        return super().predict(X) + np.where(np.arange(len(X)) == 1, np.nan, 0.0)


@pytest.mark.filterwarnings("ignore")
@every(("cls", "told"), [(Restless, "seen.*second fit"), (Unbounded, "sane")])
def test_wrong_estimators_are_found(monkeypatch, cls, told):
    estimator = cls(gamma=0.5, alpha=1e-3, random_state=0)
    monkeypatch.setattr(soak, "draw_estimator", lambda rng: estimator)
    monkeypatch.setattr(soak, "CHECKS", (soak.Twins.seen,) * 3)
    raises(Finding, told, soak.check_twins, np.random.default_rng(0))


class Loose(RandomFeatures):
    """Features that are others for single rows."""

    def transform(self, X):
        return super().transform(X) * (1.1 if X.shape[0] == 1 else 1.0)


def test_rounding_of_high_frequencies_is_no_finding():
    X = 30.0 * np.random.default_rng(0).standard_normal((60, 12))
    rows = contract._Rows(X[:20], None, None, X[20:])
    for cls in (RandomFeatures, Loose):
        estimator = cls("laplacian", 64, gamma=0.4, random_state=0)
        twins = soak.Twins(estimator, rows.fit(estimator), rows)
        if cls is Loose:
            raises(AssertionError, "one by one", twins.chunks)
        else:
            twins.chunks()


def test_the_reference_knows_the_loss_of_many_classes():
    assert references.linear_objective(np.random.default_rng(0)) == "identical"  # four classes


JUDGED = [
    ("below the least", 0.9, None, None, "max_iter"),
    ("another objective", 1.1, 1.2, None, "max_iter"),
    ("beyond the duality gap", 1.1, 1.1, 0.05, "max_iter"),
    ("converged elsewhere", 1.1, 1.1, None, "converged"),
]


@every(("told", "objective", "claim", "gap", "status"), JUDGED)
def test_wrong_claims_are_found(told, objective, claim, gap, status):
    history = {"objective": [claim], "duality_gap": [gap]}
    model = SimpleNamespace(history_=history, fit_status_=status)
    raises(Finding, told, references.judge, model, objective, 1.0, 1.0, "this")
    assert references.judge(model, claim or 1.0, claim or 1.0, 1.0, "this") == "identical"


@pytest.mark.slow
def test_many_drawn_fits_hold(tmp_path):
    assert soak.main(["--executions", "300", "--seed", "7", "--output", str(tmp_path)]) == 0
