"""Random fits, each checked against a reference or a twin: ``python -m fuzz.soak``.

An execution draws rows, an estimator with a loss, a kernel and a solver from the registries,
and their parameters. Its fit must give finite predictions, and either what a reference in
float64 says of the least objective, or the same as its twins: rows in another order or in
another format, repeated rows for weights, other threads and chunks, a file, a pickle, a
checkpoint. Compiled loops check the bounds of arrays. ``python -m fuzz.soak --seed S --only I``
repeats execution I.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.validation import has_fit_parameter

import kernelgrad
from fuzz.references import REFERENCES
from fuzz.runner import run
from fuzz.target import Case, Finding, Target
from kernelgrad.compute.threads import set_num_threads
from kernelgrad.data import open_source
from kernelgrad.estimators import ESTIMATORS
from kernelgrad.functions.scaling import UNITS
from kernelgrad.kernels import KERNELS
from kernelgrad.losses import LOSSES, UNLABELLED_LOSSES
from kernelgrad.params import check_params
from kernelgrad.solvers import DSG, LINEAR_SOLVERS, SOLVERS
from kernelgrad.testing import estimator as contract

_NEW, _MOST = 40, 150  # rows; repeats included, one batch of every solver holds all
_VALUES: tuple[Any, ...] = (
    0, 1, 2, 3, 7, 32, 500, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 1.5, 10.0, True, False, None,
    "auto", "greedy", "random", "uniform", "linear", "polynomial", "constant", "inverse",
    "projection", "removal", "features", "support", "orthogonal", "qmc", "iid", "ranks",
)  # fmt: skip
# single batches depend on how rows are cut into them; the others have tests of their own
_KEPT = (
    "batch_size", "max_iter", "warm_start", "probability", "verbose", "memory_limit",
    "time_limit", "C", "C_star", "alpha",
)  # fmt: skip
_FEW_ROWS = 20
_ROUNDING = 1e-2  # of the largest output: drawn problems may be ill posed
Generator = np.random.Generator


def log_uniform(rng: Generator, low: float, high: float) -> float:
    return float(10.0 ** rng.uniform(low, high))


def varied(part: Any, rng: Generator, share: float = 0.2) -> Any:
    """Return `part` with some of its declared parameters set to others of their domains."""
    for each in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
        if "check" not in each.metadata or each.name in _KEPT or rng.random() > share:
            continue
        before = getattr(part, each.name)
        for at in rng.permutation(len(_VALUES))[:20]:
            setattr(part, each.name, _VALUES[at])
            try:
                check_params(part)
                break
            except (ValueError, TypeError):
                setattr(part, each.name, before)
    return part


def draw_values(n: int, d: int, rng: Generator) -> Any:
    """Return rows of one of the kinds that users have."""
    kind = rng.integers(7)
    X = rng.standard_normal((n, d)) if kind < 3 else 2.0 * rng.random((n, d))
    if kind in (1, 3):
        X[rng.random((n, d)) < rng.uniform(0.1, 0.95)] = 0.0
    if kind == 4:
        X = np.floor(rng.integers(2, 5) * rng.random((n, d)))
    if kind == 5:
        X = X[rng.integers(max(1, n // 3), size=n)]
    if kind == 6:
        X = rng.standard_t(2, (n, d)) * 10.0 ** rng.uniform(-2, 2, d) + rng.normal(0, 3, d)
    if rng.random() < 0.2:
        X[:, rng.integers(d)] = rng.normal()
    return X.astype(rng.choice([np.float32, np.float64]))


def draw_rows(estimator: Any, rng: Generator) -> contract._Rows:
    n = int(rng.integers(2, 12)) if rng.random() < 0.1 else int(rng.integers(12, _MOST))
    d = 9 if "convolutional" in repr(estimator).lower() else int(rng.integers(1, 13))
    X = draw_values(n + _NEW, d, rng)
    U = X / (np.abs(X).max(axis=0) + 1e-30)
    signal = np.sin(3.0 * U[:, 0]) + U @ rng.standard_normal(d)
    signal = signal + 0.2 * rng.standard_normal(len(X))
    y: Any = (signal > np.median(signal)).astype(np.int64)
    if is_regressor(estimator):
        y = signal * log_uniform(rng, -3, 3) + rng.normal(0, 10) * (rng.random() < 0.3)
    elif is_classifier(estimator):
        few = has_fit_parameter(estimator, "X_unlabelled")
        cuts = rng.uniform(0.1, 0.9, 1 if few or rng.random() < 0.5 else 2)
        classes = np.digitize(signal[:n], np.quantile(signal[:n], np.sort(cuts)))
        y = np.unique(classes, return_inverse=True)[1]
        if few:
            labelled = rng.random(len(y)) >= 0.6
            labelled[np.unique(y, return_index=True)[1]] = True  # else -1 may be a class
            y[~labelled] = -1
    weight = rng.integers(0, 4, n) if rng.random() < 0.7 else np.ones(n, np.int64)
    return contract._Rows(X[:n], y[:n], weight, X[n:])


def _kernel(rng: Generator) -> Any:
    name = "rbf" if rng.random() < 0.4 else str(rng.choice(sorted(KERNELS)))
    cls, gamma = KERNELS.get(name), log_uniform(rng, -2, 1)
    if name == "rbf" or cls is None:
        return name
    if name in ("sum", "product"):
        parts = kernelgrad.kernels.Gaussian(gamma), kernelgrad.kernels.Laplacian(0.4)
        return parts[0] + parts[1] if name == "sum" else parts[0] * parts[1]
    if name == "dot_product":
        return cls([1.0, 1.0, 0.5], gamma=0.1)
    if name == "convolutional":
        return cls((3, 3), patch_size=2, gamma=0.5)
    return "rbf" if name == "precomputed" else varied(cls(), rng)


def draw_estimator(rng: Generator) -> Any:
    """Return an estimator out of all registered ones, with drawn parts and parameters."""
    cls = ESTIMATORS[str(rng.choice(sorted(ESTIMATORS)))]
    model = cls()
    known = model.get_params(deep=False)
    kinds = {"classification": is_classifier(model), "regression": is_regressor(model)}
    task = next((kind for kind, is_one in kinds.items() if is_one), "density_ratio")
    given: dict[str, Any] = {"random_state": int(rng.integers(2**31))}
    if "max_iter" in known:
        given["max_iter"] = int(rng.integers(1, 30))
    if "loss" in known and rng.random() < 0.7:
        losses = sorted(name for name, each in LOSSES.items() if task in each.tasks)
        given["loss"] = varied(LOSSES[str(rng.choice(losses))](), rng)
    if "unlabelled_loss" in known and rng.random() < 0.5:
        given["unlabelled_loss"] = str(rng.choice(sorted(UNLABELLED_LOSSES)))
    if "solver" in known and rng.random() < 0.8:
        registry: Any = LINEAR_SOLVERS if "Linear" in cls.__name__ else SOLVERS
        given["solver"] = varied(registry[str(rng.choice(sorted(registry)))](), rng)
        if isinstance(given["solver"], DSG):  # narrow blocks take narrow batches
            given["solver"].set_params(batch_size=1000)
    if "kernel" in known and rng.random() < 0.8:
        given["kernel"] = _kernel(rng)
    if "alpha" in known and rng.random() < 0.7:
        given["alpha"] = log_uniform(rng, -6, 1)
    if "gamma" in known and rng.random() < 0.7:
        given["gamma"] = log_uniform(rng, -3, 1)
    if "metric" in known and rng.random() < 0.5:
        given["metric"] = None
    if "class_weight" in known and rng.random() < 0.2:
        given["class_weight"] = "balanced"
    if "multi_class" in known and rng.random() < 0.2:
        given["multi_class"] = "ovo"
    if "penalty" in known and rng.random() < 0.5:
        given["penalty"] = rng.choice(["l1", "elasticnet"]).item()
    if "nu" in known:
        given["nu"] = float(rng.uniform(0.05, 0.6))
    return varied(model.set_params(**given), rng, 0.1)


# -- twins -----------------------------------------------------------------------------------


class Twins(contract._Checks):
    """The checks of the contract and more, on drawn rows."""

    def __init__(self, estimator: Any, model: Any, rows: contract._Rows) -> None:
        self.estimator, self.model, self.rows, self.random_state = estimator, model, rows, 0
        self.weighted = has_fit_parameter(estimator, "sample_weight")
        self.kernel = getattr(model, "kernel_", None)

    def sane(self) -> None:
        """Ask for finite outputs, shares as probabilities, and labels that were seen."""
        require = partial(contract.require, subject=self.model)
        n = len(self.rows.new)
        for name, value in self.outputs(self.model).items():
            require(len(value) == n, message=f"{name} has {len(value)} rows for {n}.")
            if value.dtype.kind == "f":
                require(np.isfinite(value).all(), message=f"{name} is not finite.")
            if name == "predict_proba":
                fine = (value >= 0).all() and np.abs(value.sum(axis=1) - 1).max() < 1e-6
                require(fine, message="probabilities are no shares.")
            if name == "std":
                require((value >= 0).all(), message="a standard deviation is below 0.")
            if name == "predict" and is_classifier(self.estimator):
                seen = np.isin(value, self.model.classes_).all()
                require(seen, message="a label was never seen.")

    def order_and_weights(self) -> None:
        """Leave out "balanced" classes, which count rows, and those of rows without weight."""
        y, balanced = self.rows.y, getattr(self.estimator, "class_weight", None) is not None
        lost = is_classifier(self.estimator) and set(y) != set(y[self.rows.weight > 0])
        if not (balanced or lost):
            super().order_and_weights()

    def chunks(self, rounding: float = contract._ROUNDING) -> None:
        """Let single rows be as far off as rows moved by the rounding of d products.

        Any order of a float32 sum of d products is the exact sum of entries that are moved by
        at most ``d 2^-24``. Features of high frequencies are that sensitive.
        """
        new, size = self.rows.new, 2.0**-23 * self.rows.new.shape[1]
        moved = new * (1.0 + np.random.default_rng(0).choice([-size, size], new.shape))
        outputs = contract._outputs(self.model, moved)
        for name, value in self.outputs(self.model).items():
            if value.dtype.kind == "f":
                scale = max(float(np.abs(value).max()), 1e-3)
                rounding = max(rounding, float(np.abs(value - outputs[name]).max()) / scale)
        super().chunks(rounding)

    def forms(self) -> None:
        X = self.rows.X
        forms = {
            "Fortran order": np.asfortranarray(X), "strides": np.repeat(X, 2, axis=1)[:, ::2],
            "byte order": X.astype(X.dtype.newbyteorder()),
        }  # fmt: skip
        for what, form in forms.items():
            form.flags.writeable = False
            self.same(dataclasses.replace(self.rows, X=form).fit(self.estimator), what)

    def frames(self) -> None:
        import pandas as pd

        frame = partial(pd.DataFrame, columns=[f"c{j}" for j in range(self.rows.X.shape[1])])
        rows = self.rows.changed(frame)
        outputs = contract._outputs(rows.fit(self.estimator), rows.new)
        expected = self.outputs(self.model)
        contract._require_same_bits(self.model, expected, outputs, "a data frame")

    def csr(self) -> None:
        estimator, model, rows = self.estimator, self.model, self.rows
        scaled = getattr(estimator, "_standardize", "auto")
        if hasattr(model, "transform") or scaled == "auto":
            return  # other features of the same kernel; dense rows alone are scaled
        if hasattr(model, "offset_") and len(rows.X) < _FEW_ROWS:
            return  # the level is the score of one of the rows, on either side by rounding
        if scaled == UNITS:  # dense rows alone
            estimator = clone(estimator).set_params(standardize=False)
            model = rows.fit(estimator)
        rows = rows.changed(sp.csr_matrix)
        outputs = contract._outputs(rows.fit(estimator), rows.new)
        for name, value in self.outputs(model).items():
            if value.dtype.kind == "f":
                # steps at kinks may take another side for some rows
                off = np.median(np.abs(value - outputs[name]))
                close = off <= _ROUNDING * np.abs(value).max()
                contract.require(close, model, f"CSR rows give another {name}.")

    def threads(self) -> None:
        set_num_threads(3)
        try:
            self.same(self.rows.fit(self.estimator), "three threads")
        finally:
            set_num_threads(None)

    def seen(self) -> None:
        """Fit again: the first fit has neither written into its rows nor left anything."""
        parts = self.rows.X, self.rows.y, self.rows.weight
        before = [part.copy() for part in parts]
        twin = self.rows.fit(self.estimator)
        same = all(np.array_equal(a, b) for a, b in zip(before, parts, strict=True))
        contract.require(same, self.model, "a fit writes into its rows.")
        self.same(twin, "a second fit")

    def sources(self) -> None:
        estimator, y = self.estimator, self.rows.y
        if not (is_classifier(estimator) or is_regressor(estimator)) or -1 in y:
            return
        import pandas as pd

        X = np.asarray(self.rows.X, np.float64)
        names = [f"c{j}" for j in range(X.shape[1])]
        frame = pd.DataFrame(X, columns=names).assign(target=y)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            frame.to_csv(path / "rows.csv", index=False)
            frame.to_parquet(path / "rows.parquet")
            np.savez(path / "rows.npz", X=X, target=y)
            files = [path / f"rows.{kind}" for kind in ("npz", "csv", "parquet")]
            sources = [open_source(file, target="target") for file in files]
            try:
                fits = [clone(estimator).fit(source) for source in sources]
            except ValueError:  # not every solver takes files, or those that stay on disk
                return
            for source, fit in zip(sources[1:], fits[1:], strict=True):
                self.same(fit, type(source).__name__, fits[0])


CHECKS: tuple[Callable[[Twins], None], ...] = (
    Twins.order_and_weights, Twins.forms, Twins.frames, Twins.csr, Twins.threads, Twins.seen,
    Twins.sources, Twins.seed, Twins.chunks, Twins.classes, Twins.pickle, Twins.files,
    Twins.callbacks,
)  # fmt: skip


def _short(error: Exception) -> str:
    """Return what tells kinds of findings apart."""
    told = str(error).rpartition("): ")[2][:60]
    return told if isinstance(error, AssertionError) else type(error).__name__


def check_twins(rng: Generator) -> str:
    """Fit what is drawn and compare it with some of its twins."""
    chosen = rng.choice(len(CHECKS), 3, replace=False)
    for _ in range(8):  # parts that are drawn alone may not go together
        estimator = draw_estimator(rng)
        rows = draw_rows(estimator, rng)
        try:
            model = rows.fit(estimator)
            model.transform(rows.new) if hasattr(model, "transform") else model.predict(
                rows.new
            )
            break
        except (ValueError, FloatingPointError):  # refused, or diverged
            continue
    else:
        return "clear"
    twins = Twins(estimator, model, rows)
    for check in (Twins.sane, *(CHECKS[i] for i in chosen)):
        try:
            check(twins)
        except Exception as error:
            if "diverged" in str(error):  # without the weights, or on the way on
                return "clear"
            error.add_note(f"{estimator!r} of {rows.X.shape} {rows.X.dtype}")
            parts = [
                type(each).__name__ for each in (estimator, getattr(model, "solver_", None))
            ]
            raise Finding(f"{check.__name__}: {' '.join(parts)}: {_short(error)}") from error
    return "identical"


class Soak(Target):
    """Fits that are drawn by number, half of them compared with references."""

    name: ClassVar[str] = "soak"
    seconds: ClassVar[float] = 300.0  # compilation counts
    memory: ClassVar[int] = 4 << 30

    def use(self, path: Path) -> bytes:
        """Do nothing: there are no files."""
        return b""

    def case(self, seed: int, execution: int) -> Case:
        return Case("fit.txt", f"{seed} {execution}".encode(), True)

    def execute(self, case: Case, folder: Path) -> str:
        """Return "identical", "clear" if all was refused, "other" if a reference gave up."""
        rng = np.random.default_rng([int(word) for word in case.data.split()])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if rng.random() < 0.3:
                return REFERENCES[rng.integers(len(REFERENCES))](rng)
            return check_twins(rng)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--executions", type=int, default=None, help="earlier ones included")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, default=None, help="repeat one execution here")
    parser.add_argument("--output", type=Path, default=Path("out/soak"), help="goes on there")
    args = parser.parse_args(argv)
    # loops with and without checks have the same name in a cache
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(args.output / "compiled")}
    if not checked.items() <= os.environ.items():
        command = [sys.executable, "-m", "fuzz.soak", *(sys.argv[1:] if argv is None else argv)]
        return subprocess.run(command, env=os.environ | checked).returncode
    if args.only is not None:
        print(Soak().execute(Soak().case(args.seed, args.only), args.output))
        return 0
    if args.minutes is None and args.executions is None:
        args.minutes = 60.0
    state = run(
        Soak(), seed=args.seed, output=args.output, executions=args.executions,
        minutes=args.minutes,
    )  # fmt: skip
    counts = ", ".join(f"{n:,} {what}" for what, n in sorted(state.outcomes.items()))
    print(f"{state.executions:,} executions ({counts}), {state.seconds:.0f} s")
    for found in state.findings:
        print(f"  {found['count']} x {found['kind']}: executions {found['executions']}")
    return int(bool(state.findings))


if __name__ == "__main__":
    raise SystemExit(main())
