"""Where the steps of a profile go on every rank: computing, communicating, neither."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from stepsim.base.arrays import Bools, Ints, whole_totals
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Noun, Timed
from stepsim.measured.profile.busy import busy_axes
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.waits import Waits
from stepsim.run.spans import COMMUNICATIONS, TaskKind

Slowdown = Annotated[float, Meta(description="a mean step over the mean ideal step")]


# Busy time: while the rank computes; while it communicates; `exposed_ps` of that while it does not
# compute; `idle_ps` while it does neither, held up by the host or with nothing to do. Kernels that
# run beside each other count twice in kernel time: of computes, of communications, and
# `waiting_ps`, what the latter spend until the last member is there.
class WorkerEntry(Timed):
    """A rank's mean step taken apart; its slowdown is that of all else ideal.

    `compute_s`, `communication_s` and `exposed_s` are busy time, which counts a moment once;
    `compute_kernels_s`, `communication_kernels_s` and `waiting_s` add up durations of kernels.
    """

    rank: int
    stage: int | None
    replica: int | None
    slowdown: Slowdown
    compute_ps: InSeconds
    communication_ps: InSeconds
    exposed_ps: InSeconds
    idle_ps: InSeconds
    waiting_ps: InSeconds
    compute_kernels_ps: InSeconds
    communication_kernels_ps: InSeconds


class _DeviceShares(Noun):
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
    busy = _busy_ps(profile, events.of_kind(TaskKind.COMPUTE))
    both = _busy_ps(profile, ~events.of_kind(TaskKind.HOST))
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


def rank_shares(waits: Waits, slowdowns: Sequence[float]) -> tuple[WorkerEntry, ...]:
    """The mean step of every rank taken apart, with the `slowdowns` of all."""
    profile = waits.profile
    events, count = profile.events, len(profile.steps)
    compute = events.of_kind(TaskKind.COMPUTE)
    communicates = events.of_kind(*COMMUNICATIONS)
    sets = (compute, communicates, compute | communicates)
    of_set = [_busy_ps(profile, each) for each in sets]
    kernels = [_sums(profile, each) for each in (compute, communicates)]
    waited = np.where(communicates, events.duration_ps - waits.own_ps, 0)
    step = int(profile.step_times_ps().mean())
    found = []
    for place, (rank, slowdown) in enumerate(zip(profile.ranks, slowdowns, strict=True)):
        busy, talking, both = (int(each[place]) // count for each in of_set)
        computes, communications = (int(each[place]) // count for each in kernels)
        found.append(
            WorkerEntry(
                rank=rank.rank,
                stage=rank.stage,
                replica=rank.replica,
                slowdown=slowdown,
                compute_ps=busy,
                communication_ps=talking,
                exposed_ps=both - busy,
                idle_ps=max(step - both, 0),
                waiting_ps=int(waited[events.rank == place].sum()) // count,
                compute_kernels_ps=computes,
                communication_kernels_ps=communications,
            )
        )
    return tuple(found)


def _busy_ps(profile: Profile, which: Bools) -> Ints:
    """How long every rank runs at least one of these operations, over all steps."""
    found = np.zeros(len(profile.ranks), np.int64)
    for places, busy in busy_axes(profile, which):
        found[profile.events.rank[places[:1]]] += busy.whole_ps
    return found


def _sums(profile: Profile, which: Bools) -> Ints:
    """Kernel time of every rank: durations of these operations, added up over all steps."""
    events = profile.events
    return whole_totals(events.rank[which], events.duration_ps[which], len(profile.ranks))
