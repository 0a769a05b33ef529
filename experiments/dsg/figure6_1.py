"""Figure 6(1): Adult, one pass over the rows."""

from __future__ import annotations

from typing import ClassVar

from experiments.dsg._rivals import BATCHES, FULL, OURS, Rivals, adult, claim


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
    A block has too few features. On the same steps 8 times as many take the error of doubly SGD
    from 16.25 to 15.35 %, and the kernel itself in place of features to 15.23 %, the paper's
    15.3 % and within the claims: neither rows nor steps are too few. What is left to NORMA,
    which moves row by row and returns an average, is not of the features. SDCA needs more
    passes at this nu: after 100 r-sdca has 15.31 and n-sdca 15.29 %.
    """
    load = staticmethod(adult)
    one_pass = True
    rows = 32_561
    penalty = 0.01
    sizes = (64, 32)
    claims: ClassVar = (
        *claim(
            "One pass gives an error of 15.3 %, within half a point", "15.3 %",
            lambda e: 15.8 - e[OURS], kind="level",
        ),
        *claim(
            "The best rate is that of NORMA and k-SDCA, and doubly SGD is comparable: at most "
            "0.3 + 0.5 points above the better one", "15.3 against 15 %",
            lambda e: 0.8 + min(e[m] for m in FULL) - e[OURS],
        ),
        *claim(
            "The same with NORMA on the batches of doubly SGD, as the paper has it (Section 7)",
            "15.3 against 15 %", lambda e: 0.8 + e[BATCHES] - e[OURS],
        ),
    )  # fmt: skip
