"""Figures of validations: simulated or predicted times over measured ones."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stepsim.base.errors import OutputError
from stepsim.base.units import PS_PER_S
from stepsim.runs.published import PublishedValidation
from stepsim.runs.validate import Validation
from stepsim.show.figures.drawing import drawn, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import FAINT, series_colour, series_marker

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@drawn
def plot_validation(found: Validation, style: FigureStyle) -> "Figure":
    """Simulated over measured times; raises OutputError where nothing was measured."""
    points = {
        kind: [(each.measured_ps / PS_PER_S, each.simulated_ps / PS_PER_S) for each in times]
        for kind, times in found.kinds().items()
        if not kind.startswith("waits")
    }
    return _over_measured(points, "simulated", style)


@drawn
def plot_published(found: PublishedValidation, style: FigureStyle) -> "Figure":
    """Predicted over measured steps, by source; raises OutputError where there are none."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in found.rows:
        points.setdefault(row.step.source, []).append((row.measured_s, row.predicted_s))
    named = {f"{source} ({len(several)})": several for source, several in points.items()}
    return _over_measured(named, "predicted", style)


def _over_measured(
    points: Mapping[str, Sequence[tuple[float, float]]], what: str, style: FigureStyle
) -> "Figure":
    """Seconds of `what` over those measured, a colour and a marker for each kind of points.

    Both axes are logarithmic. On the line between the corners both times are equal.
    """
    from matplotlib.ticker import NullFormatter

    known = {name: [each for each in some if all(each)] for name, some in points.items()}
    times = [time for several in known.values() for each in several for time in each]
    if not times:
        raise OutputError(f"nothing to draw: no time was both measured and {what}")
    figure = style.figure(4.5)
    axes = figure.subplots()
    low, high = min(times) / 1.3, max(times) * 1.3
    axes.plot([low, high], [low, high], color=FAINT, zorder=1)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set(xlabel="measured (s)", ylabel=f"{what} (s)")
    for i, (name, several) in enumerate(known.items()):
        if several:
            axes.scatter(
                *zip(*several, strict=True),
                marker=series_marker(i),
                facecolors="none",
                edgecolors=series_colour(i),
                label=name,
                zorder=2,
            )
    legend(figure, style)
    return figure
