"""Lines over one axis: a line per value of another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.explore.sweep.table import SweepTable
from stepsim.show.figures.drawing import MARKERS, head, legend, series_colours
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.sweep.closed_forms import closed_forms
from stepsim.show.figures.sweep.measures import measure
from stepsim.show.figures.sweep.scales import name_ticks, scale_of, value_axis, words
from stepsim.show.figures.sweep.views import FigureKind, View, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_MOST_MARKED = 33
_HIDDEN = 0.005  # of the height of a plot: what a line may be off and still be covered


def line_figure(table: SweepTable, view: View, kind: FigureKind, style: FigureStyle) -> "Figure":
    """A line per value of `view.by`; bubbles with their closed forms where there is one."""
    figure = style.figure(2.9 if style.narrow else 3.2)
    axes = figure.subplots()
    head(axes, style, *title(table, view))
    places, label, log = scale_of(view.x)
    shown = measure(table, view, kind)
    lines = shown.values[:, None] if view.by is None else shown.values
    names = view.by.texts if view.by else ("simulated",)
    colours = series_colours(names) if view.by else series_colours([""])
    for i, name in enumerate(names):
        axes.plot(
            places,
            lines[:, i],
            color=colours[i],
            marker=MARKERS[i % len(MARKERS)] if len(places) <= _MOST_MARKED else None,
            linewidth=style.line_pt if view.x.numeric else 0,
            label=_label(name, lines, names),
        )
    handles = [*axes.lines]
    if kind is FigureKind.BUBBLE:
        handles += _draw_closed_forms(axes, table, view, colours, style)
        axes.set_ylim(bottom=0)
    if view.x.numeric:
        value_axis(axes, "x", places, style, log=log)
    else:
        name_ticks(axes, places, view.x.texts, style)
    axes.set_xlabel(label)
    axes.set_ylabel(shown.label)
    axes.grid(axis="y")
    if len(handles) > 1:
        legend(figure, style, handles, title=words(view.by.name) if view.by else "")
    return figure


def _label(name: str, lines: Floats, names: Sequence[str]) -> str:
    """A line's name, and why it cannot be seen: it failed, or a later one hides it."""
    number = names.index(name)
    if np.isnan(lines[:, number]).all():
        return f"{name} (failed)"
    for later in range(number + 1, len(names)):
        apart = np.abs(lines[:, number] - lines[:, later])
        if apart.max() <= _HIDDEN * (np.nanmax(lines) - np.nanmin(lines)):
            return f"{name} (under {names[later]})"
    return name


def _draw_closed_forms(
    axes: "Axes", table: SweepTable, view: View, colours: list[str], style: FigureStyle
) -> "list[Line2D]":
    """Thin lines in the colours of the simulated ones, and one entry of the legend for all."""
    from matplotlib.lines import Line2D

    forms = closed_forms(table, view)
    for colour, form in zip(colours, forms, strict=True):
        if form:
            axes.plot(
                form.microbatches,
                100 * form.fraction,
                color=colour,
                linewidth=0.5 * style.line_pt,
                zorder=1,
            )
    if not any(forms):
        return []
    return [Line2D([], [], color="#666666", linewidth=0.5 * style.line_pt, label="closed form")]
