"""A run of Megatron traces as a profile: all ranks on one axis of time, messages matched.

All that a run says is read from its columns. Names of operations are numbered as `OpKind` is, so
`events.name` is compared with these.
"""

from collections.abc import Mapping

import numpy as np

from stepsim.base.arrays import Bools, Ints, among, ints, whole_totals
from stepsim.base.errors import TraceError
from stepsim.base.structs import Names, Noun, replace
from stepsim.measured.checks import missing_ranks
from stepsim.measured.profile.events import Events, ProcessGroup, Profile, RankPlace, counted, same
from stepsim.measured.run import (
    Degrees,
    InnerOps,
    MeasuredRun,
    OpKind,
    RankTrace,
    fused_exchanges,
    gradient_groups,
    times_hash,
)
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
_AHEAD = {
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
        numbers = [rank.rank for rank in self.ranks]
        lacking = missing_ranks(numbers, self.degrees.npus or 0)
        if self.degrees.stage_ranks is None or lacking:
            traced = ", ".join(map(str, numbers[:8]))
            raise TraceError(
                f"{self.source}: only rank {traced} was traced: expected all ranks "
                "(stepsim what-if takes one)"
            )
        return self.profile


def run_profile(run: MeasuredRun, node_size: int, offset_ps: Ints) -> RunProfile:
    """The traces of a run joined on one axis, on which `offset_ps` added to the times puts each.

    Peers that were not traced, and groups that degrees do not tell, are not known.
    """
    groups: list[ProcessGroup] = []
    index_of = {trace.rank: index for index, trace in enumerate(run.ranks)}
    parts = [
        _rank_events(run.degrees, trace, int(offset), index_of, groups)
        for trace, offset in zip(run.ranks, offset_ps.tolist(), strict=True)
    ]
    events = Events.joined(*parts)
    begins = np.searchsorted(events.rank, np.arange(len(run.ranks)))
    profile = Profile(
        source=run.source,
        format="Megatron / Echo trace",
        ranks=tuple(_rank_places(run, node_size)),
        steps=(0,),
        names=MEANINGS,
        groups=tuple(groups),
        events=_with_meetings(events),
        warnings=run.warnings,
    )
    labels = [label for trace in run.ranks for label in trace.label]
    return RunProfile(
        degrees=run.degrees,
        profile=profile,
        inner=_joined_inner([trace.inner for trace in run.ranks], begins.tolist()),
        labels={place: labels[place] for place in np.flatnonzero(after_pipeline(events)).tolist()},
        traces=tuple(times_hash(each.kind, each.start_ps, each.end_ps) for each in run.ranks),
    )


def meant(kinds: Ints) -> dict[str, Ints]:
    """What operations of these `OpKind` are as events, and their streams: one for each message."""
    message = np.isin(kinds, [*_AHEAD])
    task, phase = (ints([int(_MEANING[kind][column]) for kind in OpKind]) for column in (1, 2))
    return {"kind": task[kinds], "phase": phase[kinds], "stream": np.where(message, kinds, 0)}


def of_kinds(events: Events, *kinds: OpKind) -> Ints:
    """Places of the operations of these kinds."""
    return np.flatnonzero(among(events.name, kinds))


def after_pipeline(events: Events) -> Bools:
    """Which operations follow the pipeline."""
    return np.asarray(events.name >= OpKind.DP_ALLREDUCE, np.bool_)


def fused(events: Events) -> Bools:
    """Which of a rank's messages are the second line of a fused exchange."""
    return fused_exchanges(events.name, events.start_ps, events.end_ps)


def gaps(events: Events) -> Ints:
    """Host time before each of a rank's operations, in ps.

    It is 0 before the first one and inside fused exchanges.
    """
    before = np.zeros(len(events), np.int64)
    before[1:] = events.start_ps[1:] - events.end_ps[:-1]
    before[fused(events)] = 0
    return before


def _rank_places(run: MeasuredRun, node_size: int) -> list[RankPlace]:
    """The traced ranks, each on the clock of its node."""
    width = run.degrees.stage_ranks
    return [
        RankPlace(
            rank=trace.rank,
            stage=trace.stage,
            replica=None if width is None else trace.rank % width,
            node=trace.rank // node_size,
            clock=trace.rank // node_size,
            file=trace.file,
        )
        for trace in run.ranks
    ]


def _joined_inner(parts: list[InnerOps], begins: list[int]) -> InnerOps:
    """Collectives inside operations of all ranks, whose operations begin at these places."""
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in InnerOps.__struct_fields__
    }
    columns["parent"] += np.repeat(begins, [len(part.parent) for part in parts])
    return InnerOps(**columns)


def _rank_events(
    degrees: Degrees,
    trace: RankTrace,
    offset: int,
    index_of: Mapping[int, int],
    groups: list[ProcessGroup],
) -> Events:
    """One rank's operations; new groups of its collectives are added to `groups`.

    `index_of` are the places of the traced ranks.
    """
    kinds = [OpKind(kind) for kind in trace.kind.tolist()]
    group, peer = _groups_of(degrees, trace, groups), _peers(degrees, trace.rank, index_of)
    columns = {
        "rank": np.full(len(kinds), index_of[trace.rank], np.int64),
        "step": np.zeros(len(kinds), np.int64),
        "name": trace.kind.astype(np.int64),
        **meant(trace.kind.astype(np.int64)),
        "start_ps": trace.start_ps + offset,
        "end_ps": trace.end_ps + offset,
        "size_bytes": np.where(trace.size_bytes > 0, trace.size_bytes, UNKNOWN),
        "group": ints([group.get(kind, UNKNOWN) for kind in kinds]),
        "peer": ints([peer.get(kind, UNKNOWN) for kind in kinds]),
        "microbatch": np.where(trace.finalize, UNKNOWN, trace.microbatch).astype(np.int64),
        "chunk": np.where(trace.finalize, UNKNOWN, trace.stage).astype(np.int64),
        "order": np.arange(len(kinds)),
    }
    return Events.of(len(kinds), **columns)


def _peers(degrees: Degrees, rank: int, index_of: Mapping[int, int]) -> dict[OpKind, int]:
    """Places of the ranks at the other ends of a rank's messages, where these were traced."""
    width = degrees.stage_ranks
    if width is None:
        return {}
    return {kind: index_of.get(rank + ahead * width, UNKNOWN) for kind, ahead in _AHEAD.items()}


def _groups_of(degrees: Degrees, trace: RankTrace, groups: list[ProcessGroup]) -> dict[OpKind, int]:
    """Places of the groups of a rank's gradient all-reduces; new ones are added to `groups`."""
    found = {}
    for kind in (OpKind.DP_ALLREDUCE, OpKind.EP_DP_ALLREDUCE):
        for ranks in gradient_groups(degrees, kind, trace.stage):
            if trace.rank in ranks:
                name = f"{_MEANING[kind][0]} of stage {trace.stage}"
                group = ProcessGroup(name=name, ranks=ranks)
                if group not in groups:
                    groups.append(group)
                found[kind] = groups.index(group)
    return found


def _with_meetings(events: Events) -> Events:
    """Both ends of messages, and collectives of a group in their order, bear one number.

    The message of a microbatch is known by its phase and its sender. Where the sender was not
    traced it is known by its receiver, and meets nobody else.
    """
    message = events.is_message
    sent = events.of_kind(TaskKind.SEND)
    alone = int(events.rank.max()) + 1 + events.rank
    sender = np.where(sent, events.rank, np.where(events.peer == UNKNOWN, alone, events.peer))
    collective = events.group != UNKNOWN
    kind = np.where(message, events.phase, np.where(collective, len(TaskPhase), UNKNOWN))
    source = np.where(message, sender, events.group)
    number = np.where(message, events.microbatch, counted(events.rank, events.group))
    joined = same(kind, source, number)
    return replace(events, meeting=np.where(kind == UNKNOWN, UNKNOWN, joined))
