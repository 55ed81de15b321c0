"""Where the steps of a profile go on every rank: computing, communicating, neither."""

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Bools, Ints
from stepsim.measured.profile.events import Profile, same
from stepsim.measured.profile.waits import Waits
from stepsim.tables.spans import COMMUNICATIONS, TaskKind


class RankShares(Struct, frozen=True, kw_only=True):
    """A rank's mean step, in ps.

    While it computes; while it communicates; `exposed_ps` of that while it does not compute;
    `idle_ps` while it does neither, held up by the host or with nothing to do. `waiting_ps` is what
    its communications spend until the last member is there, summed over all of them.
    """

    rank: int
    stage: int | None
    replica: int | None
    step_ps: int
    compute_ps: int
    communication_ps: int
    exposed_ps: int
    idle_ps: int
    waiting_ps: int


class _DeviceShares(Struct, frozen=True, kw_only=True):
    """A rank from its first operation to its last, over all steps, in ps.

    `other_ps` are communications and copies while nothing computes: the terms of Holistic Trace
    Analysis, which leaves out the last step.
    """

    rank: int
    span_ps: int
    compute_ps: int
    other_ps: int
    idle_ps: int


def device_shares(profile: Profile) -> tuple[_DeviceShares, ...]:
    """What every rank's device does over all recorded steps."""
    events = profile.events
    busy = _covered(profile, events.of_kind(TaskKind.COMPUTE))
    both = _covered(profile, ~events.of_kind(TaskKind.HOST))
    found = []
    for place, rank in enumerate(profile.ranks):
        mine = events.rank == place
        span = int(events.end_ps[mine].max() - events.start_ps[mine].min()) if mine.any() else 0
        found.append(
            _DeviceShares(
                rank=rank.rank,
                span_ps=span,
                compute_ps=int(busy[place]),
                other_ps=int(both[place] - busy[place]),
                idle_ps=span - int(both[place]),
            )
        )
    return tuple(found)


def rank_shares(waits: Waits) -> tuple[RankShares, ...]:
    """The mean step of every rank taken apart."""
    profile = waits.profile
    events, count = profile.events, len(profile.steps)
    compute = events.of_kind(TaskKind.COMPUTE)
    communicates = events.of_kind(*COMMUNICATIONS)
    of_set = [_covered(profile, each) for each in (compute, communicates, compute | communicates)]
    waited = np.where(communicates, events.duration_ps - waits.own_ps, 0)
    step = int(profile.step_times_ps().mean())
    found = []
    for place, rank in enumerate(profile.ranks):
        busy, talking, both = (int(each[place]) // count for each in of_set)
        found.append(
            RankShares(
                rank=rank.rank,
                stage=rank.stage,
                replica=rank.replica,
                step_ps=step,
                compute_ps=busy,
                communication_ps=talking,
                exposed_ps=both - busy,
                idle_ps=max(step - both, 0),
                waiting_ps=int(waited[events.rank == place].sum()) // count,
            )
        )
    return tuple(found)


def _covered(profile: Profile, which: Bools) -> Ints:
    """Time of every rank during which at least one of these operations runs, over all steps.

    Steps whose operations run beside each other count the time once where clocks go on from step
    to step, and in each where they begin anew.
    """
    events, chosen = profile.events, np.flatnonzero(which)
    found = np.zeros(len(profile.ranks), dtype=np.int64)
    if not len(chosen):
        return found
    key = same(_axes(profile)[events.step[chosen]], events.rank[chosen])
    order = np.lexsort((events.start_ps[chosen], key))
    chosen, key = chosen[order], key[order]
    bounds = np.flatnonzero(np.diff(key, prepend=-1, append=key[-1] + 1))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        part = chosen[first:last]
        ends = np.maximum.accumulate(events.end_ps[part])
        start = events.start_ps[part]
        start[1:] = np.maximum(start[1:], ends[:-1])
        found[events.rank[part[0]]] += int(np.maximum(ends - start, 0).sum())
    return found


def _axes(profile: Profile) -> Ints:
    """The axis of time of every step: one for all, or one for each that begins at 0 again."""
    events, count = profile.events, len(profile.steps)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, events.step, events.start_ps)
    anew = len(first) > 1 and bool((np.diff(first) <= 0).any())
    return np.arange(count) if anew else np.zeros(count, dtype=np.int64)
