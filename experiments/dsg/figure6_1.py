"""Figure 6(1): Adult, one pass over the rows."""

from __future__ import annotations

from typing import ClassVar

from experiments.dsg._rivals import BATCHES, COURSE, FULL, OURS, Rivals, adult, claim


class Figure6Panel1(Rivals):
    """Kernel SVMs on Adult after one pass over the rows.

    Gaussian kernel of the median distance, nu = 1 / (100 n), batches of 2^6 rows, blocks of
    2^5 features; 2^8 random or Nystroem features for Pegasos and SDCA.
    """

    label = "Figure 6(1)"
    departures = COURSE
    explanation = """
    The paper does not say whether it takes the covariance that its Section 4 allows. With it
    and steps 1 / (1 + t / 20) the same 32 frequencies a block end at 15.37 %, as printed at
    16.17 %. The steps of the authors' program, 1 / (1 + 1e-4 t), hardly decay and end at 16.88
    %: its batches are 4 to 16 times as large as a block is wide, here as large. NORMA on the
    same batches has 15.12 %; row by row, with an average, it has 14.78 %. SDCA stays row by
    row: the paper names no rule for its batches, and blocks of rows take the same steps."""
    load = staticmethod(adult)
    one_pass = True
    seeds = 12
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
