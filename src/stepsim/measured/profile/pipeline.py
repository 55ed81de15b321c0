"""What waits for what in the profile of a pipelined job.

Every stream of a rank runs in the order that was recorded. Between streams: a compute waits for its
message, a send for its compute; the first forward of a chunk waits for its parameters, gradients
are reduced once the last backward of their chunk has ended.
"""

import numpy as np

from stepsim.base.arrays import Bools, Ints, bins, distinct, spans
from stepsim.measured.profile.events import Events, Following, Profile, same
from stepsim.measured.profile.waits import Waits, chained
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase

_SOON_PS = 10**7
# A message may seem to be posted by as much before the compute that it follows ends.
_ROUNDING_PS = 10**6


def pipeline_waits(profile: Profile, *, posted: bool = False) -> Waits:
    """The waits of a profile that tells phases, chunks and microbatches.

    A message needs its data and its stream only. Where it counts as `posted` it also follows the
    compute that its rank ended last before it: the program posts it there, and would earlier if
    that compute were shorter. If no message of the profile runs beside a compute, the program
    blocks, and the next compute follows the message. Where no phase is told, an operation follows
    one of another stream that ended just before it. A profile that tells what its operations
    follow is taken at its word.
    """
    if profile.follows is not None:
        before, after = profile.follows
        return Waits(profile=profile, before=before, after=after)
    events = profile.events
    in_order = np.empty(len(events), np.int64)
    recorded = np.lexsort((events.order, events.end_ps, events.start_ps))
    in_order[recorded] = np.arange(len(events))
    found = [
        chained(events.rank, events.step, events.stream, order=in_order),
        *_messages(events, in_order),
        *_parameter_waits(events, in_order),
        *_gradient_waits(events, in_order),
        *(_posted(events) if posted else []),
        *([_soon_after(events)] if not _tells_phases(events) else []),
    ]
    before, after = (np.concatenate(each) for each in zip(*found, strict=True))
    return Waits(profile=profile, before=before, after=after, complete=_tells_phases(events))


def _messages(events: Events, in_order: Ints) -> list[Following]:
    """A message is received before its computes, and sent after those that began before it.

    It is received after the compute of its phase before the first of them: a rank receives one at
    a time, but for messages of chunks that it posted ahead. A weight gradient that a schedule puts
    off begins after the message was sent.
    """
    told = events.microbatch != UNKNOWN
    compute = events.of_kind(TaskKind.COMPUTE) & told
    received = events.of_kind(TaskKind.RECV) & told
    sent = events.of_kind(TaskKind.SEND) & told
    key = same(events.rank, events.step, events.phase, events.chunk, events.microbatch)
    places = np.flatnonzero(compute)
    places = places[np.argsort(in_order[places])]
    first = np.zeros(len(events), np.bool_)
    first[places[np.unique(key[places], return_index=True)[1]]] = True
    columns = (events.rank[places], events.step[places], events.phase[places])
    earlier, later = chained(*columns, order=in_order[places])
    begins = first[places[later]]
    before = np.full(bins(key), UNKNOWN, np.int64)
    before[key[places[later[begins]]]] = places[earlier[begins]]
    message = np.flatnonzero(received)
    message = message[before[key[message]] != UNKNOWN]
    follows = ((before[key[message]], message), _joined(compute, sent, key))
    in_time = [in_order[done] < in_order[moved] for done, moved in follows]
    return [
        _joined(received, compute, key),
        *((done[ok], moved[ok]) for (done, moved), ok in zip(follows, in_time, strict=True)),
    ]


def _posted(events: Events) -> list[Following]:
    """Messages after the compute that ended before them, and before the next if they block.

    They block if none runs beside a compute of its rank: the program waits for its messages.
    """
    compute = np.flatnonzero(~events.is_message)
    message = np.flatnonzero(events.is_message)
    start, end = events.start_ps, events.end_ps
    posted, done = start[message] + _ROUNDING_PS, end[message] - _ROUNDING_PS
    before = _last_by(events, compute, end[compute], message, posted)
    found = [(before[before >= 0], message[before >= 0])]
    started = _last_by(events, compute, start[compute], message, done)
    is_beside = (started >= 0) & (end[started] > posted)
    if not is_beside.any():
        after = _last_by(events, compute, -start[compute], message, -done)
        found.append((message[after >= 0], after[after >= 0]))
    return found


def _tells_phases(events: Events) -> bool:
    told = events.phase != TaskPhase.UNKNOWN
    return bool((told & events.of_kind(TaskKind.COMPUTE)).any())


def _soon_after(events: Events) -> Following:
    """What starts at once when an operation of another stream has ended.

    A kernel that waits for an event of another stream starts a few microseconds after it; one that
    the host launches late does not.
    """
    found: list[Following] = []
    for stream in distinct(events.stream).tolist():
        mine = events.stream == stream
        others = np.flatnonzero(~mine & (events.duration_ps > 0))
        these = np.flatnonzero(mine)
        before = _last_by(events, others, events.end_ps[others], these, events.start_ps[these])
        late = events.start_ps[these] - events.end_ps[before]
        soon = (before >= 0) & (late <= _SOON_PS)
        found.append((before[soon], these[soon]))
    before, after = (np.concatenate(each) for each in zip(*found, strict=True))
    return before, after


def _last_by(events: Events, these: Ints, times: Ints, others: Ints, limits: Ints) -> Ints:
    """For each of the others, the one of these on its rank and in its step whose time is largest.

    Only times up to its limit count; -1 where there is none.
    """
    places = np.concatenate([these, others])
    is_other = np.arange(len(places)) >= len(these)
    key = same(events.rank[places], events.step[places])
    order = np.lexsort((is_other, np.concatenate([times, limits]), key))
    key, is_other = key[order], is_other[order]
    last = np.maximum.accumulate(np.where(is_other, 0, np.arange(len(places))))
    known = ~is_other[last] & (key[last] == key)
    found = np.empty(len(places), np.int64)
    found[order] = np.where(known, places[order][last], -1)
    return found[len(these) :]


def _parameter_waits(events: Events, in_order: Ints) -> list[Following]:
    """Gathered parameters come before the first forward of their chunk, or of all chunks."""
    ends = _ends_of_chunks(events, TaskPhase.FORWARD, -in_order)
    return [_joined(gathers, first, key) for gathers, first, key in ends]


def _gradient_waits(events: Events, in_order: Ints) -> list[Following]:
    """Gradients are reduced after the last backward of their chunk, or of all chunks.

    Those of all chunks also wait for the host, if it stopped before them.
    """
    ends = _ends_of_chunks(events, TaskPhase.BACKWARD, in_order)
    reduced, _, of_rank = ends[-1]
    before, after = _joined(events.of_kind(TaskKind.HOST), reduced, of_rank)
    stopped = in_order[before] < in_order[after]
    waits = [_joined(last, reduces, key) for reduces, last, key in ends]
    return [*waits, (before[stopped], after[stopped])]


def _ends_of_chunks(
    events: Events, phase: TaskPhase, order: Ints
) -> list[tuple[Bools, Bools, Ints]]:
    """Collectives of a phase, its computes that come last by `order`, and what both have in common.

    First those of every chunk of a rank in a step, then those of all its chunks.
    """
    collective, compute = (
        events.of_kind(kind) & (events.phase == phase)
        for kind in (TaskKind.COLLECTIVE, TaskKind.COMPUTE)
    )
    told, found = events.chunk != UNKNOWN, []
    for which, key in (
        (collective & told, same(events.rank, events.step, events.chunk)),
        (collective & ~told, same(events.rank, events.step)),
    ):
        places = np.flatnonzero(compute)
        places = places[np.lexsort((order[places], key[places]))]
        last = np.zeros(len(events), np.bool_)
        last[places[np.diff(key[places], append=-1) != 0]] = True
        found.append((which, last, key))
    return found


def _joined(before: Bools, after: Bools, key: Ints) -> Following:
    """Pairs of equal keys; of the earlier ones each key has one at most."""
    left, right = np.flatnonzero(before), np.flatnonzero(after)
    by_left = np.argsort(key[left], kind="stable")
    by_right = np.argsort(key[right], kind="stable")
    left, right = left[by_left], right[by_right]
    first = np.searchsorted(key[right], key[left], side="left")
    count = np.searchsorted(key[right], key[left], side="right") - first
    return np.repeat(left, count), right[spans(first, count)]
