"""A profile as a measured run: the stage times that other schedules are asked with.

One step is read, the one of median length. What runs beside forwards, backwards and messages counts
as far as nothing of these hides it, and follows the pipeline, as in traces of Megatron.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from stepsim.base.arrays import Ints, among, bins, distinct, ints, median_place, places_by, rows_of
from stepsim.base.structs import Numbers, replace
from stepsim.measured.clocks import DEFAULT_NODE_SIZE, Clocks
from stepsim.measured.profile.actions import pipeline_actions
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


def run_of_profile(profile: Profile, *, node_size: int | None = None) -> RunSummary:
    """The stage times of a profile, with its messages and what follows the pipeline.

    `node_size` is the ranks per node where the profile does not tell it, 8 without it. Raises
    TraceError that names what was not recorded.
    """
    step, acted = pipeline_actions(_typical_step(profile))
    size = _node_size(step) or DEFAULT_NODE_SIZE if node_size is None else node_size
    step = _numbered(step).on_nodes(size)
    timed = _timed(step, acted)
    in_pipeline = places_by(timed.rank, len(step.ranks))
    busy = [Busy.of(timed.start_ps[own], timed.end_ps[own]) for own in in_pipeline]
    run = _run(step, timed, busy)
    clocks = Clocks(node_size=size, residual_ps=0)
    of_ranks = tuple(
        _rank_times(rank_times(run, place), step.of_rank(place), busy[place])
        for place in range(len(step.ranks))
    )
    sent, received = sent_and_received(run.events)
    clock = run.column_of_ranks("clock")
    alike = clock[sent] == clock[received]  # times of other messages cannot be compared
    summary = summary_of(run, clocks, (sent[alike], received[alike]), of_ranks)
    return replace(summary, schedule=summary.schedule or recorded_schedule(run))


def _run(step: Profile, timed: Events, busy: Sequence[Busy]) -> Profile:
    """The stage times of a step as a run: what is `timed`, and what follows on every rank."""
    after, labels = _following(step, busy)
    both = Events.joined(timed, after)
    both = both.taken(np.argsort(both.rank, kind="stable"))
    none = np.zeros(len(both), np.int64)
    events = replace(both, step=none, order=counted(both.rank), **meant(both.name))
    return replace(
        step,
        names=MEANINGS,
        events=events,
        degrees=_degrees(step, events),
        follows=None,
        labels=dict(rows_of(np.flatnonzero(after_pipeline(events)), labels)),
    )


def _typical_step(profile: Profile) -> Profile:
    """The step of median length alone; a warning says that it was chosen."""
    if len(profile.steps) == 1:
        return profile
    chosen = profile.steps[median_place(profile.step_times_ps())]
    note = f"{profile.source}: holds {len(profile.steps)} steps: step {chosen} is used, the median"
    return replace(profile.of_steps(chosen), warnings=(*profile.warnings, note))


def _numbered(step: Profile) -> Profile:
    """The step with ranks numbered stage by stage, as they are where stages are as wide in turn.

    Every rank has the fingerprint of its operations.
    """
    own, stage = (step.of_ranks(name)[:-1] for name in ("rank", "stage"))
    first, pp = np.sort([own[stage == each].min() for each in distinct(stage)]), step.degrees.pp
    width = (step.world or 0) // pp or (int(first[1] - first[0]) if len(first) > 1 else bins(own))
    if (own // width != stage).any():
        count = counted(stage)
        width = bins(count)
        own = stage * width + count
    every = (step.of_rank(place) for place in range(len(own)))
    traces = (times_hash(each.kind, each.start_ps, each.end_ps) for each in every)
    ranks = rows_of(step.ranks, own, traces)
    return replace(
        step,
        ranks=tuple(replace(rank, rank=number, trace=trace) for rank, number, trace in ranks),
        world=width * pp,
    )


# What runs outside of actions and messages: its kind, and what it is called.
_After = tuple[OpKind, str]


def _timed(step: Profile, acted: Events) -> Events:
    """Actions and messages of all ranks, rank by rank in order of start."""
    both = Events.joined(acted, _messages(step, acted))
    return both.taken(np.lexsort((both.end_ps, both.start_ps, both.rank)))


def _following(step: Profile, busy: Sequence[Busy]) -> tuple[Events, list[str]]:
    """What follows the pipeline on each rank, one after the other, and what each is called.

    A rank is in actions and messages when it is `busy`. All ranks of a stage have the same names,
    in order. The group is that of the first operation of a name.
    """
    events = step.events
    meets = events.of_kind(TaskKind.COLLECTIVE)
    own = np.where(meets, complete_ps(events), events.start_ps)
    others = [_others(step, each) for each in step.places_of_ranks()]
    idle = OpKind.OTHER, HOST_IDLE  # first: the trace of a step ends with what it runs last
    of_stage = {stage: {idle: 0} for stage in step.stages}
    for rank, named in zip(step.ranks, others, strict=True):
        of_stage[rank.stage or 0] |= dict.fromkeys(named.values(), 0)
    rows, labels = list[Numbers](), list[str]()
    for place, (each, rank, named) in enumerate(zip(busy, step.ranks, others, strict=True)):
        group = {name: int(events.group[i]) for i, name in reversed([*named.items()])}
        begin = int(each.end_ps[-1])
        times = of_stage[rank.stage or 0] | _after_ps(events, each, own, named)
        for (kind, text), lasts in times.items():
            known = group.get((kind, text), UNKNOWN)
            rows.append((place, kind, known, begin, begin + lasts))
            labels.append(text)
            begin += lasts
    names = ("rank", "name", "group", "start_ps", "end_ps")
    columns = ints(rows).reshape(-1, len(names)).T
    return Events.of(len(rows), **dict(zip(names, columns, strict=True))), labels


def _message_kinds(step: Profile) -> Ints:
    """The `OpKind` of every message: by its phase where it is told, else by where its peer lies.

    Of an operation that is no message the number means nothing.
    """
    events, stages = step.events, step.of_ranks("stage")
    own = stages[events.rank]
    away = np.where(events.peer == UNKNOWN, 0, stages[events.peer] - own)
    ahead = np.where(away == 0, own < step.degrees.pp - 1, away > 0)
    sends, told = events.kind == TaskKind.SEND, events.phase != UNKNOWN
    forward = np.where(told, events.phase == TaskPhase.FORWARD, ahead == sends)
    ways = (sends & forward, ~sends & forward, sends & ~forward)
    return np.select(ways, MESSAGE_KINDS[:-1], MESSAGE_KINDS[-1])


def _messages(step: Profile, run: Events) -> Events:
    """Messages: their `OpKind`, and microbatch and virtual stage, by the actions of their rank.

    Chunks that lie down and up again talk to either neighbour: a message is of those that talk to
    its peer, where it is known. A stage at an end has no message there, nor one whose neighbour is
    on its rank. Where there is not one message for each action that has some, the microbatch is as
    it was recorded, and the stage the rank's.
    """
    stages = step.of_ranks("stage")
    events = replace(step.events, name=_message_kinds(step)).taken(step.events.is_message)
    number, chunk, peer = events.microbatch.copy(), stages[events.rank], stages[events.peer]
    # the pipeline stage of every virtual one; none comes before the first and after the last
    chunks = len(distinct(run.chunk[run.rank == 0]))
    held = np.full(step.degrees.pp * chunks + 1, UNKNOWN)
    held[run.chunk], held[-1] = stages[run.rank], _NOBODY
    forwards = OpKind.SEND_FORWARD, OpKind.RECV_FORWARD
    of_ranks = (places_by(each.rank, len(step.ranks)) for each in (run, events))
    every = rows_of(stages[:-1], *of_ranks)
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
    others, times = ints([*named]), dict.fromkeys(named.values(), 0)
    lasts = events.end_ps[others]
    before = np.maximum.accumulate(lasts)
    start = np.maximum(own[others], np.append(own[others[:1]], before[:-1]))
    start = np.minimum(start, lasts)
    exposed = lasts - start - busy.within(start, lasts)
    for name, took in rows_of(named.values(), exposed):
        times[name] += took
    all_busy = Busy.of(
        np.append(busy.start_ps, events.start_ps[others]), np.append(busy.end_ps, lasts)
    )
    first = busy.end_ps[-1:]
    last = np.maximum(first, lasts.max(initial=0))
    idle = int(last[0] - first[0] - all_busy.within(first, last)[0])
    return times | {(OpKind.OTHER, HOST_IDLE): idle}


def _others(step: Profile, own: Ints) -> dict[int, _After]:
    """Those of a rank's operations that are no part of actions, by their start, and their names.

    Kernels that have many names are the optimizer's together.
    """
    events = step.events
    which = among(events.kind[own], (TaskKind.COMPUTE, TaskKind.COPY, TaskKind.COLLECTIVE))
    places = events.in_time(own[which & (events.entry[own] == UNKNOWN)])
    collective = events.kind[places] == TaskKind.COLLECTIVE
    few = len({*events.name[places[~collective]].tolist()}) <= _FEW_NAMES
    told = {}
    for i, communicates in rows_of(places, collective):
        name, group = step.names[events.name[i]], int(events.group[i])
        if communicates and group != UNKNOWN:
            name = " ".join([name, *_NUMBERS.sub(" ", step.groups[group].name).split()])
        if communicates or (few and name != "optimizer"):
            told[i] = OpKind.COLLECTIVE if communicates else OpKind.OTHER, name
        else:
            told[i] = OpKind.OPTIMIZER, "optimizer_step"
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


def _degrees(step: Profile, events: Events) -> Degrees:
    """The shape of the run, as far as a profile tells it.

    The largest group that communicates beside actions, a part of a stage, holds its replicas.
    """
    message = events.size_bytes[among(events.name, MESSAGE_KINDS)]
    width = (step.world or 1) // step.degrees.pp
    beside = step.events.of_kind(TaskKind.COLLECTIVE) & (step.events.entry == UNKNOWN)
    groups = distinct(step.events.group[beside & (step.events.group != UNKNOWN)]).tolist()
    sizes = (len(step.groups[group].ranks) for group in groups)
    dp = max((size for size in sizes if size > 1 and width % size == 0), default=None)
    return replace(
        step.degrees,
        npus=step.world,
        tp=None if dp is None else width // dp,
        dp=dp,
        message_bytes=int(np.median(message[message > 0])) if (message > 0).any() else 0,
    )


def _node_size(step: Profile) -> int | None:
    """Ranks of a node where the profile tells the nodes of at least two."""
    nodes = [rank.node for rank in step.ranks if rank.node is not None]
    return max(map(nodes.count, nodes)) if len(set(nodes)) > 1 else None
