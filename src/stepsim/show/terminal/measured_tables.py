"""Tables of measured runs, calibrations and validations for the terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table

from stepsim.base.units import format_bandwidth, format_size_bytes, format_time_ps
from stepsim.measured.calibration.calibration import Calibration, LeafOverhead
from stepsim.measured.leaf_log import LeafRun
from stepsim.measured.summary import RunSummary
from stepsim.results.report import Report
from stepsim.validation.document import Validation
from stepsim.validation.validate import Compared, RunValidation
from stepsim.validation.what_if import WhatIf

_RANKS_SHOWN = 32


def print_run(console: Console, summary: RunSummary) -> None:
    """What a measured run says."""
    degrees = summary.run.degrees
    named = {
        "ranks": degrees.npus,
        "pp": degrees.pp,
        "tp": degrees.tp,
        "dp": degrees.dp,
        "ep": degrees.ep,
        "microbatches": degrees.microbatches,
    }
    known = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
    schedule = summary.schedule.label if summary.schedule else "unknown"
    console.print(f"Measured run {summary.run.source}")
    console.print(f"{known}; schedule by its order: {schedule}")
    console.print(
        f"pipeline {format_time_ps(summary.pipeline_ps)}, step {format_time_ps(summary.step_ps)}; "
        f"message {format_size_bytes(degrees.message_bytes)}; nodes of "
        f"{summary.clocks.node_size} ranks, clocks aligned to "
        f"{format_time_ps(summary.clocks.residual_ps)}"
    )
    _print_stages(console, summary)
    _print_ranks(console, summary)
    _print_step_ops(console, summary)
    if summary.imbalance:
        console.print(
            f"busiest expert rank over the mean: {summary.imbalance.mean:.2f}, largest "
            f"{summary.imbalance.largest:.2f} ({summary.imbalance.samples} all-to-alls)"
        )


def _print_stages(console: Console, summary: RunSummary) -> None:
    table = _table("stage", "ranks", "operation", "median", "10 %", "90 %", "collectives")
    for stage in summary.stages:
        for number, (kind, sample) in enumerate(stage.work.items()):
            first = number == 0
            table.add_row(
                str(stage.stage) if first else "",
                _span(stage.ranks) if first else "",
                kind.name.lower(),
                format_time_ps(sample.median),
                format_time_ps(sample.low),
                format_time_ps(sample.high),
                format_time_ps(stage.inner_ps[kind]) if stage.inner_ps[kind] else "",
            )
        table.add_row("", "", "messages", format_time_ps(stage.wait_ps), "", "", "")
    console.print(table)


def _print_ranks(console: Console, summary: RunSummary) -> None:
    table = _table("rank", "stage", "pipeline", "step", "work", "host/act.", "waits", "bubble")
    for rank in summary.ranks[:_RANKS_SHOWN]:
        table.add_row(
            str(rank.rank),
            str(rank.stage),
            format_time_ps(rank.pipeline_ps),
            format_time_ps(rank.step_ps),
            format_time_ps(rank.work_ps),
            format_time_ps(rank.host_ps // rank.actions),
            format_time_ps(rank.wait_ps),
            f"{summary.bubble(rank):.1%}",
        )
    console.print(table)
    if len(summary.ranks) > _RANKS_SHOWN:
        console.print(f"and {len(summary.ranks) - _RANKS_SHOWN} more ranks")


def _print_step_ops(console: Console, summary: RunSummary) -> None:
    table = _table("stage", "after the pipeline", "size", "group", "time", "wait for the last")
    for op in summary.step_ops:
        table.add_row(
            str(op.stage),
            op.label,
            format_size_bytes(op.size_bytes) if op.size_bytes else "",
            str(len(op.group)),
            format_time_ps(op.duration_ps),
            format_time_ps(op.wait_ps),
        )
    console.print(table)


def print_leaf_run(console: Console, run: LeafRun, explained: float) -> None:
    """What a log of leaf modules says."""
    console.print(f"Log of leaf modules {run.source}")
    console.print(
        f"pp {run.pp}, tp {run.tp}, dp {run.dp}, microbatches {run.microbatches} of "
        f"{run.microbatch_size}; step {format_time_ps(run.step_ps)} (median of {run.steps}, "
        f"{format_time_ps(run.step_low_ps)} to {format_time_ps(run.step_high_ps)})"
    )
    table = _table("stage", "layers", "leaf modules of layers", "embedding or head")
    for stage in run.stages:
        table.add_row(
            str(stage.stage),
            f"{stage.layers:g}",
            format_time_ps(stage.layers_ps),
            format_time_ps(stage.ends_ps),
        )
    console.print(table)
    console.print(
        f"leaf modules and a backward of twice the forward explain {explained:.0%} of the step; "
        f"{1 - explained:.0%} is unexplained"
    )


def print_leaf_replay(
    console: Console, run: LeafRun, report: Report, overhead: LeafOverhead | None
) -> None:
    """How far the simulation of a log is from its step, and what went into it."""
    if overhead is None:
        print_leaf_run(console, run, report.pipeline_time_ps / run.step_ps)
        return
    console.print(
        f"host time {format_time_ps(overhead.action.value)} per action, layers "
        f"{overhead.layer_factor.value:.2f} times their leaf modules"
    )
    _print_replayed(console, {"step": (report.pipeline_time_ps, run.step_ps)})


def print_calibration(console: Console, calibration: Calibration) -> None:
    """What was calibrated, and what could not be."""
    table = _table("number", "value", "residual", "samples")
    for name, time in (
        ("host time per action", calibration.host_overhead),
        ("gradient launch", calibration.gradient_launch),
    ):
        if time:
            residual = format_time_ps(time.residual)
            table.add_row(name, format_time_ps(time.value), residual, str(time.samples))
    for link in calibration.point_to_point:
        table.add_row(
            f"messages {link.placement}",
            f"{format_time_ps(link.latency_ps)} + {format_bandwidth(link.bandwidth)}",
            f"{link.residual:.1%}",
            str(link.samples),
        )
    for name, rate in (
        ("gradient scaling", calibration.gradient_scaling),
        ("optimizer", calibration.optimizer),
    ):
        if rate:
            residual = f"{rate.residual / rate.value:.1%}"
            table.add_row(name, format_bandwidth(rate.value), residual, str(rate.samples))
    if calibration.leaf_overhead:
        action, factor = calibration.leaf_overhead.action, calibration.leaf_overhead.layer_factor
        residual = format_time_ps(action.residual)
        table.add_row(
            "host time per action, leaf logs",
            format_time_ps(action.value),
            residual,
            str(action.samples),
        )
        table.add_row(
            "layers over their leaf modules",
            f"{factor.value:.2f}",
            f"{factor.residual:.2f}",
            str(factor.samples),
        )
    for each in calibration.expert_imbalance:
        name = f"expert imbalance, ep {each.ep}"
        value = f"{each.mean:.2f} (largest {each.largest:.2f})"
        table.add_row(name, value, "", str(each.samples))
    if calibration.collectives:
        table.add_row("collective tables", str(len(calibration.collectives.curves)), "", "")
    console.print(table)
    for name, reason in calibration.unidentified:
        console.print(f"not identified: {name}: {reason}")


def print_validation(console: Console, found: Validation) -> None:
    """Errors of every run and row, then mean and largest of each kind of number."""
    for run in found.runs:
        table = _table("time", "from", "simulated", "measured", "its samples", "error")
        for each in (*run.times(), *run.waits):
            low, high = each.spread
            _add(table, each, f"{low:+.1%} {high:+.1%}" if len(each.samples_ps) > 1 else "")
        console.print(f"{run.name}, {run.durations} durations{_origin(run)}")
        console.print(table)
        if run.bubbles:
            console.print(f"rank bubbles: at most {run.worst_bubble_points:.1f} points off")
        for note in run.notes:
            console.print(f"note: {note}")
    if found.rows:
        table = _table("run", "from", "simulated", "measured", "error")
        for each in found.rows:
            _add(table, each)
        console.print(table)
    table = _table("errors", "mean", "largest", "numbers")
    for name, errors in found.errors().items():
        table.add_row(name, f"{errors.mean:.2%}", f"{errors.largest:.2%}", str(errors.count))
    console.print(table)


def print_replay(console: Console, summary: RunSummary, report: Report) -> None:
    """How far a replay is from the run."""
    _print_replayed(
        console,
        {
            "pipeline": (report.pipeline_time_ps, summary.pipeline_ps),
            "step": (report.step_time_ps, summary.step_ps),
        },
    )


def _print_replayed(console: Console, times: dict[str, tuple[int, int]]) -> None:
    """Simulated and measured times of some names."""
    table = _table("replay", "simulated", "measured", "error")
    for name, (simulated, measured) in times.items():
        error = f"{simulated / measured - 1:+.2%}" if measured else ""
        table.add_row(name, format_time_ps(simulated), format_time_ps(measured), error)
    console.print(table)


def print_what_if(console: Console, result: WhatIf, measured_ps: int) -> None:
    """A run measured, replayed and changed."""
    table = _table("run", "schedule", "microbatches", "pipeline", "step", "bubble")
    table.add_row("measured", "", "", "", format_time_ps(measured_ps), "")
    for name, each in (("replayed", result.base.report), ("changed", result.changed.report)):
        table.add_row(
            name,
            f"{each.schedule}, {each.p2p}",
            str(each.plan.microbatches),
            format_time_ps(each.pipeline_time_ps),
            format_time_ps(each.step_time_ps),
            f"{each.bubble_fraction:.1%}",
        )
    console.print(table)
    console.print(f"per microbatch {result.speedup:.3f} times as fast")
    for note in result.notes:
        console.print(f"note: {note}")


def _origin(run: RunValidation) -> str:
    if run.inferred:
        return "; host, messages and untraced stages from its own waits"
    if run.calibrated_on_itself:
        return "; host and message times are its own, so nothing is predicted"
    return f"; host and message times of {len(run.calibrated_from)} other run(s)"


def _add(table: Table, each: Compared, *more: str) -> None:
    table.add_row(
        each.name,
        str(each.source),
        format_time_ps(each.simulated_ps),
        format_time_ps(each.measured_ps),
        *more,
        f"{each.error:+.2%}" if each.measured_ps else "",
    )


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(columns):
        justify: JustifyMethod = "left" if number == 0 else "right"
        table.add_column(name, justify=justify, overflow="fold")
    return table


def _span(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "inferred"
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}..{ranks[-1]}"
