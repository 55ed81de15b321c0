"""The figure of a topology. Imports matplotlib only when it is drawn."""

from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.plots import write_figure
from stepsim.topology import LinkClass, Topology
from stepsim.topology_picture import Edge, Picture, picture
from stepsim.units import format_bandwidth, format_time_ps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#4477aa", "#cc6677", "#228833", "#aa7799", "#ee9944", "#66aabb", "#777777")
_LEAST_IN, _MOST_IN = 4.0, 14.0


def draw_topology(topology: Topology, path: Path) -> None:
    """Draw NPUs, switches and cables into a PNG, SVG or PDF file.

    Raises OutputError when the file's suffix is unknown or it cannot be written.
    """
    write_figure(lambda: topology_figure(topology), path, style={"font.size": 10})


def topology_figure(topology: Topology) -> "Figure":
    """The figure that `draw_topology` writes."""
    from matplotlib.figure import Figure

    drawn = picture(topology)
    xs, ys = zip(*drawn.places.values(), strict=True)
    figure = Figure(figsize=_size(max(xs) - min(xs), max(ys) - min(ys)), layout="tight")
    _draw(figure.add_subplot(), topology, drawn)
    return figure


def _size(width: float, height: float) -> tuple[float, float]:
    """Inches: half an inch per unit, within limits, and room for the legend."""
    wide = min(_MOST_IN, max(_LEAST_IN, 0.5 * width + 1.5))
    tall = min(_MOST_IN, max(2.5, wide * height / width if width else 2.5, 0.45 * height + 1.0))
    return wide + 2.6, tall + 0.8


def _draw(axes: "Axes", topology: Topology, drawn: Picture) -> None:
    for edge in drawn.edges:
        _draw_cable(axes, drawn, edge)
    size = 220 if len(drawn.places) <= 80 else 90
    npus = {n: p for n, p in drawn.places.items() if n.startswith("npu")}
    switches = {n: p for n, p in drawn.places.items() if n not in npus}
    for nodes, marker, colour in ((npus, "o", "#ffffff"), (switches, "s", "#dddddd")):
        if nodes:
            xs, ys = zip(*nodes.values(), strict=True)
            axes.scatter(xs, ys, s=size, marker=marker, c=colour, edgecolors="#333333", zorder=3)
    font = 7.0 if len(npus) <= 80 else 5.0
    for name, (x, y) in npus.items():
        axes.text(x, y, name[3:], ha="center", va="center", fontsize=font, zorder=4)
    if len(switches) <= 24:
        for name, (x, y) in switches.items():
            axes.annotate(
                name, (x, y), (0, 9), textcoords="offset points", ha="center", fontsize=6, zorder=4
            )
    _finish(axes, topology, drawn)


def _draw_cable(axes: "Axes", drawn: Picture, edge: Edge) -> None:
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(
        FancyArrowPatch(
            drawn.places[edge.ends[0]],
            drawn.places[edge.ends[1]],
            arrowstyle="-",
            connectionstyle=f"arc3,rad={0.25 if edge.arc else 0}",
            color=_COLOURS[edge.link_class % len(_COLOURS)],
            linewidth=min(4.0, 0.8 + 0.8 * (edge.cables - 1)),
            alpha=0.4 if edge.arc else 0.75,
            zorder=1,
            shrinkA=0,
            shrinkB=0,
        )
    )


def _finish(axes: "Axes", topology: Topology, drawn: Picture) -> None:
    from matplotlib.lines import Line2D

    used = sorted({edge.link_class for edge in drawn.edges})
    handles = [
        Line2D([], [], color=_COLOURS[c % len(_COLOURS)], label=_label(topology.link_classes[c]))
        for c in used
    ]
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=7, frameon=False
    )
    title = f"{topology.name}: {topology.npus:,} NPUs"
    axes.set_title(f"{title}\n{drawn.note}" if drawn.note else title, fontsize=9, pad=16)
    axes.set_aspect("equal")
    axes.margins(0.06)
    axes.autoscale_view()
    axes.set_axis_off()


def _label(link: LinkClass) -> str:
    return f"{link.name}\n{format_bandwidth(link.bandwidth)}, {format_time_ps(link.latency_ps)}"
