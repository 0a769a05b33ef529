"""Displays: a fitted estimator and rows come in, curves and maps go out.

They need matplotlib and follow the conventions of scikit-learn's displays: ``from_estimator``
computes and draws, ``ax_`` and ``figure_`` are the axes and the figure, and ``plot`` draws
again elsewhere. A new figure has a title and room for all labels; on given axes an existing
title is kept. The palette suits colour-blind readers.
"""

from __future__ import annotations

from kernelgrad.plotting.curves import (
    FeatureImportancesDisplay,
    LearningCurveDisplay,
    SearchDisplay,
)  # fmt: skip
from kernelgrad.plotting.explanations import ExplanationDisplay
from kernelgrad.plotting.intervals import (
    GaussianProcessIntervalDisplay,
    IntervalCoverageDisplay,
)
from kernelgrad.plotting.maps import ResponseMapDisplay

__all__ = [
    "ExplanationDisplay", "FeatureImportancesDisplay", "GaussianProcessIntervalDisplay",
    "IntervalCoverageDisplay", "LearningCurveDisplay", "ResponseMapDisplay", "SearchDisplay",
]  # fmt: skip
