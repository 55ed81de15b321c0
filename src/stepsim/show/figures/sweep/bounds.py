"""What bounds the step, over two axes: compute, network, host or idle time."""

import math
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Floats
from stepsim.base.units import PS_PER_S
from stepsim.explore.sweep.sound import PART_COLUMNS
from stepsim.explore.sweep.table import SweepTable
from stepsim.show.figures.drawing import legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.sweep.maps import dress_map, panel_grid
from stepsim.show.figures.sweep.pictures import map_scales
from stepsim.show.figures.sweep.scales import Scale, time_unit_of
from stepsim.show.figures.sweep.views import FigureKind, PlotLayout, View, title
from stepsim.show.palette import PART_COLOURS, shade
from stepsim.workload.rows import Part, PartKind, parts_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Bound(IntEnum):
    """What a step is bound by; see `bounds_of`."""

    COMPUTE = 0
    NETWORK = 1
    IDLE = 2
    HOST = 3


_NETWORK_PARTS = parts_of(PartKind.EXPOSED)
_HOST_PARTS = parts_of(PartKind.LAUNCH)
_IDLE_PARTS = parts_of(PartKind.IDLE, PartKind.SKEW)
_COLOURS = {
    Bound.COMPUTE: PART_COLOURS[Part.COMPUTE],
    Bound.NETWORK: PART_COLOURS[Part.EXPOSED_DP],
    Bound.IDLE: PART_COLOURS[Part.TAIL],
    Bound.HOST: PART_COLOURS[Part.EXPOSED_HOST],
}
_NAMES = {
    Bound.COMPUTE: "compute-bound: at least half is work",
    Bound.NETWORK: "network-bound: exposed > idle",
    Bound.IDLE: "idle-bound: idle ≥ exposed",
    Bound.HOST: "host-bound: launches > exposed, idle",
}
_MOST_LEVELS = 10
_MANTISSAS = (
    np.arange(1, 10, 0.2),
    np.arange(1, 10, 0.5),
    (1, 1.5, 2, 3, 4, 6, 8),
    (1, 2, 5),
    (1,),
)


def bounds_of(parts: Floats) -> NDArray[np.int64]:
    """The `Bound` of each step from its parts, of shape (parts, ...), means over ranks.

    A step consists of work (compute and host time), exposed communication (a rank idles while a
    transfer it waits for is in flight: tp, ep, dp, pp), exposed launches (the host has not launched
    the next kernel yet) and idle time (nothing is in flight: head, inner, tail, and skew before a
    slower member of a collective). It is compute-bound when work takes at least half of it: then
    nothing but faster work can make it more than twice as fast. Else it is host-bound when the
    launches are the largest of the others, network-bound when more of it is exposed than idle, and
    idle-bound otherwise.
    """
    exposed, launches, idle = (
        parts[list(each)].sum(axis=0) for each in (_NETWORK_PARTS, _HOST_PARTS, _IDLE_PARTS)
    )
    other = np.where(exposed > idle, Bound.NETWORK, Bound.IDLE)
    other = np.where(launches > np.maximum(exposed, idle), Bound.HOST, other)
    lost = exposed + launches + idle
    return np.where(2 * lost <= parts.sum(axis=0), Bound.COMPUTE, other)


def bound_figure(table: SweepTable, view: View, style: FigureStyle) -> "Figure":
    """A map per value of `view.by` of what bounds the step, with lines of equal step time."""
    x, y = map_scales(view)
    parts = table.fastest(view.shown, PART_COLUMNS) / PS_PER_S
    parts = parts[..., None] if view.by is None else parts
    scale, unit = time_unit_of(parts.sum(axis=0))
    levels = _levels(parts.sum(axis=0) / scale)
    figure = style.figure(0.0)
    for i, axes in enumerate(panel_grid(figure, view, style)):
        _draw_bounds(axes, x, y, parts[..., i] / scale, levels, style)
    figure.suptitle(
        style.wrapped([*title(table, view), f"lines: step time in {unit}"]), x=0.01, ha="left"
    )
    _legend(figure, parts, style)
    return figure


def _draw_bounds(
    axes: "Axes", x: Scale, y: Scale, parts: Floats, levels: Floats, style: FigureStyle
) -> None:
    from matplotlib.colors import ListedColormap

    parts = parts[:, x.order][:, :, y.order]
    steps = parts.sum(axis=0)
    failed = np.isnan(steps)
    found = np.ma.masked_array(bounds_of(np.nan_to_num(parts)), failed)
    axes.pcolormesh(
        x.edges,
        y.edges,
        found.T,
        cmap=ListedColormap([_tint(bound) for bound in Bound]),
        vmin=-0.5,
        vmax=len(Bound) - 0.5,
        rasterized=True,
    )
    dress_map(axes, x, y, style)
    if min(steps.shape) > 1 and len(levels):
        lines = axes.contour(
            x.ascending,
            y.ascending,
            np.ma.masked_invalid(steps.T),
            levels=levels,
            colors="black",
            linewidths=0.6 * style.line_pt,
        )
        axes.clabel(lines, fontsize=0.75 * style.font_pt, fmt=lambda level: f"{level:.4g}")


def _levels(steps: Floats) -> Floats:
    """At most ten round step times between the least and the most."""
    least, most = float(np.nanmin(steps)), float(np.nanmax(steps))
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    for mantissas in _MANTISSAS:
        levels = [m * 10.0**power for power in powers for m in mantissas]
        found = np.array([level for level in levels if least < level < most])
        if len(found) <= _MOST_LEVELS:
            break
    return found


def _tint(bound: Bound) -> str:
    return shade(_COLOURS[bound], 0.35)


def _legend(figure: "Figure", parts: Floats, style: FigureStyle) -> None:
    from matplotlib.patches import Patch

    known = ~np.isnan(parts.sum(axis=0))
    used = set(bounds_of(np.nan_to_num(parts))[known].tolist())
    shown = [bound for bound in Bound if bound in used]
    handles = [Patch(color=_tint(bound), label=_NAMES[bound]) for bound in shown]
    legend(figure, style, handles, below=True)


BOUND = FigureKind(name="bound", draw=bound_figure, layout=PlotLayout.MAP, of_parts=True)
