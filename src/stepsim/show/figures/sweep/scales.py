"""Numbers along a figure's axes: units, places, logarithms, short texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.structs import Noun
from stepsim.base.units import Quantity
from stepsim.explore.sweep.table import StoredAxis
from stepsim.show.tables.model import axis_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from stepsim.show.figures.style import FigureStyle

_SI = {Quantity.BANDWIDTH: (1e9, "GB/s"), Quantity.TIME: (1e6, "us"), Quantity.SIZE: (1e6, "MB")}
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_MOST_DIGITS = 4


class Scale(Noun):
    """An axis of a figure: where its values lie, its label, and whether it is logarithmic.

    Values that are no numbers lie at 0, 1, 2, ...
    """

    places: Floats
    label: str
    log: bool

    @property
    def order(self) -> Ints:
        """The values in ascending order, by their positions."""
        return np.argsort(self.places)

    @property
    def ascending(self) -> Floats:
        """The places in that order."""
        return self.places[self.order]

    @property
    def edges(self) -> Floats:
        """Borders of cells around the places in that order, half-way between neighbours."""
        places = self.ascending
        if len(places) == 1:
            return np.array([places[0] - 0.5, places[0] + 0.5])
        at = np.log(places) if self.log else places
        middles = (at[1:] + at[:-1]) / 2
        edges = np.concatenate([[2 * at[0] - middles[0]], middles, [2 * at[-1] - middles[-1]]])
        return np.exp(edges) if self.log else edges


def scale_of(axis: StoredAxis) -> Scale:
    """The axis of a figure for an axis of a sweep."""
    name = axis_words(axis.name)
    if not axis.numeric:
        return Scale(places=np.arange(len(axis.texts), dtype=np.float64), label=name, log=False)
    units = {text.partition(" ")[2] for text in axis.texts}
    if len(units) == 1:
        unit = units.pop()
        places = np.array([float(text.partition(" ")[0]) for text in axis.texts])
    else:
        divisor, unit = _SI[axis.quantity]
        places = np.array([float(value) for value in axis.values]) / divisor
    label = f"{name} ({unit})" if unit else name
    return Scale(places=places, label=label, log=_is_geometric(np.sort(places)))


def _is_geometric(places: Floats) -> bool:
    """Whether ratios of neighbours are more alike than their distances."""
    if len(places) < 3 or places[0] <= 0:
        return False
    steps, ratios = np.diff(places), np.diff(np.log(places))
    return bool(ratios.std() / ratios.mean() < 0.5 * steps.std() / steps.mean())


def value_axis(axes: "Axes", name: str, scale: Scale, style: "FigureStyle") -> None:
    """Ticks of axis `name` (x or y) at its values where they are short, else at round ones."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    most = 5 if style.narrow and name == "x" else 9
    shown = scale.ascending[:: -(-len(scale.places) // most)].tolist()
    short_enough = all(len(f"{place:.10g}") <= _MOST_DIGITS for place in shown)
    axis = getattr(axes, f"{name}axis")
    if scale.log:
        getattr(axes, f"set_{name}scale")("log")
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
        axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=most))
    if short_enough:
        axis.set_major_locator(FixedLocator(shown))


def name_ticks(
    axes: "Axes",
    places: Floats,
    texts: Sequence[str],
    style: "FigureStyle",
    share: float = 0.75,
) -> None:
    """Names along the axis, slanted where they would touch in a share of the figure's width."""
    from stepsim.show.figures.style import CHARACTER_EM

    room = share * style.width_in * 72 / max(len(texts), 1)
    longest = (max(map(len, texts), default=0) + 1) * CHARACTER_EM * style.font_pt * 5 / 6
    if longest <= room:
        axes.set_xticks(places, texts)
    else:
        axes.set_xticks(places, texts, rotation=30, ha="right", rotation_mode="anchor")


def time_unit_of(seconds: Floats) -> tuple[float, str]:
    """Seconds and name of the largest unit in which the longest time is at least one."""
    most = float(np.nanmax(seconds))
    return next((unit for unit in _TIMES if most >= unit[0]), _TIMES[-1])
