"""Programs laid out as tasks, whatever these take: who is one task, and who waits for whom."""

import numpy as np
import pytest
from helpers import collective, row

from stepsim.base.structs import replace
from stepsim.engine.lay_out import GROUPS, MESSAGES, Met, layout_of
from stepsim.graph.build import build_taskgraph
from stepsim.graph.programs import Program
from stepsim.options import StepOptions
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import build
from stepsim.parallel.stages import Stages, StageWork
from stepsim.workload.rows import Group, Work

TP, EP = collective(8, Group.TP), collective(8, Group.EP)


def program(microbatches: int = 2, stage: int = 0) -> Program:
    """Two stages; a forward computes, reduces over tp, computes and exchanges over ep."""
    first = replace(row(5, 7), forward=Work(compute_ps=5, comms=(TP,)))
    second = replace(row(6, 8), forward=Work(compute_ps=6, comms=(EP,)))
    works = (StageWork(chunks=(((first, second),),), per_step=()),) * 2
    plan = ParallelPlan(tp=2, dp=2, ep=2, pp=2, microbatches=microbatches)
    stages = Stages(works=works, pp_comm_bytes=8, warnings=())
    schedule = build("gpipe", ranks=2, microbatches=microbatches)
    return build_taskgraph(stages, schedule, plan, StepOptions()).programs[stage]


def met(of: Program, *others: Group, slowed: tuple[Group, ...] = ()) -> tuple[Met, ...]:
    """An actor that meets others in these groups only; messages always have another end."""
    groups = [Group.PP if use.peer_stage >= 0 else GROUP_OF[use.comm] for use in of.uses]
    return tuple(Met(g, g is not Group.PP and g not in others, g in slowed) for g in groups)


GROUP_OF = {1: Group.TP, 2: Group.EP}
"""Communications by the number that the first forward gives them; messages are 0."""


@pytest.mark.parametrize(
    ("others", "tasks"), [((), 8), ((Group.TP,), 14), ((Group.EP,), 14), ((Group.TP, Group.EP), 14)]
)
def test_a_list_is_one_task_unless_somebody_else_is_met(
    others: tuple[Group, ...], tasks: int
) -> None:
    """Two forwards of 4 tasks each, two backwards that meet nobody, and four messages."""
    of = program()
    assert layout_of(of, met(of, *others), True).tasks == tasks
    assert layout_of(of, met(of, *others, slowed=(Group.TP,)), True).tasks == 14


def test_without_coalescing_every_task_is_one() -> None:
    of = program()
    found = layout_of(of, met(of), False)
    assert found.tasks == 2 * 4 + 2 * 2 + 4
    inner = [place for look, place in found.rows if look.task_list >= 0]
    assert sorted(inner) == [0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize("others", [(), (Group.TP,)])
def test_tasks_are_those_of_their_segments_in_order(
    coalesce: bool, others: tuple[Group, ...]
) -> None:
    of = program(microbatches=3)
    layout = layout_of(of, met(of, *others), coalesce)
    laid = layout.make(program=of, row_ps=np.arange(len(layout.rows)), times={})
    assert len(laid) == layout.tasks
    assert laid.duration_ps.tolist() == laid.row.tolist()
    assert laid.first.tolist() == [laid.segment.tolist().index(s) for s in range(len(of))]
    assert all(before < task for task, after in enumerate(laid.after.tolist()) for before in after)
    told = sorted(task for _, _, tasks in laid.alike() for task in tasks.tolist())
    assert told == list(range(len(laid)))
    for look, inner, tasks in laid.alike():
        assert {of.looks[of.look[laid.segment[task]]] for task in tasks} == {look}
        assert {int(laid.inner[task]) for task in tasks} == {inner}
        assert len(tasks) == look.runs
    messages = [task for task in range(len(laid)) if laid.group[task] == MESSAGES]
    assert len(messages) == 2 * 3
    assert [GROUPS[group] for group in laid.meets] == (
        [*others]
        if coalesce and not others
        else [*(g for g in GROUPS if g in (Group.TP, Group.EP))]
    )


def test_the_first_task_of_a_segment_waits_for_the_ends_of_those_before_it() -> None:
    """Every segment that another waits for is waited for by its last tasks."""
    of = program()
    layout = layout_of(of, met(of, Group.TP), True)
    laid = layout.make(program=of, row_ps=np.zeros(len(layout.rows), dtype=np.int64), times={})
    for segment, after in enumerate(of.shape.after.tolist()):
        begins = laid.after[int(laid.first[segment])]
        assert {int(laid.segment[task]) for task in begins} == set(after)
