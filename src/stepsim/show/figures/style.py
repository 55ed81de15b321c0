"""The styles of figures: how wide they are, how large their type, how thick their lines."""

from collections.abc import Iterable
from textwrap import fill
from typing import TYPE_CHECKING

from stepsim.base.structs import Values
from stepsim.base.units import NameWithFields

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHARACTER_EM = 0.56  # mean width of a character of DejaVu Sans


class FigureStyle(NameWithFields):
    """Where a figure is shown: on a `screen`, in a `column` of a paper or across its `page`.

    `width_in` is the width of every figure in inches. `font_pt` is the size of its type, `line_pt`
    the width of the lines that carry data, in points; small print is five sixths of the type. `dpi`
    are dots per inch of a PNG, and of what is drawn as dots in other files.
    """

    width_in: float
    font_pt: float
    line_pt: float
    dpi: int
    SCREEN = "screen", 9.0, 10.0, 1.5, 150
    COLUMN = "column", 3.3, 8.0, 1.0, 300
    PAGE = "page", 7.0, 8.0, 1.0, 300

    @property
    def narrow(self) -> bool:
        """Whether there is no room beside a plot: legends stand below, panels above each other."""
        return self is FigureStyle.COLUMN

    def figure(self, height_in: float) -> "Figure":
        """An empty figure of this width; heights are for type of 8 pt and grow with it."""
        from matplotlib.figure import Figure

        size = self.width_in, height_in * self.font_pt / 8
        return Figure(figsize=size, layout="constrained")

    def parameters(self) -> Values:
        """Matplotlib's parameters of this style; `figures.mplstyle` has those of all styles."""
        line = self.line_pt
        return {
            "font.size": self.font_pt,
            "axes.titlesize": self.font_pt,
            "axes.linewidth": 0.5 * line,
            "figure.titlesize": self.font_pt,
            "grid.linewidth": 0.5 * line,
            "lines.linewidth": line,
            "lines.markersize": 3 * line,
            "patch.linewidth": 0.4 * line,
            "figure.dpi": self.dpi,
            "xtick.major.width": 0.5 * line,
            "ytick.major.width": 0.5 * line,
            "xtick.major.size": 2 * line,
            "ytick.major.size": 2 * line,
        }

    def wrapped(self, lines: Iterable[str], share: float = 1.0) -> str:
        """Lines of text broken to a share of this width."""
        most = int(share * self.width_in * 72 / (self.font_pt * CHARACTER_EM))
        return "\n".join(fill(line, most) for line in lines)
