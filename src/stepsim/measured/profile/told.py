"""Stages and phases of a pipeline whose program marked none, told by the order of its messages.

The first stage sends before it receives anything; any other first receives from the stage before
it. Between two sends of a middle stage lies one action, told by where the second one goes. The
first stage sends after forwards only, the last one after backwards only: there kernels that
autograd launched are backwards, and without such marks as many kernels as a forward has elsewhere.
"""

import re
from itertools import compress

import numpy as np

from stepsim.base.arrays import Bools, Ints
from stepsim.base.errors import TraceError
from stepsim.base.structs import Numbers, replace
from stepsim.measured.profile.events import Events, Profile, unknown
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase

# Names of kernels that a forward of the last stage ends with.
_LOSS = re.compile(r"^(?!.*(?:backward|bwd|grad)).*(?:loss|cross_?entropy)", re.IGNORECASE)
_F, _B = TaskPhase.FORWARD, TaskPhase.BACKWARD


Labelled = tuple[Events, str]
"""Operations with phase, virtual stage (`chunk`) and microbatch, and what told these."""

# Places of a rank's computes: those of each forward, and those of each backward, in order.
_Blocks = tuple[list[Ints], list[Ints]]


def stages_by_messages(profile: Profile) -> Numbers:
    """The pipeline stage of every rank; raises TraceError that names what was not recorded."""
    firsts = _first_peers(profile)
    stages: list[int] = []
    for place in range(len(firsts)):
        count, at = 0, place
        while firsts[at] is not None and count < len(firsts):
            at, count = firsts[at] or 0, count + 1
            if at == UNKNOWN:
                raise TraceError(
                    f"{profile.source}: the stage of rank {profile.ranks[place].rank} is not "
                    "known: the rank that it first receives from was not recorded, and no range "
                    "(record_function, NVTX) names its stage"
                )
        stages.append(count)
    _check_peers(profile, stages)
    return tuple(stages)


def _first_peers(profile: Profile) -> list[int | None]:
    """The rank that every rank first receives from; None where it sends before it receives."""
    events, found = profile.events, list[int | None]()
    for place, rank in enumerate(profile.ranks):
        places = np.flatnonzero(events.is_message & (events.rank == place))
        if not len(places):
            raise TraceError(f"{profile.source}: rank {rank.rank} has no message of a pipeline")
        order = np.lexsort((events.kind[places], events.start_ps[places]))
        first = places[order[0]]
        sends = events.kind[first] == TaskKind.SEND
        found.append(None if sends else int(events.peer[first]))
    return found


def _check_peers(profile: Profile, stages: list[int]) -> None:
    """Messages go to the next stage and the one before: raises TraceError where chunks are run."""
    events, which = profile.events, np.flatnonzero(profile.events.is_message)
    at = np.array([*stages, UNKNOWN])
    own, other = at[events.rank[which]], at[events.peer[which]]
    far = (other != UNKNOWN) & (np.abs(own - other) != 1)
    if far.any():
        number = profile.ranks[int(events.rank[which[far][0]])].rank
        raise TraceError(
            f"{profile.source}: rank {number} talks to ranks that are no neighbours in the "
            "pipeline: it runs several chunks, and no range (record_function, NVTX) names them"
        )


def told_by_messages(profile: Profile, autograd: Bools) -> Labelled:
    """Labels of a job of one chunk per rank; `autograd` are the operations that it launched.

    Raises TraceError that names what was not recorded.
    """
    events, stages = profile.events, stages_by_messages(profile)
    phase, microbatch = (unknown(len(events)) for _ in range(2))
    blocks: dict[int, _Blocks] = {}
    for place in sorted(range(len(stages)), key=lambda place: stages[place]):
        blocks[place] = _blocks(profile, place, stages, blocks, autograd)
        for value, runs in zip((_F, _B), blocks[place], strict=True):
            for number, run in enumerate(runs):
                phase[run], microbatch[run] = value, number
    _inherit(profile, phase, microbatch)
    parted = "autograd's launches" if autograd.any() else "as many kernels as a forward has"
    chunk = np.array(stages)[events.rank]
    return replace(events, phase=phase, chunk=chunk, microbatch=microbatch), (
        f"nothing is marked: told by the order of {int(events.is_message.sum())} messages, "
        f"on the first and last stage by {parted} "
        f"({'medium' if autograd.any() else 'low'} confidence)"
    )


def _blocks(
    profile: Profile,
    place: int,
    stages: Numbers,
    known: dict[int, _Blocks],
    autograd: Bools,
) -> _Blocks:
    """The forwards and backwards of a rank; `known` are those of ranks of earlier stages."""
    events = profile.events
    compute, sends = (
        events.in_time(np.flatnonzero((events.rank == place) & events.of_kind(kind)))
        for kind in (TaskKind.COMPUTE, TaskKind.SEND)
    )
    cuts = np.searchsorted(events.start_ps[compute], events.start_ps[sends], side="left")
    *runs, rest = np.split(compute, cuts)
    if stages[place] == 0:
        return _first_stage(profile, place, runs, rest, autograd)
    ahead = np.array([*stages, UNKNOWN])[events.peer[sends]] > stages[place]
    if not ahead.any():
        before = next((known[r] for r in known if stages[r] == stages[place] - 1), None)
        return _last_stage(profile, runs, before, autograd)
    return [*compress(runs, ahead)], [*compress(runs, ~ahead)]


def _first_stage(
    profile: Profile, place: int, runs: list[Ints], rest: Ints, autograd: Bools
) -> _Blocks:
    """Each run ends with a forward; backwards before it, and those that follow arrivals after."""
    events, size = profile.events, len(runs[0])
    forwards, backwards = [], list[Ints]()
    for run in runs:
        split = len(run) - size if not autograd.any() else int(autograd[run].sum())
        forwards.append(run[max(split, 0) :])
        backwards += [run[:split]] if split > 0 else []
    arrivals = np.flatnonzero((events.rank == place) & events.of_kind(TaskKind.RECV))
    ends = np.sort(events.end_ps[arrivals])[len(backwards) :]
    cuts = np.searchsorted(events.start_ps[rest], ends, side="left")
    late = np.split(rest, cuts)[1:]
    if autograd.any():
        late = [run[autograd[run]] for run in late]
    usual = len((backwards or late or [rest])[0])
    return forwards, [*backwards, *(run[:usual] for run in late)]


def _last_stage(
    profile: Profile, runs: list[Ints], before: _Blocks | None, autograd: Bools
) -> _Blocks:
    """Each run is a forward and its backward, or all forwards come before the first backward."""
    if autograd.any():
        return [run[~autograd[run]] for run in runs], [run[autograd[run]] for run in runs]
    if before is None:
        raise TraceError(
            f"{profile.source}: no kernel tells where a forward of the last stage ends: expected a "
            "rank of the stage before it, ranges of forwards (record_function, NVTX) or autograd's"
        )
    many, size = len(runs), len(runs[-1])
    if many > 1 and len(runs[0]) > len(runs[1]) and (len(runs[0]) - size) % many == 0:
        own = (len(runs[0]) - size) // many
        return np.split(runs[0][: many * own], many), [runs[0][many * own :], *runs[1:]]
    names = profile.events.name
    (forward, *_), (backward, *_) = before
    ends = profile.called(_LOSS.search)
    if not ends[runs[0]].any():
        ends = np.isin(names, np.setdiff1d(names[forward], names[backward]))
    forwards, backwards = [], []
    for run in runs:
        own_kernels = np.flatnonzero(ends[run])
        split = int(own_kernels[-1]) + 1 if len(own_kernels) else len(forward)
        forwards.append(run[:split])
        backwards.append(run[split:])
    return forwards, backwards


def _inherit(profile: Profile, phase: Ints, microbatch: Ints) -> None:
    """Collectives and copies between two computes of one action are a part of it."""
    events = profile.events
    for places in profile.places_of_ranks():
        own = events.in_time(places[~events.is_message[places]])
        computes = events.kind[own] == TaskKind.COMPUTE
        index = np.arange(len(own))
        last = np.maximum.accumulate(np.where(computes, index, 0))
        after = np.minimum.accumulate(np.where(computes, index, len(own) - 1)[::-1])[::-1]
        inside = ~computes & (phase[own[last]] == phase[own[after]])
        inside &= microbatch[own[last]] == microbatch[own[after]]
        phase[own[inside]] = phase[own[last[inside]]]
        microbatch[own[inside]] = microbatch[own[last[inside]]]
