"""Timelines of simulated and of recorded steps: what a figure draws of each."""

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.arrays import median_place
from stepsim.base.units import format_time_ps
from stepsim.core.timeline import Timeline
from stepsim.explain.report import Report
from stepsim.run.spans import Spans
from stepsim.show.figures.timelines import DrawnRun, plot_timelines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stepsim.measured.profile.events import Profile
    from stepsim.step.against import StepAgainst

_MOST_RANKS = 64


def drawn_step(timeline: Timeline, report: Report) -> DrawnRun:
    """A simulated step: the first rank of every stage, or the streams of the only stage."""
    plan = timeline.graph.plan
    piped = plan.pp > 1
    count = f"{plan.microbatches} microbatch" + ("es" if plan.microbatches > 1 else "")
    sent = f", {report.p2p} p2p" if piped else ""
    title = (
        f"{report.workload} on {report.topology}, {plan.words}",
        f"{report.schedule}, {count}{sent}: "
        f"step {format_time_ps(report.step_time_ps)}, bubble {report.bubble_fraction:.1%}",
    )
    ranks = range(0, plan.npus, plan.stage_ranks)
    tables = list(timeline.spans(ranks, whole=piped))
    stages = tuple((str(stage), spans) for stage, spans in enumerate(tables))
    stage_of = timeline.actors.stages.tolist()
    along = groupby(timeline.path if piped else (), lambda place: stage_of[place[0]])
    parts = ((stage, list(places)) for stage, places in along)
    return DrawnRun(
        title=title,
        axis="stage" if piped else "",
        rows=stages if piped else _streams(tables[0]),
        width_ps=report.step_time_ps,
        path=tuple(
            (stage, timeline.start_ps(places[0]), timeline.end_ps(places[-1]))
            for stage, places in parts
        ),
        axes=tuple(op.axis for op in timeline.graph.comms),
    )


def drawn_profile(profile: "Profile") -> DrawnRun:
    """The step of a profile whose length is the median of its steps.

    A row is a rank; of more than 64 ranks evenly spaced ones are shown. Of a lone rank it is a
    stream.
    """
    times = profile.step_times_ps()
    middle = median_place(times)
    step, width_ps, ranks = profile.steps[middle], int(times[middle]), len(profile.ranks)
    spans = profile.of_steps(step).spans()
    begin = spans.start_ps.min()
    spans = spans.later(-begin)
    rows, axis = _streams(spans), ""
    if ranks > 1 or profile.ranks[0].stage is not None:
        chosen, axis = [ran.rank for ran in profile.ranks[:: -(-ranks // _MOST_RANKS)]], "rank"
        rows = tuple((str(rank), spans.taken(spans.rank == rank)) for rank in chosen)
    shown = f", {len(rows)} of {ranks} ranks" if 1 < ranks != len(rows) else ""
    title = (
        f"{profile.source}, {profile.format}",
        f"step {step}: {format_time_ps(width_ps)}{shown}",
    )
    return DrawnRun(title=title, axis=axis, rows=rows, width_ps=width_ps)


def _streams(spans: Spans) -> tuple[tuple[str, Spans], ...]:
    """A row for every stream of a rank."""
    streams = np.unique(spans.stream).tolist()
    return tuple((spans.stream_words(s), spans.taken(spans.stream == s)) for s in streams)


def plot_against(held: "StepAgainst", path: str | Path | None = None, **how: Any) -> "Figure":
    """Draw a predicted step above the recorded one that it is held against, on one time axis."""
    simulated = held.simulated
    runs = [drawn_step(simulated.timeline, simulated.report), drawn_profile(held.measured)]
    return plot_timelines(runs, path, **how)
