"""A measured run on the page of its replay: its operations, and how far the replay is off."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.structs import Noun, replace
from stepsim.base.units import time_unit
from stepsim.explain.report import Report
from stepsim.measured.profile.events import Profile
from stepsim.measured.run import PS_PER_MS
from stepsim.measured.summary import RunSummary
from stepsim.run.spans import COMMUNICATIONS, TaskKind
from stepsim.show.figures.timelines import DrawnRun, drawn_profile
from stepsim.show.figures.validations import MEASURED_NAMES, Bars, measured_bars
from stepsim.show.page.figures import Plot, draw_idle, new_figure, new_source, quads
from stepsim.show.page.page import Chart
from stepsim.show.palette import PART_COLOURS, PER_STEP
from stepsim.show.tables.measured import replay_table
from stepsim.show.tables.model import Table
from stepsim.workload.axes import Part

if TYPE_CHECKING:
    from bokeh.models import Range1d

_ROW_PX, _FRAME_PX = 26, 70
_Bar = tuple[int, float, float]
"""Row of a bar, its start and its end, in units of the axis."""


class RunBesideReplay(Noun):
    """A run beside its replay: errors, and bars of each stage (none where it was not traced)."""

    errors: Table
    step_ps: int
    stages: tuple[Bars | None, ...]

    @classmethod
    def of(cls, summary: RunSummary, report: Report) -> "RunBesideReplay":
        """What a run says beside the report of its replay."""
        traced = summary.run.stages
        return cls(
            errors=replay_table(summary, report),
            step_ps=summary.step_ps,
            stages=tuple(
                measured_bars(summary, stage) if stage in traced else None
                for stage in range(report.plan["pp"])
            ),
        )

    def chart(self, times: "Range1d", longest_ps: int) -> Chart:
        """The run as it was measured, on the time axis of its replay; a row per stage."""
        plot, scale = _framed(
            "measured run", [f"stage {i}" for i in range(len(self.stages))], times, longest_ps
        )
        unit = PS_PER_MS / scale
        traced = [stage for stage, bars in enumerate(self.stages) if bars is not None]
        _draw_idle(plot.figure, traced, self.step_ps / scale)
        for colour in MEASURED_NAMES:
            bars = [
                (stage, start * unit, (start + width) * unit)
                for stage, found in enumerate(self.stages)
                for start, width in (found or {}).get(colour, ())
            ]
            _draw_bars(plot.figure, colour, bars)
        missing = [str(stage) for stage in range(len(self.stages)) if stage not in traced]
        return Chart(
            plot=plot,
            title="Measured",
            legend=tuple((name, colour) for colour, name in MEASURED_NAMES.items()),
            note=f"Not traced: stage {', '.join(missing)}." if missing else "",
        )


class RecordedTimeline(Noun):
    """A recorded step on a page: the rows of its ranks, or of the streams of its only one."""

    run: DrawnRun

    @classmethod
    def of(cls, profile: Profile) -> "RecordedTimeline":
        """The step of a profile whose length is the median of its steps."""
        run = drawn_profile(profile)
        return cls(run=replace(run, rows=run.rows[:_MOST_ROWS]))

    @property
    def step_ps(self) -> int:
        """How long the step takes."""
        return self.run.width_ps

    def chart(self, times: "Range1d", longest_ps: int) -> Chart:
        """Its kernels, messages and copies on the time axis of other timelines."""
        axis = f"{self.run.axis} " * bool(self.run.axis)
        labels = [f"{axis}{label}" for label, _ in self.run.rows]
        plot, scale = _framed("recorded step", labels, times, longest_ps)
        _draw_idle(plot.figure, range(len(labels)), self.step_ps / scale)
        for _, colour, kinds in _OF_KINDS:
            _draw_bars(plot.figure, colour, list(_spans_of(self.run, kinds, scale)))
        return Chart(
            plot=plot,
            title="Measured",
            legend=tuple((name, colour) for name, colour, _ in _OF_KINDS),
        )


_MOST_ROWS, _DOTS = 32, 4000
_OF_KINDS = (
    ("kernels", PART_COLOURS[Part.COMPUTE], (TaskKind.COMPUTE,)),
    ("communication", PART_COLOURS[Part.EXPOSED_DP], COMMUNICATIONS),
    ("copies", PER_STEP, (TaskKind.COPY,)),
)


def _framed(
    what: str, labels: Sequence[str], times: "Range1d", longest_ps: int
) -> tuple[Plot, int]:
    """An empty figure with a row for each label, and the ps of a unit of its time axis."""
    from bokeh.models import FixedTicker, Range1d

    scale, unit = time_unit(longest_ps)
    height, end = len(labels) * _ROW_PX + _FRAME_PX, len(labels) - 0.5
    rows = Range1d(start=end, end=-0.5, bounds=(-0.5, end))
    figure = new_figure("measured", height, times, rows)
    figure.xaxis.axis_label = f"time ({unit})"
    figure.yaxis.ticker = FixedTicker(ticks=list(range(len(labels))))
    figure.yaxis.major_label_overrides = dict(enumerate(labels))
    plot = Plot(
        name="measured",
        described=f"Timeline of the {what}",
        height_px=height,
        figure=figure,
        data={"kind": "plain"},
    )
    return plot, scale


def _spans_of(run: DrawnRun, kinds: tuple[TaskKind, ...], scale: int) -> Iterator[_Bar]:
    """Spans of some kinds; where they are less than a dot apart they are one."""
    for row, (_, spans) in enumerate(run.rows):
        shown = spans.taken(spans.of_kind(*kinds))
        for start, end in _joined(shown.start_ps, shown.end_ps, run.width_ps // _DOTS):
            yield row, start / scale, end / scale


def _joined(start: Ints, end: Ints, apart_ps: int) -> list[tuple[int, int]]:
    """Times that something runs, those less than `apart_ps` apart joined."""
    if not len(start):
        return []
    order = np.argsort(start, kind="stable")
    begins, ends = start[order], np.maximum.accumulate(end[order])
    first = np.append(0, np.flatnonzero(begins[1:] > ends[:-1] + apart_ps) + 1)
    last = np.append(first[1:] - 1, len(begins) - 1)
    return list(zip(begins[first].tolist(), ends[last].tolist(), strict=True))


def _draw_idle(figure: Any, rows: Sequence[int], end: float) -> None:
    source = new_source("idle", low=[i - 0.4 for i in rows], high=[i + 0.4 for i in rows])
    draw_idle(figure, source, "idle", left=0.0, right=end)


def _draw_bars(figure: Any, colour: str, bars: Sequence[_Bar]) -> None:
    """All bars of one colour."""
    source = new_source(
        "bars",
        low=[row - 0.4 for row, _, _ in bars],
        high=[row + 0.4 for row, _, _ in bars],
        left=[start for _, start, _ in bars],
        right=[end for _, _, end in bars],
    )
    quads(figure, source, "bars", fill_color=colour)
