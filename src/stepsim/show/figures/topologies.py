"""The figure of a topology."""

from collections.abc import Mapping
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.base.units import format_bandwidth, format_time_ps
from stepsim.network.topology import LinkClass, Topology
from stepsim.show.figures.drawing import legend, make_figure
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.topology_picture import Edge, Picture, Point, picture
from stepsim.show.palette import series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEGEND_IN = 2.2
_MOST_UNIT_EM = 5.0  # of the distance between neighbours
_LEAST_IN, _MOST_IN = 1.2, 9.0
_LEAST_NUMBER_PT = 3.5
_MOST_THICK = 200


def draw_topology(
    topology: Topology, path: Path, *, style: FigureStyle | str = FigureStyle.SCREEN
) -> None:
    """Draw NPUs, switches and cables into a PNG, SVG or PDF file.

    Raises OutputError when the file's suffix is unknown or it cannot be written.
    """
    make_figure(lambda chosen: topology_figure(topology, chosen), path, style)


def topology_figure(topology: Topology, style: FigureStyle) -> "Figure":
    """The figure that `draw_topology` writes."""
    drawn = picture(topology)
    xs, ys = zip(*drawn.places.values(), strict=True)
    figure = style.figure(0.0)
    width = style.width_in - (0 if style.narrow else _LEGEND_IN)
    unit = min(width / (max(xs) - min(xs) + 2), _MOST_UNIT_EM * style.font_pt / 72)
    height = min(_MOST_IN, max(_LEAST_IN, unit * (max(ys) - min(ys) + 2)))
    figure.set_figheight(height + (0.9 if style.narrow else 0.5))
    _draw(figure, topology, drawn, style, unit * 72)
    return figure


def _draw(
    figure: "Figure", topology: Topology, drawn: Picture, style: FigureStyle, unit_pt: float
) -> None:
    """Nodes as large as their distance `unit_pt` allows, numbered where the numbers fit."""
    axes = figure.subplots()
    for edge in drawn.edges:
        _draw_cable(axes, drawn, edge)
    across = min(2.0 * style.font_pt, 0.62 * unit_pt)
    npus = {n: p for n, p in drawn.places.items() if n.startswith("npu")}
    switches = {n: p for n, p in drawn.places.items() if n not in npus}
    for nodes, marker, colour in ((npus, "o", "#ffffff"), (switches, "s", "#dddddd")):
        if nodes:
            xs, ys = zip(*nodes.values(), strict=True)
            axes.scatter(
                xs, ys, s=across**2, marker=marker, c=colour, edgecolors="#333333", zorder=3
            )
    digits = max((len(name) - 3 for name in npus), default=1)
    font = min(0.7 * style.font_pt, across / (0.65 * digits + 0.4))
    for name, (x, y) in npus.items() if font >= _LEAST_NUMBER_PT else ():
        axes.text(x, y, name[3:], ha="center", va="center", fontsize=font, zorder=4)
    if len(switches) <= 24:
        font = min(0.75 * style.font_pt, _fitting_pt(switches, unit_pt))
        if font >= _LEAST_NUMBER_PT:
            _name_switches(axes, switches, drawn.places, font, across)
    _finish(figure, axes, topology, drawn, style)


def _fitting_pt(switches: Mapping[str, Point], unit_pt: float) -> float:
    """Size of type at which the names of neighbours in a layer do not touch."""
    layers = sorted((y, x, name) for name, (x, y) in switches.items())
    room = [
        (right - left) * unit_pt / (0.62 * max(len(one), len(other)) + 0.5)
        for (y, left, one), (beside, right, other) in pairwise(layers)
        if y == beside
    ]
    return min(room, default=inf)


def _name_switches(
    axes: "Axes",
    switches: Mapping[str, Point],
    everything: Mapping[str, Point],
    font: float,
    across: float,
) -> None:
    """Names above the switches, or below the lowest ones, on white that hides cables."""
    lowest = min((y for _, y in everything.values()), default=0.0)
    for name, (x, y) in switches.items():
        below = y == lowest and len({y for _, y in everything.values()}) > 1
        axes.annotate(
            name,
            (x, y),
            (0, -across / 2 - 2 if below else across / 2 + 2),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize=font,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8},
        )


def _draw_cable(axes: "Axes", drawn: Picture, edge: Edge) -> None:
    from matplotlib.patches import FancyArrowPatch

    crowded = len(drawn.edges) > _MOST_THICK
    axes.add_patch(
        FancyArrowPatch(
            drawn.places[edge.ends[0]],
            drawn.places[edge.ends[1]],
            arrowstyle="-",
            connectionstyle=f"arc3,rad={edge.bend}",
            color=_colour(edge.link_class),
            linewidth=min(4.0, 0.8 + 0.8 * (edge.cables - 1)) * (0.5 if crowded else 1),
            alpha=0.4 if edge.arc or crowded else 0.75,
            zorder=1,
            shrinkA=0,
            shrinkB=0,
        )
    )


def _finish(
    figure: "Figure", axes: "Axes", topology: Topology, drawn: Picture, style: FigureStyle
) -> None:
    from matplotlib.lines import Line2D

    used = sorted({edge.link_class for edge in drawn.edges})
    handles = [
        Line2D([], [], color=_colour(c), label=_label(topology.link_classes[c])) for c in used
    ]
    legend(figure, style, handles)
    title = f"{topology.name}: {topology.npus:,} NPUs", drawn.note
    figure.suptitle(style.wrapped(filter(None, title)), x=0.01, ha="left")
    axes.set_aspect("equal")
    axes.margins(x=0.03, y=0.03 + 0.25 / max(1.0, len({y for _, y in drawn.places.values()})))
    axes.update_datalim([edge.apex(drawn.places) for edge in drawn.edges])
    axes.autoscale_view()
    axes.set_axis_off()


def _colour(link_class: int) -> str:
    return series_colour(link_class)


def _label(link: LinkClass) -> str:
    return f"{link.name}\n{format_bandwidth(link.bandwidth)}, {format_time_ps(link.latency_ps)}"
