"""A run of Megatron traces as a profile: all ranks on one axis of time, messages matched.

All that a run says is read from its columns. Names of operations are numbered as `OpKind` is, so
`events.name` is compared with these.
"""

from collections.abc import Mapping

import numpy as np

from stepsim.base.arrays import Bools, Ints, among, ints, whole_totals
from stepsim.base.errors import TraceError
from stepsim.base.structs import Names, Noun, replace
from stepsim.measured.profile.events import Events, Following, Profile, RankPlace
from stepsim.measured.run import MESSAGE_KINDS, Degrees, InnerOps, OpKind
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase

_F, _B, _U = TaskPhase.FORWARD, TaskPhase.BACKWARD, TaskPhase.UPDATE
_MEANING = {
    OpKind.GET_BATCH: ("get-batch", TaskKind.COMPUTE, _F),
    OpKind.FORWARD: ("forward-compute", TaskKind.COMPUTE, _F),
    OpKind.LOSS: ("loss", TaskKind.COMPUTE, _F),
    OpKind.BACKWARD: ("backward-compute", TaskKind.COMPUTE, _B),
    OpKind.WEIGHT_GRAD: ("weight-grad-compute", TaskKind.COMPUTE, TaskPhase.WEIGHT_GRAD),
    OpKind.SEND_FORWARD: ("forward-send", TaskKind.SEND, _F),
    OpKind.RECV_FORWARD: ("forward-recv", TaskKind.RECV, _F),
    OpKind.SEND_BACKWARD: ("backward-send", TaskKind.SEND, _B),
    OpKind.RECV_BACKWARD: ("backward-recv", TaskKind.RECV, _B),
    OpKind.DP_ALLREDUCE: ("dp-all-reduce", TaskKind.COLLECTIVE, _B),
    OpKind.EP_DP_ALLREDUCE: ("ep-dp-all-reduce", TaskKind.COLLECTIVE, _B),
    OpKind.OPTIMIZER: ("optimizer", TaskKind.COMPUTE, _U),
    OpKind.OTHER: ("other", TaskKind.COMPUTE, _U),
    OpKind.COLLECTIVE: ("collective", TaskKind.COLLECTIVE, _B),
}
MEANINGS = tuple(name for name, _, _ in _MEANING.values())
"""What operations are called, by the number of their kind."""
AHEAD = {
    OpKind.SEND_FORWARD: 1,
    OpKind.RECV_BACKWARD: 1,
    OpKind.RECV_FORWARD: -1,
    OpKind.SEND_BACKWARD: -1,
}
"""Stages to the other end of a message."""


class RunProfile(Noun, eq=False):
    """A run as a profile of one step, and what a profile does not hold of it.

    Operations stand rank by rank, in the order of their traces; a chunk is a stage. Collectives
    inside forwards and backwards are parts of these, with their waits: `inner` lists them, and
    `inner.parent` is the place of an operation in the profile. `labels` are what the trace calls
    the operations after the pipeline, by their places. `traces` are the fingerprints of the ranks'
    traces.
    """

    degrees: Degrees
    profile: Profile
    inner: InnerOps
    labels: Mapping[int, str]
    traces: Names

    @property
    def source(self) -> str:
        """Path of the run."""
        return self.profile.source

    @property
    def warnings(self) -> Names:
        """What was noticed while the run was read."""
        return self.profile.warnings

    @property
    def ranks(self) -> tuple[RankPlace, ...]:
        """The traced ranks, ascending."""
        return self.profile.ranks

    @property
    def stages(self) -> tuple[int, ...]:
        """Stages with at least one traced rank."""
        return tuple(sorted({rank.stage for rank in self.ranks if rank.stage is not None}))

    @property
    def missing(self) -> list[int]:
        """Ranks of the job that were not traced."""
        return sorted(set(range(self.degrees.npus or 0)) - {rank.rank for rank in self.ranks})

    def of_stage(self, stage: int) -> list[int]:
        """Places of a stage's ranks in `ranks`."""
        return [index for index, rank in enumerate(self.ranks) if rank.stage == stage]

    def of_rank(self, index: int) -> Events:
        """The operations of the rank at a place in `ranks`, in their order."""
        events = self.profile.events
        first, last = np.searchsorted(events.rank, [index, index + 1])
        return events.taken(slice(first, last))

    def called(self, source: str) -> "RunProfile":
        """The run under another name."""
        return replace(self, profile=replace(self.profile, source=source))

    def inner_ps(self) -> Ints:
        """Time in collectives inside each operation."""
        return whole_totals(self.inner.parent, self.inner.duration_ps, len(self.profile.events))

    def whole_profile(self) -> Profile:
        """The profile of a run whose ranks were all traced; raises TraceError where some lack."""
        if self.degrees.npus is None or self.missing:
            traced = ", ".join(str(rank.rank) for rank in self.ranks[:8])
            raise TraceError(
                f"{self.source}: only rank {traced} was traced: expected all ranks "
                "(stepsim what-if takes one)"
            )
        return self.profile


def meant(kinds: Ints) -> dict[str, Ints]:
    """What operations of these `OpKind` are as events, and their streams: one for each message."""
    message = np.isin(kinds, [*AHEAD])
    task, phase = (ints([int(_MEANING[kind][column]) for kind in OpKind]) for column in (1, 2))
    return {"kind": task[kinds], "phase": phase[kinds], "stream": np.where(message, kinds, 0)}


def of_kinds(events: Events, *kinds: OpKind) -> Ints:
    """Places of the operations of these kinds."""
    return np.flatnonzero(among(events.name, kinds))


def after_pipeline(events: Events) -> Bools:
    """Which operations follow the pipeline."""
    return np.asarray(events.name >= OpKind.DP_ALLREDUCE, np.bool_)


def fused(events: Events) -> Bools:
    """Which of a rank's messages have the interval of the message before them.

    In the steady state one exchange is written as two lines: a send and a receive of equal times.
    """
    message, start, end = among(events.name, MESSAGE_KINDS), events.start_ps, events.end_ps
    second = np.zeros(len(events), np.bool_)
    second[1:] = message[1:] & message[:-1] & (start[1:] == start[:-1]) & (end[1:] == end[:-1])
    return second


def sent_and_received(events: Events) -> Following:
    """Places of the sends and of the receives of messages of which both ends were recorded."""
    sends = of_kinds(events, OpKind.SEND_FORWARD, OpKind.SEND_BACKWARD)
    receives = of_kinds(events, OpKind.RECV_FORWARD, OpKind.RECV_BACKWARD)
    sends = sends[events.meeting[sends] != UNKNOWN]
    _, left, right = np.intersect1d(
        events.meeting[sends], events.meeting[receives], return_indices=True
    )
    return sends[left], receives[right]


def gaps(events: Events) -> Ints:
    """Host time before each of a rank's operations, in ps.

    It is 0 before the first one and inside fused exchanges.
    """
    before = np.zeros(len(events), np.int64)
    before[1:] = events.start_ps[1:] - events.end_ps[:-1]
    before[fused(events)] = 0
    return before
