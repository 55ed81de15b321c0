"""From a file's degrees, a topology and the user's wishes to the job that runs."""

from typing import Any

import pytest
from helpers import uniform_workload

from stepsim.base.axes import CollectiveKind, EpLayout, Group, ParallelAxis, degrees_of
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.options import StepOptions
from stepsim.step.job import plan_of_workload
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, Work, Workload


def workload(*, microbatches: int = 3, group: Group | None = None, **fields: Any) -> Workload:
    """Blocks of one row; its forward all-reduces over `group`."""
    made = uniform_workload(forward=1, backward=1, pp=1, microbatches=microbatches)
    if group is not None:
        comm = CommOp(
            kind=CollectiveKind.ALL_REDUCE, group=group, axis=ParallelAxis.TP, size_bytes=8
        )
        block = made.microbatches[0]
        row = replace(block.layers[0][0], forward=Work(comms=(comm,)))
        made = replace(made, microbatches=(replace(block, layers=((row,),)),))
    return replace(made, **fields)


def topology(inner: int, outer: int, *, grows: bool = False) -> NestedTopology:
    sizes = {"inner": inner, "outer": outer}
    return NestedTopology(
        name="nodes",
        source="test",
        dimensions=tuple(
            Dimension(
                kind=DimensionKind.SWITCH,
                size=size,
                link=LinkClass(name=name, latency_ps=0, bandwidth=1e9),
            )
            for name, size in sizes.items()
        ),
        grows=grows,
    )


GROWING = topology(8, 2, grows=True)
FULL: Any = {"degrees": degrees_of(tp=2, pp=2, ep=2), "npus": 32}


def test_the_files_degrees_are_the_plan() -> None:
    plan, warnings = plan_of_workload(workload(**FULL), GROWING, StepOptions())
    assert plan == Plan(tp=2, dp=8, pp=2, ep=2, microbatches=3)
    assert warnings == []


def test_npus_asked_for_beat_the_file_and_scale_dp() -> None:
    plan, warnings = plan_of_workload(workload(**FULL), GROWING, StepOptions(npus=64))
    assert plan == Plan(tp=2, dp=16, pp=2, ep=2, microbatches=3)
    assert warnings == []


def test_the_file_beats_the_topologys_size() -> None:
    assert plan_of_workload(workload(**FULL), topology(8, 8), StepOptions())[0].npus == 32


def test_a_topology_of_fixed_size_is_filled() -> None:
    plan, warnings = plan_of_workload(
        workload(degrees=degrees_of(tp=2, pp=2), npus=None), topology(8, 3), StepOptions()
    )
    assert (plan.npus, plan.dp) == (24, 6)
    assert warnings == []


@pytest.mark.parametrize(
    ("sizes", "npus"),
    [
        ({"tp": 8, "pp": 3}, 24),
        ({"tp": 3}, 18),
        ({"tp": 1, "ep": 32}, 32),
        ({"tp": 2, "ep": 16, "pp": 3}, 96),
    ],
)
def test_two_nodes_are_assumed_and_rounded_up_with_a_warning(
    sizes: dict[str, int], npus: int
) -> None:
    plan, (warning,) = plan_of_workload(
        workload(degrees=degrees_of(**sizes), npus=None), GROWING, StepOptions()
    )
    assert plan.npus == npus
    assert f"stepsim assumes {npus} NPUs" in warning


def test_pp_asked_for_re_splits_the_same_npus() -> None:
    plan, _ = plan_of_workload(workload(**FULL), GROWING, StepOptions(pp=8))
    assert plan == Plan(tp=2, dp=2, pp=8, ep=2, microbatches=3)


def test_microbatches_asked_for_replace_the_files() -> None:
    plan, _ = plan_of_workload(workload(**FULL), GROWING, StepOptions(microbatches=7))
    assert plan.microbatches == 7


@pytest.mark.parametrize(
    ("npus", "size", "microbatches"), [(None, 1, 12), (64, 1, 6), (None, 4, 3)]
)
def test_global_batch_is_shared_by_the_pipelines(
    npus: int | None, size: int, microbatches: int
) -> None:
    plan, _ = plan_of_workload(
        workload(**FULL), GROWING, StepOptions(npus=npus, global_batch=96, microbatch_size=size)
    )
    assert plan.microbatches == microbatches
    assert plan.microbatches * plan.dp * size == 96


@pytest.mark.parametrize(("npus", "tp", "dp"), [(16, 8, 2), (4, 4, 1)])
def test_policies_of_dimensions_take_the_innermost_one_as_tp(npus: int, tp: int, dp: int) -> None:
    plan, _ = plan_of_workload(
        workload(degrees=degrees_of(), npus=None, group=Group.INNER),
        GROWING,
        StepOptions(npus=npus),
    )
    assert (plan.tp, plan.dp) == (tp, dp)


def test_the_innermost_dimension_matters_to_no_other_policy() -> None:
    staged = workload(degrees=degrees_of(), npus=None, group=Group.STAGE)
    assert plan_of_workload(staged, GROWING, StepOptions(npus=16))[0].tp == 1


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"npus": 30}, ["30 NPUs", "npus asked for", "tp*pp = 2*2 = 4"]),
        ({"pp": 3}, ["32 NPUs", "all_gpus in the file", "tp*pp = 2*3 = 6"]),
        ({"npus": 0}, ["npus is 0", "expected 1 to"]),
        ({"global_batch": 100}, ["global_batch is 100", "multiple", "8 * 1 = 8"]),
        ({"global_batch": 8, "microbatch_size": 2}, ["global_batch is 8", "8 * 2 = 16"]),
        ({"global_batch": 8, "microbatches": 1}, ["global_batch and microbatches"]),
    ],
)
def test_wishes_that_contradict_each_other_are_named(
    wishes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(PlanError) as caught:
        plan_of_workload(workload(**FULL), GROWING, StepOptions(**wishes))
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_file_made_for_one_layout_is_not_laid_out_in_another() -> None:
    experts = workload(degrees=degrees_of(tp=4, ep=2), expert_tp=1, npus=None)
    with pytest.raises(PlanError, match="ep_layout is dp: in uniform 1 ranks share an expert"):
        plan_of_workload(experts, GROWING, StepOptions(npus=16, ep_layout=EpLayout.DP))
    for layout in (None, EpLayout.FOLDED):
        assert (
            plan_of_workload(experts, GROWING, StepOptions(npus=16, ep_layout=layout))[0].ep_layout
            == "folded"
        )
