"""What a stage computes, entry by entry: which task lists are made, and what is written apart."""

from typing import Any

import numpy as np
import pytest
from helpers import collective, row

from stepsim.base.errors import ScheduleError
from stepsim.base.structs import replace
from stepsim.graph.actions import CommNumbers
from stepsim.graph.programs import COLUMNS, NONE, Joins, Rows, SegmentKind
from stepsim.graph.task_lists import TaskLists, TaskOptions
from stepsim.graph.writer import ProgramWriter, Written, merged
from stepsim.options import StepOptions
from stepsim.parallel.schedules import Action, ActionKind, Schedule, build
from stepsim.parallel.stages import StageWork
from stepsim.workload.rows import Group, Phase, Role, Row, Shards, StepItem, Stream, Work

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


def test_microbatches_take_the_blocks_in_turn() -> None:
    """Blocks of 5 and 50: forwards 5 50 5 50, then backwards, the first with the weight's 3."""
    found, lists = written((PLAIN,), (replace(PLAIN, forward=Work(compute_ps=50)),))
    every = [durations(lists, found.numbers[look]) for look in found.look]
    assert every == [5, 50, 5, 50, 7, 7, 7, 7]


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


@pytest.mark.parametrize("bucket", [1, 250, 10**9])
def test_reductions_are_of_all_gradients_whatever_the_bucket(bucket: int) -> None:
    found, lists = written(
        (PLAIN,) * 3, per_step=(GRADIENTS,), dp_overlap=True, dp_bucket_bytes=bucket
    )
    reductions = [each for each in rows_of(found) if each["kind"] == SegmentKind.REDUCTION]
    comms = [task.comm for each in reductions for task in lists.lists[each["task_list"]].tasks]
    assert sum(lists.comms.ops[comm].size_bytes for comm in comms) == DP.size_bytes
    assert len(reductions) == {1: 3, 250: 1, 10**9: 1}[bucket]


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


def sharded(*, again: bool = True, once: bool = False) -> Row:
    gather, reduce = collective(70, Group.DP), collective(80, Group.DP)
    shards = Shards(gather=(gather,), reduce=() if once else (reduce,), again=again, once=once)
    return replace(PLAIN, shards=shards)


def test_sharded_parameters_are_gathered_before_each_unit_and_reduced_after_it() -> None:
    """Two units, four microbatches: a gather per forward and per backward, a reduction per one."""
    found, _ = written((sharded(), sharded()))
    streams = [each["stream"] for each in rows_of(found)]
    assert streams.count(Stream.FSDP) == 2 * 4 * 2
    assert streams.count(Stream.DP) == 2 * 4
    assert streams.count(Stream.COMPUTE) == 2 * 4 * 2
    assert rows_of(found)[0]["stream"] == Stream.FSDP


def test_parameters_that_stay_are_not_gathered_again() -> None:
    streams = [each["stream"] for each in rows_of(written((sharded(again=False),))[0])]
    assert streams.count(Stream.FSDP) == 4


def test_parameters_gathered_once_a_step_are_gathered_by_the_first_forward() -> None:
    found, _ = written((sharded(once=True),))
    gathers = [each["place"] for each in rows_of(found) if each["stream"] == Stream.FSDP]
    assert gathers == [0]


def test_parameters_gathered_again_and_again_need_whole_backwards() -> None:
    with pytest.raises(ScheduleError, match="with fused or split backwards are not modelled"):
        written((sharded(),), schedule=build("zb-h1", ranks=2, microbatches=4), stage=1)


def test_looks_cover_all_entries() -> None:
    schedule = build("interleaved", ranks=2, microbatches=4, chunks=2)
    found, _ = written((PLAIN,), schedule=schedule)
    assert len(found.look) == len(schedule.orders[0])
    assert np.bincount(found.look).tolist() == [4] * 4


def test_a_row_that_waits_for_the_first_row_still_does_among_the_others() -> None:
    """Entry 0 is a unit, a gather that waits for it and a unit more; entry 1 is one segment."""
    columns = dict.fromkeys(COLUMNS, NONE)
    entry = {**columns, "kind": SegmentKind.ACTION, "stream": Stream.COMPUTE, "reads": True}
    entry |= {"joins": Joins.ALONE, "place": 0, "task_list": 5}
    unit = {**entry, "entry": 0}
    gather = {**entry, "kind": SegmentKind.REDUCTION, "stream": Stream.FSDP, "waits": 0}
    stage = Written(
        stage=0,
        numbers=(NONE, 4),
        look=np.array([0, 1]),
        tail=NONE,
        on_dp=np.array([False, False]),
        rows={name: np.array([each[name] for each in (unit, gather, unit)]) for name in unit},
    )
    steps = [{**entry, "entry": 0}, {**entry, "entry": 1, "waits": NONE}] * 2
    rows = merged(
        [stage, stage],
        Rows.of(
            np.array([0, 2, 4], dtype=np.int32),
            **{name: np.array([step[name] for step in steps]) for name in columns},
        ),
    )
    assert rows.stages.tolist() == [0, 4, 8]
    assert rows.waits.tolist() == [NONE, 0, NONE, NONE, NONE, 4, NONE, NONE]
    assert rows.entry.tolist() == [0, NONE, 0, 1] * 2
    assert rows.task_list.tolist() == [5, 5, 5, 4] * 2
