"""Timelines of recorded steps: a row for every rank, or for every stream of a lone one."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base import garbage as collector
from stepsim.base.arrays import Ints
from stepsim.base.units import format_time_ps
from stepsim.measured.profile.events import (
    COMMUNICATIONS,
    UNKNOWN,
    EventKind,
    EventPhase,
    Events,
    Profile,
)
from stepsim.parallel.schedules import ActionKind
from stepsim.show.figures.drawing import make_figure
from stepsim.show.figures.lanes import Box, Lane, Scene, TimelinePanel, lanes_figure, visible
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import ACTION_COLOURS, PART_COLOURS, PER_STEP, TRANSFER
from stepsim.workload.rows import Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {
    EventPhase.FORWARD: ACTION_COLOURS[ActionKind.FORWARD],
    EventPhase.BACKWARD: ACTION_COLOURS[ActionKind.BACKWARD],
    EventPhase.UPDATE: PER_STEP,
}
_COMPUTE, _HOST = PART_COLOURS[Part.COMPUTE], PART_COLOURS[Part.HOST]
_MOST_RANKS = 64


@collector.paused()
def plot_profile(
    profile: Profile,
    path: str | Path | None = None,
    *,
    style: FigureStyle | str = FigureStyle.SCREEN,
) -> "Figure":
    """Draw the step of a profile whose length is the median of its steps.

    A row is a rank, with communication along its lower edge; of a lone rank it is a stream. Of more
    than 64 ranks evenly spaced ones are shown. Raises OutputError when the file cannot be written
    or its suffix names no figure format.
    """
    return make_figure(partial(_profile_figure, profile), path, style)


def _profile_figure(profile: Profile, style: FigureStyle) -> "Figure":
    """The figure that `plot_profile` writes."""
    times = profile.step_times_ps()
    step = int(np.argsort(times, kind="stable")[(len(times) - 1) // 2])
    shown = profile.of_steps(profile.steps[step])
    return lanes_figure(lambda scene: [_panel(shown, scene)], int(times[step]), style)


def _panel(profile: Profile, scene: Scene) -> TimelinePanel:
    ranks, step = len(profile.ranks), profile.steps[0]
    lanes = tuple(_lanes(profile, scene))
    shown = f", {len(lanes)} of {ranks} ranks" if 1 < ranks != len(lanes) else ""
    return TimelinePanel(
        title=(
            f"{profile.source}, {profile.format}",
            f"step {step}: {format_time_ps(scene.width_ps)}{shown}",
        ),
        axis="rank" if ranks > 1 else "",
        lanes=lanes,
        named={"compute": _COMPUTE, "host": _HOST},
    )


def _lanes(profile: Profile, scene: Scene) -> Iterator[Lane]:
    """A row for every rank, or for every stream of a lone one."""
    events = profile.events
    if len(profile.ranks) == 1:
        for stream in np.unique(events.stream).tolist():
            chosen = np.flatnonzero(events.stream == stream)
            lane = Lane(label="" if stream == UNKNOWN else f"stream {stream}")
            lane.boxes = _boxes(profile, chosen, scene)
            yield lane
        return
    sent = events.of_kind(*COMMUNICATIONS)
    for place in range(0, len(profile.ranks), -(-len(profile.ranks) // _MOST_RANKS)):
        chosen = events.rank == place
        lane = Lane(label=str(profile.ranks[place].rank), bordered=True)
        lane.boxes = _boxes(profile, np.flatnonzero(chosen & ~sent), scene)
        lane.transfers = _boxes(profile, np.flatnonzero(chosen & sent), scene)
        yield lane


def _boxes(profile: Profile, places: Ints, scene: Scene) -> list[Box]:
    """Boxes of some operations of a step, as far as they can be seen."""
    events, begin = profile.events, profile.events.start_ps.min()
    starts, ends = events.start_ps[places] - begin, events.end_ps[places] - begin
    return [
        Box(start=start, end=end, colour=_colour(events, int(places[i])))
        for i, start, end in visible(starts, ends, scene)
    ]


def _colour(events: Events, place: int) -> str:
    kind = EventKind(int(events.kind[place]))
    if kind in COMMUNICATIONS:
        return TRANSFER
    if kind is EventKind.HOST:
        return _HOST
    return _COLOURS.get(EventPhase(int(events.phase[place])), _COMPUTE)
