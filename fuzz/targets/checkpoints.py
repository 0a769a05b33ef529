"""Checkpoints: damaged, and edited by someone who makes the checksum anew."""

from __future__ import annotations

import hashlib
import json
import tempfile
import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.base import clone

from fuzz.estimators import CLASSIFIES
from fuzz.mutate import mutate_bytes
from fuzz.target import CORPUS, Target
from fuzz.targets.models import add_to, edited, parts_of, signed
from kernelgrad import (
    DSG,
    KernelClassifier,
    KernelGaussianProcessRegressor,
    KernelRegressor,
    LinearClassifier,
    LinearRegressor,
    SemiSupervisedKernelClassifier,
)
from kernelgrad.callbacks import Checkpoint
from kernelgrad.exceptions import DataError, ModelFileError
from kernelgrad.files.container import contents_digest
from kernelgrad.solvers import LINEAR_SOLVERS, SOLVERS
from kernelgrad.testing.estimator import timeless

_RNG = np.random.default_rng(0)
_X = _RNG.standard_normal((40, 2))
_Y = _X[:, 0] + 0.3 * _RNG.standard_normal(40)
_LABELS = np.digitize(_Y, (-0.5, 0.5))
_GIVEN = {"max_iter": 3, "random_state": 0}
_NAME = "checkpoint-{:09d}.kgc"


def _fits() -> dict[str, tuple[Any, Any]]:
    """Return an estimator and targets for each solver, and for what is found before a fit."""
    kernel = _GIVEN | {"alpha": 1e-3, "gamma": 0.5}
    found: dict[str, tuple[Any, Any]] = {}
    for name, cls in SOLVERS.items():
        if cls.marks:
            marked = np.where(np.arange(40) % 3 > 0, -1, _LABELS > 0)
            found[name] = SemiSupervisedKernelClassifier(solver=name, **_GIVEN), marked
            continue
        loss = CLASSIFIES.get(name, "hinge")
        early = {
            "probability": False,
            "early_stopping": name in ("dsg", "block_descent", "sdca"),
        }
        found[name] = KernelClassifier(loss, solver=name, **kernel, **early), _LABELS
    for name in LINEAR_SOLVERS:
        linear = LinearClassifier("logistic", solver=name, probability=False, **_GIVEN)
        found[f"linear_{name}"] = linear, _LABELS
    batches = DSG(batch_size=10, block_size=8)
    free = kernel | {"random_state": None}
    return found | {
        "stream": (KernelRegressor(solver=batches, early_stopping=True, **kernel), _Y),
        "free": (KernelRegressor(solver=batches, **free), _Y),
        "searched": (KernelClassifier(solver="dsg", **_GIVEN), _LABELS),
        "process": (KernelGaussianProcessRegressor(solver=batches, **_GIVEN), _Y),
        "patience": (LinearRegressor(solver="sgd", early_stopping=True, **_GIVEN), _Y),
    }


class Checkpoints(Target):
    """Latest checkpoints, the one before beside them, from which a fit goes on."""

    name = "checkpoints"
    clear = (ModelFileError,)
    quick = 5

    @cached_property
    def _edits(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((CORPUS / self.name / "edits.json").read_text())
        return found

    @cached_property
    def _made(self) -> dict[str, dict[str, bytes]]:
        """The files of all fits, or of those that are edited, by the names of fit and file."""
        made: dict[str, dict[str, bytes]] = {}
        used = {of.rpartition("-")[0] for of, *_ in self._edits.values()}
        for name, (estimator, y) in _fits().items():
            if self.few and name not in used:
                continue
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                keeper = Checkpoint(folder, every=1, keep=9)
                clone(estimator).set_params(callbacks=keeper).fit(_X, y)
                made[name] = {path.name: path.read_bytes() for path in keeper.saved}
        return made

    def seeds(self) -> Mapping[str, bytes]:
        """Return the last file but one of each fit, and the last one of some."""
        seeds: dict[str, bytes] = {}
        for name, files in self._made.items():
            shown = sorted(files)[-2:]  # the last one is of a fit that has ended
            for file in shown if name in ("dsg", "sdca", "linear_svrg") else shown[:1]:
                seeds[f"{name}-{file.removeprefix('checkpoint-')}"] = files[file]
        return seeds

    @cached_property
    def inputs(self) -> Mapping[str, bytes]:
        """Seeds, and those edits of them that a file of the corpus tells."""
        seeds = self.seeds()
        return {**seeds, **{name: _edited(seeds, *it) for name, it in self._edits.items()}}

    def use(self, path: Path) -> bytes:
        name, _, number = path.stem.split("_of_")[-1].rpartition("-")
        estimator, y = _fits()[name]
        latest = _NAME.format(int(number))
        with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
            folder = Path(temporary)
            for file, data in self._made[name].items():
                if file < latest:
                    (folder / file).write_bytes(data)
            (folder / latest).write_bytes(path.read_bytes())
            keeper = Checkpoint(folder, every="1 h", resume=True)
            model = clone(estimator).set_params(callbacks=keeper)
            try:
                with patch("os.fsync"):  # what a crash of the machine leaves is not asked here
                    model.fit(_X, y)
            except (ValueError, FloatingPointError) as error:
                later = isinstance(error, DataError) or "diverged" in str(error)
                if not later and latest not in str(error):
                    raise
                raise ModelFileError(f"{path}: {error}") from error
            digest = hashlib.sha256(model.fit_status_.encode())
            add_to(digest, model.predict(_X))
            with patch("os.fsync"):
                contents = timeless(model, folder.parent / "model.kgm")
        digest.update(contents_digest(contents).encode())
        return digest.digest()

    def _expected(self, name: str, folder: Path) -> bytes | None:
        """Return what the file gives that was edited."""
        return super()._expected(name.split("_of_")[-1], folder)

    def mutate(self, name: str, data: bytes, rng: np.random.Generator) -> tuple[bytes, bool]:
        """Change bytes, or values and arrays under a new checksum."""
        if rng.random() < 0.2:
            return mutate_bytes(data, rng, list(self.inputs.values())), False
        return edited(data, rng, self.inputs), True


def _edited(seeds: Mapping[str, bytes], of: str, place: list[Any], to: Any) -> bytes:
    """Return a seed with another value at a place, or another first number in an array.

    Where `to` is "absent" it is left out; a list is a new shape.
    """
    tensors, metadata = parts_of(seeds[of])
    header = json.loads(metadata["header"])
    if place[0] != "array":
        parent = header
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = to
        if to == "absent":
            del parent[place[-1]]
    elif to == "absent":
        del tensors[place[1]]
    elif isinstance(to, str):
        tensors[place[1]] = tensors[place[1]].astype(to)
    elif isinstance(to, list):
        tensors[place[1]] = np.zeros(to, tensors[place[1]].dtype)
    else:
        tensors[place[1]].reshape(-1)[0] = to
    return signed(tensors, metadata, json.dumps(header))
