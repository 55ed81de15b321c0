"""One collective by itself: times and bandwidths by size and algorithm, as tables and drawn."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from math import isfinite
from typing import TYPE_CHECKING

from stepsim.base.structs import Values, unbounded
from stepsim.base.units import format_size_bytes, format_time_ps
from stepsim.documents.table import Column, Sheet, Table, paths, table_of
from stepsim.network.collectives import Algorithm
from stepsim.network.one_collective import AlgorithmEntry, CollectiveDocument, ProbeRow
from stepsim.show.figures.drawing import above, drawn, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import series_colour, series_marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_GB_PER_S = Column(write=lambda rate: f"{rate / 1e9:.2f}" if isfinite(rate) else "-")
_SIZES = paths(
    "size_bytes, time_ps, algbw, busbw, algorithm",
    {
        "algbw": _GB_PER_S.of(lambda row: unbounded(row.algbw)),
        "busbw": _GB_PER_S.of(lambda row: unbounded(row.busbw)),
    },
)
_LINKS = paths(
    "links = name, used = links, all bytes = total_bytes, busiest, its bytes = busiest_bytes, "
    "in use = utilisation"
)


def collective_shown(priced: CollectiveDocument) -> Sheet:
    """A collective by size and algorithm; the links that the largest size uses."""
    ranks = f"{priced.kind} over {len(priced.ranks)} ranks"
    yield ("topology", priced.topology), ("collective", ranks)
    units, probes = "bandwidths in GB/s, as nccl-tests counts", priced.algorithms
    if len(probes[0].rows) == 1:
        yield table_of(units, [probe.rows[0] for probe in probes], _SIZES)
    else:
        yield from (table_of(f"{each.algorithm}; {units}", each.rows, _SIZES) for each in probes)
    yield from map(_links, {probe.rows[-1].algorithm: probe.rows[-1] for probe in probes}.values())


def _links(row: ProbeRow) -> Table:
    size = format_size_bytes(row.size_bytes)
    return table_of(f"links of {row.algorithm}, {size}", row.links, _LINKS)


_DASHES = ("-", "--", ":", "-.")


@drawn
def plot_collective(priced: CollectiveDocument, style: FigureStyle) -> "Figure":
    """One collective: time, and beside or below it bus bandwidth.

    What `auto` chose is drawn as a broad band below the algorithms it is compared with; alone, it
    is cut into a line per algorithm chosen.
    """
    figure = style.figure(4.4 if style.narrow else 2.9)
    rows, columns = (2, 1) if style.narrow else (1, 2)
    left, right = figure.subplots(rows, columns, sharex=True)
    first, *others = priced.algorithms
    lines = (
        [(each.algorithm, each.rows) for each in priced.algorithms] if others else _pieces(first)
    )
    looks = _looks([name for name, _ in lines])
    seen: set[str] = set()
    for name, points in lines:
        drawn = [row for row in points if row.time_ps and row.size_bytes]
        sizes = [row.size_bytes for row in drawn]
        label = "_" if name in seen else name.replace("_", " ").replace(":", ": ")
        seen.add(name)
        left.plot(sizes, [float(row.time_ps) for row in drawn], label=label, **looks[name])
        right.plot(sizes, [(row.busbw or 0.0) / 1e9 for row in drawn], label=label, **looks[name])
    _dress(left, "time", labelled=not style.narrow)
    left.yaxis.set_major_formatter(lambda time_ps, _: format_time_ps(time_ps))
    _dress(right, "bus bandwidth (GB/s)")
    right.yaxis.set_major_formatter(lambda rate, _: f"{rate:g}")
    count, kind = len(priced.ranks), priced.kind.replace("_", "-")
    above(figure, style, f"{kind} over {count} NPU{'s' * (count > 1)} of {priced.topology}")
    legend(figure, style)
    return figure


def _pieces(probe: AlgorithmEntry) -> list[tuple[str, tuple[ProbeRow, ...]]]:
    """Runs of sizes with one algorithm, each reaching to the next run's first size."""
    runs = [(name, list(rows)) for name, rows in groupby(probe.rows, lambda row: row.algorithm)]
    for (_, rows), (_, following) in pairwise(runs):
        rows.append(following[0])
    return [(name, tuple(rows)) for name, rows in runs]


def _looks(names: Sequence[str]) -> dict[str, Values]:
    """How the line of each name looks: an algorithm the same in every figure, dashed by levels."""
    known = [name for name in Algorithm if name != Algorithm.AUTO]
    families = list(dict.fromkeys([*known, *(name.partition(":")[0] for name in names)]))
    looks: dict[str, Values] = {}
    variants: Counter[str] = Counter()
    for name in dict.fromkeys(names):
        if name == Algorithm.AUTO:
            looks[name] = {"color": "#cccccc", "linewidth": 6, "zorder": 1}
            continue
        family = name.partition(":")[0]
        number = families.index(family)
        looks[name] = {
            "color": series_colour(number),
            "marker": series_marker(number),
            "markersize": 3,
            "linestyle": _DASHES[variants[family] % len(_DASHES)],
            "zorder": 2,
        }
        variants[family] += 1
    return looks


def _dress(axes: "Axes", label: str, *, labelled: bool = True) -> None:
    from matplotlib.ticker import LogLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda size, _: format_size_bytes(round(size)))
    axes.minorticks_off()
    if labelled:
        axes.set_xlabel("size")
    axes.set_ylabel(label)
    axes.grid()
