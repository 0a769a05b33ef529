"""The attack of files: regressions and some hundred fresh inputs; and that it finds things."""

import pytest
from fuzz import faults, runner
from fuzz import target as fuzz_target

from hostile import INPUTS, Hostile

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
