"""A profile as a measured run: the stage times that other schedules are asked with.

One step is read, the one of median length. What runs beside forwards, backwards and messages counts
as far as nothing of these hides it, and follows the pipeline, as in traces of Megatron.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from stepsim.base.arrays import Ints, among, bins, distinct, ints, median_place, places_by
from stepsim.base.structs import Noun, replace
from stepsim.measured.clocks import DEFAULT_NODE_SIZE, Clocks
from stepsim.measured.profile.actions import Actions, pipeline_actions
from stepsim.measured.profile.busy import Busy
from stepsim.measured.profile.events import Events, Profile, complete_ps, counted
from stepsim.measured.recognise import recorded_schedule
from stepsim.measured.run import (
    HOST_IDLE,
    MESSAGE_KINDS,
    Degrees,
    OpKind,
    times_hash,
)
from stepsim.measured.run_profile import (
    AHEAD,
    MEANINGS,
    after_pipeline,
    meant,
    sent_and_received,
)
from stepsim.measured.summary import RankTimes, RunSummary, rank_times, summary_of
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase

# Numbers in the name of a group, which tell it from those of other ranks.
_NUMBERS = re.compile(r"\b\d+\b|\d+$")
# So many names of kernels outside of actions are shown one by one.
_FEW_NAMES = 4
# The neighbour of a virtual stage at an end of the pipeline.
_NOBODY = -2
# What kernels of no action are together, where they have several names.
_OPTIMIZER = OpKind.OPTIMIZER, "optimizer_step"


def run_of_profile(profile: Profile, *, node_size: int | None = None) -> RunSummary:
    """The stage times of a profile, with its messages and what follows the pipeline.

    `node_size` is the ranks per node where the profile does not tell it, 8 without it. Raises
    TraceError that names what was not recorded.
    """
    step, notes = _typical_step(profile)
    found = pipeline_actions(step)
    notes += [f"{profile.source}: stage times: {found.how}"] if found.how else []
    step, numbers = _numbered(step, found)
    size = node_size or _node_size(step) or DEFAULT_NODE_SIZE
    every = _ran(step, found)
    times = (step.events.kind, step.events.start_ps, step.events.end_ps)
    ranks = tuple(
        replace(
            rank,
            rank=number,
            stage=found.stages[ran.place],
            node=number // size,
            trace=times_hash(*(column[ran.every] for column in times)),
        )
        for rank, number, ran in zip(step.ranks, numbers, every, strict=True)
    )
    step = replace(step, ranks=ranks, warnings=(*step.warnings, *notes))
    run = _run(step, found, every)
    degrees = _degrees(step, found, run.events)
    clocks = Clocks(node_size=size, residual_ps=0)
    of_ranks = tuple(_rank_times(step, run, ran) for ran in every)
    sent, received = sent_and_received(run.events)
    clock = run.column_of_ranks("clock")
    alike = clock[sent] == clock[received]  # times of other messages cannot be compared
    summary = summary_of(run, degrees, clocks, (sent[alike], received[alike]), of_ranks)
    return replace(summary, schedule=summary.schedule or recorded_schedule(run, degrees))


class _Ran(Noun, eq=False):
    """What the rank at a place ran: its actions, its messages and all its operations, ascending.

    `busy` is when it is in an action or a message.
    """

    place: int
    acts: Ints
    sent: Ints
    every: Ints
    busy: Busy


def _run(step: Profile, found: Actions, every: Sequence[_Ran]) -> Profile:
    """The stage times of a step as a run."""
    timed = _timed(step, found, every)
    after, labels = _following(step, found, every)
    both = Events.joined(timed, after)
    both = both.taken(np.argsort(both.rank, kind="stable"))
    none = np.zeros(len(both), np.int64)
    events = replace(both, step=none, order=counted(both.rank), **meant(both.name))
    return replace(
        step,
        names=MEANINGS,
        events=events,
        follows=None,
        marks=(),
        labels=dict(zip(np.flatnonzero(after_pipeline(events)).tolist(), labels, strict=True)),
    )


def _typical_step(profile: Profile) -> tuple[Profile, list[str]]:
    """The step of median length alone, and that it was chosen."""
    if len(profile.steps) == 1:
        return profile, []
    chosen = profile.steps[median_place(profile.step_times_ps())]
    note = f"{profile.source}: holds {len(profile.steps)} steps: step {chosen} is used, the median"
    return profile.of_steps(chosen), [note]


def _numbered(step: Profile, found: Actions) -> tuple[Profile, list[int]]:
    """Numbers of the ranks, stage by stage; their own where all stages are as wide in turn."""
    own, stages = [rank.rank for rank in step.ranks], found.stages
    first = [min(n for n, at in zip(own, stages, strict=True) if at == s) for s in set(stages)]
    width = (step.world or 0) // found.pp or (
        sorted(first)[1] - min(first) if len(first) > 1 else bins(ints(own))
    )
    if all(number // width == at for number, at in zip(own, stages, strict=True)):
        return replace(step, world=width * found.pp), own
    counts = [stages[:place].count(at) for place, at in enumerate(stages)]
    width = bins(ints(counts))
    return replace(step, world=width * found.pp), [
        at * width + count for at, count in zip(stages, counts, strict=True)
    ]


# What runs outside of actions and messages: its kind, and what it is called.
_After = tuple[OpKind, str]


def _ran(step: Profile, found: Actions) -> list[_Ran]:
    """What every rank ran."""
    events, is_message, ran = step.events, step.events.is_message, list[_Ran]()
    pairs = zip(places_by(found.run.rank, len(step.ranks)), step.places_of_ranks(), strict=True)
    for place, (acts, every) in enumerate(pairs):
        sent = every[is_message[every]]
        starts = np.concatenate([found.run.start_ps[acts], events.start_ps[sent]])
        ends = np.concatenate([found.run.end_ps[acts], events.end_ps[sent]])
        busy = Busy.of(starts, ends)
        ran.append(_Ran(place=place, acts=acts, sent=sent, every=every, busy=busy))
    return ran


def _timed(step: Profile, found: Actions, ran: Sequence[_Ran]) -> Events:
    """Actions and messages of all ranks, rank by rank in order of start."""
    events, kinds = step.events, _message_kinds(step, found)
    sent = np.flatnonzero(events.is_message)
    microbatch, chunk = _of_messages(step, found, ran, kinds)
    names = ("rank", "start_ps", "end_ps", "size_bytes", "peer", "meeting")
    told = {name: getattr(events, name)[sent] for name in names}
    told |= {"name": kinds[sent], "microbatch": microbatch[sent], "chunk": chunk[sent]}
    both = Events.joined(found.run, Events.of(len(sent), **told))
    return both.taken(np.lexsort((both.end_ps, both.start_ps, both.rank)))


def _following(step: Profile, found: Actions, ran: Sequence[_Ran]) -> tuple[Events, list[str]]:
    """What follows the pipeline on each rank, one after the other, and what each is called.

    All ranks of a stage have the same names, in order. The group is that of the first operation of
    a name.
    """
    events = step.events
    meets = events.of_kind(TaskKind.COLLECTIVE)
    own = np.where(meets, complete_ps(events), events.start_ps)
    others = [_others(step, found, each.every) for each in ran]
    idle = OpKind.OTHER, HOST_IDLE  # first: the trace of a step ends with what it runs last
    of_stage = {stage: {idle: 0} for stage in found.stages}
    for stage, named in zip(found.stages, others, strict=True):
        of_stage[stage] |= dict.fromkeys(named.values(), 0)
    rows, labels = list[tuple[int, ...]](), list[str]()
    for each, stage, named in zip(ran, found.stages, others, strict=True):
        group = {name: int(events.group[i]) for i, name in reversed([*named.items()])}
        begin = int(each.busy.end_ps[-1])
        times = of_stage[stage] | _after_ps(events, each, own, named)
        for (kind, text), lasts in times.items():
            known = group.get((kind, text), UNKNOWN)
            rows.append((each.place, kind, known, begin, begin + lasts))
            labels.append(text)
            begin += lasts
    names = ("rank", "name", "group", "start_ps", "end_ps")
    columns = ints(rows).reshape(-1, len(names)).T
    return Events.of(len(rows), **dict(zip(names, columns, strict=True))), labels


def _message_kinds(step: Profile, found: Actions) -> Ints:
    """The `OpKind` of every message: by its phase where it is told, else by where its peer lies.

    Of an operation that is no message the number means nothing.
    """
    events, stages = step.events, np.array(found.stages)
    own = stages[events.rank]
    away = np.where(events.peer == UNKNOWN, 0, stages[events.peer] - own)
    ahead = np.where(away == 0, own < found.pp - 1, away > 0)
    sends, told = events.kind == TaskKind.SEND, found.phases != UNKNOWN
    forward = np.where(told, found.phases == TaskPhase.FORWARD, ahead == sends)
    ways = (sends & forward, ~sends & forward, sends & ~forward)
    return np.select(ways, MESSAGE_KINDS[:-1], MESSAGE_KINDS[-1])


def _of_messages(
    step: Profile, found: Actions, ran: Sequence[_Ran], kinds: Ints
) -> tuple[Ints, Ints]:
    """Microbatch and virtual stage of messages: those of the actions of their rank, in order.

    Chunks that lie down and up again talk to either neighbour: a message is of those that talk to
    its peer, where it is known. A stage at an end has no message there, nor one whose neighbour is
    on its rank. Where there is not one message for each action that has some, the microbatch is as
    it was recorded, and the stage the rank's.
    """
    events, run, stages = step.events, found.run, np.array([*found.stages, UNKNOWN])
    number, chunk, peer = events.microbatch.copy(), stages[events.rank], stages[events.peer]
    # the pipeline stage of every virtual one; none comes before the first and after the last
    held = np.full(found.pp * found.chunks + 1, UNKNOWN)
    held[run.chunk], held[-1] = stages[run.rank], _NOBODY
    forwards = OpKind.SEND_FORWARD, OpKind.RECV_FORWARD
    for each, (kind, ahead) in product(ran, AHEAD.items()):
        action = OpKind.FORWARD if kind in forwards else OpKind.BACKWARD
        acts = run.in_time(each.acts[run.name[each.acts] == action])
        other = held[run.chunk[acts] + ahead]
        talks = (other != _NOBODY) & (other != found.stages[each.place])
        sent = events.in_time(each.sent[kinds[each.sent] == kind])
        known = (peer[sent] != UNKNOWN).all()
        for at in distinct(peer[sent]).tolist() if known else [UNKNOWN]:
            mine = sent[(peer[sent] == at) | (not known)]
            own = acts[talks & ((other == at) | (not known))]
            if len(mine) == len(own):
                number[mine], chunk[mine] = run.microbatch[own], run.chunk[own]
    return number, chunk


def _after_ps(
    events: Events, ran: _Ran, own: Ints, named: Mapping[int, _After]
) -> dict[_After, int]:
    """Time of a rank outside of actions and messages, by what it runs: nothing is counted twice.

    `own` is when the operations of the profile began but for waiting, `named` are the rank's that
    are no part of actions. Time in which nothing runs after the pipeline is the host's.
    """
    if not named:
        return {}
    others, times = ints([*named]), dict.fromkeys(named.values(), 0)
    busy, lasts = ran.busy, events.end_ps[others]
    before = np.maximum.accumulate(lasts)
    start = np.maximum(own[others], np.append(own[others[:1]], before[:-1]))
    start = np.minimum(start, lasts)
    exposed = lasts - start - busy.within(start, lasts)
    for name, took in zip(named.values(), exposed.tolist(), strict=True):
        times[name] += took
    all_busy = Busy.of(
        np.append(busy.start_ps, events.start_ps[others]), np.append(busy.end_ps, lasts)
    )
    first = busy.end_ps[-1:]
    last = np.maximum(first, lasts.max())
    idle = int(last[0] - first[0] - all_busy.within(first, last)[0])
    return times | {(OpKind.OTHER, HOST_IDLE): idle}


def _others(step: Profile, found: Actions, own: Ints) -> dict[int, _After]:
    """Those of a rank's operations that are no part of actions, by their start, and their names.

    Kernels that have many names are the optimizer's together.
    """
    events = step.events
    which = among(events.kind[own], (TaskKind.COMPUTE, TaskKind.COPY, TaskKind.COLLECTIVE))
    places = events.in_time(own[which & (found.holds[own] == UNKNOWN)])
    collective = events.kind[places] == TaskKind.COLLECTIVE
    few = len({*events.name[places[~collective]].tolist()}) <= _FEW_NAMES
    told = {}
    for i, communicates in zip(places.tolist(), collective.tolist(), strict=True):
        name, group = step.names[events.name[i]], int(events.group[i])
        if communicates and group != UNKNOWN:
            name = " ".join([name, *_NUMBERS.sub(" ", step.groups[group].name).split()])
        if communicates or (few and name != "optimizer"):
            told[i] = OpKind.COLLECTIVE if communicates else OpKind.OTHER, name
        else:
            told[i] = _OPTIMIZER
    return told


def _rank_times(step: Profile, run: Profile, ran: _Ran) -> RankTimes:
    """Where a rank's time went: the host's is that in which nothing runs.

    A message that runs beside an action is waited for only when that has ended.
    """
    told, events = rank_times(run, ran.place), step.events
    busy_with = ran.every[events.kind[ran.every] != TaskKind.HOST]
    start, end = int(events.start_ps[busy_with].min()), int(ran.busy.end_ps[-1])
    busy = Busy.of(
        np.append(ran.busy.start_ps, events.start_ps[busy_with]),
        np.append(ran.busy.end_ps, events.end_ps[busy_with]),
    )
    return replace(
        told,
        pipeline_ps=end - start,
        step_ps=int(events.end_ps[busy_with].max()) - start,
        host_ps=end - start - int(busy.within(ints([start]), ints([end]))[0]),
        wait_ps=ran.busy.whole_ps - told.work_ps,
    )


def _degrees(step: Profile, found: Actions, events: Events) -> Degrees:
    """The shape of the run, as far as a profile tells it.

    The largest group that communicates beside actions, a part of a stage, holds its replicas.
    """
    message = events.size_bytes[among(events.name, MESSAGE_KINDS)]
    width = (step.world or 1) // found.pp
    beside = step.events.of_kind(TaskKind.COLLECTIVE) & (found.holds == UNKNOWN)
    groups = distinct(step.events.group[beside & (step.events.group != UNKNOWN)]).tolist()
    sizes = (len(step.groups[group].ranks) for group in groups)
    dp = max((size for size in sizes if size > 1 and width % size == 0), default=None)
    return Degrees(
        pp=found.pp,
        microbatches=bins(found.run.microbatch),
        npus=step.world,
        tp=None if dp is None else width // dp,
        dp=dp,
        message_bytes=int(np.median(message[message > 0])) if (message > 0).any() else 0,
    )


def _node_size(step: Profile) -> int | None:
    """Ranks of a node where the profile tells the nodes of at least two."""
    nodes = [rank.node for rank in step.ranks if rank.node is not None]
    return max(map(nodes.count, nodes)) if len(set(nodes)) > 1 else None
