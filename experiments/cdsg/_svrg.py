"""Variance-reduced stochastic gradients on fixed random features, in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelgrad.losses import Loss


class SVRG:
    r"""Minimise ``mean_i loss(y_i, phi_i . w) + alpha/2 |w|^2`` over w.

    Johnson and Zhang (2013): every round takes the gradient of all rows at ``u = w``, then
    passes twice over the rows in small batches, each with the step

    .. math:: w \leftarrow w - \eta \left( \frac{1}{b} \sum_{i} \phi_i (\ell'_i(w) -
        \ell'_i(u))^\top + \nabla_{\mathrm{all}}(u) + \alpha w \right) .

    `Phi` (n, D) are features, made once, `y` (n, C) encoded targets.
    """

    def __init__(self, Phi: Any, y: Any, loss: Loss, alpha: float, seed: int = 0) -> None:
        self.Phi, self.y, self.loss, self.alpha = Phi, y, loss, alpha
        self.batch_size = min(256, len(y))
        self.w = np.zeros((Phi.shape[1], y.shape[1]), np.float32)
        self._random = np.random.default_rng(seed)

    @property
    def steps_per_round(self) -> int:
        """Small batches between two full gradients."""
        return 2 * (len(self.y) // self.batch_size)

    def slopes(self, Phi: Any, y: Any) -> Any:
        """Return the loss derivative of some rows at w."""
        return self.loss.gradient(y, Phi @ self.w)

    def curvature(self, n_rows: int = 4096, rounds: int = 20) -> float:
        """Return the largest eigenvalue of the feature covariance, by power iteration."""
        some = self.Phi[:n_rows]
        v = np.ones(some.shape[1], np.float32)
        for _ in range(rounds):
            v = some.T @ (some @ (v / np.linalg.norm(v))) / np.float32(len(some))
        return float(np.linalg.norm(v))

    def steps(self, step: float) -> Iterator[int]:
        """Update w for ever; yield after the full gradients and after every small batch."""
        n, b = len(self.y), self.batch_size
        eta, alpha = np.float32(step), np.float32(self.alpha)
        done = 0
        while True:
            old = self.slopes(self.Phi, self.y)
            full = self.Phi.T @ old / np.float32(n)
            yield done
            for _ in range(2):
                order = self._random.permutation(n)
                for start in range(0, n - b + 1, b):
                    rows = order[start : start + b]
                    some = self.Phi[rows]
                    change = self.slopes(some, self.y[rows]) - old[rows]
                    gradient = some.T @ change / np.float32(b) + full
                    self.w -= eta * (gradient + alpha * self.w)
                    done += 1
                    yield done
