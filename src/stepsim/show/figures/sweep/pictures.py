"""What a figure of a sweep shows, before anybody draws it: lines over one axis, maps over two.

`lines` and `maps` draw it into files, `stepsim.show.page.sweep_page` on pages.
"""

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.structs import Noun
from stepsim.base.units import PS_PER_S
from stepsim.explore.sweep.table import SweepTable
from stepsim.show.figures.sweep.scales import Scale, scale_of, time_unit_of
from stepsim.show.figures.sweep.views import View
from stepsim.show.palette import series_colours
from stepsim.show.tables.model import axis_words


class Measure(Noun):
    """Values over the axes of a view, in the unit that the label names; NaN without a result.

    `unit` is that unit in seconds, or as a fraction of the pipeline.
    """

    values: Floats
    label: str
    unit: float


class _Series(Noun):
    """A line: its name, its colour, and a value for every place along the axis."""

    name: str
    colour: str
    values: Floats


class LinePicture(Noun):
    """Lines over one axis; `key` says what tells them apart, empty for a single one."""

    view: View
    x: Scale
    measure: Measure
    series: tuple[_Series, ...]
    key: str


class MapPanel(Noun):
    """A map: its title, and values of shape (x, y) in ascending order of both axes."""

    title: str
    values: Floats

    @property
    def best(self) -> tuple[int, int] | None:
        """Where the least value is; None where nothing could run."""
        if np.isnan(self.values).all():
            return None
        x, y = np.unravel_index(np.nanargmin(self.values), self.values.shape)
        return int(x), int(y)


class MapPicture(Noun):
    """Maps over two axes with one scale of colours between `limits`."""

    view: View
    x: Scale
    y: Scale
    measure: Measure
    panels: tuple[MapPanel, ...]

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest value of all maps."""
        return float(np.nanmin(self.measure.values)), float(np.nanmax(self.measure.values))


def line_picture(table: SweepTable, view: View, *, bubble: bool) -> LinePicture:
    """A line per value of `view.by`."""
    found = _measure(table, view, bubble=bubble)
    names = view.by.texts if view.by else ("simulated",)
    colours = series_colours(view.by.texts if view.by else ("",))
    lines = found.values.reshape(len(found.values), -1).T
    return LinePicture(
        view=view,
        x=scale_of(view.x),
        measure=found,
        series=tuple(
            _Series(name=name, colour=colour, values=values)
            for name, colour, values in zip(names, colours, lines, strict=True)
        ),
        key=axis_words(view.by.name) if view.by else "",
    )


def map_picture(table: SweepTable, view: View, *, bubble: bool) -> MapPicture:
    """A map per value of `view.by`."""
    found = _measure(table, view, bubble=bubble)
    assert view.y
    x, y = scale_of(view.x), scale_of(view.y)
    by = view.by
    titles = [f"{axis_words(by.name)} {text}" for text in by.texts] if by else [""]
    values = found.values[x.order][:, y.order].reshape(len(x.places), len(y.places), -1)
    return MapPicture(
        view=view,
        x=x,
        y=y,
        measure=found,
        panels=tuple(
            MapPanel(title=title, values=values[:, :, i]) for i, title in enumerate(titles)
        ),
    )


def _measure(table: SweepTable, view: View, *, bubble: bool) -> Measure:
    """Step times or bubble fractions of the fastest scenarios."""
    if bubble:
        (fractions,) = table.fastest(view.shown, ["bubble_fraction"])
        return Measure(values=100 * fractions, label="bubble (% of the pipeline)", unit=0.01)
    (times,) = table.fastest(view.shown, ["step_time_ps"]) / PS_PER_S
    unit, name = time_unit_of(times)
    return Measure(values=times / unit, label=f"step time ({name})", unit=unit)
