"""Table 6, the column of MNIST: test errors of all methods at their ends."""

from __future__ import annotations

from typing import ClassVar

from experiments.cdsg._networks import Networks, claim


class Table6(Networks):
    """Test errors of all methods at their ends.

    Networks, features and methods are those of Table 5.
    """

    label = "Table 6"
    cause = "setting"
    converged = True
    seeds = 5
    claims: ClassVar = (
        claim(
            "CDSG is better than both networks", "5.3 against 7.1 and 6.2 %",
            lambda e: min(e["Fixed"], e["Joint"]) - e["CDSG"],
        ),
        claim(
            "CDSG is no worse than its family", "5.3 against 5.3 and 5.4 %",
            lambda e: min(e["DSG"], e["UDSG"]) - e["CDSG"],
        ),
    )  # fmt: skip
