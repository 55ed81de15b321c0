"""What a result says, as facts, tables and sections of a page."""

from collections.abc import Mapping, Sequence
from itertools import chain

from stepsim.base.units import (
    PS_PER_S,
    format_bandwidth,
    format_size_bytes,
    format_time_ps,
)
from stepsim.results.document import LinkEntry, ResultDocument, StageEntry, StepDocument
from stepsim.show.figures.drawing import PART_COLOURS, PATH
from stepsim.show.page.colours import SHADES, Shade
from stepsim.show.page.columns import SpanColumns
from stepsim.show.page.figures import MOST_PX, time_range, timeline_plot
from stepsim.show.page.page import Cell, Chart, Column, Piece, Section, Table
from stepsim.show.page.words import name_ranks
from stepsim.workload.axes import Part

PART_LOOKS: Mapping[str, tuple[str, str]] = {
    part.key: (part.label, PART_COLOURS[part]) for part in Part
}
"""Words and colour of every part, by its name in documents."""

MOST_CLASSES = 512
_MOST_NAMED = 16
_ONE_OF_SEVERAL_PX = 560
_UNKNOWN = "#bbbbbb"


def time_cell(time_ps: float | None) -> Cell:
    """A time, sorted by its picoseconds; `-` where there is none."""
    return Cell("-") if time_ps is None else Cell(format_time_ps(time_ps), time_ps)


def share_cell(share: float, digits: int = 1) -> Cell:
    """A share in per cent."""
    return Cell(f"{100 * share:.{digits}f}%", share)


def size_cell(size_bytes: int) -> Cell:
    """A size, sorted by its bytes."""
    return Cell(format_size_bytes(size_bytes), size_bytes)


def count_cell(count: int) -> Cell:
    """A whole number."""
    return Cell(f"{count:,}", count)


def job_words(result: StepDocument) -> str:
    """Size and degrees of a job."""
    degrees = ", ".join(f"{name} {size}" for name, size in result.plan.items())
    return f"{result.npus:,} NPUs: {degrees}"


def step_facts(result: StepDocument) -> tuple[tuple[str, str], ...]:
    """The few numbers that are looked for first."""
    step_s = result.step_time_ps / PS_PER_S
    facts = [("Step time", format_time_ps(result.step_time_ps))]
    if result.plan["pp"] > 1:
        facts.append(("Pipeline bubble", f"{result.bubble_fraction:.1%}"))
    facts.append(("Compute", _share(result, "compute")))
    exposed = sum(t for name, t in result.breakdown_ps.items() if name.startswith("exposed"))
    facts.append(("Exposed communication", _percent(exposed, result.step_time_ps)))
    if step_s:
        rate = result.microbatches * result.plan["dp"] / step_s
        facts.append(("Throughput", f"{rate:,.4g} microbatches/s"))
        facts.append(("Steps", f"{3600 / step_s:,.4g} per hour"))
    return tuple(facts)


def _share(result: StepDocument, part: str) -> str:
    return _percent(result.breakdown_ps.get(part, 0), result.step_time_ps)


def _percent(time_ps: int, step_ps: int) -> str:
    return f"{time_ps / step_ps:.1%}" if step_ps else "-"


def step_settings(result: StepDocument) -> tuple[tuple[str, str], ...]:
    """The job and how it is run."""
    piped = result.plan["pp"] > 1
    pairs = [
        ("Workload", result.workload),
        ("Topology", result.topology),
        ("Job", job_words(result)),
        ("Microbatches", f"{result.microbatches:,} per pipeline"),
        ("Schedule", f"{result.schedule}, {result.p2p} p2p" if piped else result.schedule),
        ("Contention", result.contention),
        ("Pipeline time", format_time_ps(result.pipeline_time_ps)),
    ]
    if piped:
        pairs.append(("Zero-bubble rate", f"{result.zero_bubble_rate:.1%}"))
        peak = f"{result.peak_activations:,} chunks of microbatches"
        if result.peak_activation_bytes is not None:
            peak += f", {format_size_bytes(result.peak_activation_bytes)}"
        pairs.append(("Most live activations", peak))
    if result.settings:
        changed = "; ".join(f"{name} {text}" for name, text in result.settings.items())
        pairs.append(("Settings", changed))
    return tuple(pairs)


def timeline_section(
    runs: Sequence[tuple[str, StepDocument, SpanColumns]], missing: str = ""
) -> Section:
    """Timelines of runs under each other on one time axis."""
    charts: list[Chart] = []
    if runs:
        longest = max(result.step_time_ps for _, result, _ in runs)
        times = time_range(longest)
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
                Chart(plot=plot, title=title, legend=_legend(columns), note=_shown(columns))
            )
    return Section(
        name="timeline",
        heading="Timeline",
        text="Actions of each rank above their tasks, then collectives and messages, a line per "
        "stream. The black edge is the critical path; what a task under the pointer waits for is "
        "framed."
        if charts
        else "",
        charts=tuple(charts),
        missing=missing,
    )


def _legend(columns: SpanColumns) -> tuple[tuple[str, str], ...]:
    used = {*columns.shade.tolist(), *columns.action.shade.tolist()}
    return (*(SHADES[Shade(s)] for s in sorted(used)), ("critical path", PATH))


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
    """Where the step goes: mean over ranks, and a bar per class of ranks or per stage."""
    names = [name for name, time in result.breakdown_ps.items() if time]
    used = [n for n in result.breakdown_ps if n in names or _any_has(result, n)]
    mean = Table(
        caption="Mean over ranks; the parts add up to the step",
        columns=(Column("Part", number=False), Column("Time"), Column("Share of step")),
        rows=tuple(
            (
                Cell(part_words(name)),
                time_cell(result.breakdown_ps[name]),
                share_cell(_ratio(result.breakdown_ps[name], result.step_time_ps)),
            )
            for name in names
        ),
    )
    tables = [_bars(result, used), mean]
    if result.plan["pp"] > 1:
        tables.append(_stages(result.stages))
    return Section(name="breakdown", heading="Where the step goes", tables=tuple(tables))


def _any_has(result: ResultDocument, name: str) -> bool:
    stages = (stage.breakdown_ps for stage in result.stages)
    ranks = (rank.breakdown_ps for rank in result.ranks)
    return any(parts.get(name, 0) for parts in chain(stages, ranks))


def part_words(name: str) -> str:
    """A part in words; one that a later stepsim added keeps its name."""
    return PART_LOOKS.get(name, (name.replace("_", " "), ""))[0]


def _bars(result: ResultDocument, used: Sequence[str]) -> Table:
    """A bar per class of ranks; per stage where a document holds none, or too many."""
    classes: dict[int, list[int]] = {}
    for rank in result.ranks:
        classes.setdefault(rank.like, []).append(rank.rank)
    by_class = 0 < len(classes) <= MOST_CLASSES
    if by_class:
        first = {rank.like: rank for rank in reversed(result.ranks)}
        bars = [
            (name_ranks(sorted(set(ranks))), first[like].stage, first[like].breakdown_ps)
            for like, ranks in classes.items()
        ]
        caption = "Breakdown of each class of ranks that behave alike"
    else:
        bars = [
            (f"ranks {s.first_rank}-{s.last_rank}, mean", s.stage, s.breakdown_ps)
            for s in result.stages
        ]
        many = f"; {len(classes):,} classes are too many to list" if classes else ""
        caption = f"Breakdown of each stage, mean over its ranks{many}"
    columns = ("Compute", "Exposed", "Bubble")
    return Table(
        caption=caption,
        columns=(
            Column("Ranks", number=False),
            Column("Stage"),
            Column("Step", number=False, wide=True),
            *(Column(name) for name in columns),
        ),
        rows=tuple(
            (
                Cell(ranks),
                count_cell(stage),
                _bar(parts, result.step_time_ps),
                *(time_cell(time) for time in _sums(parts)),
            )
            for ranks, stage, parts in bars
        ),
        legend=tuple(PART_LOOKS.get(name, (name, _UNKNOWN)) for name in used),
    )


def parts_bars(runs: Mapping[str, StepDocument]) -> Table:
    """A bar per run, mean over its ranks, all on the scale of the longest step."""
    longest = max(run.step_time_ps for run in runs.values())
    used = [name for run in runs.values() for name, time in run.breakdown_ps.items() if time]
    return Table(
        caption="Where each step goes, mean over ranks, on one scale",
        columns=(
            Column("Schedule", number=False),
            Column("Step", number=False, wide=True),
            *(Column(name) for name in ("Compute", "Exposed", "Bubble")),
        ),
        rows=tuple(
            (
                Cell(name),
                _bar(run.breakdown_ps, longest),
                *(time_cell(time) for time in _sums(run.breakdown_ps)),
            )
            for name, run in runs.items()
        ),
        legend=tuple(PART_LOOKS.get(name, (name, _UNKNOWN)) for name in dict.fromkeys(used)),
    )


def _sums(parts: Mapping[str, int]) -> tuple[int, int, int]:
    """Compute, exposed communication, bubble."""
    exposed = sum(time for name, time in parts.items() if name.startswith("exposed"))
    bubble = sum(parts.get(name, 0) for name in ("head", "inner", "tail"))
    return parts.get("compute", 0), exposed, bubble


def _bar(parts: Mapping[str, int], step_ps: int) -> Cell:
    pieces, at = [], 0.0
    for name, time in parts.items():
        if time:
            words, colour = PART_LOOKS.get(name, (name, _UNKNOWN))
            share = _ratio(time, step_ps)
            text = f"{words}: {format_time_ps(time)}, {share:.1%}"
            pieces.append(Piece(at, share, colour, text))
            at += share
    return Cell("; ".join(piece.text for piece in pieces), None, tuple(pieces))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _stages(stages: Sequence[StageEntry]) -> Table:
    names = ("Stage", "One forward", "One backward", "Busy", "Head", "Inner", "Tail")
    return Table(
        caption="Stages: durations of their actions, and idle time within the pipeline",
        columns=tuple(Column(name) for name in names),
        rows=tuple(
            (
                count_cell(stage.stage),
                time_cell(stage.forward_ps),
                time_cell(stage.backward_ps),
                *(
                    time_cell(getattr(stage.idle_ps, name, None))
                    for name in ("busy", "head", "inner", "tail")
                ),
            )
            for stage in stages
        ),
    )


def path_section(result: StepDocument) -> Section:
    """What the chain of tasks that sets the step time is made of."""
    parts = {name: time for name, time in result.critical_path_ps.items() if time}
    if not parts:
        return Section(name="path", heading="Critical path", missing="The result holds none.")
    kinds = {"compute": "compute", "host": "host"}
    rows = tuple(
        (
            Cell(kinds.get(name, f"{name.removeprefix('exposed_')} communication")),
            time_cell(time),
            share_cell(_ratio(time, result.step_time_ps)),
            _bar({name: time}, result.step_time_ps),
        )
        for name, time in sorted(parts.items(), key=lambda each: -each[1])
    )
    columns = (Column("Kind", number=False), Column("Time"), Column("Share"))
    return Section(
        name="path",
        heading="Critical path",
        text="The chain of tasks that makes the step as long as it is: only what lies on it is "
        "worth making faster.",
        tables=(
            Table(
                caption="Time on the path, by kind; adds up to the step",
                columns=(*columns, Column("Step", number=False, wide=True)),
                rows=rows,
            ),
        ),
    )


def network_section(result: StepDocument) -> Section:
    """Links and communications."""
    tables = []
    if result.comms:
        tables.append(_comms(result))
    if result.links:
        tables.append(_links(result.links))
    missing = "" if tables else "The step communicates nothing."
    return Section(name="network", heading="Network", tables=tuple(tables), missing=missing)


def _links(links: Sequence[LinkEntry]) -> Table:
    names = ("Used", "Of", "Bandwidth", "All bytes", "Its bytes", "Busy", "In use")
    busiest = Column("Busiest link", number=False)
    return Table(
        caption="Links, one direction each; in use: the busiest link's share of the step",
        columns=(
            Column("Links", number=False),
            *(Column(name) for name in names[:4]),
            busiest,
            *(Column(name) for name in names[4:]),
            Column("Whose bytes", number=False),
        ),
        rows=tuple(_link(link) for link in links),
    )


def _link(link: LinkEntry) -> tuple[Cell, ...]:
    rate = link.bandwidth_bytes_per_s
    shares = [
        f"{user.group} {user.kind} {_ratio(user.bytes, link.busiest_bytes):.0%}"
        for user in link.users[:3]
    ]
    return (
        Cell(link.name),
        count_cell(link.used),
        count_cell(link.links),
        Cell("free") if rate is None else Cell(format_bandwidth(rate), rate),
        size_cell(link.total_bytes),
        Cell(link.busiest or "-"),
        size_cell(link.busiest_bytes),
        time_cell(link.busy_ps),
        share_cell(link.utilisation),
        Cell(", ".join(shares)),
    )


def _comms(result: StepDocument) -> Table:
    names = ("Ranks", "Bytes", "Count", "One alone", "All alone")
    return Table(
        caption="Communications, of the rank that does most; alone: with the links to itself",
        columns=(
            Column("Communication", number=False),
            *(Column(name) for name in names),
            Column("Algorithm", number=False),
        ),
        rows=tuple(
            (
                Cell(f"{comm.group} {comm.kind}"),
                count_cell(comm.ranks),
                size_cell(comm.size_bytes),
                count_cell(comm.count),
                time_cell(comm.time_ps),
                time_cell(comm.time_ps * comm.count),
                Cell(" or ".join(comm.algorithms)),
            )
            for comm in result.comms
        ),
    )


def notes_section(warnings: Sequence[str]) -> Section:
    """Warnings and assumptions."""
    return Section(
        name="assumptions",
        heading="Warnings and assumptions",
        text="" if warnings else "None.",
        notes=tuple(warnings),
    )
