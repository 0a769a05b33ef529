"""Slow scalar references, written from the formulas and sharing no code with kernelgrad."""

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel


def gaussian(X, Z, gamma):
    """exp(-gamma |x - z|^2) of all pairs of rows, in float64."""
    return rbf_kernel(np.asarray(X, np.float64), np.asarray(Z, np.float64), gamma=gamma)


def quadratic_step(beta, g, noise, most=np.inf):
    """Largest -eta of 2|beta + eta g|^2 + 2 eta^2 noise <= |beta|^2 + |g|^2, if one <= most."""
    roots = -np.roots([2 * (g @ g + noise), 4 * beta @ g, beta @ beta - g @ g])
    return max(0.0, roots.max()) if np.isreal(roots).all() and roots.min() <= most else 0.0


def reuse(features, batches, choose, y, slope, *, alpha, gammas):
    """Algorithms 3 and 4, plain steps: choose(t, A, B, gamma, r) gives (block, step factor)."""
    A, B, log = [], [], []
    for t, (rows, gamma) in enumerate(zip(batches, gammas, strict=True)):
        f = sum((features(j)[rows] @ a for j, a in enumerate(A)), np.zeros(len(rows)))
        r = slope(y[rows], f)
        k, factor = choose(t, A, B, gamma, r)
        if k == len(A):
            A.append(np.zeros(features(k).shape[1]))
            B.append(0.0)
        step = gamma * factor
        A = [(1 - step * alpha) * a for a in A]
        B = [(1 - step * alpha) * b for b in B]
        A[k] = A[k] - step * features(k)[rows].T @ r / len(rows)
        B[k] = B[k] - step * r.mean()
        log.append(k)
    return A, B, log


def dsg(
    blocks, y, slope, *, alpha, gammas, L=1.0, mu=None, beta=0.0, average_power=None, order=None
):
    """Full-batch doubly stochastic gradients; `mu` None is Algorithm 1, else preconditioned.

    Step t is on block `order[t]`, or on the t-th.
    """
    n = len(y)
    x, v, a = [], [], []
    for t, j in enumerate(range(len(blocks)) if order is None else order):
        Phi = blocks[j]
        if j == len(x):
            x, v, a = ([*c, np.zeros(Phi.shape[1])] for c in (x, v, a))
        b = min(beta, (t + 1) / (t + 4))
        look = [xi + b * vi for xi, vi in zip(x, v, strict=True)]
        f = sum((P @ c for P, c in zip(blocks, look, strict=False)), np.zeros(n))
        r = slope(y, f)
        if mu is None:
            G, rho = Phi.T @ r / n, alpha
        else:
            H = Phi.T @ Phi / n
            m = max(mu * np.trace(H) / len(H), alpha / L)
            G = np.linalg.solve(H + m * np.eye(len(H)), Phi.T @ (r - alpha / m * f)) / (n * L)
            rho = alpha / (L * m)
        new = [(1 - gammas[t] * rho) * c for c in look]
        new[j] = new[j] - gammas[t] * G
        v, x = [p - q for p, q in zip(new, x, strict=True)], new
        p = average_power
        w = 1.0 if p is None else min(1, (1 + p) / (t + 1 + p))
        a = [q + w * (p - q) for p, q in zip(x, a, strict=True)]
    return a


def fourier_features(X, W, phase):
    """float64 features of frequencies W (d, F) in turns; no phase means cosines, then sines."""
    X = X.toarray() if hasattr(X, "toarray") else X
    T = 2 * np.pi * (X.astype(float) @ W.astype(float))
    if len(phase):
        return np.sqrt(2) * np.cos(T + 2 * np.pi * phase.astype(float))
    return np.hstack([np.cos(T), np.sin(T)])
