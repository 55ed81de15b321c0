"""The table of parallel axes: nothing else lists them, so it must be whole."""

from math import prod

from stepsim.base.axes import Group, ParallelAxis, Part, PartKind, Stream
from stepsim.workload.plan import Plan


def test_every_axis_has_a_stream_and_an_exposed_part_of_its_own() -> None:
    assert len({axis.stream for axis in ParallelAxis}) == len(ParallelAxis)
    assert Stream.COMPUTE not in {axis.stream for axis in ParallelAxis}
    exposed = [axis.exposed for axis in ParallelAxis]
    assert sorted(exposed) == [part for part in Part if part.kind is PartKind.EXPOSED]
    assert [axis.exposed.key for axis in ParallelAxis] == [f"exposed_{a}" for a in ParallelAxis]


def test_parts_are_numbered_as_columns_of_a_breakdown() -> None:
    assert [int(part) for part in Part] == list(range(len(Part)))
    assert {part.kind for part in Part} == set(PartKind)
    assert len({part.label for part in Part}) == len(Part)


def test_every_axis_has_a_process_group() -> None:
    for axis in ParallelAxis:
        plan = Plan(tp=2, cp=3, dp=4, pp=5, ep=2, zero=3, shard_ranks=6)
        members = plan.groups(Group(axis))
        assert members.shape[1] == plan.degrees()[axis] == plan.group_size(Group(axis))


def test_the_degrees_that_split_the_npus_multiply_to_them() -> None:
    plan = Plan(tp=2, cp=4, dp=6, pp=3, ep=3, zero=3, shard_ranks=8)
    assert plan.degrees() == {"tp": 2, "cp": 4, "dp": 6, "pp": 3, "ep": 3, "fsdp": 8}
    assert list(plan.degrees()) == ["tp", "cp", "dp", "pp", "ep", "fsdp"]
    assert plan.npus == prod(d for axis, d in plan.degrees().items() if axis.splits)
