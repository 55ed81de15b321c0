"""Numbers along a figure's axes: units, places, logarithms, short texts; plots by a value."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.structs import Noun, Values
from stepsim.base.units import Quantity
from stepsim.files.axes import Axis
from stepsim.show.figures.style import CHARACTER_EM, FigureStyle
from stepsim.views.words import axis_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SI = {Quantity.BANDWIDTH: (1e9, "GB/s"), Quantity.TIME: (1e6, "us"), Quantity.SIZE: (1e6, "MB")}


class Scale(Noun):
    """An axis of a figure: where its values lie, its label, and whether it is logarithmic.

    `places` ascend, and `order` are the positions of the values there. Values that are no numbers
    lie at 0, 1, 2, ...
    """

    order: Ints
    places: Floats
    label: str
    log: bool

    @property
    def edges(self) -> Floats:
        """Borders of cells around the places, half-way between neighbours."""
        places = self.places
        if len(places) == 1:
            return np.array([places[0] - 0.5, places[0] + 0.5])
        at = np.log(places) if self.log else places
        middles = (at[1:] + at[:-1]) / 2
        edges = np.concatenate([[2 * at[0] - middles[0]], middles, [2 * at[-1] - middles[-1]]])
        return np.exp(edges) if self.log else edges


def scale_of(axis: Axis) -> Scale:
    """The axis of a figure for an axis of a sweep."""
    places, unit = np.arange(len(axis.texts), dtype=np.float64), ""
    units = {text.partition(" ")[2] for text in axis.texts}
    if axis.numeric and len(units) == 1:
        unit = units.pop()
        places = np.array([float(text.partition(" ")[0]) for text in axis.texts])
    elif axis.numeric:
        divisor, unit = _SI[axis.quantity]
        places = np.array([float(value) for value in axis.values]) / divisor
    order = np.argsort(places)
    label = axis_words(axis.name) + (f" ({unit})" if unit else "")
    log = axis.numeric and _is_geometric(places[order])
    return Scale(order=order, places=places[order], label=label, log=log)


def _is_geometric(places: Floats) -> bool:
    """Whether ratios of neighbours are more alike than their distances."""
    if len(places) < 3 or places[0] <= 0:
        return False
    steps, ratios = np.diff(places), np.diff(np.log(places))
    return bool(ratios.std() / ratios.mean() < 0.5 * steps.std() / steps.mean())


def value_axis(axes: "Axes", name: str, scale: Scale, style: FigureStyle) -> None:
    """Ticks of axis `name` (x or y) at its values, at some of them where there are many."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    most = 5 if style.narrow and name == "x" else 9
    axis = getattr(axes, f"{name}axis")
    if scale.log:
        getattr(axes, f"set_{name}scale")("log")
    axis.set_major_locator(FixedLocator(scale.places[:: -(-len(scale.places) // most)].tolist()))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axis.set_minor_locator(NullLocator())


def name_ticks(
    axes: "Axes",
    places: Floats,
    texts: Sequence[str],
    style: FigureStyle,
    share: float = 0.75,
) -> None:
    """Names along the axis, slanted where they would touch in a share of the figure's width."""
    room = share * style.width_in * 72 / max(len(texts), 1)
    longest = (max(map(len, texts), default=0) + 1) * CHARACTER_EM * style.font_pt * 5 / 6
    slant: Values = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(places, texts, **(slant if longest > room else {}))


def plots_by(
    figure: "Figure", by: Axis | None, most: int, labels: tuple[str, str], **shared: Any
) -> "Iterator[Axes]":
    """A plot for every value of an axis, at most so many beside each other, with labels."""
    titles = [f"{axis_words(by.name)} {text}" for text in by.texts] if by else [""]
    columns = min(len(titles), most)
    grid = figure.subplots(-(-len(titles) // columns), columns, squeeze=False, **shared)
    for i, axes in enumerate(grid.flat):
        axes.set_visible(i < len(titles))
        if i >= len(titles):
            continue
        axes.set_title(titles[i])
        if i % columns == 0:
            axes.set_ylabel(labels[1])
        if i >= len(titles) - columns:
            axes.set_xlabel(labels[0])
            axes.xaxis.set_tick_params(labelbottom=True)
        yield axes
