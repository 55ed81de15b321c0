"""Pipeline schedules side by side, and what explains the difference of two results.

A difference is told by settings, components, stages and links.
"""

from collections.abc import Iterator, Sequence
from operator import sub

from stepsim.base.axes import Part, PartKind
from stepsim.base.units import format_time_ps
from stepsim.documents.table import (
    BAR,
    SHARE,
    SIGNED,
    SIZE,
    TEXT,
    Answer,
    Heads,
    Sheet,
    Shown,
    Table,
    paths,
    table_of,
)
from stepsim.explain.diff import Change, ResultDiff, explain
from stepsim.parallel.schedules import run_by
from stepsim.step.compare import CandidateDocument, ComparisonDocument
from stepsim.step.diff_files import FileDiffs
from stepsim.views.answer import job_line
from stepsim.views.step import bar_of, job_pairs, option_pairs, parts_columns

COMPARISON_TABLES = ("parts", "settings")
"""Names of what can be shown of a comparison below its schedules."""


def comparison_answer(found: ComparisonDocument) -> Answer:
    """The schedule that is best of those that fit, and why: what it saves over the first one."""
    first, best = found.runs[0], best_run(found.runs)
    who = "the fastest that fits" if best.throughput else "the fastest"
    if not run_fits(best):
        who = "the fastest, and none fits"
    time = f"{best.name} is {who}: {format_time_ps(best.step_time_ps)} per step"
    beaten = [*_beaten(found.runs, best)]
    parts = "".join(beaten)
    if best is not first:
        time += f", {best.speedup / first.speedup:.3g} times as fast as {first.name}"
        parts = f"why: {'; '.join([*_instead(first, best), *beaten])}"
    elif first.plan["pp"] == 1 and len(found.runs) > 1:
        parts = "with one stage (pp 1) all schedules are alike: --pp 2 or more makes a pipeline"
    others = {run.p2p for run in found.runs}
    same = ["--p2p overlap (the same p2p for all)"] if len(others) > 1 else []
    return Answer(
        job=job_line(first, schedule=False),
        time=time,
        parts=parts,
        fits=run_fits(best),
        advice=f"next: {', '.join([*same, '--full (all tables)', '--report FILE (a page)'])}",
    )


def _instead(first: CandidateDocument, best: CandidateDocument) -> Iterator[str]:
    """The bubble and the exposed messages of one schedule beside those of another."""
    yield f"bubble {best.bubble_fraction:.1%} instead of {first.bubble_fraction:.1%}"
    times = (format_time_ps(run.breakdown_ps["exposed_pp"]) for run in (best, first))
    yield f"exposed p2p {' instead of '.join(times)}"
    if first.p2p != best.p2p:
        yield f"p2p {best.p2p} instead of {first.p2p}"


def _beaten(runs: Sequence[CandidateDocument], best: CandidateDocument) -> Iterator[str]:
    """Which schedule has the least bubble where that is not the best, and what it pays for that."""
    least = min(runs, key=lambda run: run.bubble_fraction)
    paid = [part for part in Part if part.kind is not PartKind.IDLE]
    own, others = ([run.breakdown_ps.get(part.key, 0) for part in paid] for run in (least, best))
    more, time, other, part = max(zip(map(sub, own, others), own, others, paid, strict=True))
    if more > 0:
        less = f"{least.name} has less bubble ({least.bubble_fraction:.1%})"
        times = f"{format_time_ps(time)} instead of {format_time_ps(other)}"
        yield f"{less}, more {part.label}: {times}"


def run_fits(run: CandidateDocument) -> bool:
    """Whether a schedule's fullest rank has the memory, as far as that is known."""
    return run.throughput is None or run.throughput.fits


def best_run(runs: Sequence[CandidateDocument]) -> CandidateDocument:
    """The fastest of the schedules that fit; of all where none does."""
    return min(runs, key=_by_worth)


def _by_worth(run: CandidateDocument) -> tuple[bool, int]:
    return not run_fits(run), run.step_time_ps


def comparison_shown(found: ComparisonDocument) -> Sheet:
    """A row per schedule, the best that fits first, and why others cannot run."""
    yield schedules_table(found.runs)
    yield from (f"{each.name} cannot run: {each.refusal}" for each in found.refused)


def comparison_tables(found: ComparisonDocument) -> dict[str, Shown]:
    """What else can be shown of a comparison, by its name in `COMPARISON_TABLES`."""
    runs = sorted(found.runs, key=_by_worth)
    names = dict.fromkeys(name for run in runs for name, time in run.breakdown_ps.items() if time)
    longest = max(run.step_time_ps for run in runs)
    bar = {"step": BAR.of(lambda run: bar_of(run.breakdown_ps, longest))}
    shown = paths("schedule = name") | bar | parts_columns(names)
    return {
        "parts": table_of("where each step goes, mean over ranks", runs, shown),
        "settings": (*job_pairs(found.runs[0]), *option_pairs(found.runs[0])),
    }


def schedules_table(runs: Sequence[CandidateDocument]) -> Table:
    """A row per schedule that runs, the best that fits first; memory where it is known."""
    first, best = runs[0], best_run(runs)
    known = any(run.throughput and run.throughput.memory_bytes for run in runs)
    mark = {"": TEXT.of(lambda run: "best" if run is best and len(runs) > 1 else "")}
    return table_of(
        f"schedules, the best first; speed-up over {first.name}; activations: the most that a "
        "rank holds, in chunks or bytes",
        sorted(runs, key=_by_worth),
        {
            **_COLUMNS,
            **(_MEMORY if known else {}),
            "runs in": TEXT.of(lambda run: run_by(run.name) or "-"),
            **mark,
        },
    )


def _activations(run: CandidateDocument) -> str | int:
    known = run.peak_activation_bytes
    return str(run.peak_activations) if known is None else known


_COLUMNS = paths(
    "schedule = name, p2p, step = step_time_ps, speed-up = speedup:.3f, bubble = bubble_fraction, "
    "exposed p2p = breakdown_ps.exposed_pp"
) | {"activations": SIZE.of(_activations)}
_MEMORY = {
    "memory": SIZE.of("throughput.memory_bytes"),
    "fits": TEXT.of(lambda run: "yes" if run_fits(run) else "no"),
}

_MOST_STAGES = 3


def diffs_shown(found: FileDiffs) -> Sheet:
    """A difference; of several first a row for each, and then each with its schedule."""
    if len(found.diffs) > 1:
        caption = "schedules: step times, and the part that changed most"
        yield table_of(caption, found.diffs, _OF_DIFFS)
    for file, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            yield f"only {file} has {', '.join(names)}"
    is_first = not (found.only_a or found.only_b)
    for diff in found.diffs:
        if not is_first:
            yield ""
        is_first = False
        yield from diff_shown(diff, diff.name if len(found.diffs) > 1 else "")


def diff_shown(diff: ResultDiff, name: str = "") -> Sheet:
    """Step times and what explains their difference, settings, components, stages, links.

    `name` says what is compared where several differences stand below each other.
    """
    if diff.identical:
        before = f"{name}: " if name else ""
        yield f"{before}A and B are identical: settings, step time, components, stages and links"
        return
    yield f"step time  {_step_words(diff.step)}"
    yield explain(diff)
    settings = [(each.name, f"{each.a} -> {each.b}") for each in diff.settings]
    if name and not any(setting == "schedule" for setting, _ in settings):
        settings.insert(0, ("schedule", name))
    none = ("settings", "no difference in those that the files name")
    yield tuple(settings or [none])
    yield _components(diff)
    few, many = diff.stage_counts
    if few != many:
        yield f"stages: A has {few}, B has {many}, so only the totals are compared"
    elif len(diff.stages) > 1:
        yield _stages(diff)
    if diff.links:
        yield _links(diff)


def _step_words(step: Change) -> str:
    times = f"{format_time_ps(step.a_ps)} -> {format_time_ps(step.b_ps)}"
    if not step.difference_ps:
        return f"{times} (no difference)"
    relative = f", {step.difference_ps / step.a_ps:+.2%}" if step.a_ps else ""
    return f"{times} ({SIGNED.text(step.difference_ps)}{relative})"


def _components(diff: ResultDiff) -> Table:
    """Components that either result has."""
    shown = [change for change in diff.components if change.a_ps or change.b_ps]
    share = SHARE.of(lambda change: round(diff.share(change), 3) + 0.0 if diff.direction else None)
    parts = paths("part = label") | _times() | {"share": share}
    return table_of("where the difference is, mean over ranks", shown, parts)


def _stages(diff: ResultDiff) -> Table:
    """The stages that differ most."""
    changed = [stage for stage in diff.stages if stage.largest.difference_ps]
    return table_of(
        "stages that differ most: what they do themselves, how much longer they wait",
        changed[:_MOST_STAGES],
        paths("stage")
        | _times("own.")
        | paths(
            "waiting = waiting.difference_ps, largest part = largest.label, "
            "its change = largest.difference_ps"
        ),
    )


def _links(diff: ResultDiff) -> Table:
    """Classes of links that carry anything in either result."""
    return table_of(
        "links: bytes over all of them, time their busiest one is in use",
        [link for link in diff.links if any(link.total_bytes)],
        paths("links = name, A bytes = total_bytes.0, B bytes = total_bytes.1") | _times("busy."),
    )


def _times(change: str = "") -> Heads:
    """Both times of a change, an attribute of the items or they themselves."""
    return paths(f"A = {change}a_ps, B = {change}b_ps, difference = {change}difference_ps")


_OF_DIFFS = {
    **paths("schedule = name"),
    **_times("step."),
    **paths("largest part = largest.label, its change = largest.difference_ps"),
}
