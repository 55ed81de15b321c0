"""What a stage computes, entry by entry: which task lists are made, and what is written apart."""

from typing import Any

from helpers import collective, row

from stepsim.base.structs import replace
from stepsim.graph.actions import CommNumbers
from stepsim.graph.programs import SegmentKind
from stepsim.graph.task_lists import TaskLists, TaskOptions
from stepsim.graph.writer import ProgramWriter, Written
from stepsim.options import StepOptions
from stepsim.parallel.schedules import Action, ActionKind, Schedule, build
from stepsim.parallel.stages import StageWork
from stepsim.workload.rows import Group, Phase, Role, Row, StepItem, Stream, Work

DP = collective(300, Group.DP)
GRADIENTS = StepItem(
    name="gradients", phase=Phase.WEIGHT_GRAD, work=Work(comms=(DP,)), role=Role.GRADIENTS
)
PLAIN = row(5, 4, 3)


def written(
    *blocks: tuple[Row, ...],
    schedule: Schedule | None = None,
    per_step: tuple[StepItem, ...] = (),
    stage: int = 0,
    **options: Any,
) -> tuple[Written, TaskLists]:
    """A stage whose microbatches take these rows in turn, of a gpipe of 4 microbatches."""
    schedule = schedule or build("gpipe", ranks=1, microbatches=4)
    chunks = schedule.placement.chunks
    lists = TaskLists(
        comms=CommNumbers(alone=frozenset()),
        options=TaskOptions.of(StepOptions(**options)),
        last_stage=schedule.placement.stages - 1,
    )
    work = StageWork(chunks=(blocks,) * chunks, per_step=per_step)
    writer = ProgramWriter(stage=stage, work=work, schedule=schedule, task_lists=lists)
    return writer.write(), lists


def rows_of(found: Written) -> list[dict[str, int]]:
    """What is written of entries of several segments, row by row."""
    columns = {name: column.tolist() for name, column in found.rows.items()}
    return [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]


def durations(lists: TaskLists, number: int) -> int:
    return sum(task.duration_ps for task in lists.lists[number].tasks)


def test_microbatches_of_the_same_rows_share_a_list_of_each_kind() -> None:
    found, lists = written((PLAIN,))
    assert found.is_plain
    assert not found.has_tail
    assert [found.numbers[look] for look in found.look] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [durations(lists, number) for number in found.numbers] == [5, 7]
    assert found.used == [0, 1]
    assert not found.on_dp.any()


def test_what_follows_the_pipeline_is_a_list_of_its_own() -> None:
    found, lists = written((PLAIN,), per_step=(GRADIENTS,))
    assert found.has_tail
    assert found.tail == 2
    assert [task.comm for task in lists.lists[2].tasks if task.comm >= 0] == [0]
    assert found.used == [0, 1, 2]


def test_overlapped_gradients_are_reduced_while_the_last_backward_goes_on() -> None:
    """The last backward is written row by row; each row's share of the bytes is a reduction."""
    other = replace(PLAIN, weight_grad=Work(compute_ps=6))
    found, lists = written(
        (PLAIN, other), per_step=(GRADIENTS,), dp_overlap=True, dp_bucket_bytes=1
    )
    assert not found.is_plain
    assert not any(task.comm >= 0 for task in lists.lists[found.tail].tasks)
    kinds = [(each["kind"], each["place"]) for each in rows_of(found)]
    action, reduction = (SegmentKind.ACTION, 7), (SegmentKind.REDUCTION, 7)
    assert kinds == [action, reduction, action, reduction]
    assert found.numbers[found.look[7]] == -1
    sizes = [
        lists.comms.ops[task.comm].size_bytes
        for each in rows_of(found)
        if each["kind"] == SegmentKind.REDUCTION
        for task in lists.lists[each["task_list"]].tasks
    ]
    assert sizes == [200, 100]
    assert {each["stream"] for each in rows_of(found)} == {Stream.COMPUTE, Stream.DP}


def test_rows_that_reduce_their_own_gradients_do_so_after_the_last_backward_alone() -> None:
    found, _ = written((replace(PLAIN, weight_grad=Work(compute_ps=3, comms=(DP,))),))
    assert [each["place"] for each in rows_of(found)] == [7, 7]


def test_split_backwards_reduce_after_the_weight_gradient() -> None:
    schedule = build("zb-h1", ranks=2, microbatches=4)
    own = replace(PLAIN, weight_grad=Work(compute_ps=3, comms=(DP,)))
    found, _ = written((own,), schedule=schedule, stage=1)
    last = schedule.orders[1][-1]
    assert isinstance(last, Action)
    assert last.kind is ActionKind.WEIGHT_GRAD
    assert {each["place"] for each in rows_of(found)} == {len(schedule.orders[1]) - 1}
