"""Programs of two stages and two microbatches, segment by segment; counts of what they use."""

from collections import Counter

import numpy as np
import pytest
from helpers import collective, row

from stepsim.base.structs import replace
from stepsim.graph.build import TaskGraph, build_taskgraph
from stepsim.graph.programs import Look, Segment, SegmentKind
from stepsim.network.prices import Use
from stepsim.options import StepOptions
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import build
from stepsim.parallel.stages import Stages, StageWork
from stepsim.workload.rows import CommOp, Group, Stream, Work

TP = collective(8, Group.TP)
ACTION, SEND, RECV = SegmentKind.ACTION, SegmentKind.SEND, SegmentKind.RECV


def graph(name: str = "1f1b", *comms: CommOp, pp: int = 2, microbatches: int = 2) -> TaskGraph:
    """A row per stage whose forward has these collectives; messages leave when they are posted."""
    rows = ((replace(row(5, 7), forward=Work(compute_ps=5, comms=comms)),),)
    works = (StageWork(chunks=(rows,), per_step=()),) * pp
    stages = Stages(works=works, pp_comm_bytes=8, warnings=())
    schedule = build(name, ranks=pp, microbatches=microbatches)
    plan = ParallelPlan(tp=2, pp=pp, microbatches=microbatches)
    return build_taskgraph(stages, schedule, plan, StepOptions(p2p=P2PMode.EAGER))


def test_the_last_stage_of_gpipe_segment_by_segment() -> None:
    """recv F, recv F, B send, B send: actions in order, each receipt before its forward."""
    first, last = graph("gpipe").programs
    assert [SegmentKind(kind) for kind in last.shape.kind].count(ACTION) == 4
    assert Counter(last.shape.kind.tolist()) == Counter({ACTION: 4, SEND: 2, RECV: 2})
    actions = [each for each in last.segments if each.kind is ACTION]
    assert [each.entry for each in actions] == [0, 1, 2, 3]
    assert all(each.stream is Stream.COMPUTE for each in actions)
    assert [each.task_list for each in actions] == [0, 0, 1, 1]
    messages = [each for each in last.segments if each.kind is not ACTION]
    assert {(each.task_list, each.entry, each.peer_stage) for each in messages} == {(-1, -1, 0)}
    for number, segment in enumerate(last.segments):
        if segment.kind is not ACTION:
            there: Segment = first.segments[segment.peer]
            assert (there.peer, there.peer_stage) == (number, 1)
            assert {there.kind, segment.kind} == {SEND, RECV}


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1"])
def test_segments_wait_for_earlier_ones_and_every_action_for_the_one_before(name: str) -> None:
    for program in graph(name, pp=3, microbatches=4).programs:
        last = None
        for number, segment in enumerate(program.segments):
            assert all(before < number for before in segment.after)
            if segment.kind is ACTION:
                assert last is None or last in segment.after
                last = number


def test_a_receipt_is_waited_for_by_what_it_feeds() -> None:
    """The forward of the last stage computes when its input has come."""
    _, last = graph().programs
    forwards = [each for each in last.segments if each.kind is ACTION and each.task_list == 0]
    received = [i for i, each in enumerate(last.segments) if each.kind is RECV]
    assert [set(each.after) & set(received) for each in forwards] == [{i} for i in received]


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
        for number, segment in enumerate(program.segments):
            look = program.looks[int(program.look[number])]
            assert (look.kind, look.task_list) == (segment.kind, segment.task_list)
            assert program.task_list(number) == segment.task_list
    assert first.task_lists.tolist() == [each.task_list for each in first.segments]


def test_counts_are_those_of_all_segments() -> None:
    """A collective per forward, and a message each way per microbatch."""
    made = graph("1f1b", TP, microbatches=3)
    number = made.comms.index(TP)
    message = 1 - number
    for stage, program in enumerate(made.programs):
        assert program.counts == Counter(
            {
                Use(number, stage): 3,
                Use(message, stage, 1 - stage, sends=True): 3,
                Use(message, stage, 1 - stage, sends=False): 3,
            }
        )
        assert program.uses == tuple(sorted(program.counts))


def test_ends_of_a_use_are_its_sender_and_receiver() -> None:
    assert Use(0, 3).ends == (3, 3)
    assert Use(0, 3, 4, sends=True).ends == (3, 4)
    assert Use(0, 3, 4, sends=False).ends == (4, 3)


def test_senders_are_the_stages_that_messages_come_from() -> None:
    assert [program.shape.senders for program in graph(pp=3).programs] == [(1,), (0, 2), (1,)]
