"""Lines over one axis of a sweep: a line per value of another.

Bubble fractions that papers give, for even stages and messages that take no time, stand beside
those found.
"""

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import ScheduleError
from stepsim.base.structs import Names
from stepsim.files.sweep_table import SweepTable
from stepsim.parallel.schedules import BUILDERS, build, parse_name
from stepsim.show.figures.drawing import head, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import series_colours, series_marker
from stepsim.views.sweep.scales import name_ticks, scale_of, value_axis
from stepsim.views.sweep.view import FigureKind, View
from stepsim.views.words import axis_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_MOST_MARKED = 33
_HIDDEN = 0.005  # of the height of a plot: what a line may be off and still be covered


def line_figure(view: View, style: FigureStyle) -> "Figure":
    """A line per value of `view.by`; bubbles with their closed forms where there is one."""
    figure = style.figure(2.9 if style.narrow else 3.2)
    axes = figure.subplots()
    head(axes, style, *view.title())
    found, label = view.measured()
    x = scale_of(view.x)
    lines = found[x.order].reshape(len(found), -1).T
    names = view.by.texts if view.by else ("simulated",)
    colours = series_colours(names, [*BUILDERS])
    for i, values in enumerate(lines):
        axes.plot(
            x.places,
            values,
            color=colours[i],
            marker=series_marker(i) if len(x.places) <= _MOST_MARKED else None,
            linewidth=style.line_pt if view.x.numeric else 0,
            label=_label(names, lines, i),
        )
    handles = [*axes.lines]
    if view.kind is FigureKind.BUBBLE:
        handles += _draw_closed_forms(axes, view, colours, style)
        axes.set_ylim(bottom=0)
    if view.x.numeric:
        value_axis(axes, "x", x, style)
    else:
        name_ticks(axes, x.places, view.x.texts, style)
    axes.set_xlabel(x.label)
    axes.set_ylabel(label)
    axes.grid(axis="y")
    if len(handles) > 1:
        legend(figure, style, handles, title=axis_words(view.by.name) if view.by else "")
    return figure


def _label(names: Names, lines: Floats, number: int) -> str:
    """A line's name, and why it cannot be seen: it failed, or a later one hides it."""
    mine, name = lines[number], names[number]
    if np.isnan(mine).all():
        return f"{name} (failed)"
    for later in range(number + 1, len(lines)):
        apart = np.abs(mine - lines[later])
        if apart.max() <= _HIDDEN * (np.nanmax(lines) - np.nanmin(lines)):
            return f"{name} (under {names[later]})"
    return name


def _draw_closed_forms(
    axes: "Axes", view: View, colours: Sequence[str], style: FigureStyle
) -> "list[Line2D]":
    """Thin lines in the colours of the simulated ones, and one entry of the legend for all."""
    from matplotlib.lines import Line2D

    if view.x.name != "microbatches":
        return []
    counts = np.array(view.x.values, np.float64)
    places = np.geomspace(counts.min(), counts.max(), _POINTS)
    thin, found = 0.5 * style.line_pt, False
    for i, colour in enumerate(colours):
        own = {view.by.name: view.by.texts[i]} if view.by else {}
        schedule, stages = (own.get(key, _fixed(view.table, key)) for key in ("schedule", "pp"))
        if schedule is None or stages is None:
            continue
        form = bubble_closed_form(str(schedule), int(str(stages)), places)
        if form is not None:
            axes.plot(places, 100 * form, color=colour, linewidth=thin, zorder=1)
            found = True
    if not found:
        return []
    return [Line2D([], [], color="#666666", linewidth=thin, label="closed form")]


_POINTS = 200


def bubble_closed_form(schedule: str, stages: int, microbatches: Floats) -> Floats | None:
    """Bubble over pipeline time of even stages, (P-1) / (v m + P-1), None where none is known.

    `schedule` is a name such as `1f1b` or `interleaved:4`. P stages, m microbatches, v chunks.
    Huang et al., GPipe (arXiv:1811.06965); Narayanan et al., Megatron-LM (arXiv:2104.04473), who
    divide by the ideal time instead of the whole. Interleaved ones need m to be a multiple of P;
    between those the curve is only a guide.
    """
    if schedule.endswith(".csv"):
        return None
    _, named = parse_name(schedule)
    try:
        built = build(schedule, ranks=stages, microbatches=stages)
    except ScheduleError:
        return None
    chunks = built.placement.chunks
    if not built.fills_once or (chunks > 1 and named is None):
        return None
    fraction: Floats = (stages - 1) / (chunks * microbatches + stages - 1)
    return fraction


def _fixed(table: SweepTable, name: str) -> object:
    """What all scenarios of a sweep have, None where an axis varies it."""
    if any(axis.name == name for axis in table.axes):
        return None
    if name == "pp":
        return table.identity.get("stages")
    text = table.identity.get(f"option {name}")
    return ast.literal_eval(text) if text else "1f1b"
