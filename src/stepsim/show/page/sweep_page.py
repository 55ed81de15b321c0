"""Pages of sweeps: maps or lines over the axes, and tables of scenarios."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.errors import SweepError
from stepsim.base.units import PS_PER_S, format_bandwidth, format_time_ps
from stepsim.explore.sweep.table import Extreme, StoredAxis, SweepTable
from stepsim.show.figures.drawing import series_colours
from stepsim.show.figures.style import GRID
from stepsim.show.figures.sweep.scales import TIMES, edges_of, scale_of, short, unit_of, words
from stepsim.show.figures.sweep.views import View, choose_view
from stepsim.show.page.figures import Floats, Plot, new_figure, new_source
from stepsim.show.page.page import Cell, Chart, Column, Page, Section, Table
from stepsim.show.page.sections import count_cell, time_cell

if TYPE_CHECKING:
    from bokeh.models import LinearColorMapper

MOST_SCENARIOS = 1000
_MAP_PX, _LINES_PX = 420, 460
_FAILED = "#d9d9d9"


def sweep_page(table: SweepTable, *, command: str, axes: Sequence[str] = ()) -> Page:
    """What a sweep has found so far; `axes` are those of its figure, see `choose_view`.

    Raises SweepError where no scenario has a result, or for axes that it does not have.
    """
    workload, topology = table.source
    progress = table.progress
    fastest = table.extremes(MOST_SCENARIOS)
    if not fastest:
        failure = table.first_error()
        why = f"; the first: {failure[1]}" if failure else ""
        raise SweepError(f"none of {progress.done} scenarios has a result{why}")
    (slowest,) = table.extremes(1, slowest=True)
    names = ", ".join(words(axis.name) for axis in table.axes)
    return Page(
        title=f"{workload} on {topology}: sweep",
        subtitle=f"Step time over {names}",
        facts=(
            ("Scenarios", f"{progress.done:,} of {progress.size:,}"),
            ("Failed", f"{progress.failed:,}"),
            ("Fastest", format_time_ps(fastest[0].step_time_ps)),
            ("Slowest", format_time_ps(slowest.step_time_ps)),
        ),
        settings=(
            ("Workload", workload),
            ("Topology", topology),
            *(
                (f"Fastest {words(n)}", short(v))
                for n, v in table.settings(fastest[0].scenario).items()
            ),
        ),
        sections=(
            _figure_section(table, axes),
            Section(name="axes", heading="Axes", tables=tuple(_axis_tables(table))),
            _pareto_section(table),
            _scenario_section(table, fastest),
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
    (times,) = table.fastest(view.shown, ["step_time_ps"])
    seconds = times / PS_PER_S
    shown = {axis.name for axis in view.shown}
    over = [words(a.name) for a in table.axes if a.name not in shown and len(a.texts) > 1]
    text = f"The fastest over {', '.join(over)}." if over else ""
    charts = tuple(_maps(view, seconds)) if view.y else (_lines(view, seconds),)
    return Section(name="map", heading="Step time", text=text, charts=charts)


def _maps(view: View, seconds: Floats) -> Iterator[Chart]:
    """A map per value of `by`, all with one colour scale."""
    from bokeh.models import LinearColorMapper
    from bokeh.palettes import Viridis256

    assert view.y
    panels = seconds[:, :, None] if view.by is None else seconds
    scale, unit = unit_of(seconds, TIMES)
    low, high = float(np.nanmin(seconds)) / scale, float(np.nanmax(seconds)) / scale
    mapper = LinearColorMapper(
        palette=Viridis256[::-1], low=low, high=max(high, low * (1 + 1e-9)), nan_color=_FAILED
    )
    note = "A ring marks the fastest." + " Grey: none could run." * bool(np.isnan(seconds).any())
    for i in range(panels.shape[2]):
        title = f"{words(view.by.name)} {view.by.texts[i]}" if view.by else ""
        plot = _map(f"map-{i}", title, view.x, view.y, panels[:, :, i] / scale, scale, mapper, unit)
        yield Chart(plot=plot, title=title, note=note)


def _map(
    name: str,
    title: str,
    x: StoredAxis,
    y: StoredAxis,
    values: Floats,
    scale: float,
    mapper: "LinearColorMapper",
    unit: str,
) -> Plot:
    from bokeh.models import ColorBar, HoverTool

    (xs, x_label, x_log), (ys, y_label, y_log) = scale_of(x), scale_of(y)
    x_edges, y_edges = _cell_edges(xs, log=x_log), _cell_edges(ys, log=y_log)
    figure = new_figure(
        name,
        _MAP_PX,
        _range(x_edges),
        _range(y_edges),
        x_axis_type="log" if x_log else "linear",
        y_axis_type="log" if y_log else "linear",
    )
    i, j = (each.ravel() for each in np.indices(values.shape))
    cells = new_source(
        "cells",
        left=x_edges[i, 0],
        right=x_edges[i, 1],
        low=y_edges[j, 0],
        high=y_edges[j, 1],
        x=i.astype(np.int32),
        y=j.astype(np.int32),
        value=values.ravel(),
    )
    drawn = figure.quad(
        left="left", right="right", bottom="low", top="high", source=cells, name="cells",
        fill_color={"field": "value", "transform": mapper}, line_color=None,
    )  # fmt: skip
    if not np.isnan(values).all():
        best = np.unravel_index(np.nanargmin(values), values.shape)
        figure.scatter(
            [xs[best[0]]], [ys[best[1]]], size=13, fill_color=None, line_color="black",
            line_width=2,
        )  # fmt: skip
    figure.add_layout(ColorBar(color_mapper=mapper, title=f"step time ({unit})", width=12), "right")
    figure.add_tools(HoverTool(renderers=[drawn], tooltips=None))
    figure.xaxis.axis_label, figure.yaxis.axis_label = _plain(x_label), _plain(y_label)
    return Plot(
        name=name,
        described=f"Step time over {words(x.name)} and {words(y.name)} {title}".strip(),
        height_px=_MAP_PX,
        figure=figure,
        data=_tips(["cells"], {"x": x, "y": y}, scale),
    )


def _cell_edges(places: Floats, *, log: bool) -> Floats:
    """Left and right border of every cell, of shape (places, 2), in the places' own order."""
    order = np.argsort(places)
    edges = edges_of(places[order], log=log)
    found = np.empty((len(places), 2))
    found[order] = np.stack([edges[:-1], edges[1:]], axis=1)
    return found


def _range(edges: Floats) -> Any:
    from bokeh.models import Range1d

    low, high = float(edges.min()), float(edges.max())
    return Range1d(start=low, end=high, bounds=(low, high))


def _lines(view: View, seconds: Floats) -> Chart:
    """A line per value of `by`, with dots to point at."""
    from bokeh.models import DataRange1d, FixedTicker, HoverTool

    scale, unit = unit_of(seconds, TIMES)
    places, label, log = scale_of(view.x)
    lines = seconds[:, None] if view.by is None else seconds
    colours = series_colours(view.by.texts if view.by else ("",))
    figure = new_figure(
        "lines", _LINES_PX, DataRange1d(), DataRange1d(),
        x_axis_type="log" if log else "linear",
    )  # fmt: skip
    dots = []
    order = np.argsort(places)
    for i in range(lines.shape[1]):
        values = lines[order, i] / scale
        source = new_source(
            f"line-{i}",
            at=places[order],
            value=values,
            x=order.astype(np.int32),
            by=np.full(len(order), i, dtype=np.int32),
        )
        if view.x.numeric:
            figure.line("at", "value", source=source, color=colours[i], line_width=2)
        dots.append(
            figure.scatter("at", "value", source=source, color=colours[i], size=7, name=f"line-{i}")
        )
    if not view.x.numeric:
        figure.xaxis.ticker = FixedTicker(ticks=places.tolist())
        figure.xaxis.major_label_overrides = {
            int(place): _plain(text) for place, text in zip(places, view.x.texts, strict=True)
        }
    figure.ygrid.grid_line_color = GRID
    figure.xaxis.axis_label, figure.yaxis.axis_label = _plain(label), f"step time ({unit})"
    figure.add_tools(HoverTool(renderers=dots, tooltips=None))
    axes = {"x": view.x} | ({"by": view.by} if view.by else {})
    plot = Plot(
        name="lines",
        described=f"Step time over {words(view.x.name)}",
        height_px=_LINES_PX,
        figure=figure,
        data=_tips([f"line-{i}" for i in range(len(dots))], axes, scale),
    )
    legend = tuple(zip(view.by.texts, colours, strict=True)) if view.by else ()
    return Chart(plot=plot, legend=legend)


def _plain(text: str) -> str:
    """Text of a tick or an axis; Bokeh would read `$$...$$` as mathematics."""
    return text.replace("$$", "$ $")


def _tips(sources: Sequence[str], axes: dict[str, StoredAxis], scale: float) -> dict[str, Any]:
    """What the page's script says of a cell or a dot."""
    value = {"label": "Step time", "column": "value", "scale_ps": scale * PS_PER_S}
    texts = [
        {"label": words(axis.name), "column": column, "texts": [short(text) for text in axis.texts]}
        for column, axis in axes.items()
    ]
    return {"kind": "cells", "sources": sources, "tip": [value, *texts]}


def _axis_tables(table: SweepTable) -> Iterator[Table]:
    """Least and mean step time of every value, over all other axes."""
    for axis in table.axes:
        if len(axis.texts) > 1:
            yield Table(
                caption=f"{words(axis.name)}, over all other axes",
                columns=(
                    Column(words(axis.name), number=axis.numeric),
                    *map(Column, ("Fastest", "Mean", "Scenarios", "Failed")),
                ),
                rows=tuple(
                    (
                        Cell(short(axis.texts[row.position]), row.position),
                        time_cell(row.least_ps),
                        time_cell(row.mean_ps),
                        count_cell(row.scenarios),
                        count_cell(row.failed),
                    )
                    for row in table.by_value(axis)
                ),
            )


def _pareto_section(table: SweepTable) -> Section:
    """Scenarios that no other beats with as little bandwidth."""
    front = table.pareto_front()
    rows = tuple(
        (
            Cell(format_bandwidth(point.total_bandwidth), point.total_bandwidth),
            *_scenario(table, Extreme(point.scenario, point.step_time_ps)),
        )
        for point in front
    )
    columns = (Column("All links, both directions"), *_scenario_columns(table))
    pareto = Table(caption="Least step time for the bandwidth bought", columns=columns, rows=rows)
    return Section(
        name="pareto",
        heading="Pareto front",
        tables=(pareto,) if rows else (),
        missing="" if rows else "No scenario has finite bandwidth.",
    )


def _scenario_section(table: SweepTable, fastest: Sequence[Extreme]) -> Section:
    progress, failure = table.progress, table.first_error()
    done = progress.done - progress.failed
    caption = "Every scenario, fastest first"
    if len(fastest) < done:
        caption = f"The fastest {len(fastest):,} of {done:,} scenarios; --export writes all"
    note = ""
    if failure:
        settings = ", ".join(f"{n} {v}" for n, v in table.settings(failure[0]).items())
        note = f"First of {progress.failed:,} that failed, {settings}: {failure[1]}"
    rows = tuple(_scenario(table, each) for each in fastest)
    scenarios = Table(caption=caption, columns=_scenario_columns(table), rows=rows, note=note)
    return Section(name="scenarios", heading="Scenarios", tables=(scenarios,))


def _scenario_columns(table: SweepTable) -> tuple[Column, ...]:
    axes = (Column(words(a.name), number=a.numeric) for a in table.axes)
    return (Column("Step time"), *axes)


def _scenario(table: SweepTable, each: Extreme) -> tuple[Cell, ...]:
    positions = (int(axis.positions(np.array([each.scenario]))[0]) for axis in table.axes)
    settings = (
        Cell(short(axis.texts[i]), float(axis.values[i]) if axis.numeric else None)
        for axis, i in zip(table.axes, positions, strict=True)
    )
    return time_cell(each.step_time_ps), *settings
