"""Figures of a sweep: lines over one axis, maps over two, stacks of parts, the Pareto front."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from stepsim.base.errors import OutputError, SweepError
from stepsim.explore.sweep.table import SweepTable
from stepsim.show.figures.drawing import write_figure
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.sweep.bounds import bound_figure
from stepsim.show.figures.sweep.breakdowns import breakdown_figure
from stepsim.show.figures.sweep.lines import line_figure
from stepsim.show.figures.sweep.maps import map_figure
from stepsim.show.figures.sweep.pareto import pareto_figure
from stepsim.show.figures.sweep.views import FigureKind, View, choose_view, figure_kind


def plot_sweep(
    table: SweepTable,
    path: Path,
    names: Sequence[str] = (),
    *,
    kind: FigureKind | str = FigureKind.TIME,
    style: FigureStyle | str = FigureStyle.SCREEN,
) -> None:
    """Draw a kind of figure over the axes `names` (see `choose_view`).

    Over the axes that are not drawn the fastest scenario is shown. Raises OutputError when the file
    cannot be written or there is nothing to draw, SweepError for kinds and axes that cannot be
    drawn.
    """
    kind = figure_kind(kind)
    view = choose_view(table, names, kind)
    if kind.of_parts and not table.part_columns:
        raise SweepError(
            f"a {kind} figure needs the parts of each step: sweep with --breakdown to keep them"
        )
    if not table.extremes(1):
        raise OutputError(f"{path}: nothing to draw: no scenario has a result")
    if kind is FigureKind.BREAKDOWN:
        draw = partial(breakdown_figure, table, view)
    elif kind is FigureKind.BOUND:
        draw = partial(bound_figure, table, view)
    else:
        draw = partial(map_figure if view.y else line_figure, table, view, kind)
    write_figure(draw, path, style)


def plot_pareto(
    table: SweepTable, path: Path, *, style: FigureStyle | str = FigureStyle.SCREEN
) -> None:
    """Draw every scenario's step time against the bandwidth of all links, and the Pareto front.

    Raises OutputError as `plot_sweep`.
    """
    front = table.pareto_front()
    if not front:
        raise OutputError(f"{path}: nothing to draw: no scenario has a result and finite bandwidth")
    write_figure(partial(pareto_figure, table, front), path, style)


__all__ = ["FigureKind", "View", "choose_view", "figure_kind", "plot_pareto", "plot_sweep"]
