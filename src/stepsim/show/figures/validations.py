"""Figures of validations: simulated over measured times, and a run above its simulation.

Of published models, predicted steps are drawn over measured ones, by source.
"""

from typing import TYPE_CHECKING

from stepsim.base.errors import OutputError
from stepsim.base.units import PS_PER_S
from stepsim.runs.document import Validation
from stepsim.runs.published import PublishedValidation
from stepsim.runs.validate import Source
from stepsim.show.figures.drawing import drawn
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import FAINT, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@drawn
def plot_validation(found: Validation, style: FigureStyle) -> "Figure":
    """Simulated over measured times beside a table of their errors."""
    figure = style.figure(5.0 if style.narrow else 3.0)
    if style.narrow:
        first, second = figure.subplots(2, 1, height_ratios=(2, 1))
    else:
        first, second = figure.subplots(1, 2, width_ratios=(1, 1.2))
    _identity(first, found)
    _table(second, found, style)
    return figure


def _identity(axes: "Axes", found: Validation) -> None:
    """Points on the identity line are right; both axes are logarithmic."""
    runs, rows = found.runs, found.rows
    kinds = (
        ("pipeline, replay", "o", PALETTE[0], [run.pipeline for run in runs]),
        ("per-step operation, prediction", "s", PALETTE[1], [e for r in runs for e in r.finalize]),
        ("pipeline and step, prediction", "D", PALETTE[2], [e for r in runs for e in r.predicted]),
        ("step, fit", "v", PALETTE[0], [r for r in rows if r.source is Source.FIT]),
        ("step, explained", "<", PALETTE[0], [r for r in rows if r.source is Source.EXPLAINED]),
        ("step, prediction", "^", PALETTE[3], [r for r in rows if r.source is Source.PREDICTION]),
    )
    shown = [e for _, _, _, several in kinds for e in several if e.measured_ps and e.simulated_ps]
    if not shown:
        raise OutputError("nothing to draw: no time was both measured and simulated")
    ends = [time / PS_PER_S for e in shown for time in (e.measured_ps, e.simulated_ps)]
    _over_measured(axes, "simulated", ends)
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
    axes.legend(loc="upper left")


def _over_measured(axes: "Axes", what: str, times_s: list[float]) -> None:
    """Make axes of `what` over measured times, both logarithmic, with room for all of these.

    On the line between the corners both are equal.
    """
    from matplotlib.ticker import NullFormatter

    low, high = min(times_s) / 1.3, max(times_s) * 1.3
    axes.plot([low, high], [low, high], color=FAINT, zorder=1)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("measured (s)")
    axes.set_ylabel(f"{what} (s)")


def _table(axes: "Axes", found: Validation, style: FigureStyle) -> None:
    """Mean and largest error of every kind of number."""
    axes.axis("off")
    cells = [
        [name, f"{errors.mean:.2%}", f"{errors.largest:.2%}", str(errors.count)]
        for name, errors in found.errors().items()
    ]
    if found.runs:
        worst = max(run.worst_bubble_points for run in found.runs)
        count = sum(len(run.bubbles) for run in found.runs)
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
    table.set_fontsize(5 / 6 * style.font_pt)
    table.scale(1, 1.4)


_MARKERS = "osD^v<>pPX*hd"


@drawn
def plot_published(found: PublishedValidation, style: FigureStyle) -> "Figure":
    """Predicted over measured steps, a colour and a marker per source; raises OutputError."""
    if not found.rows:
        raise OutputError("nothing to draw: no run was both measured and predicted")
    figure = style.figure(4.5 if style.narrow else 3.6)
    axes = figure.subplots()
    times = [time for row in found.rows for time in (row.measured_s, row.predicted_s)]
    _over_measured(axes, "predicted", times)
    for i, source in enumerate(dict.fromkeys(row.step.source for row in found.rows)):
        rows = [row for row in found.rows if row.step.source == source]
        axes.scatter(
            [row.measured_s for row in rows],
            [row.predicted_s for row in rows],
            marker=_MARKERS[i % len(_MARKERS)],
            facecolors="none",
            edgecolors=PALETTE[i % len(PALETTE)],
            label=f"{source} ({len(rows)})",
            zorder=2,
        )
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0))
    return figure
