"""Figure 6(3): forest, one pass over the rows."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

from experiments.dsg._rivals import COURSE, FULL, LINEAR, OURS, Rivals, claim, forest, makers

PAPER_ROWS, PASSES, FEW = 522_911, 32, 8  # 32 passes of 16,000 rows visit about as many


class Figure6Panel3(Rivals):
    """Kernel SVMs on forest after one pass over the rows.

    The second cover type against the rest, standardised columns, Gaussian kernel of the
    median distance, nu = 1 / n, batches of 2^10 rows, blocks of 2^8 features; 2^8 random or
    Nystroem features for Pegasos and SDCA.
    """

    label = "Figure 6(3)"
    departures = f"""
    16,000 of 522,911 rows; 15 iterations make one pass. {COURSE}"""
    explanation = """
    Few rows make a strong penalty: nu = 1 / n is more than 32 times the paper's. With it the
    full kernel is no better than 2^8 features even after 32 passes, which visit about as many
    rows as the paper's one: k-SDCA has 14.38 %, r-sdca 14.40 %. With the paper's nu k-SDCA has
    11.25 %, r-sdca and n-sdca on 2^8 features 14.00 and 13.32 %. As printed doubly SGD has too
    few steps: 250 of 64 rows take it from 16.32 to 15.22 % (medians of the first three seeds,
    on which alone the controls ran). Why it gains less than a point with the covariance stays
    open: by the paper's nu it has 14.03 % after 8 passes and 13.10 % after 32, where n-sdca has
    13.32 %; with decaying steps it stays at 14.22 %. The paper's 522,911 rows would decide.
    After one pass the last iterate of k-SDCA has from 13.53 to 23.55 %, its average from 14.15
    to 14.63 %. Twenty seeds, where ten had not, decide that NORMA and k-SDCA are not both the
    best."""
    load = staticmethod(forest)
    one_pass = True
    averaged = True
    rows = 16_000
    seeds = 20
    penalty = 1.0
    sizes = (1024, 256)
    claims: ClassVar = (
        *claim(
            "NORMA and k-SDCA have the least errors", "10 %",
            lambda e: min(e[m] for m in (OURS, *LINEAR)) - max(e[m] for m in FULL),
        ),
        *claim(
            "Doubly SGD is much better than Pegasos and SDCA with 2^8 features: by a point",
            "15 %", lambda e: min(e[m] for m in LINEAR) - e[OURS] - 1, with_covariance="open",
        ),
    )  # fmt: skip

    def others(self, n: int, gamma: float, step: float, seed: int) -> dict[str, Any]:
        """Return rivals that visit as many rows as in the paper, also with its penalty."""
        out: dict[str, Any] = {}
        for suffix, rows in (("", n), (", nu of the paper", PAPER_ROWS)):
            found = makers(n, self.penalty / rows, self.sizes, gamma, step, seed)
            for name in ("k-SDCA", "r-sdca", "n-sdca"):
                out[f"{name}, {PASSES} passes{suffix}"] = found[name][0](PASSES, [])
        for name, passes in product((n for n in found if f"{OURS} " in n), (FEW, PASSES)):
            make, most = found[name]
            out[f"{name}, {passes} passes, nu of the paper"] = make(passes * most, [])
        steps = makers(n, self.penalty / n, (64, self.sizes[1]), gamma, step, seed)
        make, most = steps[OURS]
        return out | {f"{OURS}, batches of 64": make(most, [])}
