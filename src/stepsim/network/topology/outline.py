"""A smaller network of the same build, for drawing what is too large to draw."""

from math import prod

from stepsim.base.structs import replace
from stepsim.network.topology.dimension import Dimension
from stepsim.network.topology.nested import NestedTopology
from stepsim.network.topology.wiring import DimensionKind
from stepsim.network.topology.wirings import DragonflyShape, TreeShape

_MOST_NPUS = 72
_MOST_IN_ROW = 32
_MOST_COUNTED = 4096
"""NPUs of the largest network whose switches are counted one by one."""
_MOST = {
    DimensionKind.RING: 16,
    DimensionKind.LINE: 16,
    DimensionKind.FULLY_CONNECTED: 12,
    DimensionKind.CABLES: 64,
}


def outline(topology: NestedTopology) -> tuple[NestedTopology, str]:
    """A topology small enough to draw, and a sentence that says what was left out; "" if nothing.

    Small topologies are returned as they are.
    """
    few = topology.npus <= (2 * _MOST_NPUS if is_rack(topology.dimensions[0]) else _MOST_NPUS)
    if few and max(topology.link_counts(), default=0) <= 400:
        return topology, ""
    dimensions: list[Dimension] = []
    for k, dimension in enumerate(topology.dimensions):
        inside = prod(each.size for each in dimensions)
        outermost = k == len(topology.dimensions) - 1
        dimensions.append(_smaller(dimension, inside, outermost))
    small = replace(topology, dimensions=tuple(dimensions), grows=False)
    if small.npus < topology.npus:
        return small, f"part of it: {small.npus} of {topology.npus:,} NPUs are drawn"
    return small, f"part of it: {_switches(small)} of {_switches(topology)} switches are drawn"


def is_rack(dimension: Dimension) -> bool:
    """Whether a node is a rack whose NPUs hang on one layer of switches, and is drawn whole."""
    return dimension.kind is DimensionKind.SWITCH and _MOST_IN_ROW < dimension.size <= _MOST_NPUS


def _switches(topology: NestedTopology) -> str:
    """How many there are, in words."""
    if topology.npus > _MOST_COUNTED:
        return "many more"
    nodes = topology.graph().nodes
    return f"{sum(not node.startswith('npu') for node in nodes):,}"


def _smaller(dimension: Dimension, inside: int, outermost: bool) -> Dimension:
    most = max(2, min(_MOST.get(dimension.kind, 8), _MOST_NPUS // (2 * inside)))
    if dimension.shape:
        limit = 8 if len(dimension.shape) == 2 else 4
        sides = [min(side, limit if outermost else 2) for side in dimension.shape]
        while prod(sides) * inside > _MOST_NPUS and max(sides) > 2:
            sides[sides.index(max(sides))] -= 1
        return replace(dimension, shape=tuple(sides), least_shape=(), size=prod(sides))
    if dimension.cables:
        return dimension
    if dimension.tree:
        return _smaller_tree(dimension, dimension.tree, inside)
    if dimension.dragonfly:
        return _smaller_dragonfly(dimension, dimension.dragonfly, inside)
    if inside == 1 and is_rack(dimension):
        return dimension
    return replace(dimension, size=min(dimension.size, most))


def _smaller_tree(dimension: Dimension, tree: TreeShape, inside: int) -> Dimension:
    """Two leaves or pods of few NPUs."""
    per_block = inside if dimension.joins_inside else 1
    down = tuple(min(count, 2) for count in tree.down)
    down = (down[0] * per_block, *down[1:])
    up = tuple(min(count, 2) for count in tree.up)
    whole = dimension.size * per_block > tree.pod
    size = (2 if whole else 1) * prod(down) // per_block
    return replace(dimension, size=size, tree=TreeShape(down=down, up=up))


def _smaller_dragonfly(dimension: Dimension, shape: DragonflyShape, inside: int) -> Dimension:
    """Up to five groups of up to four routers of one block or NPU."""
    per_block = inside if dimension.joins_inside else 1
    groups = -(-dimension.size * per_block // shape.group)
    small = DragonflyShape(
        routers=min(shape.routers, 4), npus=min(shape.npus, 2) * per_block, global_links=1
    )
    size = small.group * min(groups, 5) // per_block
    return replace(dimension, size=size, dragonfly=small)
