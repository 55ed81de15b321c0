"""Maps over two axes."""

from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.explore.sweep.table import SweepTable
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.sweep.pictures import MapPanel, MapPicture, map_picture
from stepsim.show.figures.sweep.scales import value_axis
from stepsim.show.figures.sweep.views import View, title
from stepsim.show.palette import BACKGROUND, ink_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAP = "viridis_r"
_LEAST_NUMBER_EM = 0.62
_MOST_WRITTEN = 150  # cells with their number in them


def map_figure(
    table: SweepTable, view: View, style: FigureStyle, *, bubble: bool = False
) -> "Figure":
    """A map per value of `view.by`, all with one colour scale; the least value is marked."""
    picture = map_picture(table, view, bubble=bubble)
    figure = style.figure(0.0)
    mesh: Any = None
    for axes, panel in zip(_panel_grid(figure, picture, style), picture.panels, strict=True):
        mesh = _draw_map(figure, axes, picture, panel, style)
    figure.colorbar(mesh, ax=figure.axes, label=picture.measure.label, aspect=30, pad=0.01)
    figure.suptitle(style.wrapped(title(table, view)), x=0.01, ha="left")
    return figure


def _panel_grid(figure: "Figure", picture: MapPicture, style: FigureStyle) -> "Iterator[Axes]":
    """A plot for every panel, with labels."""
    titles = [panel.title for panel in picture.panels]
    columns = min(len(titles), 1 if style.narrow else 3)
    rows = -(-len(titles) // columns)
    wide = style.width_in / columns
    figure.set_figheight(rows * min(0.8 * wide, 0.42 * style.width_in + 1.0) + 0.8)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for i, axes in enumerate(grid.flat):
        if i >= len(titles):
            axes.set_visible(False)
            continue
        axes.set_title(titles[i])
        if i % columns == 0:
            axes.set_ylabel(picture.y.label)
        if i >= len(titles) - columns:
            axes.set_xlabel(picture.x.label)
            axes.xaxis.set_tick_params(labelbottom=True)
        yield axes


def _draw_map(
    figure: "Figure", axes: "Axes", picture: MapPicture, panel: MapPanel, style: FigureStyle
) -> Any:
    x, y, values = picture.x, picture.y, panel.values
    low, high = picture.limits
    mesh = axes.pcolormesh(
        x.edges,
        y.edges,
        np.ma.masked_invalid(values.T),
        cmap=_MAP,
        vmin=low,
        vmax=high,
        rasterized=True,
    )
    axes.set_facecolor(BACKGROUND)  # grey where nothing is drawn
    value_axis(axes, "x", x, style)
    value_axis(axes, "y", y, style)
    axes.spines[:].set_visible(False)
    font = _number_pt(figure, axes, values.shape, style)
    if font >= _LEAST_NUMBER_EM * style.font_pt and values.size <= _MOST_WRITTEN:
        _write_cells(axes, picture, panel, mesh, font)
    elif panel.best:
        spot = x.ascending[panel.best[0]], y.ascending[panel.best[1]]
        axes.plot(*spot, "*", color="white", mec="black", markersize=11, clip_on=False)
    return mesh


def _number_pt(figure: "Figure", axes: "Axes", shape: tuple[int, ...], style: FigureStyle) -> float:
    """Size of type at which numbers of four digits fit into the cells."""
    box = axes.get_position()
    wide = 0.9 * box.width * figure.get_figwidth() * 72 / shape[0]
    high = 0.9 * box.height * figure.get_figheight() * 72 / shape[1]
    return min(5 / 6 * style.font_pt, wide / 3.2, high / 1.3)


def _write_cells(
    axes: "Axes", picture: MapPicture, panel: MapPanel, mesh: Any, font: float
) -> None:
    """Each cell's number, the least in bold."""
    from matplotlib.colors import to_hex

    xs, ys = picture.x.ascending, picture.y.ascending
    least = panel.values[panel.best] if panel.best else np.nan
    for (i, j), value in np.ndenumerate(panel.values):
        failed = bool(np.isnan(value))
        axes.text(
            float(xs[i]),
            float(ys[j]),
            "failed" if failed else f"{value:.4g}",
            ha="center",
            va="center",
            fontsize=font,
            color="black" if failed else ink_on(to_hex(mesh.cmap(mesh.norm(value)))),
            fontweight="bold" if value == least else "normal",
        )
