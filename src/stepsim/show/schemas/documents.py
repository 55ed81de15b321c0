"""The JSON documents that `--json` writes, as types: their JSON Schemas are made from these.

Times are integer picoseconds where a key ends in `_ps`, seconds where it ends in `_s`; bandwidths
are bytes/s, null where a link is free. Every document has `schema_version`.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stepsim.explore.noise.draws import NoiseModel
from stepsim.files.quantities import Bytes, BytesPerSecond, Picoseconds, Seconds, Share
from stepsim.files.simai.formula import SimaiTotals
from stepsim.network.one_collective import LinkTraffic
from stepsim.show.doctor import Status

Names = list[str]
Version = Annotated[int, Meta(description="of the form of this document", ge=1, le=1)]


class Document(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A document without keys that its type does not name."""


class Parts(Document):
    """Where the step of a rank goes; the parts sum to `step_time_ps`."""

    compute: Picoseconds
    exposed_tp: Picoseconds
    exposed_ep: Picoseconds
    exposed_dp: Picoseconds
    exposed_pp: Picoseconds
    skew: Picoseconds
    head: Picoseconds
    inner: Picoseconds
    tail: Picoseconds
    host: Picoseconds


class Plan(Document):
    """Parallel degrees."""

    tp: int
    dp: int
    pp: int
    ep: int


class Idle(Document):
    """Idle time within the pipeline: before the first action, between, after the last; and busy."""

    head: Picoseconds
    inner: Picoseconds
    tail: Picoseconds
    busy: Picoseconds


class PeakActivations(Document):
    """Most live (chunk, microbatch) activations: freed at the backward, or at its W part."""

    freed_at_b: int
    freed_at_w: int


class RankResult(Document):
    """A rank; `like` is the lowest rank that behaves the same."""

    rank: int
    stage: int
    like: int
    idle_ps: Idle
    breakdown_ps: Parts


class StageResult(Document):
    """A stage, means over its ranks; steady from its first backward to its last forward."""

    stage: int
    first_rank: int
    last_rank: int
    steady_start_ps: Picoseconds
    steady_end_ps: Picoseconds
    peak_activations: PeakActivations
    forward_ps: Picoseconds
    backward_ps: Picoseconds
    idle_ps: Idle
    breakdown_ps: Parts


class LinkUser(Document):
    """Whose bytes the busiest link of a class carries."""

    group: str
    kind: str
    bytes: Bytes


class LinkResult(Document):
    """A class of links, one direction each: `used` of the `links` carry anything.

    `busy_ps` is how long the busiest takes to carry its bytes, `utilisation` that over the step.
    """

    name: str
    links: int
    used: int
    bandwidth_bytes_per_s: BytesPerSecond | None
    total_bytes: Bytes
    busiest: str
    busiest_bytes: Bytes
    busy_ps: Picoseconds
    utilisation: Share
    users: list[LinkUser]


class CommResult(Document):
    """A kind of communication of one size; `time_ps` is of a lone one, in its slowest group."""

    group: str
    kind: str
    ranks: int
    size_bytes: Bytes
    count: int
    algorithms: Names
    time_ps: Picoseconds


class _Run(Document):
    """What a result and a candidate of a comparison share."""

    schema_version: Version
    workload: str
    topology: str
    schedule: str
    p2p: str
    contention: str
    npus: int
    microbatches: int
    rank_order: str
    plan: Plan
    settings: Annotated[dict[str, str], Meta(description="options that are not the default")]
    step_time_s: Seconds
    step_time_ps: Picoseconds
    pipeline_time_s: Seconds
    pipeline_time_ps: Picoseconds
    bubble_fraction: Share
    zero_bubble_rate: Share
    peak_activations: int
    peak_activation_bytes: Bytes | None
    breakdown_ps: Parts
    critical_path_ps: Parts
    stages: list[StageResult]
    links: list[LinkResult]
    comms: list[CommResult]
    warnings: Names


class Result(_Run):
    """`stepsim simulate --json`: one step. `breakdown_ps` is the mean over ranks.

    `bubble_fraction` is idle time over pipeline time, mean over ranks; `zero_bubble_rate` is
    (T - m(F + B + W)) / T of the busiest rank (Qi et al., arXiv:2401.10241).
    """

    ranks: list[RankResult]


class Candidate(_Run):
    """A schedule that runs; `speedup` is over the first that does."""

    name: str
    valid: Annotated[bool, Meta(extra_json_schema={"const": True})]
    speedup: float
    exposed_p2p_ps: Picoseconds


class RefusedCandidate(Document):
    """A schedule that cannot run the job, and why."""

    name: str
    valid: Annotated[bool, Meta(extra_json_schema={"const": False})]
    refusal: str


EitherCandidate = Annotated[
    Any,
    Meta(
        extra_json_schema={
            "anyOf": [{"$ref": "#/$defs/Candidate"}, {"$ref": "#/$defs/RefusedCandidate"}]
        }
    ),
]


class Comparison(Document):
    """`stepsim compare --json`: one workload under several schedules, in the order asked for."""

    schema_version: Version
    candidates: list[EitherCandidate]
    simai_formula: SimaiTotals | msgspec.UnsetType = msgspec.UNSET


class CollectiveRow(Document):
    """A size; `latency_ps` is what infinitely fast links would leave, `algorithm` the one used."""

    size_bytes: Bytes
    time_ps: Picoseconds
    latency_ps: Picoseconds
    algbw: BytesPerSecond | None
    busbw: BytesPerSecond | None
    algorithm: str
    links: list[LinkTraffic]


class AlgorithmRows(Document):
    """Prices with the algorithm that was asked for."""

    algorithm: str
    rows: list[CollectiveRow]


class Collective(Document):
    """`stepsim collective --json`: one collective; algbw and busbw as nccl-tests count them."""

    schema_version: Version
    topology: str
    kind: str
    ranks: list[int]
    algorithms: list[AlgorithmRows]


class TopologyLink(Document):
    """A class of links, as rated; `efficiency` is the share that payload gets."""

    name: str
    bandwidth: BytesPerSecond | None
    latency_ps: Picoseconds
    endpoint_latency_ps: Picoseconds
    efficiency: Share
    count: int


class TopologyNumbers(Document):
    """`stepsim inspect TOPOLOGY --json`: a topology in numbers, of links as rated."""

    schema_version: Version
    name: str
    source: str
    npus: int
    node_size: int
    grows: bool
    links: list[TopologyLink]
    injection_bandwidth: BytesPerSecond | None
    bisection_bandwidth: BytesPerSecond | None
    bisection_method: str
    diameter_hops: int
    diameter_ps: Picoseconds
    launch_latency_ps: Picoseconds
    algorithms: Names


class SlopeResult(Document):
    """Derivative of the step time; see `stepsim.explore.sensitivity.analysis.Slope`."""

    name: str
    value: Annotated[float, Meta(description="bytes/s, picoseconds, or a factor")]
    derivative: Annotated[float, Meta(description="picoseconds per unit of the value")]
    below: Annotated[float, Meta(description="picoseconds per unit, from 0.1 % below")]
    above: Annotated[float, Meta(description="picoseconds per unit, to 0.1 % above")]
    one_sided: bool
    gain: Annotated[float, Meta(description="share of the step that 1 % of the parameter saves")]
    elasticity: Annotated[float, Meta(description="% of the step per % of the parameter")]


class Sensitivity(Document):
    """`stepsim sensitivity --json`: what each parameter is worth, those worth most first."""

    schema_version: Version
    workload: str
    topology: str
    schedule: str
    step_time_ps: Picoseconds
    slopes: list[SlopeResult]
    notes: Names
    warnings: Names


class NoisyScenario(Document):
    """A scenario's step times, or why it failed."""

    settings: dict[str, str]
    every_rank: bool | msgspec.UnsetType = msgspec.UNSET
    planned_ps: Picoseconds | msgspec.UnsetType = msgspec.UNSET
    mean_ps: Picoseconds | msgspec.UnsetType = msgspec.UNSET
    p5_ps: Picoseconds | msgspec.UnsetType = msgspec.UNSET
    p50_ps: Picoseconds | msgspec.UnsetType = msgspec.UNSET
    p95_ps: Picoseconds | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET


class NoiseSweep(Document):
    """`stepsim noise --set ... --json`: distributions of every scenario."""

    schema_version: Version
    workload: str
    topology: str
    model: NoiseModel
    seed: int
    samples: int
    scenarios: list[NoisyScenario]


class Noise(Document):
    """`stepsim noise --json`: step times of the samples, and without noise (`planned_ps`)."""

    schema_version: Version
    model: NoiseModel
    seed: int
    every_rank: bool
    planned_ps: Picoseconds
    mean_ps: Picoseconds
    p50_ps: Picoseconds
    p95_ps: Picoseconds
    p99_ps: Picoseconds
    step_time_ps: list[Picoseconds]
    warnings: Names


class CheckResult(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A check of an installation; `detail` says what was seen, or what to do."""

    name: str
    status: Status
    detail: str


class Diagnosis(Document):
    """`stepsim doctor --json`: whether this installation works."""

    schema_version: Version
    checks: list[CheckResult]
