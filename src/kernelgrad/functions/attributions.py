"""Shapley values, gradients and partial dependence of sums of product kernels.

A kernel ``sum_q w_q exp(-c_q D(x, z))`` whose D is a sum over columns is a mixture of product
kernels. In the game of a row x each column outside a coalition S is drawn from background rows,
independently of all others: ``v(S) = b + sum_i a_i sum_q w_q prod_{j in S} u_ijq
prod_{j not in S} m_ijq`` with factors ``u = exp(-c D_j(x, z_i))`` and m, their mean over the
background. The Shapley value of column j is ``sum_i a_i sum_q w_q (u_ijq - m_ijq)`` times the
integral of ``prod_{l != j} (m_ilq + t (u_ilq - m_ilq))`` over t from 0 to 1, a polynomial,
which Gauss-Legendre quadrature integrates exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln
from sklearn.utils.sparsefuncs import mean_variance_axis

from kernelgrad import kernels
from kernelgrad.compute.compiling import njit
from kernelgrad.compute.elementary import exp_wide
from kernelgrad.compute.linalg import dense
from kernelgrad.compute.threads import parallel_for, single_threaded_blas, sum_over_tiles
from kernelgrad.functions.expansions import Expansion, LinearExpansion, SupportExpansion
from kernelgrad.kernels import ExactRows, Kernel, profiles
from kernelgrad.types import AnyArray, Float64Array, IntArray, Matrix
from kernelgrad.validation import CapabilityError

MOST_PLAYERS = 1000  # columns up to which there are Shapley values
TILE = 32  # support rows of a task
_PARTS = 8  # sums of tasks that exist at once
_SUM_ENTRIES = 2**20  # entries of such a sum
_LOWEST = 37.0  # exp(-37) is 1e-16
_TINY = 1e-13  # product of factors below which a term counts for nothing
_FAST = {"contract", "nsz", "arcp", "reassoc"}
_TAIL = 1e-7  # weight of the narrowest parts of a mixture, which are taken together
_PREDICTIONS = 10_000  # predictions from which shares of the variance are estimated
_LEAST, _MOST = 20, 2000  # pairs of rows for them
_ENTRIES, _SPARSE_ROWS = 2**22, 4096  # sizes of rows that are predicted at once
_STEP = 1e-5  # step, in spreads of a column, of the derivatives of its scaling


@cache
def scale_mixture(nu: float) -> tuple[Float64Array, Float64Array]:
    """Return rates c and weights w: the Matérn profile is ``sum_q w_q exp(-c_q t)``.

    The profile is that of ``s = sqrt(t)``, the mean of ``exp(-t / (4 g))`` over g of the gamma
    law of shape nu (RootLaplacian has nu = 1/2). The trapezoidal rule in log g has an error
    below 2e-7 of k(x, x). Rates increase.
    """
    step = 1.0 / (1.2 + 1.1 * np.sqrt(nu))
    low = (np.log(_TAIL) + gammaln(nu + 1.0)) / nu
    x = np.arange(np.log(40.0 + 4.0 * nu), low - step, -step)
    w = step * np.exp(nu * x - np.exp(x) - gammaln(nu))
    w[-1] += max(0.0, 1.0 - w.sum())
    return 0.25 * np.exp(-x), w / w.sum()


class Term(NamedTuple):
    """A mixture of product kernels, and some sets of rows as its distances compare them."""

    rates: Float64Array
    weights: Float64Array
    forms: IntArray  # how each column is compared
    rows: tuple[Float64Array, ...]


def terms_of(kernel: Kernel, *rows: ExactRows) -> list[Term]:
    """Return the mixtures whose sum a kernel is, with prepared rows."""
    if isinstance(kernel, kernels.SumKernel):
        parts = zip(kernel.terms, *(r.parts for r in rows), strict=True)
        return [
            term._replace(weights=weight * term.weights)
            for (part, weight), *own in parts
            for term in terms_of(part, *own)
        ]
    if isinstance(kernel, kernels.ProductKernel):
        pieces = zip(kernel.kernels, *(r.parts for r in rows), strict=True)
        factors = [term for part, *own in pieces for term in terms_of(part, *own)]
        if len(factors) == len(kernel.kernels) and all(len(t.rates) == 1 for t in factors):
            forms = np.concatenate([t.forms for t in factors])
            sets = zip(*(t.rows for t in factors), strict=True)
            joined = tuple(np.concatenate(own, axis=1) for own in sets)
            weight = np.prod([t.weights for t in factors], axis=0)
            return [Term(np.ones(1), weight, forms, joined)]
    rates, weights = np.ones(1), np.ones(1)
    if isinstance(kernel, kernels.RootLaplacian):
        rates, weights = scale_mixture(0.5)
    elif isinstance(kernel, kernels.Matern):
        rates, weights = scale_mixture(kernel.nu)
    elif not isinstance(kernel, kernels.Gaussian | kernels.Laplacian | kernels.Cauchy):
        raise CapabilityError(
            f"{kernel!r} is no sum of product kernels; explain, gradient and "
            "partial_dependence are for 'rbf', 'laplacian', 'root_laplacian', 'cauchy', "
            "'matern', sums of these, and products of the others with 'rbf'."
        )
    arrays = tuple(np.ascontiguousarray(dense(r.values), np.float64) for r in rows)
    return [Term(rates, weights, np.full(arrays[0].shape[1], kernel.form_code), arrays)]


def support_terms(
    function: Expansion, *rows: Matrix, mixed: bool = False
) -> tuple[list[Term], SupportExpansion]:
    """Return the terms of a function of support rows: these come first, then encoded rows.

    With `mixed` a metric may mix columns.
    """
    metric = function.scaling.metric
    if metric is not None and metric.ndim == 2 and not mixed:
        raise CapabilityError(
            "The metric is a matrix, so that no factor of the kernel is of one column; fit "
            "with metric='diagonal' or None, or explain the method predict by the package shap."
        )
    if not isinstance(function, SupportExpansion) or function.kernel.name == "precomputed":
        raise CapabilityError(
            "explain, gradient and partial_dependence are for sums over support rows, and this "
            "model has random features or a precomputed kernel; fit it with "
            "solver='block_descent' or 'direct' and a kernel of rows."
        )
    # rounded like the support rows: a cusp shows the rounding of a row that is one of them
    prepared = [function.exact.prepare(X) for X in rows]
    return terms_of(function.kernel, function.support, *prepared), function


@njit(nogil=True, cache=True)
def _distance(form: int, a: float, b: float) -> float:
    d: float = abs(a - b)
    if form == profiles.DOT:
        return 0.5 * d * d
    return float(np.log1p(d * d)) if form == profiles.LORENTZ else d


@njit(nogil=True, cache=True)
def _means(
    forms: Any, columns: Any, ends: Any, z: Any, B: Any, rates: Any, D: Any, t: Any, bits: Any,
    M: Any,
) -> None:  # fmt: skip
    """Write the means (Q, P) of the factors of a support row z over background rows B to M."""
    n, first = B.shape[0], 0
    for p in range(len(ends)):
        for b in range(n):
            D[b] = 0.0
            for k in range(first, ends[p]):
                j = columns[k]
                D[b] += _distance(forms[j], B[b, j], z[j])
        first = ends[p]
        used = 0
        for q in range(len(rates)):
            for b in range(n):
                if rates[q] * D[b] < _LOWEST:
                    t[used] = -rates[q] * D[b]
                    used += 1
        exp_wide(t[:used], bits[:used])
        used = 0
        for q in range(len(rates)):
            total = 0.0
            for b in range(n):
                if rates[q] * D[b] < _LOWEST:
                    total += t[used]
                    used += 1
            M[q, p] = total / n


@njit(nogil=True, cache=True, forceinline=True, fastmath=_FAST, error_model="numpy")
def _integrals(u: Any, m: Any, nodes: Any, shares: Any, F: Any, full: Any, out: Any) -> None:
    """Write ``(u_j - m_j) int prod_{l != j} (m_l + t (u_l - m_l)) dt`` to out (P,).

    The least factor exceeds 0: callers leave out products below :data:`_TINY`.
    """
    for g in range(len(nodes)):
        full[g] = shares[g]
    for p in range(len(u)):
        for g in range(len(nodes)):
            F[p, g] = m[p] + nodes[g] * (u[p] - m[p])
            full[g] *= F[p, g]
    for p in range(len(u)):
        total = 0.0
        for g in range(len(nodes)):
            total += full[g] / F[p, g]
        out[p] = (u[p] - m[p]) * total


@njit(nogil=True, cache=True)
def _add_values(
    forms: Any, columns: Any, ends: Any, E: Any, Z: Any, B: Any, coef: Any, rates: Any,
    weights: Any, nodes: Any, shares: Any, out: Any,
) -> None:  # fmt: skip
    """Add the values of rows E, (m, P, C), of support rows Z to out; out[m, 0] has v of none.

    Players have the columns between their `ends` in `columns`. Factors fall with the rate, so
    that the first rate at which their product is tiny is the last.
    """
    P, Q, n = len(ends), len(rates), B.shape[0]
    M, D = np.empty((Q, P)), np.empty(max(n, P))
    t, bits = np.empty(Q * n), np.empty(Q * n, np.int64)
    u, u_bits, phi, one = np.empty(P), np.empty(P, np.int64), np.empty(P), np.empty(P)
    F, full = np.empty((P, len(nodes))), np.empty(len(nodes))
    for i in range(len(Z)):
        _means(forms, columns, ends, Z[i], B, rates, D, t, bits, M)
        none = 0.0
        for q in range(Q):
            product = weights[q]
            for p in range(P):
                product *= M[q, p]
            none += product
        for c in range(coef.shape[1]):
            out[len(E), 0, c] += coef[i, c] * none
        for r in range(len(E)):
            first = 0
            for p in range(P):
                D[p] = 0.0
                for k in range(first, ends[p]):
                    j = columns[k]
                    D[p] += _distance(forms[j], E[r, j], Z[i, j])
                first = ends[p]
            phi[:] = 0.0
            for q in range(Q):
                for p in range(P):
                    u[p] = -rates[q] * D[p]
                exp_wide(u, u_bits)
                largest = 1.0
                for p in range(P):
                    largest *= max(u[p], M[q, p])
                if largest < _TINY:
                    break
                _integrals(u, M[q], nodes, shares, F, full, one)
                for p in range(P):
                    phi[p] += weights[q] * one[p]
            for c in range(coef.shape[1]):
                for p in range(P):
                    out[r, p, c] += coef[i, c] * phi[p]


def _add_tile(
    term: Term, players: IntArray, coef: Float64Array, rows: slice,
    quadrature: tuple[Float64Array, Float64Array], a: int, z: int, out: Float64Array,
) -> None:  # fmt: skip
    """Write the values of some rows that the support rows from a to z have to out."""
    columns = np.argsort(players, kind="stable")
    ends = np.searchsorted(players[columns], np.arange(out.shape[1]), side="right")
    Z, E, B = term.rows
    out[:] = 0.0
    _add_values(
        term.forms, columns, ends, E[rows], Z[a:z], B, coef[a:z], term.rates, term.weights,
        *quadrature, out,
    )  # fmt: skip


def shapley_values(
    function: Expansion, X: Matrix, background: Matrix, groups: IntArray, n_players: int
) -> tuple[Float64Array, Float64Array, float]:
    """Return Shapley values (m, P, C) of encoded rows, the base (C,), and the largest residual.

    `groups` has the player of each encoded column. Values and base add up to f: what rounding
    and :func:`scale_mixture` leave is shared in proportion to the sizes of the values.
    """
    if n_players > MOST_PLAYERS:
        raise CapabilityError(
            f"Shapley values are for up to {MOST_PLAYERS} columns, and the rows have "
            f"{n_players}; their time grows with the square. Take feature_importances_."
        )
    terms, own = support_terms(function, X, background)
    f, C = function.raw_prediction(X), function.n_outputs
    x, w = np.polynomial.legendre.leggauss(-(-n_players // 2))
    nodes, shares = 0.5 + 0.5 * x, 0.5 * w
    values, base = np.zeros((X.shape[0], n_players, C)), function.intercept.copy()
    step = max(1, _SUM_ENTRIES // (n_players * C))
    for term in terms:
        players = np.tile(groups, len(term.forms) // len(groups))
        for a in range(0, len(values), step):
            rows = slice(a, a + step)
            total = np.zeros((len(values[rows]) + 1, n_players, C))
            task = partial(_add_tile, term, players, own.coef, rows, (nodes, shares))
            sum_over_tiles(len(own.coef), TILE, _PARTS, task, total)
            values[rows] += total[:-1]
            base += total[-1, 0] if a == 0 else 0.0
    left = f - base - values.sum(axis=1)
    size = np.abs(values)
    size += np.where(size.sum(axis=1, keepdims=True) > 0, 0.0, 1.0)
    values += left[:, None] * size / size.sum(axis=1, keepdims=True)
    return values, base, float(np.abs(left).max(initial=0.0))


def _differences(forms: IntArray, x: AnyArray, Z: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return the distance of each column of one row x to rows Z, and its derivative by x."""
    delta = x - Z
    D, slope = np.abs(delta), np.sign(delta)
    dot, lorentz = forms == profiles.DOT, forms == profiles.LORENTZ
    D = np.where(dot, 0.5 * delta**2, np.where(lorentz, np.log1p(delta**2), D))
    slope = np.where(dot, delta, np.where(lorentz, 2.0 * delta / (1.0 + delta**2), slope))
    return D, slope


def gradients(function: Expansion, X: Matrix) -> Float64Array:
    """Return the derivatives of f by the columns of encoded rows, (m, d, C)."""
    X = np.asarray(dense(X), np.float64)
    scaling = function.scaling
    d, columnwise = X.shape[1], replace(scaling, metric=None)
    ones = np.ones((1, scaling.width(d)))
    terms, own = support_terms(function, X, mixed=True)
    scales = terms_of(function.kernel, function.kernel.exact_rows(ones, wide=True))
    out = np.zeros((len(X), ones.shape[1], function.n_outputs))

    def task(r: int) -> None:
        for term, unit in zip(terms, scales, strict=True):
            Z, E = term.rows
            D, slope = _differences(term.forms, E[r], Z)
            falls = np.exp(-np.outer(D.sum(axis=1), term.rates)) @ (term.weights * -term.rates)
            change = (slope * unit.rows[0]).T @ (falls[:, None] * own.coef)
            out[r] += change.reshape(-1, *out.shape[1:]).sum(axis=0)

    with single_threaded_blas():
        parallel_for(len(X), task)
    M = scaling.metric
    if M is not None:
        out = np.einsum("mrc,dr->mdc", out, M) if M.ndim == 2 else out * M[:, None]
    spread = np.ones(d) if scaling.scale is None else scaling.scale
    if scaling.knots is not None:
        spread = np.maximum(np.ptp(scaling.knots, axis=0), 1e-300)
    step = _STEP * spread
    high, low = (np.asarray(columnwise.apply(X + s * step)) for s in (1.0, -1.0))
    slope = (high - low) / (2.0 * step)
    return np.asarray(out * slope[..., None])


def partial_dependence(
    function: Expansion, X: Matrix, background: Matrix, own: AnyArray
) -> Float64Array:
    """Return the mean of f, (m, C), over background rows with the columns `own` of each row."""
    terms, support = support_terms(function, X, background)
    out = np.tile(function.intercept, (X.shape[0], 1))
    for term in terms:
        Z, E, B = term.rows
        mine = np.tile(own, len(term.forms) // len(own))
        here, there = (
            np.array([_differences(term.forms[k], e, Z[:, k])[0].sum(axis=1) for e in A[:, k]])
            for A, k in ((E, mine), (B, ~mine))
        )
        with single_threaded_blas():
            for rate, weight in zip(term.rates, term.weights, strict=True):
                mean = weight * np.exp(-rate * there).mean(axis=0)
                out += np.exp(-rate * here) @ (mean[:, None] * support.coef)
    return out


def variance_shares(
    function: Expansion, X: Matrix, groups: IntArray, n_columns: int
) -> Float64Array:
    """Return the share of each column in the variance of f, (n_columns,), with sum 1 or all 0.

    It is the total index of Sobol', ``E (f(x) - f(x'))^2 / 2`` for rows x' that have the value
    of another row in this column (Jansen 1999), over the sum for all columns; outputs add up.
    """
    d, total = X.shape[1], np.zeros(n_columns)
    members = sp.csr_matrix((np.ones(d), (np.arange(d), groups)), (d, n_columns))
    if isinstance(function, LinearExpansion):
        for c in function.coef.T:
            parts = (X.multiply(c).tocsr() if sp.issparse(X) else X * c) @ members
            total += (
                mean_variance_axis(parts, 0)[1] if sp.issparse(parts) else parts.var(axis=0)
            )
    else:
        X = X[np.random.default_rng(0).permutation(X.shape[0])]
        n, f = X.shape[0], function.raw_prediction(X)
        changed = (X[np.arange(n) - 1] != X).sum() / max(1, n)
        pairs = int(np.clip(_PREDICTIONS // max(1.0, changed), _LEAST, _MOST))
        rows = np.arange(min(n, pairs))
        for lag in range(1, min(n - 1, -(-pairs // n)) + 1):
            _add_squares(function, X[rows], X[(rows + lag) % n], f[rows], members, total)
    return np.asarray(total / total.sum() if total.sum() > 0 else total)


def _add_squares(
    function: Expansion, A: Matrix, B: Matrix, f: Float64Array, members: Any, total: AnyArray
) -> None:
    """Add the squared changes of f by the columns of B in place of those of rows A."""
    sparse, d = sp.issparse(A), A.shape[1]
    change = sp.coo_matrix(B - A if sparse else ((A != B) @ members) > 0)
    step = _SPARSE_ROWS if sparse else max(1, _ENTRIES // d)
    for a in range(0, change.nnz, step):
        r, j, value = (v[a : a + step] for v in (change.row, change.col, change.data))
        if sparse:  # tables are dense, so that each column stands for itself
            moved = A[r] + sp.csr_matrix((value, (np.arange(len(r)), j)), (len(r), d))
        else:
            moved = np.where(members.indices == j[:, None], B[r], A[r])
        square = ((function.raw_prediction(moved) - f[r]) ** 2).sum(axis=1)
        total += np.bincount(j, square, minlength=len(total))


@dataclass(frozen=True)
class Explanation:
    """Shapley values of the columns for some rows; ``base_values + values.sum(1)`` is f."""

    values: Float64Array  # (n, d) or (n, d, C)
    base_values: Float64Array  # (n,) or (n, C): f of rows with columns drawn independently
    data: AnyArray  # the rows (n, d)
    feature_names: list[str]
    error: float = 0.0  # largest difference of f and the sum, before columns shared it

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{k}={v.shape}" for k, v in vars(self).items() if hasattr(v, "shape")
        )
        return f"Explanation({shapes})"

    def to_shap(self) -> Any:
        """Return the values as ``shap.Explanation``, for the plots of the package shap."""
        from shap import Explanation as Shap

        return Shap(self.values, self.base_values, self.data, feature_names=self.feature_names)
