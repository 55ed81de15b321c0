"""The JSON documents of measured runs and measured collectives, as types."""

from typing import Annotated

from msgspec import Meta

from stepsim.files.quantities import Bytes, BytesPerSecond, Seconds, Share
from stepsim.measured.calibration.curves import FitRow
from stepsim.measured.calibration.link_classes import Capacity, LatencyFit
from stepsim.measured.run import Degrees
from stepsim.measured.summary import Imbalance
from stepsim.network.measured_times import Outlier
from stepsim.show.schemas.documents import Document, Names, Version


class ComparedTime(Document):
    """A time, simulated and measured; `error` is simulated over measured, minus 1."""

    name: str
    source: str
    simulated_s: Seconds
    measured_s: Seconds
    error: Share | None
    samples_s: list[Seconds]


class BubbleResult(Document):
    """Idle shares of a rank's pipeline time."""

    rank: int
    stage: int
    simulated: Share
    measured: Share
    points: Annotated[float, Meta(description="difference in percentage points")]


class RunResult(Document):
    """A measured run; `pipeline`, `step`, `waits` and `bubbles` are replays."""

    name: str
    durations: str
    calibrated_from: Names
    calibrated_on_itself: bool
    inferred_stages: list[int]
    pipeline: ComparedTime
    step: ComparedTime
    predicted: list[ComparedTime]
    finalize: list[ComparedTime]
    waits: list[ComparedTime]
    bubbles: list[BubbleResult]
    notes: Names


class Clocks(Document):
    """How clocks were aligned: ranks of a node, and what is left between ends of a message."""

    node_size: int
    residual_s: Seconds


class OperationTimes(Document):
    """An operation of a stage over ranks and microbatches; low and high are 10 % and 90 %."""

    kind: str
    median_s: Seconds
    mean_s: Seconds
    low_s: Seconds
    high_s: Seconds
    samples: int
    by_microbatch_s: list[Seconds]
    collectives_s: Seconds


class TracedStage(Document):
    """A stage with traces."""

    stage: int
    ranks: list[int]
    wait_s: Seconds
    operations: list[OperationTimes]


class TracedRank(Document):
    """A rank with a trace; `host_s` per action."""

    rank: int
    stage: int
    pipeline_s: Seconds
    step_s: Seconds
    work_s: Seconds
    host_s: Seconds
    wait_s: Seconds
    actions: int
    bubble: Share


class StepOperation(Document):
    """An operation after the pipeline."""

    stage: int
    operation: str
    size_bytes: Bytes
    group: list[int]
    duration_s: Seconds
    groups_s: list[Seconds]
    wait_s: Seconds


class TracedRun(Document):
    """A run of traces."""

    schema_version: Version
    source: str
    degrees: Degrees
    schedule: str | None
    pipeline_s: Seconds
    step_s: Seconds
    clocks: Clocks
    stages: list[TracedStage]
    ranks: list[TracedRank]
    step_operations: list[StepOperation]
    expert_imbalance: Imbalance | None
    warnings: Names


class LoggedStage(Document):
    """A stage of a log: forward sums of its leaf modules."""

    stage: int
    layers: float
    leaf_modules_of_layers_s: Seconds
    leaf_modules_of_ends_s: Seconds
    samples: int


class LoggedRun(Document):
    """A run that logged leaf modules only; `microbatch_size` in samples."""

    schema_version: Version
    source: str
    degrees: dict[str, int]
    microbatch_size: int
    step_s: Seconds
    step_spread_s: Seconds
    steps: int
    stages: list[LoggedStage]
    warnings: Names


class ErrorResult(Document):
    """Absolute errors of one kind of number."""

    mean: Share
    largest: Share
    count: int


class Validation(Document):
    """`stepsim validate --json`: measured runs, rows of a table, and errors per kind of number."""

    schema_version: Version
    runs: list[RunResult]
    rows: list[ComparedTime]
    warnings: Names
    errors: dict[str, ErrorResult]


class FittedLine(Document):
    """Times of sizes from `first_bytes` to `last_bytes`; bandwidth null where size is free."""

    latency_ps: Annotated[float, Meta(description="picoseconds")]
    ps_per_byte: Annotated[float, Meta(description="picoseconds per byte")]
    first_bytes: Bytes
    last_bytes: Bytes
    residual: Share
    samples: int
    bandwidth: BytesPerSecond | None


class FittedCurve(Document):
    """A group's collective: lines over ranges of sizes, and one from 1 MiB on."""

    source: str
    kind: str
    ranks: int
    nodes: int
    sizes: int
    bus_bandwidth: BytesPerSecond | None
    regimes: list[FittedLine]
    bulk: FittedLine | None


class Unknown(Document):
    """What the measurements cannot tell, and why."""

    name: str
    reason: str


class FittedMachine(Document):
    """A machine: latencies in ps, capacities in bytes/s, and every size measured and fitted."""

    machine: str
    node_size: int
    latencies: list[LatencyFit]
    capacities: list[Capacity]
    unidentified: list[Unknown]
    curves: list[FittedCurve]
    rows: list[FitRow]


class CollectiveFit(Document):
    """`stepsim calibrate nccl --json`: what was fitted to measured collectives."""

    schema_version: Version
    source: str
    machines: list[FittedMachine]
    outliers: list[Outlier]
    warnings: Names
