"""Where the steps of a profile go on every rank: computing, communicating, neither."""

from dataclasses import dataclass

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.measured.profile.events import COMMUNICATIONS, EventKind, Profile, same
from stepsim.measured.profile.waits import Waits
from stepsim.measured.run import Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShares:
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


def rank_shares(waits: Waits) -> tuple[RankShares, ...]:
    """The mean step of every rank taken apart."""
    profile = waits.profile
    events, count = profile.events, len(profile.steps)
    compute = events.of_kind(EventKind.COMPUTE)
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
    """Time of every rank during which at least one of these operations runs, over all steps."""
    events, chosen = profile.events, np.flatnonzero(which)
    found = np.zeros(len(profile.ranks), dtype=np.int64)
    if not len(chosen):
        return found
    key = same(events.step[chosen], events.rank[chosen])
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
