"""Step time against the bandwidth of all links, and the scenarios that no other beats."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.units import PS_PER_S
from stepsim.explore.sweep.table import ParetoPoint, SweepTable
from stepsim.show.figures.drawing import head, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.sweep.scales import rate_unit_of, time_unit_of
from stepsim.show.figures.sweep.views import title
from stepsim.show.palette import series_colours
from stepsim.show.words import axis_words, short_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_DOTS = 20_000
_MOST_LABELS = 6
_MOST_RINGS = 50


def pareto_figure(table: SweepTable, front: Sequence[ParetoPoint], style: FigureStyle) -> "Figure":
    """Dots by the first axis of names; the front as steps, what is above and right of it loses."""
    figure = style.figure(3.0 if style.narrow else 3.6)
    axes = figure.subplots()
    first, *others = title(table)
    head(axes, style, f"Pareto front: {first}", *others)
    scenarios, rates, seconds = table.sample(_MOST_DOTS)
    scale, unit = time_unit_of(seconds)
    rate_scale, rate_unit = rate_unit_of(rates)
    groups = [axis for axis in table.axes if not axis.numeric and 1 < len(axis.texts) <= 8]
    by = groups[0] if groups else None
    owner = by.positions(scenarios) if by else np.zeros_like(scenarios)
    colours = series_colours(by.texts if by else ("",))
    for i in np.unique(owner).tolist():
        mine = owner == i
        axes.scatter(
            rates[mine] / rate_scale,
            seconds[mine] / scale,
            s=9 if len(rates) <= 2_000 else 2,
            color=colours[i],
            label=by.texts[i] if by else "scenario",
            linewidths=0,
            alpha=0.8,
            rasterized=len(rates) > 2_000,
        )
    x = np.array([point.total_bandwidth for point in front]) / rate_scale
    y = np.array([point.step_time_ps for point in front]) / PS_PER_S / scale
    axes.step(
        x, y, where="post", color="black", linewidth=0.8 * style.line_pt, label="Pareto front"
    )
    ringed = slice(None) if len(front) <= _MOST_RINGS else _spread(len(front))
    axes.plot(x[ringed], y[ringed], "o", mfc="none", mec="black", markersize=3 * style.line_pt + 1)
    _label_front(axes, table, front, x, y, style)
    axes.set_xlabel(f"bandwidth of all links, both directions ({rate_unit})")
    axes.set_ylabel(f"step time ({unit})")
    axes.grid()
    handles = axes.get_legend_handles_labels()[0]
    legend(figure, style, handles, title=axis_words(by.name) if by else "")
    return figure


def _label_front(
    axes: "Axes",
    table: SweepTable,
    front: Sequence[ParetoPoint],
    x: Floats,
    y: Floats,
    style: FigureStyle,
) -> None:
    """Settings of a few points of the front below it, where no scenario can be.

    What all points of the front have in common is said once, in the corner.
    """
    settings = [table.settings(point.scenario) for point in front]
    several = [axis.name for axis in table.axes if len(axis.texts) > 1]
    shared = {name for name in several if len({each[name] for each in settings}) == 1}
    if len(front) == 1:
        shared = set()
    for i in _spread(len(front), 3 if style.narrow else _MOST_LABELS):
        axes.annotate(
            "\n".join(short_value(settings[i][name]) for name in several if name not in shared),
            (x[i], y[i]),
            xytext=(-5, -4),
            textcoords="offset points",
            fontsize=0.7 * style.font_pt,
            ha="right",
            va="top",
            color="#333333",
        )
    axes.margins(x=0.3 if style.narrow else 0.18, y=0.2 if style.narrow else 0.12)
    common = [
        f"{axis_words(name)} {short_value(settings[0][name])}" for name in several if name in shared
    ]
    if common:
        text = "front: " + ", ".join(common)
        axes.text(
            0.99, 0.98, text, transform=axes.transAxes, ha="right", va="top", fontsize="small"
        )


def _spread(count: int, most: int = _MOST_LABELS) -> list[int]:
    """A few of `count` places, the ends among them."""
    few = np.linspace(0, count - 1, min(most, count)).round().astype(np.int64)
    return list(dict.fromkeys(few.tolist()))
