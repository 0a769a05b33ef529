"""Figure 6(2): MNIST 8 v 6, one pass over the rows."""

from __future__ import annotations

from typing import ClassVar

from experiments.base import Claim
from experiments.dsg._rivals import COURSE, OURS, Rivals, claim, eights


def claims_of(*, decayed: bool = True) -> list[Claim]:
    return [
        *claim(
            "Doubly SGD has the least error of all", "0.26 %",
            lambda e: min(e[m] for m in e if m != OURS) - e[OURS], decayed=decayed,
        ),
        *claim(
            "Its error is 0.26 %, within 0.3 points", "0.26 %", lambda e: 0.56 - e[OURS],
            decayed=decayed, kind="level",
        ),
    ]  # fmt: skip


class Figure6Panel2(Rivals):
    """Kernel SVMs on MNIST 8 v 6 after one pass over the rows.

    50 components, Gaussian kernel of the median distance, nu = 1 / n, batches of 2^10 rows,
    blocks of 2^8 features; 2^8 random or Nystroem features for Pegasos and SDCA.
    """

    label = "Figure 6(2)"
    departures = f"""
    32,768 of the library's deformed eights and sixes, not 1.6 million of MNIST8M. {COURSE}"""
    explanation = """
    The paper does not say whether it takes the covariance that its Section 4 allows, which the
    authors' published program does. With it the same 32 steps end at 0.36 %, without it at 1.86
    %. The paper's 1.6 million rows are some 1,600 steps."""
    load = staticmethod(eights)
    one_pass = True
    rows = 32_768
    penalty = 1.0
    sizes = (1024, 256)
    claims: ClassVar = claims_of()
