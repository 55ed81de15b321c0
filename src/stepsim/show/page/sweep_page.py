"""Pages of sweeps: a map or lines over the axes, and tables of scenarios."""

from collections.abc import Sequence

from stepsim.base.errors import SweepError
from stepsim.base.units import format_time_ps
from stepsim.explore.sweep.table import SweepTable
from stepsim.show.figures.sweep.pictures import line_picture, map_picture
from stepsim.show.figures.sweep.views import choose_view, fixed_options, left_out
from stepsim.show.page.page import Page, Section
from stepsim.show.page.sweep_figures import line_chart, map_charts
from stepsim.show.tables.sweep import axis_table, pareto_table, scenarios_table
from stepsim.show.words import axis_words, short_value

_MOST_SCENARIOS = 1000


def sweep_page(table: SweepTable, *, command: str, axes: Sequence[str] = ()) -> Page:
    """What a sweep has found so far; `axes` are those of its figure, see `choose_view`.

    Raises SweepError where no scenario has a result, or for axes that it does not have.
    """
    workload, topology = table.source
    progress = table.progress
    fastest = table.extremes(_MOST_SCENARIOS)
    if not fastest:
        failure = table.first_error()
        why = f"; the first: {failure[1]}" if failure else ""
        raise SweepError(f"none of {progress.done} scenarios has a result{why}")
    (slowest,) = table.extremes(1, slowest=True)
    names = ", ".join(axis_words(axis.name) for axis in table.axes)
    return Page(
        title=f"{workload} on {topology}: sweep",
        subtitle=f"Step time over {names}",
        facts=(
            ("scenarios", f"{progress.done:,} of {progress.size:,}"),
            ("failed", f"{progress.failed:,}"),
            ("fastest", format_time_ps(fastest[0].step_time_ps)),
            ("slowest", format_time_ps(slowest.step_time_ps)),
        ),
        settings=(
            ("workload", workload),
            ("topology", topology),
            *fixed_options(table),
            *(
                (f"fastest {axis_words(n)}", short_value(v))
                for n, v in table.settings(fastest[0].scenario).items()
            ),
        ),
        sections=(
            _figure_section(table, axes),
            Section(
                name="axes",
                heading="Axes",
                tables=tuple(axis_table(table, a) for a in table.axes if len(a.texts) > 1),
            ),
            _pareto_section(table),
            Section(
                name="scenarios",
                heading="Scenarios",
                tables=(scenarios_table(table, fastest),),
            ),
        ),
        command=command,
    )


def _figure_section(table: SweepTable, axes: Sequence[str]) -> Section:
    try:
        view = choose_view(table, axes)
    except SweepError as error:
        if axes:
            raise
        return Section(name="map", heading="Step time", missing=f"No figure: {error}.")
    if view.y:
        charts = tuple(map_charts(map_picture(table, view, bubble=False)))
    else:
        charts = (line_chart(line_picture(table, view, bubble=False)),)
    over = left_out(table, view)
    text = f"The fastest over {', '.join(over)}." if over else ""
    return Section(name="map", heading="Step time", text=text, charts=charts)


def _pareto_section(table: SweepTable) -> Section:
    found = pareto_table(table)
    return Section(
        name="pareto",
        heading="Pareto front",
        tables=(found,) if found.rows else (),
        missing="" if found.rows else "No scenario has finite bandwidth.",
    )
