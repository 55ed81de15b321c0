"""Figures. The only module that imports matplotlib, and only when a figure is drawn."""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.errors import OutputError
from stepsim.formats.outputs import write_whole
from stepsim.fragments import Stream
from stepsim.report import Report
from stepsim.schedules import ActionKind
from stepsim.taskgraph import SegmentKind
from stepsim.timeline import Timeline
from stepsim.units import format_time_ps
from stepsim.workload import Phase

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")

_FORWARD, _BACKWARD, _WEIGHT = "#4477aa", "#ee9944", "#ccbb44"
_PER_STEP, _TRANSFER, _IDLE = "#aa7799", "#444444", "#e9e9e9"
_SCALES = ((10**12, "s"), (10**9, "ms"), (10**6, "us"), (10**3, "ns"), (1, "ps"))
_WIDTH_IN = 12.0
_ROW_IN = 0.36
_FONT_PT = 7.0


@dataclass(slots=True, kw_only=True)
class Box:
    """A rectangle in a row, from `start` to `end` ps, with an optional number inside."""

    start: int
    end: int
    colour: str
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Lane:
    """One row of the figure: boxes, and thin `marks` along its lower edge."""

    label: str
    bordered: bool = False
    boxes: list[Box] = field(default_factory=list)
    marks: list[Box] = field(default_factory=list)


def check_figure_path(path: Path) -> None:
    """Raise OutputError unless the suffix names a figure format."""
    if path.suffix.lower() not in SUFFIXES:
        shown = path.suffix or "a name without suffix"
        raise OutputError(f"{path}: cannot draw {shown}: expected {', '.join(SUFFIXES)}")


def plot_timeline(timeline: Timeline, report: Report, path: Path) -> None:
    """Draw the step: a row per pipeline stage, or a row per stream where there is no pipeline.

    Microbatch numbers are written where they fit. Raises OutputError when the file cannot be
    written or its suffix names no figure format.
    """
    check_figure_path(path)
    from matplotlib import rc_context

    kind = path.suffix[1:].lower()
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    data = io.BytesIO()
    with rc_context({"svg.hashsalt": "stepsim", "font.size": 9}):
        figure = timeline_figure(timeline, report)
        figure.savefig(data, format=kind, dpi=150, metadata=undated)
    write_whole(path, data.getvalue())


def timeline_figure(timeline: Timeline, report: Report) -> "Figure":
    """The figure that `plot_timeline` writes."""
    from matplotlib.figure import Figure

    piped = report.plan.pp > 1
    lanes = list(_stage_lanes(timeline) if piped else _stream_lanes(timeline))
    scale, unit = next(s for s in _SCALES if report.step_time_ps >= s[0] or s[0] == 1)
    figure = Figure(figsize=(_WIDTH_IN, 1.35 + _ROW_IN * len(lanes)), layout="constrained")
    axes = figure.subplots()
    for row, lane in enumerate(lanes):
        _draw_lane(axes, lane, row, report.step_time_ps or 1, scale)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.set_xlim(0, report.step_time_ps / scale or 1)
    axes.set_yticks(range(len(lanes)), [lane.label for lane in lanes])
    axes.set_xlabel(f"time ({unit})")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(_title(report), loc="left", fontsize=10)
    _legend(axes, piped=piped)
    return figure


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


def _stage_lanes(timeline: Timeline) -> Iterator[Lane]:
    """The first rank of every stage: its actions, its per-step work, its messages as marks."""
    plan = timeline.graph.plan
    for stage in range(plan.pp):
        lane = Lane(label=f"stage {stage}", bordered=True)
        cohort, column = timeline.place(stage * plan.stage_ranks)
        program = cohort.flat.program
        start, end = (times[:, column].tolist() for times in cohort.entry_times())
        for entry, a, b in zip(program.entries, start, end, strict=True):
            action = entry.parts()[0]
            colour = _FORWARD if action.kind is ActionKind.FORWARD else _BACKWARD
            lane.boxes.append(Box(start=a, end=b, colour=colour, text=str(action.microbatch)))
        start, end = (times[:, column].tolist() for times in cohort.segment_times())
        for segment, a, b in zip(program.segments, start, end, strict=True):
            if segment.kind is SegmentKind.PER_STEP:
                lane.boxes.append(Box(start=a, end=b, colour=_PER_STEP))
            elif segment.entry < 0:
                lane.marks.append(Box(start=a, end=b, colour=_TRANSFER))
        yield lane


_PHASES = {Phase.FORWARD: _FORWARD, Phase.INPUT_GRAD: _BACKWARD, Phase.WEIGHT_GRAD: _WEIGHT}


def _stream_lanes(timeline: Timeline) -> Iterator[Lane]:
    """Rank 0: a row per stream it uses, boxes coloured by phase."""
    lanes: dict[Stream, Lane] = {}
    for span in timeline.spans([0]):
        lane = lanes.setdefault(span.stream, Lane(label=span.stream.name.lower().replace("_", " ")))
        colour = _PHASES[Phase(span.phase)] if span.entry else _PER_STEP
        lane.boxes.append(Box(start=span.start_ps, end=span.end_ps, colour=colour))
    yield from (lanes[stream] for stream in sorted(lanes))


def _draw_lane(axes: "Axes", lane: Lane, row: int, width_ps: int, scale: int) -> None:
    """Boxes over an idle background, microbatch numbers where they fit."""
    axes.broken_barh([(0, width_ps / scale)], (row - 0.4, 0.8), facecolors=_IDLE)
    for boxes, (low, height) in ((lane.boxes, (-0.4, 0.8)), (lane.marks, (0.28, 0.12))):
        axes.broken_barh(
            [(box.start / scale, (box.end - box.start) / scale) for box in boxes],
            (row + low, height),
            facecolors=[box.colour for box in boxes],
            edgecolors="white" if lane.bordered and boxes is lane.boxes else "none",
            linewidth=0.3,
        )
    points_per_ps = _WIDTH_IN * 72 * 0.88 / width_ps
    for box in lane.boxes:
        if len(box.text) * _FONT_PT * 0.7 < (box.end - box.start) * points_per_ps:
            middle = (box.start + box.end) / 2 / scale
            axes.text(
                middle, row, box.text, ha="center", va="center", fontsize=_FONT_PT, color="white"
            )


def _legend(axes: "Axes", *, piped: bool) -> None:
    from matplotlib.patches import Patch

    colours = {"forward": _FORWARD, "backward": _BACKWARD}
    if piped:
        colours |= {"per step": _PER_STEP, "transfer": _TRANSFER, "idle (bubble)": _IDLE}
    else:
        colours |= {"weight gradient": _WEIGHT, "per step": _PER_STEP, "idle": _IDLE}
    axes.figure.legend(
        handles=[Patch(color=colour, label=name) for name, colour in colours.items()],
        loc="outside lower right",
        ncols=len(colours),
        frameon=False,
        fontsize=8,
    )
