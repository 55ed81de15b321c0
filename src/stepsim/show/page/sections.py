"""Sections of a page: charts and tables of a result under a heading."""

from collections.abc import Mapping, Sequence

from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.explore.sensitivity import Sensitivity
from stepsim.results.report import Report, ResultDocument
from stepsim.show.page.columns import SpanColumns
from stepsim.show.page.figures import MOST_PX, time_range, timeline_plot
from stepsim.show.page.measured import RunBesideReplay
from stepsim.show.page.page import Chart, Section
from stepsim.show.palette import PATH, SHADES
from stepsim.show.tables.model import Pairs, share_of, shown_pairs
from stepsim.show.tables.step import (
    bars_table,
    comms_table,
    knows_memory,
    links_table,
    memory_table,
    parts_table,
    path_table,
    stages_table,
)
from stepsim.show.tables.studies import path_changes, worth_table

_MOST_NAMED = 16
_ONE_OF_SEVERAL_PX = 560


def step_facts(result: Report, measured: RunBesideReplay | None = None) -> Pairs:
    """The few numbers that are looked for first."""
    step_s = result.step_time_ps / PS_PER_S
    exposed = sum(t for name, t in result.breakdown_ps.items() if name.startswith("exposed"))
    parts = {"compute": result.breakdown_ps.get("compute", 0), "exposed communication": exposed}
    shares = {
        name: f"{share_of(time, result.step_time_ps):.1%}" if step_s else "-"
        for name, time in parts.items()
    }
    piped = result.plan["pp"] > 1
    facts = {
        **dict(shown_pairs(result)),
        **_measured_facts(result, measured),
        **({"pipeline bubble": f"{result.bubble_fraction:.1%}"} if piped else {}),
        **shares,
    }
    if step_s:
        rate = result.microbatches * result.plan["dp"] / step_s
        facts["throughput"] = f"{rate:,.4g} microbatches/s"
        facts["steps"] = f"{3600 / step_s:,.4g} per hour"
    return tuple(facts.items())


def _measured_facts(result: Report, measured: RunBesideReplay | None) -> dict[str, str]:
    """The measured step, and how far off the simulated one is."""
    if measured is None:
        return {}
    error = result.step_time_ps / measured.step_ps - 1
    return {"measured step": format_time_ps(measured.step_ps), "error": f"{error:+.2%}"}


def notices_of(result: Report) -> tuple[str, ...]:
    """What changes the answer and is said first: weighty findings, with memory that is short."""
    return tuple(finding.text for finding in result.findings if finding.is_weighty)


def replay_section(measured: RunBesideReplay) -> Section:
    """Measured times beside simulated ones."""
    return Section(name="replay", heading="Measured beside simulated", tables=(measured.errors,))


def timeline_section(
    runs: Sequence[tuple[str, Report, SpanColumns]],
    missing: str = "",
    measured: RunBesideReplay | None = None,
) -> Section:
    """Timelines of runs under each other on one time axis, below a measured one."""
    charts: list[Chart] = []
    if runs:
        longest = max(result.step_time_ps for _, result, _ in runs)
        longest = max(longest, measured.step_ps if measured else 0)
        times = time_range(longest)
        if measured:
            charts.append(measured.chart(times, longest))
        for i, (title, result, columns) in enumerate(runs):
            words = f"Timeline of {title or result.schedule}, {len(columns):,} tasks"
            plot = timeline_plot(
                columns,
                times,
                longest,
                name=f"timeline-{i}",
                described=words,
                most_px=MOST_PX if len(runs) == 1 else _ONE_OF_SEVERAL_PX,
            )
            charts.append(
                Chart(
                    plot=plot,
                    title=title or "Simulated" * bool(measured),
                    legend=_legend(columns),
                    note=_shown(columns),
                )
            )
    return Section(
        name="timeline",
        heading="Timeline",
        text="Actions of each rank above their tasks, then collectives and messages, a line per "
        "stream. The edge along the top of tasks marks the critical path; what a task under the "
        "pointer waits for is framed."
        if charts
        else "",
        charts=tuple(charts),
        missing=missing,
    )


def _legend(columns: SpanColumns) -> tuple[tuple[str, str], ...]:
    used = {*columns.shade.tolist(), *columns.action.shade.tolist()}
    return (*(SHADES[s] for s in sorted(used)), ("critical path", PATH))


def _shown(columns: SpanColumns) -> str:
    """What the rows stand for, and what is not shown."""
    several = [row for row in columns.rows if row.ranks != f"rank {row.rank}"]
    text = f"{len(columns):,} tasks."
    if several:
        stands = "; ".join(f"{row.label}: {row.ranks}" for row in several[:_MOST_NAMED])
        more = f"; and {len(several) - _MOST_NAMED} more" if len(several) > _MOST_NAMED else ""
        text += f" A row stands for all ranks that behave alike: {stands}{more}."
    return f"{text} Shown: {columns.left_out}." if columns.left_out else text


def breakdown_section(result: ResultDocument) -> Section:
    """Where the step goes: a bar per class of ranks or per stage, means, and stages."""
    stages = [stages_table(result)] if result.plan["pp"] > 1 else []
    return Section(
        name="breakdown",
        heading="Where the step goes",
        text="Parts add up to the step. The last four times of a stage are those in its actions, "
        "and the bubble: in the pipeline, but in none.",
        tables=(bars_table(result), parts_table(result), *stages),
    )


def memory_section(result: Report) -> Section:
    """What ranks hold, stage by stage; empty where that is not known."""
    known = knows_memory(result)
    return Section(
        name="memory",
        heading="Memory",
        text="Activations and logits are those of the microbatches that the schedule keeps, "
        "from their forward to their backward; the rest is held throughout." * known,
        tables=(memory_table(result),) if known else (),
        missing="" if known else "Only a model says what its ranks hold.",
    )


def path_section(result: Report) -> Section:
    """What the chain of tasks that sets the step time is made of."""
    table = path_table(result)
    if not table.rows:
        return Section(name="path", heading="Critical path", missing="The result holds none.")
    return Section(
        name="path",
        heading="Critical path",
        text="The chain of tasks that makes the step as long as it is: only what lies on it is "
        "worth making faster.",
        tables=(table,),
    )


def network_section(result: Report) -> Section:
    """Communications and links."""
    found = comms_table(result), links_table(result.links)
    tables = tuple(table for table in found if table.rows)
    missing = "" if tables else "The step communicates nothing."
    return Section(name="network", heading="Network", tables=tables, missing=missing)


def what_if_section(runs: Mapping[str, Sensitivity], missing: str = "") -> Section:
    """What one per cent of each parameter is worth, a column per run."""
    notes = (
        note if note in found.notes else f"{found.schedule}, {note}"
        for found in runs.values()
        for note in (*found.notes, *path_changes(found))
    )
    return Section(
        name="what-if",
        heading="What if",
        text="How much shorter the step gets when one thing is one per cent better, evaluated "
        "exactly." * bool(runs),
        tables=(worth_table(runs),) if runs else (),
        notes=tuple(dict.fromkeys(notes)),
        missing=missing,
    )


def notes_section(warnings: Sequence[str]) -> Section:
    """Warnings and assumptions."""
    return Section(
        name="assumptions",
        heading="Warnings and assumptions",
        text="" if warnings else "None.",
        notes=tuple(warnings),
    )
