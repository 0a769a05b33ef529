"""Displays: a fitted estimator and rows come in, curves go out.

They need matplotlib and follow the conventions of scikit-learn's displays: ``from_estimator``
computes and draws, ``ax_`` and ``figure_`` are the axes and the figure, and ``plot`` draws
again elsewhere. A new figure has a title and room for all labels; on given axes an existing
title is kept. The palette suits colour-blind readers.
"""

from kernelgrad.plotting.curves import LearningCurveDisplay
from kernelgrad.plotting.explanations import ExplanationDisplay

__all__ = ["ExplanationDisplay", "LearningCurveDisplay"]
