"""Interactive figures. The only module that imports Bokeh, and only when a page is made."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Floats, Ints
from stepsim.base.structs import Noun
from stepsim.base.units import time_unit
from stepsim.show.figures.style import GRID
from stepsim.show.page.columns import SpanColumns
from stepsim.show.palette import IDLE, IDLE_GROUND, PATH, PER_STEP, SHADES, ink_on
from stepsim.workload.axes import Stream

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource, Range1d

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_INK = "#1f2328"
_ACTION_HEIGHT, _COMPUTE_HEIGHT, _GAP = 1.0, 0.8, 0.4
_STREAM_HEIGHT, _NAMED_STREAM_HEIGHT = 0.3, 0.66  # a name fits beside the latter
_UNIT_PX = 17
_LEAST_PX, MOST_PX = 90, 900
_FRAME_PX, _TOOLS_PX, _AXIS_PX = 6, 32, 46
_ROW_PX, _ROWS_PX, _HIGHEST_ROW_PX, _ROW_GAP, _MOST_ROWS_PX = 26, 130, 52, 0.22, 620
_FEW_ROWS, _FEW_TASKS = 2, 1500
"""Up to so many rows and tasks are shown with their lanes from the start: they can be seen."""
_LIGHTER = 0.6
_MOST_LABELS = 48
_LEFT_PX = 60


class Plot(Noun):
    """A figure of a page: its place's id, what it shows in words, its height.

    `data` is what the page's script needs to say what is under the pointer.
    """

    name: str
    described: str
    height_px: int
    figure: Any
    data: Mapping[str, Any]
    others: tuple[Any, ...] = ()


def time_range(longest_ps: int) -> "Range1d":
    """Everything from 0 to a time; panels that share it are zoomed together."""
    from bokeh.models import Range1d

    end = longest_ps / time_unit(longest_ps)[0] or 1.0
    margin = 0.01 * end
    low, high = -margin, end + margin
    return Range1d(start=low, end=high, bounds=(low, high), name="time")


def timeline_plot(
    columns: SpanColumns,
    times: "Range1d",
    longest_ps: int,
    *,
    name: str,
    described: str,
    most_px: int = MOST_PX,
    first: bool = True,
    last: bool = True,
) -> Plot:
    """The spans of a run: a row of actions per rank, and its streams as lanes below on demand.

    Of several figures on one time axis the `first` has the tools, the `last` the axis.
    """
    scale, unit = time_unit(longest_ps)
    lanes = _Lanes.of(columns, _NAMED_STREAM_HEIGHT)
    if lanes.height_px > most_px:
        lanes = _Lanes.of(columns, _STREAM_HEIGHT)
    frame = _FRAME_PX + _TOOLS_PX * first + _AXIS_PX * last
    views = {
        "actions": _actions_view(len(columns.rows), frame),
        "lanes": lanes.view(most_px, frame),
    }
    few = len(columns.rows) <= _FEW_ROWS and len(columns) <= _FEW_TASKS
    shown = "lanes" if few else "actions"
    view = views[shown]
    plot = new_figure(name, view.height_px, times, view.range())
    plot.xaxis.axis_label = f"time ({unit})"
    plot.xaxis.visible = last
    if not first:
        plot.toolbar_location = None
    _name_bands(plot, columns, views, shown)
    _name_streams(plot, columns, lanes)
    spans = _span_source(columns, lanes, scale)
    actions = _action_source(columns, view, scale)
    _draw_timeline(plot, columns, lanes, view, scale, spans, actions)
    return Plot(
        name=name,
        described=described,
        height_px=view.height_px,
        figure=plot,
        data=_timeline_data(columns, scale)
        | {
            "stream_height": lanes.stream_height,
            "views": {each: views[each].plain() for each in views},
            "shown": shown,
        },
        others=(new_source(f"{name}-before", before=_int32(columns.before)),),
    )


class _View(Noun):
    """Where the actions of every row lie, downwards: `tops` of rows of height 1, and all there is.

    `middles` are where the rows are named.
    """

    tops: Floats
    middles: Floats
    low: float
    high: float
    height_px: int

    def range(self) -> "Range1d":
        """The y range, first row on top."""
        from bokeh.models import Range1d

        return Range1d(start=self.high, end=self.low, bounds=(self.low, self.high), name="rows")

    def plain(self) -> dict[str, Any]:
        """What the page's script needs to change to it."""
        return {
            "tops": self.tops.tolist(),
            "low": self.low,
            "high": self.high,
            "height": self.height_px,
        }


def _actions_view(rows: int, frame_px: int) -> _View:
    """A row per rank, of actions alone; few rows are higher."""
    tops = np.arange(rows, dtype=np.float64) * (_ACTION_HEIGHT + _ROW_GAP)
    row_px = max(_ROW_PX, min(_HIGHEST_ROW_PX, _ROWS_PX // rows))
    height = min(rows * row_px, _MOST_ROWS_PX) + frame_px
    return _View(
        tops=tops,
        middles=tops + _ACTION_HEIGHT / 2,
        low=-_ROW_GAP,
        high=float(tops[-1]) + _ACTION_HEIGHT + _ROW_GAP,
        height_px=height,
    )


class _Lanes(Noun):
    """Where every stream of every row lies, downwards: `low` and `high` of shape (rows, streams).

    `action_low` and `middle` have a value per row.
    """

    low: Floats
    high: Floats
    action_low: Floats
    middle: Floats
    height: float
    stream_height: float

    @property
    def height_px(self) -> int:
        """The height at which everything has its natural size."""
        return round(self.height * _UNIT_PX)

    @classmethod
    def of(cls, columns: SpanColumns, stream_height: float) -> "_Lanes":
        """Lanes whose streams of communication have a height of their own."""
        shape = len(columns.rows), len(Stream)
        low, high = np.zeros(shape), np.zeros(shape)
        tops, bottoms, at = [], [], 0.0
        for i, row in enumerate(columns.rows):
            tops.append(at)
            at += _ACTION_HEIGHT + 0.1
            for stream in row.streams:
                tall = _COMPUTE_HEIGHT if stream is Stream.COMPUTE else stream_height
                low[i, stream], high[i, stream] = at, at + tall * 0.94
                at += tall
            bottoms.append(at)
            at += _GAP
        top = np.array(tops)
        return cls(
            low=low,
            high=high,
            action_low=top,
            middle=(top + np.array(bottoms)) / 2,
            height=at,
            stream_height=stream_height,
        )

    def view(self, most_px: int, frame_px: int) -> _View:
        """Actions above their lanes."""
        return _View(
            tops=self.action_low,
            middles=self.middle,
            low=-0.3,
            high=self.height - _GAP + 0.3,
            height_px=min(max(self.height_px, _LEAST_PX), most_px) + frame_px,
        )


def _name_bands(plot: Any, columns: SpanColumns, views: Mapping[str, _View], shown: str) -> None:
    """An axis that names the rows for each view; the page's script shows that of the view."""
    from bokeh.models import FixedTicker, LinearAxis

    stride = -(-len(columns.rows) // _MOST_LABELS)
    labels = [row.label for row in columns.rows][::stride]
    axes = []
    for name, view in views.items():
        places = view.middles[::stride].tolist()
        axis = LinearAxis(
            name=f"bands-{name}",
            ticker=FixedTicker(ticks=places),
            major_label_overrides=dict(zip(places, labels, strict=True)),
            visible=name == shown,
        )
        _dress(axis)
        axes.append(axis)
    plot.left = axes


def _name_streams(plot: Any, columns: SpanColumns, lanes: _Lanes) -> None:
    """An inner axis that names the streams; the page's script shows it where names fit."""
    from bokeh.models import FixedTicker, LinearAxis

    middles = (lanes.low + lanes.high) / 2
    named = {
        float(middles[i, stream]): _stream_words(stream)
        for i, row in enumerate(columns.rows[:_MOST_LABELS])
        for stream in row.streams
    }
    streams = LinearAxis(
        name="streams",
        ticker=FixedTicker(ticks=list(named)),
        major_label_overrides=named,
        visible=False,
    )
    plot.left = [streams, *plot.left]
    _dress(streams)
    streams.major_label_text_font_size = "10px"
    streams.major_label_standoff = 3


def _stream_words(stream: Stream) -> str:
    """A stream as a page writes it, e.g. `pp forward recv`."""
    return stream.name.lower().replace("_", " ")


def _span_source(columns: SpanColumns, lanes: _Lanes, scale: int) -> "ColumnDataSource":
    return new_source(
        "spans",
        left=columns.start_ps / scale,
        right=columns.end_ps / scale,
        alone=columns.alone_ps / scale,
        low=_float32(lanes.low[columns.row, columns.stream]),
        high=_float32(lanes.high[columns.row, columns.stream]),
        shade=columns.shade.astype(np.uint8),
        row=_int32(columns.row),
        stream=columns.stream.astype(np.uint8),
        name=_int32(columns.name),
        entry=_int32(columns.entry),
        comm=_int32(columns.comm),
        peer=_int32(columns.peer),
        critical=columns.critical.astype(np.uint8),
        first=_int32(columns.first_before[:-1]),
        count=_int32(np.diff(columns.first_before)),
    )


def _action_source(columns: SpanColumns, view: _View, scale: int) -> "ColumnDataSource":
    """Actions, later chunks lighter; of a fused pair the forward is above, the backward below."""
    action = columns.action
    low = view.tops[action.row]
    high = low + _ACTION_HEIGHT
    return new_source(
        "actions",
        left=action.start_ps / scale,
        right=action.end_ps / scale,
        low=_float32(low + (high - low) * action.part / action.parts),
        high=_float32(low + (high - low) * (action.part + 1) / action.parts),
        shade=action.shade.astype(np.uint8),
        strength=_float32(1 - _LIGHTER * action.chunk / action.chunks),
        row=_int32(action.row),
        entry=_int32(action.entry),
    )


def _row_source(
    name: str, rows: Ints, left: Floats, right: Floats, view: _View
) -> "ColumnDataSource":
    """Rectangles as high as actions, in some rows of a view."""
    low = view.tops[rows]
    return new_source(
        name,
        left=left,
        right=right,
        low=_float32(low),
        high=_float32(low + _ACTION_HEIGHT),
        row=_int32(rows),
    )


def _draw_timeline(
    plot: Any,
    columns: SpanColumns,
    lanes: _Lanes,
    view: _View,
    scale: int,
    spans: "ColumnDataSource",
    actions: "ColumnDataSource",
) -> None:
    from bokeh.models import HoverTool, LinearColorMapper

    rows = np.arange(len(columns.rows))
    end = np.full(len(rows), max(int(columns.end_ps.max(initial=0)), 1) / scale)
    start = np.zeros(len(rows))
    idle = _row_source("idle", rows, start, end, view)
    low, high = lanes.low[:, Stream.COMPUTE], lanes.high[:, Stream.COMPUTE]
    idle_lanes = new_source("idle-lanes", left=start, right=end, low=low, high=high)
    outside, unit = columns.outside, float(scale)
    beside = _row_source(
        "outside", outside.row, outside.start_ps / unit, outside.end_ps / unit, view
    )
    palette = [colour for _, colour in SHADES.values()]
    mapper = LinearColorMapper(palette=palette, low=-0.5, high=len(palette) - 0.5)
    shaded = {"field": "shade", "transform": mapper}
    in_lanes = view.tops is lanes.action_low
    draw_idle(plot, idle, "idle")
    quads(plot, idle_lanes, "idle-lanes", fill_color=IDLE_GROUND, visible=in_lanes)
    drawn = quads(plot, spans, "spans", fill_color=shaded, visible=in_lanes)
    quads(plot, beside, "outside", fill_color=PER_STEP)
    above = _draw_actions(plot, actions, shaded, columns.action.chunks)
    on_path = np.flatnonzero(columns.critical)
    data: Any = spans.data
    path = {name: data[name][on_path] for name in ("left", "right", "low", "high", "shade")}
    path_source = new_source("path", **path, edge=path["low"] + (path["high"] - path["low"]) * 0.2)
    quads(plot, path_source, "path-spans", fill_color=shaded, visible=False)
    quads(plot, path_source, "path-edge", fill_color=PATH, bottom="edge", visible=in_lanes)
    marked = new_source("marks", **{name: np.zeros(0) for name in ("left", "right", "low", "high")})
    framed = quads(plot, marked, "marks", fill_color=None, line_color="#d0006f", line_width=2)
    framed.level = "overlay"  # painted by itself: the spans below need not be drawn again
    texts = new_source("labels", x=np.zeros(0), y=np.zeros(0), text=[], ink=[])
    plot.text(
        x="x", y="y", text="text", text_color="ink", source=texts, text_align="center",
        text_baseline="middle", text_font_size="9px", text_font={"value": _FONT}, name="labels",
    )  # fmt: skip
    plot.add_tools(HoverTool(renderers=[drawn, above], tooltips=None, name="hover"))


def _draw_actions(plot: Any, actions: "ColumnDataSource", shaded: Any, chunks: int) -> Any:
    """Actions with white between them; light ones of later chunks have edges and hide the hatch."""
    edge = "white"
    if chunks > 1:
        quads(plot, actions, "ground", fill_color="white")
        edge = _INK
    return quads(
        plot, actions, "actions", fill_color=shaded, fill_alpha="strength", line_color=edge,
        line_width=0.5,
    )  # fmt: skip


def draw_idle(plot: Any, source: "ColumnDataSource", name: str, **look: Any) -> Any:
    """Rectangles hatched in grey, in which nothing runs."""
    hatch = {"hatch_pattern": "/", "hatch_color": IDLE, "hatch_scale": 8.0, "hatch_weight": 1.2}
    return quads(plot, source, name, fill_color=IDLE_GROUND, **hatch, **look)


def quads(plot: Any, source: "ColumnDataSource", name: str, **look: Any) -> Any:
    """Rectangles from the columns left, right, low and high of a source."""
    options = {"line_color": None, "left": "left", "right": "right", "bottom": "high"} | look
    return plot.quad(top="low", source=source, name=name, **options)


def _timeline_data(columns: SpanColumns, scale: int) -> dict[str, Any]:
    return {
        "kind": "timeline",
        "scale_ps": scale,
        "names": columns.names,
        "entries": columns.entries,
        "comms": columns.comms,
        "labels": columns.action.text,
        "rows": [(row.label, row.rank, row.ranks) for row in columns.rows],
        "streams": [_stream_words(stream) for stream in Stream],
        "shades": [name for name, _ in SHADES.values()],
        "dark": [ink_on(colour) == "white" for _, colour in SHADES.values()],
    }


def new_figure(name: str, height_px: int, x_range: Any, y_range: Any, **axes: Any) -> Any:
    """An empty figure in the page's style, as wide as the page."""
    from bokeh.models import (
        BoxZoomTool,
        PanTool,
        ResetTool,
        SaveTool,
        WheelZoomTool,
        ZoomInTool,
        ZoomOutTool,
    )  # fmt: skip
    from bokeh.plotting import figure

    drag = BoxZoomTool(dimensions="auto")
    plot = figure(
        name=name,
        height=height_px,
        sizing_mode="stretch_width",
        x_range=x_range,
        y_range=y_range,
        tools=[
            drag,
            PanTool(),
            WheelZoomTool(dimensions="width", modifiers="ctrl"),
            ZoomInTool(dimensions="width"),
            ZoomOutTool(dimensions="width"),
            ResetTool(),
            SaveTool(filename=name),
        ],
        active_drag=drag,
        toolbar_location="above",
        min_border_left=_LEFT_PX,
        **axes,
    )
    plot.toolbar.logo = None
    plot.outline_line_color = None
    plot.border_fill_color = None  # the page's script gives it the page's
    plot.ygrid.grid_line_color = None
    plot.xgrid.grid_line_color = GRID
    for axis in plot.axis:
        _dress(axis)
    return plot


def _dress(axis: Any) -> None:
    """The looks of an axis; its colours follow the page's."""
    axis.axis_line_color = None
    axis.minor_tick_line_color = None
    axis.major_tick_line_color = None
    axis.major_label_text_font = axis.axis_label_text_font = _FONT
    axis.major_label_text_font_size = axis.axis_label_text_font_size = "12px"
    axis.major_label_text_color = axis.axis_label_text_color = _INK
    axis.axis_label_text_font_style = "normal"


def new_source(called: str, /, **columns: Any) -> "ColumnDataSource":
    """Columns under a name."""
    from bokeh.models import ColumnDataSource

    return ColumnDataSource(data=columns, name=called)


def _int32(column: NDArray[np.int64]) -> NDArray[np.int32]:
    return column.astype(np.int32)


def _float32(column: Floats) -> NDArray[np.float32]:
    return column.astype(np.float32)


def roots(plots: Sequence[Plot]) -> list[Any]:
    """Models of a page in order: figures, then sources that only its script reads."""
    return [*(plot.figure for plot in plots), *(each for plot in plots for each in plot.others)]
