"""Fit every estimator to hostile numbers: ``python -m fuzz.abuse --seed 0``.

Each fit must end in a clear error (ValueError, TypeError or, of a fit that diverged,
FloatingPointError, in a sentence), or in a model with
finite predictions. Where the abuse takes nothing away from what there is to learn, it must be
about as good on new rows as that of clean rows, or warn; a worse one is a silent wrong model.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.objectives import _tables_case
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import has_fit_parameter

from fuzz.estimators import every
from kernelgrad.kernels import Gaussian
from kernelgrad.testing.warmup import METHODS

_ROWS, _NEW, _COLUMNS = 160, 200, 4
_WORSE = 0.15  # of a score: more than what some rows less may cost
_SENTENCE = 20  # characters, at least, of a message that says something
_SCALES = (-300, -100, -50, -38, -30, -20, -10, -6, 6, 10, 15, 18, 20, 30, 38, 100, 300)
_SHIFTS = (2, 4, 6, 8, 10, 12, 14)


@dataclass(frozen=True)
class Rows:
    """Rows with a signal to learn, new ones, and rows far away from all."""

    X: Any
    t: Any
    new: Any
    new_t: Any
    far: Any
    weight: Any = None
    labels: Any = None  # where classes are not the sign of the signal
    # for which estimators a good model can be found: "all", "scaled" for those that scale
    # columns, "classes", "numbers" for those whose penalty follows the targets, "labelled" for
    # those that need all labels (an SVC of the labelled third alone falls from .89 to .76 on
    # collinear columns, and equal rows change the shares of classes), or "none"
    fair: str = "all"

    def warp(self, change: Callable[[Any], Any], **more: Any) -> Rows:
        with np.errstate(all="ignore"):
            parts = {name: change(getattr(self, name)) for name in ("X", "new", "far")}
        return replace(self, **parts, **more)

    def hurt(self, change: Callable[[Any], Any], **more: Any) -> Rows:
        X = self.X.copy()
        return replace(self, X=change(X), **more)

    def take(self, rows: Any, **more: Any) -> Rows:
        return replace(self, X=self.X[rows], t=self.t[rows], **more)


Abuse = Callable[[np.random.Generator, Rows], Rows]


def clean(rng: np.random.Generator, n: int = _ROWS, d: int = _COLUMNS) -> Rows:
    """Return normal rows; the signal is a sum of two columns, a little bent."""
    X, new = rng.standard_normal((n, d)), rng.standard_normal((_NEW, d))

    def signal(X: Any) -> Any:
        return X[:, 0] + 0.5 * X[:, min(1, d - 1)] + 0.1 * np.sin(3 * X[:, 0])

    far = 6.0 * rng.standard_normal((_NEW, d))
    if d == 1:
        far += 10.0 * np.sign(far)
    return Rows(X, signal(X), new, signal(new), far)


@cache
def of_table(name: str, seed: int) -> Rows:
    """Return four columns of numbers of a table of the benchmarks; nothing judges scores."""
    frame = _tables_case.frame(name).select_dtypes("number").fillna(0.0)
    rng = np.random.default_rng(seed)
    at = rng.permutation(len(frame))[: _ROWS + 2 * _NEW]
    X = frame.to_numpy(float)[np.ix_(at, rng.permutation(frame.shape[1])[:_COLUMNS])]
    t = np.unique(_tables_case.target(name)[at], return_inverse=True)[1] * 1.0
    a, b = _ROWS, _ROWS + _NEW
    return Rows(X[:a], t[:a] - t.mean(), X[a:b], t[a:b] - t.mean(), X[b:], fair="none")


def _put(place: Any, value: Any) -> Callable[[Any], Any]:
    def change(X: Any) -> Any:
        X[place] = value
        return X

    return change


def _column(j: Any, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(X: Any) -> Any:
        X = X.copy()
        X[:, j] = change(X[:, j])
        return X

    return changed


def _more(column: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda X: np.column_stack([X, column(X)])


def _warp(change: Callable[[Any], Any], **more: Any) -> Abuse:
    return lambda rng, rows: rows.warp(change, **more)


def _hurt(change: Callable[[Any], Any], **more: Any) -> Abuse:
    return lambda rng, rows: rows.hurt(change, **more)


def _swap(fair: str = "all", **parts: Callable[[Rows], Any]) -> Abuse:
    """Return the change of some parts to what is made of the rows."""
    return lambda rng, r: replace(r, fair=fair, **{k: made(r) for k, made in parts.items()})


def _one(value: Any, others: Any, at: int = 3) -> Any:
    """Return some numbers, one of them replaced."""
    return np.where(np.arange(len(others)) == at, value, others)


def abuses() -> dict[str, Abuse]:
    found = _cells() | _scales() | _columns() | _types() | _few_rows()
    ends = np.iinfo("i8")
    text = {
        "labels of text": ("yes", "no"),
        "labels at the ends of int64": (ends.max, ends.min),
    }
    for name, (yes, no) in text.items():
        kind = object if yes == "yes" else np.int64
        found[name] = _swap(
            "classes", labels=lambda r, a=yes, b=no, k=kind: np.where(r.t > 0, a, b).astype(k)
        )
    return found


def _cells() -> dict[str, Abuse]:
    out: dict[str, Abuse] = {}
    four = np.array([1, -1, 0.1, -3])
    for v in (1e3, 1e5, 1e7, 1e8, 1e10, 1e13, 1e17, 1e19, 1e30, 1e39, 1e155, 1e308):
        for w in (v, -v):
            out[f"a cell of {w:g}"] = lambda g, r, w=w: r.hurt(
                _put((int(g.integers(99)), 1), w)
            )
        out[f"a row of {v:g}"] = lambda g, r, v=v: r.hurt(_put(int(g.integers(99)), v))
        out[f"four cells of {v:g}"] = lambda g, r, v=v: r.hurt(
            _put((g.permutation(99)[:4], np.arange(4)), v * four)
        )
    for v in (np.nan, np.inf, -np.inf):
        out[f"a cell of {v}"] = _hurt(_put((3, 1), v))
        out[f"a target of {v}"] = _swap("none", t=lambda r, v=v: _one(v, r.t))
    return out


def _scales() -> dict[str, Abuse]:
    out: dict[str, Abuse] = {}
    for power in _SCALES:
        f = 10.0**power
        times = lambda X, f=f: X * f  # noqa: E731
        powers = 10.0 ** (power * np.arange(4) / 3)
        out[f"all times {f:g}"] = _warp(times)
        out[f"column times {f:g}"] = _warp(_column(0, times), fair="scaled")
        useless = "scaled" if f > 1 else "all"
        out[f"useless column times {f:g}"] = _warp(_column(3, times), fair=useless)
        out[f"targets times {f:g}"] = _swap(
            "numbers", t=lambda r, f=f: r.t * f, new_t=lambda r, f=f: r.new_t * f
        )
        out[f"weights times {f:g}"] = _swap(
            "weights", weight=lambda r, f=f: np.full(len(r.t), f)
        )
        out[f"one weight times {f:g}"] = _swap(
            "none" if f > 1 else "all", weight=lambda r, f=f: _one(f, np.ones(len(r.t)), 5)
        )
        out[f"columns times powers up to {f:g}"] = _warp(
            lambda X, p=powers: X * p, fair="scaled"
        )
    for power in _SHIFTS:
        f = 10.0**power
        plus = lambda X, f=f: X + f  # noqa: E731
        fair = "none" if power > 12 else "all"
        out[f"all plus {f:g}"] = _warp(plus, fair=fair)
        out[f"a column plus {f:g}"] = _warp(_column(0, plus), fair=fair)
        out[f"targets plus {f:g}"] = _swap(
            t=lambda r, f=f: r.t + f, new_t=lambda r, f=f: r.new_t + f
        )
    for v in (10.0, 1e3, 1e8, 1e16):
        out[f"a target of {v:g}"] = _swap("classes", t=lambda r, v=v: _one(v, r.t))
    out["mixed weights"] = _swap(
        weight=lambda r: np.where(np.arange(len(r.t)) % 2, 1e300, 1e-300)
    )
    out["lognormal weights"] = lambda g, r: replace(r, weight=g.lognormal(0, 2, len(r.t)))
    out["a third of the weights zero"] = _swap(
        weight=lambda r: 1.0 * (np.arange(len(r.t)) % 3 > 0)
    )
    return out


def _columns() -> dict[str, Abuse]:
    out: dict[str, Abuse] = {}
    for v in (0.0, 1.0, 0.1, -1e8, 1e17, 1e30, 1e-40, 1e-310):
        out[f"a constant column of {v:g}"] = _warp(_more(lambda X, v=v: np.full(len(X), v)))
        out[f"all columns constant {v:g}"] = _warp(
            lambda X, v=v: np.full_like(X, v), fair="none"
        )
    for s in (1e-16, 1e-9, 1e-3):
        out[f"a column of 1e8 plus {s:g}"] = lambda g, r, s=s: r.warp(
            _more(lambda X: 1e8 * (1 + s * g.standard_normal(len(X)))), fair="scaled"
        )
    rare = lambda X: 1e6 * (np.arange(len(X)) % 40 == 7)  # noqa: E731
    out |= {
        "a column twice": _warp(_more(lambda X: X[:, 0])),
        "a column twenty times": _warp(_more(lambda X: X[:, [0] * 20])),
        "a useless column twenty times": _warp(_more(lambda X: X[:, [3] * 20]), fair="none"),
        "collinear columns": _warp(
            _more(lambda X: X @ np.array([1, -2, 3, 0])), fair="labelled"
        ),
        "nearly collinear": lambda g, r: r.warp(
            _more(lambda X: X[:, 0] * (1 + 1e-12 * g.standard_normal(len(X))))
        ),
        "a column of one 1": _warp(_more(lambda X: 1.0 * (np.arange(len(X)) == 7))),
        "a column of rare 1e6": _warp(_more(rare), fair="scaled"),
        "cauchy columns": lambda g, r: r.warp(
            _more(lambda X: g.standard_cauchy((len(X), 2))), fair="none"
        ),
        "heavy tails": _warp(lambda X: np.sinh(4 * X), fair="none"),
        "exponential columns": _warp(lambda X: np.exp(9 * X), fair="none"),
    }
    return out


def _counts(X: Any) -> Any:
    return np.clip(20 * X + 60, 0, 120)


def _types() -> dict[str, Abuse]:
    out: dict[str, Abuse] = {}
    for k in ("f2", "f4", ">f8", "g", "i1", "i2", "u1", "u8", "i8", "?", "O"):
        real = np.dtype(k).kind in "fO"
        out[f"dtype {k}"] = _warp(
            lambda X, k=k, real=real: (X if real else _counts(X)).astype(k),
            fair="none" if k == "?" else "all",
        )
    for k in ("i8", "u8", "i4"):
        info = np.iinfo(k)
        for end in (info.min, info.max):
            out[f"a cell of {end}"] = lambda g, r, k=k, v=end: r.warp(
                lambda X: _counts(X).astype(k)
            ).hurt(_put((3, 1), v))
        width = 0.999 * (info.max - float(info.min))
        out[f"columns of all {k}"] = _warp(
            lambda X, k=k, i=info, w=width: ((np.tanh(X / 2) + 1) / 2 * w + i.min).astype(k)
        )
    empty = lambda X: np.where((np.arange(len(X)) % 9 == 0)[:, None], 0, X)  # noqa: E731
    out |= {
        "strided rows": _warp(lambda X: np.repeat(X, 2, axis=1)[:, ::2]),
        "columns in Fortran order": _warp(np.asfortranarray),
        "CSR": _warp(sp.csr_matrix),
        "CSC": _warp(sp.csc_matrix),
        "CSR without entries": _warp(lambda X: sp.csr_matrix(X.shape), fair="none"),
    }
    for v in (1e5, 1e8, 1e17, 1e39):
        out[f"a cell of {v:g} in CSR"] = lambda g, r, v=v: r.hurt(_put((3, 1), v)).warp(
            sp.csr_matrix
        )
    out["CSR with empty rows"] = lambda g, r: r.hurt(empty).warp(sp.csr_matrix, fair="none")
    return out


def _few_rows() -> dict[str, Abuse]:
    out: dict[str, Abuse] = {}
    for n in (1, 2, 3, 4, 5, 8):
        out[f"{n} rows"] = lambda g, r, n=n: r.take(slice(n), fair="none")
    everyone = lambda r: np.arange(len(r.t))  # noqa: E731
    out |= {
        "one row per class": lambda g, r: r.take(slice(12), labels=np.arange(12), fair="none"),
        "one row of a class": _swap("none", labels=lambda r: 1 * (everyone(r) == 4)),
        "one row of a third class": _swap("none", labels=lambda r: _one(2, 1 * (r.t > 0), 4)),
        "1 to 1,000": lambda g, r: replace(
            clean(g, 1001), labels=1 * (np.arange(1001) == 4), fair="none"
        ),
        "one class": _swap("none", labels=lambda r: np.zeros(len(r.t), int)),
        "constant targets": _swap("none", t=lambda r: np.full(len(r.t), 3.0)),
        "n < d": lambda g, r: replace(clean(g, 20, 300), fair="none"),
        "one column": lambda g, r: clean(g, d=1),
        "equal rows": _hurt(lambda X: np.tile(X[:1], (len(X), 1)), fair="none"),
        "two rows again and again": lambda g, r: r.hurt(
            lambda X: X[np.arange(len(X)) % 2], t=everyone(r) % 2 - 0.5, fair="none"
        ),
        "rows ten times": lambda g, r: r.take(np.repeat(everyone(r), 10)),
        "most rows equal": lambda g, r: r.take(
            np.r_[everyone(r), np.zeros(1500, int)], fair="labelled"
        ),
        "rows that contradict": _swap(
            "none", X=lambda r: np.concatenate([r.X, r.X]),
            t=lambda r: np.concatenate([r.t, -r.t]),
        ),
        "sorted rows": lambda g, r: r.take(np.argsort(r.t)),
        "minus zero": _warp(lambda X: np.where(np.abs(X) < 0.1, -0.0, X)),
        "a target twice": _swap("none", t=lambda r: np.column_stack([r.t, r.t * 1e6])),
    }  # fmt: skip
    return out


def targets(estimator: Any, rows: Rows) -> Any:
    if is_regressor(estimator):
        return rows.t
    if rows.labels is None:
        y = (np.asarray(rows.t).reshape(len(rows.t), -1)[:, 0] > 0).astype(np.int64)
    else:
        y = rows.labels.copy()
    if has_fit_parameter(estimator, "X_unlabelled") and y.dtype.kind == "i":
        y = np.where(np.arange(len(y)) % 3 == 0, y, -1) if len(y) > 5 else y
    return y


def score(model: Any, rows: Rows, clean_rows: Rows) -> float:
    """Return how good a model is on new rows: accuracy, R2, or what ranks or resembles."""
    y = np.asarray(rows.new_t > 0)
    if is_regressor(model):
        scale = float(np.abs(rows.new_t).max())
        off = np.clip((model.predict(rows.new) - rows.new_t) / scale, -1e9, 1e9)
        return float(1.0 - np.mean(off**2) / np.var(rows.new_t / scale))
    if is_classifier(model):
        return float(np.mean((model.predict(rows.new) == model.classes_[-1]) == y))
    if hasattr(model, "transform"):
        Z = model.transform(rows.new[:60])
        vanish = not sp.issparse(rows.new) and np.ptp(rows.new, axis=0) < 1e-5
        if not sp.issparse(rows.new) and (rows.new.shape[1] != _COLUMNS or vanish.any()):
            clean_rows = rows  # of other columns, which are clean, or of fewer
        K = Gaussian().resolve(clean_rows.X, 0)(clean_rows.new[:60])
        with np.errstate(invalid="ignore"):  # where all are the same
            found = np.corrcoef((Z @ Z.T).ravel(), K.ravel())[0, 1]
        return float(np.nan_to_num(found))
    if hasattr(model, "score_samples"):
        both = np.concatenate([model.score_samples(each) for each in (rows.new, rows.far)])
        return float(roc_auc_score(np.arange(len(both)) < len(both) // 2, both))
    return float(roc_auc_score(y, model.predict(rows.new)))


def applies(estimator: Any, rows: Rows) -> bool:
    follows = (
        getattr(estimator, "loss", "squared") == "squared"
        or getattr(estimator, "alpha", 0) == "auto"
    )
    return {
        "all": True,
        "none": False,
        "classes": is_classifier(estimator),
        "numbers": is_classifier(estimator) or follows,
        "labelled": not has_fit_parameter(estimator, "X_unlabelled"),
        "scaled": bool(getattr(estimator, "_standardize", False)),
        "weights": getattr(estimator, "C", None) is None,  # C is for a row of weight 1
    }[rows.fair]


def rival(estimator: Any, rows: Rows, y: Any) -> float:
    """Return the score of scikit-learn's linear model on the same rows, for linear ones."""
    model = Ridge(1e-6) if is_regressor(estimator) else LogisticRegression(C=1e3, max_iter=1000)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            X = rows.X
            return score(model.fit(X, y, sample_weight=rows.weight), rows, rows)
        except (ValueError, np.linalg.LinAlgError):
            return 0.0


@dataclass(frozen=True)
class Outcome:
    """What one fit came to."""

    kind: str  # "error", "good", "warned", "unjudged" or what was found
    text: str = ""
    seconds: float = 0.0


FINDINGS = ("unexpected exception", "poor message", "not finite", "silent wrong", "raw warning")


def attempt(estimator: Any, rows: Rows, reference: float, clean_rows: Rows) -> Outcome:
    y = targets(estimator, rows)
    more = {}
    if rows.weight is not None:
        if not has_fit_parameter(estimator, "sample_weight"):
            return Outcome("unjudged")
        more["sample_weight"] = rows.weight
    model = clone(estimator).set_params(random_state=0)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            model.fit(rows.X, y, **more)
            outputs = {
                name: np.asarray(getattr(model, name)(rows.new))
                for name in METHODS
                if hasattr(model, name)
            }
        except (ValueError, TypeError, FloatingPointError) as error:  # the last of divergence
            kind = "error" if len(str(error)) >= _SENTENCE else "poor message"
            return Outcome(kind, f"{type(error).__name__}: {error}")
        except Exception as error:
            return Outcome("unexpected exception", f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - start
    for name, values in outputs.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return Outcome("not finite", name, seconds)
    texts = [f"{each.category.__name__}: {each.message}" for each in told]
    raw = [text for text in texts if text.startswith(("RuntimeWarning", "LinAlgWarning"))]
    if raw:
        return Outcome("raw warning", raw[0], seconds)
    if not applies(estimator, rows):
        return Outcome("unjudged", "", seconds)
    found = score(model, rows, clean_rows)
    if "Linear" in type(model).__name__:
        reference = min(reference, rival(model, rows, y))
    good = found >= reference - _WORSE
    text = f"{found:.3f} for {reference:.3f}"
    if not good and not texts:
        return Outcome("silent wrong", text, seconds)
    return Outcome("good" if good else "warned", text + " " + "; ".join(texts), seconds)


def title(estimator: Any) -> str:
    parts = [getattr(estimator, name, "") for name in ("loss", "solver")]
    names = [each if isinstance(each, str) else type(each).__name__ for each in parts]
    return " ".join([type(estimator).__name__, *filter(None, names)])


def run(
    seed: int, only: str = "", abuse: str = "", share: float = 1.0, tables: Sequence[str] = ()
) -> Iterator[tuple[str, str, Outcome]]:
    """Yield (estimator, abuse, outcome) of all, or of a random share; rows may be of tables."""
    picked = np.random.default_rng([seed, 1])
    for estimator in every():
        name = title(estimator)
        rows = clean(np.random.default_rng(seed))
        reference = None
        for what, change in abuses().items():
            if only not in title(estimator) or abuse not in what or picked.random() > share:
                continue
            if tables:
                name, reference = f"{title(estimator)} {picked.choice(tables)}", 0.0
                rows = of_table(name.rpartition(" ")[2], seed)
            elif reference is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = clone(estimator).set_params(random_state=0)
                    reference = score(model.fit(rows.X, targets(model, rows)), rows, rows)
            with np.errstate(over="ignore", under="ignore"):
                hurt = change(np.random.default_rng([seed, 2]), rows)
            hurt = replace(hurt, fair="none") if tables else hurt
            yield name, what, attempt(estimator, hurt, reference, rows)


def _save(path: Path, counts: Counter[str], found: list[Any]) -> None:
    path.write_text(json.dumps({"counts": counts, "fits": found}, indent=0))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.abuse", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of all fits, at random")
    parser.add_argument("--only", default="", help="part of the title of estimators")
    parser.add_argument("--abuse", default="", help="part of the name of abuses")
    parser.add_argument("--tables", action="store_true", help="rows of the tables as bases")
    parser.add_argument("--output", type=Path, help="JSON of all outcomes")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    found = []
    entries = _tables_case.index().items() if args.tables else ()
    tables = [
        name for name, entry in entries if entry.get("cols", 0) - entry.get("cats", 0) > 9
    ]
    for name, what, outcome in run(args.seed, args.only, args.abuse, args.share, tables):
        counts[outcome.kind] += 1
        found.append([name, what, outcome.kind, outcome.text, round(outcome.seconds, 2)])
        if outcome.kind in FINDINGS:
            print(f"{name} | {what} | {outcome.kind} | {outcome.text[:160]}", flush=True)
        if args.output and len(found) % 100 == 0:
            _save(args.output, counts, found)
    if args.output:
        _save(args.output, counts, found)
    print(json.dumps({"fits": sum(counts.values()), **counts}, indent=1))
    return int(any(counts[kind] for kind in FINDINGS))


if __name__ == "__main__":
    raise SystemExit(main())
