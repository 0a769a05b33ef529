"""Figure 2: Adult."""

from __future__ import annotations

from typing import ClassVar

from experiments.sbp._figure2 import CLAIMS, OVERFITS, Panel


class Adult(Panel):
    """Test error against kernel evaluations on Adult, without a bias.

    Gaussian kernel with sigma^2 = 10, lambda = 1/n, nu from the optimum. SBP is Algorithm 1;
    Pegasos has its printed steps 1/(lambda t) and no average; SMO moves the row of the
    largest gain; the perceptron is its last function. Curves are means over seeds, the
    perceptron's dashed after an epoch; dotted ones count n evaluations for each visit.
    """

    label = "Figure 2, Adult"
    cause = "setting"
    data = "adult"
    rows = 8000
    seeds = 8
    perceptron_epochs = 40
    departures = """
    8,000 random rows of 31,562 (the a9a file has 32,561) and all 16,281 test rows, eight runs
    of ten, 40 epochs of the perceptron instead of 100. A value is counted each time it is
    needed, kept or not: ten epochs of SBP are 10 n^2. The errors of Pegasos, SDCA and the
    perceptron, which have no average, are means of four looks a point."""
    explanation = """
    The last functions of the perceptron scatter by points of error from pass to pass: eight
    seeds tell neither whether later ones are worse than the first nor by how much it trails."""
    claims: ClassVar = (*CLAIMS, OVERFITS)
