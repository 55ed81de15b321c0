"""The host's launches: a stream beside the kernels, which no factor on compute touches."""

from typing import Any

import pytest
from helpers import row

import stepsim
from stepsim.base.axes import Part, Stream
from stepsim.base.structs import replace
from stepsim.core.actions import (
    NO_HOST,
    CommNumbers,
    TaskList,
    backward_tasks,
    forward_tasks,
    spread_launches,
)
from stepsim.parallel.schedules import ActionKind
from stepsim.run.spans import TaskKind
from stepsim.workload.model.build import with_launches
from stepsim.workload.rows import Row, Work

NUMBERS = CommNumbers(alone=frozenset())


def layer(*, compute_ps: int, host_ps: int) -> tuple[Row, ...]:
    """Two rows of so much compute in each phase, with the launches of the layer."""
    work = Work(compute_ps=compute_ps)
    alike = replace(row(0, 0), forward=work, input_grad=work, weight_grad=work)
    return with_launches((alike, alike), host_ps)


def length(task_list: TaskList) -> int:
    """The longest path through a task list."""
    ends: list[int] = []
    for task in task_list.tasks:
        ends.append(max((ends[i] for i in task.after), default=0) + task.duration_ps)
    return max(ends)


@pytest.mark.parametrize(
    ("compute", "host", "forward", "backward"),
    [
        (100, 0, 400, 800),
        (100, 300, 400, 800),  # 100 of launches beside 200 of kernels
        (100, 900, 600, 1200),  # 300 beside 200, 600 beside 400
    ],
)
def test_a_layer_takes_the_longer_of_its_kernels_and_its_launches(
    compute: int, host: int, forward: int, backward: int
) -> None:
    rows = layer(compute_ps=compute, host_ps=host) * 2
    assert length(forward_tasks(rows, NUMBERS, NO_HOST)) == forward
    assert length(backward_tasks(rows, NUMBERS, NO_HOST)) == backward
    halves = [ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD]
    split = [length(backward_tasks(rows, NUMBERS, NO_HOST, kind=half)) for half in halves]
    assert sum(split) == backward


def test_a_forward_that_runs_again_is_launched_again() -> None:
    rows = layer(compute_ps=100, host_ps=900)
    again = replace(row(0, 0), recompute=True)
    tasks = backward_tasks((*rows, again), NUMBERS, NO_HOST)
    assert length(tasks) == 300 + 600
    launches = [task for task in tasks.tasks if task.stream is Stream.HOST]
    assert [task.duration_ps for task in launches] == [300, 600]
    assert {task.kind for task in launches} == {TaskKind.HOST}


def test_rows_that_run_one_by_one_take_no_longer_than_together() -> None:
    rows = layer(compute_ps=100, host_ps=900) * 3
    spread = spread_launches(rows)
    alone = sum(
        length(backward_tasks(spread[: i + 1], NUMBERS, NO_HOST, skipped=i))
        for i in range(len(rows))
    )
    assert alone == length(backward_tasks(rows, NUMBERS, NO_HOST)) == 1800


def test_launches_are_a_part_of_the_step_and_a_floor_of_it() -> None:
    """32 layers of 4.9 ms each microbatch, whatever the kernels take."""
    asked: dict[str, Any] = {"npus": 8, "tp": 8, "sequence": 4096, "global_batch": 8}
    asked["microbatch_size"] = 1
    steps = [
        stepsim.simulate("llama-3-8b", "hgx-h100", compute_scale=scale, **asked).report
        for scale in ("1", "0.5", "0.1")
    ]
    launches_ps = 8 * 32 * 4_900_000_000
    for report in steps:
        assert report.step_time_ps > launches_ps
        parts = report.breakdown_ps
        assert sum(parts.values()) == report.step_time_ps
        assert parts[Part.EXPOSED_HOST.key] > 0
    assert steps[0].step_time_ps > steps[1].step_time_ps > steps[2].step_time_ps
    exposed = [report.breakdown_ps[Part.EXPOSED_HOST.key] for report in steps]
    assert exposed == sorted(exposed)
