"""Displays: learning curves, importances, error against time, intervals and maps.

They need matplotlib, and follow scikit-learn's displays: ``from_estimator`` computes and
draws, ``ax_`` and ``figure_`` are what was drawn on, and ``plot`` draws again elsewhere. A
figure of their own has a title and room for all labels; on axes that are given, an existing
title stays. The colours are told apart by colour-blind readers, too.
"""

from __future__ import annotations

from kernelgrad.plotting.curves import (
    ErrorTimeDisplay,
    FeatureImportancesDisplay,
    LearningCurveDisplay,
)
from kernelgrad.plotting.intervals import (
    GaussianProcessIntervalDisplay,
    IntervalCoverageDisplay,
)
from kernelgrad.plotting.maps import ResponseMapDisplay

__all__ = [
    "ErrorTimeDisplay",
    "FeatureImportancesDisplay",
    "GaussianProcessIntervalDisplay",
    "IntervalCoverageDisplay",
    "LearningCurveDisplay",
    "ResponseMapDisplay",
]
