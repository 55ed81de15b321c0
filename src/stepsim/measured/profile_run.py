"""A profile as a measured run: the stage times that other schedules are asked with.

One step is read, the one of median length. What runs beside forwards, backwards and messages counts
as far as nothing of these hides it, and follows the pipeline, as in traces of Megatron.
"""

import re
from collections.abc import Mapping, Sequence, Sized
from typing import Self

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Bools, Ints
from stepsim.base.structs import replace
from stepsim.measured.clocks import DEFAULT_NODE_SIZE, Clocks, Transfers
from stepsim.measured.profile.actions import Actions, pipeline_actions
from stepsim.measured.profile.events import Events, Profile
from stepsim.measured.recognise import recorded_schedule
from stepsim.measured.run import Degrees, InnerOps, OpKind, fused_exchanges, times_hash
from stepsim.measured.run_profile import MEANINGS, RunProfile, meant
from stepsim.measured.summary import RankTimes, RunSummary, summary_of, traced_actions
from stepsim.tables.spans import UNKNOWN, TaskKind, TaskPhase

_NUMBERS = re.compile(r"\b\d+\b|\d+$")
"""Numbers in the name of a group, which tell it from those of other ranks."""
_FEW_NAMES = 4
"""So many names of kernels outside of actions are shown one by one."""
_MESSAGES = {
    (TaskKind.SEND, True): OpKind.SEND_FORWARD,
    (TaskKind.RECV, True): OpKind.RECV_FORWARD,
    (TaskKind.SEND, False): OpKind.SEND_BACKWARD,
    (TaskKind.RECV, False): OpKind.RECV_BACKWARD,
}
_IDLE = "idle"
"""What time after the pipeline is called in which nothing runs: the host has not launched it."""
_OPTIMIZER = "optimizer"
"""What kernels of no action are called together, where they have several names."""


def run_of_profile(profile: Profile, *, node_size: int | None = None) -> RunSummary:
    """The stage times of a profile, with its messages and what follows the pipeline.

    `node_size` is the ranks per node where the profile does not tell it, 8 without it. Raises
    TraceError that names what was not recorded.
    """
    step, notes = _typical_step(profile)
    found = pipeline_actions(step)
    notes += [f"{profile.source}: stage times: {found.how}"] if found.how else []
    step, numbers = _numbered(step, found)
    own = _own_start_ps(step.events)
    others = _other_names(step, found)
    parts = [_rank_columns(step, found, place, own, others) for place in range(len(step.ranks))]
    columns = {key: np.concatenate([part[key] for part, _ in parts]) for key in parts[0][0]}
    events = Events.of(len(columns["rank"]), **columns)
    labels = [label for _, names in parts for label in names]
    size = node_size or _node_size(step) or DEFAULT_NODE_SIZE
    ranks = tuple(
        replace(place, rank=number, stage=stage, node=number // size, clock=place.clock)
        for place, number, stage in zip(step.ranks, numbers, found.stages, strict=True)
    )
    run = RunProfile(
        degrees=_degrees(step, found, events),
        profile=replace(
            step,
            ranks=ranks,
            names=MEANINGS,
            events=events,
            follows=None,
            marks=(),
            warnings=(*step.warnings, *notes),
        ),
        inner=_no_inner(),
        others={i: label for i, label in enumerate(labels) if label},
        traces=tuple(_fingerprint(step, place) for place in range(len(ranks))),
    )
    clocks = Clocks(
        offset_ps=np.zeros(len(ranks), dtype=np.int64),
        node=np.array([rank.node for rank in ranks], dtype=np.int64),
        node_size=size,
        residual_ps=0,
    )
    times = tuple(_rank_times(step, found, run, place) for place in range(len(ranks)))
    summary = summary_of(run, clocks, _transfers(run), times)
    return replace(summary, schedule=summary.schedule or recorded_schedule(run))


def _typical_step(profile: Profile) -> tuple[Profile, list[str]]:
    """The step of median length alone, and that it was chosen."""
    if len(profile.steps) == 1:
        return profile, []
    times = profile.step_times_ps()
    chosen = profile.steps[int(np.argsort(times, kind="stable")[(len(times) - 1) // 2])]
    note = f"{profile.source}: holds {len(profile.steps)} steps: step {chosen} is used, the median"
    return profile.of_steps(chosen), [note]


def _numbered(step: Profile, found: Actions) -> tuple[Profile, list[int]]:
    """Numbers of the ranks, stage by stage; their own where all stages are as wide in turn."""
    own, stages = [rank.rank for rank in step.ranks], found.stages
    first = [min(n for n, at in zip(own, stages, strict=True) if at == s) for s in set(stages)]
    width = (step.world or 0) // found.pp or (
        sorted(first)[1] - min(first) if len(first) > 1 else max(own) + 1
    )
    if all(number // width == at for number, at in zip(own, stages, strict=True)):
        return replace(step, world=width * found.pp), own
    counts = [stages[:place].count(at) for place, at in enumerate(stages)]
    width = max(stages.count(at) for at in set(stages))
    return replace(step, world=width * found.pp), [
        at * width + count for at, count in zip(stages, counts, strict=True)
    ]


def _own_start_ps(events: Events) -> Ints:
    """When operations began but for waiting: a collective once its last traced member is there."""
    start = events.start_ps.copy()
    met = np.flatnonzero((events.meeting != UNKNOWN) & events.of_kind(TaskKind.COLLECTIVE))
    if len(met):
        last = np.zeros(int(events.meeting[met].max()) + 1, dtype=np.int64)
        np.maximum.at(last, events.meeting[met], start[met])
        start[met] = np.minimum(last[events.meeting[met]], events.end_ps[met])
    return start


class _Busy(Struct, frozen=True, kw_only=True, eq=False):
    """Intervals of time that do not touch, in order; `before` is the time in those before each."""

    start: Ints
    end: Ints
    before: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints) -> Self:
        """The intervals that some others cover together."""
        order = np.argsort(start, kind="stable")
        start, end = start[order], np.maximum.accumulate(end[order])
        new = np.append(np.ones(1, dtype=np.bool_), start[1:] > end[:-1])[: len(start)]
        start, end = start[new], end[np.append(new[1:], np.ones(1, dtype=np.bool_))[: len(end)]]
        return cls(start=start, end=end, before=np.cumsum(end - start) - (end - start))

    def within(self, start: Ints, end: Ints) -> Ints:
        """How much of other intervals they cover, in ps."""
        return self._until(end) - self._until(start)

    def _until(self, times: Ints) -> Ints:
        if not len(self.start):
            return np.zeros(len(times), dtype=np.int64)
        place = np.searchsorted(self.start, times, side="right") - 1
        inside = np.minimum(times, self.end[place]) - self.start[place]
        return np.asarray(np.where(place < 0, 0, self.before[place] + inside), dtype=np.int64)


class _After(Struct, frozen=True, kw_only=True):
    """What runs outside of actions and messages is called, and whether it communicates."""

    text: str
    communicates: bool = False


def _rank_columns(
    step: Profile, found: Actions, place: int, own: Ints, others: "Sequence[Mapping[int, _After]]"
) -> tuple[dict[str, Ints], list[str]]:
    """A rank's actions and messages in order of start, then what follows the pipeline, with labels.

    `own` is when the operations of the profile began but for waiting, `others` are those of each
    rank that are no part of actions.
    """
    acts = np.flatnonzero(found.rank == place)
    sent = _messages(step.events, place)
    after = _after_ps(step, found, place, own, others)
    pipeline_end = int(max(found.end_ps[acts].max(), step.events.end_ps[sent].max(initial=0)))
    lasts = np.array([*after.values()], dtype=np.int64)
    ends = pipeline_end + np.cumsum(lasts)
    kinds = [_after_kind(name) for name in after]
    messages = _message_kinds(step, found, place, sent)
    number, chunk = _of_messages(step, found, place, sent, messages)
    columns = {
        "name": (found.kind[acts], messages, kinds),
        "start_ps": (found.start_ps[acts], step.events.start_ps[sent], ends - lasts),
        "end_ps": (found.end_ps[acts], step.events.end_ps[sent], ends),
        "microbatch": (found.microbatch[acts], number, _unknown(after)),
        "chunk": (found.stage[acts], chunk, _unknown(after)),
        "size_bytes": (_unknown(acts), step.events.size_bytes[sent], _unknown(after)),
        "peer": (_unknown(acts), step.events.peer[sent], _unknown(after)),
        "meeting": (_unknown(acts), step.events.meeting[sent], _unknown(after)),
        "group": (_unknown(acts), _unknown(sent), _groups(step, others[place], [*after])),
    }
    whole = {
        name: np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        for name, parts in columns.items()
    }
    count, timed = len(whole["name"]), len(acts) + len(sent)
    order = np.arange(count)
    order[:timed] = np.lexsort((whole["end_ps"][:timed], whole["start_ps"][:timed]))
    whole = {name: column[order] for name, column in whole.items()}
    whole["rank"] = np.full(count, place, dtype=np.int64)
    whole["step"] = np.zeros(count, dtype=np.int64)
    whole |= meant(whole["name"])
    whole["order"] = np.arange(count, dtype=np.int64)
    return whole, [*[""] * timed, *(name.text for name in after)]


def _after_kind(name: _After) -> OpKind:
    """What follows the pipeline: what communicates, the optimizer, or what only has a name."""
    if name.communicates:
        return OpKind.COLLECTIVE
    return OpKind.OPTIMIZER if name.text == _OPTIMIZER else OpKind.OTHER


def _groups(step: Profile, named: Mapping[int, _After], after: Sequence[_After]) -> list[int]:
    """The group of the first operation of each name on a rank, by its place in the profile's."""
    first: dict[_After, int] = {}
    for i, name in named.items():
        first.setdefault(name, int(step.events.group[i]))
    return [first.get(name, UNKNOWN) for name in after]


def _unknown(like: Sized) -> Ints:
    """A column of unknown values."""
    return np.full(len(like), UNKNOWN, dtype=np.int64)


def _messages(events: Events, place: int) -> Ints:
    """Places of a rank's messages."""
    return np.flatnonzero((events.rank == place) & events.of_kind(TaskKind.SEND, TaskKind.RECV))


def _message_kinds(step: Profile, found: Actions, place: int, sent: Ints) -> list[OpKind]:
    """What messages are: by their phase where it is told, else by where their other end lies."""
    events, kinds = step.events, []
    for i in sent.tolist():
        kind, phase = TaskKind(int(events.kind[i])), int(found.phases[i])
        peer = int(events.peer[i])
        away = found.stages[peer] - found.stages[place] if peer != UNKNOWN else 0
        ahead = found.stages[place] < found.pp - 1 if not away else away > 0
        forward = (
            phase == TaskPhase.FORWARD if phase != UNKNOWN else ahead is (kind == TaskKind.SEND)
        )
        kinds.append(_MESSAGES[kind, forward])
    return kinds


def _of_messages(
    step: Profile, found: Actions, place: int, sent: Ints, kinds: Sequence[OpKind]
) -> tuple[Ints, Ints]:
    """Microbatch and virtual stage of a rank's messages: those of its actions, in order.

    A stage at an end has no message there. Where there is not one message for each action that
    has some, the microbatch is as it was recorded, and the stage the rank's.
    """
    number, chunk = step.events.microbatch[sent], np.full(len(sent), found.stages[place])
    last = found.pp * found.chunks - 1
    for kind, (action, end) in {
        OpKind.SEND_FORWARD: (OpKind.FORWARD, last),
        OpKind.RECV_FORWARD: (OpKind.FORWARD, 0),
        OpKind.SEND_BACKWARD: (OpKind.BACKWARD, 0),
        OpKind.RECV_BACKWARD: (OpKind.BACKWARD, last),
    }.items():
        acts = (found.rank == place) & (found.kind == action) & (found.stage != end)
        mine, own = np.flatnonzero(np.equal(kinds, kind)), np.flatnonzero(acts)
        if len(mine) == len(own):
            mine = mine[np.argsort(step.events.start_ps[sent[mine]], kind="stable")]
            own = own[np.argsort(found.start_ps[own], kind="stable")]
            number[mine], chunk[mine] = found.microbatch[own], found.stage[own]
    return number, chunk


def _after_ps(
    step: Profile,
    found: Actions,
    place: int,
    own: Ints,
    named: Sequence[Mapping[int, _After]],
) -> dict[_After, int]:
    """Time of a rank outside of actions and messages, by what it runs: nothing is counted twice.

    All ranks of a stage have the same names, in order. Time in which nothing runs after the
    pipeline is the host's.
    """
    names: dict[_After, int] = {}
    for rank, stage in enumerate(found.stages):
        if stage == found.stages[place]:
            names |= dict.fromkeys(named[rank].values(), 0)
    events = step.events
    others = np.array([*named[place]], dtype=np.int64)
    if not len(others):
        return names
    acts, sent = np.flatnonzero(found.rank == place), _messages(events, place)
    starts = np.concatenate([found.start_ps[acts], events.start_ps[sent]])
    ends = np.concatenate([found.end_ps[acts], events.end_ps[sent]])
    busy, lasts = _Busy.of(starts, ends), events.end_ps[others]
    before = np.maximum.accumulate(lasts)
    start = np.maximum(own[others], np.append(own[others[:1]], before[:-1]))
    start = np.minimum(start, lasts)
    exposed = lasts - start - busy.within(start, lasts)
    for name, took in zip(named[place].values(), exposed.tolist(), strict=True):
        names[name] += took
    all_busy = _Busy.of(np.append(starts, events.start_ps[others]), np.append(ends, lasts))
    first, last = np.array([ends.max()]), np.array([max(ends.max(), lasts.max())])
    idle = int(last[0] - first[0] - all_busy.within(first, last)[0])
    return names | {_After(text=_IDLE): idle}


def _other_names(step: Profile, found: Actions) -> list[dict[int, _After]]:
    """Operations of each rank that are no part of actions, by their start, and their names.

    Kernels that have many names are the optimizer's together.
    """
    events = step.events
    collective = events.of_kind(TaskKind.COLLECTIVE)
    which = events.of_kind(TaskKind.COMPUTE, TaskKind.COPY) | collective
    which &= found.holds == UNKNOWN
    every = np.flatnonzero(which)
    every = every[np.lexsort((events.start_ps[every], events.rank[every]))]
    ends = np.searchsorted(events.rank[every], np.arange(len(step.ranks)), side="right")
    parts = np.split(every, ends[:-1])
    return [_called(step, places, collective[places]) for places in parts]


def _called(step: Profile, places: Ints, collective: Bools) -> dict[int, _After]:
    events = step.events
    few = len({*events.name[places[~collective]].tolist()}) <= _FEW_NAMES
    told = {}
    for i, communicates in zip(places.tolist(), collective.tolist(), strict=True):
        name, group = step.names[events.name[i]], int(events.group[i])
        if communicates and group != UNKNOWN:
            name = " ".join([name, *_NUMBERS.sub(" ", step.groups[group].name).split()])
        own = name if few or communicates else _OPTIMIZER
        told[i] = _After(text=own, communicates=communicates)
    return told


def _rank_times(step: Profile, found: Actions, run: RunProfile, place: int) -> RankTimes:
    """Where the time of the rank at a place went: the host's is that in which nothing runs."""
    events, rank = step.events, run.ranks[place]
    acts, sent = np.flatnonzero(found.rank == place), _messages(events, place)
    ran = np.flatnonzero((events.rank == place) & (events.kind != TaskKind.HOST))
    start = int(events.start_ps[ran].min())
    end = int(max(found.end_ps[acts].max(), events.end_ps[sent].max(initial=0)))
    busy = _Busy.of(
        np.concatenate([found.start_ps[acts], events.start_ps[ran]]),
        np.concatenate([found.end_ps[acts], events.end_ps[ran]]),
    )
    bounds = np.array([start], dtype=np.int64), np.array([end], dtype=np.int64)
    waits = _Busy.of(events.start_ps[sent], events.end_ps[sent])
    own = run.of_rank(place)
    return RankTimes(
        rank=rank.rank,
        stage=found.stages[place],
        pipeline_ps=end - start,
        step_ps=int(events.end_ps[ran].max()) - start,
        work_ps=int((found.end_ps[acts] - found.start_ps[acts]).sum()),
        host_ps=end - start - int(busy.within(*bounds)[0]),
        wait_ps=int((waits.end - waits.start).sum()),
        actions=max(traced_actions(own), 1),
    )


def _transfers(run: RunProfile) -> Transfers:
    """Messages whose both ends were recorded on one clock."""
    events, ranks = run.profile.events, run.ranks
    both = fused_exchanges(events.name, events.start_ps, events.end_ps)
    both[:-1] |= both[1:]
    sends = np.flatnonzero(np.isin(events.name, (OpKind.SEND_FORWARD, OpKind.SEND_BACKWARD)))
    receives = np.flatnonzero(np.isin(events.name, (OpKind.RECV_FORWARD, OpKind.RECV_BACKWARD)))
    sends = sends[events.meeting[sends] != UNKNOWN]
    _, left, right = np.intersect1d(
        events.meeting[sends], events.meeting[receives], return_indices=True
    )
    sent, received = sends[left], receives[right]
    clock, node, number = (
        np.array([getattr(rank, name) for rank in ranks]) for name in ("clock", "node", "rank")
    )
    alike = clock[events.rank[sent]] == clock[events.rank[received]]
    sent, received = sent[alike], received[alike]
    source, target = events.rank[sent], events.rank[received]
    posted = np.maximum(events.start_ps[sent], events.start_ps[received])
    ended = (events.end_ps[sent] + events.end_ps[received]) // 2
    return Transfers(
        source=number[source],
        target=number[target],
        size_bytes=events.size_bytes[sent],
        duration_ps=np.maximum(ended - posted, 0),
        both_ways=both[sent] & both[received],
        intra_node=node[source] == node[target],
    )


def _degrees(step: Profile, found: Actions, events: Events) -> Degrees:
    """The shape of the run, as far as a profile tells it."""
    message = events.size_bytes[np.isin(events.name, [*_MESSAGES.values()])]
    width = (step.world or 1) // found.pp
    dp = _copies(step, found, width)
    return Degrees(
        pp=found.pp,
        microbatches=int(found.microbatch.max()) + 1,
        npus=step.world,
        tp=None if dp is None else width // dp,
        dp=dp,
        message_bytes=int(np.median(message[message > 0])) if (message > 0).any() else 0,
    )


def _copies(step: Profile, found: Actions, width: int) -> int | None:
    """Ranks of the largest group that communicates beside actions: a part of a stage's `width`."""
    beside = step.events.of_kind(TaskKind.COLLECTIVE) & (found.holds == UNKNOWN)
    groups = np.unique(step.events.group[beside & (step.events.group != UNKNOWN)])
    sizes = [len(step.groups[group].ranks) for group in groups.tolist()]
    return max((size for size in sizes if size > 1 and width % size == 0), default=None)


def _node_size(step: Profile) -> int | None:
    """Ranks of a node where the profile tells the nodes of at least two."""
    nodes = [rank.node for rank in step.ranks if rank.node is not None]
    return max(map(nodes.count, nodes)) if len(set(nodes)) > 1 else None


def _fingerprint(step: Profile, place: int) -> str:
    """Tells the trace of a rank from others, whatever its file is called."""
    events = step.events.taken(np.flatnonzero(step.events.rank == place))
    return times_hash(events.kind, events.start_ps, events.end_ps)


def _no_inner() -> InnerOps:
    """Collectives inside of actions are not told apart."""
    none = np.zeros(0, dtype=np.int64)
    return InnerOps(
        parent=none, kind=none.astype(np.int8), duration_ps=none, size_bytes=none, rows=none
    )
