"""Predicted over measured steps of published models, by source."""

from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.base.errors import OutputError
from stepsim.published.compare import PublishedValidation
from stepsim.show.figures.drawing import make_figure
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import FAINT, PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "osD^v<>pPX*hd"


def plot_published(
    found: PublishedValidation, path: Path, *, style: FigureStyle | str = FigureStyle.SCREEN
) -> None:
    """Draw predicted over measured steps, a colour and a marker per source.

    Raises OutputError for another suffix than .png, .svg or .pdf, or where it cannot be written.
    """
    if not found.rows:
        raise OutputError("nothing to draw: no run was both measured and predicted")
    make_figure(lambda chosen: _figure(found, chosen), path, style)


def _figure(found: PublishedValidation, style: FigureStyle) -> "Figure":
    from matplotlib.ticker import NullFormatter

    figure = style.figure(4.5 if style.narrow else 3.6)
    axes = figure.subplots()
    times = [time for row in found.rows for time in (row.measured_s, row.predicted_s)]
    low, high = min(times) / 1.3, max(times) * 1.3
    axes.plot([low, high], [low, high], color=FAINT, zorder=1)
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
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("measured (s)")
    axes.set_ylabel("predicted (s)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0))
    return figure
