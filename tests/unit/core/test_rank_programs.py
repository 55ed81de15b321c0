"""Programs of two stages and two microbatches, segment by segment; counts of what they use."""

from collections import Counter

import numpy as np
from helpers import collective, row

from stepsim.base.axes import Group
from stepsim.base.structs import replace
from stepsim.core.write import Look, SegmentKind, TaskGraph, write_graph
from stepsim.network.prices import Use
from stepsim.options import StepOptions
from stepsim.parallel.p2p import Message, P2PMode
from stepsim.parallel.schedules import build
from stepsim.parallel.stages import Stages, StageWork
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, Work

TP = collective(8, Group.TP)
ACTION, SEND, RECV = SegmentKind.ACTION, SegmentKind.SEND, SegmentKind.RECV


def graph(name: str = "1f1b", *comms: CommOp, pp: int = 2, microbatches: int = 2) -> TaskGraph:
    """A row per stage whose forward has these collectives; messages leave when they are posted."""
    rows = ((replace(row(5, 7), forward=Work(compute_ps=5, comms=comms)),),)
    works = (StageWork(chunks=(rows,), per_step=()),) * pp
    stages = Stages(works=works, pp_comm_bytes=8, warnings=())
    schedule = build(name, ranks=pp, microbatches=microbatches)
    plan = Plan(tp=2, pp=pp, microbatches=microbatches)
    return write_graph(stages, schedule, plan, StepOptions(p2p=P2PMode.EAGER))


def test_looks_say_what_segments_do_and_how_often() -> None:
    first, last = graph("gpipe", TP).programs
    assert set(first.looks) == {
        Look(ACTION, 0, -1, 2),
        Look(ACTION, 1, -1, 2),
        Look(SEND, -1, 1, 2),
        Look(RECV, -1, 1, 2),
    }
    for program in (first, last):
        assert [program.looks[i].runs for i in range(len(program.looks))] == np.bincount(
            program.look
        ).tolist()
        is_message = [program.looks[i].task_list < 0 for i in program.look]
        assert is_message == (program.end >= 0).tolist()


def test_counts_are_those_of_all_segments() -> None:
    """Two collectives per forward, and a message each way per microbatch."""
    made = graph("1f1b", TP, TP, microbatches=3)
    number = made.comms.index(TP)
    message = 1 - number
    for stage, program in enumerate(made.programs):
        assert program.counts == Counter(
            {
                Use(number, stage): 6,
                Use(message, stage, 1 - stage, sends=True): 3,
                Use(message, stage, 1 - stage, sends=False): 3,
            }
        )
        assert program.uses == tuple(sorted(program.counts))


def test_messages_are_those_that_the_actions_at_their_ends_send_and_need() -> None:
    made = graph("gpipe", pp=3)
    forward = [(f"F{i}", 0, 1) for i in (0, 1)], [(f"F{i}", 1, 2) for i in (0, 1)]
    back = [(f"B{i}", 2, 1) for i in (0, 1)], [(f"B{i}", 1, 0) for i in (0, 1)]
    told = [
        sorted(
            (f"{m.kind.value}{m.microbatch}", m.source, m.target)
            for end in program.end.tolist()
            if end >= 0
            for m in [Message.of(made.schedule, end // 2)]
        )
        for program in made.programs
    ]
    assert told == [
        sorted([*forward[0], *back[1]]),
        sorted([*forward[0], *forward[1], *back[0], *back[1]]),
        sorted([*forward[1], *back[0]]),
    ]
