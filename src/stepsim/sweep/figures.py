"""Figures of a sweep: lines over one axis, a map over two, the Pareto front."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.errors import OutputError, SweepError
from stepsim.plots import write_figure
from stepsim.sweep.evaluate import Floats
from stepsim.sweep.scales import (
    RATES,
    TIMES,
    edges_of,
    log_axis,
    scale_of,
    short,
    unit_of,
    words,
)
from stepsim.sweep.table import ParetoPoint, StoredAxis, SweepTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#4477aa", "#ee9944", "#77aa66", "#cc6677", "#aa7799", "#66bbcc", "#999933", "#444444")
_MARKERS = "osD^vPX*"
_MAP = "viridis_r"
_FAILED = "#e9e9e9"
_MOST_PANELS = 6
_MOST_LINES = 24
_MOST_WRITTEN = 150  # cells of a map with their number in them
_MOST_DOTS = 20_000
_MOST_LABELS = 6
_MOST_RINGS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Axes of a figure: along it, up it (a map), and one line or panel per value of `by`."""

    x: StoredAxis
    y: StoredAxis | None = None
    by: StoredAxis | None = None

    @property
    def shown(self) -> list[StoredAxis]:
        """Its axes, x first."""
        return [axis for axis in (self.x, self.y, self.by) if axis]


def choose_view(table: SweepTable, names: Sequence[str] = ()) -> View:
    """The axes asked for, else the first two with numbers as a map, or one as lines.

    Two names with numbers make a map, other pairs lines, three names maps in panels. Raises
    SweepError for names that are no axes, and where there are more panels or lines than can be
    told apart.
    """
    if len(set(names)) < len(names) or len(names) > 3:
        raise SweepError(f"figure axes are {','.join(names)}: expected one to three different axes")
    if names:
        chosen = [table.axis(name) for name in names]
        mapped = len(chosen) > 1 and all(axis.numeric for axis in chosen[:2])
        if len(chosen) == 3 and not mapped:
            raise SweepError(f"figure axes are {','.join(names)}: the first two must have numbers")
    else:
        several = [axis for axis in table.axes if len(axis.texts) > 1] or list(table.axes[:1])
        numbers = [axis for axis in several if axis.numeric][:2]
        groups = [axis for axis in several if not axis.numeric]
        mapped = len(numbers) == 2
        limit = _MOST_PANELS if mapped else _MOST_LINES
        few = [axis for axis in groups if len(axis.texts) <= limit]
        chosen = (
            numbers + few[:1] if numbers else groups[:1] + [a for a in few if a != groups[0]][:1]
        )
    x, *rest = chosen
    y = rest.pop(0) if mapped else None
    return _checked(View(x=x, y=y, by=rest[0] if rest else None))


def _checked(view: View) -> View:
    most, what = (_MOST_PANELS, "panels") if view.y else (_MOST_LINES, "lines")
    if view.by and len(view.by.texts) > most:
        raise SweepError(
            f"axis {view.by.name} has {len(view.by.texts)} values: expected at most {most} {what}"
        )
    return view


def plot_sweep(table: SweepTable, path: Path, names: Sequence[str] = ()) -> None:
    """Draw step times over the axes `names` (see `choose_view`); other axes at their fastest.

    Raises OutputError when the file cannot be written or there is nothing to draw, SweepError for
    axes that cannot be drawn.
    """
    view = choose_view(table, names)
    seconds = table.fastest(view.shown)
    if np.isnan(seconds).all():
        raise OutputError(f"{path}: nothing to draw: no scenario has a result")
    draw = _map_figure if view.y else _line_figure
    write_figure(lambda: draw(table, view, seconds), path)


def plot_pareto(table: SweepTable, path: Path) -> None:
    """Draw every scenario's step time against the bandwidth of all links, and the Pareto front.

    Raises OutputError as `plot_sweep`.
    """
    front = table.pareto_front()
    if not front:
        raise OutputError(f"{path}: nothing to draw: no scenario has a result and finite bandwidth")
    write_figure(lambda: _pareto_figure(table, front), path)


def _line_figure(table: SweepTable, view: View, seconds: Floats) -> "Figure":
    figure, axes = _one_plot(table, view, (6.4, 4.0))
    scale, unit = unit_of(seconds, TIMES)
    places, label, log = scale_of(view.x)
    lines = seconds[:, None] if view.by is None else seconds
    colours = _colours(lines.shape[1])
    for i in range(lines.shape[1]):
        name = view.by.texts[i] if view.by else ""
        failed = bool(np.isnan(lines[:, i]).all())
        axes.plot(
            places,
            lines[:, i] / scale,
            color=colours[i],
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=4 if len(places) <= 33 else 0,
            linewidth=1.4 if view.x.numeric else 0,
            label=f"{name} (failed)" if failed else name,
        )
    if not view.x.numeric:
        axes.set_xticks(places, view.x.texts, rotation=30 if len(places) > 6 else 0)
    if log:
        log_axis(axes, "x", places)
    axes.set_xlabel(label)
    axes.set_ylabel(f"step time ({unit})")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    if view.by:
        figure.legend(
            title=words(view.by.name), loc="outside right center", frameon=False, fontsize=8
        )
    return figure


def _map_figure(table: SweepTable, view: View, seconds: Floats) -> "Figure":
    """A map per value of `by`, all with one colour scale; the fastest cell is marked."""
    from matplotlib.figure import Figure

    assert view.y
    panels = seconds[:, :, None] if view.by is None else seconds
    count = panels.shape[2]
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(2.0 + 4.2 * columns, 1.0 + 3.2 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    scale, unit = unit_of(seconds, TIMES)
    mesh: Any = None
    for i, axes in enumerate(grid.flat):
        if i >= count:
            axes.set_visible(False)
            continue
        limits = float(np.nanmin(seconds) / scale), float(np.nanmax(seconds) / scale)
        mesh = _draw_map(axes, view.x, view.y, panels[:, :, i] / scale, limits)
        if view.by:
            axes.set_title(f"{words(view.by.name)} {view.by.texts[i]}", loc="left", fontsize=9)
        if i % columns == 0:
            axes.set_ylabel(scale_of(view.y)[1])
        if i >= count - columns:
            axes.set_xlabel(scale_of(view.x)[1])
            axes.xaxis.set_tick_params(labelbottom=True)
    figure.colorbar(mesh, ax=grid, label=f"step time ({unit})", aspect=30, pad=0.01)
    figure.suptitle(_title(table, view), x=0.01, ha="left", fontsize=10)
    return figure


def _draw_map(
    axes: "Axes", x: StoredAxis, y: StoredAxis, values: Floats, limits: tuple[float, float]
) -> Any:
    (xs, _, x_log), (ys, _, y_log) = scale_of(x), scale_of(y)
    x_order, y_order = np.argsort(xs), np.argsort(ys)
    xs, ys, values = xs[x_order], ys[y_order], values[x_order][:, y_order]
    axes.set_facecolor(_FAILED)
    mesh = axes.pcolormesh(
        edges_of(xs, log=x_log),
        edges_of(ys, log=y_log),
        np.ma.masked_invalid(values.T),
        cmap=_MAP,
        vmin=limits[0],
        vmax=limits[1],
        rasterized=True,
    )
    for name, places, log in (("x", xs, x_log), ("y", ys, y_log)):
        if log:
            log_axis(axes, name, places)
        elif len(places) <= 9:
            getattr(axes, f"set_{name}ticks")(places)
    axes.tick_params(length=2)
    axes.spines[:].set_visible(False)
    if values.size <= _MOST_WRITTEN:
        _write_cells(axes, xs, ys, values, limits)
    if not np.isnan(values).all():
        best = np.unravel_index(np.nanargmin(values), values.shape)
        if values.size > _MOST_WRITTEN:
            spot = xs[best[0]], ys[best[1]]
            axes.plot(*spot, "*", color="white", mec="black", markersize=12, clip_on=False)
    return mesh


def _write_cells(
    axes: "Axes", xs: Floats, ys: Floats, values: Floats, limits: tuple[float, float]
) -> None:
    """Each cell's number, the fastest in bold."""
    low, high = limits
    least = np.nanmin(values) if not np.isnan(values).all() else np.nan
    font = min(8.0, 64 / max(values.shape))
    for (i, j), value in np.ndenumerate(values):
        text = "failed" if np.isnan(value) else f"{value:.4g}"
        dark = not np.isnan(value) and value > low + 0.5 * (high - low)
        axes.text(
            float(xs[i]),
            float(ys[j]),
            text,
            ha="center",
            va="center",
            fontsize=font,
            color="white" if dark else "black",
            fontweight="bold" if value == least else "normal",
        )


def _pareto_figure(table: SweepTable, front: Sequence[ParetoPoint]) -> "Figure":
    """Dots by the first axis of names; the front as steps, what is above and right of it loses."""
    view = View(x=table.axes[0])
    figure, axes = _one_plot(table, view, (6.8, 4.4), "Pareto front: ")
    scenarios, rates, seconds = table.sample(_MOST_DOTS)
    scale, unit = unit_of(seconds, TIMES)
    rate_scale, rate_unit = unit_of(rates, RATES)
    groups = [axis for axis in table.axes if not axis.numeric and 1 < len(axis.texts) <= 8]
    by = groups[0] if groups else None
    owner = by.positions(scenarios) if by else np.zeros_like(scenarios)
    for i in np.unique(owner).tolist():
        mine = owner == i
        axes.scatter(
            rates[mine] / rate_scale,
            seconds[mine] / scale,
            s=9 if len(rates) <= 2_000 else 2,
            color=_COLOURS[i % len(_COLOURS)],
            label=by.texts[i] if by else "scenario",
            linewidths=0,
            alpha=0.8,
            rasterized=len(rates) > 2_000,
        )
    x = np.array([point.total_bandwidth for point in front]) / rate_scale
    y = np.array([point.step_time_ps for point in front]) / 1e12 / scale
    axes.step(x, y, where="post", color="black", linewidth=1.0, label="Pareto front")
    ringed = slice(None) if len(front) <= _MOST_RINGS else _spread(len(front))
    axes.plot(x[ringed], y[ringed], "o", mfc="none", mec="black", markersize=5)
    _label_front(axes, table, front, x, y)
    axes.set_xlabel(f"bandwidth of all links, both directions ({rate_unit})")
    axes.set_ylabel(f"step time ({unit})")
    axes.grid(color="#eeeeee", linewidth=0.6)
    axes.set_axisbelow(True)
    title = words(by.name) if by else None
    figure.legend(title=title, loc="outside right center", frameon=False, fontsize=8)
    return figure


def _label_front(
    axes: "Axes", table: SweepTable, front: Sequence[ParetoPoint], x: Floats, y: Floats
) -> None:
    """Settings of a few points of the front below it, where no scenario can be.

    What all points of the front have in common is said once, in the corner.
    """
    settings = [table.settings(point.scenario) for point in front]
    several = [axis.name for axis in table.axes if len(axis.texts) > 1]
    shared = {name for name in several if len({each[name] for each in settings}) == 1}
    if len(front) == 1:
        shared = set()
    for i in _spread(len(front)):
        axes.annotate(
            "\n".join(short(settings[i][name]) for name in several if name not in shared),
            (x[i], y[i]),
            xytext=(-5, -4),
            textcoords="offset points",
            fontsize=7,
            ha="right",
            va="top",
            color="#333333",
        )
    axes.margins(x=0.18, y=0.12)
    common = [f"{words(name)} {short(settings[0][name])}" for name in several if name in shared]
    if common:
        text = "front: " + ", ".join(common)
        axes.text(0.99, 0.98, text, transform=axes.transAxes, ha="right", va="top", fontsize=8)


def _spread(count: int) -> list[int]:
    """A few of `count` places, the ends among them."""
    few = np.linspace(0, count - 1, min(_MOST_LABELS, count)).round().astype(np.int64)
    return list(dict.fromkeys(few.tolist()))


def _one_plot(
    table: SweepTable, view: View, size: tuple[float, float], before: str = ""
) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    title = _title(table, None if before else view)
    axes.set_title(before + title, loc="left", fontsize=10)
    return figure, axes


def _title(table: SweepTable, view: View | None) -> str:
    """What is drawn, and over which axes the fastest was taken."""
    workload, topology = table.source
    progress = table.progress
    lines = [f"{workload} on {topology}"]
    facts = [f"{progress.done:,} scenarios"]
    if progress.done < progress.size:
        facts = [f"{progress.done:,} of {progress.size:,} scenarios"]
    if progress.failed:
        facts.append(f"{progress.failed:,} failed")
    if view:
        names = {axis.name for axis in view.shown}
        over = [a.name for a in table.axes if a.name not in names and len(a.texts) > 1]
        if over:
            facts.append(f"fastest over {', '.join(map(words, over))}")
    return "\n".join([*lines, "; ".join(facts)])


def _colours(count: int) -> list[Any]:
    """Colours that can be told apart; shades of one map where there are many."""
    if count <= len(_COLOURS):
        return list(_COLOURS[:count])
    from matplotlib import colormaps

    return [colormaps["viridis"](i / (count - 1)) for i in range(count)]
