"""Figure 4(1): the function that generates the synthetic data."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from experiments.base import Cell, Claim, Experiment, Row, Rows, each_seed, panel
from experiments.dsg._synthetic import sample, true_function

RANGE = {"least": (-1.0, 0.5), "largest": (1.3, 0.05)}  # and half of the last digit


class Surface(Experiment):
    """The function that generates the synthetic data.

    y = cos(pi |x| / 2) exp(-pi |x| / 10) + e / 10 for uniform rows x of [-5, 5]^2 and normal e;
    drawn without the noise. 2^20 rows, 30 draws.
    """

    label = "Figure 4(1)"
    kind = "level"
    claims: ClassVar = (
        Claim(
            "The outputs span [-1, 1.3] (Table 4), to half of the last printed digits",
            "[-1, 1.3]",
            lambda rows: (
                f"[{np.median([row['least'] for row in rows]):.2f}, "
                f"{np.median([row['largest'] for row in rows]):.2f}]"
            ),
            each_seed(
                lambda mine: min(
                    half - abs(mine[0][key] - end) for key, (end, half) in RANGE.items()
                )
            ),
        ),
    )

    def cells(self, quick: bool) -> list[Cell]:
        return [
            {"seed": seed, "rows": 2**10 if quick else 2**20}
            for seed in range(2 if quick else 30)
        ]

    def measure(self, cell: Cell) -> Rows:
        """Return the range of the outputs."""
        _, y = sample(cell["rows"], cell["seed"])
        yield {"least": y.min(), "largest": y.max()}

    def plot(self, rows: list[Row], path: Path) -> None:
        x = np.linspace(-5, 5, 81)
        grid = np.stack(np.meshgrid(x, x), axis=-1)
        values = true_function(grid.reshape(-1, 2)).reshape(81, 81)
        with panel(path, size=(4.5, 3.8), subplot_kw={"projection": "3d"}) as ax:
            ax.plot_surface(
                grid[..., 0], grid[..., 1], values, cmap="viridis", rcount=81, ccount=81
            )
            ax.set(xlabel="$x_1$", ylabel="$x_2$", zlabel="$f(x)$")
            ax.set_box_aspect(None, zoom=0.88)  # the label stays inside
