"""What the tasks of a graph are, a row each; worked out by hand."""

import pytest
from helpers import collective, row

from stepsim.base.structs import replace
from stepsim.core.task_table import TaskTable
from stepsim.core.write import write_graph
from stepsim.options import StepOptions
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import build
from stepsim.parallel.stages import Stages, StageWork
from stepsim.run.spans import TaskKind
from stepsim.workload.rows import Group, Work


@pytest.mark.parametrize(("pp", "message"), [(1, 0), (2, 8)])
def test_communications_have_their_bytes_and_nothing_else_has_any(pp: int, message: int) -> None:
    """An all-reduce of 300 bytes in every forward, messages of 8; one stage sends none."""
    forward = Work(compute_ps=5, comms=(collective(300, Group.TP),))
    rows = ((replace(row(5, 7), forward=forward),),)
    works = (StageWork(chunks=(rows,), per_step=()),) * pp
    stages = Stages(works=works, pp_comm_bytes=8, warnings=())
    plan = ParallelPlan(tp=2, pp=pp, microbatches=2)
    schedule = build("gpipe", ranks=pp, microbatches=2)
    table = TaskTable.of(write_graph(stages, schedule, plan, StepOptions()))
    kinds, sizes = (table.columns[name].tolist() for name in ("kind", "size_bytes"))
    tasks = set(zip(kinds[: table.wholes], sizes[: table.wholes], strict=True))
    assert tasks == {
        (TaskKind.COMPUTE, 0),
        (TaskKind.COLLECTIVE, 300),
        (TaskKind.SEND, message),
        (TaskKind.RECV, message),
    }
    assert not any(sizes[table.wholes :])
