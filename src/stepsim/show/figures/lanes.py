"""Rows of boxes over time: what all timelines are drawn of, simulated ones and recorded ones."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.base.structs import Names, Noun
from stepsim.base.units import time_unit
from stepsim.show.figures.drawing import head, idle_look, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import (
    ACTION_COLOURS,
    ACTION_NAMES,
    PART_COLOURS,
    PATH,
    PER_STEP,
    TRANSFER,
    ink_on,
)
from stepsim.workload.axes import Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

_MOST_EM = 80.0  # height of the rows of a figure
_ROW_EM, _PAPER_ROW_EM = 2.4, 1.6
_NUMBER_EM = 0.7  # of a row's microbatch numbers
_LEAST_NUMBER_PT = 4.0
_LEAST_BORDERED_DOTS = 6
_BESIDE_EM = 4.5  # what ticks and label take of the width


class Box(NamedTuple):
    """A rectangle in a row from `start` to `end` ps; a fused pair's lower half has `below`."""

    start: int
    end: int
    colour: str
    text: str = ""
    below: str = ""


class Lane(Struct, kw_only=True):
    """One row: boxes, transfers along its lower edge, the critical path along its upper edge.

    `slowed` is compute that communication slowed, below the critical path.
    `arrows` are the messages it sends: start and end in ps, and the row they go to. `hidden` boxes
    are narrower than a pixel and merged with their neighbours.
    """

    label: str
    bordered: bool = False
    boxes: list[Box] = []
    transfers: list[Box] = []
    path: list[Box] = []
    slowed: list[Box] = []
    arrows: list[tuple[int, int, int]] = []
    hidden: int = 0


class TimelinePanel(Noun):
    """The rows of one run."""

    title: Names
    axis: str
    lanes: tuple[Lane, ...]


class Scene(Noun):
    """What all panels share: the style, and the time they span, at least 1 ps."""

    style: FigureStyle
    width_ps: int

    @property
    def scale(self) -> int:
        """Picoseconds of a unit of the time axis."""
        return time_unit(self.width_ps)[0]

    @property
    def plot_pt(self) -> float:
        """Width of the plots in points."""
        return self.style.width_in * 72 - _BESIDE_EM * self.style.font_pt

    @property
    def dots(self) -> float:
        """Dots along the time axis."""
        return self.plot_pt / 72 * self.style.dpi


def lanes_figure(panels: Sequence[TimelinePanel], scene: Scene) -> "Figure":
    """Panels above each other on one time axis."""
    style, (scale, unit) = scene.style, time_unit(scene.width_ps)
    rows = [len(panel.lanes) for panel in panels]
    em_in = style.font_pt / 72
    row_em = _ROW_EM if style is FigureStyle.SCREEN else _PAPER_ROW_EM
    row_in = min(row_em, _MOST_EM / sum(rows)) * em_in
    figure = style.figure(0.0)
    lanes_in = em_in * (5 + 4.5 * len(panels)) + row_in * sum(rows)
    figure.set_figheight(lanes_in)
    every = figure.subplots(len(panels), squeeze=False, sharex=True, height_ratios=rows)[:, 0]
    for i, (axes, panel) in enumerate(zip(every, panels, strict=True)):
        repeated = i > 0 and panel.title[0] == panels[0].title[0]
        head(axes, style, *panel.title[repeated:], share=0.9)
        _draw_panel(axes, panel, scene, row_in)
        _draw_arrows(axes, panel, scene)
    every[-1].set_xlim(0, scene.width_ps / scale)
    every[-1].set_xlabel(f"time ({unit})")
    _legend(figure, panels, style)
    return figure


def visible(start: Ints, end: Ints, scene: Scene) -> list[tuple[int, int, int]]:
    """(number, start, end) of what can be seen of many spans.

    Where there are more spans than pixels, those narrower than a pixel are merged, pixel by
    pixel, under the longest one's number.
    """
    pixel = scene.width_ps / scene.dots
    narrow = (end - start < pixel) & (len(start) > scene.dots)
    wide, few = np.flatnonzero(~narrow), np.flatnonzero(narrow)
    found = list(zip(wide.tolist(), start[wide].tolist(), end[wide].tolist(), strict=True))
    if len(few):
        column = (start[few] / pixel).astype(np.int64)
        order = np.lexsort((start[few] - end[few], column))
        few = few[order]
        firsts = np.unique(column[order], return_index=True)[1]
        low = np.minimum.reduceat(start[few], firsts).tolist()
        high = np.maximum.reduceat(end[few], firsts).tolist()
        found += zip(few[firsts].tolist(), low, high, strict=True)
    return found


def _draw_panel(axes: "Axes", panel: TimelinePanel, scene: Scene, row_in: float) -> None:
    bordered = _wide([box for lane in panel.lanes if lane.bordered for box in lane.boxes], scene)
    for row, lane in enumerate(panel.lanes):
        _draw_lane(axes, lane, row, scene, row_in, "white" if bordered else "none")
    axes.set_ylim(len(panel.lanes) - 0.4, -0.6)
    every = max(1, math.ceil(scene.style.font_pt / 72 / row_in))
    step = next(n for n in (1, 2, 4, 8, 16, 32, 64, every) if n >= every)
    ticks = range(0, len(panel.lanes), step)
    axes.set_yticks(list(ticks), [panel.lanes[row].label for row in ticks])
    axes.set_ylabel(panel.axis)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _draw_lane(axes: "Axes", lane: Lane, row: int, scene: Scene, row_in: float, edge: str) -> None:
    """Boxes over an idle background."""
    from matplotlib.patches import Rectangle

    scale, idle = scene.scale, idle_look(scene.style)
    width = scene.width_ps / scale
    axes.add_artist(Rectangle((0, row - 0.4), width, 0.8, zorder=0, **idle))
    _draw(axes, lane.boxes, row - 0.4, 0.8, scale, edge)
    fused = [Box(start=b.start, end=b.end, colour=b.below) for b in lane.boxes if b.below]
    _draw(axes, fused, row, 0.4, scale, "none")
    framed = [Box(start=b.start, end=b.end, colour="none") for b in lane.boxes if b.below]
    _draw(axes, framed, row - 0.4, 0.8, scale, "black")
    _draw(axes, lane.transfers, row + 0.3, 0.1, scale, "none")
    _draw(axes, lane.path, row - 0.48, 0.08, scale, "none")
    _draw(axes, lane.slowed, row - 0.4, 0.1, scale, "none")
    font = min(_NUMBER_EM * scene.style.font_pt, row_in * 72 * 0.5)
    points_per_ps = scene.plot_pt / scene.width_ps
    for box in lane.boxes if font >= _LEAST_NUMBER_PT else ():
        if 0 < (len(box.text) + 0.2) * font * 0.64 < (box.end - box.start) * points_per_ps:
            middle = (box.start + box.end) / 2 / scale
            ink = ink_on(box.colour)
            axes.text(middle, row, box.text, ha="center", va="center", fontsize=font, color=ink)


def _wide(boxes: Sequence[Box], scene: Scene) -> bool:
    """Whether most boxes keep their colour when each loses a dot to its border."""
    widths = [box.end - box.start for box in boxes]
    dot = scene.width_ps / scene.dots
    return bool(widths) and float(np.median(widths)) > _LEAST_BORDERED_DOTS * dot


def _draw_arrows(axes: "Axes", panel: TimelinePanel, scene: Scene) -> None:
    """An arrow from each message's start on the sender's row to its end on the receiver's."""
    arrows = [
        (start / scene.scale, row, (end - start) / scene.scale, peer - row)
        for row, lane in enumerate(panel.lanes)
        for start, end, peer in lane.arrows
    ]
    if arrows:
        x, y, dx, dy = np.array(arrows).T
        axes.quiver(
            x, y, dx, dy, angles="xy", scale_units="xy", scale=1, width=0.0008, color=TRANSFER
        )


def _draw(
    axes: "Axes", boxes: Sequence[Box], low: float, height: float, scale: int, edge: str
) -> None:
    """Rectangles of one row, without the autoscaling that `broken_barh` pays for."""
    if not boxes:
        return
    from matplotlib.collections import PolyCollection

    start, end = (np.array([getattr(b, side) for b in boxes]) / scale for side in ("start", "end"))
    low_edge, high_edge = np.full(len(boxes), low), np.full(len(boxes), low + height)
    corners = [(start, low_edge), (start, high_edge), (end, high_edge), (end, low_edge)]
    axes.add_collection(
        PolyCollection(
            list(np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)),
            facecolors=[box.colour for box in boxes],
            edgecolors=edge,
            linewidth=0.3,
        ),
        autolim=False,
    )


def _legend(figure: "FigureBase", panels: Sequence[TimelinePanel], style: FigureStyle) -> None:
    """Only what the figure shows."""
    from matplotlib.patches import Patch

    lanes = [lane for panel in panels for lane in panel.lanes]
    boxes = [
        box for lane in lanes for box in (*lane.boxes, *lane.transfers, *lane.path, *lane.slowed)
    ]
    used = {box.colour for box in boxes} | {box.below for box in boxes}
    named = {ACTION_NAMES[kind]: colour for kind, colour in ACTION_COLOURS.items()}
    named |= {"compute": PART_COLOURS[Part.COMPUTE], "host": PART_COLOURS[Part.HOST]}
    named |= {"optimizer and gradient sync": PER_STEP, "transfer": TRANSFER}
    named |= {"critical path": PATH, "slowed by communication": PART_COLOURS[Part.SLOWED]}
    shown = {name: colour for name, colour in named.items() if colour in used}
    handles = [Patch(color=colour, label=name) for name, colour in shown.items()]
    handles.append(Patch(label="idle", **idle_look(style)))
    legend(figure, style, handles, below=True)
