"""Measured runs and logs: what they say, how far replays are off, what if they ran otherwise."""

from collections.abc import Sequence

from stepsim.base.structs import Numbers, replace
from stepsim.base.units import PS_PER_S, format_size_bytes, format_time_ps
from stepsim.documents.table import (
    AS_IS,
    COUNT,
    SHARE,
    SIZE,
    TEXT,
    TIME,
    Answer,
    Sheet,
    Table,
    paths,
    table_of,
)
from stepsim.explain.report import Report
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.step_log import LeafLog, StepLog, typical
from stepsim.measured.summary import RunSummary
from stepsim.runs.leaf import simulate_leaves
from stepsim.runs.validate import Source, compared_step
from stepsim.runs.what_if import WhatIf
from stepsim.views.answer import answer_of
from stepsim.views.words import seconds_words

_MOST_RANKS = 32


def measured_shown(run: RunSummary | LeafLog) -> Sheet:
    """What a measured run says; a log of leaf modules also how much of its step these explain."""
    if isinstance(run, RunSummary):
        yield from _traced_run(run)
        return
    plan, explained = run.plan, _explained_words(run, simulate_leaves(run).report)
    yield from step_log_shown(run)
    yield (
        ("job", f"pp {plan.pp}, tp {plan.tp}, dp {plan.dp}"),
        ("microbatches", f"{plan.microbatches} of {plan.microbatch_size}"),
        ("simulated", f"{explained}, with a backward of twice the forward"),
    )
    yield table_of("leaf modules of every stage", run.stages, _LEAVES)


def _traced_run(summary: RunSummary) -> Sheet:
    """What traces say."""
    degrees, clocks = summary.degrees, summary.clocks
    named = {
        "ranks": degrees.npus,
        "pp": degrees.pp,
        "tp": degrees.tp,
        "dp": degrees.dp,
        "ep": degrees.ep,
        "microbatches": degrees.microbatches,
    }
    known = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
    schedule = (
        f"{summary.schedule.label}, recognised by the order of its actions"
        if summary.schedule
        else "unknown"
    )
    step, pipeline = map(format_time_ps, (summary.step_ps, summary.pipeline_ps))
    yield f"{step} per step, measured   pipeline {pipeline}   {schedule}"
    yield (
        ("measured run", summary.source),
        ("job", known),
        ("schedule", schedule),
        ("pipeline", pipeline),
        ("step", step),
        ("message", format_size_bytes(degrees.message_bytes)),
        ("nodes", f"of {clocks.node_size} ranks"),
        ("clocks", f"aligned to {format_time_ps(clocks.residual_ps)}"),
    )
    yield _stages(summary)
    yield _ranks(summary)
    yield table_of("operations once per step", summary.step_ops, _STEP_OPS)
    if summary.imbalance:
        yield (
            f"busiest expert rank over the mean: {summary.imbalance.mean:.2f}, largest "
            f"{summary.imbalance.largest:.2f} ({summary.imbalance.samples} all-to-alls)"
        )


_MOST_NUMBERS = 8
# What the values of a log are of, and how they are written, by their unit.
_PRINTED = {
    "seconds": ("per step", seconds_words),
    "tokens_per_s": ("per GPU", "{:,.0f} tokens/s".format),
    "samples_per_s": ("of all", "{:,.2f} samples/s".format),
}


def step_log_shown(log: StepLog) -> Sheet:
    """What the step lines of a log say."""
    values = log.values
    kept = log.kept
    what, write = _PRINTED[log.unit]
    yield f"{write(typical(values))} {what}, the median of {len(kept)} steps"
    yield (
        ("log of steps", f"{log.source} ({log.form})"),
        ("steps", f"{len(values)}, number {log.numbers[0]} to {log.numbers[-1]}"),
        ("step" if log.unit == "seconds" else what, f"{write(typical(values))}, the median"),
        ("spread", f"{write(min(kept))} to {write(max(kept))}"),
        ("left out", left_out_words(log.warm_up, log.out_of_line)),
    )
    if log.timers:
        yield table_of(
            "timers, of the slowest rank",
            [(name, round(typical(each) * PS_PER_S), each) for name, each in log.timers.items()],
            {
                "timer": AS_IS.of("0"),
                "median": TIME.of("1"),
                "lines": AS_IS.of(lambda row: len(row[2])),
            },
        )


def left_out_words(warm_up: Sequence[int], out_of_line: Sequence[int]) -> str:
    """Which steps of a log do not count, and why."""
    lists = {"warm-up": warm_up, "out of line": out_of_line}
    texts = [f"{name}: {_numbers_words(numbers)}" for name, numbers in lists.items() if numbers]
    return "; ".join(texts) or "nothing"


def _numbers_words(numbers: Sequence[int]) -> str:
    """Some numbers, the first of them where there are many."""
    shown = ", ".join(map(str, numbers[:_MOST_NUMBERS]))
    more = len(numbers) - _MOST_NUMBERS
    return f"{shown} and {more} more" if more > 0 else shown


def _stages(summary: RunSummary) -> Table:
    """A row per stage and operation; a stage is named once."""
    rows: list[tuple[int | str, ...]] = []
    for stage in summary.stages:
        named: tuple[int | str, ...] = (stage.stage, _span(stage.ranks))
        for kind, sample in stage.work.items():
            times = sample.median_ps, sample.low_ps, sample.high_ps
            rows.append((*named, kind.name.lower(), *times, sample.collectives_ps or ""))
            named = "", ""
        rows.append(("", "", "messages", stage.wait_ps, "", "", ""))
    spans = dict.fromkeys(("median", "10 %", "90 %", "collectives"), TIME)
    heads = {"stage": COUNT, "ranks": TEXT, "operation": TEXT, **spans}
    return Table(caption="operations of each stage", columns=heads, rows=tuple(rows))


def _span(ranks: Numbers) -> str:
    if not ranks:
        return "inferred"
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}..{ranks[-1]}"


def _ranks(summary: RunSummary) -> Table:
    return table_of(
        "time of each rank",
        summary.ranks,
        {
            **paths("rank, stage, pipeline_ps, step_ps, work_ps"),
            "host/act.": TIME.of(lambda rank: rank.host_ps // rank.actions),
            **paths("waits = wait_ps"),
            "bubble": SHARE.of(summary.bubble),
        },
        most=_MOST_RANKS,
    )


_STEP_OPS = paths(
    "stage, after the pipeline = label, size, group, time = duration_ps, "
    "wait for the last = wait_ps",
    {
        "size": SIZE.of(lambda op: op.size_bytes or ""),
        "group": AS_IS.of(lambda op: len(op.group)),
    },
)
_LEAVES = paths("stage, layers:g, leaf modules of layers = layers_ps, embedding or head = ends_ps")


def _explained_words(run: LeafLog, report: Report) -> str:
    """How much of a log's step its leaf modules explain."""
    step, time = map(format_time_ps, (run.step_ps, report.pipeline_time_ps))
    share = report.pipeline_time_ps / run.step_ps
    return f"{time} explained by leaf modules: {share:.0%} of the measured step of {step}"


LEAF_TABLES = ("parts", "stages", "replay")
"""Names of the tables of a log of leaf modules: what these explain of a step is no step time."""


def replay_answer(run: RunSummary | LeafLog, result: Report, known: Calibration | None) -> Answer:
    """The answer of a replay; a log that no calibration fits explains a part of its step."""
    answer = answer_of(result, run.step_ps)
    if isinstance(run, LeafLog) and not (known and known.leaf_overhead):
        return replace(answer, time=_explained_words(run, result))
    return answer


def replay_table(run: RunSummary | LeafLog, report: Report) -> Table:
    """How far a replay is from the run."""
    times = compared_step(Source.REPLAY, report, run)
    return table_of("replay of the measured run", times, _REPLAYED)


_REPLAYED = paths("replay = name, simulated_ps, measured_ps, error = known_error:+.2%")


def what_if_shown(result: WhatIf, measured_ps: int) -> Sheet:
    """A run measured, replayed and changed."""
    messages = {"its messages": result.messages.report} if result.messages else {}
    runs = {"replayed": result.base.report, **messages, "changed": result.changed.report}
    changed = table_of("the run as it was, and changed", runs.items(), _CHANGED)
    both = result.base.report, result.changed.report
    before, after = (format_time_ps(run.step_time_ps) for run in both)
    yield (
        f"per microbatch {result.speedup:.3f} times as fast: {after} per step instead of {before}"
    )
    yield replace(changed, rows=(("measured", "", "", "", measured_ps, ""), *changed.rows))
    if result.messages:
        yield (
            f"of that {result.speedup_of_messages:.3f} times by its messages "
            f"({result.changed.report.p2p}, not {result.base.report.p2p}), "
            f"{result.speedup_of_rest:.3f} times by all else"
        )
    yield from (f"note: {note}" for note in result.notes)


_CHANGED = {
    "run": AS_IS.of("0"),
    "schedule": AS_IS.of(lambda item: f"{item[1].schedule}, {item[1].p2p}"),
    **paths(
        "1.microbatches, pipeline = 1.pipeline_time_ps, step = 1.step_time_ps, "
        "bubble = 1.bubble_fraction"
    ),
}
