"""Folds of labelled rows, and probabilities from what was held out."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from kernelgrad._typing import AnyArray, Float64Array, IntArray
from kernelgrad._validation import DataError

_MOST_FOLD_ROWS = 5000  # labelled rows that are held out in all folds together
_TAG = 0x666F6C64
_FIRM = 1e6  # C of calibration: hardly a penalty


def folds(codes: AnyArray, classes: AnyArray, n_folds: int, seed: int) -> list[IntArray]:
    """Return the rows of each fold, every class spread over all of them.

    Raises
    ------
    DataError
        A class has fewer than two rows.
    """
    counts = np.bincount(codes, minlength=len(classes))
    if counts.min() < 2:
        label = classes[int(np.argmin(counts))].item()
        raise DataError(
            f"Class {label!r} has {int(counts.min())} distinct labelled row; cross-validation "
            "needs two of each class. Set early_stopping and probability to False, or label "
            "more."
        )
    rng = np.random.default_rng(np.random.SeedSequence([seed, _TAG]))
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    fold = np.empty(len(codes), np.int64)
    fold[order] = np.arange(len(codes)) % n_folds
    most = max(1, _MOST_FOLD_ROWS // n_folds)
    found = [rng.permutation(np.flatnonzero(fold == k))[:most] for k in range(n_folds)]
    return [np.sort(rows) for rows in found if len(rows)]


def sigmoids(raw: Float64Array, y: AnyArray, weight: Float64Array) -> Float64Array:
    """Return slope and intercept of a sigmoid of each output, (C, 2), as Platt fits them.

    Targets are ``(N+ + 1) / (N+ + 2)`` and ``1 / (N- + 2)``, so that separable scores have a
    finite slope.
    """
    out = np.empty((raw.shape[1], 2))
    for c in range(raw.shape[1]):
        positive = y == (1 if raw.shape[1] == 1 else c)
        up, down = float(weight[positive].sum()), float(weight[~positive].sum())
        t = np.where(positive, (up + 1.0) / (up + 2.0), 1.0 / (down + 2.0))
        scale = max(float(np.abs(raw[:, c]).max()), 1e-300)
        f = np.tile(raw[:, c : c + 1] / scale, (2, 1))
        side = np.repeat([1, 0], len(y))
        w = np.concatenate([weight * t, weight * (1.0 - t)])
        model = LogisticRegression(C=_FIRM, max_iter=1000, tol=1e-8).fit(f, side, w)
        out[c] = model.coef_[0, 0] / scale, model.intercept_[0]
    return out
