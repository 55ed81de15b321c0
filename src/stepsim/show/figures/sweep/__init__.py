"""Figures of a sweep: lines over one axis, maps over two, stacks of parts."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.base.errors import OutputError, SweepError
from stepsim.explore.sweep.table import SweepTable
from stepsim.show.figures.drawing import make_figure
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.sweep.breakdowns import BREAKDOWN
from stepsim.show.figures.sweep.lines import line_figure
from stepsim.show.figures.sweep.maps import map_figure
from stepsim.show.figures.sweep.views import FigureKind, View, choose_view

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _measured(table: SweepTable, view: View, style: FigureStyle, *, bubble: bool) -> "Figure":
    """Step time, or bubble fraction, as lines over one axis or a map over two."""
    return (map_figure if view.y else line_figure)(table, view, style, bubble=bubble)


FIGURE_KINDS = {
    kind.name: kind
    for kind in (
        FigureKind(name="time", draw=partial(_measured, bubble=False)),
        FigureKind(name="bubble", draw=partial(_measured, bubble=True)),
        BREAKDOWN,
    )
}
"""The figures over the axes of a sweep. A new one is its module and a line here."""


def figure_kind(name: str) -> FigureKind:
    """The kind of a name; raises SweepError naming those there are."""
    if name not in FIGURE_KINDS:
        raise SweepError(f"kind of figure is {name!r}: expected one of {', '.join(FIGURE_KINDS)}")
    return FIGURE_KINDS[name]


def plot_sweep(
    table: SweepTable,
    path: str | Path | None = None,
    names: Sequence[str] = (),
    *,
    kind: str = "time",
    style: FigureStyle | str = FigureStyle.SCREEN,
) -> "Figure":
    """Draw a kind of figure over the axes `names` (see `choose_view`).

    Over the axes that are not drawn the fastest scenario is shown. Raises OutputError when the file
    cannot be written or there is nothing to draw, SweepError for kinds and axes that cannot be
    drawn.
    """
    chosen = figure_kind(kind)
    view = choose_view(table, names, chosen)
    if chosen.of_parts and not table.part_columns:
        raise SweepError(
            f"a {kind} figure needs the parts of each step: sweep with --breakdown to keep them"
        )
    if not table.extremes(1):
        raise OutputError(f"{f'{path}: ' if path else ''}nothing to draw: no scenario has a result")
    return make_figure(partial(chosen.draw, table, view), path, style)


__all__ = [
    "FIGURE_KINDS",
    "FigureKind",
    "View",
    "choose_view",
    "figure_kind",
    "plot_sweep",
]
