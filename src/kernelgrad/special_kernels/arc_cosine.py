r"""Arc-cosine kernels: random one-layer networks (Dai et al. 2014, Table 1)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import row_norms, safe_sparse_dot

from kernelgrad.compute import rng
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.threads import over_tiles, single_threaded_blas
from kernelgrad.features import fused as projections
from kernelgrad.features.base import FeatureMap, float64_rows
from kernelgrad.features.projections import ProjectionMap
from kernelgrad.kernels import profiles
from kernelgrad.kernels.base import ExactRows, TiledKernel, exact_values
from kernelgrad.kernels.projection import ProjectionKernel
from kernelgrad.params import integer, parameters, real
from kernelgrad.types import Float64Array, Matrix

_TILE_BYTES = 2**22  # bytes of the buffer of one task
# Value of 1 - |cos| below which the angle is computed from the difference of the rows: acos
# turns a rounding error eps into eps / sin(theta), up to 1e-8 at equal rows, which stays 1e-13.
_NEAR = 1e-5
_KINDS = (projections.STEP, projections.RAMP, projections.RAMP2)


@parameters
class ArcCosine(TiledKernel, ProjectionKernel):
    """Arc-cosine kernel of order n, ``scale^(2n) |x|^n |z|^n J_n(theta) / pi``.

    Here theta is the angle between x and z, ``J_0 = pi - theta``, ``J_1 = sin theta + (pi -
    theta) cos theta`` and ``J_2 = 3 sin theta cos theta + (pi - theta) (1 + 2 cos^2 theta)``.
    Features are ``sqrt(2) 1[w . x > 0] (w . x)^n`` for normal w of standard deviation `scale`
    (Table 1; the feature printed there, ``(w . x)^n max(0, w . x)``, lacks the ``sqrt(2)`` and
    is of order n + 1). Order 0 corresponds to a random layer of step functions, order 1 to one
    of rectifiers. Zero rows have values and features of 0. Features of order 2 are heavy-tailed
    and need many more blocks.

    Parameters
    ----------
    order : {0, 1, 2}, default=1
        Smoothness of the functions; 1, the rectifier, is the common choice.
    scale : float > 0, default=1.0
        Standard deviation of the weights; it has no effect for order 0. Table 1 uses 1.
    bias : float >= 0, default=0.0
        A constant appended to each row as an additional column, so that functions need not be
        homogeneous of degree n. 0, as in Table 1, appends no column.
    """

    name: ClassVar[str] = "arc_cosine"
    amplitude: ClassVar[float] = float(np.sqrt(2.0))  # half of the features are 0

    order: int = integer(default=1, kw_only=False)
    scale: float = real(default=1.0, low=0, low_open=True)
    bias: float = real(default=0.0, low=0)

    def check(self) -> None:
        super().check()
        if self.order > 2:
            raise ValueError(f"order must be 0, 1 or 2, got {self.order!r}.")

    @property
    def projection(self) -> int:
        return _KINDS[self.order]

    def weight_law(self) -> tuple[int, float]:
        return rng.NORMAL, float(self.scale)

    def embed(self, X: Matrix) -> Matrix:
        if self.bias == 0:
            return X
        last = np.full((X.shape[0], 1), float(self.bias))
        return sp.hstack([X, last], format="csr") if sp.issparse(X) else np.hstack([X, last])

    def feature_map(self, n_features_in: int, seed: int, block_size: int) -> FeatureMap:
        return ProjectionMap(self.weights(), n_features_in + (self.bias > 0), seed, block_size)

    def pairwise(self, X: Matrix, Z: Matrix) -> Float64Array:
        """Return the exact matrix, computed in tiles of rows, to 1e-13 at any angle."""
        X, Z = float64_rows(self.embed(X)), float64_rows(self.embed(Z))
        size_x, size_z = self._sizes(X), self._sizes(Z)
        U, V = normalize(X), normalize(Z)
        K = np.empty((X.shape[0], Z.shape[0]))
        rows = max(1, _TILE_BYTES // (8 * max(1, Z.shape[0])))

        def task(a: int, z: int) -> None:
            r = slice(a, z)
            theta = _angles(U[r], V)
            J = profiles.arc_values(self.order, np.sin(theta), np.cos(theta), np.pi - theta)
            K[r] = size_x[r, None] * size_z * (J / np.pi)

        with single_threaded_blas():
            over_tiles(len(K), rows, task)
        return K

    def diag(self, X: Matrix) -> Float64Array:
        return (1, 1, 3)[self.order] * self._sizes(float64_rows(self.embed(X))) ** 2

    def embedded(self, X: Matrix) -> Matrix:
        return normalize(float64_rows(self.embed(X)))

    def tile_rows(self, X: Matrix, *, wide: bool) -> ExactRows:
        values = exact_values(self.embedded(X), wide=wide)
        return ExactRows(values, self._sizes(float64_rows(self.embed(X))) ** 2)

    def finish(self) -> dict[str, int]:
        return {"finish": (profiles.ARC0, profiles.ARC1, profiles.ARC2)[self.order]}

    def needs_wide(self, X: Matrix) -> bool:
        """Return whether the order is 0, whose values are linear in the angle.

        A rounding error eps of a cosine changes a small angle by ``sqrt(2 eps)``; higher orders
        do not depend on small angles to first order.
        """
        return bool(self.order == 0)

    def _sizes(self, X: Matrix) -> Float64Array:
        """Return ``(scale |x|)^n``; 0 for zero rows."""
        norms = row_norms(X)
        return np.where(norms > 0, (float(self.scale) * norms) ** self.order, 0.0)


def _angles(U: Matrix, V: Matrix) -> Float64Array:
    """Return the angles between unit rows (n, d) and (m, d), to 1e-13 at any angle."""
    cos = np.clip(safe_sparse_dot(U, V.T, dense_output=True), -1.0, 1.0)
    theta = np.arccos(cos)
    near = np.nonzero(np.abs(cos) > 1 - _NEAR)
    sign = np.sign(cos[near])
    pairs = max(1, _TILE_BYTES // (8 * max(1, U.shape[1])))
    for a in range(0, len(sign), pairs):
        i, j, s = near[0][a : a + pairs], near[1][a : a + pairs], sign[a : a + pairs]
        chord = row_norms(dense(U[i], np.float64) - s[:, None] * dense(V[j], np.float64))
        angle = 2 * np.arcsin(np.minimum(chord / 2, 1.0))
        theta[i, j] = np.where(s > 0, angle, np.pi - angle)
    return np.asarray(theta, np.float64)
