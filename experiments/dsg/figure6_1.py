"""Figure 6(1): Adult, one pass over the rows."""

from __future__ import annotations

from typing import ClassVar

from experiments.dsg._rivals import FULL, OURS, Rivals, adult, claim


class Figure6Panel1(Rivals):
    """Kernel SVMs on Adult after one pass over the rows.

    Gaussian kernel of the median distance, nu = 1 / (100 n), batches of 2^6 rows, blocks of
    2^5 features; 2^8 random or Nystroem features for Pegasos and SDCA.
    """

    label = "Figure 6(1)"
    departures = """
    Drawn is where the methods end, not their courses. The first
    step of doubly SGD, which the paper does not tell, is the best of five on 4,000
    training rows; the rivals take the library's. Seconds are those of the processor, one
    thread, without Nystroem's landmarks.
    """
    explanation = """
    Likely, and not isolated by an experiment here: on the first seed the same fit, by hand,
    has 16.3 % with its tuned first step of 10, 16.0 % with 3, 19.5 % with 1; 16.3 % with an
    average of the iterates, 16.1 % with pairs for phases; with blocks of 2^7 features 15.6 %
    at a first step of 10, 16.0 % at 3. So it is hardly the last iterate or the phase that keeps
    it above NORMA, rather the noise of 2^5 features in a large step.
    """
    load = staticmethod(adult)
    one_pass = True
    rows = 32_561
    penalty = 0.01
    sizes = (64, 32)
    claims: ClassVar = (
        claim(
            "One pass gives an error of 15.3 %, within half a point", "15.3 %",
            lambda e: 15.8 - e[OURS],
        ),
        claim(
            "The best rate is that of NORMA and k-SDCA, and doubly SGD is comparable: at most "
            "0.3 + 0.5 points above the better one", "15.3 against 15 %",
            lambda e: 0.8 + min(e[m] for m in FULL) - e[OURS],
        ),
    )  # fmt: skip
