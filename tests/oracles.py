"""Slow scalar references, written from the formulas and sharing no code with kernelgrad."""

import math

import numpy as np
from scipy.special import kv
from sklearn.metrics.pairwise import rbf_kernel


def gaussian(X, Z, gamma):
    """exp(-gamma |x - z|^2) of all pairs of rows, in float64."""
    return rbf_kernel(np.asarray(X, np.float64), np.asarray(Z, np.float64), gamma=gamma)


def quadratic_step(beta, g, noise):
    """Largest -eta with 2|beta + eta g|^2 + 2 eta^2 noise <= |beta|^2 + |g|^2, on a grid."""
    grid = np.linspace(0.0, 50.0, 500001)
    left = 2 * sum((b - grid * h) ** 2 for b, h in zip(beta, g, strict=True))
    allowed = left + 2 * grid**2 * noise <= sum(b * b for b in beta) + sum(h * h for h in g)
    return float(grid[allowed].max()) if allowed.any() else 0.0


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


def philox4x32(counter, key):
    """Ten rounds of Philox4x32: four arrays of 32-bit counter words, two key words."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(w, np.uint64) for w in counter))
    a, b = key
    low, half = np.uint64(2**32 - 1), np.uint64(32)
    for _ in range(10):
        p, q = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c2 = (q >> half) ^ c1 ^ np.uint64(a), (p >> half) ^ c3 ^ np.uint64(b)
        c1, c3 = q & low, p & low
        a, b = (a + 0x9E3779B9) % 2**32, (b + 0xBB67AE85) % 2**32
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def _horner(x, *coefficients):
    value = np.full_like(x, np.float32(coefficients[-1]))
    for c in coefficients[-2::-1]:
        value = np.float32(c) + x * value
    return value


def float32_log(w):
    """ln u of u = (2 (w >> 9) + 1) 2^-24, every step rounded to float32."""
    bits = ((w >> np.uint32(9)) * np.uint32(2) + np.uint32(1)).astype(np.float32).view(np.int32)
    e = (bits - np.int32(0x3F3504F3)) >> np.int32(23)
    m = (bits - (e << np.int32(23))).view(np.float32) - np.float32(1)
    p = m * m * _horner(
        m, -0.49999982, 0.33334225, -0.2500249147, 0.1995361447,
        -0.16552335, 0.149792835, -0.1444187611, 0.0873363688,
    )  # fmt: skip
    return (m + p) + (e.astype(np.float32) - np.float32(24)) * np.float32(math.log(2))


def float32_sin_cos(t):
    """sin and cos of 2 pi t, |t| <= 1/2, every step rounded to float32."""
    q = np.rint(t * np.float32(4))
    y = t - q * np.float32(0.25)
    z = y * y
    s = y * _horner(z, 6.283185005, -41.341629028, 81.588134766, -75.240341187)
    c = _horner(z, 1, -19.739208221, 64.939315796, -85.442855835, 59.220405579)
    quadrant = q.astype(np.int32) % 4
    return (np.choose(quadrant, [s, c, -s, -c]), np.choose(quadrant, [c, -s, -c, s]))


def float32_variates(words, law):
    """Four rows of standard variates from four rows of uint32 words."""
    out = []
    for h in (0, 2):
        for w in words[h : h + 2]:
            if law == "laplace":
                out.append(np.where(w & np.uint32(1), -float32_log(w), float32_log(w)))
            elif law == "cauchy":
                n = ((w >> np.uint32(9)) * np.uint32(2) + np.uint32(1)).astype(np.float32)
                s, c = float32_sin_cos((n * np.float32(2**-24) - np.float32(0.5)) / 2)
                out.append(s / c)
        if law == "normal":
            turns = (words[h + 1].view(np.int32) >> 8).astype(np.float32) * np.float32(2**-24)
            s, c = float32_sin_cos(turns)
            r = np.sqrt(np.float32(-2) * float32_log(words[h]))
            out += [r * c, r * s]
    return np.stack(out)


def fourier_features(X, W, phase):
    """float64 features of frequencies W (d, F) in turns; no phase means cosines, then sines."""
    X = X.toarray() if hasattr(X, "toarray") else X
    T = 2 * np.pi * (X.astype(float) @ W.astype(float))
    if len(phase):
        return np.sqrt(2) * np.cos(T + 2 * np.pi * phase.astype(float))
    return np.hstack([np.cos(T), np.sin(T)])


def scalar_kernel(name, x, z, gamma, nu=1.5):
    """k(x, z) of two rows."""
    delta = [abs(float(a) - float(b)) for a, b in zip(x, z, strict=True)]
    square = sum(t * t for t in delta)
    if name == "rbf":
        return math.exp(-gamma * square)
    if name == "laplacian":
        return math.exp(-gamma * sum(delta))
    if name == "root_laplacian":
        return math.exp(-math.sqrt(gamma * sum(delta)))
    if name == "cauchy":
        return math.prod(1 / (1 + (gamma * t) ** 2) for t in delta)
    if name == "matern":
        a = math.sqrt(2 * nu * square * 2 * gamma)
        return 2 * (a / 2) ** nu * kv(nu, a) / math.gamma(nu) if a else 1.0
    raise KeyError(name)
