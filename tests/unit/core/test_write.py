"""What the stages of a graph run: both ends of messages, host times, gradients while they come."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import collective, row

from stepsim.base.axes import Group, Phase, Stream
from stepsim.base.structs import replace
from stepsim.core.write import Program, SegmentKind, TaskGraph, write_graph
from stepsim.files.asked import StepInputs
from stepsim.files.load import topology_of, workload_of
from stepsim.files.schedule_csv import parse_schedule
from stepsim.options import StepOptions
from stepsim.parallel.schedules import ActionKind, Schedule, build
from stepsim.parallel.stages import Stages, StageWork
from stepsim.run.spans import TaskKind
from stepsim.step.prepared import prepare
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Role, Row, StepItem, Work


def test_a_step_does_not_remember_those_before_it(moe: Path) -> None:
    """Steps of one schedule with other work, asked for in any order, take what they take alone."""
    workload, topology = workload_of(moe), topology_of("hgx-h100")
    asked = [
        StepOptions(microbatches=8, host_overhead_ps=ps) for ps in (0, 5_000_000, 0, 5_000_000)
    ]
    first, second, third, fourth = (
        prepare(StepInputs(workload, topology, options)).simulated().report for options in asked
    )
    assert first.step_time_ps == third.step_time_ps < second.step_time_ps == fourth.step_time_ps
    assert first.breakdown_ps == third.breakdown_ps


def list_numbers(program: Program) -> list[int]:
    """The task list of every segment, -1 for messages."""
    return [program.looks[i].task_list for i in program.look]


def backwards_in_turn() -> Schedule:
    """Two ranks whose last microbatch comes first, so that the first message is not met first."""
    text = "0F1,0F0,0B1,0B0\n1F1,1B1,1F0,1B0\n"
    return parse_schedule(text, source="test", name="backwards in turn")


@pytest.mark.parametrize("schedule", [backwards_in_turn(), build("1f1b", ranks=2, microbatches=1)])
def test_both_ends_of_every_message_know_each_other(workloads: Path, schedule: Schedule) -> None:
    options = StepOptions(schedule=schedule, microbatches=schedule.microbatches, pp=2)
    work, network = workload_of(workloads / "gpt_tp4.txt"), topology_of("hgx-h100")
    graph = prepare(StepInputs(work, network, options)).graph
    messages, told = 0, {*graph.streams()}
    for stage, program in enumerate(graph.programs):
        for number in np.flatnonzero(program.end >= 0).tolist():
            assert (program.message, Stream(program.stream[number])) in told
            far, peer = graph.programs[program.peer_stage[number]], program.peer[number]
            assert (far.peer_stage[peer], far.peer[peer]) == (stage, number)
            assert {far.kind[peer], program.kind[number]} == {SegmentKind.SEND, SegmentKind.RECV}
            messages += 1
    assert messages == 4 * schedule.microbatches


def test_the_first_stage_gets_batches_and_the_last_computes_the_loss(workloads: Path) -> None:
    """Every microbatch does so once: three forwards of each stage have host tasks there."""
    options = StepOptions(pp=4, microbatches=3, get_batch_ps=5, loss_time_ps=7)
    work, network = workload_of(workloads / "gpt_tp4.txt"), topology_of("hgx-h100")
    graph = prepare(StepInputs(work, network, options)).graph

    def host_ps(stage: int) -> list[int]:
        numbers = list_numbers(graph.programs[stage])
        tasks = (task for i in numbers if i >= 0 for task in graph.task_lists[i].tasks)
        return [task.duration_ps for task in tasks if task.kind is TaskKind.HOST]

    assert [host_ps(stage) for stage in range(4)] == [[5] * 3, [], [], [7] * 3]


DP = collective(300, Group.DP)
GRADIENTS = StepItem(
    name="gradients", phase=Phase.WEIGHT_GRAD, work=Work(comms=(DP,)), role=Role.GRADIENTS
)
PLAIN = row(5, 4, 3)
ACTION, REDUCTION = SegmentKind.ACTION, SegmentKind.REDUCTION


def written(*rows: Row, name: str = "gpipe", pp: int = 1, **options: Any) -> TaskGraph:
    """Four microbatches of these rows on every stage, whose gradients are reduced at the end."""
    work = StageWork(chunks=((rows,),), per_step=(GRADIENTS,))
    stages = Stages(works=(work,) * pp, pp_comm_bytes=0, warnings=())
    plan = Plan(dp=2, pp=pp, microbatches=4)
    return write_graph(stages, build(name, ranks=pp, microbatches=4), plan, StepOptions(**options))


def test_microbatches_of_the_same_rows_share_a_list_of_each_kind() -> None:
    (program,) = written(PLAIN).programs
    assert list_numbers(program) == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    took = [sum(task.duration_ps for task in each.tasks) for each in program.lists[:2]]
    assert took == [5, 7]
    assert program.after.tolist() == [(), *((i,) for i in range(8))]


def test_overlapped_gradients_are_reduced_while_the_last_backward_goes_on() -> None:
    """The last backward is written row by row; each row's share of the bytes is a reduction."""
    other = replace(PLAIN, weight_grad=Work(compute_ps=6))
    graph = written(PLAIN, other, dp_overlap=True, dp_bucket_bytes=1)
    (program,) = graph.programs
    assert program.kind[7:11].tolist() == [ACTION, REDUCTION, ACTION, REDUCTION]
    assert program.after.tolist()[7:11] == [(6,), (7,), (7,), (9, 8)]
    sizes = [
        graph.comms[task.comm].size_bytes
        for number in list_numbers(program)[8:11:2]
        for task in program.lists[number].tasks
    ]
    assert sizes == [200, 100]


def test_split_backwards_reduce_after_the_weight_gradient() -> None:
    own = replace(PLAIN, weight_grad=Work(compute_ps=3, comms=(DP,)))
    for program in written(own, name="zb-h1", pp=2).programs[1:]:
        (reduction,) = np.flatnonzero(program.kind == REDUCTION).tolist()
        (before,) = program.after[reduction]
        last = program.entry[before]
        assert program.entries[last].parts()[0].kind is ActionKind.WEIGHT_GRAD
        assert last == len(program.entries) - 1
