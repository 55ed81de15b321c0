"""Maps over two axes."""

from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.structs import Numbers
from stepsim.show.figures.drawing import above
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import BACKGROUND, ink_on
from stepsim.views.sweep.scales import Scale, plots_by, scale_of, value_axis
from stepsim.views.sweep.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_MAP = "viridis_r"
_LEAST_NUMBER_EM = 0.62
_MOST_WRITTEN = 150  # cells with their number in them


def map_figure(view: View, style: FigureStyle) -> "Figure":
    """A map per value of `view.by`, all with one colour scale; the least value is marked."""
    from matplotlib.colors import Normalize

    assert view.y
    found, label = view.measured()
    x, y = scale_of(view.x), scale_of(view.y)
    maps = found[x.order][:, y.order].reshape(len(x.places), len(y.places), -1)
    scale = Normalize(float(np.nanmin(maps)), float(np.nanmax(maps)))
    figure, most = style.figure(0.0), 1 if style.narrow else 3
    count = maps.shape[2]
    high = min(0.8 * style.width_in / min(count, most), 0.42 * style.width_in + 1.0)
    figure.set_figheight(-(-count // most) * high + 0.8)
    mesh: Any = None
    plots = plots_by(figure, view.by, most, (x.label, y.label), sharex=True, sharey=True)
    for i, axes in enumerate(plots):
        mesh = _draw_map(figure, axes, x, y, maps[..., i], style, scale)
    figure.colorbar(mesh, ax=figure.axes, label=label, aspect=30, pad=0.01)
    above(figure, style, *view.title())
    return figure


def _draw_map(
    figure: "Figure",
    axes: "Axes",
    x: Scale,
    y: Scale,
    values: Floats,
    style: FigureStyle,
    scale: "Normalize",
) -> Any:
    """Values of shape (x, y) in places order of both axes, in the colours of a scale."""
    shown = np.ma.masked_invalid(values.T)
    mesh = axes.pcolormesh(x.edges, y.edges, shown, cmap=_MAP, norm=scale, rasterized=True)
    axes.set_facecolor(BACKGROUND)  # grey where nothing is drawn
    value_axis(axes, "x", x, style)
    value_axis(axes, "y", y, style)
    axes.spines[:].set_visible(False)
    font = _number_pt(figure, axes, values.shape, style)
    if font >= _LEAST_NUMBER_EM * style.font_pt and values.size <= _MOST_WRITTEN:
        _write_cells(axes, x, y, values, mesh, font)
    elif not np.isnan(values).all():
        i, j = np.unravel_index(np.nanargmin(values), values.shape)
        spot = x.places[i], y.places[j]
        axes.plot(*spot, "*", color="white", mec="black", markersize=11, clip_on=False)
    return mesh


def _number_pt(figure: "Figure", axes: "Axes", shape: Numbers, style: FigureStyle) -> float:
    """Size of type at which numbers of four digits fit into the cells."""
    box = axes.get_position()
    wide = 0.9 * box.width * figure.get_figwidth() * 72 / shape[0]
    high = 0.9 * box.height * figure.get_figheight() * 72 / shape[1]
    return min(5 / 6 * style.font_pt, wide / 3.2, high / 1.3)


def _write_cells(axes: "Axes", x: Scale, y: Scale, values: Floats, mesh: Any, font: float) -> None:
    """Each cell's number, the least in bold."""
    from matplotlib.colors import to_hex

    least = np.nanmin(values, initial=np.inf)
    for (i, j), value in np.ndenumerate(values):
        failed = bool(np.isnan(value))
        axes.text(
            float(x.places[i]),
            float(y.places[j]),
            "failed" if failed else f"{value:.4g}",
            ha="center",
            va="center",
            fontsize=font,
            color="black" if failed else ink_on(to_hex(mesh.cmap(mesh.norm(value)))),
            fontweight="bold" if value == least else "normal",
        )
