"""Measured runs, replayed and predicted: prints docs/accuracy.md.

Usage: python benchmarks/accuracy_runs.py SHARED > docs/accuracy.md
SHARED holds reference/measured and seeds.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from accuracy_published import eight_a100, leaf_logs
from sizes import arguments, sized

from stepsim.base.axes import CollectiveKind
from stepsim.base.units import format_bandwidth, format_time_ps
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.measured import load_trace
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.calibration.runs import calibrate_traces, fastest
from stepsim.measured.layers import Durations
from stepsim.measured.ready import infer_hidden, ready_run
from stepsim.measured.run import OpKind, gradient_groups
from stepsim.measured.step_ops import operations
from stepsim.measured.summary import RunSummary
from stepsim.network.measured_times import CommTable
from stepsim.runs.replay import replay
from stepsim.runs.validate import RunEntry, validate_run, validate_runs

MACHINE = "H800"
TIMES = (Durations.MEDIAN, Durations.MEAN, Durations.MICROBATCH)

INTRODUCTION = """# Measured runs, replayed and predicted

Made by `python benchmarks/accuracy_runs.py ../shared > docs/accuracy.md`. The runs and their
sources are described in the reference material beside the checkout; a file of their own is
validated by `stepsim validate`.

## Method
A trace is read as it is: operations, messages, and the time between them. The **replay** takes the
run's own stage times (means over ranks and microbatches, or where every rank was traced, as here,
a mean over ranks for every microbatch), puts them through stepsim's 1F1B order, its blocking
message program and its engine, and compares the pipeline time, which is the longest of a rank. Host
time per action and message times come from **another** run. Nothing is fitted to a pipeline time:
host time is what lies between traced operations, a message takes from when both sides have posted
to its end, on clocks aligned by the messages' ends.
Steady exchanges, where both sides send, take longer than a message alone and are what counts. A
rank's bubble is that of its own pipeline, replayed with its own times.

The **prediction** of an operation after the pipeline takes only its bytes and its group: the
micro-benchmark of that group plus a launch and in-place gradient scaling, both calibrated where
operations of at least three kinds show the launch clearly, else the scaling alone. It is compared
with the time from the last member's arrival, since earlier ones wait for it. Groups of a run that
reduce as many bytes over as many ranks in as many nodes do the same operation, and nothing that a
prediction knows tells them apart: the operation's time is the median over these groups, and their
spread is what a single one is uncertain by.

The page needs the reference runs. With runs of your own: `stepsim calibrate RUN -o machine.toml
--nccl FILE`, then `stepsim validate OTHER... --calibration machine.toml`, or `stepsim validate
RUN... --leave-one-out --nccl FILE`.
"""

LIMITS = """## Limits
- Stage times are predicted only where a calibrated run has the same hidden size, sequence, experts,
  tp and ep: no two of these four do, so their pipelines are replayed, not predicted.
- Host time differs between runs of one campaign by half (0.29 to 0.42 ms per action).
- With one message size the latency and bandwidth of messages cannot be told apart; the shape of the
  micro-benchmark stands in. Runs on two stages hold messages between nodes only: those inside a
  node then cost the same, which is too slow.
- A pipeline pays for every slow action, so replays take means: medians (`--times median`) are
  lower where durations have a tail.
- Collectives inside forwards and backwards are part of the stage times, so a what-if on bandwidth
  changes messages only.
- Leaf-module logs are overhead-bound: half of a step is in two fitted numbers.
- Iterations of the Zero Bubble paper's cluster are on a [page of their own](zero_bubble.md).
"""


def main() -> None:
    """Print the page."""
    shared = Path(arguments()[0])
    measured = shared / "reference" / "measured"
    folders = sorted((measured / "megatron_moe_16gpu").iterdir())[:: sized(1, 2)]
    runs = [load_trace(path) for path in folders]
    table = read_measurements([measured / "nccl" / "echo_cluster_microbench.csv"]).choose(MACHINE)
    logs = [*sorted((measured / "optimus_a40").iterdir()), *(shared / "seeds").glob("004_*")]
    sections = {
        "Replay of four 16-GPU runs, calibrated on one": replays(runs, table),
        "What was calibrated": calibrations(runs, table),
        "Operations after the pipeline, predicted": finalize(runs, table),
        "One rank only": hidden(runs),
        "Megatron 1F1B on 8 A100": eight_a100(measured / "megatron_1f1b_8xA100.csv"),
        "Logs of leaf modules": leaf_logs(logs),
    }
    print(INTRODUCTION)
    for title, lines in sections.items():
        print(f"## {title}")
        for line in lines:
            print(line)
        print()
    print(LIMITS, end="")


def name_of(run: RunSummary) -> str:
    return f"pp{run.degrees.pp} ep{run.degrees.ep} seq {run.degrees.sequence}"


def on_others(
    run: RunSummary, runs: Sequence[RunSummary], known: Calibration, durations: Durations
) -> list[RunEntry]:
    return [validate_run(each, known, durations) for each in runs if each is not run]


def replays(runs: Sequence[RunSummary], table: CommTable) -> Iterator[str]:
    """Pipeline, step and bubble errors on three runs, for every run calibrated on."""
    yield "Differences on the other three runs: pipeline, step, and the rank bubble furthest off."
    yield "Stage times are the run's own, so these are tests of order and waits, no accuracy of a"
    yield "prediction."
    yield ""
    yield "| calibrated on | times | pipeline, mean | pipeline, largest | step, largest | bubble |"
    yield "|---|---|---|---|---|---|"
    for run in runs:
        calibration = calibrate_traces([run], table)
        for durations in TIMES:
            found = on_others(run, runs, calibration, durations)
            pipeline = [abs(each.pipeline.error) for each in found]
            step = max(abs(each.step.error) for each in found)
            bubble = max(each.worst_bubble_points for each in found)
            yield (
                f"| {name_of(run)} | {durations} | {np.mean(pipeline):.2%} | {max(pipeline):.2%} | "
                f"{step:.2%} | {bubble:.1f} points |"
            )
    yield ""
    yield "Pipeline, with host and message times of the other three runs (leave one out) and with"
    yield "the run's own, as `stepsim simulate RUN` has it; bubbles are those of means, leaving one"
    yield "out:"
    yield ""
    cells = [f"{whose}, {each}" for whose in ("others", "own") for each in TIMES]
    yield f"| run | measured, ms | {' | '.join(cells)} | bubble |"
    yield "|---" * (len(cells) + 3) + "|"
    every = []
    for run in runs:
        others = calibrate_traces([each for each in runs if each is not run], table)
        found = [validate_run(run, known, d) for known in (others, None) for d in TIMES]
        every.append([each.pipeline.error for each in found])
        errors = " | ".join(f"{error:+.2%}" for error in every[-1])
        bubble = found[TIMES.index(Durations.MEAN)].worst_bubble_points
        yield f"| {name_of(run)} | {run.pipeline_ps / 1e9:.1f} | {errors} | {bubble:.1f} points |"
    for name, over in (("mean", np.mean), ("largest", np.max)):
        yield f"| {name} | | {' | '.join(f'{e:.2%}' for e in over(np.abs(every), axis=0))} | |"


def calibrations(runs: Sequence[RunSummary], table: CommTable) -> Iterator[str]:
    """Host time, messages and rates of every run and of all together."""
    yield "| runs | host time per action | messages in a node | between nodes | gradients |"
    yield "|---|---|---|---|---|"
    for name, several in [*((name_of(run), [run]) for run in runs), ("all", runs)]:
        found = calibrate_traces(several, table)
        links = {str(link.placement): link for link in found.point_to_point}
        cells = [name]
        if found.host_overhead:
            cells.append(format_time_ps(found.host_overhead.value))
        for place in ("intra_node", "inter_node"):
            link = links.get(place)
            cells.append(
                f"{format_time_ps(link.latency_ps)} + {format_bandwidth(link.bandwidth)}"
                if link
                else "none"
            )
        scaling = format_bandwidth(found.gradient_scaling.value) if found.gradient_scaling else ""
        launch = found.gradient_launch
        cells.append(f"{format_time_ps(launch.value)} + {scaling}" if launch else scaling or "none")
        yield f"| {' | '.join(cells)} |"
    ratios = [ratio for run in runs for ratio in exchange_ratios(run)]
    yield ""
    ends = f"{min(ratios):.1f} to {max(ratios):.1f}"
    yield f"An exchange takes {ends} times as long as a message alone."


def exchange_ratios(run: RunSummary) -> Iterator[float]:
    """Median time of messages both sides send over that of single ones, in and between nodes."""
    messages = run.transfers
    took = messages.duration_ps
    for inside in (True, False):
        here = (messages.intra_node == inside) & (messages.size_bytes * took > 0)
        both, alone = here & messages.both_ways, here & ~messages.both_ways
        if both.any() and alone.any():
            yield float(np.median(took[both]) / np.median(took[alone]))


def finalize(runs: Sequence[RunSummary], table: CommTable) -> Iterator[str]:
    """Errors of gradient all-reduces and optimizer steps on runs not calibrated on."""
    yield "The aim is 1 % for all-reduces of 1 GB or more and 3 % for smaller ones."
    yield ""
    yield (
        "| calibrated on | all-reduce >= 1 GB, mean | largest | smaller, largest | "
        "beyond the aim | optimizer |"
    )
    yield "|---|---|---|---|---|---|"
    for run in runs:
        found = on_others(run, runs, calibrate_traces([run], table), Durations.MEDIAN)
        yield f"| {name_of(run)} | {finalize_errors(found)} |"
    found = validate_runs(runs, leave_one_out=True, table=table)
    yield f"| the other three (each run in turn) | {finalize_errors(found)} |"
    yield ""
    yield "Each operation, calibrated on the other three runs; beside the table is what is measured"
    yield "less the micro-benchmark:"
    yield ""
    yield (
        "| run | operation | GB | ranks | groups | measured, ms | groups from, to | table, ms | "
        "beside, ms per GB | predicted, ms | error |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for run, validation in zip(runs, found, strict=True):
        yield from operation_rows(run, validation, table)
    yield ""
    yield from single_groups(runs, found)


def finalize_errors(found: Sequence[RunEntry]) -> str:
    errors = [(each.name, abs(each.error)) for run in found for each in run.finalize]
    large = [error for name, error in errors if "reduce" in name and "GiB" in name]
    small = [error for name, error in errors if "reduce" in name and "MiB" in name]
    update = [error for name, error in errors if "step" in name]
    beyond = sum(error > 0.01 for error in large) + sum(error > 0.03 for error in small)
    return (
        f"{np.mean(large):.2%} | {max(large):.2%} | "
        f"{f'{max(small):.2%}' if small else 'none'} | {beyond} of {len(large) + len(small)} | "
        f"{max(update):.2%}"
    )


GROUPS_TEXT = """\
Groups of one node differ though they reduce the same bytes at the same time: nothing that the
traces hold explains it. A run that has operations of two kinds only, as both on two stages have,
tells scaling and launch less well; a group of one rank, whose all-reduce is nothing else, shows it.
Where there are such groups the optimizer step of some ranks is shorter than that of the others; the
median over ranks counts.""".splitlines()


def operation_rows(run: RunSummary, found: RunEntry, table: CommTable) -> Iterator[str]:
    """A line per operation of a run."""
    known, node_size = fastest(table), run.clocks.node_size
    several = operations(run.step_ops, node_size)
    for op, compared in zip(several, found.finalize, strict=True):
        ranks, size = len(op.group), op.size_bytes / 1e9
        reduced = 0.0
        if ranks > 1 and op.size_bytes:
            alike = CollectiveKind.ALL_REDUCE, ranks, op.nodes(node_size), op.size_bytes
            reduced = (known.time_ps(*alike) or 0) / 1e9
        beside = (compared.measured_ps / 1e9 - reduced) / size
        low, high = compared.spread
        cells = [
            name_of(run),
            op.label,
            f"{size:.3f}",
            str(ranks),
            str(len(compared.samples_ps)),
            f"{compared.measured_ps / 1e9:.2f}",
            f"{low:+.1%}, {high:+.1%}",
            f"{reduced:.2f}" if reduced else "",
            f"{beside:.3f}",
            f"{compared.simulated_ps / 1e9:.2f}",
            f"{compared.error:+.2%}",
        ]
        yield f"| {' | '.join(cells)} |"


def single_groups(runs: Sequence[RunSummary], found: Sequence[RunEntry]) -> Iterator[str]:
    """How far single groups are off, and how the same operation differs between nodes."""
    errors = [
        abs(each.simulated_ps / time - 1)
        for validation in found
        for each in validation.finalize
        if "reduce" in each.name and "GiB" in each.name
        for time in each.samples_ps
    ]
    within = sum(error <= 0.01 for error in errors)
    nodes: dict[int, list[float]] = {}
    for run in runs:
        for op in run.step_ops:
            if op.kind is OpKind.EP_DP_ALLREDUCE and len(op.group) == 2:
                groups = gradient_groups(run.degrees, op.kind, op.stage)
                for group, time in zip(groups, op.times_ps, strict=True):
                    nodes.setdefault(group[0] // run.clocks.node_size, []).append(time / 1e9)
    ranges = [
        f"on node {node} {min(times):.2f} to {max(times):.2f} ms (median {np.median(times):.2f})"
        for node, times in sorted(nodes.items())
    ]
    yield f"Of {len(errors)} single groups of 1 GB or more {within} are within 1 %, the largest"
    yield f"error is {max(errors):.2%}. The same 5.6 GB over two ranks takes"
    yield f"{'; '.join(ranges)}."
    yield from GROUPS_TEXT


def hidden(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Rank 0's first half of the microbatches against the whole run."""
    yield "From the first half of rank 0's microbatches: the hidden stages' medians against the"
    yield "true ones, and the pipeline and step of the whole run."
    yield ""
    yield "| run | hidden forwards | hidden backwards | forward + backward | pipeline | step |"
    yield "|---|---|---|---|---|---|"
    for run in runs:
        alone = load_trace(run.run.ranks[0].file)
        found = infer_hidden(alone)
        ready = ready_run(alone)
        report = replay(ready).report
        errors = []
        for kinds in ((OpKind.FORWARD,), (OpKind.BACKWARD,), (OpKind.FORWARD, OpKind.BACKWARD)):
            several = [
                sum(found.stages[stage].work[kind].median_ps for kind in kinds)
                / sum(run.stages[stage].work[kind].median_ps for kind in kinds)
                - 1
                for stage in range(1, len(run.stages))
            ]
            errors.append(", ".join(f"{error:+.1%}" for error in several))
        pipeline = report.pipeline_time_ps / alone.pipeline_ps - 1
        step = report.step_time_ps / alone.step_ps - 1
        yield f"| {name_of(run)} | {' | '.join(errors)} | {pipeline:+.2%} | {step:+.2%} |"


if __name__ == "__main__":
    main()
