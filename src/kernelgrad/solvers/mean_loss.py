"""The mean of a smooth loss over weighted rows, and its Hessian."""

import numpy as np

from kernelgrad.losses import Loss, scalar
from kernelgrad.types import AnyArray, Float64Array


class MeanLoss:
    """The mean of a loss over weighted rows, for outputs (A, C, n); weights sum to 1.

    The A functions differ in their penalties only. Unless the loss couples the outputs of a
    row (`joint`), each output is a problem of its own.
    """

    def __init__(self, loss: Loss, y: AnyArray, weight: Float64Array) -> None:
        self.loss, self.y, self.weight = loss, np.asarray(y, np.float64), weight
        self.joint = loss.code is None or loss.is_multinomial
        self.quadratic = loss.code == scalar.SQUARED
        self._params = loss.params(y.shape[1])

    def value(self, F: Float64Array) -> Float64Array:
        if self.joint:
            return np.array([[self.weight @ self.loss.value(self.y, f.T)] for f in F])
        values = [scalar.value(self.loss.code, self._params, self.y, f.T) for f in F]
        return np.array([self.weight @ v for v in values])

    def slope(self, F: Float64Array) -> Float64Array:
        return np.stack([self.loss.gradient(self.y, f.T).T for f in F]) * self.weight

    def bend(self, F: Float64Array, slope: Float64Array) -> Float64Array:
        """Return second derivatives without weights, or what majorises them, (A, C, n).

        For the multinomial loss these are probabilities pi: the Hessian of a row is
        ``diag(pi) - pi pi^T``.
        """
        if self.loss.is_multinomial:
            safe = np.where(self.weight > 0, self.weight, 1.0)
            return np.clip(slope / safe + self.y.T, 0.0, 1.0)
        code, params, none = self.loss.code, self._params, np.float64(0)
        out = np.empty_like(F)
        for a, f in enumerate(F):
            if self.joint:
                out[a] = self.loss.curvature(self.y, f.T)
            else:
                bend = scalar.curvature(code, params, self.y, f.T, none, none)
                out[a] = np.transpose(bend)
        return out

    def hessian(self, bend: Float64Array, D: Float64Array) -> Float64Array:
        if self.loss.is_multinomial:
            D = D - (bend * D).sum(axis=1, keepdims=True)
        return bend * D * self.weight

    def diagonal(self, bend: Float64Array) -> Float64Array:
        return self.weight * (bend * (1.0 - bend) if self.loss.is_multinomial else bend)

    def constants(self, bend: Float64Array) -> Float64Array:
        """Return the inverse Hessian of the constants, (A, C, C)."""
        H = (bend @ self.weight)[..., None] * np.eye(bend.shape[1])
        if self.loss.is_multinomial:
            H = H - (self.weight * bend) @ bend.transpose(0, 2, 1)
        if not np.isfinite(H).all():
            raise FloatingPointError(
                "solver 'newton' diverged: responses are no finite numbers; raise alpha, or "
                "scale the targets."
            )
        return np.asarray(np.linalg.pinv(H, rcond=1e-10, hermitian=True), np.float64)
