"""Numbers along a figure's axes: units, places, logarithms, short texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.quantities import Quantity
from stepsim.explore.sweep.table import StoredAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from stepsim.show.figures.style import FigureStyle

_SI = {Quantity.BANDWIDTH: (1e9, "GB/s"), Quantity.TIME: (1e6, "us"), Quantity.SIZE: (1e6, "MB")}
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_MOST_DIGITS = 4
RATES = ((1e15, "PB/s"), (1e12, "TB/s"), (1e9, "GB/s"), (1.0, "B/s"))


def scale_of(axis: StoredAxis) -> tuple[Floats, str, bool]:
    """Places of the values along a figure's axis, its label, and whether it is logarithmic."""
    if not axis.numeric:
        return np.arange(len(axis.texts), dtype=np.float64), words(axis.name), False
    units = {text.partition(" ")[2] for text in axis.texts}
    if len(units) == 1:
        unit = units.pop()
        places = np.array([float(text.partition(" ")[0]) for text in axis.texts])
    else:
        divisor, unit = _SI[axis.quantity]
        places = np.array([float(value) for value in axis.values]) / divisor
    label = f"{words(axis.name)} ({unit})" if unit else words(axis.name)
    return places, label, _is_geometric(np.sort(places))


def _is_geometric(places: Floats) -> bool:
    """Whether ratios of neighbours are more alike than their distances."""
    if len(places) < 3 or places[0] <= 0:
        return False
    steps, ratios = np.diff(places), np.diff(np.log(places))
    return bool(ratios.std() / ratios.mean() < 0.5 * steps.std() / steps.mean())


def value_axis(axes: "Axes", name: str, places: Floats, style: "FigureStyle", *, log: bool) -> None:
    """Ticks of axis `name` (x or y) at its values where they are short, else at round ones."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    most = 5 if style.narrow and name == "x" else 9
    shown = np.sort(places)[:: -(-len(places) // most)].tolist()
    short_enough = all(len(f"{place:.10g}") <= _MOST_DIGITS for place in shown)
    axis = getattr(axes, f"{name}axis")
    if log:
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


def edges_of(places: Floats, *, log: bool) -> Floats:
    """Borders of cells, half-way between neighbours."""
    if len(places) == 1:
        return np.array([places[0] - 0.5, places[0] + 0.5])
    at = np.log(places) if log else places
    middles = (at[1:] + at[:-1]) / 2
    edges = np.concatenate([[2 * at[0] - middles[0]], middles, [2 * at[-1] - middles[-1]]])
    return np.exp(edges) if log else edges


def unit_of(values: Floats, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit in which the largest value is at least one."""
    most = float(np.nanmax(values))
    return next((unit for unit in units if most >= unit[0]), units[-1])


def words(name: str) -> str:
    """An axis's name as a label says it."""
    return name.replace(".", " ").replace("_", " ")


def short(text: str) -> str:
    """A value's text with at most four digits."""
    number, space, unit = text.partition(" ")
    try:
        return f"{float(number):.4g}{space}{unit}"
    except ValueError:
        return text
