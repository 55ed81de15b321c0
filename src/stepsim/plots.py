"""Figures. The only module that imports matplotlib, and only when a figure is drawn."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stepsim import collector
from stepsim.critical_path import critical_path
from stepsim.execution import Times
from stepsim.formats.outputs import check_figure_path, write_whole
from stepsim.fragments import Stream
from stepsim.program import SegmentKind
from stepsim.report import Report
from stepsim.schedules import ActionKind, Entry
from stepsim.timeline import Span, Timeline
from stepsim.units import format_time_ps
from stepsim.workload import Phase

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_COLOURS = {
    ActionKind.FORWARD: "#4477aa",
    ActionKind.BACKWARD: "#ee9944",
    ActionKind.INPUT_GRAD: "#cc6677",
    ActionKind.WEIGHT_GRAD: "#77aa66",
}
_NAMES = {
    ActionKind.FORWARD: "forward",
    ActionKind.BACKWARD: "backward",
    ActionKind.INPUT_GRAD: "input gradient",
    ActionKind.WEIGHT_GRAD: "weight gradient",
}
_PHASES = {
    Phase.FORWARD: _COLOURS[ActionKind.FORWARD],
    Phase.INPUT_GRAD: _COLOURS[ActionKind.INPUT_GRAD],
    Phase.WEIGHT_GRAD: _COLOURS[ActionKind.WEIGHT_GRAD],
}
_PER_STEP, _TRANSFER, _IDLE, _PATH = "#aa7799", "#444444", "#e9e9e9", "#000000"
_SCALES = ((10**12, "s"), (10**9, "ms"), (10**6, "us"), (10**3, "ns"), (1, "ps"))
_WIDTH_IN, _DPI = 12.0, 150
_MAX_HEIGHT_IN = 16.0
_MAX_ROW_IN = 0.36
_FONT_PT = 7.0
_PLOT_SHARE = 0.88
_PIXELS = _WIDTH_IN * _DPI * _PLOT_SHARE


class Box(NamedTuple):
    """A rectangle in a row from `start` to `end` ps; a fused pair's lower half has `below`."""

    start: int
    end: int
    colour: str
    text: str = ""
    below: str = ""


@dataclass(slots=True, kw_only=True)
class Lane:
    """One row: boxes, transfers along its lower edge, the critical path along its upper edge.

    `arrows` are the messages it sends: start and end in ps, and the row they go to. `hidden` boxes
    are narrower than a pixel and merged with their neighbours.
    """

    label: str
    bordered: bool = False
    boxes: list[Box] = field(default_factory=list)
    transfers: list[Box] = field(default_factory=list)
    path: list[Box] = field(default_factory=list)
    arrows: list[tuple[int, int, int]] = field(default_factory=list)
    hidden: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The rows of one run."""

    title: str
    lanes: tuple[Lane, ...]


@collector.paused()
def plot_timelines(
    runs: Sequence[tuple[Timeline, Report]], path: Path, *, messages: bool = False
) -> None:
    """Draw runs above each other on one time axis.

    A row is a pipeline stage, or a stream where there is no pipeline. Microbatch numbers are
    written where they fit. With `messages` an arrow shows every message between stages. Raises
    OutputError when the file cannot be written or its suffix names no figure format.
    """
    write_figure(lambda: timelines_figure(runs, messages=messages), path)


def write_figure(
    draw: Callable[[], "Figure"],
    path: Path,
    *,
    dpi: int = _DPI,
    style: Mapping[Any, Any] = MappingProxyType({}),
) -> None:
    """Draw a figure in stepsim's style into a file that is the same every time.

    `style` are matplotlib's parameters that this figure has of its own. Raises OutputError when the
    file cannot be written or its suffix names no figure format.
    """
    from matplotlib import rc_context

    check_figure_path(path)
    kind = path.suffix[1:].lower()
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    data = io.BytesIO()
    with rc_context({"svg.hashsalt": "stepsim", "font.size": 9, **style}):
        draw().savefig(data, format=kind, dpi=dpi, metadata=undated)
    write_whole(path, data.getvalue())


def timelines_figure(
    runs: Sequence[tuple[Timeline, Report]], *, messages: bool = False
) -> "Figure":
    """The figure that `plot_timelines` writes."""
    from matplotlib.figure import Figure

    width_ps = max(report.step_time_ps for _, report in runs) or 1
    panels = [_panel(timeline, report, width_ps, messages=messages) for timeline, report in runs]
    rows = [len(panel.lanes) for panel in panels]
    fixed = 0.75 + 0.6 * len(panels)
    row_in = min(_MAX_ROW_IN, (_MAX_HEIGHT_IN - fixed) / sum(rows))
    figure = Figure(figsize=(_WIDTH_IN, fixed + row_in * sum(rows)), layout="constrained")
    every = figure.subplots(len(panels), squeeze=False, sharex=True, height_ratios=rows)[:, 0]
    scale, unit = next(s for s in _SCALES if width_ps >= s[0] or s[0] == 1)
    for axes, panel in zip(every, panels, strict=True):
        _draw_panel(axes, panel, width_ps, scale, row_in)
        _draw_arrows(axes, panel, scale)
    every[-1].set_xlim(0, width_ps / scale)
    every[-1].set_xlabel(f"time ({unit})")
    _legend(figure, panels)
    return figure


def _panel(timeline: Timeline, report: Report, width_ps: int, *, messages: bool) -> Panel:
    if report.plan.pp > 1:
        lanes = _stage_lanes(timeline, width_ps, messages=messages)
    else:
        lanes = _stream_lanes(timeline, width_ps)
    return Panel(title=_title(report), lanes=tuple(lanes))


def _title(report: Report) -> str:
    plan = report.plan
    shape = f"{plan.npus} NPUs (tp {plan.tp}, dp {plan.dp}, pp {plan.pp}, ep {plan.ep})"
    count = f"{plan.microbatches} microbatch" + ("es" if plan.microbatches > 1 else "")
    sent = f", {report.p2p} p2p" if plan.pp > 1 else ""
    return (
        f"{report.workload} on {report.topology}, {shape}\n"
        f"{report.schedule}, {count}{sent}: "
        f"step {format_time_ps(report.step_time_ps)}, bubble {report.bubble_fraction:.1%}"
    )


def _stage_lanes(timeline: Timeline, width_ps: int, *, messages: bool) -> Iterator[Lane]:
    """The first rank of every stage: its entries, its per-step work, its transfers."""
    plan = timeline.graph.plan
    path = critical_path(timeline)
    for stage in range(plan.pp):
        lane = Lane(label=f"stage {stage}", bordered=True)
        cohort, column = timeline.place(stage * plan.stage_ranks)
        entries, segments = cohort.flat.program.entries, cohort.flat.program.segments
        chunks = 1 + max((a.chunk for e in entries for a in e.parts()), default=0)
        start, end = (times[:, column] for times in cohort.entry_times)
        shown = _visible(start, end, width_ps)
        lane.boxes = [_entry_box(entries[i], a, b, chunks) for i, a, b in shown]
        lane.hidden = len(entries) - len(shown)
        start, end = (times[:, column] for times in cohort.segment_times())
        if messages:
            sent = [i for i, segment in enumerate(segments) if segment.kind is SegmentKind.SEND]
            lane.arrows = [(int(start[i]), int(end[i]), segments[i].peer_stage) for i in sent]
        for i, segment in enumerate(segments):
            if segment.kind is SegmentKind.PER_STEP:
                lane.boxes.append(Box(start=int(start[i]), end=int(end[i]), colour=_PER_STEP))
        beside = [
            i for i, s in enumerate(segments) if s.entry < 0 and s.kind is not SegmentKind.PER_STEP
        ]
        moved = _visible(start[beside], end[beside], width_ps)
        lane.transfers = [Box(start=a, end=b, colour=_TRANSFER) for _, a, b in moved]
        mine = [step for step in path if plan.stage_of(step.rank) == stage]
        on_path = _visible(
            np.array([step.start_ps for step in mine], dtype=np.int64),
            np.array([step.end_ps for step in mine], dtype=np.int64),
            width_ps,
        )
        lane.path = [Box(start=a, end=b, colour=_PATH) for _, a, b in on_path]
        yield lane


def _visible(start: Times, end: Times, width_ps: int) -> list[tuple[int, int, int]]:
    """(number, start, end) of what can be seen of many spans.

    Where there are more spans than pixels, those narrower than a pixel are merged, pixel by
    pixel, under the longest one's number.
    """
    pixel = width_ps / _PIXELS
    narrow = (end - start < pixel) & (len(start) > _PIXELS)
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


def _entry_box(entry: Entry, start: int, end: int, chunks: int) -> Box:
    """An action, shaded by chunk; of a fused pair the forward above, the backward below."""
    shades = [_shade(_COLOURS[a.kind], a.chunk / chunks) for a in entry.parts()]
    numbers = "/".join(str(action.microbatch) for action in entry.parts())
    return Box(start=start, end=end, colour=shades[0], text=numbers, below="".join(shades[1:]))


@cache
def _shade(colour: str, share: float) -> str:
    """The colour mixed with white; later chunks are lighter."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share * 0.75):02x}" for c in channels)


def _stream_lanes(timeline: Timeline, width_ps: int) -> Iterator[Lane]:
    """Rank 0: a row per stream it uses, boxes coloured by phase."""
    spans: dict[Stream, list[Span]] = {}
    for span in timeline.spans([0]):
        spans.setdefault(span.stream, []).append(span)
    for stream in sorted(spans):
        mine = spans[stream]
        lane = Lane(label=stream.name.lower().replace("_", " "))
        start = np.array([span.start_ps for span in mine], dtype=np.int64)
        end = np.array([span.end_ps for span in mine], dtype=np.int64)
        for i, a, b in _visible(start, end, width_ps):
            colour = _PHASES[Phase(mine[i].phase)] if mine[i].entry else _PER_STEP
            lane.boxes.append(Box(start=a, end=b, colour=colour))
        lane.hidden = len(mine) - len(lane.boxes)
        yield lane


def _draw_panel(axes: "Axes", panel: Panel, width_ps: int, scale: int, row_in: float) -> None:
    for row, lane in enumerate(panel.lanes):
        _draw_lane(axes, lane, row, width_ps, scale, row_in)
    thinned = sum(lane.hidden for lane in panel.lanes)
    note = f"\n{thinned} actions narrower than a pixel are drawn by majority" if thinned else ""
    axes.set_title(panel.title + note, loc="left", fontsize=10)
    axes.set_ylim(len(panel.lanes) - 0.4, -0.6)
    step = max(1, round(0.22 / row_in))
    ticks = range(0, len(panel.lanes), step)
    axes.set_yticks(list(ticks), [panel.lanes[row].label for row in ticks])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _draw_lane(
    axes: "Axes", lane: Lane, row: int, width_ps: int, scale: int, row_in: float
) -> None:
    """Boxes over an idle background."""
    _draw(axes, [Box(start=0, end=width_ps, colour=_IDLE)], row - 0.4, 0.8, scale, "none")
    edge = "white" if lane.bordered and row_in > 0.2 else "none"
    _draw(axes, lane.boxes, row - 0.4, 0.8, scale, edge)
    fused = [Box(start=b.start, end=b.end, colour=b.below) for b in lane.boxes if b.below]
    _draw(axes, fused, row, 0.4, scale, "none")
    framed = [Box(start=b.start, end=b.end, colour="none") for b in lane.boxes if b.below]
    _draw(axes, framed, row - 0.4, 0.8, scale, "black")
    _draw(axes, lane.transfers, row + 0.3, 0.1, scale, "none")
    _draw(axes, lane.path, row - 0.48, 0.08, scale, "none")
    font = min(_FONT_PT, row_in * 72 * 0.5)
    points_per_ps = _WIDTH_IN * 72 * _PLOT_SHARE / width_ps
    for box in lane.boxes if font > 4 else ():
        if 0 < (len(box.text) + 0.5) * font * 0.65 < (box.end - box.start) * points_per_ps:
            middle = (box.start + box.end) / 2 / scale
            dark = sum(int(box.colour[i : i + 2], 16) for i in (1, 3, 5)) < 480
            shade = "white" if dark else "black"
            axes.text(middle, row, box.text, ha="center", va="center", fontsize=font, color=shade)


def _draw_arrows(axes: "Axes", panel: Panel, scale: int) -> None:
    """An arrow from each message's start on the sender's row to its end on the receiver's."""
    arrows = [
        (start / scale, row, (end - start) / scale, peer - row)
        for row, lane in enumerate(panel.lanes)
        for start, end, peer in lane.arrows
    ]
    if arrows:
        x, y, dx, dy = np.array(arrows).T
        axes.quiver(
            x, y, dx, dy, angles="xy", scale_units="xy", scale=1, width=0.0008, color=_TRANSFER
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


def _legend(figure: "Figure", panels: Sequence[Panel]) -> None:
    """Only what the figure shows."""
    from matplotlib.patches import Patch

    lanes = [lane for panel in panels for lane in panel.lanes]
    boxes = [box for lane in lanes for box in (*lane.boxes, *lane.transfers, *lane.path)]
    used = {box.colour for box in boxes} | {box.below for box in boxes}
    named = {_NAMES[kind]: colour for kind, colour in _COLOURS.items()}
    named |= {"per step": _PER_STEP, "transfer": _TRANSFER, "critical path": _PATH}
    shown = {name: colour for name, colour in named.items() if colour in used}
    figure.legend(
        handles=[Patch(color=c, label=name) for name, c in (shown | {"idle": _IDLE}).items()],
        loc="outside lower right",
        ncols=len(shown) + 1,
        frameon=False,
        fontsize=8,
    )
