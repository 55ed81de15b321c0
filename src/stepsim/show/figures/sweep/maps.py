"""Maps over two axes."""

from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.explore.sweep.table import StoredAxis, SweepTable
from stepsim.show.figures.drawing import BACKGROUND, ink_on
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.sweep.measures import measure
from stepsim.show.figures.sweep.scales import edges_of, scale_of, value_axis, words
from stepsim.show.figures.sweep.views import FigureKind, View, title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAP = "viridis_r"
_LEAST_NUMBER_EM = 0.62
_MOST_WRITTEN = 150  # cells with their number in them


def map_figure(table: SweepTable, view: View, kind: FigureKind, style: FigureStyle) -> "Figure":
    """A map per value of `view.by`, all with one colour scale; the least value is marked."""
    shown = measure(table, view, kind)
    panels = shown.values[:, :, None] if view.by is None else shown.values
    limits = float(np.nanmin(panels)), float(np.nanmax(panels))
    figure = style.figure(0.0)
    mesh: Any = None
    for i, axes in enumerate(panel_grid(figure, view, style)):
        mesh = _draw_map(figure, axes, view, panels[:, :, i], limits, style)
    figure.colorbar(mesh, ax=figure.axes, label=shown.label, aspect=30, pad=0.01)
    figure.suptitle(style.wrapped(title(table, view)), x=0.01, ha="left")
    return figure


def panel_grid(figure: "Figure", view: View, style: FigureStyle) -> "Iterator[Axes]":
    """A plot of `view.x` and `view.y` for every value of `view.by`, with their labels."""
    assert view.y
    names = view.by.texts if view.by else ("",)
    columns = min(len(names), 1 if style.narrow else 3)
    rows = -(-len(names) // columns)
    wide = style.width_in / columns
    figure.set_figheight(rows * min(0.8 * wide, 0.42 * style.width_in + 1.0) + 0.8)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for i, axes in enumerate(grid.flat):
        if i >= len(names):
            axes.set_visible(False)
            continue
        if view.by:
            axes.set_title(f"{words(view.by.name)} {names[i]}")
        if i % columns == 0:
            axes.set_ylabel(scale_of(view.y)[1])
        if i >= len(names) - columns:
            axes.set_xlabel(scale_of(view.x)[1])
            axes.xaxis.set_tick_params(labelbottom=True)
        yield axes


class Cells:
    """Cells of a map: middles and edges along both axes, ascending, and how to sort values."""

    def __init__(self, x: StoredAxis, y: StoredAxis) -> None:
        (xs, _, self.x_log), (ys, _, self.y_log) = scale_of(x), scale_of(y)
        self.x_order, self.y_order = np.argsort(xs), np.argsort(ys)
        self.xs, self.ys = xs[self.x_order], ys[self.y_order]

    def sorted(self, values: Floats) -> Floats:
        """Values of shape (x, y, ...) in the order of the middles."""
        return values[self.x_order][:, self.y_order]

    @property
    def edges(self) -> tuple[Floats, Floats]:
        """Borders of the cells along x and y."""
        return edges_of(self.xs, log=self.x_log), edges_of(self.ys, log=self.y_log)

    def dress(self, axes: "Axes", style: FigureStyle) -> None:
        """Ticks at the middles where they are few, no frame, grey where nothing is drawn."""
        axes.set_facecolor(BACKGROUND)
        for name, places, log in (("x", self.xs, self.x_log), ("y", self.ys, self.y_log)):
            value_axis(axes, name, places, style, log=log)
        axes.spines[:].set_visible(False)


def _draw_map(
    figure: "Figure",
    axes: "Axes",
    view: View,
    values: Floats,
    limits: tuple[float, float],
    style: FigureStyle,
) -> Any:
    assert view.y
    cells = Cells(view.x, view.y)
    values = cells.sorted(values)
    mesh = axes.pcolormesh(
        *cells.edges,
        np.ma.masked_invalid(values.T),
        cmap=_MAP,
        vmin=limits[0],
        vmax=limits[1],
        rasterized=True,
    )
    cells.dress(axes, style)
    font = _number_pt(figure, axes, values.shape, style)
    if font >= _LEAST_NUMBER_EM * style.font_pt and values.size <= _MOST_WRITTEN:
        _write_cells(axes, cells, values, mesh, font)
    elif not np.isnan(values).all():
        best = np.unravel_index(np.nanargmin(values), values.shape)
        spot = cells.xs[best[0]], cells.ys[best[1]]
        axes.plot(*spot, "*", color="white", mec="black", markersize=11, clip_on=False)
    return mesh


def _number_pt(figure: "Figure", axes: "Axes", shape: tuple[int, ...], style: FigureStyle) -> float:
    """Size of type at which numbers of four digits fit into the cells."""
    box = axes.get_position()
    wide = 0.9 * box.width * figure.get_figwidth() * 72 / shape[0]
    high = 0.9 * box.height * figure.get_figheight() * 72 / shape[1]
    return min(5 / 6 * style.font_pt, wide / 3.2, high / 1.3)


def _write_cells(axes: "Axes", cells: Cells, values: Floats, mesh: Any, font: float) -> None:
    """Each cell's number, the least in bold."""
    from matplotlib.colors import to_hex

    least = np.nanmin(values) if not np.isnan(values).all() else np.nan
    for (i, j), value in np.ndenumerate(values):
        failed = bool(np.isnan(value))
        axes.text(
            float(cells.xs[i]),
            float(cells.ys[j]),
            "failed" if failed else f"{value:.4g}",
            ha="center",
            va="center",
            fontsize=font,
            color="black" if failed else ink_on(to_hex(mesh.cmap(mesh.norm(value)))),
            fontweight="bold" if value == least else "normal",
        )
