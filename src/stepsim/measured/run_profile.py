"""What the operations of a measured run are as events of a profile, and the questions to these.

All that a run says is read from its columns. Names of operations are numbered as `OpKind` is, so
`events.name` is compared with these.
"""

import numpy as np

from stepsim.base.arrays import Bools, Ints, among, ints
from stepsim.base.structs import shipped
from stepsim.measured.profile.events import Events, Following
from stepsim.measured.run import MESSAGE_KINDS, OpKind
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase

_MEANING = shipped(__file__, "run_profile.toml", dict[str, tuple[str, str, str]])
_ROWS = [_MEANING[kind.name] for kind in OpKind]
MEANINGS = tuple(name for name, _, _ in _ROWS)
"""What operations are called, by the number of their kind."""
AHEAD = {
    OpKind.SEND_FORWARD: 1,
    OpKind.RECV_BACKWARD: 1,
    OpKind.RECV_FORWARD: -1,
    OpKind.SEND_BACKWARD: -1,
}
"""Stages to the other end of a message."""


def meant(kinds: Ints) -> dict[str, Ints]:
    """What operations of these `OpKind` are as events, and their streams: one for each message."""
    message = np.isin(kinds, [*AHEAD])
    known = ints([(TaskKind[task], TaskPhase[phase]) for _, task, phase in _ROWS])
    task, phase = known[kinds].T
    return {"kind": task, "phase": phase, "stream": np.where(message, kinds, 0)}


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
