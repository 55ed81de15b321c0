"""Timelines of runs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepsim.base import garbage as collector
from stepsim.base.records import dataclass
from stepsim.base.units import format_time_ps, time_unit
from stepsim.engine.layouts import Times
from stepsim.engine.timeline import TaskSpan, Timeline
from stepsim.graph.programs import SegmentKind
from stepsim.parallel.schedules import OrderEntry
from stepsim.results.critical_path import critical_path
from stepsim.results.report import Report
from stepsim.show.figures.drawing import head, legend, make_figure
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import (
    ACTION_COLOURS,
    ACTION_NAMES,
    IDLE,
    PATH,
    PER_STEP,
    PHASE_SHADES,
    SHADES,
    TRANSFER,
    ink_on,
    shade,
)
from stepsim.workload.axes import Stream
from stepsim.workload.rows import Phase

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MOST_EM = 80.0  # height of the rows of a figure
_ROW_EM, _PAPER_ROW_EM = 2.4, 1.6
_NUMBER_EM = 0.7  # of a row's microbatch numbers
_LEAST_NUMBER_PT = 4.0
_LEAST_BORDERED_DOTS = 6
_BESIDE_EM = 4.5  # what ticks and label take of the width


class _Box(NamedTuple):
    """A rectangle in a row from `start` to `end` ps; a fused pair's lower half has `below`."""

    start: int
    end: int
    colour: str
    text: str = ""
    below: str = ""


@dataclass(slots=True, kw_only=True)
class _Lane:
    """One row: boxes, transfers along its lower edge, the critical path along its upper edge.

    `arrows` are the messages it sends: start and end in ps, and the row they go to. `hidden` boxes
    are narrower than a pixel and merged with their neighbours.
    """

    label: str
    bordered: bool = False
    boxes: list[_Box] = field(default_factory=list)
    transfers: list[_Box] = field(default_factory=list)
    path: list[_Box] = field(default_factory=list)
    arrows: list[tuple[int, int, int]] = field(default_factory=list)
    hidden: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """The rows of one run."""

    title: tuple[str, ...]
    axis: str
    lanes: tuple[_Lane, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """What all panels share: the style, and the time they span."""

    style: FigureStyle
    width_ps: int

    @property
    def plot_pt(self) -> float:
        """Width of the plots in points."""
        return self.style.width_in * 72 - _BESIDE_EM * self.style.font_pt

    @property
    def dots(self) -> float:
        """Dots along the time axis."""
        return self.plot_pt / 72 * self.style.dpi

    @property
    def scale(self) -> int:
        """Picoseconds per unit of the time axis."""
        return self._unit[0]

    @property
    def unit(self) -> str:
        """Unit of the time axis."""
        return self._unit[1]

    @property
    def _unit(self) -> tuple[int, str]:
        return time_unit(self.width_ps)


@collector.paused()
def plot_timelines(
    runs: Sequence[tuple[Timeline, Report]],
    path: str | Path | None = None,
    *,
    messages: bool = False,
    style: FigureStyle | str = FigureStyle.SCREEN,
) -> "Figure":
    """Draw runs above each other on one time axis.

    A row is a pipeline stage, or a stream where there is no pipeline. Microbatch numbers are
    written where they fit. With `messages` an arrow shows every message between stages. Raises
    OutputError when the file cannot be written or its suffix names no figure format.
    """
    draw = partial(timelines_figure, runs, messages=messages)
    return make_figure(draw, path, style)


def timelines_figure(
    runs: Sequence[tuple[Timeline, Report]], style: FigureStyle, *, messages: bool = False
) -> "Figure":
    """The figure that `plot_timelines` writes."""
    width_ps = max(report.step_time_ps for _, report in runs) or 1
    scene = _Scene(style=style, width_ps=width_ps)
    panels = [_panel(timeline, report, scene, messages=messages) for timeline, report in runs]
    rows = [len(panel.lanes) for panel in panels]
    em_in = style.font_pt / 72
    row_em = _ROW_EM if style is FigureStyle.SCREEN else _PAPER_ROW_EM
    row_in = min(row_em, _MOST_EM / sum(rows)) * em_in
    figure = style.figure(0.0)
    figure.set_figheight(em_in * (5 + 4.5 * len(panels)) + row_in * sum(rows))
    every = figure.subplots(len(panels), squeeze=False, sharex=True, height_ratios=rows)[:, 0]
    for i, (axes, panel) in enumerate(zip(every, panels, strict=True)):
        repeated = i > 0 and panel.title[0] == panels[0].title[0]
        head(axes, style, *panel.title[repeated:], share=0.9)
        _draw_panel(axes, panel, scene, row_in)
        _draw_arrows(axes, panel, scene)
    every[-1].set_xlim(0, width_ps / scene.scale)
    every[-1].set_xlabel(f"time ({scene.unit})")
    _legend(figure, panels, style)
    return figure


def _panel(timeline: Timeline, report: Report, scene: _Scene, *, messages: bool) -> _Panel:
    if report.plan.pp > 1:
        lanes = _stage_lanes(timeline, scene, messages=messages)
    else:
        lanes = _stream_lanes(timeline, scene)
    every = tuple(lanes)
    axis = "stage" if report.plan.pp > 1 else ""
    return _Panel(title=_title(report, sum(lane.hidden for lane in every)), axis=axis, lanes=every)


def _title(report: Report, hidden: int) -> tuple[str, ...]:
    """The run, its numbers, and how many actions are too narrow to be seen."""
    plan = report.plan
    count = f"{plan.microbatches} microbatch" + ("es" if plan.microbatches > 1 else "")
    sent = f", {report.p2p} p2p" if plan.pp > 1 else ""
    return (
        f"{report.workload} on {report.topology}, {plan.words}",
        f"{report.schedule}, {count}{sent}: "
        f"step {format_time_ps(report.step_time_ps)}, bubble {report.bubble_fraction:.1%}",
        f"{hidden} actions narrower than a dot are drawn by majority" if hidden else "",
    )


def _stage_lanes(timeline: Timeline, scene: _Scene, *, messages: bool) -> Iterator[_Lane]:
    """The first rank of every stage: its entries, its per-step work, its transfers."""
    plan = timeline.graph.plan
    path = critical_path(timeline)
    for stage in range(plan.pp):
        lane = _Lane(label=str(stage), bordered=True)
        cohort, column = timeline.place(stage * plan.stage_ranks)
        entries, segments = cohort.laid.program.entries, cohort.laid.program.segments
        chunks = 1 + max((a.chunk for e in entries for a in e.parts()), default=0)
        start, end = (times[:, column] for times in cohort.entry_times)
        shown = _visible(start, end, scene)
        lane.boxes = [_entry_box(entries[i], a, b, chunks) for i, a, b in shown]
        lane.hidden = len(entries) - len(shown)
        start, end = (times[:, column] for times in cohort.segment_times())
        if messages:
            sent = [i for i, segment in enumerate(segments) if segment.kind is SegmentKind.SEND]
            lane.arrows = [(int(start[i]), int(end[i]), segments[i].peer_stage) for i in sent]
        for i, segment in enumerate(segments):
            if segment.kind is SegmentKind.PER_STEP:
                lane.boxes.append(_Box(start=int(start[i]), end=int(end[i]), colour=PER_STEP))
        beside = [
            i for i, s in enumerate(segments) if s.entry < 0 and s.kind is not SegmentKind.PER_STEP
        ]
        moved = _visible(start[beside], end[beside], scene)
        lane.transfers = [_Box(start=a, end=b, colour=TRANSFER) for _, a, b in moved]
        mine = [step for step in path if plan.stage_of(step.rank) == stage]
        on_path = _visible(
            np.array([step.start_ps for step in mine], dtype=np.int64),
            np.array([step.end_ps for step in mine], dtype=np.int64),
            scene,
        )
        lane.path = [_Box(start=a, end=b, colour=PATH) for _, a, b in on_path]
        yield lane


def _visible(start: Times, end: Times, scene: _Scene) -> list[tuple[int, int, int]]:
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


def _entry_box(entry: OrderEntry, start: int, end: int, chunks: int) -> _Box:
    """An action, shaded by chunk; of a fused pair the forward above, the backward below."""
    shades = [shade(ACTION_COLOURS[a.kind], 0.75 * a.chunk / chunks) for a in entry.parts()]
    numbers = "/".join(str(action.microbatch) for action in entry.parts())
    return _Box(start=start, end=end, colour=shades[0], text=numbers, below="".join(shades[1:]))


def _stream_lanes(timeline: Timeline, scene: _Scene) -> Iterator[_Lane]:
    """Rank 0: a row per stream it uses, boxes coloured by phase."""
    spans: dict[Stream, list[TaskSpan]] = {}
    for span in timeline.spans([0]):
        spans.setdefault(span.stream, []).append(span)
    for stream in sorted(spans):
        mine = spans[stream]
        lane = _Lane(label=stream.name.lower().replace("_", " "))
        start = np.array([span.start_ps for span in mine], dtype=np.int64)
        end = np.array([span.end_ps for span in mine], dtype=np.int64)
        for i, a, b in _visible(start, end, scene):
            colour = SHADES[PHASE_SHADES[Phase(mine[i].phase)]][1] if mine[i].entry else PER_STEP
            lane.boxes.append(_Box(start=a, end=b, colour=colour))
        lane.hidden = len(mine) - len(lane.boxes)
        yield lane


def _draw_panel(axes: "Axes", panel: _Panel, scene: _Scene, row_in: float) -> None:
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


def _draw_lane(
    axes: "Axes", lane: _Lane, row: int, scene: _Scene, row_in: float, edge: str
) -> None:
    """Boxes over an idle background."""
    scale = scene.scale
    _draw(axes, [_Box(start=0, end=scene.width_ps, colour=IDLE)], row - 0.4, 0.8, scale, "none")
    _draw(axes, lane.boxes, row - 0.4, 0.8, scale, edge)
    fused = [_Box(start=b.start, end=b.end, colour=b.below) for b in lane.boxes if b.below]
    _draw(axes, fused, row, 0.4, scale, "none")
    framed = [_Box(start=b.start, end=b.end, colour="none") for b in lane.boxes if b.below]
    _draw(axes, framed, row - 0.4, 0.8, scale, "black")
    _draw(axes, lane.transfers, row + 0.3, 0.1, scale, "none")
    _draw(axes, lane.path, row - 0.48, 0.08, scale, "none")
    font = min(_NUMBER_EM * scene.style.font_pt, row_in * 72 * 0.5)
    points_per_ps = scene.plot_pt / scene.width_ps
    for box in lane.boxes if font >= _LEAST_NUMBER_PT else ():
        if 0 < (len(box.text) + 0.2) * font * 0.64 < (box.end - box.start) * points_per_ps:
            middle = (box.start + box.end) / 2 / scale
            ink = ink_on(box.colour)
            axes.text(middle, row, box.text, ha="center", va="center", fontsize=font, color=ink)


def _wide(boxes: Sequence[_Box], scene: _Scene) -> bool:
    """Whether most boxes keep their colour when each loses a dot to its border."""
    widths = [box.end - box.start for box in boxes]
    dot = scene.width_ps / scene.dots
    return bool(widths) and float(np.median(widths)) > _LEAST_BORDERED_DOTS * dot


def _draw_arrows(axes: "Axes", panel: _Panel, scene: _Scene) -> None:
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
    axes: "Axes", boxes: Sequence[_Box], low: float, height: float, scale: int, edge: str
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


def _legend(figure: "Figure", panels: Sequence[_Panel], style: FigureStyle) -> None:
    """Only what the figure shows."""
    from matplotlib.patches import Patch

    lanes = [lane for panel in panels for lane in panel.lanes]
    boxes = [box for lane in lanes for box in (*lane.boxes, *lane.transfers, *lane.path)]
    used = {box.colour for box in boxes} | {box.below for box in boxes}
    named = {ACTION_NAMES[kind]: colour for kind, colour in ACTION_COLOURS.items()}
    named |= {"per step": PER_STEP, "transfer": TRANSFER, "critical path": PATH}
    shown = {name: colour for name, colour in named.items() if colour in used} | {"idle": IDLE}
    handles = [Patch(color=colour, label=name) for name, colour in shown.items()]
    legend(figure, style, handles, below=True)
