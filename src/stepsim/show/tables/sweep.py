"""What a sweep has found: extremes, every axis by its values, the Pareto front, scenarios."""

from collections.abc import Iterator, Sequence

from stepsim.explore.sweep.table import Extreme, StoredAxis, SweepTable
from stepsim.show.tables.model import (
    BANDWIDTH,
    COUNT,
    LONG,
    TIME,
    Column,
    Setting,
    Shown,
    Table,
    Value,
)

_MOST_VALUES = 16
_EXTREMES = 3


def sweep_shown(table: SweepTable) -> Iterator[Shown]:
    """The fastest and slowest scenarios, each axis by its values, why the first failure failed."""
    progress = table.progress
    workload, topology = table.source
    yield (
        ("workload", workload),
        ("topology", topology),
        ("scenarios", f"{progress.done} of {progress.size}, {progress.failed} failed"),
        ("database", table.store.path.name),
    )
    for caption, slowest in (("fastest", False), ("slowest", True)):
        found = table.extremes(_EXTREMES, slowest=slowest)
        yield Table(
            caption=caption,
            columns={"step": TIME, "scenario": LONG},
            rows=tuple((each.step_time_ps, _settings(table, each.scenario)) for each in found),
        )
    yield from (axis_table(table, axis) for axis in table.axes)
    failure = table.first_error()
    if failure:
        yield f"first failure, {_settings(table, failure[0])}: {failure[1]}"


def axis_table(table: SweepTable, axis: StoredAxis) -> Table:
    """Least and mean step time of every value of an axis, over all other axes."""
    return Table(
        caption=f"{axis.name}, over all other axes",
        columns={
            axis.name: _column(axis),
            "fastest": TIME,
            "mean": TIME,
            "scenarios": COUNT.on_pages,
            "failed": COUNT,
        },
        rows=tuple(
            (
                Setting(axis.texts[row.position], row.position),
                row.least_ps,
                row.mean_ps,
                row.scenarios,
                row.failed,
            )
            for row in table.by_value(axis)
        ),
        most=_MOST_VALUES,
        both_ends=True,
    )


def pareto_table(table: SweepTable) -> Table:
    """Scenarios that no other beats with as little bandwidth."""
    return Table(
        caption="least step time for the bandwidth bought",
        columns={"all links, both directions": BANDWIDTH, **_columns(table)},
        rows=tuple(
            (
                point.total_bandwidth,
                *_scenario(table, Extreme(point.scenario, point.step_time_ps)),
            )
            for point in table.pareto_front()
        ),
    )


def scenarios_table(table: SweepTable, found: Sequence[Extreme]) -> Table:
    """Scenarios with the values of their axes; how many there are, and why the first failed."""
    progress, failure = table.progress, table.first_error()
    done = progress.done - progress.failed
    caption, note = "every scenario, fastest first", ""
    if len(found) < done:
        caption = f"the fastest {len(found):,} of {done:,} scenarios; --export writes all"
    if failure:
        settings = _settings(table, failure[0])
        note = f"First of {progress.failed:,} that failed, {settings}: {failure[1]}"
    rows = tuple(_scenario(table, each) for each in found)
    return Table(caption=caption, columns=_columns(table), rows=rows, note=note)


def _columns(table: SweepTable) -> dict[str, Column]:
    return {"step time": TIME, **{axis.name: _column(axis) for axis in table.axes}}


def _column(axis: StoredAxis) -> Column:
    return Column(write=str, number=axis.numeric)


def _scenario(table: SweepTable, each: Extreme) -> tuple[Value, ...]:
    places = (each.scenario // axis.stride % len(axis.texts) for axis in table.axes)
    return each.step_time_ps, *(
        Setting(axis.texts[i], float(axis.values[i]) if axis.numeric else None)
        for axis, i in zip(table.axes, places, strict=True)
    )


def _settings(table: SweepTable, scenario: int) -> str:
    return ", ".join(f"{name}={text}" for name, text in table.settings(scenario).items())
