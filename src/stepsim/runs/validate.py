"""Simulated against measured: pipeline, per-step operations, step, bubbles and waits of runs.

A replay takes the run's own stage times and per-step operations, and host time and message times
from a calibration. A prediction takes nothing from the run but sizes and groups: layers cost what
they did in a run of the same shape, gradients are scaled in place after a launch, then reduced in
the time that a micro-benchmark took for such a group. The two are kept apart in every number.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from msgspec import Meta, field
from msgspec.structs import asdict

from stepsim.base.errors import CalibrationError
from stepsim.base.fields import InSeconds
from stepsim.base.structs import (
    Document,
    Entry,
    Names,
    Noun,
    Numbers,
    Share,
    Timed,
    json_text,
    replace,
)
from stepsim.base.units import PS_PER_S, format_size_bytes
from stepsim.explain.report import Report
from stepsim.measured.calibration.calibration import Calibration, LayerTimes
from stepsim.measured.calibration.gradients import reduced_ps
from stepsim.measured.calibration.runs import calibrate_traces, shape_of
from stepsim.measured.layers import Durations, StageCost
from stepsim.measured.ready import ReadyRun, calibrated_run, measured_items, ready_run
from stepsim.measured.run import OpKind
from stepsim.measured.step_log import LeafLog
from stepsim.measured.step_ops import StepOp, gradient_bytes, operations
from stepsim.measured.summary import RunSummary
from stepsim.network.measured_times import CommTable
from stepsim.runs.replay import best_durations, columns, replay, simulated
from stepsim.step.prepared import SimulatedStep


class Source(StrEnum):
    """Where a simulated number comes from.

    `FIT` are steps of leaf-module logs from two fitted numbers, `EXPLAINED` from leaf modules
    alone.
    """

    REPLAY = "replay"
    PREDICTION = "prediction"
    FIT = "fit"
    EXPLAINED = "explained"


# `source` is a `Source`. `samples_ps` are the measurements that `measured_ps` is the median of,
# where it is one. The error is not known where nothing was measured.
class TimeEntry(Timed):
    """A time, simulated and measured; `error` is simulated over measured, minus 1."""

    name: str
    source: str
    simulated_ps: InSeconds
    measured_ps: InSeconds
    known_error: Share | None = field(name="error")
    samples_ps: tuple[InSeconds, ...]

    @property
    def spread(self) -> tuple[float, float]:
        """How far the smallest and the largest sample are from the median, as shares of it."""
        if not self.samples_ps or not self.measured_ps:
            return 0.0, 0.0
        low, high = min(self.samples_ps), max(self.samples_ps)
        return low / self.measured_ps - 1, high / self.measured_ps - 1

    @property
    def error(self) -> float:
        """Simulated over measured, minus 1; 0 where both are 0."""
        if self.known_error is None:
            return 0.0 if not self.simulated_ps else float("inf")
        return self.known_error


def compared(
    name: str, source: Source, simulated_ps: int, measured_ps: int, samples_ps: Sequence[int] = ()
) -> TimeEntry:
    """A time from a source, simulated and measured, in ps."""
    return TimeEntry(
        name=name,
        source=source,
        simulated_ps=simulated_ps,
        measured_ps=measured_ps,
        known_error=simulated_ps / measured_ps - 1 if measured_ps else None,
        samples_ps=tuple(samples_ps),
    )


def compared_step(
    source: Source, simulated: Report, measured: RunSummary | LeafLog
) -> tuple[TimeEntry, TimeEntry]:
    """Pipeline and step of a run."""
    pipeline = simulated.pipeline_time_ps, measured.pipeline_ps
    step = simulated.step_time_ps, measured.step_ps
    return compared("pipeline", source, *pipeline), compared("step", source, *step)


class BubbleEntry(Entry):
    """Bubbles, shares of a rank's pipeline time."""

    rank: int
    stage: int
    simulated: Share
    measured: Share
    points: Annotated[float, Meta(description="difference in percentage points")]


# `durations` are `Durations`. `calibrated_on_itself` says that the run's own host and message times
# went in. `inferred` are stages without a trace: then all but `finalize` comes from the run's own
# waits. `predicted` holds pipeline and step where a calibrated run has the same shape, `finalize`
# the operations after the pipeline.
class RunEntry(Entry):
    """A measured run; `pipeline`, `step`, `waits` and `bubbles` are replays."""

    name: str
    durations: str
    calibrated_from: Names
    calibrated_on_itself: bool
    inferred: Numbers = field(name="inferred_stages")
    pipeline: TimeEntry
    step: TimeEntry
    predicted: tuple[TimeEntry, ...]
    finalize: tuple[TimeEntry, ...]
    waits: tuple[TimeEntry, ...]
    bubbles: tuple[BubbleEntry, ...]
    notes: Names

    def times(self) -> tuple[TimeEntry, ...]:
        """The times whose errors count against a limit."""
        return (self.pipeline, self.step, *self.predicted, *self.finalize)

    @property
    def worst_bubble_points(self) -> float:
        """Largest difference of a rank's bubble."""
        return max((abs(each.points) for each in self.bubbles), default=0.0)


class Errors(Noun):
    """Mean and largest absolute error of some comparisons."""

    mean: Share
    largest: Share
    count: int


def error_of(compared: Iterable[TimeEntry]) -> Errors:
    """Absolute errors of comparisons with what is not 0, summed up; zeros where there are none."""
    errors = [error for each in compared if isfinite(error := abs(each.error))]
    if not errors:
        return Errors(mean=0.0, largest=0.0, count=0)
    return Errors(mean=float(np.mean(errors)), largest=max(errors), count=len(errors))


class Validation(Document, Timed):
    """`stepsim validate --json`: measured runs, and errors per kind of number.

    `rows` are steps of logs and of a table of measurements. `warnings` say what was assumed while
    reading and simulating.
    """

    runs: tuple[RunEntry, ...]
    rows: tuple[TimeEntry, ...]
    warnings: Names
    errors: dict[str, Errors]

    @classmethod
    def of(
        cls, runs: Sequence[RunEntry], rows: Sequence[TimeEntry] = (), warnings: Names = ()
    ) -> Self:
        """Runs and rows with the errors of both; kinds without numbers are left out."""
        found = cls(runs=tuple(runs), rows=tuple(rows), warnings=warnings, errors={})
        every = {kind: error_of(times) for kind, times in found.kinds().items()}
        return replace(found, errors={kind: each for kind, each in every.items() if each.count})

    def kinds(self) -> dict[str, list[TimeEntry]]:
        """All times by what they are of and where they come from."""
        named = [(each.name, each) for run in self.runs for each in (run.pipeline, run.step)]
        named += [("per-step operations", each) for run in self.runs for each in run.finalize]
        named += [(each.name, each) for run in self.runs for each in run.predicted]
        named += [("waits", each) for run in self.runs for each in run.waits]
        named += [("step", row) for row in self.rows]
        found: dict[str, list[TimeEntry]] = {}
        for name, each in named:
            found.setdefault(f"{name} ({each.source})", []).append(each)
        return found

    def exceeds(self, limit: float) -> bool:
        """Whether the error of any time is above a limit, a share."""
        times = [*(each for run in self.runs for each in run.times()), *self.rows]
        return any(abs(each.error) > limit for each in times)

    def to_json(self) -> bytes:
        """The document as UTF-8 JSON, ending with a newline, by two spaces a level."""
        return json_text(self.plain, indent=2)


def validate_runs(
    summaries: Sequence[RunSummary],
    calibration: Calibration | None = None,
    *,
    leave_one_out: bool = False,
    durations: Durations | None = None,
    table: CommTable | None = None,
) -> list[RunEntry]:
    """Validate runs with a calibration, each with one of all others, or each with its own.

    Raises CalibrationError where leaving one out leaves none.
    """
    if leave_one_out and (calibration or len(summaries) == 1):
        raise CalibrationError(
            "leave-one-out calibrates each run on the others: expected at least two runs and no "
            "calibration file"
        )
    found = []
    for summary in summaries:
        used = calibration
        if leave_one_out:
            used = calibrate_traces([each for each in summaries if each is not summary], table)
        found.append(validate_run(summary, used, durations))
    return found


def validate_run(
    summary: RunSummary,
    calibration: Calibration | None,
    durations: Durations | None = None,
) -> RunEntry:
    """Compare a run with its replay, and its per-step operations with their prediction.

    Without a calibration the replay takes the run's own host and message times, and nothing is
    predicted; nor is it with one that the run itself went into. Stages without a trace are
    inferred where one rank is all there is.
    """
    ready = ready_run(summary, calibration)
    notes = list(ready.notes)
    durations = durations or best_durations(ready)
    result = replay(ready, durations)
    sources = calibration.sources if calibration else (summary.source,)
    others = calibration
    if calibration is None or {rank.trace for rank in summary.run.ranks} & {*calibration.traces}:
        others = None  # the run, or one of its ranks, was calibrated on
    finalize = tuple(_predicted_ops(summary, others, notes)) if others else ()
    predicted = tuple(_predicted(summary, others, notes)) if others else ()
    pipeline, step = compared_step(Source.REPLAY, result.report, summary)
    return RunEntry(
        name=Path(summary.source).name,
        durations=durations,
        calibrated_from=sources,
        calibrated_on_itself=others is None,
        pipeline=pipeline,
        step=step,
        finalize=finalize,
        predicted=predicted,
        waits=tuple(_waits(summary, result)),
        bubbles=tuple(_bubbles(ready, durations)),
        notes=tuple(notes),
        inferred=tuple(sorted(set(range(summary.degrees.pp)) - set(summary.run.stages))),
    )


def _predicted(
    summary: RunSummary, calibration: Calibration, notes: list[str]
) -> Iterator[TimeEntry]:
    """Pipeline and step from other runs alone; the latter where every operation is predicted."""
    degrees, shape = summary.degrees, shape_of(summary.degrees)
    alike = [
        layer
        for layer in calibration.layer_times
        if shape and shape.items() <= asdict(layer).items()
    ]
    if not alike or summary.schedule is None or not degrees.layers or degrees.layers % degrees.pp:
        notes.append("pipeline and step not predicted: no calibrated run has this one's shape")
        return
    costs = _stage_costs_of(alike, degrees.pp, degrees.layers // degrees.pp)
    times = [(op, predicted_op_ps(summary, op, calibration)) for op in summary.step_ops]
    ops = [replace(op, times_ps=(round(time),)) for op, time in times if time is not None]
    work = calibrated_run(summary, calibration).work()
    report = simulated(replace(work, blocks=(costs,), per_step=measured_items(ops))).report
    pipeline, step = compared_step(Source.PREDICTION, report, summary)
    yield pipeline
    if len(ops) == len(times):
        yield step


def _predicted_ops(
    summary: RunSummary, calibration: Calibration, notes: list[str]
) -> Iterator[TimeEntry]:
    """Every operation after the pipeline once, however many groups of a run do it."""
    lacking: set[str] = set()
    for op in operations(summary.step_ops, summary.clocks.node_size):
        time = predicted_op_ps(summary, op, calibration)
        if time is None:
            lacking.add(op.label)
            continue
        size = f" {format_size_bytes(op.size_bytes)}" if op.size_bytes else ""
        name = f"{op.label}{size}"
        yield compared(name, Source.PREDICTION, round(time), op.duration_ps, op.times_ps)
    if lacking:
        notes.append(
            f"not predicted: {', '.join(sorted(lacking))}: the calibration has no table of the "
            "group, or no rate"
        )


def _waits(summary: RunSummary, result: SimulatedStep) -> Iterator[TimeEntry]:
    """Time in messages per traced stage: all idle time up to the rank's last action."""
    for stage in summary.stages:
        bubble = result.report.stages[stage.stage].bubble_ps
        waited = bubble.before + bubble.between if bubble else 0
        yield compared(f"stage {stage.stage} waits", Source.REPLAY, waited, stage.wait_ps)


def _bubbles(ready: ReadyRun, durations: Durations) -> Iterator[BubbleEntry]:
    """Bubbles of the ranks of every pipeline, each replayed with its own ranks' times."""
    for column in columns(ready):
        result = replay(column, durations)
        report, ranks = result.report, result.ranks
        for rank in column.ranks:
            actor = ranks.actor_of[rank.stage * result.plan.stage_ranks]
            simulated = ranks.bubbles[actor].total / report.pipeline_time_ps
            measured = ready.bubble(rank)
            yield BubbleEntry(
                rank=rank.rank,
                stage=rank.stage,
                simulated=simulated,
                measured=measured,
                points=100 * (simulated - measured),
            )


def predicted_op_ps(summary: RunSummary, op: StepOp, calibration: Calibration) -> float | None:
    """An operation after the pipeline from tables and rates alone; None where they do not say."""
    if op.kind is OpKind.OPTIMIZER:
        rate = calibration.optimizer
        size = gradient_bytes(summary.step_ops, op.stage)
        return size / rate.value * PS_PER_S if rate and size else None
    reduced = reduced_ps(summary, op, calibration.collectives)
    scaling, launch = calibration.gradient_scaling, calibration.gradient_launch
    if reduced is None or scaling is None:
        return None
    scaled = (launch.value if launch else 0.0) + op.size_bytes / scaling.value * PS_PER_S
    return scaled + reduced


def _stage_costs_of(layers: Sequence[LayerTimes], pp: int, held: int) -> tuple[StageCost, ...]:
    """Stages of so many layers each, from the mean of runs of one shape."""

    def mean(name: str) -> int:
        total: int = sum(getattr(layer, name) for layer in layers)
        return round(total / len(layers))

    costs = []
    for stage in range(pp):
        ends = [name for name, at in (("first", 0), ("last", pp - 1)) if stage == at]
        costs.append(
            StageCost(
                layers=held,
                forward_ps=mean("forward_ps"),
                backward_ps=mean("backward_ps"),
                end_forward_ps=sum(mean(f"{end}_forward_ps") for end in ends),
                end_backward_ps=sum(mean(f"{end}_backward_ps") for end in ends),
                get_batch_ps=mean("get_batch_ps") if ends else 0,
                loss_ps=mean("loss_ps") if "last" in ends else 0,
            )
        )
    return tuple(costs)
