"""Figures of validations: simulated over measured times, and a run above its simulation."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.api import Result
from stepsim.errors import OutputError
from stepsim.fragments import TaskKind
from stepsim.measured.run import MESSAGE_KINDS, PS_PER_MS, OpKind
from stepsim.measured.summary import RunSummary
from stepsim.plots import write_figure
from stepsim.schedules import ActionKind
from stepsim.units import PS_PER_S
from stepsim.validation.output import summary_errors
from stepsim.validation.validate import Compared, RunValidation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 150
_BLUE, _ORANGE, _GREY, _LIGHT = "#3b6ea5", "#d07c2c", "#8a8a8a", "#dcdcdc"


def plot_validation(runs: Sequence[RunValidation], rows: Sequence[Compared], path: Path) -> None:
    """Draw simulated over measured times beside a table of their errors.

    Raises OutputError for another suffix than .png, .svg or .pdf, or where it cannot be written.
    """
    write_figure(lambda: validation_figure(runs, rows), path, dpi=_DPI)


def validation_figure(runs: Sequence[RunValidation], rows: Sequence[Compared]) -> "Figure":
    """The figure that `plot_validation` writes."""
    figure = _figure(4.6)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
    _identity(left, runs, rows)
    _table(right, runs, rows)
    return figure


def plot_measured(summary: RunSummary, result: Result, path: Path) -> None:
    """Draw a run above its simulation, the first rank of every stage, on one time axis.

    Raises OutputError as `plot_validation` does.
    """
    write_figure(lambda: measured_figure(summary, result), path, dpi=_DPI)


def measured_figure(summary: RunSummary, result: Result) -> "Figure":
    """The figure that `plot_measured` writes."""
    stages = summary.run.stages
    figure = _figure(1.6 + 0.7 * len(stages))
    above, below = figure.subplots(2, 1, sharex=True, sharey=True)
    for stage in stages:
        _bars(above, stage, _measured_bars(summary, stage))
    for stage in range(result.report.plan.pp):
        _bars(below, stage, _simulated_bars(result, stage))
    for axes, name in ((above, "measured"), (below, "simulated")):
        axes.set_yticks(range(result.report.plan.pp))
        axes.set_ylabel(f"{name}\nstage")
    below.invert_yaxis()
    below.set_xlabel(
        "ms; forwards blue, backwards orange, messages light, per-step operations dark"
    )
    return figure


def _figure(height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(10, height), layout="constrained")


_Bars = dict[str, list[tuple[float, float]]]
"""Colour to (start, width) of bars, in ms."""


def _bars(axes: "Axes", row: int, bars: _Bars) -> None:
    for colour, several in bars.items():
        axes.broken_barh(several, (row - 0.4, 0.8), facecolors=colour, edgecolors="white", lw=0.2)


def _measured_bars(summary: RunSummary, stage: int) -> _Bars:
    place = next(i for i, trace in enumerate(summary.run.ranks) if trace.stage == stage)
    trace, shift = summary.run.ranks[place], int(summary.clocks.offset_ps[place])
    start = ((trace.start_ps + shift) / PS_PER_MS).tolist()
    width = (trace.duration_ps / PS_PER_MS).tolist()
    colours = {
        _BLUE: trace.of(OpKind.GET_BATCH, OpKind.FORWARD, OpKind.LOSS),
        _ORANGE: trace.of(OpKind.BACKWARD),
        _LIGHT: trace.of(*MESSAGE_KINDS),
        _GREY: trace.finalize.nonzero()[0],
    }
    return {c: [(start[p], width[p]) for p in places] for c, places in colours.items()}


def _simulated_bars(result: Result, stage: int) -> _Bars:
    colours = {TaskKind.SEND: _LIGHT, TaskKind.RECV: _LIGHT}
    bars: _Bars = {}
    for span in result.timeline.spans([stage * result.report.plan.stage_ranks]):
        if span.entry is None:
            colour = colours.get(span.kind, _GREY)
        else:
            forward = span.entry.parts()[0].kind is ActionKind.FORWARD
            colour = _BLUE if forward else _ORANGE
        start, end = span.start_ps / PS_PER_MS, span.end_ps / PS_PER_MS
        bars.setdefault(colour, []).append((start, end - start))
    return bars


def _identity(axes: "Axes", runs: Sequence[RunValidation], rows: Sequence[Compared]) -> None:
    """Points on the identity line are right; both axes are logarithmic."""
    kinds = (
        ("pipeline, replay", "o", _BLUE, [run.pipeline for run in runs]),
        ("per-step operation, prediction", "s", _ORANGE, [e for r in runs for e in r.finalize]),
        ("pipeline and step, prediction", "D", _ORANGE, [e for r in runs for e in r.predicted]),
        ("step, prediction", "^", _ORANGE, list(rows)),
    )
    shown = [e for _, _, _, several in kinds for e in several if e.measured_ps and e.simulated_ps]
    if not shown:
        raise OutputError("nothing to draw: no time was both measured and simulated")
    ends = [time / PS_PER_S for e in shown for time in (e.measured_ps, e.simulated_ps)]
    low, high = min(ends) / 1.3, max(ends) * 1.3
    axes.plot([low, high], [low, high], color=_GREY, linewidth=1, zorder=1)
    for label, marker, colour, several in kinds:
        if several:
            axes.scatter(
                [e.measured_ps / PS_PER_S for e in several],
                [e.simulated_ps / PS_PER_S for e in several],
                marker=marker,
                facecolors="none",
                edgecolors=colour,
                label=label,
                zorder=2,
            )
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set_xlabel("measured, s")
    axes.set_ylabel("simulated, s")
    axes.legend(frameon=False, loc="upper left")


def _table(axes: "Axes", runs: Sequence[RunValidation], rows: Sequence[Compared]) -> None:
    """Mean and largest error of every kind of number."""
    axes.axis("off")
    cells = [
        [name, f"{errors.mean:.2%}", f"{errors.largest:.2%}", str(errors.count)]
        for name, errors in summary_errors(runs, rows).items()
    ]
    if runs:
        worst = max(run.worst_bubble_points for run in runs)
        count = sum(len(run.bubbles) for run in runs)
        cells.append(["rank bubble (replay)", "", f"{worst:.1f} points", str(count)])
    table = axes.table(
        cellText=cells,
        colLabels=["", "mean error", "largest", "numbers"],
        colWidths=[0.55, 0.17, 0.17, 0.14],
        loc="center",
        cellLoc="right",
        edges="horizontal",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    table.scale(1, 1.4)
