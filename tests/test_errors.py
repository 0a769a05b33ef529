"""Every message of docs/errors.md is raised by what it is about."""

import pickle
import re
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp

import kernelgrad
from cases import every
from kernelgrad import KernelClassifier, KernelRegressor, LinearClassifier, open_source
from kernelgrad.cli import main
from steps import At

PAGE = (Path(__file__).parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `(.+?)` \|", PAGE, re.M)

rng = np.random.default_rng(0)
X = rng.standard_normal((60, 2))
Y = X[:, 0] + 0.1 * rng.standard_normal(60)
LABELS = (Y > 0).astype(int)
FRAME = pd.DataFrame(X, columns=["a", "b"])
PLAIN = {"gamma": 0.5, "alpha": 1e-3, "random_state": 0}


def fitted(rows=FRAME, **options):
    return KernelRegressor(**PLAIN | options).fit(rows, Y)


def changed(row, column, value, of=FRAME):
    frame = of.astype(object)
    frame.iloc[row, column] = value
    return frame


def wide():
    KernelRegressor(**PLAIN).fit(X * [1.0, 1e6], Y)


def interrupted():
    interrupt = At(2, lambda: signal.raise_signal(signal.SIGINT))
    fitted(solver="dsg", max_iter=9, callbacks=interrupt)


def hold_out():
    rows = rng.standard_normal((300, 20))
    model = KernelClassifier(alpha=1e-9, gamma=1e-3, early_stopping=True, random_state=0)
    model.fit(rows, rng.random(300) < 0.3)


def csv(text, name="t.csv", **options):
    def run(folder):
        (folder / name).write_text(text)
        return open_source(folder / name, **options)

    return run


def cli(*arguments):
    def run(folder):
        (folder / "t.csv").write_text("a,y\n1,2\n")
        return main([argument.replace("FOLDER", str(folder)) for argument in arguments])

    return run


def inspected_only(folder):
    kernelgrad.RandomFeatures(n_components=8).fit(X).save(folder / "m.kgm")
    return cli("predict", "FOLDER/m.kgm", "FOLDER/t.csv", "--output", "-")(folder)


def empty_folder(folder):
    (folder / "none").mkdir()
    return open_source(folder / "none")


def lacking(folder):
    return csv("a\n1\n", feature_names=["a", "b"])(folder)


def rewritten(folder):
    path = folder / "t.csv"
    path.write_text("a\n1\n")
    source = open_source(path)
    path.write_text("a\n1\n2\n3\n")
    source.read(0, 1)


def pickled(folder):
    (folder / "m.kgm").write_bytes(pickle.dumps({"a": 1}))
    kernelgrad.load(folder / "m.kgm")


# what raises, warns or prints each message, in the order of the page
CASES = [
    lambda _: fitted().predict(changed(3, 1, "much")), lambda _: fitted(changed(3, 1, np.inf)),
    lambda _: fitted(FRAME.assign(c=[[1, 2]] * 60)), lambda _: fitted(FRAME * 1e-60),
    lambda _: KernelRegressor().fit(FRAME, np.where(LABELS, "yes", "no")),
    lambda _: KernelClassifier().fit(FRAME, Y),
    lambda _: KernelClassifier().fit(FRAME, [*"ab" * 29, "a", np.nan]),  # a list
    lambda _: KernelClassifier().fit(FRAME, pd.Series([1, "a"] * 30)),
    lambda _: KernelRegressor().fit(FRAME, pd.date_range("2024", periods=60)),
    lambda _: KernelClassifier().fit(FRAME, np.ones(60)),
    lambda _: KernelClassifier(solver="dsg").partial_fit(FRAME, np.ones(60)),
    lambda _: fitted(X).predict(X[0]), lambda _: fitted(X.astype(str)),
    lambda _: fitted(FRAME.to_dict("records")), lambda _: fitted(pl.DataFrame(FRAME).lazy()),
    lambda _: fitted(FRAME[["a", "a"]]), lambda _: fitted(X).predict(X[:, :1]),
    lambda _: fitted().predict(FRAME[["b", "a"]]),
    lambda _: fitted().predict(changed(3, 1, None)),
    lambda _: fitted(changed(3, 1, None)).predict(sp.csr_matrix(X)), lambda _: wide(),
    lambda _: fitted(kernel="gausian"), lambda _: fitted(loss="hinge"),
    lambda _: fitted(gama=1.0), lambda _: fitted(memory_limit=500),
    lambda _: fitted(gamma=-1.0), lambda _: fitted(max_iter=0), lambda _: fitted(C=1.0),
    lambda _: KernelRegressor(C=1.0, gamma=0.5).partial_fit(X, Y),
    lambda _: fitted(kernel="sigmoid"), lambda _: fitted(kernel=lambda A, B: A @ B.T - 1.0),
    lambda _: fitted(X, kernel="precomputed"),
    lambda _: fitted(X, kernel="intersection", metric="full"), lambda _: fitted(solver="tsg"),
    lambda _: fitted(solver="direct").partial_fit(X, Y),
    lambda _: KernelClassifier("hinge", probability=False).predict_proba,
    lambda _: fitted(X, solver="dsg", max_iter=1).explain(X), lambda _: interrupted(),
    lambda _: LinearClassifier(solver="svrg", max_iter=1, random_state=0).fit(X, LABELS),
    lambda _: fitted(time_limit=1e-9), lambda _: hold_out(),
    lambda folder: open_source(folder / "none.csv"),
    lambda folder: open_source(folder / "*.csv"), empty_folder, csv("a,b\n1,2\n", target="c"),
    csv(""), csv("a,,b\n1,2,3\n"), csv("1,2\n3,4\n"), csv(",a\n0,1\n"), csv("a,a\n1,2\n"),
    csv("a,b\n1,x\n"), csv("a,b\n1,\n"), csv("a,b\n1,2,3\n"), lacking, csv("a,b\n"), rewritten,
    lambda folder: kernelgrad.load(folder / "none.kgm"), pickled,
    cli("inspect", "FOLDER/t.csv"),
    lambda folder: KernelRegressor().save(folder / "m.kgm"),
    lambda _: kernelgrad.KernelRegressor().__setstate__({"_kernelgrad_version": "0.2.9"}),
    lambda _: kernelgrad.load(Path(__file__).parent / "data" / "v0.2.0" / "pipeline.kgm"),
    inspected_only,
    lambda _: fitted(kernel=kernelgrad.kernels.Matern(0.7, 0.5), gamma="auto").to_onnx(),
    cli("fit", "FOLDER/t.csv", "--model", "FOLDER/m.kgm"),
    cli("fit", "t.csv", "--model", "t.csv", "--target", "y"),
    cli("fit", "t.csv", "--model", "FOLDER/no/m.kgm", "--target", "y"),
    cli("demo", "--output-dir", "FOLDER"),
]  # fmt: skip


def pattern(message):
    return ".+".join(map(re.escape, message.split("...")))


def test_every_message_has_its_case():
    assert len(MESSAGES) == len(CASES) > 40
    assert len(set(MESSAGES)) == len(MESSAGES)


@every(("message", "case"), list(zip(MESSAGES, CASES, strict=False)))
def test_messages_are_those_of_the_page(message, case, tmp_path, capsys, monkeypatch):
    if "demo" in message:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = ""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            case(tmp_path)
        except (Exception, KeyboardInterrupt) as error:
            told = str(error)
    told += "".join(str(each.message) for each in warned) + capsys.readouterr().err
    assert re.search(pattern(message), told, re.S), told
