"""What kernels of a profile take alone, where communication ran beside some of them.

A kernel is told from another by its name, how it was launched, and its neighbours on its stream. An
execution is alone where no communication covers any of it; those beside another compute kernel are
left out, for they share the GPU with that one, too.
"""

import re

import numpy as np

from stepsim.base.arrays import Bools, Ints, bins, column_numbers, distinct, medians
from stepsim.measured.profile.busy import Busy
from stepsim.measured.profile.events import Events, Profile, unknown
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, TaskKind

# Kernels of DeepEP that tell sizes before tokens follow: neither compute nor communication.
_ANNOUNCES = re.compile(r"(?:::|deep_ep )\w*notify|dispatch_layout")
_FEWEST = 2


_LIBRARIES = re.compile(
    r"nccl|rccl|deep_?ep|dpsk::ep|hybrid_?ep|nvshmem|memcpy p2?to?p|memcpy peer",
    re.IGNORECASE,
)


def alone_times_ps(profile: Profile) -> Ints:
    """What every operation takes alone: the median of its kernel's executions alone, in ps.

    `UNKNOWN` for an operation that ran alone itself, and for one whose kernel did less than twice.
    """
    found = unknown(len(profile.events))
    kernel, place, took_ps, is_beside = _executions(profile)
    alone = ~is_beside
    count = np.bincount(kernel[alone], minlength=bins(kernel))
    told = np.flatnonzero(is_beside & (count[kernel] >= _FEWEST))
    if len(told):
        median = np.rint(medians(kernel[alone], took_ps[alone], len(count)))
        found[place[told]] = median[kernel[told]].astype(np.int64)
    return found


def _executions(profile: Profile) -> tuple[Ints, Ints, Ints, Bools]:
    """Runs of kernels that no other kernel of compute ran beside, rank by rank, in columns.

    The kernel of each, its place, what it took in ps, and whether communication ran beside it. A
    kernel is told from another by the kind of GPU and the stage, its name and form, and those of
    its neighbours on its stream: one name may be the work of a whole stage, and stages differ.
    """
    events = profile.events
    talks, silent = map(profile.called, (_LIBRARIES.search, _ANNOUNCES.search))
    told = (events.of_kind(*COMMUNICATIONS) | talks) & ~silent
    works = ~told & ~silent & (events.kind != TaskKind.HOST)
    gpus, stage = [ran.gpu for ran in profile.ranks], profile.column_of_ranks("stage")
    parts = []
    for rank, places in enumerate(profile.places_of_ranks()):
        own = events.in_time(places)
        work = own[works[own]]
        work = work[np.argsort(events.stream[work], kind="stable")]
        kernels = _with_neighbours(profile, work)
        took, is_beside = events.duration_ps[work], _are_beside(events, work, own[told[own]])
        chosen = ~_beside_others(events, work) & (took > 0)
        gpu = np.full(len(work), gpus.index(gpus[rank]))
        columns = (*kernels, gpu, stage[work], work, took, is_beside)
        parts.append([column[chosen] for column in columns])
    *kernels, place, took, is_beside = map(np.concatenate, zip(*parts, strict=True))
    return column_numbers(kernels), place, took, is_beside


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


def _beside_others(events: Events, work: Ints) -> Bools:
    """Which operations of a rank have a kernel of compute beside them, on another stream."""
    found = np.zeros(len(work), bool)
    kernels = work[events.kind[work] == TaskKind.COMPUTE]
    for stream in distinct(events.stream[work]).tolist():
        own = events.stream[work] == stream
        others = kernels[events.stream[kernels] != stream]
        found[own] = _are_beside(events, work[own], others)
    return found


def _are_beside(events: Events, some: Ints, others: Ints) -> Bools:
    """Which of some operations run, at least in part, while any of the others does."""
    busy = Busy.of(events.start_ps[others], events.end_ps[others])
    return busy.within(events.start_ps[some], events.end_ps[some]) > 0
