"""The machinery of experiments, and each of them in its quick size."""

import importlib
import itertools
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.datasets import archives
from benchmarks.datasets import qm7 as dataset
from benchmarks.registry import SkipError
from experiments import pages, runner
from experiments.base import (
    AGREES,
    DIFFERS,
    PAPERS,
    UNDECIDED,
    Claim,
    Experiment,
    by_seed,
    discover,
)
from experiments.dsg import _rivals, figure7_4
from experiments.s3gd import theorem3_1

from cases import every

FOUND = discover()
QUICK = "tsg.theorem1_2"  # the quickest; the others in the slow run


def claim(margins, error=np.nan):
    return Claim("x > 0", "1", lambda rows: str(len(rows)), lambda rows: margins, error)


@every(
    ("margins", "error", "verdict"),
    [
        ([1.0, 1.1, 0.9], np.nan, AGREES), ([-1.0, -1.1, -0.9], np.nan, DIFFERS),
        ([1.0, -1.1, 0.3], np.nan, UNDECIDED), ([1.0, np.nan], np.nan, UNDECIDED),
        ([1.0], 0.0, AGREES), ([0.0], 0.0, AGREES), ([-1.0], 0.0, DIFFERS),
        ([1.0], 0.6, UNDECIDED), ([], np.nan, UNDECIDED),
        ([1.0], np.nan, UNDECIDED),  # nobody knows how far another seed is away
        # two seeds: 12.7 standard errors, three: 4.3
        ([1.0, 1.15], np.nan, AGREES), ([1.0, 1.2], np.nan, UNDECIDED),
        ([-1.0, -2.0, -1.5], np.nan, DIFFERS), ([-1.0, -2.5, -1.5], np.nan, UNDECIDED),
    ],
)  # fmt: skip
def test_decisions(margins, error, verdict):
    assert claim(margins, error).decide([]).verdict == verdict


class Coins(Experiment):
    """Coins fall on both sides."""

    label = "Figure 0"
    claims = (
        Claim(
            "The mean is below .7",
            "0.5",
            lambda rows: f"{np.mean([row['mean'] for row in rows]):.3f}",
            lambda rows: by_seed(rows, lambda mine: 0.7 - mine[0]["mean"]),
        ),
    )
    fails = -1
    measured = 0

    def cells(self, quick):
        return [{"seed": seed, "n": 100} for seed in range(2 if quick else 4)]

    def measure(self, cell):
        if cell["seed"] == self.fails:
            raise SkipError("no more coins")
        type(self).measured += 1
        yield {"mean": np.random.default_rng(cell["seed"]).random(cell["n"]).mean()}

    def plot(self, rows, path):
        path.write_text(str(len(rows)))


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    coins = Coins()
    monkeypatch.setattr(Coins, "fails", 2)
    assert runner.attempt(coins, tmp_path, quick=False, again=False) == "skipped: no more coins"
    assert len(runner.Result(coins, tmp_path).rows) == 2
    path = next(tmp_path.rglob("*.json"))
    early = json.loads(path.read_text())
    early["environment"]["cpu"] = "an earlier one"
    for run in early["cells"]:  # as results once were
        del run["cpu"]
    path.write_text(json.dumps(early))
    monkeypatch.setattr(Coins, "fails", -1)
    assert runner.attempt(coins, tmp_path, quick=False, again=False) == AGREES
    assert Coins.measured == 4
    content = json.loads(path.read_text())
    earlier = [run["cpu"] == "an earlier one" for run in content["cells"]]
    assert earlier == [True, True, False, False]
    assert content["claims"][0]["verdict"] == content["verdict"] == AGREES
    assert content["claims"][0]["n"] == 4
    assert {"cpu", "versions"} <= set(content["environment"])
    runner.attempt(coins, tmp_path, quick=False, again=True)
    assert Coins.measured == 8


def test_rho_and_delta_tend_to_their_limits_for_many_inner_iterations():
    """Equations (35) and (36) of Mu et al. for eta = 1 / (16 L) and m to infinity."""
    rho, delta = theorem3_1.rho_and_delta(2.0, 1e-3, 1 / 32, 10**12)
    assert rho == pytest.approx(1 / 3, rel=1e-6)  # 4 L eta / (1 - 4 L eta)
    assert delta == pytest.approx(1.0, rel=1e-6)  # 8 L eta / (1 - 8 L eta)
    rho, delta = theorem3_1.rho_and_delta(1.0, 0.5, 0.05, 200)
    assert rho == pytest.approx(1 / 4 + 10.05 / 40)
    assert delta == pytest.approx(2.0 / (5 - 0.005 * 401 - 1))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == QUICK else pytest.mark.slow) for n in FOUND]
)
def test_every_experiment_runs(name, tmp_path):
    experiment = FOUND[name]
    cells = experiment.cells(quick=False)
    assert len({json.dumps(cell) for cell in cells}) == len(cells)
    assert all(json.loads(json.dumps(cell)) == cell and "seed" in cell for cell in cells)
    try:
        result = runner.run(experiment, tmp_path, quick=True)
    except SkipError as reason:
        pytest.skip(str(reason))
    assert result.rows
    assert result.path.with_suffix(".png").exists()
    assert result.content["verdict"] in (AGREES, DIFFERS, UNDECIDED)
    assert re.fullmatch(r"(Figure|Table|Theorem|Lemma|Section) .+", experiment.label)


def test_results_and_pages_are_of_these_experiments():
    for name in FOUND:
        content = runner.Result(FOUND[name], runner.PAGES).content
        cells = FOUND[name].cells(quick=False)
        assert [run["cell"] for run in content["cells"] if run["cell"] not in cells] == []
        if content["cells"]:
            claims = [claim.text for claim in FOUND[name].claims]
            assert [c["text"] for c in content["claims"]] == claims
    assert pages.check() == []


def test_what_is_absent_does_not_agree(tmp_path, monkeypatch):
    coins, columns = Coins(), Claim("y", "1", str, lambda rows: [row["other"] for row in rows])
    monkeypatch.setattr(Coins, "claims", (*Coins.claims, columns))
    result = runner.Result(coins, tmp_path)
    for cell in coins.cells(quick=False)[:3]:
        result.add(cell, list(coins.measure(cell)), 0.0)
    decided = result.decided()
    assert [claim["verdict"] for claim in decided["claims"]] == [UNDECIDED] * 2
    assert (decided["verdict"], decided["missing"]) == (UNDECIDED, 1)
    result.add(coins.cells(quick=False)[3], [{"mean": 0.5}], 0.0)
    with pytest.raises(KeyError):  # a claim without its rows is an error once all are there
        result.decided()


def test_a_result_that_its_rows_do_not_bear_out_is_reported(tmp_path, monkeypatch):
    coins = Coins()
    monkeypatch.setattr(Coins, "cause", "setting")
    runner.run(coins, tmp_path, quick=False)
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    monkeypatch.setattr(pages, "discover", lambda: {coins.name: coins})
    monkeypatch.setattr(pages, "files", dict)
    assert pages.check() == []
    path = next(tmp_path.rglob("*.json"))
    right = path.read_text()
    path.write_text(right.replace('"mean": 0.', '"mean": 1.'))
    assert pages.check() == [f"{coins.name}: its verdicts do not follow from its rows"]
    runner.finish(runner.Result(coins, tmp_path))
    assert pages.check() == []
    content = json.loads(path.read_text())
    assert (content["claims"][0]["verdict"], content["claims"][0]["cause"]) == (
        DIFFERS,
        "setting",
    )
    path.write_text(right.replace('"n": 100', '"n": 99'))
    assert "cells" in pages.check()[0]
    path.write_text(right)
    monkeypatch.setattr(Coins, "methods", lambda self, cell: {"coin"})
    assert "methods" in pages.check()[0]


def test_rivals_with_more_than_twice_the_seconds_do_not_judge():
    rows = [
        {"method": name, "error": error, "seconds": seconds, "seed": seed}
        for seed in range(3)
        for name, error, seconds in (
            (_rivals.OURS, 2.0, 1.0), (_rivals.COVARIANCE, 1.0, 1.0), ("NORMA", 3.0, 1.9),
            ("k-SDCA", 0.5, 2.1),
        )
    ]  # fmt: skip

    def margins(**options):
        least = lambda e: min(e[m] for m in e if m != _rivals.OURS) - e[_rivals.OURS]  # noqa: E731
        return [claim.margins(rows)[0] for claim in _rivals.claim("", "", least, **options)[:2]]

    assert margins(decayed=False) == [1.0, 2.0]
    assert _rivals.slower(rows) == {"k-SDCA": 2.1}


def test_each_paper_is_cited_by_its_title():
    cited = (runner.ROOT / "CITATION.cff").read_text()
    for paper in PAPERS:
        reference = importlib.import_module(f"experiments.{paper}").REFERENCE
        title = reference.split("*")[1]
        assert f'title: "{title}"' in cited
        assert title in " ".join(pages.README.read_text().split())


# The molecules of QM7


@pytest.fixture
def archive():
    path = archives.data_folder() / "qm7.npz"
    if not path.exists():
        pytest.skip("the data folder is absent; set KERNELGRAD_DATA")
    return np.load(path)


def water_and_hydrogen(n_atoms=4):
    Z = np.zeros((2, n_atoms), np.uint8)
    Z[0, :3], Z[1, :2] = (1, 8, 1), (1, 1)
    R = np.zeros((2, n_atoms, 3), np.float32)
    R[0, 1], R[0, 2], R[1, 1] = (0, 0, 0.96), (0.93, 0, 1.2), (0.74, 0, 0)
    return Z, R


def coulomb_entry(Z, R, i, j):
    if i == j:
        return 0.5 * float(Z[i]) ** 2.4
    if Z[i] == 0 or Z[j] == 0:
        return 0.0
    angstrom = math.dist([float(a) for a in R[i]], [float(a) for a in R[j]])
    return float(Z[i]) * float(Z[j]) / (angstrom / 0.529177210903)


def test_coulomb_matrices_follow_the_formula():
    Z, R = water_and_hydrogen()
    C = dataset.coulomb_matrices(Z, R)
    for m, i, j in itertools.product(range(2), range(4), range(4)):
        assert C[m, i, j] == pytest.approx(coulomb_entry(Z[m], R[m], i, j), rel=1e-6)


def test_random_sorting_permutes_rows_and_columns_together():
    C = dataset.coulomb_matrices(*water_and_hydrogen())
    X = dataset.random_sorting(C, 6, 5.0, seed=1).reshape(2, 6, 10)
    possible = [
        {
            tuple(np.float32(c[np.ix_(order, order)][np.triu_indices(4)]))
            for order in itertools.permutations(range(4))
        }
        for c in C
    ]
    for m in range(2):
        found = {tuple(x) for x in X[m]}
        assert found <= possible[m]
        assert len(found) > 1
    np.testing.assert_array_equal(dataset.random_sorting(C, 6, 5.0, seed=1), X.reshape(12, -1))
    assert (dataset.random_sorting(C, 6, 5.0, seed=2) != X.reshape(12, -1)).any()


def test_without_noise_rows_are_sorted_as_in_the_archive(archive):
    C = dataset.coulomb_matrices(archive["Z_test"], archive["R_test"])
    X = dataset.random_sorting(C, 1, 0.0, seed=0)
    stored = archive["X_test"]
    np.testing.assert_allclose(np.sort(X, axis=1), np.sort(stored, axis=1), atol=1e-4)
    equal = np.abs(X - stored).max(axis=1) < 1e-4  # equal norms come in any order
    assert equal.mean() > 0.98


def test_errors_are_of_mean_predictions_in_kcal():
    energies = figure7_4.Energies(SimpleNamespace(y=np.array([-100.0, -300.0])))
    test = SimpleNamespace(y=np.array([-90.0, -250.0]))
    # standardised by mean -200 and deviation 100: means are -150 and -250
    assert energies.error(np.array([0.0, 1.0, -1.0, 0.0]), test) == pytest.approx(30.0)
