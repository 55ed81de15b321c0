"""The JSON documents of measured runs and measured collectives, as types."""

from typing import Annotated

from msgspec import Meta

from stepsim.calibration.curves import FitRow
from stepsim.calibration.link_classes import Capacity, LatencyFit
from stepsim.comm_table import Outlier
from stepsim.formats.quantities import Bytes, BytesPerSecond, Seconds, Share
from stepsim.schemas.documents import Document, Names, Version


class ComparedTime(Document):
    """A time, simulated and measured; `error` is simulated over measured, minus 1."""

    name: str
    source: str
    simulated_s: Seconds
    measured_s: Seconds
    error: Share | None


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
