"""Step time over an axis with the band in which nine of ten steps lie."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import OutputError, SweepError
from stepsim.base.units import PS_PER_S
from stepsim.explore.noise.sweeps import NoiseSweep
from stepsim.explore.sweep.axes import Axis
from stepsim.explore.sweep.grid import Grid
from stepsim.explore.sweep.table import StoredAxis
from stepsim.show.figures.drawing import head, legend, make_figure
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.sweep.scales import scale_of, time_unit_of, value_axis
from stepsim.show.palette import FAINT, series_colours, series_marker
from stepsim.show.words import axis_words

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

_BAND = (5, 95)
_MOST_BANDS = 8


def plot_noise_sweep(
    found: NoiseSweep, path: Path, *, style: FigureStyle | str = FigureStyle.SCREEN
) -> None:
    """Draw the medians and bands of a noise sweep; raises OutputError, and as `band_axes`."""
    band_axes(found.grid)
    if not found.results:
        raise OutputError(f"{path}: nothing to draw: no scenario has a result")
    make_figure(lambda chosen: noise_sweep_figure(found, chosen), path, style)


def band_axes(grid: Grid) -> tuple[StoredAxis, StoredAxis | None]:
    """The axis along the figure, which has numbers, and the one with a band per value.

    Raises SweepError for other axes than these.
    """
    axes = [_stored(grid, axis) for axis in grid.axes]
    numbers = [axis for axis in axes if axis.numeric]
    groups = [axis for axis in axes if not axis.numeric]
    if len(numbers) != 1 or len(groups) > 1:
        raise SweepError(
            f"figure axes are {','.join(axis.name for axis in axes)}: expected one with numbers "
            "and at most one of names"
        )
    by = groups[0] if groups else None
    if by and len(by.texts) > _MOST_BANDS:
        raise SweepError(
            f"axis {by.name} has {len(by.texts)} values: expected at most {_MOST_BANDS} bands"
        )
    return numbers[0], by


def noise_sweep_figure(found: NoiseSweep, style: FigureStyle) -> "Figure":
    """A median line in its band per value of the axis of names; dashed is without noise."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    x, by = band_axes(found.grid)
    names = by.texts if by else ("",)
    figure = style.figure(2.9 if style.narrow else 3.2)
    axes = figure.subplots()
    said = f"{found.samples:,} steps each; variation: {found.model.words}"
    head(axes, style, " on ".join(found.source), said)
    along = scale_of(x)
    order, places = along.order, along.ascending
    seconds = _seconds(found, x, by)
    scale, unit = time_unit_of(seconds)
    for i, (name, colour) in enumerate(zip(names, series_colours(names), strict=True)):
        planned, low, median, high = seconds[:, i, order] / scale
        axes.fill_between(places, low, high, color=colour, alpha=0.25, linewidth=0)
        marker = series_marker(i) if len(places) <= 33 else None
        axes.plot(places, median, color=colour, marker=marker, label=name)
        axes.plot(places, planned, "--", color=colour, linewidth=0.6 * style.line_pt)
    handles: list[Artist] = [*axes.lines[::2]] if by else []
    handles += [
        Line2D([], [], color="#555555", label="median"),
        Patch(color="#555555", alpha=0.25, linewidth=0, label="5 to 95 % of steps"),
        Line2D([], [], color=FAINT, ls="--", lw=0.6 * style.line_pt, label="without noise"),
    ]
    value_axis(axes, "x", along, style)
    axes.set_xlabel(along.label)
    axes.set_ylabel(f"step time ({unit})")
    axes.grid(axis="y")
    legend(figure, style, handles, title=axis_words(by.name) if by else "")
    return figure


def _seconds(found: NoiseSweep, x: StoredAxis, by: StoredAxis | None) -> Floats:
    """Planned time, low, median and high in s: of shape (4, values of by, values of x)."""
    shape = 4, len(by.texts) if by else 1, len(x.texts)
    seconds = np.full(shape, np.nan)
    scenarios = np.arange(found.grid.size)
    rows = by.positions(scenarios) if by else np.zeros_like(scenarios)
    for row, column, each in zip(rows, x.positions(scenarios), found.scenarios, strict=True):
        if not isinstance(each, str):
            low, high = (each.percentile_ps(percent) for percent in _BAND)
            numbers = each.planned_ps, low, each.percentile_ps(50), high
            seconds[:, row, column] = np.array(numbers) / PS_PER_S
    return seconds


def _stored(grid: Grid, axis: Axis) -> StoredAxis:
    return StoredAxis(
        name=axis.name,
        quantity=axis.kind.quantity,
        stride=grid.strides[axis.name],
        texts=axis.texts,
        values=axis.values,
    )
