"""What a sweep has found: extremes, every axis by its values, the Pareto front, scenarios."""

from collections.abc import Callable, Iterator, Sequence

from stepsim.base.structs import replace
from stepsim.explore.sweep.table import Extreme, ParetoPoint, StoredAxis, SweepTable
from stepsim.show.tables.model import (
    BANDWIDTH,
    COUNT,
    LONG,
    TIME,
    Column,
    Ordered,
    Shown,
    Table,
    table_of,
)

_MOST_VALUES = 16
_STEP = TIME.of("step_time_ps")
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
        scenario = LONG.of(lambda each: _settings(table, each.scenario))
        yield table_of(caption, found, {"step": _STEP, "scenario": scenario})
    yield from (axis_table(table, axis) for axis in table.axes)
    failure = table.first_error()
    if failure:
        yield f"first failure, {_settings(table, failure[0])}: {failure[1]}"


def axis_table(table: SweepTable, axis: StoredAxis) -> Table:
    """Least and mean step time of every value of an axis, over all other axes."""
    return table_of(
        f"{axis.name}, over all other axes",
        table.by_value(axis),
        {
            axis.name: _column(axis).of(lambda r: Ordered(axis.texts[r.position], r.position)),
            "fastest": TIME.of("least_ps"),
            "mean": TIME.of("mean_ps"),
            "scenarios": COUNT.on_pages.of("scenarios"),
            "failed": COUNT.of("failed"),
        },
        most=_MOST_VALUES,
        both_ends=True,
    )


def pareto_table(table: SweepTable) -> Table:
    """Scenarios that no other beats with as little bandwidth."""
    columns = {"all links, both directions": BANDWIDTH.of("total_bandwidth"), **_columns(table)}
    return table_of("least step time for the bandwidth bought", table.pareto_front(), columns)


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
    return replace(table_of(caption, found, _columns(table)), note=note)


def _columns(table: SweepTable) -> dict[str, Column]:
    """Step time and settings of extremes, and of points of a front."""
    return {"step time": _STEP, **{a.name: _column(a).of(_setting(a)) for a in table.axes}}


def _column(axis: StoredAxis) -> Column:
    return Column(write=str, number=axis.numeric)


def _setting(axis: StoredAxis) -> Callable[[Extreme | ParetoPoint], Ordered]:
    """The value that a scenario has on an axis."""

    def of(each: Extreme | ParetoPoint) -> Ordered:
        place = each.scenario // axis.stride % len(axis.texts)
        return Ordered(axis.texts[place], float(axis.values[place]) if axis.numeric else None)

    return of


def _settings(table: SweepTable, scenario: int) -> str:
    return ", ".join(f"{name}={text}" for name, text in table.settings(scenario).items())
