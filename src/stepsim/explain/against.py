"""A predicted step beside a measured one: two tables of one form, and where they differ.

Every moment of every rank's step is counted once: as a kernel that computes, else as communication
of which all traced members have come, else as a copy, else as waiting for members that have not,
else as a gap. So the rows of either table add up to its step. What a recording does not tell, such
as shapes or groups, is left out of both tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.base.errors import PlanError, TraceError
from stepsim.base.structs import Bytes, Count, Document, Entry, Picoseconds, replace
from stepsim.base.units import format_size_bytes
from stepsim.measured.profile.events import Events, Profile
from stepsim.measured.profile.kernel_classes import (
    SIMULATED,
    KernelClass,
    KernelWork,
    kernel_work,
)
from stepsim.tables.spans import COMMUNICATIONS, UNKNOWN, TaskKind, TaskPhase
from stepsim.workload.rows import Stream


class StepPart(StrEnum):
    """What a moment of a rank's step goes into; the value is what tables call it."""

    COMPUTE = "compute"
    COMMUNICATION = "exposed communication"
    COPIES = "copies"
    WAITING = "waiting"
    GAPS = "gaps"


_LAYERS = (StepPart.COMPUTE, StepPart.COMMUNICATION, StepPart.COPIES, StepPart.WAITING)
MESSAGES = "messages between stages"
UNSAID = "kernels launched in time"
_PHASES = {
    TaskPhase.FORWARD: "forward",
    TaskPhase.UPDATE: "update",
}
_IN_ACTIONS = (Stream.COMPUTE, Stream.TP, Stream.CP, Stream.EP)
_CALLED = (
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("dispatch", "all_to_all"),
    ("combine", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
)
"""Parts of the names of collectives, the longest first, and the kind that they say."""

_Key = tuple[StepPart, str, str]


class AgainstRow(Entry, frozen=True, kw_only=True):
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


class Against(Document, frozen=True, kw_only=True):
    """A predicted step beside a measured one; the rows add up to both steps.

    `differences` are the largest ones in words. `ranks` were compared, of the measured `step`. The
    peaks of memory are those of the fullest rank, None where nobody says them.
    """

    source: str
    format: str
    step: int
    ranks: tuple[int, ...]
    predicted_step_ps: Picoseconds
    measured_step_ps: Picoseconds
    predicted_peak_bytes: Bytes | None = None
    measured_peak_bytes: Bytes | None = None
    rows: tuple[AgainstRow, ...]
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def summed(self, *fields: str) -> tuple[AgainstRow, ...]:
        """Rows with equal `fields`, of part and name, added up in their order."""
        sums: dict[tuple[str, ...], AgainstRow] = {}
        for row in self.rows:
            key = tuple(getattr(row, field) for field in fields)
            sums[key] = _added(sums[key], row) if key in sums else replace(row, item="")
        return tuple(sums.values())

    @property
    def parts(self) -> tuple[AgainstRow, ...]:
        """The rows of every part of the step, added up."""
        return tuple(replace(row, name="") for row in self.summed("part"))


_NUMBERS = tuple(name for name in AgainstRow.__struct_fields__ if name.endswith(("_ps", "_count")))


def _added(row: AgainstRow, other: AgainstRow) -> AgainstRow:
    numbers = {name: getattr(row, name) + getattr(other, name) for name in _NUMBERS}
    return replace(row, **numbers)


class Recording(Struct, frozen=True, kw_only=True):
    """What a recording tells, so that a table of the prediction tells no more.

    Without kernels it has `phases`. Products have `sides` where shapes were recorded, or where both
    ran as many of them in their order; `called` are the predicted ones of some sides. `groups`
    names the groups of collectives by their ranks. With `follows` the next step was recorded too,
    and ends this one. `exchanged` is what kernels that send and receive are part of.
    """

    phases: bool
    sides: bool
    called: Mapping[tuple[int, ...], str]
    groups: Mapping[tuple[int, ...], str] | None
    follows: bool
    exchanged: str


class _Table(Struct, frozen=True, kw_only=True):
    """Sums by row over all ranks: what steps show in ps, what kernels run in ps, and how many."""

    step_ps: int
    ranks: int
    sums: Mapping[_Key, tuple[int, int, int]]

    def means(self, keys: Sequence[_Key]) -> list[tuple[int, int, int]]:
        """Means of the ranks by row, which add up to the mean step; counts are of all."""
        rows = [self.sums.get(key, (0, 0, 0)) for key in keys]
        shown, run, count = zip(*rows, strict=True)
        return list(zip(self._mean(shown), self._mean(run), count, strict=True))

    def _mean(self, sums: Sequence[int]) -> list[int]:
        """Sums over the number of ranks, rounded so that they add up to the rounded mean."""
        ends = [total // self.ranks for total in np.cumsum([0, *sums]).tolist()]
        return [after - before for before, after in pairwise(ends)]


def measured_step(profile: Profile) -> tuple[Profile, int, bool]:
    """The recorded step of median length alone, when it ends in ps, and whether the next follows.

    A step goes from its first operation on a device to that of the next one, where that was
    recorded, else to its last one. Raises TraceError for a recording that tells no times.
    """
    if not profile.is_timed:
        raise TraceError(
            f"{profile.source}: nothing says when operations ran: expected a recording with times"
        )
    events, count = profile.events, len(profile.steps)
    limits, device = np.iinfo(np.int64), events.kind != TaskKind.HOST
    first, last = np.full(count, limits.max), np.full(count, limits.min)
    np.minimum.at(first, events.step[device], events.start_ps[device])
    np.maximum.at(last, events.step[device], events.end_ps[device])
    numbers = np.array(profile.steps)
    follows = np.append((np.diff(numbers) == 1) & (first[1:] >= last[:-1]), False)
    ends = np.where(follows, np.append(first[1:], 0), last)
    chosen = np.flatnonzero(follows) if follows.any() else np.arange(count)
    order = chosen[np.argsort((ends - first)[chosen], kind="stable")]
    step = int(order[(len(order) - 1) // 2])
    return profile.of_steps(profile.steps[step]), int(ends[step]), bool(follows[step])


def compared_ranks(profile: Profile, npus: int, stage_ranks: int) -> tuple[int, ...]:
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


def recording_of(measured: Profile, predicted: Profile, *, follows: bool) -> Recording:
    """What a recorded step tells, and how it is told apart beside the predicted one."""
    events = measured.events
    compute = events.of_kind(TaskKind.COMPUTE)
    phases = bool((events.phase[compute] != UNKNOWN).any())
    works, others = _works(measured), _works(predicted)
    group = events.group[events.of_kind(TaskKind.COLLECTIVE)]
    listed = [bool(g.ranks) for g in measured.groups]
    same = {ran.rank for ran in measured.ranks} == {ran.rank for ran in predicted.ranks}
    named = same and all(number != UNKNOWN and listed[number] for number in group.tolist())
    labels: dict[tuple[int, ...], str] = {}
    for known in predicted.groups:
        labels.setdefault(known.ranks, known.name.rstrip("0123456789"))
    kinds = {kind_of(predicted.names[name]) for name in predicted.events.name.tolist()}
    messages = bool(predicted.events.of_kind(TaskKind.SEND, TaskKind.RECV).any())
    exchanged = "all_to_all" if "all_to_all" in kinds and not messages else ""
    return Recording(
        phases=phases,
        sides=any(work and work.sides for work in works) or _products(works) == _products(others),
        called=_called(predicted, others),
        groups=labels if named else None,
        follows=follows,
        exchanged=MESSAGES if messages and "all_to_all" not in kinds else exchanged,
    )


def _called(profile: Profile, works: Sequence[KernelWork | None]) -> dict[tuple[int, ...], str]:
    """What the simulated products of some sides are called."""
    names: dict[tuple[int, ...], dict[str, None]] = {}
    for number, work in zip(profile.events.name.tolist(), works, strict=True):
        if work and work.sides:
            name = profile.names[number].removeprefix(SIMULATED)
            names.setdefault(work.sides, {})[name] = None
    return {sides: ", ".join(called) for sides, called in names.items()}


def _works(profile: Profile) -> list[KernelWork | None]:
    """What the kernels of a profile do; None of an operation that does not compute.

    Batched products are part of attention where a softmax stands beside them.
    """
    known: dict[tuple[int, int], KernelWork] = {}
    works: list[KernelWork | None] = []
    columns = (profile.events.kind, profile.events.name, profile.events.operator)
    for kind, name, number in zip(*(column.tolist() for column in columns), strict=True):
        if kind != TaskKind.COMPUTE:
            works.append(None)
            continue
        if (name, number) not in known:
            operator = profile.operators[number] if number != UNKNOWN else None
            known[name, number] = kernel_work(profile.names[name], operator)
        works.append(known[name, number])
    if not any(work.unfused for work in known.values()):
        return works
    scores = KernelWork(work=KernelClass.ATTENTION, unfused=True)
    return [scores if work and work.work is KernelClass.BATCHED else work for work in works]


def _products(works: Sequence[KernelWork | None]) -> int:
    """How many products there are."""
    return sum(work is not None and work.work is KernelClass.PRODUCTS for work in works)


def kind_of(name: str) -> str:
    """The kind of a collective by what it is called, e.g. `all_gather` of `nccl AllGather`."""
    plain = name.lower().replace("_", "").replace("-", "").replace(" ", "")
    return next((kind for part, kind in _CALLED if part in plain), name)


def compare_steps(
    predicted: Profile,
    measured: Profile,
    recording: Recording,
    ends_ps: tuple[int, int],
) -> tuple[tuple[AgainstRow, ...], tuple[int, int]]:
    """The rows of both tables, and both steps, as means over the ranks.

    `ends_ps` is when either step ends. Rows of a part stand together, those that last longest
    first. A step begins with its first operation on a device; the predicted one where it begins,
    if the measured one ends with the next.
    """
    if recording.phases:
        predicted = _in_phases(predicted)
    works = _works(predicted), _works(measured)
    if recording.sides and not any(work and work.sides for work in works[1]):
        works = works[0], _in_order(predicted, works[0], measured, works[1])
    begins = 0 if recording.follows else _device_start(predicted), _device_start(measured)
    tables = [
        _table(profile, work, recording, begin, end)
        for profile, work, begin, end in zip(
            (predicted, measured), works, begins, ends_ps, strict=True
        )
    ]
    parts = {part: number for number, part in enumerate(StepPart)}
    longest = {
        key: max(table.sums.get(key, (0, 0, 0))[0] for table in tables)
        for key in tables[0].sums | tables[1].sums
    }
    keys = sorted(longest, key=lambda key: (parts[key[0]], -longest[key], key))
    rows = zip(keys, *(table.means(keys) for table in tables), strict=True)
    return tuple(
        AgainstRow(
            part=key[0].value,
            name=key[1],
            item=key[2],
            predicted_ps=first[0],
            measured_ps=second[0],
            predicted_run_ps=first[1],
            measured_run_ps=second[1],
            predicted_count=first[2],
            measured_count=second[2],
        )
        for key, first, second in rows
    ), (tables[0].step_ps, tables[1].step_ps)


def _device_start(profile: Profile) -> int:
    events = profile.events
    return int(events.start_ps[events.kind != TaskKind.HOST].min())


def _in_phases(profile: Profile) -> Profile:
    """A simulated step with one operation for all that an action computes and waits for inside."""
    events = profile.events
    inside = np.isin(events.stream, _IN_ACTIONS) & (events.microbatch != UNKNOWN)
    inside &= events.of_kind(TaskKind.COMPUTE, TaskKind.COLLECTIVE) & (events.duration_ps > 0)
    phase = np.where(events.phase == TaskPhase.FORWARD, TaskPhase.FORWARD, TaskPhase.BACKWARD)
    columns = np.stack([events.rank, phase, events.chunk, events.microbatch])[:, inside]
    actions, action = np.unique(columns, axis=1, return_inverse=True)
    start = np.full(actions.shape[1], np.iinfo(np.int64).max)
    end = np.zeros(actions.shape[1], dtype=np.int64)
    np.minimum.at(start, action.ravel(), events.start_ps[inside])
    np.maximum.at(end, action.ravel(), events.end_ps[inside])
    rest = events.taken(np.flatnonzero(~inside))
    count = len(start)
    more = Events.of(
        count,
        rank=actions[0],
        phase=actions[1],
        step=np.zeros(count, dtype=np.int64),
        name=np.zeros(count, dtype=np.int64),
        kind=np.full(count, TaskKind.COMPUTE, dtype=np.int64),
        start_ps=start,
        end_ps=end,
    )
    joined = {
        name: np.concatenate([getattr(rest, name), getattr(more, name)])
        for name in Events.__struct_fields__
    }
    return replace(profile, events=Events(**joined), follows=None)


def _in_order(
    predicted: Profile,
    known: Sequence[KernelWork | None],
    measured: Profile,
    works: Sequence[KernelWork | None],
) -> list[KernelWork | None]:
    """The works of recorded kernels, where the n-th product of a rank has the predicted sides."""
    matched = list(works)
    orders = (_product_order(predicted, known), _product_order(measured, works))
    for first, second in zip(*orders, strict=True):
        matched[second] = known[first]
    return matched


def _product_order(profile: Profile, works: Sequence[KernelWork | None]) -> list[int]:
    """The products of all ranks, rank by rank in the order in which they start."""
    events = profile.events
    is_product = [work is not None and work.work is KernelClass.PRODUCTS for work in works]
    products = np.flatnonzero(is_product)
    order = np.lexsort((events.start_ps[products], events.rank[products]))
    return [int(number) for number in products[order]]


def _table(
    profile: Profile,
    works: Sequence[KernelWork | None],
    recording: Recording,
    begin: int,
    end: int,
) -> _Table:
    """The sums of a step that goes from `begin` to `end`."""
    keys = _keys(profile, works, recording)
    sums: dict[_Key, list[int]] = {}
    events = profile.events
    last = _last_arrival(events)
    for rank in range(len(profile.ranks)):
        own = np.flatnonzero(
            (events.rank == rank) & (events.kind != TaskKind.HOST) & (events.duration_ps > 0)
        )
        for key, shown_ps in _shown(events, own, last, keys, (begin, end)):
            row = sums.setdefault(key, [0, 0, 0])
            row[0] += shown_ps
            if key[0] in (StepPart.GAPS, StepPart.WAITING):
                row[1] += shown_ps
                row[2] += 1
        for number in own.tolist():
            row = sums.setdefault(keys[number], [0, 0, 0])
            row[1] += int(events.end_ps[number] - events.start_ps[number])
            row[2] += 1
    rows = {key: (shown, run, count) for key, (shown, run, count) in sums.items()}
    return _Table(step_ps=end - begin, ranks=len(profile.ranks), sums=rows)


def _last_arrival(events: Events) -> Ints:
    """When the last traced member of every operation's meeting started; its own start of others."""
    last = events.start_ps.copy()
    met = np.flatnonzero(events.meeting != UNKNOWN)
    if len(met):
        _, number = np.unique(events.meeting[met], return_inverse=True)
        latest = np.full(int(number.max()) + 1, np.iinfo(np.int64).min)
        np.maximum.at(latest, number, events.start_ps[met])
        last[met] = np.minimum(latest[number], events.end_ps[met])
    return last


def _shown(
    events: Events, own: Ints, last: Ints, keys: Sequence[_Key], step: tuple[int, int]
) -> Iterator[tuple[_Key, int]]:
    """What a rank's step goes into, moment by moment: rows and how long in ps.

    `own` are the operations of the rank. `last` is when the others of a meeting have come.
    """
    kind = events.kind[own]
    sent, copied = np.isin(kind, COMMUNICATIONS), kind == TaskKind.COPY
    start, end, ready = events.start_ps[own], events.end_ps[own], last[own]
    layers = (
        _pieces(own, start, end, ~sent & ~copied),
        _pieces(own, ready, end, sent),
        _pieces(own, start, end, copied),
        _pieces(own, start, ready, sent),
    )
    busy = np.append(events.end_ps[events.kind != TaskKind.HOST], step[0]).max()
    edges = np.unique(
        np.concatenate([step, [busy], *(np.concatenate(layer[1:]) for layer in layers)])
    )
    edges = edges[(edges >= step[0]) & (edges <= step[1])]
    at, until = edges[:-1], edges[1:]
    owner, part = np.full(len(at), UNKNOWN), np.full(len(at), UNKNOWN)
    for number, (number_of, begins, ends) in enumerate(layers):
        if not len(begins):
            continue
        near = np.searchsorted(begins, at, side="right") - 1
        covered = (near >= 0) & (ends[near] >= until) & (owner == UNKNOWN)
        owner[covered], part[covered] = number_of[near[covered]], number
    order = np.argsort(start, kind="stable")
    after = np.searchsorted(start[order], at, side="left")
    lengths = (until - at).tolist()
    for number, (who, layer) in enumerate(zip(owner.tolist(), part.tolist(), strict=True)):
        if who == UNKNOWN:
            if after[number] < len(own):
                follower = int(own[order[after[number]]])
                yield _gap(events, follower, int(at[number]), keys), lengths[number]
            elif until[number] <= busy:
                yield (StepPart.WAITING, "other ranks at the end of the step", ""), lengths[number]
            else:
                yield (StepPart.GAPS, "host, before the next step", ""), lengths[number]
        elif _LAYERS[layer] is StepPart.WAITING:
            yield (StepPart.WAITING, keys[who][1], ""), lengths[number]
        else:
            yield keys[who], lengths[number]


def _pieces(own: Ints, start: Ints, end: Ints, chosen: Ints) -> tuple[Ints, Ints, Ints]:
    """Operations, and parts of their times that do not overlap: the first to start is counted."""
    numbers, begins, ends = own[chosen], start[chosen], end[chosen]
    order = np.argsort(begins, kind="stable")
    numbers, begins, ends = numbers[order], begins[order], ends[order]
    if len(ends):
        before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(ends)[:-1]])
        begins = np.maximum(begins, before)
    kept = ends > begins
    return numbers[kept], begins[kept], ends[kept]


def _gap(events: Events, follower: int, begin: int, keys: Sequence[_Key]) -> _Key:
    """The row of a gap, by the operation that ends it: the host launched it too late, or did not.

    An operation whose launch nobody recorded was launched when it started.
    """
    launch = int(events.launch_ps[follower])
    if 0 <= launch <= begin:
        return StepPart.GAPS, f"before {UNSAID}", ""
    part, name, _ = keys[follower]
    return StepPart.GAPS, f"host, before {name if part is StepPart.COMPUTE else part.value}", ""


def _keys(profile: Profile, works: Sequence[KernelWork | None], recording: Recording) -> list[_Key]:
    """The row of every operation while it shows."""
    events = profile.events
    columns = (events.kind, events.name, events.group, events.phase, events.size_bytes)
    rows = zip(*(column.tolist() for column in columns), works, strict=True)
    keys = []
    for kind, name, group, phase, size, work in rows:
        if work is not None:
            keys.append(_compute_key(work, phase, recording))
        elif kind == TaskKind.COPY:
            keys.append((StepPart.COPIES, "copies of memory", ""))
        elif kind == TaskKind.COLLECTIVE:
            ranks = profile.groups[group].ranks if group != UNKNOWN else ()
            keys.append(_collective_key(profile.names[name], ranks, size, recording))
        else:
            item = format_size_bytes(size) if size > 0 else ""
            keys.append((StepPart.COMMUNICATION, MESSAGES, item))
    return keys


def _compute_key(work: KernelWork, phase: int, recording: Recording) -> _Key:
    if recording.phases:
        return StepPart.COMPUTE, _PHASES.get(TaskPhase(phase), "backward"), ""
    if not (recording.sides and work.sides):
        return StepPart.COMPUTE, work.work.value, ""
    sides = " x ".join(map(str, work.sides))
    called = recording.called.get(work.sides, "")
    return StepPart.COMPUTE, work.work.value, f"{sides} ({called})" if called else sides


def _collective_key(name: str, ranks: tuple[int, ...], size: int, recording: Recording) -> _Key:
    kind = kind_of(name)
    if kind == "send_recv" and recording.exchanged:
        kind = recording.exchanged
    if recording.groups is not None and ranks:
        label = recording.groups.get(ranks, "")
        kind = f"{kind} of {label} {len(ranks)}" if label else f"{kind} of {len(ranks)} ranks"
    return StepPart.COMMUNICATION, kind, format_size_bytes(size) if size > 0 else ""
