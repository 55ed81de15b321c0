"""Timelines of simulated and of recorded steps: a row for every stage, rank or stream."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.arrays import Ints, bins, ints, rows_of
from stepsim.base.axes import ParallelAxis
from stepsim.base.process import paused
from stepsim.base.structs import Names, Noun
from stepsim.base.units import time_unit
from stepsim.run.spans import COMMUNICATIONS, PHASES_OF_KINDS, UNKNOWN, Spans, TaskKind, TaskPhase
from stepsim.show.figures.drawing import IDLE_LOOK, drawn, head, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import PATH, SHADES, Shade, ink_on, shade, span_shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_EM = 80.0  # height of the rows of a figure
_ROW_EM, _PAPER_ROW_EM = 2.4, 1.6
_NUMBER_EM = 0.7  # of a row's microbatch numbers
_LEAST_NUMBER_PT = 4.0
_LEAST_BORDERED_DOTS = 6
# Heights of the axis of time, and of a line of a title and of the legend.
_AXIS_EM, _TITLE_EM, _LEGEND_EM = 3.2, 1.3, 1.5
_BESIDE_EM = 4.5  # what ticks and label take of the width
_LIGHT = [light for _, (light, _) in SHADES.values()]
# Shades of actions by the numbers of their kinds.
_ACTION_SHADES = [Shade[TaskPhase(phase).name] for phase in PHASES_OF_KINDS.tolist()]


class DrawnRun(Noun):
    """A run of a figure: its rows with their labels, and the time that it takes.

    A row is a rank or stands for a stage where `axis` says so, else it is a stream. `path` are the
    parts of the critical path: row, start and end in ps. `axes` are those of a simulated run's
    communications; of a recorded one nobody knows them.
    """

    title: Names
    axis: str
    rows: tuple[tuple[str, Spans], ...]
    width_ps: int
    path: tuple[tuple[int, int, int], ...] = ()
    axes: tuple[ParallelAxis, ...] | None = None


def timelines_figure(
    runs: Sequence[DrawnRun],
    style: FigureStyle,
    *,
    messages: bool = False,
) -> "Figure":
    """Runs above each other on one time axis.

    Microbatch numbers are written where they fit. Communication lies along the lower edge of the
    row of a rank. With `messages` an arrow shows every message between stages.
    """
    from matplotlib.patches import Patch

    width_ps, rows = max(1, *(run.width_ps for run in runs)), [len(run.rows) for run in runs]
    scale, unit = time_unit(width_ps)
    row_em = _ROW_EM if style is FigureStyle.SCREEN else _PAPER_ROW_EM
    row_in = min(row_em, _MOST_EM / sum(rows)) * style.font_pt / 72
    figure = style.figure(1.0)
    every = figure.subplots(len(runs), squeeze=False, sharex=True, height_ratios=rows)[:, 0]
    shown = set[int]()
    for i, (axes, run) in enumerate(zip(every, runs, strict=True)):
        repeated = i > 0 and run.title[0] == runs[0].title[0]
        plot = _Plot(axes=axes, style=style, width_ps=width_ps, scale=scale, row_in=row_in)
        hidden = sum(_draw_row(plot, run, row, shown) for row in range(len(run.rows)))
        if messages and run.axis:
            _draw_arrows(plot, run)
        note = f"{hidden} actions narrower than a dot lie below longer ones" if hidden else ""
        head(axes, style, *run.title[repeated:], note, share=0.9)
        _name_rows(plot, run)
    every[-1].set_xlim(0, width_ps / scale)
    every[-1].set_xlabel(f"time ({unit})")
    named = [(SHADES[each][0], _LIGHT[each]) for each in sorted(shown)]
    named += [("critical path", PATH)] * any(run.path for run in runs)
    handles = [Patch(color=colour, label=name) for name, colour in named]
    lines = legend(figure, style, [*handles, Patch(label="idle", **IDLE_LOOK)])
    titles = sum(axes.get_title("left").count("\n") + 1 for axes in every)
    about = _AXIS_EM + len(runs) + _TITLE_EM * titles + _LEGEND_EM * lines
    figure.set_figheight(style.font_pt / 72 * about + row_in * sum(rows))
    return figure


plot_timelines = paused()(drawn(timelines_figure))
"""Draws runs as `timelines_figure` does, and writes the figure."""


class _Plot(Noun):
    """Where rows are drawn: a time that all plots of a figure share, rows so high.

    `scale` are picoseconds of a unit of the time axis.
    """

    axes: "Axes"
    style: FigureStyle
    width_ps: int
    scale: int
    row_in: float

    @property
    def wide_pt(self) -> float:
        """Width of the rows in points."""
        return self.style.width_in * 72 - _BESIDE_EM * self.style.font_pt

    @property
    def dot_ps(self) -> float:
        """Picoseconds of a dot, of which no box is less."""
        return self.width_ps / (self.wide_pt / 72 * self.style.dpi)

    def draw(
        self,
        row: float,
        start: Ints,
        end: Ints,
        colours: Sequence[str],
        colour: Ints,
        high: tuple[float, float] = (-0.4, 0.4),
        border: str = "none",
    ) -> Ints:
        """Boxes of a row, as far as they can be seen; returns the numbers of those.

        Where several begin in one dot, the longest is drawn. `colour` is the place of each one's
        in `colours`, `high` is where they lie in the row.
        """
        from matplotlib.collections import PolyCollection
        from matplotlib.colors import to_rgba_array

        dot = (start / self.dot_ps).astype(np.int64)
        order = np.lexsort((start - end, dot))
        kept = order[np.unique(dot[order], return_index=True)[1]]
        kept = kept[end[kept] > start[kept]]
        left, right, tint = start[kept], np.maximum(end, start + self.dot_ps)[kept], colour[kept]
        if border == "none" and len(kept):  # those of a colour that touch are one
            apart = (left[1:] > right[:-1]) | np.diff(tint).astype(bool)
            first = np.flatnonzero(np.append(True, apart))
            left, right, tint = left[first], np.maximum.reduceat(right, first), tint[first]
        across = np.stack([left, left, right, right], axis=1) / self.scale
        up = np.broadcast_to(row + np.array([*high, *high[::-1]]), across.shape)
        corners: Any = np.stack([across, up], axis=2)  # as one array nine times as fast as listed
        boxes = PolyCollection(
            corners,
            facecolors=to_rgba_array(colours)[tint],
            edgecolors=border,
            linewidth=0.3,
        )
        self.axes.add_collection(boxes, autolim=False)  # autoscaling takes most of the time
        return kept


def _draw_row(plot: _Plot, run: DrawnRun, row: int, shown: set[int]) -> int:
    """Draw a row, and return how many of its actions are hidden; `shown` gets its shades.

    A rank's actions and other work are boxes, its transfers lie along the lower edge, what
    communication slowed and the critical path along the upper one. Of a stream all are boxes.
    """
    spans = run.rows[row][1]
    shades, hidden = span_shades(spans, run.axes), 0
    parts: list[tuple[Any, tuple[float, float]]] = [(slice(None), (-0.4, 0.4))]
    plot.axes.axhspan(row - 0.4, row + 0.4, zorder=0, **IDLE_LOOK)
    if run.axis:
        hidden = _draw_actions(plot, spans, row, shown)
        sent = spans.of_kind(*COMMUNICATIONS)
        others = ~sent & (spans.entry == UNKNOWN)
        parts = [(others, (-0.4, 0.4)), (sent, (0.3, 0.4)), (spans.slowed, (-0.4, -0.3))]
    for which, high in parts:
        plot.draw(row, spans.start_ps[which], spans.end_ps[which], _LIGHT, shades[which], high)
        shown.update(shades[which].tolist())
    path = ints([part for part in run.path if part[0] == row]).reshape(-1, 3)
    plot.draw(row, path[:, 1], path[:, 2], [PATH], 0 * path[:, 0], (-0.48, -0.4))
    return hidden


def _draw_actions(plot: _Plot, spans: Spans, row: int, shown: set[int]) -> int:
    """The actions of a rank's schedule, where it is known; of a fused pair one below the other.

    Chunks differ in their shade. Actions have borders where most keep their colour when each loses
    a dot to it.
    """
    order, (start, end) = spans.entry_columns, spans.actions()
    chunks = bins(order.chunk)
    tints = [
        shade(_LIGHT[number], 0.75 * chunk / chunks)
        for number in _ACTION_SHADES
        for chunk in range(chunks)
    ]
    upper, *lower = (order.kind.astype(np.int64) * chunks + order.chunk).T
    is_wide = len(order) and np.median(end - start) > _LEAST_BORDERED_DOTS * plot.dot_ps
    border = "white" if is_wide else "none"
    kept = plot.draw(row, start, end, tints, upper, border=border)
    for part, tint in enumerate(lower, 1):
        pairs = kept[order.kind[kept, part] >= 0]
        fused = row, start[pairs], end[pairs]
        plot.draw(*fused, tints, tint[pairs], (0.0, 0.4))
        plot.draw(*fused, ["none"], 0 * pairs, border="black")
    kinds = np.unique(order.kind).tolist()
    shown.update(_ACTION_SHADES[kind] for kind in kinds if kind >= 0)
    font = min(_NUMBER_EM * plot.style.font_pt, plot.row_in * 72 * 0.5)
    numbered = kept if font >= _LEAST_NUMBER_PT else kept[:0]
    for number, microbatches in rows_of(numbered, order.microbatch[numbered]):
        text = "/".join(str(each) for each in microbatches if each >= 0)
        room = float(end[number] - start[number]) / plot.width_ps * plot.wide_pt
        if (len(text) + 0.2) * font * 0.64 < room:
            middle, ink = (
                float(start[number] + end[number]) / 2 / plot.scale,
                ink_on(tints[upper[number]]),
            )
            label = plot.axes.text(middle, row, text, ha="center", va="center", color=ink)
            label.set(fontsize=font, in_layout=False)
    return len(order) - len(kept)


def _draw_arrows(plot: _Plot, run: DrawnRun) -> None:
    """An arrow from each message's start on the sender's row to its end on the receiver's."""
    row_of = {int(spans.rank[0]): row for row, (_, spans) in enumerate(run.rows) if len(spans)}
    for row, (_, spans) in enumerate(run.rows):
        sends = spans.taken(spans.kind == TaskKind.SEND)
        down = np.array([row_of[peer] for peer in sends.peer.tolist()], np.int64) - row
        start, long = sends.start_ps / plot.scale, (sends.end_ps - sends.start_ps) / plot.scale
        plot.axes.quiver(
            *(start, np.full(len(start), row), long, down),
            angles="xy",
            scale_units="xy",
            scale=1,
            width=0.0008,
        )


def _name_rows(plot: _Plot, run: DrawnRun) -> None:
    """Names of as many rows as there is room for."""
    axes, count = plot.axes, len(run.rows)
    axes.set_ylim(count - 0.4, -0.6)
    every = max(1, math.ceil(plot.style.font_pt / 72 / plot.row_in))
    step = next(n for n in (1, 2, 4, 8, 16, 32, 64, every) if n >= every)
    axes.set_yticks(range(0, count, step), [label for label, _ in run.rows[::step]])
    axes.set_ylabel(run.axis)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
