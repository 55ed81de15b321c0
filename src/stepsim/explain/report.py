"""The report of a step: what is shown of it, and what `stepsim simulate --json` writes.

Findings say what a step's input can hardly mean, and what it is worth in step time.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar, Self

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from stepsim.base.arrays import Ints
from stepsim.base.axes import ParallelAxis, Part
from stepsim.base.errors import StepsimError, bad_value
from stepsim.base.structs import (
    Bytes,
    BytesPerSecond,
    Count,
    Document,
    Entry,
    Names,
    Noun,
    Numbers,
    Picoseconds,
    Seconds,
    Share,
    Values,
    json_text,
)
from stepsim.network.fold import Actors
from stepsim.parallel.schedules.base import PeakLive
from stepsim.workload.model.evidence import Throughput
from stepsim.workload.rows import CommOp

WEIGHTY = 0.02
"""The least share of the step time that is said first."""

# A smaller share of the step time is said only to those who want to know everything.
_NEGLIGIBLE = 0.001


class CommUse(Entry):
    """A kind of communication of one size, in its slowest group; `group` and `kind` are names.

    `algorithms` are those taken, which differ where groups lie differently on the network. `count`
    is how often the rank that takes part most often does. `time_ps` is what it takes beside its
    siblings where `contention` is siblings; otherwise it is `alone_ps`, with the links to itself.
    """

    group: str
    kind: str
    ranks: Count
    size_bytes: Bytes
    count: Count
    algorithms: Names
    time_ps: Picoseconds
    alone_ps: Picoseconds | None = None


class LinkUser(Entry):
    """Communications of one kind in one kind of group, and their bytes on a link."""

    group: str
    kind: str
    bytes: Bytes


class LinkUse(Entry):
    """A class of links, one direction each: `used` of the `links` carry anything.

    The bandwidth is None where it has no bound. `busiest` is the link with the most bytes,
    `busy_ps` how long it takes to carry them, `utilisation` that time over the step time, and
    `users` says whose bytes they are, most first.
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
    users: tuple[LinkUser, ...] = ()


class Finding(Entry):
    """Something about the input, and by which share the step is longer without it.

    `worth` is (other - this) / this of the step times; None where nobody can know.
    """

    text: str
    worth: float | None = None

    @property
    def is_weighty(self) -> bool:
        """Whether it is one of those that are said first."""
        return self.worth is None or abs(self.worth) >= WEIGHTY

    @property
    def is_negligible(self) -> bool:
        """Whether it changes next to nothing."""
        return self.worth is not None and abs(self.worth) < _NEGLIGIBLE

    def __str__(self) -> str:
        return self.text


def by_weight(finding: Finding) -> float:
    """A key that sorts findings, the weightiest first, after them those of unknown worth."""
    return -abs(WEIGHTY if finding.worth is None else finding.worth)


_DEGREES = tuple(map(str, ParallelAxis))
_PARTS = tuple(part.key for part in Part)
# What a result may lack because it was written before there was such an axis or part.
_YOUNGER = frozenset({"cp", "fsdp", "exposed_cp", "exposed_fsdp", "slowed"})

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
# By name: those that a later stepsim adds are kept, and the parts still sum to the step.
_PartTimes = Annotated[dict[str, Picoseconds], Meta(extra_json_schema={"$ref": "#/$defs/Parts"})]


class Bubble(Noun, kw_only=False):
    """Time of a rank in the pipeline but in no action, in ps: before the first, between, after.

    Communication inside an action counts as busy; `busy` is the time inside actions.
    """

    before: Picoseconds
    between: Picoseconds
    after: Picoseconds
    busy: Picoseconds

    @property
    def total(self) -> int:
        """Sum of all parts, in ps."""
        return self.before + self.between + self.after


class StageMemory(Entry):
    """A rank when it holds most: what its bytes are for; `kept` are microbatches of each chunk."""

    total_bytes: Bytes
    at_ps: Picoseconds
    kept: tuple[Count, ...]
    parts: dict[str, Bytes]


class StageReport(Entry):
    """A stage: durations of its actions, and means over its ranks, in ps.

    The steady state is from the first backward's start to the last forward's end; warm-up lies
    before it, cool-down after. `memory` is what a rank holds when it holds most.
    """

    stage: Count
    first_rank: Count = 0
    last_rank: Count = 0
    steady_start_ps: Picoseconds = 0
    steady_end_ps: Picoseconds = 0
    peak_activations: PeakLive = PeakLive()
    forward_ps: Picoseconds = 0
    backward_ps: Picoseconds = 0
    bubble_ps: Bubble | None = None
    breakdown_ps: _PartTimes
    memory: StageMemory | None = None


class Report(Document):
    """A step: all that is said of it, each number once, for tables, pages and JSON.

    `bubble_fraction` is the time in no action over pipeline time, mean over ranks.
    `zero_bubble_rate` is the share of the pipeline time that a stage without idle time would not
    need: (T - m(F + B + W)) / T of the Zero Bubble paper (arXiv:2401.10241), of the busiest rank.
    `peak_activations` are most of any rank, freed at the weight gradient; their bytes are None
    where a chunk's are unknown. `breakdown_ps` is the mean over ranks. `critical_path_ps` says what
    the chain of tasks that sets the step time is made of. `settings` are options that are not the
    default, by name, and the engine that took the place of events. `findings` are what the source
    can hardly mean and what that is worth, `warnings` what was assumed, `notes` what is as usual
    and may surprise. `throughput` is known of models. `slowed_by_communication_ps` is the step time
    less that of the step whose compute communication does not slow, None where it never does.

    A result is read again to be compared: what that does without has a default.
    """

    named: ClassVar[tuple[type, ...]] = (_Plan, _Parts)

    workload: str
    topology: str
    schedule: str
    p2p: str
    contention: str = "none"
    device: Annotated[str, Meta(description="accelerator of the ranks, empty if unknown")] = ""
    npus: Count
    microbatches: Count
    rank_order: str = ""
    ep_layout: str = ""
    plan: _Degrees
    settings: Annotated[dict[str, str], Meta(description="options that are not the default")] = {}
    step_time_s: Seconds = 0.0
    step_time_ps: Picoseconds
    slowed_by_communication_ps: Annotated[
        int | None, Meta(description="picoseconds; fair links can make it negative")
    ] = None
    throughput: Throughput | None = None
    pipeline_time_s: Seconds = 0.0
    pipeline_time_ps: Picoseconds = 0
    bubble_fraction: Share = 0.0
    zero_bubble_rate: Share = 0.0
    peak_activations: Count = 0
    peak_activation_bytes: Bytes | None = None
    breakdown_ps: _PartTimes
    critical_path_ps: _PartTimes = {}
    stages: tuple[StageReport, ...]
    links: tuple[LinkUse, ...]
    comms: tuple[CommUse, ...] = ()
    reading: Annotated[str, Meta(description="how the rows of the workload were taken")] = ""
    findings: tuple[Finding, ...] = ()
    warnings: Names = ()
    notes: Names = ()

    @property
    def said(self) -> Names:
        """All that a reader should know of the input, the weightiest first."""
        return (*(finding.text for finding in self.findings), *self.warnings)

    def use_of(self, op: CommOp) -> CommUse | None:
        """What is known of a communication; None of one that sends nothing."""
        key = op.group, op.kind, op.size_bytes
        return next((u for u in self.comms if (u.group, u.kind, u.size_bytes) == key), None)

    @classmethod
    def from_plain(cls, raw: Values, place: str) -> Self:
        """As for every document; the parts must add up, and stages and links have own places."""
        found = super().from_plain(raw, place)
        _check(found, place)
        return found


class SimulatedRanks(Noun, eq=False):
    """What the step of every simulated rank goes into, in ps.

    Row a of `breakdown`, of shape (actors, parts), and `bubbles[a]` belong to actor a of `actors`.
    """

    actors: Actors
    breakdown: Ints
    bubbles: tuple[Bubble, ...]

    @property
    def actor_of(self) -> Ints:
        """The actor of every rank."""
        return self.actors.actor_of


class RankReport(Entry):
    """A rank; `like` is the lowest rank that behaves the same."""

    rank: Count
    stage: Count
    like: Count
    bubble_ps: Bubble | None = None
    breakdown_ps: _PartTimes


class Classed(Entry):
    """Rows by classes: row i is of class `of[i]`, whose values stand at that place of its columns.

    For example rows `0 1`, `1 1`, `0 1` are of the classes 0, 1, 0.
    """

    of: tuple[Count, ...]
    classes: dict[str, tuple[int | str | Numbers | None, ...]]

    def __post_init__(self) -> None:
        used, sizes = {*self.of}, {len(column) for column in self.classes.values()}
        if used != {*range(len(used))} or sizes != {len(used)}:
            raise ValueError(
                f"Expected rows of {sizes} classes, and a value of each in all columns"
            )


class Lanes(Classed):
    """When ranks ran what, as a page draws it: a class of spans has its row, lane and times in ps.

    `waits` are how far before each span those stand that it waits for, `left_out` says which rows
    are not there.
    """

    rows: Names
    lanes: Names
    left_out: str
    waits: Classed | None = None


class ResultDocument(Report):
    """`stepsim simulate --json`: one step, and a row per rank. `breakdown_ps` is the mean.

    `bubble_fraction` is the time in no action over pipeline time, mean over ranks;
    `zero_bubble_rate` is (T - m(F + B + W)) / T of the busiest rank (Qi et al., arXiv:2401.10241).
    """

    ranks: tuple[RankReport, ...] = ()
    timeline: Lanes | None = None

    @classmethod
    def of(cls, report: Report, ranks: SimulatedRanks) -> Self:
        """A report with what its ranks do."""
        return cls(**asdict(report), ranks=tuple(_rank_reports(ranks)))

    def to_json(self) -> bytes:
        """The document as UTF-8 JSON, ending with a newline; the ranks stand before the stages.

        The timeline, which has as many numbers as spans, is one line at the end.
        """
        keys = [name for name in self.__struct_fields__ if name not in ("ranks", "timeline")]
        keys.insert(keys.index("stages"), "ranks")
        text = json_text({key: getattr(self, key) for key in keys})
        if self.timeline is None:
            return text
        line = b',\n "timeline": ' + msgspec.json.encode(self.timeline)
        return text.removesuffix(b"\n}\n") + line + b"\n}\n"


def exposed_ps(parts: Mapping[str, int]) -> int:
    """Communication and launches that ranks wait for, of parts by their names, in ps."""
    return sum(time for name, time in parts.items() if name.startswith("exposed"))


def by_name(values: Iterable[int]) -> dict[str, int]:
    """Ints of all parts in their order, by the names of the parts, e.g. `exposed_tp`."""
    return dict(zip(_PARTS, values, strict=True))


def _rank_reports(ranks: SimulatedRanks) -> Iterator[RankReport]:
    """Every rank in order; ranks that behave the same share what they hold."""
    parts = [by_name(row) for row in ranks.breakdown.tolist()]
    stages = ranks.actors.stages.tolist()
    first: dict[int, int] = {}
    for rank, actor in enumerate(ranks.actor_of.tolist()):
        yield RankReport(
            rank=rank,
            stage=stages[actor],
            like=first.setdefault(actor, rank),
            bubble_ps=ranks.bubbles[actor],
            breakdown_ps=parts[actor],
        )


def _check(found: Report, place: str) -> None:
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
            raise StepsimError(f"{place}: {inside}: {name} is missing")
