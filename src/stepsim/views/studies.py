"""Many steps: what one per cent of everything is worth, how noise spreads, a sweep."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.units import format_time_ps, time_unit
from stepsim.documents.table import (
    AS_IS,
    COUNT,
    ERROR,
    TEXT,
    TIME,
    Column,
    Heads,
    Ordered,
    Sheet,
    Table,
    as_number,
    paths,
    table_of,
)
from stepsim.explore.batches.sweeps import BatchSweepDocument
from stepsim.explore.noise.draws import NoiseResult, NoiseSweepDocument
from stepsim.explore.sensitivity import Sensitivity, Slope, describe, show_value
from stepsim.files.axes import Axis
from stepsim.files.sweep_table import Extreme, SweepTable
from stepsim.show.figures.drawing import above, drawn, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import PALETTE, PATH
from stepsim.views.words import settings_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_PERCENTILES = (50, 95, 99)
_Sampled = BatchSweepDocument | NoiseSweepDocument
_WORTH = as_number(".3%")


def sensitivity_shown(found: Sensitivity) -> Sheet:
    """What one per cent of each parameter is worth, and where the critical path changes."""
    best, worth = max(found.slopes, key=lambda slope: slope.gain, default=None), ""
    if best and best.gain > 0:
        worth = f"; worth most: {describe(best)} ({best.gain:.2%} of the step)"
    yield f"{format_time_ps(found.step_time_ps)} per step{worth}"
    yield worth_table({"": found})
    yield "derivative: of the step time, per 100 % of the parameter, on the critical path"
    yield from path_changes(found)
    yield from (f"note: {note}" for note in found.notes)


def worth_table(runs: Mapping[str, Sensitivity]) -> Table:
    """What one per cent saves in each of some runs; of one run, the derivatives too."""
    slopes = {slope.name: slope for found in runs.values() for slope in found.slopes}
    gains = {run: {slope.name: slope.gain for slope in runs[run].slopes} for run in runs}

    def saves(run: str) -> Column:
        return _WORTH.of(lambda slope: gains[run].get(slope.name))

    return table_of(
        "share of the step time saved by a change of 1 %",
        sorted(slopes.values(), key=lambda s: -max(g.get(s.name, 0.0) for g in gains.values())),
        {
            "change": TEXT.of(describe),
            "now": COUNT.of(show_value),
            **{f"{run} saves" if run else "saves": saves(run) for run in runs},
            **({"derivative": as_number("+.3%").of(_derivative)} if len(runs) == 1 else {}),
        },
    )


def _derivative(slope: Slope) -> float | str:
    """A star marks where the critical path changes within the step."""
    return f"{slope.elasticity:+.3%} *" if slope.one_sided else slope.elasticity


def path_changes(found: Sensitivity) -> Iterator[str]:
    """Where the critical path changes within a step to either side."""
    for slope in found.slopes:
        if slope.one_sided and found.step_time_ps:
            below, above = (
                each * slope.value / found.step_time_ps for each in (slope.below, slope.above)
            )
            yield (
                f"* {describe(slope)}: the critical path changes; {below:+.3%} of the step per "
                f"100 % below, {above:+.3%} above"
            )


def noise_shown(found: NoiseResult) -> Sheet:
    """The distribution of step times beside the planned one."""
    planned = found.planned_ps
    mean, late = found.mean_ps, found.percentile_ps(95)
    yield (
        f"{format_time_ps(round(mean))} per step on average, {format_time_ps(planned)} without "
        f"noise; one step in twenty takes {format_time_ps(round(late))} or more"
    )
    times = {"without noise": float(planned), "mean": found.mean_ps}
    times |= {f"p{percent}": found.percentile_ps(percent) for percent in _PERCENTILES}
    yield table_of(
        f"{len(found.step_time_ps)} samples, seed {found.seed}",
        times.items(),
        {
            "": AS_IS.of("0"),
            "step time": TIME.of("1"),
            "over planned": ERROR.of(lambda item: item[1] / planned - 1 if planned else ""),
        },
    )


def noise_sweep_shown(found: NoiseSweepDocument) -> Sheet:
    """A row per scenario: step time without noise, and percentiles with it."""
    columns = paths("without noise = planned_ps, p5_ps, p50_ps, p95_ps")
    yield sampled_table(found, f"{found.samples} samples each, seed {found.seed}", columns)
    yield from first_failure(found)


def sampled_table(found: _Sampled, caption: str, columns: Heads) -> Table:
    """A row per scenario: its axes, then columns of what was sampled, or that it failed."""
    failed = ("failed", *[""] * (len(columns) - 1))
    cells = [column.value for column in columns.values()]
    return Table(
        caption=caption,
        columns=dict.fromkeys(found.scenarios[0].settings, TEXT) | dict(columns),
        rows=tuple(
            (*each.settings.values(), *(failed if each.error else [c(each) for c in cells]))
            for each in found.scenarios
        ),
    )


def first_failure(found: _Sampled) -> Iterator[str]:
    """Why the first scenario failed that did."""
    for each in found.scenarios:
        if each.error:
            yield f"failed, {settings_words(each.settings)}: {each.error}"
            return


_MOST_VALUES = 16
_STEP = TIME.of("step_time_ps")
_FITS = TEXT.of(lambda each: "if it fitted" if each.fits == 0 else "")
_EXTREMES = 3


def sweep_shown(table: SweepTable, *, kept: bool = True) -> Sheet:
    """The fastest and slowest scenarios, each axis by its values, why the first failure failed.

    The database is named where it is `kept`.
    """
    progress = table.progress
    workload, topology = table.source
    fastest, slowest = (table.extremes(_EXTREMES, slowest=slowest) for slowest in (False, True))
    yield from _best_scenario(table, fastest, slowest)
    yield (
        ("workload", workload),
        ("topology", topology),
        ("scenarios", f"{progress.done} of {progress.size}, {progress.failed} failed"),
        *([("database", table.store.path.name)] if kept else []),
    )
    for caption, found in (("fastest", fastest), ("slowest", slowest)):
        scenario = TEXT.of(lambda each: _settings(table, each.scenario))
        fits = {"": _FITS} if any(each.fits == 0 for each in found) else {}
        yield table_of(caption, found, {"step": _STEP, **fits, "scenario": scenario})
    yield from (axis_table(table, axis) for axis in table.axes)
    failure = table.first_error()
    if failure:
        yield f"first failure, {_settings(table, failure[0])}: {failure[1]}"


def _best_scenario(
    table: SweepTable, fast: Sequence[Extreme], slow: Sequence[Extreme]
) -> Iterator[str]:
    """The fastest scenario, and how much slower the slowest is."""
    if not (fast and slow and fast[0].step_time_ps):
        return
    best, worst = format_time_ps(fast[0].step_time_ps), format_time_ps(slow[0].step_time_ps)
    longer = slow[0].step_time_ps / fast[0].step_time_ps - 1
    lacks = ", if it fitted" if fast[0].fits == 0 else ""
    yield f"fastest: {best} per step{lacks} with {_settings(table, fast[0].scenario)}"
    yield f"slowest: {worst}, {longer:+.1%}, with {_settings(table, slow[0].scenario)}"


def axis_table(table: SweepTable, axis: Axis) -> Table:
    """Least and mean step time of every value of an axis, over all other axes."""
    return table_of(
        f"{axis.name}, over all other axes",
        table.by_value(axis),
        {
            axis.name: _column(axis).of(lambda r: Ordered(axis.texts[r.position], r.position)),
            **paths("fastest = least_ps, mean_ps, scenarios, failed"),
        },
        most=_MOST_VALUES,
        both_ends=True,
    )


def scenarios_table(table: SweepTable, found: Sequence[Extreme]) -> Table:
    """Scenarios with the values of their axes, and how many there are."""
    done = table.progress.done - table.progress.failed
    caption = "every scenario, fastest first"
    if len(found) < done:
        caption = f"the fastest {len(found):,} of {done:,} scenarios; --export writes all"
    settings = {axis.name: _column(axis).of(_setting(axis)) for axis in table.axes}
    return table_of(caption, found, {"step time": _STEP, **settings})


def _column(axis: Axis) -> Column:
    return Column(write=str, number=axis.numeric)


def _setting(axis: Axis) -> Callable[[Extreme], Ordered]:
    """The value that a scenario has on an axis."""

    def of(each: Extreme) -> Ordered:
        place = axis.positions(each.scenario)
        return Ordered(axis.texts[place], float(axis.values[place]) if axis.numeric else None)

    return of


def _settings(table: SweepTable, scenario: int) -> str:
    return settings_words(table.settings(scenario))


_ROW_IN = 0.2
_BINS = 60
_LEAST_SHOWN = 0.001


@drawn
def plot_sensitivity(found: Sensitivity, style: FigureStyle) -> "Figure":
    """A bar per parameter that is worth something, the longest on top."""
    from matplotlib.patches import Patch

    rows = [slope for slope in found.slopes if slope.gain][::-1]
    figure = style.figure(1.0 + _ROW_IN * max(len(rows), 1))
    axes = figure.subplots()
    colours = [PALETTE[slope.one_sided] for slope in rows]
    gains = [100 * slope.gain for slope in rows]
    bars = axes.barh([describe(slope) for slope in rows], gains, color=colours)
    shown = [f"{each:.2g} %" if each >= _LEAST_SHOWN else f"< {_LEAST_SHOWN} %" for each in gains]
    axes.bar_label(bars, shown, padding=2, fontsize="small")
    axes.margins(x=0.2 if style.narrow else 0.12)
    axes.set_xlabel("step time saved (%)")
    title = found.job or f"{Path(found.workload).name} on {found.topology}: {found.schedule}"
    said = f"step {format_time_ps(found.step_time_ps)}; each changed by 1 % to the better"
    above(figure, style, title, said)
    if any(slope.one_sided for slope in rows):
        names = "same critical path", "another path takes over"
        handles = [Patch(color=PALETTE[i], label=name) for i, name in enumerate(names)]
        legend(figure, style, handles)
    return figure


@drawn
def plot_noise(found: NoiseResult, style: FigureStyle) -> "Figure":
    """A histogram of step times, with the planned one and percentiles marked."""
    figure = style.figure(2.8)
    axes = figure.subplots()
    said = f"step times of {len(found.step_time_ps):,} samples; variation: {found.model.words}"
    above(figure, style, found.job, said)
    scale, unit = time_unit(int(found.step_time_ps.max()))
    times = found.step_time_ps / scale
    axes.hist(times, bins=min(_BINS, max(1, int(np.sqrt(len(times))))), color=PALETTE[0])
    planned = found.planned_ps / scale
    label = f"without noise: {format_time_ps(found.planned_ps)}"
    lines = [axes.axvline(planned, color=PATH, label=label)]
    for percent, dashes in zip(_PERCENTILES, ("-", "--", ":"), strict=True):
        time = found.percentile_ps(percent)
        label = f"p{percent}: {format_time_ps(time)}"
        lines.append(axes.axvline(time / scale, color=PALETTE[2], linestyle=dashes, label=label))
    axes.set_xlabel(f"step time ({unit})")
    axes.set_ylabel("samples")
    legend(figure, style, lines)
    return figure
