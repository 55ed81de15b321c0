"""Where the steps of a profile go on every rank: computing, communicating, neither."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from stepsim.base.arrays import Bools, Ints, rows_of, whole_totals
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Noun, Timed
from stepsim.measured.profile.busy import busy_axes
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.waits import Waits
from stepsim.run.spans import COMMUNICATIONS, TaskKind, extents

Slowdown = Annotated[float, Meta(description="a mean step over the mean ideal step")]


# Busy time: while the rank computes; while it communicates; `exposed_ps` of that while it does not
# compute; `idle_ps` while it does neither, held up by the host or with nothing to do. Kernels that
# run beside each other count twice in kernel time: of computes, of communications, and
# `waiting_ps`, what the latter spend until the last member is there.
class WorkerEntry(Timed, kw_only=False):
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


class _DeviceShares(Noun, kw_only=False):
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
    events, count = profile.events, len(profile.ranks)
    first, last = extents(events.rank, count, events.start_ps, events.end_ps)
    span = np.maximum(last - first, 0)  # of a rank without operations 0
    compute = _busy_ps(profile, events.of_kind(TaskKind.COMPUTE))
    busy = _busy_ps(profile, ~events.of_kind(TaskKind.HOST))
    numbers = (profile.of_ranks("rank")[:-1], span, compute, busy - compute, span - busy)
    return tuple(_DeviceShares(*row) for row in rows_of(*numbers))


def rank_shares(waits: Waits, slowdowns: Sequence[float]) -> tuple[WorkerEntry, ...]:
    """The mean step of every rank taken apart, with the `slowdowns` of all."""
    profile, events = waits.profile, waits.profile.events
    compute, communicates = events.of_kind(TaskKind.COMPUTE), events.of_kind(*COMMUNICATIONS)
    sets = (compute, communicates, compute | communicates)
    busy, talking, both = (_busy_ps(profile, each) // len(profile.steps) for each in sets)
    idle = np.maximum(int(profile.step_times_ps().mean()) - both, 0)
    waited = events.duration_ps - waits.own_ps
    sums = (
        whole_totals(events.rank[which], times[which], len(profile.ranks)) // len(profile.steps)
        for times, which in (
            (waited, communicates),
            (events.duration_ps, compute),
            (events.duration_ps, communicates),
        )
    )
    columns = (busy, talking, both - busy, idle, *sums)
    rows = rows_of(profile.ranks, slowdowns, *columns)
    return tuple(
        WorkerEntry(rank.rank, rank.stage, rank.replica, *numbers) for rank, *numbers in rows
    )


def _busy_ps(profile: Profile, which: Bools) -> Ints:
    """How long every rank runs at least one of these operations, over all steps."""
    found = np.zeros(len(profile.ranks), np.int64)
    for places, busy in busy_axes(profile, which):
        found[profile.events.rank[places[:1]]] += busy.whole_ps
    return found
