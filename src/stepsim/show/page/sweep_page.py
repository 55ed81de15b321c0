"""Pages of sweeps: a map or lines over the axes, and tables of scenarios.

The figures are those that `stepsim.show.figures.sweep.pictures` describes, drawn by Bokeh.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import SweepError
from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.explore.sweep.table import StoredAxis, SweepTable
from stepsim.show.figures.style import GRID
from stepsim.show.figures.sweep.pictures import (
    LinePicture,
    MapPanel,
    MapPicture,
    Measure,
    line_picture,
    map_picture,
)
from stepsim.show.figures.sweep.scales import Scale
from stepsim.show.figures.sweep.views import choose_view, fixed_options, left_out
from stepsim.show.headlines import Headline
from stepsim.show.page.figures import Plot, new_figure, new_source
from stepsim.show.page.page import Chart, Page, Section
from stepsim.show.palette import BACKGROUND, ink_on
from stepsim.show.tables.model import axis_words, short_value
from stepsim.show.tables.studies import axis_table, scenarios_table

if TYPE_CHECKING:
    from bokeh.models import LinearColorMapper

_MOST_SCENARIOS = 1000


def sweep_page(table: SweepTable, *, command: str, axes: Sequence[str] = ()) -> Page:
    """What a sweep has found so far; `axes` are those of its figure, see `choose_view`.

    Raises SweepError where no scenario has a result, or for axes that it does not have.
    """
    workload, topology = table.source
    progress = table.progress
    fastest = table.extremes(_MOST_SCENARIOS)
    if not fastest:
        failure = table.first_error()
        why = f"; the first: {failure[1]}" if failure else ""
        raise SweepError(f"none of {progress.done} scenarios has a result{why}")
    (slowest,) = table.extremes(1, slowest=True)
    names = ", ".join(axis_words(axis.name) for axis in table.axes)
    return Page(
        title=f"{workload} on {topology}: sweep",
        subtitle=f"Step time over {names}",
        facts=(
            Headline(name="fastest", value=format_time_ps(fastest[0].step_time_ps)),
            Headline(name="slowest", value=format_time_ps(slowest.step_time_ps)),
            Headline(name="scenarios", value=f"{progress.done:,} of {progress.size:,}"),
            Headline(name="failed", value=f"{progress.failed:,}"),
        ),
        settings=(
            ("workload", workload),
            ("topology", topology),
            *fixed_options(table),
            *(
                (f"fastest {axis_words(n)}", short_value(v))
                for n, v in table.settings(fastest[0].scenario).items()
            ),
        ),
        sections=(
            _figure_section(table, axes),
            Section(
                name="axes",
                heading="Axes",
                tables=tuple(axis_table(table, a) for a in table.axes if len(a.texts) > 1),
            ),
            Section(
                name="scenarios",
                heading="Scenarios",
                tables=(scenarios_table(table, fastest),),
            ),
        ),
        command=command,
    )


def _figure_section(table: SweepTable, axes: Sequence[str]) -> Section:
    try:
        view = choose_view(table, axes)
    except SweepError as error:
        if axes:
            raise
        return Section(name="map", heading="Step time", missing=f"No figure: {error}.")
    if view.y:
        charts = tuple(map_charts(map_picture(table, view, bubble=False)))
    else:
        charts = (line_chart(line_picture(table, view, bubble=False)),)
    over = left_out(table, view)
    text = f"The fastest over {', '.join(over)}." if over else ""
    return Section(name="map", heading="Step time", text=text, charts=charts)


_MAP_PX, _LINES_PX = 420, 460
_MOST_TICKS, _MOST_WRITTEN = 16, 400


def map_charts(picture: MapPicture) -> Iterator[Chart]:
    """A chart per map, all with one colour scale; a ring marks the fastest."""
    from bokeh.models import LinearColorMapper
    from bokeh.palettes import Viridis256

    low, high = picture.limits
    mapper = LinearColorMapper(
        palette=Viridis256[::-1], low=low, high=max(high, low * (1 + 1e-9)), nan_color=BACKGROUND
    )
    failed = bool(np.isnan(picture.measure.values).any())
    note = "A ring marks the fastest." + " Grey: none could run." * failed
    for i, panel in enumerate(picture.panels):
        plot = _map(f"map-{i}", picture, panel, mapper)
        yield Chart(plot=plot, title=panel.title, note=note)


def _map(name: str, picture: MapPicture, panel: MapPanel, mapper: "LinearColorMapper") -> Plot:
    from bokeh.models import ColorBar, HoverTool

    x, y, view = picture.x, picture.y, picture.view
    assert view.y
    figure = new_figure(
        name,
        _MAP_PX,
        _range(x.edges),
        _range(y.edges),
        x_axis_type="log" if x.log else "linear",
        y_axis_type="log" if y.log else "linear",
    )
    i, j = (each.ravel() for each in np.indices(panel.values.shape))
    cells = new_source(
        "cells",
        left=x.edges[i],
        right=x.edges[i + 1],
        low=y.edges[j],
        high=y.edges[j + 1],
        x=x.order[i].astype(np.int32),
        y=y.order[j].astype(np.int32),
        value=panel.values.ravel(),
    )
    drawn = figure.quad(
        left="left", right="right", bottom="low", top="high", source=cells, name="cells",
        fill_color={"field": "value", "transform": mapper}, line_color=None,
    )  # fmt: skip
    _write_values(figure, picture, panel, mapper)
    if panel.best:
        figure.scatter(
            [x.ascending[panel.best[0]]], [y.ascending[panel.best[1]]], size=40, fill_color=None,
            line_color="black", line_width=2,
        )  # fmt: skip
    bar = ColorBar(color_mapper=mapper, title=picture.measure.label, width=12, title_standoff=8)
    figure.add_layout(bar, "right")
    for axis, scale, shown in ((figure.xaxis, x, view.x), (figure.yaxis, y, view.y)):
        _name_values(axis, scale, shown)
    figure.add_tools(HoverTool(renderers=[drawn], tooltips=None))
    figure.xaxis.axis_label, figure.yaxis.axis_label = _plain(x.label), _plain(y.label)
    return Plot(
        name=name,
        described=f"Step time over {axis_words(view.x.name)} and {axis_words(view.y.name)} "
        f"{panel.title}".strip(),
        height_px=_MAP_PX,
        figure=figure,
        data=_tips(["cells"], {"x": view.x, "y": view.y}, picture.measure),
    )


def _name_values(axis: Any, scale: Scale, shown: StoredAxis) -> None:
    """A tick at every value, unless they are many numbers."""
    from bokeh.models import FixedTicker

    places = scale.places.tolist()
    if shown.numeric and len(places) > _MOST_TICKS:
        return
    texts = [f"{at:.4g}" for at in places] if shown.numeric else map(_plain, shown.texts)
    axis.ticker = FixedTicker(ticks=places)
    axis.major_label_overrides = dict(zip(places, texts, strict=True))


def _write_values(
    figure: Any, picture: MapPicture, panel: MapPanel, mapper: "LinearColorMapper"
) -> None:
    """The number of every cell; the page's script shows them where they fit."""
    if panel.values.size > _MOST_WRITTEN:
        return
    x, y, values = picture.x, picture.y, panel.values.ravel()
    i, j = (each.ravel() for each in np.indices(panel.values.shape))
    share = (values - mapper.low) / (mapper.high - mapper.low)
    inks = [
        "black" if np.isnan(at) else ink_on(mapper.palette[min(255, int(256 * at))][:7])
        for at in share
    ]
    texts = ["failed" if np.isnan(value) else f"{value:.4g}" for value in values]
    source = new_source("values", x=x.ascending[i], y=y.ascending[j], text=texts, ink=inks)
    figure.text(
        x="x", y="y", text="text", text_color="ink", source=source, text_align="center",
        text_baseline="middle", text_font_size="11px", name="values", visible=False,
    )  # fmt: skip


def _range(edges: Floats) -> Any:
    from bokeh.models import Range1d

    low, high = float(edges.min()), float(edges.max())
    return Range1d(start=low, end=high, bounds=(low, high))


def line_chart(picture: LinePicture) -> Chart:
    """Lines with dots to point at."""
    from bokeh.models import DataRange1d, HoverTool

    x, view = picture.x, picture.view
    figure = new_figure(
        "lines", _LINES_PX, DataRange1d(), DataRange1d(),
        x_axis_type="log" if x.log else "linear",
    )  # fmt: skip
    dots = []
    for i, series in enumerate(picture.series):
        source = new_source(
            f"line-{i}",
            at=x.ascending,
            value=series.values[x.order],
            x=x.order.astype(np.int32),
            by=np.full(len(x.order), i, np.int32),
        )
        look = {"source": source, "color": series.colour}
        if view.x.numeric:
            figure.line("at", "value", line_width=2, **look)
        dots.append(figure.scatter("at", "value", size=7, name=f"line-{i}", **look))
    _name_values(figure.xaxis, x, view.x)
    figure.ygrid.grid_line_color = GRID
    figure.xaxis.axis_label = _plain(x.label)
    figure.yaxis.axis_label = picture.measure.label
    figure.add_tools(HoverTool(renderers=dots, tooltips=None))
    axes = {"x": view.x} | ({"by": view.by} if view.by else {})
    plot = Plot(
        name="lines",
        described=f"Step time over {axis_words(view.x.name)}",
        height_px=_LINES_PX,
        figure=figure,
        data=_tips([f"line-{i}" for i in range(len(dots))], axes, picture.measure),
    )
    legend = tuple((series.name, series.colour) for series in picture.series) if view.by else ()
    return Chart(plot=plot, legend=legend)


def _plain(text: str) -> str:
    """Text of a tick or an axis; Bokeh would read `$$...$$` as mathematics."""
    return text.replace("$$", "$ $")


def _tips(sources: Sequence[str], axes: dict[str, StoredAxis], shown: Measure) -> dict[str, Any]:
    """What the page's script says of a cell or a dot."""
    value = {"label": "Step time", "column": "value", "scale_ps": shown.unit * PS_PER_S}
    texts = [
        {
            "label": axis_words(axis.name),
            "column": column,
            "texts": [short_value(text) for text in axis.texts],
        }
        for column, axis in axes.items()
    ]
    return {"kind": "cells", "sources": sources, "tip": [value, *texts]}
