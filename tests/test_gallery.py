"""Examples of the gallery run without a warning, and their pictures are whole."""

import runpy
from pathlib import Path

import pytest

plt = pytest.importorskip("matplotlib.pyplot")

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*/plot_*.py"))
QUICK = {"plot_importances", "plot_regression_curve"}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.slow, id=path.stem)
        for path in EXAMPLES
    ],
)
def test_an_example_draws_whole_pictures(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    figures = [plt.figure(number) for number in plt.get_fignums()]
    assert figures
    for figure in figures:
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
        assert (box.min > -0.01).all(), "cut off at the left or below"
        assert (box.max < figure.get_size_inches() + 0.01).all(), "cut off at the right, above"
        assert any(ax.get_title() for ax in figure.axes)
    plt.close("all")
