"""The tasks of one action: their order, what each waits for, and how long they take together.

Times are worked out by hand: computes take what their rows say, collectives what the test says.
"""

from collections.abc import Sequence

from helpers import collective, row

from stepsim.base.axes import CollectiveKind, Group, Phase, Stream
from stepsim.base.structs import replace
from stepsim.core.actions import (
    NO_HOST,
    CommNumbers,
    HostPart,
    HostTimes,
    TaskList,
    TaskLists,
    backward_tasks,
    forward_tasks,
    fused_tasks,
    gradient_buckets,
    host_times,
)
from stepsim.core.flat import list_times
from stepsim.options import OPTIONS, StepOptions
from stepsim.run.spans import TaskKind
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Row, Work

PLAN = Plan(tp=2, dp=2)


def reducing(
    forward: int, input_grad: int, weight_grad: int = 0, *, name: str = "r", size: int = 8
) -> Row:
    """A row that all-reduces over tp after its forward and its input gradient."""
    comms = (collective(size, Group.TP),)
    return replace(
        row(forward, input_grad, weight_grad, name),
        forward=Work(compute_ps=forward, comms=comms),
        input_grad=Work(compute_ps=input_grad, comms=comms),
    )


def comms() -> CommNumbers:
    return CommNumbers(alone=PLAN.alone)


def spans(task_list: TaskList, comm_ps: int) -> list[tuple[str, int, int]]:
    """Label, start and end of every task, its collectives taking `comm_ps`."""
    took_ps = [comm_ps if task.comm >= 0 else task.duration_ps for task in task_list.tasks]
    times = list_times(task_list, took_ps)
    labels = (f"{task.label} {task.kind.name.lower()}" for task in task_list.tasks)
    return list(zip(labels, times.start.tolist(), times.end.tolist(), strict=True))


def forward(rows: Sequence[Row], host: HostTimes = NO_HOST) -> TaskList:
    return forward_tasks(rows, comms(), host)


def backward(rows: Sequence[Row]) -> TaskList:
    return backward_tasks(rows, comms(), NO_HOST)


# Communications


def test_a_collective_of_one_rank_does_not_exist_and_is_told() -> None:
    table = CommNumbers(alone=Plan(tp=1, dp=2).alone)
    groups = (Group.TP, Group.TP, Group.DP)
    assert [table.number(collective(8, group)) for group in groups] == [None, None, 0]
    assert table.dropped == {Group.TP}
    task_list = forward_tasks([reducing(5, 0)], table, NO_HOST)
    assert [task.kind for task in task_list.tasks] == [TaskKind.COMPUTE]


# Forwards


def test_a_lag_beyond_the_last_row_ends_with_the_forward() -> None:
    """The row after runs beside the collective, and the loss waits for both."""
    rows = [replace(reducing(10, 0, name="a"), forward_lag=5), row(20, 0, name="b")]
    assert spans(forward(rows, (0, 0, 4)), 25) == [
        ("a compute", 0, 10),
        ("a collective", 10, 35),
        ("b compute", 10, 30),
        ("loss host", 35, 39),
    ]


def test_every_part_of_host_time_has_its_option_and_its_field() -> None:
    names = tuple(part.field for part in HostPart)
    assert all(part.option in OPTIONS for part in HostPart)
    asked = replace(StepOptions(), **{name: number for number, name in enumerate(names, 1)})
    assert host_times(asked) == tuple(range(1, len(names) + 1))


# Backwards


def test_weight_gradients_run_beside_the_collective_of_the_input_gradient() -> None:
    """The next row waits for both: for the collective, 10 + 12, or the weights, 10 + 8."""
    rows = [row(0, 6, name="a"), reducing(0, 10, 8, name="b")]
    for comm_ps, ends in ((12, 22), (3, 18)):
        assert spans(backward(rows), comm_ps) == [
            ("b compute", 0, 10),
            ("b collective", 10, 10 + comm_ps),
            ("b compute", 10, 18),
            ("a compute", ends, ends + 6),
        ]


def test_without_overlap_weight_gradients_follow_the_collective() -> None:
    last = replace(reducing(0, 10, 8, name="b"), weights_last=True)
    assert spans(backward([last]), 12) == [
        ("b compute", 0, 10),
        ("b collective", 10, 22),
        ("b compute", 22, 30),
    ]


def test_a_lagging_backward_collective_is_waited_for_some_rows_later() -> None:
    rows = [row(0, 30, name="a"), row(0, 20, name="b")]
    rows += [replace(reducing(0, 10, name="c"), backward_lag=1)]
    assert spans(backward(rows), 25) == [
        ("c compute", 0, 10),
        ("c collective", 10, 35),
        ("b compute", 10, 30),
        ("a compute", 35, 65),
    ]


def test_recomputed_rows_run_forward_again_from_the_last_checkpoint() -> None:
    """Before the backward of c: b again, from the checkpoint on, and not a."""
    rows = [
        row(1, 10, name="a"),
        replace(row(2, 20, name="b"), checkpoint=True),
        replace(row(4, 40, name="c"), recompute=True),
    ]
    assert spans(backward(rows), 0) == [
        ("b compute", 0, 2),
        ("c compute", 2, 42),
        ("b compute", 42, 62),
        ("a compute", 62, 72),
    ]
    phases = [task.phase for task in backward(rows).tasks]
    assert phases == [Phase.FORWARD, Phase.INPUT_GRAD, Phase.INPUT_GRAD, Phase.INPUT_GRAD]


# Fused pairs


def test_a_fused_pair_computes_as_long_as_its_halves() -> None:
    table = comms()
    rows = [reducing(7, 11, 3, name="a"), reducing(5, 13, 9, name="b")]
    halves = (
        forward_tasks(rows, table, NO_HOST),
        backward_tasks(rows, table, NO_HOST),
    )
    fused = fused_tasks(*halves, table)
    assert sum(task.duration_ps for task in fused.tasks) == 7 + 5 + 11 + 3 + 13 + 9
    assert len(fused.tasks) == sum(len(half.tasks) for half in halves)


def test_halves_with_unlike_exchanges_take_turns_by_the_share_that_is_done() -> None:
    """Two exchanges forward, four backward: two backward ones for each forward one."""
    table = CommNumbers(alone=frozenset())
    tokens = collective(8, Group.EP, CollectiveKind.ALL_TO_ALL)

    def half(name: str, exchanges: int) -> TaskList:
        work = Work(compute_ps=10, comms=(tokens,))
        rows = [replace(row(0, 0, 0, f"{name}{i}"), forward=work) for i in range(exchanges)]
        return forward_tasks(rows, table, NO_HOST)

    fused = fused_tasks(half("f", 2), half("b", 4), table)
    exchanged = [task.label.split()[0] for task in fused.tasks if task.comm >= 0]
    assert exchanged == ["b0", "f0", "b1", "b2", "f1", "b3"]


# Once per step


def test_a_reduction_that_nobody_shares_is_none() -> None:
    alone = CommNumbers(alone=Plan(tp=2, dp=1).alone)
    lists = TaskLists(comms=alone, host=NO_HOST, last_stage=0)
    assert lists.beside("g", [collective(8, Group.DP)], Stream.DP) is None


# Buckets of gradients


def reduced(rows: Sequence[Row]) -> list[int]:
    """Bytes that are reduced after each row of a backward, of 100 in buckets of 30."""
    buckets = gradient_buckets([collective(100, Group.DP)], rows[::-1], 30)
    return [sum(each.size_bytes for each in ops) for ops in buckets]


def test_gradients_are_shared_out_by_parameters_else_by_compute_else_evenly() -> None:
    by_compute = [row(0, 0, 50), row(0, 0, 30), row(0, 0, 20)]
    assert reduced(by_compute) == [0, 50, 50]
    counts = ((10, 0), (0, 0), (30, 60))
    owned = [
        replace(each, parameters=dense, expert_parameters=routed)
        for each, (dense, routed) in zip(by_compute, counts, strict=True)
    ]
    assert reduced(owned) == [90, 0, 10]
    assert reduced([row(0, 0, 0)] * 4) == [0, 50, 0, 50]
