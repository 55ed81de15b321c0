"""What kernels of a profile take alone, where communication ran beside some of them.

A kernel is told from another by its name, how it was launched, and its neighbours on its stream. An
execution is alone where no communication covers any of it; those beside another compute kernel are
left out, for they share the GPU with that one, too.
"""

import re
from typing import NamedTuple

import numpy as np

from stepsim.base.arrays import Bools, Floats, Ints, column_numbers, distinct, medians
from stepsim.measured.profile.events import Profile
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, TaskKind

_ANNOUNCES = re.compile(r"(?:::|deep_ep )\w*notify|dispatch_layout")
"""Kernels of DeepEP that tell sizes before tokens follow: neither compute nor communication."""
_FEWEST = 2


_LIBRARIES = re.compile(
    r"nccl|rccl|deep_?ep|dpsk::ep|hybrid_?ep|nvshmem|memcpy p2?to?p|memcpy peer",
    re.IGNORECASE,
)


def alone_times_ps(profile: Profile) -> Ints:
    """What every operation takes alone: the median of its kernel's executions alone, in ps.

    `UNKNOWN` for an operation that ran alone itself, and for one whose kernel did less than twice.
    """
    found = np.full(len(profile.events), UNKNOWN, np.int64)
    ran = _executions(profile)
    is_alone = ran.share == 0
    count = np.bincount(ran.kernel[is_alone], minlength=int(ran.kernel.max(initial=0)) + 1)
    told = np.flatnonzero(~is_alone & (count[ran.kernel] >= _FEWEST))
    if len(told):
        median = np.rint(medians(ran.kernel[is_alone], ran.took_ps[is_alone], len(count)))
        found[ran.place[told]] = median[ran.kernel[told]].astype(np.int64)
    return found


class _Executions(NamedTuple):
    """Runs of kernels in columns: what each took at a `place`, and how much of that was covered.

    A `kernel` is told from another by the
    kind of GPU and the stage, its name and form, and those of its neighbours on its stream: one
    name may be the work of a whole stage, and stages differ.
    """

    kernel: Ints
    place: Ints
    took_ps: Ints
    share: Floats


class _Communications(NamedTuple):
    """What communicates on a rank, by its start: operations, and the time that any of them took."""

    places: Ints
    start: Ints
    end: Ints
    edges: Ints
    covered: Ints

    @classmethod
    def of(cls, profile: Profile, places: Ints) -> "_Communications":
        """Those of some operations of a profile."""
        events = profile.events
        ordered = places[np.argsort(events.start_ps[places], kind="stable")]
        start, end = events.start_ps[ordered], events.end_ps[ordered]
        edges, covered = _union(start, end)
        return cls(ordered, start, end, edges, covered)

    def share(self, start: Ints, end: Ints) -> Floats:
        """Which part of each span any of them covers; 0 for spans without a length."""
        both = [np.interp(times, self.edges, self.covered) for times in (start, end)]
        return np.asarray((both[1] - both[0]) / np.maximum(end - start, 1), np.float64)


def _union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Edges of the time that any of some spans takes, and how much of it has passed at each.

    Spans 0-10, 5-20 and 30-31 have edges 0, 20, 30, 31 where 0, 20, 20 and 21 have passed.
    """
    if not len(start):
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    reach = np.maximum.accumulate(end)
    first = np.append(True, start[1:] > reach[:-1])
    begins, ends = start[first], reach[np.append(np.flatnonzero(first)[1:] - 1, len(start) - 1)]
    edges = np.stack((begins, ends), axis=1).ravel()
    passed = np.cumsum(ends - begins)
    covered = np.stack((np.append(0, passed[:-1]), passed), axis=1).ravel()
    return edges, covered


def _executions(profile: Profile) -> _Executions:
    """Runs of kernels that no other kernel of compute ran beside, rank by rank."""
    events, names = profile.events, profile.names
    talks, silent = (
        np.array([*map(bool, map(is_such, names))])[events.name]
        for is_such in (_LIBRARIES.search, _ANNOUNCES.search)
    )
    told = (events.of_kind(*COMMUNICATIONS) | talks) & ~silent
    works = ~told & ~silent & (events.kind != TaskKind.HOST)
    gpus = [ran.gpu for ran in profile.ranks]
    parts = []
    for rank, places in enumerate(profile.places_of_ranks()):
        own = places[events.end_ps[places] != UNKNOWN]
        own = own[np.argsort(events.start_ps[own], kind="stable")]
        comms, work = _Communications.of(profile, own[told[own]]), own[works[own]]
        work = work[np.argsort(events.stream[work], kind="stable")]
        kernels = _with_neighbours(profile, work)
        start, end = events.start_ps[work], events.end_ps[work]
        share, chosen = comms.share(start, end), ~_beside_others(profile, work) & (end > start)
        gpu = np.full(len(work), gpus.index(gpus[rank]))
        stage = np.full(len(work), UNKNOWN if (at := profile.ranks[rank].stage) is None else at)
        columns = (*kernels, gpu, stage, work, end - start, share)
        parts.append([column[chosen] for column in columns])
    *kernels, place, took, share = map(np.concatenate, zip(*parts, strict=True))
    return _Executions(column_numbers(kernels), place, took, share)


def _with_neighbours(profile: Profile, work: Ints) -> list[Ints]:
    """Name and form of operations stream by stream, of the ones before them and of those after."""
    events, count, found = profile.events, len(work), list[Ints]()
    other = events.stream[work[1:]] != events.stream[work[:-1]]
    for column in (events.name[work], events.form[work]):
        before, after = np.full((2, count), UNKNOWN, np.int64)
        before[1:], after[:-1] = column[:-1], column[1:]
        before[1:][other] = after[:-1][other] = UNKNOWN
        found += [column, before, after]
    return found


def _beside_others(profile: Profile, work: Ints) -> Bools:
    """Which operations of a rank have a kernel of compute beside them, on another stream."""
    events = profile.events
    found = np.zeros(len(work), bool)
    kernels = work[events.kind[work] == TaskKind.COMPUTE]
    for stream in distinct(events.stream[work]).tolist():
        others = kernels[events.stream[kernels] != stream]
        if len(others):
            spans = _Communications.of(profile, others)
            own = events.stream[work] == stream
            found[own] = spans.share(events.start_ps[work[own]], events.end_ps[work[own]]) > 0
    return found
