"""Timelines of simulated and of recorded steps: a row for every stage, rank or stream."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Ints, ints
from stepsim.base.process import paused
from stepsim.base.structs import Names, Noun, replace
from stepsim.base.units import format_time_ps
from stepsim.core.timeline import Timeline
from stepsim.explain.critical_path import critical_path
from stepsim.explain.report import Report
from stepsim.measured.profile.events import Profile
from stepsim.parallel.schedules import OrderEntry
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, Spans, TaskKind, TaskPhase
from stepsim.show.figures.drawing import drawn, make_figure
from stepsim.show.figures.lanes import Box, Lane, Scene, TimelinePanel, lanes_figure, visible
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import ACTION_COLOURS, PART_COLOURS, PATH, PER_STEP, TRANSFER, shade
from stepsim.step.against import StepAgainst
from stepsim.workload.axes import Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {TaskPhase[kind.name]: colour for kind, colour in ACTION_COLOURS.items()}
_COLOURS[TaskPhase.UPDATE] = PER_STEP
_MOST_RANKS = 64


class DrawnRun(Noun):
    """A run of a figure: its rows with their labels, and the time that it takes.

    A row is a rank or stands for a stage where `axis` says so, else it is a stream. `path` are the
    parts of the critical path: row, start and end in ps.
    """

    title: Names
    axis: str
    rows: tuple[tuple[str, Spans], ...]
    width_ps: int
    path: tuple[tuple[int, int, int], ...] = ()


def drawn_step(timeline: Timeline, report: Report) -> DrawnRun:
    """A simulated step: the first rank of every stage, or the streams of the only stage."""
    plan = timeline.graph.plan
    count = f"{plan.microbatches} microbatch" + ("es" if plan.microbatches > 1 else "")
    sent = f", {report.p2p} p2p" if plan.pp > 1 else ""
    title = (
        f"{report.workload} on {report.topology}, {plan.words}",
        f"{report.schedule}, {count}{sent}: "
        f"step {format_time_ps(report.step_time_ps)}, bubble {report.bubble_fraction:.1%}",
    )
    if plan.pp == 1:
        (spans,) = timeline.spans([0])
        return DrawnRun(title=title, axis="", rows=_streams(spans), width_ps=report.step_time_ps)
    tables = timeline.spans(range(0, plan.npus, plan.stage_ranks), whole=True)
    parts = critical_path(timeline)
    return DrawnRun(
        title=title,
        axis="stage",
        rows=tuple((str(stage), spans) for stage, spans in enumerate(tables)),
        width_ps=report.step_time_ps,
        path=tuple((plan.stage_of(part.rank), part.start_ps, part.end_ps) for part in parts),
    )


def drawn_profile(profile: Profile) -> DrawnRun:
    """The step of a profile whose length is the median of its steps.

    A row is a rank; of more than 64 ranks evenly spaced ones are shown. Of a lone rank it is a
    stream.
    """
    times = profile.step_times_ps()
    middle = int(np.argsort(times, kind="stable")[(len(times) - 1) // 2])
    step, width_ps, ranks = profile.steps[middle], int(times[middle]), len(profile.ranks)
    spans = profile.of_steps(step).spans()
    begin = spans.start_ps.min()
    spans = replace(spans, start_ps=spans.start_ps - begin, end_ps=spans.end_ps - begin)
    rows = _streams(spans)
    staged = profile.ranks[0].stage is not None
    if ranks > 1 or staged:
        chosen = [ran.rank for ran in profile.ranks[:: -(-ranks // _MOST_RANKS)]]
        rows = tuple((str(rank), spans.taken(spans.rank == rank)) for rank in chosen)
    shown = f", {len(rows)} of {ranks} ranks" if 1 < ranks != len(rows) else ""
    title = (
        f"{profile.source}, {profile.format}",
        f"step {step}: {format_time_ps(width_ps)}{shown}",
    )
    return DrawnRun(
        title=title, axis="rank" if ranks > 1 or staged else "", rows=rows, width_ps=width_ps
    )


def _streams(spans: Spans) -> tuple[tuple[str, Spans], ...]:
    """A row for every stream of a rank."""
    streams = np.unique(spans.stream).tolist()
    return tuple((spans.stream_words(s), spans.taken(spans.stream == s)) for s in streams)


@paused()
def plot_timelines(
    runs: Sequence[DrawnRun],
    path: str | Path | None = None,
    *,
    messages: bool = False,
    style: FigureStyle | str = FigureStyle.SCREEN,
) -> "Figure":
    """Draw runs above each other on one time axis.

    Microbatch numbers are written where they fit. Communication lies along the lower edge of the
    row of a rank. With `messages` an arrow shows every message between stages. Raises OutputError
    when the file cannot be written or its suffix names no figure format.
    """
    return make_figure(partial(timelines_figure, runs, messages=messages), path, style)


@drawn
def plot_against(held: StepAgainst, style: FigureStyle) -> "Figure":
    """A predicted step above the recorded one that it is held against, on one time axis."""
    predicted = drawn_step(held.simulated.timeline, held.simulated.report)
    return timelines_figure([predicted, drawn_profile(held.measured)], style)


def timelines_figure(
    runs: Sequence[DrawnRun],
    style: FigureStyle,
    *,
    messages: bool = False,
) -> "Figure":
    """The figure that `plot_timelines` writes."""
    scene = Scene(style=style, width_ps=max(1, *(run.width_ps for run in runs)))
    return lanes_figure([_panel(run, scene, messages=messages) for run in runs], scene)


def _panel(run: DrawnRun, scene: Scene, *, messages: bool) -> TimelinePanel:
    lanes = tuple(_lanes(run, scene, messages=messages))
    hidden = sum(lane.hidden for lane in lanes)
    note = f"{hidden} actions narrower than a dot are drawn by majority" if hidden else ""
    return TimelinePanel(title=(*run.title, note), axis=run.axis, lanes=lanes)


def _lanes(run: DrawnRun, scene: Scene, *, messages: bool) -> Iterator[Lane]:
    """The rows; of a rank its actions and its other work, and its transfers beside them."""
    row_of = {int(spans.rank[0]): row for row, (_, spans) in enumerate(run.rows) if len(spans)}
    for row, (label, spans) in enumerate(run.rows):
        lane = Lane(label=label, bordered=bool(run.axis))
        if run.axis:
            sent = spans.of_kind(*COMMUNICATIONS)
            _add_actions(lane, spans, scene)
            _add_boxes(lane, spans.taken(~sent & (spans.entry == UNKNOWN)), scene)
            moved = spans.taken(sent)
            lane.transfers = _marks(moved.start_ps, moved.end_ps, TRANSFER, scene)
        else:
            _add_boxes(lane, spans, scene)
        slow = spans.taken(spans.slowed)
        lane.slowed = _marks(slow.start_ps, slow.end_ps, PART_COLOURS[Part.SLOWED], scene)
        if messages and run.axis:
            sends = spans.taken(spans.kind == TaskKind.SEND)
            ends = np.stack([sends.start_ps, sends.end_ps, sends.peer], axis=1).tolist()
            lane.arrows = [(start, end, row_of[peer]) for start, end, peer in ends]
        path = ints([part for part in run.path if part[0] == row])
        _, start, end = path.reshape(-1, 3).T
        lane.path = _marks(start, end, PATH, scene)
        yield lane


def _marks(start: Ints, end: Ints, colour: str, scene: Scene) -> list[Box]:
    """Boxes of one colour for what can be seen of some spans."""
    return [Box(start=a, end=b, colour=colour) for _, a, b in visible(start, end, scene)]


def _add_actions(lane: Lane, spans: Spans, scene: Scene) -> None:
    """The actions of a rank's schedule, where it is known."""
    entries = spans.entries or ()
    start, end = spans.actions()
    chunks = 1 + max((a.chunk for e in entries for a in e.parts()), default=0)
    shown = visible(start, end, scene)
    lane.boxes += [_entry_box(entries[i], a, b, chunks) for i, a, b in shown]
    lane.hidden += len(entries) - len(shown)


def _entry_box(entry: OrderEntry, start: int, end: int, chunks: int) -> Box:
    """An action, shaded by chunk; of a fused pair the forward above, the backward below."""
    shades = [shade(ACTION_COLOURS[a.kind], 0.75 * a.chunk / chunks) for a in entry.parts()]
    numbers = "/".join(str(action.microbatch) for action in entry.parts())
    return Box(start=start, end=end, colour=shades[0], text=numbers, below="".join(shades[1:]))


def _add_boxes(lane: Lane, spans: Spans, scene: Scene) -> None:
    """Spans as far as they can be seen; only those of a schedule are counted where they cannot."""
    shown = visible(spans.start_ps, spans.end_ps, scene)
    lane.boxes += [Box(start=a, end=b, colour=_colour(spans, i)) for i, a, b in shown]
    if spans.entries is not None:
        lane.hidden += len(spans) - len(shown)


def _colour(spans: Spans, number: int) -> str:
    """Of a schedule's actions by their phase, of anything else by what it is."""
    kind, phase = TaskKind(spans.kind[number]), TaskPhase(spans.phase[number])
    if spans.entries is not None:
        return PER_STEP if spans.entry[number] == UNKNOWN else _COLOURS[phase]
    if kind in COMMUNICATIONS:
        return TRANSFER
    if kind is TaskKind.HOST:
        return PART_COLOURS[Part.HOST]
    return _COLOURS.get(phase, PART_COLOURS[Part.COMPUTE])
