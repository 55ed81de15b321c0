"""A figure of collectives over size: time and bus bandwidth, a line per algorithm."""

from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepsim.collective_probe import Probe, ProbeRow
from stepsim.plots import write_figure
from stepsim.units import format_size_bytes, format_time_ps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#ee9944",
    "#777777",
    "#332288",
)
"""Bright scheme of Paul Tol, which colour-blind readers can tell apart, and two more."""
_MARKERS = "osD^vP<>X"
_DPI = 200


def plot_probes(probes: Sequence[Probe], path: Path) -> None:
    """Draw probes of one collective into a .png, .svg or .pdf file; raises OutputError."""
    write_figure(lambda: probes_figure(probes), path, dpi=_DPI, style={"axes.linewidth": 0.6})


def probes_figure(probes: Sequence[Probe]) -> "Figure":
    """The figure that `plot_probes` writes: time on the left, bus bandwidth on the right.

    What `auto` chose is drawn as a broad band below the algorithms it is compared with; alone, it
    is cut into a line per algorithm chosen.
    """
    from matplotlib.figure import Figure

    first = probes[0]
    figure = Figure(figsize=(7.2, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    lines = _pieces(first) if len(probes) == 1 else [(p.algorithm, p.rows) for p in probes]
    named: dict[str, int] = {}
    for name, rows in lines:
        drawn = [row for row in rows if row.time_ps and row.size_bytes]
        colour = named.setdefault(name, len(named)) if name != "auto" else -1
        sizes = [row.size_bytes for row in drawn]
        new = colour == len(named) - 1 and not any(line.get_label() == name for line in left.lines)
        for axes, values in (
            (left, [float(row.time_ps) for row in drawn]),
            (right, [row.busbw / 1e9 for row in drawn]),
        ):
            _line(axes, sizes, values, name if new or colour < 0 else "", colour)
    _dress(left, first, "time")
    left.yaxis.set_major_formatter(lambda time_ps, _: format_time_ps(time_ps))
    _dress(right, first, "bus bandwidth (GB/s)")
    figure.suptitle(_title(first), fontsize=10)
    handles, labels = left.get_legend_handles_labels()
    shown = [label.replace("_", " ").replace(":", ": ").replace(",", ", ") for label in labels]
    columns = min(3, len(labels))
    figure.legend(
        handles, shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=8
    )
    return figure


def _pieces(probe: Probe) -> list[tuple[str, tuple[ProbeRow, ...]]]:
    """Runs of sizes with one algorithm, each reaching to the next run's first size."""
    runs = [(name, list(rows)) for name, rows in groupby(probe.rows, lambda row: row.algorithm)]
    for (_, rows), (_, following) in pairwise(runs):
        rows.append(following[0])
    return [(name, tuple(rows)) for name, rows in runs]


def _line(
    axes: "Axes", sizes: Sequence[int], values: Sequence[float], label: str, colour: int
) -> None:
    if colour < 0:
        axes.plot(sizes, values, color="#cccccc", linewidth=6, label=label, zorder=1)
        return
    axes.plot(
        sizes,
        values,
        color=_COLOURS[colour % len(_COLOURS)],
        marker=_MARKERS[colour % len(_MARKERS)],
        markersize=3,
        linewidth=1.1,
        label=label or "_",
        zorder=2,
    )


def _dress(axes: "Axes", probe: Probe, label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = [row.size_bytes for row in probe.rows if row.size_bytes]
    if sizes:
        steps = max(1, round(np.log2(max(sizes) / min(sizes)) / 4.5))
        low = int(np.log2(min(sizes)))
        ticks = [2.0**power for power in range(low, int(np.log2(max(sizes))) + 1, steps)]
        axes.set_xticks(ticks, [format_size_bytes(tick) for tick in ticks])
    axes.xaxis.minorticks_off()
    axes.tick_params(labelsize=8)
    axes.set_xlabel("size")
    axes.set_ylabel(label)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _title(probe: Probe) -> str:
    count = len(probe.ranks)
    kind = str(probe.kind).replace("_", "-")
    return f"{kind} over {count} NPU{'s' * (count > 1)} of {probe.topology}"
