"""Pages of steps, comparisons and sensitivities."""

from collections.abc import Mapping, Sequence

from stepsim.base.units import format_time_ps
from stepsim.explain.improve import Improvements
from stepsim.explain.stragglers import Stragglers
from stepsim.explore.sensitivity import Sensitivity
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.results.report import ResultDocument
from stepsim.show.page.columns import SpanColumns
from stepsim.show.page.measured import RunBesideReplay
from stepsim.show.page.page import Page, Section
from stepsim.show.page.sections import (
    breakdown_section,
    memory_section,
    network_section,
    notes_section,
    notices_of,
    path_section,
    replay_section,
    step_facts,
    timeline_section,
    what_if_section,
)
from stepsim.show.tables.comparison import schedules_table
from stepsim.show.tables.profiles import (
    changes_table,
    replay_pairs,
    replay_tables,
    untold_table,
    where_steps_go,
)
from stepsim.show.tables.step import (
    job_pairs,
    job_words,
    option_pairs,
    runs_bars_table,
    whole_run_pairs,
)
from stepsim.step.document import ComparisonDocument

_OF_GAINS = (
    "Every change is replayed through all steps. Least and most are the extremes over the steps; "
    "the ceiling is the gain where what is changed is as good as can be."
)
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
        facts=step_facts(result, measured),
        settings=whole_run_pairs(result),
        notices=notices_of(result),
        sections=(
            timeline_section(runs, absent, measured),
            *([replay_section(measured)] if measured else []),
            path_section(result),
            breakdown_section(result),
            memory_section(result),
            network_section(result),
            _what_if({"": what_if}),
            notes_section(result.said),
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
            ("fastest", fastest.name),
            ("step time", format_time_ps(fastest.step_time_ps)),
            (f"speed-up over {first.name}", f"{fastest.speedup:.3f}"),
            ("pipeline bubble", f"{fastest.bubble_fraction:.1%}"),
        ),
        settings=(*job_pairs(first), *option_pairs(first)),
        notices=tuple(dict.fromkeys(each for run in runs for each in notices_of(run))),
        sections=(
            _schedules(comparison),
            timeline_section(
                list(zip(names, runs, spans, strict=True)) if spans else [],
                "" if spans else _NO_SPANS.format("stepsim compare"),
            ),
            _what_if(
                dict(zip(names, what_if, strict=True))
                if what_if
                else {"": _NO_WHAT_IF.format("stepsim compare")}
            ),
            notes_section(tuple(dict.fromkeys(w for run in runs for w in run.said))),
        ),
        command=command,
    )


def sensitivity_page(found: Sensitivity, *, command: str) -> Page:
    """What one per cent of each parameter is worth."""
    return Page(
        title=f"{found.workload} on {found.topology}: sensitivities",
        subtitle=f"One training step under {found.schedule}",
        facts=(("step time", format_time_ps(found.step_time_ps)),),
        settings=(
            ("workload", found.workload),
            ("topology", found.topology),
            ("schedule", found.schedule),
        ),
        sections=(what_if_section({"": found}), notes_section(found.warnings)),
        command=command,
    )


def improvements_page(found: Improvements, *, command: str) -> Page:
    """What would help a profiled run, where its steps go, and what cannot be told."""
    profile = found.profile
    best = found.changes[0] if found.changes else None
    shares, path = where_steps_go(pipeline_waits(profile, posted=True))
    return Page(
        title=f"{profile.source}: what would help",
        subtitle=f"{profile.format}, {len(profile.ranks)} ranks, {len(profile.steps)} steps",
        facts=(
            ("mean step", format_time_ps(found.measured_ps)),
            ("replayed", format_time_ps(found.replayed_ps)),
            ("largest gain", f"{best.gain:.1%}, {best.name}" if best else "none"),
            ("ceiling", f"{found.ceiling:.1%}"),
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
            Section(name="others", heading="No gain, or not told", tables=(untold_table(found),)),
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
            ("mean step", format_time_ps(int(found.measured_ps.mean()))),
            ("replayed", format_time_ps(int(found.replayed_ps.mean()))),
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
