"""Graphs of one schedule share what depends on it alone, and nothing else."""

from pathlib import Path
from typing import Any

from stepsim.files.load import topology_of, workload_of
from stepsim.files.schedule_csv import parse_schedule
from stepsim.graph.build import TaskGraph
from stepsim.graph.programs import SegmentKind
from stepsim.options import StepOptions
from stepsim.parallel.schedules import Schedule
from stepsim.step.prepared import prepare
from stepsim.step.simulate import simulate_step
from stepsim.tables.spans import TaskKind


def test_plans_of_one_schedule_share_their_segments(moe: Path) -> None:
    workload, topology = workload_of(moe), topology_of("hgx-h100")

    def graph(**options: Any) -> TaskGraph:
        return prepare(workload, topology, StepOptions(microbatches=8, **options)).graph

    first, larger, overlapped = graph(), graph(npus=256), graph(dp_overlap=True)
    assert first.plan.dp != larger.plan.dp
    assert [a.shape for a in first.programs] == [b.shape for b in larger.programs]
    assert all(
        a.shape is not b.shape for a, b in zip(first.programs, overlapped.programs, strict=True)
    )
    slower = graph(host_overhead_ps=7)
    assert first.programs[0].shape is slower.programs[0].shape


def test_a_step_does_not_remember_those_before_it(moe: Path) -> None:
    """Steps of one schedule with other work, asked for in any order, take what they take alone."""
    workload, topology = workload_of(moe), topology_of("hgx-h100")
    asked = [
        StepOptions(microbatches=8, host_overhead_ps=ps) for ps in (0, 5_000_000, 0, 5_000_000)
    ]
    first, second, third, fourth = (
        simulate_step(workload, topology, options).report for options in asked
    )
    assert first.step_time_ps == third.step_time_ps < second.step_time_ps == fourth.step_time_ps
    assert first.breakdown_ps == third.breakdown_ps


def backwards_in_turn() -> Schedule:
    """Two ranks whose last microbatch comes first, so that the first message is not met first."""
    text = "0F1,0F0,0B1,0B0\n1F1,1B1,1F0,1B0\n"
    return parse_schedule(text, source="test", name="backwards in turn")


def test_both_ends_of_every_message_know_each_other(workloads: Path) -> None:
    options = StepOptions(schedule=backwards_in_turn(), microbatches=2, pp=2)
    graph = prepare(workload_of(workloads / "gpt_tp4.txt"), topology_of("hgx-h100"), options).graph
    messages = 0
    for stage, program in enumerate(graph.programs):
        for number, segment in enumerate(program.segments):
            if segment.kind not in (SegmentKind.SEND, SegmentKind.RECV):
                continue
            far = graph.programs[segment.peer_stage].segments[segment.peer]
            assert (far.peer_stage, far.peer) == (stage, number)
            assert {far.kind, segment.kind} == {SegmentKind.SEND, SegmentKind.RECV}
            messages += 1
    assert messages == 8


def test_the_first_stage_gets_batches_and_the_last_computes_the_loss(workloads: Path) -> None:
    """Every microbatch does so once: three forwards of each stage have host tasks there."""
    options = StepOptions(pp=4, microbatches=3, get_batch_ps=5, loss_time_ps=7)
    graph = prepare(workload_of(workloads / "gpt_tp4.txt"), topology_of("hgx-h100"), options).graph

    def host_ps(stage: int) -> list[int]:
        numbers = graph.programs[stage].task_lists.tolist()
        tasks = (task for i in numbers if i >= 0 for task in graph.task_lists[i].tasks)
        return [task.duration_ps for task in tasks if task.kind is TaskKind.HOST]

    assert [host_ps(stage) for stage in range(4)] == [[5] * 3, [], [], [7] * 3]
