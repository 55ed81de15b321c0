"""The result of a step as a document: what `stepsim simulate --json` writes."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta

from stepsim.base.documents import (
    Bytes,
    BytesPerSecond,
    Count,
    Document,
    Entry,
    Names,
    Picoseconds,
    Seconds,
    Share,
    finite,
    json_text,
    missing_key,
    shown,
)
from stepsim.base.errors import StepsimError, bad_value
from stepsim.results.links import LinkUse
from stepsim.results.report import Bubble, Report, StageReport
from stepsim.workload.rows import ParallelAxis, Part

_DEGREES = tuple(map(str, ParallelAxis))
_PARTS = tuple(part.key for part in Part)
_YOUNGER = frozenset({"cp", "fsdp", "exposed_cp", "exposed_fsdp"})
"""What a result may lack because it was written before there was such an axis."""

_Plan = msgspec.defstruct(
    "Plan",
    [(name, Count) for name in _DEGREES],
    namespace={"__doc__": "Parallel degrees."},
)
_Parts = msgspec.defstruct(
    "Parts",
    [(name, Picoseconds) for name in _PARTS],
    namespace={"__doc__": "Where the step of a rank goes; the parts sum to `step_time_ps`."},
)
_Degrees = Annotated[dict[str, Count], Meta(extra_json_schema={"$ref": "#/$defs/Plan"})]
_PartTimes = Annotated[dict[str, Picoseconds], Meta(extra_json_schema={"$ref": "#/$defs/Parts"})]
"""By name: those that a later stepsim adds are kept, and the parts still sum to the step."""


class _PeakEntry(Entry, frozen=True, kw_only=True):
    """Most live (chunk, microbatch) activations: freed at the backward, or at its W part."""

    freed_at_b: Count = 0
    freed_at_w: Count = 0


class MemoryEntry(Entry, frozen=True, kw_only=True):
    """A rank when it holds most: what its bytes are for; `kept` are microbatches of each chunk."""

    total_bytes: Bytes
    at_ps: Picoseconds
    kept: tuple[Count, ...]
    parts: dict[str, Bytes]


class _RankEntry(Entry, frozen=True, kw_only=True):
    """A rank; `like` is the lowest rank that behaves the same."""

    rank: Count
    stage: Count
    like: Count
    bubble_ps: Bubble | None = None
    breakdown_ps: _PartTimes


class StageEntry(Entry, frozen=True, kw_only=True):
    """A stage, means over its ranks; steady from its first backward to its last forward."""

    stage: Count
    first_rank: Count = 0
    last_rank: Count = 0
    steady_start_ps: Picoseconds = 0
    steady_end_ps: Picoseconds = 0
    peak_activations: _PeakEntry = _PeakEntry()
    forward_ps: Picoseconds = 0
    backward_ps: Picoseconds = 0
    bubble_ps: Bubble | None = None
    breakdown_ps: _PartTimes
    memory: MemoryEntry | None = None

    @classmethod
    def of(cls, stage: StageReport) -> Self:
        """The entry of a stage."""
        return cls.taken_from(
            stage,
            first_rank=stage.ranks[0],
            last_rank=stage.ranks[1],
            peak_activations=_PeakEntry.taken_from(stage.peak_activations),
            bubble_ps=stage.bubble,
            breakdown_ps=_named(stage.breakdown_ps),
            memory=_memory_entry(stage),
        )


class _UserEntry(Entry, frozen=True, kw_only=True):
    """Whose bytes the busiest link of a class carries."""

    group: str
    kind: str
    bytes: Bytes


class LinkEntry(Entry, frozen=True, kw_only=True):
    """A class of links, one direction each: `used` of the `links` carry anything.

    `busy_ps` is how long the busiest takes to carry its bytes, `utilisation` that over the step.
    """

    name: str
    links: Count = 0
    used: Count = 0
    bandwidth_bytes_per_s: Annotated[BytesPerSecond, Meta(gt=0)] | None
    total_bytes: Bytes
    busiest: str = ""
    busiest_bytes: Bytes = 0
    busy_ps: Picoseconds
    utilisation: Share = 0.0
    users: tuple[_UserEntry, ...] = ()

    @classmethod
    def of(cls, link: LinkUse) -> Self:
        """The entry of a class of links."""
        return cls.taken_from(
            link,
            bandwidth_bytes_per_s=finite(link.bandwidth),
            total_bytes=round(link.total_bytes),
            busiest_bytes=round(link.busiest_bytes),
            users=tuple(
                _UserEntry(group=user.group, kind=user.kind, bytes=round(user.size_bytes))
                for user in link.users
            ),
        )


class _CommEntry(Entry, frozen=True, kw_only=True):
    """A kind of communication of one size, in its slowest group.

    `time_ps` is what it takes beside its siblings where `contention` is siblings; otherwise it is
    `alone_ps`, with the links to itself.
    """

    group: str
    kind: str
    ranks: Count
    size_bytes: Bytes
    count: Count
    algorithms: Names
    time_ps: Picoseconds
    alone_ps: Picoseconds | None = None


class _FindingEntry(Entry, frozen=True, kw_only=True):
    """What the input can hardly mean; `worth` is by which share the step is longer without it."""

    text: str
    worth: float | None = None


class ThroughputEntry(Entry, frozen=True, kw_only=True):
    """What a step of a model is worth, per NPU; `error` is the mean error of such predictions.

    80 % of the measured steps of such models lie between `low_s` and `high_s`.
    """

    device: str
    framework: str
    parameters: Count
    tokens: Count
    tokens_per_s: float
    model_tflops: float
    hardware_tflops: float
    mfu: float
    npu_hours_per_trillion_tokens: float
    price_per_step: float | None = None
    kwh_per_step: float | None = None
    error: float | None = None
    error_runs: Count = 0
    error_source: str = ""
    error_median: float | None = None
    error_90: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    range_sources: Count = 0
    memory_bytes: Bytes | None = None
    capacity_bytes: Bytes | None = None


class StepDocument(Document, frozen=True, kw_only=True):
    """What a result and a candidate of a comparison share.

    What has a default is what the comparison of two results does without.
    """

    named: ClassVar[tuple[type, ...]] = (_Plan, _Parts)

    workload: str
    topology: str
    schedule: str
    p2p: str
    contention: str = "none"
    npus: Count
    microbatches: Count
    rank_order: str = ""
    ep_layout: str = ""
    plan: _Degrees
    settings: Annotated[dict[str, str], Meta(description="options that are not the default")] = (
        msgspec.field(default_factory=dict)
    )
    step_time_s: Seconds = 0.0
    step_time_ps: Annotated[Picoseconds, shown("step time")]
    throughput: ThroughputEntry | None = None
    pipeline_time_s: Seconds = 0.0
    pipeline_time_ps: Picoseconds = 0
    bubble_fraction: Share = 0.0
    zero_bubble_rate: Share = 0.0
    peak_activations: Count = 0
    peak_activation_bytes: Bytes | None = None
    breakdown_ps: _PartTimes
    critical_path_ps: _PartTimes = msgspec.field(default_factory=dict)
    stages: tuple[StageEntry, ...]
    links: tuple[LinkEntry, ...]
    comms: tuple[_CommEntry, ...] = ()
    reading: Annotated[str, Meta(description="how the rows of the workload were taken")] = ""
    findings: tuple[_FindingEntry, ...] = ()
    warnings: Names = ()
    notes: Names = ()

    @property
    def said(self) -> tuple[str, ...]:
        """All that a reader should know of the input, the weightiest first."""
        return (*(each.text for each in self.findings), *self.warnings)

    @classmethod
    def of_report(cls, report: Report, **others: object) -> Self:
        """The document of a report; `others` are the keys that not all steps have."""
        plan = report.plan
        return cls.taken_from(
            report,
            npus=plan.npus,
            microbatches=plan.microbatches,
            rank_order=plan.rank_order,
            ep_layout=plan.ep_layout,
            plan=plan.degrees(),
            settings=dict(report.settings),
            throughput=report.throughput and ThroughputEntry.taken_from(report.throughput),
            breakdown_ps=_named(report.mean_breakdown_ps()),
            critical_path_ps=_named(report.critical_path_ps),
            stages=tuple(StageEntry.of(stage) for stage in report.stages),
            links=tuple(LinkEntry.of(link) for link in report.links),
            findings=tuple(_FindingEntry.taken_from(each) for each in report.findings),
            **others,
        )

    @classmethod
    def from_plain(cls, raw: dict[str, Any], place: str) -> Self:
        """As for every document; the parts must add up, and stages and links have own places."""
        found = super().from_plain(raw, place)
        _check(found, place)
        return found


class ResultDocument(StepDocument, frozen=True, kw_only=True):
    """`stepsim simulate --json`: one step. `breakdown_ps` is the mean over ranks.

    `bubble_fraction` is the time in no action over pipeline time, mean over ranks;
    `zero_bubble_rate` is (T - m(F + B + W)) / T of the busiest rank (Qi et al., arXiv:2401.10241).
    """

    ranks: tuple[_RankEntry, ...] = ()

    @classmethod
    def of(cls, report: Report) -> Self:
        """The document of a report."""
        return cls.of_report(report, ranks=tuple(_rank_entries(report)))

    def to_json(self) -> bytes:
        """The document as UTF-8 JSON, ending with a newline; the ranks stand before the stages."""
        keys = [name for name in self.__struct_fields__ if name != "ranks"]
        keys.insert(keys.index("stages"), "ranks")
        return json_text({key: getattr(self, key) for key in keys})


def _memory_entry(stage: StageReport) -> MemoryEntry | None:
    peak = stage.memory
    if peak is None:
        return None
    return MemoryEntry(
        total_bytes=peak.total,
        at_ps=stage.memory_peak_ps,
        kept=peak.kept,
        parts={str(part): size for part, size in peak.parts.items()},
    )


def _rank_entries(report: Report) -> Iterable[_RankEntry]:
    """Ranks that behave the same share what they hold."""
    parts = [dict(zip(_PARTS, row, strict=True)) for row in report.breakdown.tolist()]
    first: dict[int, int] = {}
    for rank, actor in enumerate(report.actor_of.tolist()):
        yield _RankEntry(
            rank=rank,
            stage=report.plan.stage_of(rank),
            like=first.setdefault(actor, rank),
            bubble_ps=report.bubbles[actor],
            breakdown_ps=parts[actor],
        )


def _named(parts: Mapping[Part, int]) -> dict[str, int]:
    """Parts by name, e.g. `exposed_tp`."""
    return {part.key: value for part, value in parts.items()}


def _check(found: StepDocument, place: str) -> None:
    """Raise StepsimError unless the parts add up, and stages and links have places of their own."""
    step = found.step_time_ps
    _need(place, "plan", found.plan, _DEGREES)
    _check_parts(place, "breakdown_ps", found.breakdown_ps, step)
    for i, stage in enumerate(found.stages):
        if stage.stage != i:
            allowed = f"{i}: stages are numbered from 0 in order"
            raise StepsimError(bad_value(place, f"stages[{i}].stage", stage.stage, allowed))
        _check_parts(place, f"stages[{i}].breakdown_ps", stage.breakdown_ps, step)
    seen: set[str] = set()
    for i, link in enumerate(found.links):
        if link.name in seen:
            raise StepsimError(bad_value(place, f"links[{i}].name", link.name, "a name of its own"))
        seen.add(link.name)


def _check_parts(place: str, key: str, parts: Mapping[str, int], step_ps: int) -> None:
    _need(place, key, parts, _PARTS)
    total = sum(parts.values())
    if total != step_ps:
        allowed = f"step_time_ps, which is {step_ps}: the file is inconsistent"
        raise StepsimError(bad_value(place, f"sum of {key}", total, allowed))


def _need(place: str, inside: str, found: Mapping[str, int], names: Iterable[str]) -> None:
    for name in names:
        if name not in found and name not in _YOUNGER:
            raise StepsimError(missing_key(place, inside, name))
