"""Timelines of runs."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base import garbage as collector
from stepsim.base.units import format_time_ps
from stepsim.engine.timeline import TaskSpan, Timeline
from stepsim.graph.programs import SegmentKind
from stepsim.parallel.schedules import OrderEntry
from stepsim.results.critical_path import critical_path
from stepsim.results.report import Report
from stepsim.show.figures.drawing import make_figure
from stepsim.show.figures.lanes import Box, Lane, Scene, TimelinePanel, lanes_figure, visible
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import (
    ACTION_COLOURS,
    PATH,
    PER_STEP,
    PHASE_SHADES,
    SHADES,
    TRANSFER,
    shade,
)
from stepsim.workload.rows import Phase, Stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    width_ps = max(report.step_time_ps for _, report in runs)

    def panels(scene: Scene) -> list[TimelinePanel]:
        return [_panel(timeline, report, scene, messages=messages) for timeline, report in runs]

    return lanes_figure(panels, width_ps, style)


def _panel(timeline: Timeline, report: Report, scene: Scene, *, messages: bool) -> TimelinePanel:
    if report.plan.pp > 1:
        lanes = _stage_lanes(timeline, scene, messages=messages)
    else:
        lanes = _stream_lanes(timeline, scene)
    every = tuple(lanes)
    axis = "stage" if report.plan.pp > 1 else ""
    return TimelinePanel(
        title=_title(report, sum(lane.hidden for lane in every)), axis=axis, lanes=every
    )


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


def _stage_lanes(timeline: Timeline, scene: Scene, *, messages: bool) -> Iterator[Lane]:
    """The first rank of every stage: its entries, its per-step work, its transfers."""
    plan = timeline.graph.plan
    path = critical_path(timeline)
    for stage in range(plan.pp):
        lane = Lane(label=str(stage), bordered=True)
        cohort, column = timeline.place(stage * plan.stage_ranks)
        entries, segments = cohort.laid.program.entries, cohort.laid.program.segments
        chunks = 1 + max((a.chunk for e in entries for a in e.parts()), default=0)
        start, end = (times[:, column] for times in cohort.entry_times)
        shown = visible(start, end, scene)
        lane.boxes = [_entry_box(entries[i], a, b, chunks) for i, a, b in shown]
        lane.hidden = len(entries) - len(shown)
        start, end = (times[:, column] for times in cohort.segment_times())
        if messages:
            sent = [i for i, segment in enumerate(segments) if segment.kind is SegmentKind.SEND]
            lane.arrows = [(int(start[i]), int(end[i]), segments[i].peer_stage) for i in sent]
        for i, segment in enumerate(segments):
            if segment.kind is SegmentKind.PER_STEP:
                lane.boxes.append(Box(start=int(start[i]), end=int(end[i]), colour=PER_STEP))
        beside = [
            i for i, s in enumerate(segments) if s.entry < 0 and s.kind is not SegmentKind.PER_STEP
        ]
        moved = visible(start[beside], end[beside], scene)
        lane.transfers = [Box(start=a, end=b, colour=TRANSFER) for _, a, b in moved]
        mine = [step for step in path if plan.stage_of(step.rank) == stage]
        on_path = visible(
            np.array([step.start_ps for step in mine], dtype=np.int64),
            np.array([step.end_ps for step in mine], dtype=np.int64),
            scene,
        )
        lane.path = [Box(start=a, end=b, colour=PATH) for _, a, b in on_path]
        yield lane


def _entry_box(entry: OrderEntry, start: int, end: int, chunks: int) -> Box:
    """An action, shaded by chunk; of a fused pair the forward above, the backward below."""
    shades = [shade(ACTION_COLOURS[a.kind], 0.75 * a.chunk / chunks) for a in entry.parts()]
    numbers = "/".join(str(action.microbatch) for action in entry.parts())
    return Box(start=start, end=end, colour=shades[0], text=numbers, below="".join(shades[1:]))


def _stream_lanes(timeline: Timeline, scene: Scene) -> Iterator[Lane]:
    """Rank 0: a row per stream it uses, boxes coloured by phase."""
    spans: dict[Stream, list[TaskSpan]] = {}
    for span in timeline.spans([0]):
        spans.setdefault(span.stream, []).append(span)
    for stream in sorted(spans):
        mine = spans[stream]
        lane = Lane(label=stream.name.lower().replace("_", " "))
        start = np.array([span.start_ps for span in mine], dtype=np.int64)
        end = np.array([span.end_ps for span in mine], dtype=np.int64)
        for i, a, b in visible(start, end, scene):
            colour = SHADES[PHASE_SHADES[Phase(mine[i].phase)]][1] if mine[i].entry else PER_STEP
            lane.boxes.append(Box(start=a, end=b, colour=colour))
        lane.hidden = len(mine) - len(lane.boxes)
        yield lane
