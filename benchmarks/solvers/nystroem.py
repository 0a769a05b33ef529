"""Falkon's problem, solved directly: normal equations of Nystroem features, streamed."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.linalg.blas import sgemm, ssyrk, strsm

TILE = 4096
JITTER = 1e-8  # of the trace; what it adds to the penalty is the error of the float32 features


class NormalEquations:
    r"""Minimise ``sum_i |y_i - b - f(x_i)|^2 + |f|^2 / C`` over the span of random rows.

    With the factor L of the kernel matrix of the M centres, features
    :math:`\phi(x) = L^{-1} k_M(x)` have the norm of f as their Euclidean norm:

    .. math:: (\Phi^\top \Phi + I / C)\, w = \Phi^\top (y - \bar y), \qquad
        f(x) = k_M(x)^\top L^{-\top} w .

    :math:`\Phi^\top \Phi` is summed over tiles of rows in float32, by level-3 BLAS alone
    (n M^2 multiply-adds, half of them to whiten), on its threads; the rest is float64.
    Classes are -1 and 1, one output each for more than two.
    """

    def __init__(
        self, gamma: float, C: float, centres: int, seed: int, *, classify: bool
    ) -> None:
        self.gamma, self.C, self.centres, self.seed = gamma, C, centres, seed
        self.classify = classify

    def fit(self, X: Any, y: Any) -> NormalEquations:
        X = _dense(X)
        self.shift = X.mean(axis=0)  # smaller norms, less cancellation in distances
        X = X - self.shift
        targets = self._encode(np.asarray(y))
        self.mean = targets.mean(axis=0)
        n = len(X)
        m = min(self.centres, n)
        chosen = np.random.default_rng(self.seed).choice(n, m, replace=False)
        self.Z = X[chosen]
        self.z = np.einsum("ij,ij->i", self.Z, self.Z)
        K = self._centres_kernel()
        K.flat[:: m + 1] += JITTER * m
        L = cholesky(K, lower=True, overwrite_a=True, check_finite=False)
        del K
        L32 = np.asfortranarray(L, np.float32)
        H = np.zeros((m, m), np.float32, order="F")
        right = np.zeros((m, targets.shape[1]))
        for start in range(0, n, TILE):
            rows = slice(start, start + TILE)
            phi = strsm(1, L32, self._kernel(X[rows]), lower=1, overwrite_b=1)
            H = ssyrk(1, phi, beta=1, c=H, lower=1, overwrite_c=1)
            right += sgemm(1, phi, (targets[rows] - self.mean).astype(np.float32))
        A = H.astype(np.float64)
        del H
        A.flat[:: m + 1] += 1 / self.C
        w = cho_solve(cho_factor(A, lower=True, overwrite_a=True, check_finite=False), right)
        self.coef = solve_triangular(L, w, lower=True, trans="T").astype(np.float32)
        return self

    def _encode(self, y: Any) -> Any:
        if not self.classify:
            return y.astype(np.float64)[:, None]
        self.classes = np.unique(y)
        positive = self.classes[1:] if len(self.classes) == 2 else self.classes
        return np.where(y[:, None] == positive, 1.0, -1.0)

    def _centres_kernel(self) -> Any:
        """Return the float64 matrix of the centres: its small eigenvalues matter."""
        Z = self.Z.astype(np.float64)
        K = Z @ Z.T
        z = K.diagonal().copy()
        K *= -2
        K += z
        K += z[:, None]
        np.maximum(K, 0, out=K)
        K *= -self.gamma
        return np.exp(K, out=K)

    def _kernel(self, X: Any) -> Any:
        """Return ``k(Z, X)`` in Fortran order, so that a column is a row of X."""
        x = np.einsum("ij,ij->i", X, X)
        K = sgemm(-2, self.Z.T, X.T, trans_a=1).T  # rows of X, in C order
        K += self.z
        K += x[:, None]
        np.maximum(K, 0, out=K)
        K *= np.float32(-self.gamma)
        return np.exp(K, out=K).T

    def predict(self, X: Any) -> Any:
        X = _dense(X) - self.shift
        parts = [
            sgemm(1, self._kernel(X[a : a + TILE]), self.coef, trans_a=1)
            for a in range(0, len(X), TILE)
        ]
        f = np.concatenate(parts) + self.mean
        if not self.classify:
            return f[:, 0]
        if f.shape[1] == 1:
            return self.classes[(f[:, 0] > 0).astype(int)]
        return self.classes[f.argmax(axis=1)]


def _dense(X: Any) -> Any:
    X = X.toarray() if hasattr(X, "toarray") else X
    return np.ascontiguousarray(X, np.float32)
