"""QM7: atomisation energies from Coulomb matrices (Montavon et al. 2012)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from benchmarks.datasets.archives import Archive, open_archive

BOHR = 0.529177210903  # angstrom


def coulomb_matrices(Z: Any, R: Any) -> Any:
    """Return ``C_ij = Z_i Z_j / |R_i - R_j|`` with ``C_ii = Z_i^2.4 / 2``, shape (n, a, a).

    Z holds charges (n, a), zero where a molecule has fewer than a atoms; R holds positions in
    angstrom (n, a, 3). Distances are in bohr; rows and columns of absent atoms are zero.
    """
    Z, R = np.asarray(Z, np.float64), np.asarray(R, np.float64) / BOHR
    distance = np.linalg.norm(R[:, :, None] - R[:, None], axis=3)
    charges = Z[:, :, None] * Z[:, None]
    C = np.divide(charges, distance, out=np.zeros_like(charges), where=charges * distance > 0)
    atom = np.arange(Z.shape[1])
    C[:, atom, atom] = 0.5 * Z**2.4
    return C


def random_sorting(C: Any, n_permutations: int, noise: float, seed: int) -> Any:
    """Return upper triangles of randomly sorted matrices, float32 (n * permutations, entries).

    The atoms of each molecule are put in decreasing order of ``|C_i| + eps_i`` with
    ``eps_i ~ N(0, noise)``, independently for each permutation; those of one molecule follow
    each other.
    """
    rng = np.random.default_rng(seed)
    norms = np.linalg.norm(C, axis=2)
    row, column = np.triu_indices(C.shape[1])
    out = np.empty((len(C), n_permutations, len(row)), np.float32)
    molecule = np.arange(len(C))[:, None]
    for j in range(n_permutations):
        order = np.argsort(-(norms + noise * rng.standard_normal(norms.shape)), axis=1)
        out[:, j] = C[molecule, order[:, row], order[:, column]]
    return out.reshape(len(C) * n_permutations, len(row))


def soft_steps(X: Any, theta: float = 1.0) -> Any:
    """Return ``tanh((x + j theta) / theta)`` for j = -1, 0, 1 beside each other.

    Every entry becomes three soft predicates, the three terms that Montavon et al. print of
    their expansion.
    """
    return np.hstack([np.tanh((X + j * theta) / theta) for j in (-1, 0, 1)])


@dataclass(frozen=True)
class Molecules:
    """Coulomb matrices in the order of the file, the same sorted and flat, and energies."""

    C: Any
    X_sorted: Any
    y: Any

    def take(self, rows: Any) -> Molecules:
        return Molecules(self.C[rows], self.X_sorted[rows], self.y[rows])


class Qm7(Archive):
    """Row-norm-sorted Coulomb matrices, in their own units: entries are of one kind."""

    name: ClassVar[str] = "qm7"
    task = "regression"

    def scale(self, train: Any, test: Any) -> tuple[Any, Any]:
        """Return the matrices as they are."""
        return train, test

    def molecules(self) -> tuple[Molecules, Molecules]:
        """Return training and test molecules, energies in kcal/mol; may raise SkipError."""
        z = open_archive(self.name)
        train, test = (
            Molecules(
                coulomb_matrices(z[f"Z_{part}"], z[f"R_{part}"]),
                z[f"X_{part}"],
                z[f"y_{part}"].astype(np.float64),
            )
            for part in ("train", "test")
        )
        return train, test
