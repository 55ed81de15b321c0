"""A predicted step beside a measured one: two tables of one form, and where they differ.

Every moment of every rank's step is counted once: as a kernel that computes, else as communication
of which all traced members have come, else as a copy, else as waiting for members that have not,
else as a gap. So the rows of either table add up to its step. What a recording does not tell, such
as shapes or groups, is left out of both tables.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

import numpy as np

from stepsim.base.arrays import Bools, Ints, ints, median_place, rows_of
from stepsim.base.axes import Stream
from stepsim.base.errors import PlanError
from stepsim.base.structs import (
    Bytes,
    Count,
    Document,
    Entry,
    Names,
    Noun,
    Numbers,
    Picoseconds,
    replace,
)
from stepsim.base.units import format_size_bytes
from stepsim.measured.profile.events import Events, Profile, combined, complete_ps, unknown
from stepsim.measured.profile.kernel_classes import (
    SIMULATED,
    KernelClass,
    KernelWork,
    KernelWorks,
)
from stepsim.measured.profile.kernels import kernel_names
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, TaskKind, TaskPhase, extents

_Named = TypeVar("_Named")


class StepPart(StrEnum):
    """What a moment of a rank's step goes into; the value is what tables call it."""

    COMPUTE = "compute"
    COMMUNICATION = "exposed communication"
    COPIES = "copies"
    WAITING = "waiting"
    GAPS = "gaps"


STAGE_MESSAGES = "messages between stages"
HOST_GAPS = "host gaps before"
_PHASES = {
    TaskPhase.FORWARD: "forward",
    TaskPhase.UPDATE: "update",
}
# When a step begins and ends, in ps.
_Bounds = tuple[int, int]
_Key = tuple[StepPart, str, str]
# Rows of no operation.
_ENDS: Sequence[_Key] = (
    (StepPart.GAPS, "gaps before kernels launched in time", ""),
    (StepPart.WAITING, "other ranks at the end of the step", ""),
    (StepPart.GAPS, f"{HOST_GAPS} the next step", ""),
)


class AgainstRow(Entry):
    """A row of both tables: means over the compared ranks.

    `item` tells rows of a name apart: the sides of a product, the bytes of a collective. Kernels
    run for `predicted_run_ps` and `measured_run_ps`, of which the step shows `predicted_ps` and
    `measured_ps`: the rest is hidden behind others. Counts are of all ranks.
    """

    part: str
    name: str
    item: str
    predicted_ps: Picoseconds
    measured_ps: Picoseconds
    predicted_run_ps: Picoseconds
    measured_run_ps: Picoseconds
    predicted_count: Count
    measured_count: Count

    @property
    def difference_ps(self) -> int:
        """What the measured step shows more than the predicted one."""
        return self.measured_ps - self.predicted_ps


class Against(Document):
    """A predicted step beside a measured one; the rows add up to both steps.

    `differences` are the largest ones in words. `ranks` were compared, of the measured `step`. The
    peaks of memory are those of the fullest rank, None where nobody says them.
    """

    source: str
    format: str
    step: int
    ranks: Numbers
    predicted_step_ps: Picoseconds
    measured_step_ps: Picoseconds
    predicted_peak_bytes: Bytes | None = None
    measured_peak_bytes: Bytes | None = None
    rows: tuple[AgainstRow, ...]
    differences: Names = ()
    notes: Names = ()

    def summed(self, *fields: str) -> tuple[AgainstRow, ...]:
        """Rows with equal `fields`, of part and name, added up in their order, without others."""
        alike: dict[Names, list[AgainstRow]] = {}
        for row in self.rows:
            alike.setdefault(tuple(getattr(row, field) for field in fields), []).append(row)
        others = dict.fromkeys({"name", "item"} - {*fields}, "")
        return tuple(
            replace(
                rows[0],
                **others,
                **{name: sum(getattr(row, name) for row in rows) for name in _NUMBERS},
            )
            for rows in alike.values()
        )


# Of each number the predicted one, then the measured one.
_NUMBERS = tuple(name for name in AgainstRow.__struct_fields__ if name.endswith(("_ps", "_count")))


class Recording(Noun):
    """What a recording tells, so that a table of the prediction tells no more.

    Without kernels it has `phases`. Products have `sides` where shapes were recorded, or where both
    ran as many of them in their order; `called` are the predicted ones of some sides. `groups`
    names the groups of collectives by kind and ranks. `exchanged` is what kernels that send and
    receive are part of.
    """

    phases: bool
    sides: bool
    called: Mapping[Numbers, str]
    groups: Mapping[tuple[str, Numbers], str] | None
    exchanged: str


def measured_step(profile: Profile) -> tuple[Profile, _Bounds, bool]:
    """The recorded step of median length alone, its begin and end, and whether the next follows.

    A step goes from its first operation on a device to that of the next one, where that was
    recorded, else to its last one.
    """
    events, count = profile.events, len(profile.steps)
    device = events.kind != TaskKind.HOST
    step = np.where(device, events.step, UNKNOWN)
    first, last = extents(step, count, events.start_ps, events.end_ps)
    numbers = np.array(profile.steps)
    follows = np.append((np.diff(numbers) == 1) & (first[1:] >= last[:-1]), False)
    ends = np.where(follows, np.append(first[1:], 0), last)
    chosen = np.flatnonzero(follows) if follows.any() else np.arange(count)
    middle = chosen[median_place((ends - first)[chosen])]
    bounds = int(first[middle]), int(ends[middle])
    return profile.of_steps(profile.steps[middle]), bounds, bool(follows[middle])


def compared_ranks(profile: Profile, npus: int, stage_ranks: int) -> Numbers:
    """The simulated ranks that a recording's ranks are; raises PlanError for another job.

    They have the same numbers; where a recorded rank stands for several that share its stage and
    replica (a group of tp), it is the first of them.
    """
    source, world = profile.source, profile.world
    numbers = tuple(ran.rank for ran in profile.ranks)
    if world and world != npus:
        raise PlanError(
            f"{source}: a job of {world} ranks was recorded, {npus} are simulated: expected --npus "
            f"{world}"
        )
    replicas = {ran.replica for ran in profile.ranks}
    stages = {ran.stage for ran in profile.ranks}
    if world is None and None not in replicas | stages and len(numbers) != npus:
        width, wide = divmod(stage_ranks, len(replicas))
        if wide or len(stages) * stage_ranks != npus:
            raise PlanError(
                f"{source}: {len(stages)} stages of {len(replicas)} replicas were recorded: "
                f"expected a plan of so many, not {npus // stage_ranks} stages of {stage_ranks} "
                "ranks"
            )
        return tuple(
            (ran.stage or 0) * stage_ranks + (ran.replica or 0) * width for ran in profile.ranks
        )
    if numbers[-1] >= npus:
        raise PlanError(
            f"{source}: rank {numbers[-1]} was recorded, {npus} are simulated: expected --npus "
            f"{numbers[-1] + 1} at least"
        )
    return numbers


def unfused_attention(predicted: Profile, measured: Profile) -> bool | None:
    """Whether the measured attention alone is unfused, or fused alone; None where both are alike.

    So it is also where one of both has no attention that is known to be one.
    """
    first, second = (
        {
            work.unfused
            for work in KernelWorks.of(profile).works
            if work.work is KernelClass.ATTENTION
        }
        for profile in (predicted, measured)
    )
    if first == second or not (first and second):
        return None
    return True in second


def class_operators(simulated: Profile) -> dict[str, Names]:
    """What PyTorch calls the operators of a simulated step, by their class of kernels.

    Kernels without an operator, such as an optimizer's, have their own name.
    """
    works, events = KernelWorks.of(simulated), simulated.events
    known, _ = combined(works.number, events.operator, events.name)
    called = _names_by(
        (
            works.works[number].work.value,
            simulated.names[name] if operator == UNKNOWN else simulated.operators[operator].name,
        )
        for number, operator, name in known
        if number != UNKNOWN
    )
    return {work: tuple(sorted(names)) for work, names in called.items()}


def _names_by(pairs: Iterable[tuple[_Named, str]]) -> Mapping[_Named, Iterable[str]]:
    """The names of everything that has some, each once, in their order."""
    found: dict[_Named, dict[str, None]] = {}
    for key, name in pairs:
        found.setdefault(key, {})[name] = None
    return found


def _recording_of(measured: Profile, predicted: Profile) -> Recording:
    """What a recorded step tells, and how it is told apart beside the predicted one."""
    events = measured.events
    compute = events.of_kind(TaskKind.COMPUTE)
    works, others = KernelWorks.of(measured), KernelWorks.of(predicted)
    group = np.unique(events.group[events.of_kind(TaskKind.COLLECTIVE)]).tolist()
    same = {ran.rank for ran in measured.ranks} == {ran.rank for ran in predicted.ranks}
    named = same and all(at != UNKNOWN and measured.groups[at].ranks for at in group)
    counts = len(works.products(events)), len(others.products(predicted.events))
    kinds = {kind_of(name) for name in predicted.names}
    messages = bool(predicted.events.is_message.any())
    exchanged = "all_to_all" if "all_to_all" in kinds and not messages else ""
    kernels = bool(measured.operators) or bool((events.launch_ps[compute] != UNKNOWN).any())
    return Recording(
        phases=bool((events.phase[compute] != UNKNOWN).any()) and not kernels,
        sides=works.has_sides or counts[0] == counts[1],
        called=_called(predicted, others),
        groups=_labels(predicted) if named else None,
        exchanged=STAGE_MESSAGES if messages and "all_to_all" not in kinds else exchanged,
    )


def _labels(profile: Profile) -> dict[tuple[str, Numbers], str]:
    """What groups are called that run collectives of a kind: `tp`, or `ep, dp` where both do."""
    events = profile.events
    used = np.flatnonzero(events.group != UNKNOWN)
    pairs, _ = combined(events.name[used], events.group[used])
    groups = [(kind_of(profile.names[i]), profile.groups[j]) for i, j in pairs]
    labels = _names_by(
        ((kind, group.ranks), group.name.rstrip("0123456789")) for kind, group in groups
    )
    return {key: ", ".join(names) for key, names in labels.items()}


def _called(profile: Profile, works: KernelWorks) -> dict[Numbers, str]:
    """What the simulated products of some sides are called."""
    pairs, _ = combined(works.number, profile.events.name)
    called = _names_by(
        (works.works[number].sides, profile.names[name].removeprefix(SIMULATED))
        for number, name in pairs
        if number != UNKNOWN
    )
    return {sides: ", ".join(names) for sides, names in called.items() if sides}


def kind_of(name: str) -> str:
    """The kind of a collective by what it is called, e.g. `all_gather` of `nccl AllGather`."""
    plain = name.lower().replace("_", "").replace("-", "").replace(" ", "")
    called = kernel_names().collectives.items()
    return next((kind for part, kind in called if part in plain), name)


def compare_steps(
    predicted: Profile, measured: Profile, bounds: Sequence[_Bounds]
) -> tuple[AgainstRow, ...]:
    """The rows of both tables, as means over the ranks, of steps with these `bounds`.

    Rows of a part stand together, those that last longest first.
    """
    recording = _recording_of(measured, predicted)
    if recording.phases:
        predicted = _in_phases(predicted)
    works = KernelWorks.of(predicted), KernelWorks.of(measured)
    if recording.sides and not works[1].has_sides:
        orders = (works[0].products(predicted.events), works[1].products(measured.events))
        works = works[0], works[1].in_order_of(orders[1], works[0], orders[0])
    found: dict[_Key, Ints] = {}
    every = zip((predicted, measured), works, bounds, strict=True)
    for side, (profile, own, step) in enumerate(every):
        for key, sums in _table(profile, own, recording, *step):
            if sums.any():
                found.setdefault(key, np.zeros((3, 2), np.int64))[:, side] += sums
    parts = [*StepPart]
    keys = sorted(found, key=lambda key: (parts.index(key[0]), -int(found[key][0].max()), key))
    table = np.array([found[key] for key in keys])
    # means of the ranks, which add up to the mean step; counts are of all
    ranks = len(predicted.ranks), len(measured.ranks)
    table[:, :2] = np.diff(np.cumsum(table[:, :2], axis=0) // ranks, axis=0, prepend=0)
    rows = rows_of(keys, table.reshape(len(keys), -1))
    return tuple(
        AgainstRow(part=part.value, name=name, item=item, **dict(zip(_NUMBERS, row, strict=True)))
        for (part, name, item), row in rows
    )


def _in_phases(profile: Profile) -> Profile:
    """A simulated step with one operation for all that an action computes and waits for inside."""
    events = profile.events
    inside = (events.stream != Stream.FSDP) & (events.microbatch != UNKNOWN)
    inside &= events.of_kind(TaskKind.COMPUTE, TaskKind.COLLECTIVE) & (events.duration_ps > 0)
    phase = np.where(events.phase == TaskPhase.FORWARD, TaskPhase.FORWARD, TaskPhase.BACKWARD)
    columns = (events.rank, phase, events.chunk, events.microbatch)
    actions, action = combined(*(column[inside] for column in columns))
    count = len(actions)
    start, end = extents(action, count, events.start_ps[inside], events.end_ps[inside])
    rank, phase, *_ = ints(actions).reshape(-1, len(columns)).T
    rest = events.taken(~inside)
    more = Events.of(
        count,
        rank=rank,
        phase=phase,
        step=np.zeros(count, np.int64),
        name=np.zeros(count, np.int64),
        kind=np.full(count, TaskKind.COMPUTE, np.int64),
        start_ps=start,
        end_ps=end,
    )
    return replace(profile, events=Events.joined(rest, more), follows=None)


def _table(
    profile: Profile, works: KernelWorks, recording: Recording, begin: int, end: int
) -> Iterator[tuple[_Key, Ints]]:
    """The rows of a step that goes from `begin` to `end`.

    Each has what the step shows in ps, what kernels run in ps, and how many there are, over all
    ranks.

    Of rows of operations there are as many again for waiting for the others of one, and for a gap
    that one ends because the host launched it late; last come those of no operation.
    """
    keys, number = _numbered(profile, works, recording)
    count, events, last = len(keys), profile.events, complete_ps(profile.events)
    device = (events.kind != TaskKind.HOST) & (events.duration_ps > 0)
    busy = int(np.append(events.end_ps[device], begin).max())
    sums = np.zeros((3 * count + len(_ENDS), 3), np.int64)
    np.add.at(sums[:, 1], number[device], events.duration_ps[device])
    np.add.at(sums[:, 2], number[device], 1)
    for places in profile.places_of_ranks():
        own = places[device[places]]
        row, length = _moments(events, own, last, number, count, (begin, end, busy))
        np.add.at(sums[:, 0], row, length)
        beside = row >= count
        np.add.at(sums[:, 1], row[beside], length[beside])
        np.add.at(sums[:, 2], row[beside], 1)
    waits = ((StepPart.WAITING, name, "") for _, name, _ in keys)
    late = (
        (StepPart.GAPS, f"{HOST_GAPS} {name if part is StepPart.COMPUTE else part.value}", "")
        for part, name, _ in keys
    )
    return zip((*keys, *waits, *late, *_ENDS), sums, strict=True)


def _numbered(
    profile: Profile, works: KernelWorks, recording: Recording
) -> tuple[list[_Key], Ints]:
    """The rows of operations, and the place of every operation's row among them."""
    events, numbers = profile.events, dict[_Key, int]()
    phase = events.phase if recording.phases else unknown(len(events))
    sent = events.of_kind(*COMMUNICATIONS)
    columns = (
        *(events.kind, works.number, phase, np.where(sent, events.name, UNKNOWN)),
        *(np.where(sent, column, UNKNOWN) for column in (events.group, events.size_bytes)),
    )
    known, place = combined(*columns)
    rows = []
    for kind, work, passes, name, group, size in known:
        ranks = profile.groups[group].ranks if group != UNKNOWN else ()
        if work != UNKNOWN:
            key = _compute_key(works.works[work], passes, recording)
        elif kind == TaskKind.COLLECTIVE:
            key = _collective_key(profile.names[name], ranks, size, recording)
        elif kind in COMMUNICATIONS:
            key = (
                StepPart.COMMUNICATION,
                STAGE_MESSAGES,
                format_size_bytes(size) if size > 0 else "",
            )
        else:
            key = StepPart.COPIES, "copies of memory", ""
        rows.append(numbers.setdefault(key, len(numbers)))
    return [*numbers], ints(rows)[place]


def _compute_key(work: KernelWork, phase: int, recording: Recording) -> _Key:
    if recording.phases:
        return StepPart.COMPUTE, _PHASES.get(TaskPhase(phase), "backward"), ""
    if not (recording.sides and work.sides):
        return StepPart.COMPUTE, work.work.value, ""
    sides = " x ".join(map(str, work.sides))
    called = recording.called.get(work.sides, "")
    return StepPart.COMPUTE, work.work.value, f"{sides} ({called})" if called else sides


def _collective_key(name: str, ranks: Numbers, size: int, recording: Recording) -> _Key:
    kind = kind_of(name)
    if kind == "send_recv" and recording.exchanged:
        kind = recording.exchanged
    if recording.groups is not None and ranks:
        label = recording.groups.get((kind, ranks), "")
        kind = f"{kind} of {label} {len(ranks)}" if label else f"{kind} of {len(ranks)} ranks"
    return StepPart.COMMUNICATION, kind, format_size_bytes(size) if size > 0 else ""


def _moments(
    events: Events, own: Ints, last: Ints, rows: Ints, count: int, step: tuple[int, int, int]
) -> tuple[Ints, Ints]:
    """What a rank's step goes into, moment by moment: rows, and how long in ps.

    `own` are the operations of the rank, `last` is when the others of a meeting have come, `rows`
    are those of operations, of `count`. `step` is its begin, its end, and when the last rank is
    done.
    """
    kind = events.kind[own]
    sent, copied = np.isin(kind, COMMUNICATIONS), kind == TaskKind.COPY
    start, end, ready = events.start_ps[own], events.end_ps[own], last[own]
    number = rows[own]
    layers = (
        _pieces(number, start, end, ~sent & ~copied),
        _pieces(number, ready, end, sent),
        _pieces(number, start, end, copied),
        _pieces(number + count, start, ready, sent),
    )
    edges = np.unique(np.concatenate([step, *(column for layer in layers for column in layer[1:])]))
    edges = edges[(edges >= step[0]) & (edges <= step[1])]
    at, until = edges[:-1], edges[1:]
    row = unknown(len(at))
    for number_of, begins, ends in layers:
        if len(begins):
            near = np.searchsorted(begins, at, side="right") - 1
            covered = (near >= 0) & (ends[near] >= until) & (row == UNKNOWN)
            row[covered] = number_of[near[covered]]
    empty = row == UNKNOWN
    row[empty] = _gaps(events, own, at[empty], rows + 2 * count, 3 * count, step[2])
    return row, until - at


def _gaps(events: Events, own: Ints, at: Ints, late: Ints, ends: int, busy: int) -> Ints:
    """The rows of gaps that begin at some times, by the operations that end them.

    One whose launch nobody recorded was launched when it started. `late` are rows by operation, and
    those of no operation begin at `ends`.
    """
    order = events.in_time(own)
    after = np.searchsorted(events.start_ps[order], at, side="left")
    row = ends + np.where(at < busy, 1, 2)
    ended = after < len(order)
    follower = order[after[ended]]
    launch = events.launch_ps[follower]
    prompt = (launch >= 0) & (launch <= at[ended])
    row[ended] = np.where(prompt, ends, late[follower])
    return np.asarray(row, np.int64)


def _pieces(number: Ints, start: Ints, end: Ints, chosen: Bools) -> tuple[Ints, Ints, Ints]:
    """Rows, and parts of times that do not overlap: of two the first to start is counted."""
    numbers, begins, ends = number[chosen], start[chosen], end[chosen]
    order = np.argsort(begins, kind="stable")
    numbers, begins, ends = numbers[order], begins[order], ends[order]
    if len(ends):
        before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(ends)[:-1]])
        begins = np.maximum(begins, before)
    kept = ends > begins
    return numbers[kept], begins[kept], ends[kept]
