"""Table 6, the column of MNIST: test errors of all methods at their ends."""

from __future__ import annotations

from typing import ClassVar

from experiments.cdsg._networks import Networks, claim


class Table6(Networks):
    """Test errors of all methods at their ends.

    A small network (16 and 32 filters, 128 neurons) is trained on deformed digits for a short
    time; DSG, UDSG and CDSG learn on the 1,568 features after its last pooling (Gaussian kernel
    of the median distance, lambda = 5e-4), "Fixed" trains two new layers on them, and "Joint"
    trains a network from the start.
    """

    label = "Table 6"
    cause = "setting"
    converged = True
    explanation = """
    Too few iterations and too large a penalty, together, are the cause. On the features of the
    first seed, where CDSG ends at 14.86 %, the minimum of its objective on 8,000 rows, which
    lacks no iteration, has an error of 8.93 %. CDSG with lambda = 5e-6 in place of 5e-4 ends at
    12.72 %. Both, the minimum with the smaller lambda, are 2.62 %, like Fixed, which has no
    penalty: neither the features nor the kernel are the cause. Joint, which learns its features
    too, is ahead of all of them by Adam; by plain SGD with a step of 0.01 it is where CDSG is.
    """
    claims: ClassVar = (
        claim(
            "CDSG is better than both networks",
            "5.3 against 7.1 and 6.2 %",
            lambda e: min(e["Fixed"], e["Joint"]) - e["CDSG"],
        ),
        claim(
            "CDSG is the best of its family", "5.3 against 5.3 and 5.4 %",
            lambda e: min(e["DSG"], e["UDSG"]) - e["CDSG"],
        ),
    )  # fmt: skip
