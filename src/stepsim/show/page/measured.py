"""A measured run on the page of its replay: its operations, and how far the replay is off."""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stepsim.base.units import time_unit
from stepsim.explain.report import Report
from stepsim.measured.run import PS_PER_MS
from stepsim.measured.summary import RunSummary
from stepsim.show.figures.validations import MEASURED_NAMES, Bars, measured_bars
from stepsim.show.page.figures import Plot, draw_idle, new_figure, new_source, quads
from stepsim.show.page.page import Chart
from stepsim.show.tables.measured import replay_table
from stepsim.show.tables.model import Table

if TYPE_CHECKING:
    from bokeh.models import Range1d

_ROW_PX, _FRAME_PX = 26, 70


class RunBesideReplay(Struct, frozen=True, kw_only=True):
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
        from bokeh.models import FixedTicker, Range1d

        scale, unit = time_unit(longest_ps)
        count = len(self.stages)
        height = count * _ROW_PX + _FRAME_PX
        rows = Range1d(start=count - 0.5, end=-0.5, bounds=(-0.5, count - 0.5))
        figure = new_figure("measured", height, times, rows)
        figure.xaxis.axis_label = f"time ({unit})"
        figure.yaxis.ticker = FixedTicker(ticks=list(range(count)))
        figure.yaxis.major_label_overrides = {i: f"stage {i}" for i in range(count)}
        _draw_idle(figure, count, self.step_ps / scale)
        for colour in MEASURED_NAMES:
            _draw_bars(figure, self.stages, colour, PS_PER_MS / scale)
        missing = [str(i) for i, bars in enumerate(self.stages) if bars is None]
        return Chart(
            plot=Plot(
                name="measured",
                described="Timeline of the measured run",
                height_px=height,
                figure=figure,
                data={"kind": "plain"},
            ),
            title="Measured",
            legend=tuple((name, colour) for colour, name in MEASURED_NAMES.items()),
            note=f"Not traced: stage {', '.join(missing)}." if missing else "",
        )


def _draw_idle(figure: Any, count: int, end: float) -> None:
    rows = list(range(count))
    source = new_source("idle", low=[i - 0.4 for i in rows], high=[i + 0.4 for i in rows])
    draw_idle(figure, source, "idle", left=0.0, right=end)


def _draw_bars(figure: Any, stages: tuple[Bars | None, ...], colour: str, unit: float) -> None:
    """All bars of one colour; starts and widths come in ms, a `unit` of the axis is one."""
    bars = [
        (stage, start * unit, (start + width) * unit)
        for stage, found in enumerate(stages)
        for start, width in (found or {}).get(colour, ())
    ]
    source = new_source(
        "bars",
        low=[stage - 0.4 for stage, _, _ in bars],
        high=[stage + 0.4 for stage, _, _ in bars],
        left=[start for _, start, _ in bars],
        right=[end for _, _, end in bars],
    )
    quads(figure, source, "bars", fill_color=colour)
