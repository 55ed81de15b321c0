"""Lines over one axis: a line per value of another."""

from typing import TYPE_CHECKING

import numpy as np

from stepsim.explore.sweep.table import SweepTable
from stepsim.show.figures.drawing import head, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.sweep.closed_forms import closed_forms
from stepsim.show.figures.sweep.pictures import LinePicture, line_picture
from stepsim.show.figures.sweep.scales import name_ticks, value_axis
from stepsim.show.figures.sweep.views import View, title
from stepsim.show.palette import series_marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_MOST_MARKED = 33
_HIDDEN = 0.005  # of the height of a plot: what a line may be off and still be covered


def line_figure(
    table: SweepTable, view: View, style: FigureStyle, *, bubble: bool = False
) -> "Figure":
    """A line per value of `view.by`; bubbles with their closed forms where there is one."""
    figure = style.figure(2.9 if style.narrow else 3.2)
    axes = figure.subplots()
    head(axes, style, *title(table, view))
    picture = line_picture(table, view, bubble=bubble)
    x = picture.x
    for i, series in enumerate(picture.series):
        axes.plot(
            x.places,
            series.values,
            color=series.colour,
            marker=series_marker(i) if len(x.places) <= _MOST_MARKED else None,
            linewidth=style.line_pt if view.x.numeric else 0,
            label=_label(picture, i),
        )
    handles = [*axes.lines]
    if bubble:
        handles += _draw_closed_forms(axes, table, picture, style)
        axes.set_ylim(bottom=0)
    if view.x.numeric:
        value_axis(axes, "x", x, style)
    else:
        name_ticks(axes, x.places, view.x.texts, style)
    axes.set_xlabel(x.label)
    axes.set_ylabel(picture.measure.label)
    axes.grid(axis="y")
    if len(handles) > 1:
        legend(figure, style, handles, title=picture.key)
    return figure


def _label(picture: LinePicture, number: int) -> str:
    """A line's name, and why it cannot be seen: it failed, or a later one hides it."""
    mine, every = picture.series[number], picture.measure.values
    if np.isnan(mine.values).all():
        return f"{mine.name} (failed)"
    for later in picture.series[number + 1 :]:
        apart = np.abs(mine.values - later.values)
        if apart.max() <= _HIDDEN * (np.nanmax(every) - np.nanmin(every)):
            return f"{mine.name} (under {later.name})"
    return mine.name


def _draw_closed_forms(
    axes: "Axes", table: SweepTable, picture: LinePicture, style: FigureStyle
) -> "list[Line2D]":
    """Thin lines in the colours of the simulated ones, and one entry of the legend for all."""
    from matplotlib.lines import Line2D

    forms = closed_forms(table, picture.view)
    for series, form in zip(picture.series, forms, strict=True):
        if form:
            axes.plot(
                form.microbatches,
                100 * form.fraction,
                color=series.colour,
                linewidth=0.5 * style.line_pt,
                zorder=1,
            )
    if not any(forms):
        return []
    return [Line2D([], [], color="#666666", linewidth=0.5 * style.line_pt, label="closed form")]
