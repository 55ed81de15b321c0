"""A traced Megatron step as a profile: all ranks on one axis of time, messages matched."""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.errors import TraceError
from stepsim.base.structs import replace
from stepsim.measured.checks import missing_ranks
from stepsim.measured.profile.events import (
    UNKNOWN,
    EventKind,
    EventPhase,
    Events,
    ProcessGroup,
    Profile,
    RankPlace,
    counted,
    same,
)
from stepsim.measured.run import OpKind, RankTrace
from stepsim.measured.step_ops import gradient_groups
from stepsim.measured.summary import RunSummary

_F, _B, _U = EventPhase.FORWARD, EventPhase.BACKWARD, EventPhase.UPDATE
_MEANING = {
    OpKind.GET_BATCH: ("get-batch", EventKind.COMPUTE, _F),
    OpKind.FORWARD: ("forward-compute", EventKind.COMPUTE, _F),
    OpKind.LOSS: ("loss", EventKind.COMPUTE, _F),
    OpKind.BACKWARD: ("backward-compute", EventKind.COMPUTE, _B),
    OpKind.SEND_FORWARD: ("forward-send", EventKind.SEND, _F),
    OpKind.RECV_FORWARD: ("forward-recv", EventKind.RECV, _F),
    OpKind.SEND_BACKWARD: ("backward-send", EventKind.SEND, _B),
    OpKind.RECV_BACKWARD: ("backward-recv", EventKind.RECV, _B),
    OpKind.DP_ALLREDUCE: ("dp-all-reduce", EventKind.COLLECTIVE, _B),
    OpKind.EP_DP_ALLREDUCE: ("ep-dp-all-reduce", EventKind.COLLECTIVE, _B),
    OpKind.OPTIMIZER: ("optimizer", EventKind.COMPUTE, _U),
    OpKind.OTHER: ("other", EventKind.COMPUTE, _U),
}
_AHEAD = {
    OpKind.SEND_FORWARD: 1,
    OpKind.RECV_BACKWARD: 1,
    OpKind.RECV_FORWARD: -1,
    OpKind.SEND_BACKWARD: -1,
}
"""Stages to the other end of a message."""


def profile_of_traces(summary: RunSummary) -> Profile:
    """The profile of a run whose ranks were all traced: one step, a chunk per stage.

    Collectives inside forwards and backwards stay parts of them, with their waits. Raises
    TraceError where ranks are missing.
    """
    run, width = summary.run, summary.run.degrees.stage_ranks
    lacking = missing_ranks([each.rank for each in run.ranks], run.degrees.npus or 0)
    if width is None or lacking:
        traced = ", ".join(str(each.rank) for each in run.ranks[:8])
        raise TraceError(f"{run.source}: only rank {traced} was traced: expected all ranks")
    offsets = summary.clocks.offset_ps.tolist()
    groups: list[ProcessGroup] = []
    parts = [
        _rank_columns(place, trace, int(offset), width, _groups_of(summary, trace, groups))
        for place, (trace, offset) in enumerate(zip(run.ranks, offsets, strict=True))
    ]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    events = Events.of(len(columns["rank"]), **columns)
    return Profile(
        source=run.source,
        format="Megatron / Echo trace",
        ranks=tuple(
            RankPlace(
                rank=trace.rank,
                stage=trace.stage,
                replica=trace.rank % width,
                node=int(node),
                clock=int(node),
                file=trace.file,
            )
            for trace, node in zip(run.ranks, summary.clocks.node.tolist(), strict=True)
        ),
        steps=(0,),
        names=tuple(name for name, _, _ in _MEANING.values()),
        groups=tuple(groups),
        events=_with_meetings(events),
        warnings=run.warnings,
    )


def _rank_columns(
    place: int, trace: RankTrace, offset: int, width: int, group: dict[OpKind, int]
) -> dict[str, Ints]:
    """The columns of one rank's operations; its peers are places, as ranks are all there."""
    kinds = [OpKind(kind) for kind in trace.kind.tolist()]
    message = np.array([kind in _AHEAD for kind in kinds])
    ahead = np.array([_AHEAD.get(kind, 0) for kind in kinds], dtype=np.int64)
    count = len(kinds)
    return {
        "rank": np.full(count, place, dtype=np.int64),
        "step": np.zeros(count, dtype=np.int64),
        "name": trace.kind.astype(np.int64),
        "kind": np.array([_MEANING[kind][1] for kind in kinds], dtype=np.int64),
        "phase": np.array([_MEANING[kind][2] for kind in kinds], dtype=np.int64),
        "stream": np.where(message, trace.kind, 0).astype(np.int64),
        "start_ps": trace.start_ps + offset,
        "end_ps": trace.end_ps + offset,
        "size_bytes": np.where(trace.size_bytes > 0, trace.size_bytes, UNKNOWN),
        "group": np.array([group.get(kind, UNKNOWN) for kind in kinds], dtype=np.int64),
        "peer": np.where(message, place + ahead * width, UNKNOWN),
        "microbatch": np.where(trace.finalize, UNKNOWN, trace.microbatch).astype(np.int64),
        "chunk": np.where(trace.finalize, UNKNOWN, trace.stage).astype(np.int64),
        "order": np.arange(count, dtype=np.int64),
    }


def _groups_of(
    summary: RunSummary, trace: RankTrace, groups: list[ProcessGroup]
) -> dict[OpKind, int]:
    """Places of the groups of a rank's gradient all-reduces; new ones are added to `groups`."""
    found = {}
    for kind in (OpKind.DP_ALLREDUCE, OpKind.EP_DP_ALLREDUCE):
        for ranks in gradient_groups(summary.run.degrees, kind, trace.stage):
            if trace.rank in ranks:
                name = f"{_MEANING[kind][0]} of stage {trace.stage}"
                group = ProcessGroup(name=name, ranks=ranks)
                if group not in groups:
                    groups.append(group)
                found[kind] = groups.index(group)
    return found


def _with_meetings(events: Events) -> Events:
    """Both ends of messages, and collectives of a group in their order, bear one number."""
    message = events.of_kind(EventKind.SEND, EventKind.RECV)
    sent = events.of_kind(EventKind.SEND)
    sender = np.where(sent, events.rank, events.peer)
    collective = events.group != UNKNOWN
    kind = np.where(message, events.phase, np.where(collective, len(EventPhase), UNKNOWN))
    place = np.where(message, sender, events.group)
    number = np.where(message, events.microbatch, counted(events.rank, events.group))
    joined = same(kind, place, number)
    return replace(events, meeting=np.where(kind == UNKNOWN, UNKNOWN, joined))
