"""Forwards, backwards and messages of the pipeline in one step of a profile.

They are taken as they were recorded, or from the ranges that the program marked, or from the order
of messages; a warning says which. An action goes from its first kernel to its last.
"""

import re

import numpy as np

from stepsim.base.arrays import Bools, Ints, bins, ints, places_by, rows_of
from stepsim.base.errors import TraceError
from stepsim.base.structs import Numbers, replace
from stepsim.base.units import format_time_ps
from stepsim.measured.profile.events import Events, Profile, combined, same, unknown
from stepsim.measured.profile.marks import MarkForm
from stepsim.measured.profile.told import Labelled, stages_by_messages, told_by_messages
from stepsim.measured.run import Degrees, OpKind
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase, extents

_KINDS = {
    TaskPhase.FORWARD: OpKind.FORWARD,
    TaskPhase.BACKWARD: OpKind.BACKWARD,
    TaskPhase.INPUT_GRAD: OpKind.BACKWARD,
    TaskPhase.WEIGHT_GRAD: OpKind.WEIGHT_GRAD,
}
# Kernels of a forward that stage times have apart.
_PARTS = {
    "get_batch": OpKind.GET_BATCH,
    "get-batch": OpKind.GET_BATCH,
    "loss": OpKind.LOSS,
}
DATA_PARALLEL = re.compile(r"(?:^|[\W_])e?dp(?:[\W_\d]|$)|data|fsdp|zero|replicate", re.IGNORECASE)
"""Names of groups that hold copies of the same layers: what they exchange is beside actions."""
# Part of the shorter of two actions that may run beside the other, as rounding and copies do.
_MOST_OVERLAP = 0.05


def pipeline_actions(profile: Profile) -> tuple[Profile, Events]:
    """The actions of a profile of one step, and the step, of which stages are then known.

    An operation of the actions has a place among the profile's ranks as `rank`, an `OpKind` as
    `name` and the virtual stage as `chunk`. In the step `stage` of the ranks is that of the
    pipeline, `degrees` are those of the pipeline, `phase` is known as far as it can be, `entry` is
    the place of the action that holds an operation, `UNKNOWN` for those of none, and the last
    warning says where all this is from. Raises TraceError that names what was not recorded.
    """
    events, how = _labels(profile)
    kind = unknown(len(events))
    for phase, action in _KINDS.items():
        kind[events.phase == phase] = action
    inside = (kind != UNKNOWN) & (events.microbatch != UNKNOWN) & (events.chunk != UNKNOWN)
    inside &= _is_inside(profile, kind)
    part = ints([_PARTS.get(name, UNKNOWN) for name in profile.names])[events.name]
    kind = np.where((kind == OpKind.FORWARD) & (part != UNKNOWN), part, kind)
    places = np.flatnonzero(inside)
    if not len(places):
        raise TraceError(f"{profile.source}: no forward or backward computes anything")
    columns = (events.microbatch, events.chunk, kind, events.rank)
    actions, key = combined(*(column[places] for column in columns))
    microbatch, chunk, name, rank = ints(actions).T
    start, end = extents(key, len(actions), events.start_ps[places], events.end_ps[places])
    holds = unknown(len(kind))
    holds[places] = key
    run = Events.of(
        len(actions),
        rank=rank,
        name=name,
        chunk=chunk,
        microbatch=same(microbatch),
        start_ps=start,
        end_ps=end,
    )
    stages, pp, chunks = _layout(profile, run)
    sends = events.of_kind(TaskKind.SEND) & (events.phase == TaskPhase.FORWARD)
    if (sends & (events.peer == UNKNOWN) & (events.chunk == pp * chunks - 1)).any():
        raise TraceError(
            f"{profile.source}: stage {pp - 1} sends forwards on, but no rank of the stage after "
            "it was recorded: expected one rank of each stage"
        )
    count = bins(run.microbatch)
    _check_whole(profile, run, count * chunks)
    notes = [f"{profile.source}: stage times: {how}"] if how else []
    ranks = zip(profile.ranks, stages, strict=True)
    step = replace(
        profile,
        ranks=tuple(replace(rank, stage=stage) for rank, stage in ranks),
        degrees=Degrees(pp=pp, microbatches=count),
        events=replace(profile.events, phase=events.phase, entry=holds),
        warnings=(*profile.warnings, *notes),
    )
    return step, _one_at_a_time(profile, run)


def _labels(profile: Profile) -> Labelled:
    """Phase, virtual stage and microbatch of every operation, by what tells most."""
    events = profile.events
    compute = events.of_kind(TaskKind.COMPUTE)
    told = (events.microbatch != UNKNOWN) & (events.chunk != UNKNOWN)
    if (compute & told & np.isin(events.phase, [*_KINDS])).any():
        return events, ""
    form = _of_marks(profile, "form")
    best = int(form[compute].max(initial=UNKNOWN))
    if best == MarkForm.ACTION:
        return _marked(profile, form == best, "the program marked every action")
    messages = events.is_message
    if best >= MarkForm.PHASE:
        told, how = _marked(
            profile, form >= MarkForm.PHASE, "the program marked forwards and backwards"
        )
        if messages.any():
            return replace(told, chunk=np.array(stages_by_messages(profile))[events.rank]), how
        numbered = best == MarkForm.NUMBERED
        turns = told.microbatch if numbered else _by_turns(profile, told.phase)
        return replace(told, chunk=np.zeros_like(told.chunk), microbatch=turns), how
    if messages.any():
        return told_by_messages(profile, form == MarkForm.AUTOGRAD)
    return _one_stage(profile, form)


def _of_marks(profile: Profile, name: str) -> Ints:
    """A field of the mark of every operation, `UNKNOWN` without one."""
    told = [getattr(mark, name) for mark in profile.marks]
    return ints([*told, UNKNOWN])[profile.events.mark]


def _marked(profile: Profile, inside: Bools, how: str) -> Labelled:
    """What the ranges of some operations say; the n-th forward of a rank is of microbatch n."""
    events, names = profile.events, ("phase", "stage", "microbatch")
    phase, stage, number = (_of_marks(profile, name) for name in names)
    for value in np.unique(phase[inside]).tolist():
        chosen = inside & (phase == value) & events.of_kind(TaskKind.COMPUTE)
        if (number[chosen] != UNKNOWN).all():
            continue
        for rank in np.unique(events.rank[chosen]).tolist():
            places = np.flatnonzero(chosen & (events.rank == rank))
            ranges = events.mark[events.in_time(places)]
            order = {mark: i for i, mark in enumerate(dict.fromkeys(ranges.tolist()))}
            here = np.flatnonzero((events.rank == rank) & inside & (phase == value))
            number[here] = [order.get(mark, UNKNOWN) for mark in events.mark[here].tolist()]
    phase, stage, number = (np.where(inside, c, UNKNOWN) for c in (phase, stage, number))
    return replace(events, phase=phase, chunk=stage, microbatch=number), how


def _one_stage(profile: Profile, form: Ints) -> Labelled:
    """A job without messages: autograd's marks tell backwards, what comes before is forward."""
    events = profile.events
    if not (form == MarkForm.AUTOGRAD).any():
        raise TraceError(
            f"{profile.source}: no stage times: the recording has no ranges of forwards and "
            "backwards (record_function, NVTX), no autograd events and no messages of a pipeline"
        )
    phase = np.where(form >= 0, _of_marks(profile, "phase"), TaskPhase.FORWARD)
    for rank in range(len(profile.ranks)):
        back = (events.rank == rank) & (phase == TaskPhase.BACKWARD)
        last = events.start_ps[back].max(initial=-1)
        phase[(events.rank == rank) & ~back & (events.start_ps > last)] = TaskPhase.UPDATE
    told = {"phase": phase, "chunk": np.zeros_like(phase), "microbatch": _by_turns(profile, phase)}
    return replace(events, **told), "backwards are what autograd launched, forwards all before"


def _by_turns(profile: Profile, phase: Ints) -> Ints:
    """Microbatches of a job of one stage: each begins where a forward follows a backward."""
    events = profile.events
    number = unknown(len(events))
    known = np.isin(phase, (TaskPhase.FORWARD, TaskPhase.BACKWARD))
    known &= events.of_kind(TaskKind.COMPUTE)
    for own in profile.places_of_ranks():
        places = events.in_time(own[known[own]])
        back = (phase[places] == TaskPhase.BACKWARD).astype(np.int64)
        number[places] = np.cumsum(np.diff(back, prepend=1) == -1) - 1
    return number


def _is_inside(profile: Profile, kind: Ints) -> Bools:
    """Computes, copies, and collectives that are a part of actions.

    Data-parallel groups stand beside actions, and so do collectives that backwards alone have.
    """
    events = profile.events
    inside = events.of_kind(TaskKind.COMPUTE, TaskKind.COPY)
    collective = events.of_kind(TaskKind.COLLECTIVE)
    key = same(events.name, events.group)
    forward = np.unique(key[collective & (kind == OpKind.FORWARD)])
    beside = profile.in_group(DATA_PARALLEL.search)
    return np.asarray(inside | (collective & np.isin(key, forward) & ~beside), np.bool_)


def _layout(profile: Profile, run: Events) -> tuple[Numbers, int, int]:
    """Pipeline stage of every rank, stages of the job, and chunks of a rank.

    Virtual stages lie on the ranks in turn, or down and up again; raises TraceError otherwise. One
    rank alone is taken to run 1f1b, whose forwards of the warm-up count the stages from its own.
    """
    held = [np.unique(run.chunk[own]).tolist() for own in places_by(run.rank, len(profile.ranks))]
    empty = [profile.ranks[place].rank for place, own in enumerate(held) if not own]
    if empty:
        raise TraceError(f"{profile.source}: rank {empty[0]} has no forward or backward")
    told = [each.stage for each in profile.ranks]
    stages = [own[0] if known is None else known for own, known in zip(held, told, strict=True)]
    chunks = len(held[0])
    pp = bins(ints(stages))
    if chunks == 1 and len(held) == 1 and profile.events.is_message.any():
        warm_up = _warm_up(run)
        if not warm_up:
            raise TraceError(
                f"{profile.source}: all forwards come before the first backward: one rank alone "
                "does not tell how many stages there are: expected one of each stage"
            )
        pp = max(pp, stages[0] + warm_up)
    if chunks > 1 and len(set(stages)) == 1:
        last = held[0][1]
        pp = max(pp, last if held[0][0] == 0 and chunks > 2 else (last + stages[0] + 1) // 2)
    for own, at in zip(held, stages, strict=True):
        loop = [at + chunk * pp for chunk in range(chunks)]
        if own not in (loop, [at, 2 * pp - 1 - at]):
            raise TraceError(
                f"{profile.source}: a rank runs virtual stages {', '.join(map(str, own))} of {pp} "
                "pipeline stages: expected them in turn, or down and up again (one rank of each "
                "stage at least)"
            )
    missing = sorted(set(range(pp)) - set(stages))
    if missing and len(stages) > 1:
        raise TraceError(
            f"{profile.source}: no rank of stage {', '.join(map(str, missing))} of {pp} was "
            "recorded: expected one rank of each stage"
        )
    return tuple(stages), pp, chunks


def _warm_up(run: Events) -> int:
    """Forwards before the first backward; of one rank, 0 where several are all before it."""
    first = run.start_ps[run.name == OpKind.BACKWARD].min(initial=np.iinfo(np.int64).max)
    begins = run.start_ps[run.name == OpKind.FORWARD]
    ahead = int((begins < first).sum())
    return 0 if 1 < ahead == len(begins) else ahead


def _check_whole(profile: Profile, run: Events, expected: int) -> None:
    """Every rank runs every microbatch forward and backward, once in each of its virtual stages."""
    for rank in np.unique(run.rank).tolist():
        for kind in (OpKind.FORWARD, OpKind.BACKWARD):
            ran = int(((run.rank == rank) & (run.name == kind)).sum())
            if ran != expected:
                number = profile.ranks[rank].rank
                raise TraceError(
                    f"{profile.source}: rank {number} has {ran} {kind.name.lower()}s in the step: "
                    f"expected {expected}, one per microbatch and chunk (the recording lacks "
                    "some, or they run as one, or a rank has chunks unmarked)"
                )


def _one_at_a_time(profile: Profile, run: Events) -> Events:
    """Actions of a rank one after the other; raises TraceError where they truly overlap."""
    start, end = run.start_ps.copy(), run.end_ps
    order = np.lexsort((end, start, run.rank))
    for one, other in rows_of(order[:-1], order[1:]):
        over = int(end[one] - start[other])
        if run.rank[one] != run.rank[other] or over <= 0:
            continue
        shorter = min(int(end[i] - start[i]) for i in (one, other))
        if over > _MOST_OVERLAP * shorter:
            raise TraceError(
                f"{profile.source}: {_named(run, one)} and {_named(run, other)} of rank "
                f"{profile.ranks[int(run.rank[one])].rank} run side by side for "
                f"{format_time_ps(over)}: times of each alone are not in the recording"
            )
        start[other] = min(int(end[one]), int(end[other]))
    return replace(run, start_ps=start)


def _named(run: Events, place: int) -> str:
    """An action in words."""
    return f"{OpKind(int(run.name[place])).name.lower()} {run.microbatch[place]}"
