"""A profile as a measured run: the stage times that other schedules are asked with.

One step is read, the one of median length. What runs beside forwards, backwards and messages counts
as far as nothing of these hides it, and follows the pipeline, as in traces of Megatron.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from stepsim.base.arrays import Ints, among, bins, distinct, ints, median_place, places_by
from stepsim.base.structs import replace
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
# Columns of messages that those of a run have, too.
_OF_MESSAGES = (
    *("rank", "start_ps", "end_ps", "size_bytes", "peer", "meeting"),
    *("name", "microbatch", "chunk"),
)
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
    every = step.places_of_ranks()
    times = (step.events.kind, step.events.start_ps, step.events.end_ps)
    ranks = tuple(
        replace(
            rank,
            rank=number,
            stage=stage,
            node=number // size,
            trace=times_hash(*(column[own] for column in times)),
        )
        for rank, number, stage, own in zip(step.ranks, numbers, found.stages, every, strict=True)
    )
    step = replace(step, ranks=ranks, warnings=(*step.warnings, *notes))
    timed = _timed(step, found)
    in_pipeline = places_by(timed.rank, len(ranks))
    busy = [Busy.of(timed.start_ps[own], timed.end_ps[own]) for own in in_pipeline]
    run = _run(step, found, timed, busy)
    degrees = _degrees(step, found, run.events)
    clocks = Clocks(node_size=size, residual_ps=0)
    of_ranks = tuple(
        _rank_times(rank_times(run, place), step.events.taken(own), busy[place])
        for place, own in enumerate(every)
    )
    sent, received = sent_and_received(run.events)
    clock = run.column_of_ranks("clock")
    alike = clock[sent] == clock[received]  # times of other messages cannot be compared
    summary = summary_of(run, degrees, clocks, (sent[alike], received[alike]), of_ranks)
    return replace(summary, schedule=summary.schedule or recorded_schedule(run, degrees))


def _run(step: Profile, found: Actions, timed: Events, busy: Sequence[Busy]) -> Profile:
    """The stage times of a step as a run: what is `timed`, and what follows on every rank."""
    after, labels = _following(step, found, busy)
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


def _timed(step: Profile, found: Actions) -> Events:
    """Actions and messages of all ranks, rank by rank in order of start."""
    message = _messages(step, found)
    told = {name: getattr(message, name) for name in _OF_MESSAGES}
    both = Events.joined(found.run, Events.of(len(message), **told))
    return both.taken(np.lexsort((both.end_ps, both.start_ps, both.rank)))


def _following(step: Profile, found: Actions, busy: Sequence[Busy]) -> tuple[Events, list[str]]:
    """What follows the pipeline on each rank, one after the other, and what each is called.

    A rank is in actions and messages when it is `busy`. All ranks of a stage have the same names,
    in order. The group is that of the first operation of a name.
    """
    events = step.events
    meets = events.of_kind(TaskKind.COLLECTIVE)
    own = np.where(meets, complete_ps(events), events.start_ps)
    others = [_others(step, found, each) for each in step.places_of_ranks()]
    idle = OpKind.OTHER, HOST_IDLE  # first: the trace of a step ends with what it runs last
    of_stage = {stage: {idle: 0} for stage in found.stages}
    for stage, named in zip(found.stages, others, strict=True):
        of_stage[stage] |= dict.fromkeys(named.values(), 0)
    rows, labels = list[tuple[int, ...]](), list[str]()
    for place, (each, stage, named) in enumerate(zip(busy, found.stages, others, strict=True)):
        group = {name: int(events.group[i]) for i, name in reversed([*named.items()])}
        begin = int(each.end_ps[-1])
        times = of_stage[stage] | _after_ps(events, each, own, named)
        for (kind, text), lasts in times.items():
            known = group.get((kind, text), UNKNOWN)
            rows.append((place, kind, known, begin, begin + lasts))
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


def _messages(step: Profile, found: Actions) -> Events:
    """Messages: their `OpKind`, and microbatch and virtual stage, by the actions of their rank.

    Chunks that lie down and up again talk to either neighbour: a message is of those that talk to
    its peer, where it is known. A stage at an end has no message there, nor one whose neighbour is
    on its rank. Where there is not one message for each action that has some, the microbatch is as
    it was recorded, and the stage the rank's.
    """
    run, stages = found.run, np.array([*found.stages, UNKNOWN])
    events = replace(step.events, name=_message_kinds(step, found)).taken(step.events.is_message)
    number, chunk, peer = events.microbatch.copy(), stages[events.rank], stages[events.peer]
    # the pipeline stage of every virtual one; none comes before the first and after the last
    held = np.full(found.pp * found.chunks + 1, UNKNOWN)
    held[run.chunk], held[-1] = stages[run.rank], _NOBODY
    forwards = OpKind.SEND_FORWARD, OpKind.RECV_FORWARD
    of_ranks = (places_by(each.rank, len(found.stages)) for each in (run, events))
    every = zip(found.stages, *of_ranks, strict=True)
    for (stage, ran, moved), (kind, ahead) in product(every, AHEAD.items()):
        action = OpKind.FORWARD if kind in forwards else OpKind.BACKWARD
        acts = run.in_time(ran[run.name[ran] == action])
        other = held[run.chunk[acts] + ahead]
        talks = (other != _NOBODY) & (other != stage)
        sent = events.in_time(moved[events.name[moved] == kind])
        known = (peer[sent] != UNKNOWN).all()
        for at in distinct(peer[sent]).tolist() if known else [UNKNOWN]:
            mine = sent[(peer[sent] == at) | (not known)]
            own = acts[talks & ((other == at) | (not known))]
            if len(mine) == len(own):
                number[mine], chunk[mine] = run.microbatch[own], run.chunk[own]
    return replace(events, microbatch=number, chunk=chunk)


def _after_ps(
    events: Events, busy: Busy, own: Ints, named: Mapping[int, _After]
) -> dict[_After, int]:
    """Time of a rank outside of actions and messages, by what it runs: nothing is counted twice.

    `own` is when the operations of the profile began but for waiting, `named` are the rank's that
    are no part of actions. Time in which nothing runs after the pipeline is the host's.
    """
    if not named:
        return {}
    others, times = ints([*named]), dict.fromkeys(named.values(), 0)
    lasts = events.end_ps[others]
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


def _rank_times(told: RankTimes, events: Events, busy: Busy) -> RankTimes:
    """Where a rank's time went: the host's is that in which nothing of its operations runs.

    It is `busy` in actions and messages. A message that runs beside an action is waited for only
    when that has ended.
    """
    device = events.taken(events.kind != TaskKind.HOST)
    start, end = int(device.start_ps.min()), int(busy.end_ps[-1])
    every = Busy.of(
        np.append(busy.start_ps, device.start_ps), np.append(busy.end_ps, device.end_ps)
    )
    return replace(
        told,
        pipeline_ps=end - start,
        step_ps=int(device.end_ps.max()) - start,
        host_ps=end - start - int(every.within(ints([start]), ints([end]))[0]),
        wait_ps=busy.whole_ps - told.work_ps,
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
