"""Pages of steps, comparisons, sensitivities and files: their sections, and how one is written.

A section is a heading with charts and tables of a result. Where a result has no sensitivities, the
page says why.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.process import paused
from stepsim.base.structs import Names, replace
from stepsim.base.units import format_time_ps
from stepsim.explain.improve import Improvements
from stepsim.explain.report import Report, ResultDocument
from stepsim.explain.stragglers import Stragglers
from stepsim.explore.sensitivity import Sensitivity, find_sensitivity
from stepsim.explore.sweep import open_for_reading
from stepsim.explore.sweep.table import SweepTable
from stepsim.files.asked import StepInputs
from stepsim.files.reading import open_file, read_json
from stepsim.files.writing import write_whole
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.show.headlines import Headline, headlines
from stepsim.show.page.bands import joined_comms, memory_bars
from stepsim.show.page.columns import MOST_SPANS, SpanColumns, span_columns
from stepsim.show.page.figures import MOST_PX, time_range, timeline_plot
from stepsim.show.page.measured import RecordedTimeline, RunBesideReplay
from stepsim.show.page.page import Chart, Page, Section, render
from stepsim.show.page.sweep_page import sweep_page
from stepsim.show.palette import IDLE, PATH, SHADES
from stepsim.show.tables.against import against_parts, against_tables
from stepsim.show.tables.comparison import schedules_table
from stepsim.show.tables.model import BAR, Table
from stepsim.show.tables.profiles import (
    changes_table,
    replay_pairs,
    replay_tables,
    untold_table,
    where_steps_go,
)
from stepsim.show.tables.step import (
    bar_of,
    bars_table,
    comms_table,
    job_pairs,
    job_words,
    knows_memory,
    links_table,
    memory_table,
    option_pairs,
    parts_table,
    path_table,
    runs_bars_table,
    stages_table,
    whole_run_pairs,
)
from stepsim.show.tables.studies import path_changes, worth_table
from stepsim.step.against import StepAgainst
from stepsim.step.compare import ComparedSchedules, ComparisonDocument
from stepsim.step.prepared import SimulatedStep

_DATABASE = b"SQLite format 3\0"
_KNOWN = "a result of stepsim simulate, compare or sensitivity --json, or a sweep's database"


@paused()
def write_step(
    result: SimulatedStep,
    path: str | Path,
    *,
    command: str,
    what_if: Sensitivity | str,
    measured: RunBesideReplay | None = None,
) -> None:
    """Write a step with its timeline; `what_if` says why there are no sensitivities, if so.

    `measured` is the run that the step is the replay of.
    Raises OutputError when the file cannot be written.
    """
    document = result.document()
    spans = span_columns(result.timeline, result.report)
    page = step_page(document, command=command, spans=spans, what_if=what_if, measured=measured)
    write_page(page, path)


@paused()
def write_comparison(
    comparison: ComparedSchedules,
    path: str | Path,
    *,
    command: str,
    what_if: Sequence[Sensitivity | str],
) -> None:
    """Write a comparison with all timelines on one axis; raises OutputError.

    `what_if` belongs to the schedules that run, in order. The timelines share the spans that a
    page has room for.
    """
    document = ComparisonDocument.of(comparison)
    most = MOST_SPANS // len(comparison.valid)
    spans = [span_columns(each.timeline, each.report, most) for _, each in comparison.valid]
    write_page(comparison_page(document, command=command, spans=spans, what_if=what_if), path)


def write_sweep(table: SweepTable, path: str | Path, *, command: str, axes: Sequence[str]) -> None:
    """Write what a sweep has found; raises OutputError, and SweepError as `sweep_page`."""
    write_page(sweep_page(table, command=command, axes=axes), path)


def write_file(source: Path, path: str | Path, *, command: str) -> None:
    """Write what a file holds: a result in JSON, or a sweep's database.

    Raises StepsimError naming file, place and value when it is neither.
    """
    if _starts_as_database(source):
        with open_for_reading(source) as store:
            write_sweep(SweepTable(store=store), path, command=command, axes=())
        return
    write_page(_read(source, command), path)


def _starts_as_database(source: Path) -> bool:
    try:
        with open_file(source, most=None) as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except OSError as error:
        raise StepsimError(f"{source}: cannot read the result: {error.strerror}") from None


def _read(source: Path, command: str) -> Page:
    raw, place = read_json(source, _KNOWN), str(source)
    if "candidates" in raw:
        return comparison_page(ComparisonDocument.from_plain(raw, place), command=command)
    if "slopes" in raw:
        return sensitivity_page(Sensitivity.from_plain(raw, place), command=command)
    if "breakdown_ps" not in raw:
        raise StepsimError(f"{source}: no page shows this: expected {_KNOWN}")
    return step_page(ResultDocument.from_plain(raw, place), command=command)


def write_page(page: Page, path: str | Path) -> None:
    """Write a page; raises OutputError."""
    write_whole(Path(path), render(page))


@paused()
def write_against(held: StepAgainst, path: str | Path, *, command: str) -> None:
    """Write a step below the recorded one that it is held against; raises OutputError."""
    simulated = held.simulated
    spans = span_columns(simulated.timeline, simulated.report)
    write_page(against_page(held, spans, command=command), path)


def against_page(held: StepAgainst, spans: SpanColumns, *, command: str) -> Page:
    """Both timelines on one axis, the largest differences, and every row."""
    against, report = held.against, held.simulated.report
    first, second = against.predicted_step_ps, against.measured_step_ps
    beside = (f"{second / first - 1:+.1%}",) if first else ()
    tables = [shown for shown in against_tables(against) if isinstance(shown, Table)]
    return Page(
        title=f"{report.workload} held against {against.source}",
        subtitle=f"{against.format}, step {against.step}, {len(against.ranks)} ranks",
        facts=(
            Headline(name="predicted step", value=format_time_ps(first)),
            Headline(name="measured step", value=format_time_ps(second), beside=beside),
        ),
        settings=whole_run_pairs(report),
        notices=against.differences,
        assumed=against.notes,
        sections=(
            timeline_section([("", report, spans)], measured=RecordedTimeline.of(held.measured)),
            Section(name="parts", heading="Where both steps go", tables=(against_parts(against),)),
            Section(name="rows", heading="Row by row", tables=tuple(tables)),
        ),
        command=command,
    )


_OF_GAINS = (
    "Every change is replayed through all steps. Least and most are the extremes over the steps; "
    "the ceiling is the gain where what is changed is as good as can be."
)
_OF_TIMELINES = "Zoom in for kernels, collectives and messages; point at one for what it waits for."
_OF_JOINED = "Equal calls are one row, of whatever stage: the count and the total are theirs."
_NO_SPANS = "The file holds no tasks, so there is no timeline: --report of {} draws it."
_NO_WHAT_IF = "The file holds no sensitivities: --report of {} finds them."


def step_page(
    result: ResultDocument,
    *,
    command: str,
    spans: SpanColumns | None = None,
    what_if: Sensitivity | str = "",
    measured: RunBesideReplay | None = None,
) -> Page:
    """A simulated step; `what_if` says why there are no sensitivities, if there are none.

    `measured` is the run that it is the replay of.
    """
    what_if = what_if or _NO_WHAT_IF.format("stepsim simulate")
    job = job_words(result)
    runs = [("", result, spans)] if spans else []
    absent = "" if spans else _NO_SPANS.format("stepsim simulate")
    return Page(
        title=f"{result.workload} on {result.topology}",
        subtitle=f"One training step under {result.schedule}, {job}",
        facts=headlines(result, measured.step_ps if measured else None),
        settings=whole_run_pairs(result),
        notices=notices_of(result),
        assumed=_assumed_of(result),
        sections=(
            timeline_section(runs, absent, measured),
            parts_section(result),
            memory_section(result),
            *([replay_section(measured)] if measured else []),
            path_section(result),
            stages_section(result),
            network_section(result),
            _what_if({"": what_if}),
        ),
        command=command,
    )


def comparison_page(
    comparison: ComparisonDocument,
    *,
    command: str,
    spans: Sequence[SpanColumns] = (),
    what_if: Sequence[Sensitivity | str] = (),
) -> Page:
    """Several schedules; `spans` and `what_if` belong to those that run, in order, or are empty."""
    runs = comparison.runs
    names = [run.name for run in runs]
    first, fastest = runs[0], min(runs, key=lambda run: run.step_time_ps)
    job = job_words(first)
    return Page(
        title=f"{first.workload} on {first.topology}: {len(runs)} schedules",
        subtitle=f"One training step, {job}",
        facts=(
            Headline(
                name="fastest",
                value=fastest.name,
                beside=(f"{fastest.speedup:.3f} times the speed of {first.name}",),
            ),
            *headlines(fastest),
        ),
        settings=(*job_pairs(first), *option_pairs(first)),
        notices=notices_of(first),
        assumed=tuple(
            dict.fromkeys((*_assumed_of(first), *(text for run in runs for text in run.warnings)))
        ),
        sections=(
            timeline_section(
                list(zip(names, runs, spans, strict=True)) if spans else [],
                "" if spans else _NO_SPANS.format("stepsim compare"),
            ),
            _schedules(comparison),
            _what_if(
                dict(zip(names, what_if, strict=True))
                if what_if
                else {"": _NO_WHAT_IF.format("stepsim compare")}
            ),
        ),
        command=command,
    )


def sensitivity_page(found: Sensitivity, *, command: str) -> Page:
    """What one per cent of each parameter is worth."""
    return Page(
        title=f"{found.workload} on {found.topology}: sensitivities",
        subtitle=f"One training step under {found.schedule}",
        facts=(Headline(name="step time", value=format_time_ps(found.step_time_ps)),),
        settings=(
            ("workload", found.workload),
            ("topology", found.topology),
            ("schedule", found.schedule),
        ),
        sections=(what_if_section({"": found}), notes_section(found.warnings)),
        command=command,
    )


def improvements_page(found: Improvements, profile: Profile, *, command: str) -> Page:
    """What would help a profiled run, where its steps go, and what cannot be told."""
    best = found.changes[0] if found.changes else None
    shares, path = where_steps_go(pipeline_waits(profile, posted=True))
    return Page(
        title=f"{profile.source}: what would help",
        subtitle=f"{profile.format}, {len(profile.ranks)} ranks, {len(profile.steps)} steps",
        facts=(
            Headline(name="mean step", value=format_time_ps(found.measured_ps)),
            Headline(name="replayed", value=format_time_ps(found.replayed_ps)),
            Headline(
                name="largest gain",
                value=f"{best.gain:.1%}" if best else "none",
                beside=(best.name,) if best else (),
            ),
            Headline(name="ceiling", value=f"{found.ceiling:.1%}"),
        ),
        settings=(("operations", f"{len(profile.events):,}"),),
        sections=(
            Section(
                name="changes",
                heading="What would help",
                text=_OF_GAINS,
                tables=(changes_table(found),),
                missing="" if found.changes else "No change gains anything.",
            ),
            Section(
                name="others", heading="No gain, or cannot be judged", tables=(untold_table(found),)
            ),
            Section(name="ranks", heading="Where the mean step goes", tables=(shares,)),
            Section(name="path", heading="Critical path", tables=(path,)),
            notes_section(profile.warnings),
        ),
        command=command,
    )


def profile_page(found: Stragglers, *, command: str) -> Page:
    """What a profile recorded: its steps measured and replayed, and where they go."""
    profile = found.profile
    shares, path = where_steps_go(pipeline_waits(profile, posted=True))
    return Page(
        title=profile.source,
        subtitle=f"{profile.format}, {len(profile.ranks)} ranks, {len(profile.steps)} steps",
        facts=(
            Headline(name="mean step", value=format_time_ps(int(found.measured_ps.mean()))),
            Headline(name="replayed", value=format_time_ps(int(found.replayed_ps.mean()))),
        ),
        settings=replay_pairs(found),
        sections=(
            Section(name="ranks", heading="Where the mean step goes", tables=(shares,)),
            Section(name="path", heading="Critical path", tables=(path,)),
            Section(
                name="replay", heading="Measured and replayed", tables=tuple(replay_tables(found))
            ),
            notes_section(profile.warnings),
        ),
        command=command,
    )


def _schedules(comparison: ComparisonDocument) -> Section:
    """A row per schedule, a bar per schedule on one scale, and why the others cannot run."""
    return Section(
        name="schedules",
        heading="Schedules",
        tables=(
            schedules_table(comparison.runs),
            runs_bars_table({run.name: run for run in comparison.runs}),
        ),
        notes=tuple(f"{each.name} cannot run: {each.refusal}" for each in comparison.refused),
    )


def _what_if(runs: Mapping[str, Sensitivity | str]) -> Section:
    found = {title: each for title, each in runs.items() if isinstance(each, Sensitivity)}
    reasons = dict.fromkeys(each for each in runs.values() if isinstance(each, str))
    return what_if_section(found, " ".join(reasons))


_MOST_NAMED = 16
_ONE_OF_SEVERAL_PX = 560


def notices_of(result: Report) -> Names:
    """What changes the answer and is said first: weighty findings, with memory that is short."""
    return tuple(finding.text for finding in result.findings if finding.is_weighty)


def _assumed_of(result: Report) -> Names:
    """What was assumed, and what of the input changes the answer by little."""
    told = notices_of(result)
    return tuple(text for text in result.said if text not in told)


def replay_section(measured: RunBesideReplay) -> Section:
    """Measured times beside simulated ones."""
    return Section(name="replay", heading="Measured beside simulated", tables=(measured.errors,))


def timeline_section(
    runs: Sequence[tuple[str, Report, SpanColumns]],
    missing: str = "",
    measured: RunBesideReplay | RecordedTimeline | None = None,
) -> Section:
    """Timelines of runs under each other on one time axis, below a measured one."""
    charts: list[Chart] = []
    legend: list[tuple[str, str]] = []
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
                first=not charts,
                last=i == len(runs) - 1,
            )
            said = format_time_ps(result.step_time_ps)
            heading = f"{title}: {said}" if title else "Simulated" * bool(measured)
            charts.append(Chart(plot=plot, title=heading, note=_shown(columns)))
            legend += _legend(columns)
    return Section(
        name="timeline",
        heading="Timeline",
        text=_OF_TIMELINES * bool(charts),
        charts=tuple(charts),
        legend=_in_order(legend) if legend else (),
        missing=missing,
    )


def _legend(columns: SpanColumns) -> list[tuple[str, str]]:
    used = {*columns.shade.tolist(), *columns.action.shade.tolist()}
    return [SHADES[shade] for shade in sorted(used)]


def _in_order(legend: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """What some timeline shows, each once in the order of shades, then what all show."""
    used = set(legend)
    shades = (shade for shade in SHADES.values() if shade in used)
    return (*shades, ("idle", IDLE), ("critical path", PATH))


def _shown(columns: SpanColumns) -> str:
    """What the rows stand for, and what is not shown."""
    several = [row for row in columns.rows if row.ranks != f"rank {row.rank}"]
    text = f"{len(columns):,} tasks."
    if several:
        stands = "; ".join(f"{row.label}: {row.ranks}" for row in several[:_MOST_NAMED])
        more = f"; and {len(several) - _MOST_NAMED} more" if len(several) > _MOST_NAMED else ""
        text += f" A row stands for all ranks that behave alike: {stands}{more}."
    return f"{text} Shown: {columns.left_out}." if columns.left_out else text


def parts_section(result: ResultDocument) -> Section:
    """Where the step of the mean rank goes."""
    table = parts_table(result)
    bar = BAR.of(lambda row: row)
    pieces = bar_of(result.breakdown_ps, result)
    columns = {**table.columns, "step": bar}
    rows = tuple((*row, (piece,)) for row, piece in zip(table.rows, pieces, strict=True))
    return Section(
        name="breakdown",
        heading="Where the step goes",
        half=True,
        tables=(Table(caption="mean over ranks", columns=columns, rows=rows),),
    )


def memory_section(result: Report) -> Section:
    """What ranks hold at most, a bar per stage of what the device has; empty where not known."""
    known = knows_memory(result)
    return Section(
        name="memory",
        heading="Memory",
        half=True,
        tables=(memory_bars(result),) if known else (),
        missing="" if known else "Only a model says what its ranks hold.",
    )


def stages_section(result: ResultDocument) -> Section:
    """A bar per class of ranks or per stage, and the times and bytes of stages in numbers."""
    stages = [stages_table(result)] if result.plan["pp"] > 1 else []
    memory = [memory_table(result)] if knows_memory(result) else []
    return Section(
        name="stages",
        heading="Ranks and stages",
        text="Parts add up to the step. The last four columns of a stage split the time of the "
        "pipeline: inside the stage's actions, and the bubble between them. Activations and "
        "logits are those of the microbatches held, from their forward to their backward.",
        tables=(bars_table(result), *stages, *memory),
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
    one_each = replace(result, comms=tuple(joined_comms(result.comms)))
    comms = comms_table(one_each)
    if len(one_each.comms) < len(result.comms):
        comms = replace(comms, note=_OF_JOINED)
    found = comms, links_table(result.links)
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


def find_what_if(job: StepInputs) -> Sensitivity | str:
    """What one per cent of each parameter of a job is worth.

    A text where derivatives are not defined, as with links that transfers share.
    """
    try:
        return find_sensitivity(job.workload, job.topology, job.options)
    except PlanError as error:
        return f"No sensitivities: {error}."


def find_each_what_if(comparison: ComparedSchedules, job: StepInputs) -> list[Sensitivity | str]:
    """The same for every schedule that runs, in order."""
    return [
        find_what_if(replace(job, options=result.timeline.graph.options))
        for _, result in comparison.valid
    ]
