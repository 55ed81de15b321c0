"""A small layer that is counted by hand: its operators, and what it keeps and sends."""

from collections.abc import Mapping

from stepsim.base.axes import Group
from stepsim.files.accelerators import read_framework
from stepsim.workload.model.architecture import Architecture, Layer
from stepsim.workload.model.blocks import layer_blocks
from stepsim.workload.model.held import layer_bytes
from stepsim.workload.model.parts import Block, Operator
from stepsim.workload.plan import Plan, PlanTable

PLAN = Plan.of_batch(microbatch_size=2, global_batch=2, sequence=64)
T = 128  # tokens of PLAN


def model_of(layer: Layer, hidden: int = 64) -> Architecture:
    return Architecture(name="small", hidden=hidden, layers=(layer,) * 4, vocabulary=1000)


def blocks_of(model: Architecture, plan: Plan = PLAN) -> tuple[Block, ...]:
    """Blocks of its first layer."""
    return layer_blocks(model.layers[0], model, PlanTable([plan]))


def operators_of(model: Architecture, plan: Plan = PLAN) -> dict[str, Operator]:
    return {item.name: item for block in blocks_of(model, plan) for item in block.operators}


def kept(model: Architecture, plan: Plan = PLAN) -> float:
    """Bytes that a layer keeps."""
    columns = PlanTable([plan])
    held, _ = layer_bytes(model.layers[0], model, columns, read_framework("megatron-core"))
    return float(held[0])


def sent(model: Architecture, plan: Plan, group: Group = Group.CP) -> list[int]:
    """Bytes that each exchange of a group sends in the forward."""
    exchanges = [item for block in blocks_of(model, plan) for item in block.forward]
    sizes = [round(float(item.size_bytes[0])) for item in exchanges if item.group is group]
    return [size for size in sizes if size]


def check_operators(
    found: Mapping[str, Operator],
    flops: Mapping[str, float],
    moved: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Flops of forwards, and bytes of forwards and input gradients, by the operator's name."""
    assert {name: found[name].flops[0, 0] for name in flops} == flops
    for name, expected in (moved or {}).items():
        assert tuple(found[name].bytes_moved[:2, 0]) == expected, name
