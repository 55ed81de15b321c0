"""Figures of a sweep: lines over one axis, maps over two, stacks of parts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepsim.base.errors import OutputError, SweepError
from stepsim.files.sweep_table import SweepTable
from stepsim.show.figures.drawing import drawn
from stepsim.show.figures.style import FigureStyle
from stepsim.views.sweep.breakdowns import breakdown_figure
from stepsim.views.sweep.lines import line_figure
from stepsim.views.sweep.maps import map_figure
from stepsim.views.sweep.view import FigureKind, choose_view, figure_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@drawn
def plot_sweep(
    table: SweepTable, style: FigureStyle, *, names: Sequence[str] = (), kind: str = "time"
) -> "Figure":
    """Draw a kind of figure over the axes `names` (see `choose_view`).

    Over the axes that are not drawn the fastest scenario is shown. Raises OutputError when there is
    nothing to draw, SweepError for kinds and axes that cannot be drawn.
    """
    view = choose_view(table, names, figure_kind(kind))
    stacks = view.kind is FigureKind.BREAKDOWN
    if stacks and not table.part_columns:
        raise SweepError(
            f"a {kind} figure needs the parts of each step: sweep with --breakdown to keep them"
        )
    if not table.extremes(1):
        raise OutputError("nothing to draw: no scenario has a result")
    draw = breakdown_figure if stacks else map_figure if view.y else line_figure
    return draw(view, style)
