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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import has_fit_parameter

from fuzz.estimators import every
from kernelgrad.estimators.warmup import METHODS
from kernelgrad.kernels import Gaussian

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
        """Return these rows with one change of all."""
        with np.errstate(all="ignore"):
            parts = {name: change(getattr(self, name)) for name in ("X", "new", "far")}
        return replace(self, **parts, **more)

    def hurt(self, change: Callable[[Any], Any], **more: Any) -> Rows:
        """Return these rows with a change of the training rows alone."""
        X = self.X.copy()
        return replace(self, X=change(X), **more)

    def take(self, rows: Any, **more: Any) -> Rows:
        """Return some training rows."""
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


def abuses() -> Iterator[tuple[str, Abuse]]:
    """Yield name and change of each abuse."""
    for value in (1e3, 1e5, 1e7, 1e8, 1e10, 1e13, 1e17, 1e19, 1e30, 1e39, 1e155, 1e308):
        for sign in (1, -1):
            yield (
                f"a cell of {sign * value:g}",
                lambda g, r, v=sign * value: r.hurt(_put((int(g.integers(99)), 1), v)),
            )
        yield f"a row of {value:g}", lambda g, r, v=value: r.hurt(_put(int(g.integers(99)), v))
        yield (
            f"four cells of {value:g}",
            lambda g, r, v=value: r.hurt(
                _put((g.permutation(99)[:4], np.arange(4)), v * np.array([1, -1, 0.1, -3]))
            ),
        )
    for value in (np.nan, np.inf, -np.inf):
        yield f"a cell of {value}", lambda g, r, v=value: r.hurt(_put((3, 1), v))
        yield (
            f"a target of {value}",
            lambda g, r, v=value: replace(
                r, t=np.where(np.arange(len(r.t)) == 3, v, r.t), fair="none"
            ),
        )
    for power in _SCALES:
        f = 10.0**power
        yield f"all times {f:g}", lambda g, r, f=f: r.warp(lambda X: X * f)
        yield (
            f"column times {f:g}",
            lambda g, r, f=f: r.warp(_column(0, lambda x: x * f), fair="scaled"),
        )
        yield (
            f"useless column times {f:g}",
            lambda g, r, f=f: r.warp(
                _column(3, lambda x: x * f), fair="scaled" if f > 1 else "all"
            ),
        )
        yield (
            f"targets times {f:g}",
            lambda g, r, f=f: replace(r, t=r.t * f, new_t=r.new_t * f, fair="numbers"),
        )
        yield (
            f"weights times {f:g}",
            lambda g, r, f=f: replace(r, weight=np.full(len(r.t), f), fair="weights"),
        )
        yield (
            f"one weight times {f:g}",
            lambda g, r, f=f: replace(
                r,
                weight=np.where(np.arange(len(r.t)) == 5, f, 1.0),
                fair="none" if f > 1 else "all",
            ),
        )
        yield (
            f"columns times powers up to {f:g}",
            lambda g, r, p=power: r.warp(
                lambda X: X * 10.0 ** (p * np.arange(4) / 3), fair="scaled"
            ),
        )
    for power in _SHIFTS:
        f = 10.0**power
        rounds = "none" if power > 12 else "all"
        yield f"all plus {f:g}", lambda g, r, f=f, w=rounds: r.warp(lambda X: X + f, fair=w)
        yield (
            f"a column plus {f:g}",
            lambda g, r, f=f, w=rounds: r.warp(_column(0, lambda x: x + f), fair=w),
        )
        yield f"targets plus {f:g}", lambda g, r, f=f: replace(r, t=r.t + f, new_t=r.new_t + f)
    for value in (10.0, 1e3, 1e8, 1e16):
        yield (
            f"a target of {value:g}",
            lambda g, r, v=value: replace(
                r, t=np.where(np.arange(len(r.t)) == 3, v, r.t), fair="classes"
            ),
        )
    yield (
        "mixed weights",
        lambda g, r: replace(r, weight=np.where(np.arange(len(r.t)) % 2, 1e300, 1e-300)),
    )
    yield "lognormal weights", lambda g, r: replace(r, weight=g.lognormal(0, 2, len(r.t)))
    yield (
        "a third of the weights zero",
        lambda g, r: replace(r, weight=1.0 * (np.arange(len(r.t)) % 3 > 0)),
    )
    for value in (0.0, 1.0, 0.1, -1e8, 1e17, 1e30, 1e-40, 1e-310):
        yield (
            f"a constant column of {value:g}",
            lambda g, r, v=value: r.warp(_more(lambda X: np.full(len(X), v))),
        )
        yield (
            f"all columns constant {value:g}",
            lambda g, r, v=value: r.warp(lambda X: np.full_like(X, v), fair="none"),
        )
    for noise in (1e-16, 1e-9, 1e-3):
        yield (
            f"a column of 1e8 plus {noise:g}",
            lambda g, r, s=noise: r.warp(
                _more(lambda X: 1e8 * (1 + s * g.standard_normal(len(X)))), fair="scaled"
            ),
        )
    yield "a column twice", lambda g, r: r.warp(_more(lambda X: X[:, 0]))
    yield "a column twenty times", lambda g, r: r.warp(_more(lambda X: X[:, [0] * 20]))
    yield (
        "a useless column twenty times",
        lambda g, r: r.warp(_more(lambda X: X[:, [3] * 20]), fair="none"),
    )
    yield (
        "collinear columns",
        lambda g, r: r.warp(_more(lambda X: X @ np.array([1, -2, 3, 0])), fair="labelled"),
    )
    yield (
        "nearly collinear",
        lambda g, r: r.warp(_more(lambda X: X[:, 0] * (1 + 1e-12 * g.standard_normal(len(X))))),
    )
    yield (
        "a column of one 1",
        lambda g, r: r.warp(_more(lambda X: 1.0 * (np.arange(len(X)) == 7))),
    )
    yield (
        "a column of rare 1e6",
        lambda g, r: r.warp(
            _more(lambda X: 1e6 * (np.arange(len(X)) % 40 == 7)), fair="scaled"
        ),
    )
    yield (
        "cauchy columns",
        lambda g, r: r.warp(_more(lambda X: g.standard_cauchy((len(X), 2))), fair="none"),
    )
    yield "heavy tails", lambda g, r: r.warp(lambda X: np.sinh(4 * X), fair="none")
    yield "exponential columns", lambda g, r: r.warp(lambda X: np.exp(9 * X), fair="none")
    for dtype in ("f2", "f4", ">f8", "g", "i1", "i2", "u1", "u8", "i8", "?", "O"):
        yield (
            f"dtype {dtype}",
            lambda g, r, k=dtype: r.warp(
                lambda X: (
                    X if np.dtype(k).kind in "fO" else np.clip(20 * X + 60, 0, 120)
                ).astype(k),
                fair="none" if k == "?" else "all",
            ),
        )
    for dtype in ("i8", "u8", "i4"):
        info = np.iinfo(dtype)
        for end in (info.min, info.max):
            yield (
                f"a cell of {end}",
                lambda g, r, k=dtype, v=end: r.warp(
                    lambda X: np.clip(20 * X + 60, 0, 120).astype(k)
                ).hurt(_put((3, 1), v)),
            )
        yield (
            f"columns of all {dtype}",
            lambda g, r, k=dtype, i=info: r.warp(
                lambda X: (
                    (np.tanh(X / 2) + 1) / 2 * 0.999 * (i.max - float(i.min)) + i.min
                ).astype(k)
            ),
        )
    yield "strided rows", lambda g, r: r.warp(lambda X: np.repeat(X, 2, axis=1)[:, ::2])
    yield "columns in Fortran order", lambda g, r: r.warp(np.asfortranarray)
    yield "CSR", lambda g, r: r.warp(sp.csr_matrix)
    yield "CSC", lambda g, r: r.warp(sp.csc_matrix)
    yield (
        "CSR without entries",
        lambda g, r: r.warp(lambda X: sp.csr_matrix(X.shape), fair="none"),
    )
    for value in (1e5, 1e8, 1e17, 1e39):
        yield (
            f"a cell of {value:g} in CSR",
            lambda g, r, v=value: r.hurt(_put((3, 1), v)).warp(sp.csr_matrix),
        )
    yield (
        "CSR with empty rows",
        lambda g, r: r.hurt(
            lambda X: np.where((np.arange(len(X)) % 9 == 0)[:, None], 0, X)
        ).warp(sp.csr_matrix, fair="none"),
    )
    for n in (1, 2, 3, 4, 5, 8):
        yield f"{n} rows", lambda g, r, n=n: r.take(slice(n), fair="none")
    yield "one row per class", lambda g, r: r.take(slice(12), labels=np.arange(12), fair="none")
    yield (
        "one row of a class",
        lambda g, r: replace(r, labels=1 * (np.arange(len(r.t)) == 4), fair="none"),
    )
    yield (
        "one row of a third class",
        lambda g, r: replace(
            r, labels=np.where(np.arange(len(r.t)) == 4, 2, 1 * (r.t > 0)), fair="none"
        ),
    )
    yield (
        "1 to 1,000",
        lambda g, r: replace(clean(g, 1001), labels=1 * (np.arange(1001) == 4), fair="none"),
    )
    yield "one class", lambda g, r: replace(r, labels=np.zeros(len(r.t), int), fair="none")
    yield "constant targets", lambda g, r: replace(r, t=np.full(len(r.t), 3.0), fair="none")
    yield "n < d", lambda g, r: replace(clean(g, 20, 300), fair="none")
    yield "one column", lambda g, r: clean(g, d=1)
    yield "equal rows", lambda g, r: r.hurt(lambda X: np.tile(X[:1], (len(X), 1)), fair="none")
    yield (
        "two rows again and again",
        lambda g, r: r.hurt(
            lambda X: X[np.arange(len(X)) % 2], t=np.arange(len(r.t)) % 2 - 0.5, fair="none"
        ),
    )
    yield "rows ten times", lambda g, r: r.take(np.repeat(np.arange(len(r.t)), 10))
    yield (
        "most rows equal",
        lambda g, r: r.take(np.r_[np.arange(len(r.t)), np.zeros(1500, int)], fair="labelled"),
    )
    yield (
        "rows that contradict",
        lambda g, r: replace(
            r, X=np.concatenate([r.X, r.X]), t=np.concatenate([r.t, -r.t]), fair="none"
        ),
    )
    yield "sorted rows", lambda g, r: r.take(np.argsort(r.t))
    yield "minus zero", lambda g, r: r.warp(lambda X: np.where(np.abs(X) < 0.1, -0.0, X))
    yield (
        "a target twice",
        lambda g, r: replace(r, t=np.column_stack([r.t, r.t * 1e6]), fair="none"),
    )
    yield (
        "labels of text",
        lambda g, r: replace(
            r, labels=np.where(r.t > 0, "yes", "no").astype(object), fair="classes"
        ),
    )
    yield (
        "labels at the ends of int64",
        lambda g, r: replace(
            r, labels=np.where(r.t > 0, np.iinfo("i8").max, np.iinfo("i8").min), fair="classes"
        ),
    )


def targets(estimator: Any, rows: Rows) -> Any:
    """Return y for the kind of the estimator."""
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
        if not sp.issparse(rows.new) and (np.ptp(rows.new, axis=0) > 0).sum() != _COLUMNS:
            clean_rows = rows  # of other columns, which are clean
        K = Gaussian().resolve(clean_rows.X, 0)(clean_rows.new[:60])
        with np.errstate(invalid="ignore"):  # where all are the same
            found = np.corrcoef((Z @ Z.T).ravel(), K.ravel())[0, 1]
        return float(np.nan_to_num(found))
    if hasattr(model, "score_samples"):
        both = np.concatenate([model.score_samples(each) for each in (rows.new, rows.far)])
        return float(roc_auc_score(np.arange(len(both)) < len(both) // 2, both))
    return float(roc_auc_score(y, model.predict(rows.new)))


def applies(estimator: Any, rows: Rows) -> bool:
    """Whether a good model can be found."""
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
    """Fit, predict and judge."""
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
    """Return the class, loss and solver."""
    parts = [getattr(estimator, name, "") for name in ("loss", "solver")]
    names = [each if isinstance(each, str) else type(each).__name__ for each in parts]
    return " ".join([type(estimator).__name__, *filter(None, names)])


def run(
    seed: int, only: str = "", abuse: str = "", share: float = 1.0
) -> Iterator[tuple[str, str, Outcome]]:
    """Yield (estimator, abuse, outcome) of all, or of a random share."""
    picked = np.random.default_rng([seed, 1])
    for estimator in every():
        name = title(estimator)
        rows = clean(np.random.default_rng(seed))
        reference = None
        for what, change in abuses():
            if only not in name or abuse not in what or picked.random() > share:
                continue
            if reference is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = clone(estimator).set_params(random_state=0)
                    reference = score(model.fit(rows.X, targets(model, rows)), rows, rows)
            with np.errstate(over="ignore", under="ignore"):
                hurt = change(np.random.default_rng([seed, 2]), rows)
            yield name, what, attempt(estimator, hurt, reference, rows)


def _save(path: Path, counts: Counter[str], found: list[Any]) -> None:
    path.write_text(json.dumps({"counts": counts, "fits": found}, indent=0))


def main() -> int:
    """Run all and tell what was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.abuse", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of all fits, at random")
    parser.add_argument("--only", default="", help="part of the title of estimators")
    parser.add_argument("--abuse", default="", help="part of the name of abuses")
    parser.add_argument("--output", type=Path, help="JSON of all outcomes")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    found = []
    for name, what, outcome in run(args.seed, args.only, args.abuse, args.share):
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
