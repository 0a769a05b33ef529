"""The state of a fit by block descent, and how it is copied and written."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from kernelgrad._typing import AnyArray, Float64Array
from kernelgrad.functions.exact import ExactKernel
from kernelgrad.functions.features import FeatureStream
from kernelgrad.functions.scaling import InputScaling
from kernelgrad.kernels import restore_kernel
from kernelgrad.persistence import below
from kernelgrad.solvers.base import Problem, State, transient
from kernelgrad.solvers.block_descent.newton import FeatureCoefficients, Iterate, Workspace


@dataclass(kw_only=True)
class CachedState(State):
    """State of :class:`CachedBlockDescent`.

    Attributes
    ----------
    exact : ExactKernel or None
        Of functions over training rows.
    stream : FeatureStream or None
        Of functions of random features.
    digest : bytes
        Of the rows, which a continued fit must bring again.
    offset : float64 array (C,)
        Taken off targets and added to predictions: float32 then holds residuals.
    iterate : Iterate
    features : FeatureCoefficients or None
    kept : dict of arrays
        Responses and coefficients of the shards while there is no `memory`.
    """

    exact: ExactKernel | None
    stream: FeatureStream | None
    digest: bytes
    offset: Float64Array
    iterate: Iterate
    features: FeatureCoefficients | None = None
    kept: dict[str, AnyArray] = field(default_factory=dict)
    kernel_evaluations: int = 0
    slow: int = 0
    memory: Workspace | None = transient()

    def release(self) -> None:
        """Keep what shards hold, and let go of the rows."""
        self.kept = self.snapshot()
        super().release()

    def snapshot(self) -> dict[str, AnyArray]:
        """Return responses (C, n), centres and coefficients of all shards."""
        if self.memory is None:
            return self.kept
        parts = self.memory.team.ask("snapshot")
        axes = {"index": 0, "last": 0}
        return {
            name: np.concatenate([part[name] for part in parts], axis=axes.get(name, 1))
            for name in parts[0]
        }

    def copy(self) -> Self:
        """Return a state without shards, which are made anew from the rows."""
        return dataclasses.replace(
            self,
            iterate=copy.deepcopy(self.iterate),
            features=copy.deepcopy(self.features),
            kept=self.snapshot(),
            memory=None,
        )

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"kept": self.snapshot()}

    def describe_parts(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Return the kernel or the stream, and the function."""
        home = self.exact if self.exact is not None else self.stream
        assert home is not None
        arrays = {f"scaling.{k}": a for k, a in home.scaling.arrays().items()}
        arrays |= {f"kept.{k}": a for k, a in self.snapshot().items()}
        if self.features is not None:
            arrays["features.coef"] = self.features.coef
            arrays["features.momentum"] = self.features.momentum
        plain = {}
        for name, value in vars(self.iterate).items():
            if isinstance(value, np.ndarray):
                arrays[f"0.{name}"] = value
            else:
                plain[name] = value if np.isfinite(value) else None
        kind = "support" if self.exact is not None else "features"
        return {"kind": kind, "home": home.describe(), "iterate": plain}, arrays

    @classmethod
    def restore_parts(
        cls, problem: Problem, values: dict[str, Any], arrays: dict[str, AnyArray]
    ) -> dict[str, Any]:
        """Return the fields that :meth:`describe_parts` described."""
        home = values["home"]
        scaling = InputScaling.from_arrays(below("scaling", arrays))
        kernel = restore_kernel(home["kernel"])
        exact, stream = None, None
        if values["kind"] == "support":
            exact = ExactKernel(kernel, home["n_features_in"], scaling, wide=home["wide"])
        else:
            stream = FeatureStream(
                kernel, home["n_features_in"], home["seed"], home["block_size"], scaling,
                problem.cache_bytes,
            )  # fmt: skip
        own: dict[str, Any] = {k: np.array(a) for k, a in below("0", arrays).items()}
        kept = {k: np.array(a) for k, a in below("kept", arrays).items()}
        features = None
        if "iterate" in values:
            plain = values["iterate"]
            if stream is not None:
                pair = below("features", arrays)
                features = FeatureCoefficients(
                    *(np.array(pair[k]) for k in ("coef", "momentum"))
                )
        else:  # files of 0.1.0
            plain = values["iterates"][0]
            kept, features = _kept_by_0_1_0(own, arrays["used"], exact is not None)
            own["moving"] = bool(kept["p"].any())
        own |= {k: np.inf if v is None else v for k, v in plain.items()}
        counters = values.get("numbers", {})  # of files of 0.1.0
        return {
            "exact": exact, "stream": stream, "iterate": Iterate(**own), "features": features,
            "kept": kept, **counters,
        }  # fmt: skip


def _kept_by_0_1_0(
    own: dict[str, AnyArray], used: AnyArray, support: bool
) -> tuple[dict[str, AnyArray], FeatureCoefficients | None]:
    """Take the arrays of rows out of `own`; return them as shards and features hold them."""
    coef, momentum = own.pop("coef"), own.pop("coef_momentum")
    kept = {"f": own.pop("responses"), "p": own.pop("momentum")}
    index = np.flatnonzero(used | coef.any(axis=0)) if support else np.empty(0, np.intp)
    kept |= {"index": index, "last": used.astype(np.int32)[index]}
    if support:
        return kept | {"coef": coef[:, index], "coef_momentum": momentum[:, index]}, None
    empty = np.zeros((len(coef), 0))
    features = FeatureCoefficients(coef.reshape(len(coef), -1), momentum.reshape(len(coef), -1))
    return kept | {"coef": empty, "coef_momentum": empty}, features
