"""A wiring in its place in a nested topology: from NPU numbers to positions and link numbers.

`Layout` is how a group of NPUs lies on a network: all that a collective algorithm may know of it.
Its digits say which groups look the same: those of NPU numbers that may be turned.
"""

from itertools import accumulate, pairwise
from operator import mul

import numpy as np

from stepsim.base.arrays import Ints, Summand
from stepsim.base.structs import Noun, Numbers
from stepsim.network.topology.wiring import ONE_NIC, DimensionKind, Flows, Node
from stepsim.network.topology.wirings import Wiring

Turn = tuple[int, int]
"""Digit of an NPU number from a stride up to (not including) another: `npu % end // stride`."""


class PlacedWiring(Noun):
    """A wiring that runs through the NPUs in copies: an NPU's position is `npu // stride % size`.

    One that joins everything inside has stride 1. Its links are `offset` onward, of the topology's
    link classes `classes`; an NPU's coordinate along it is `npu // outer_stride % outer_size`. Its
    switches reduce at the share `reduces` of the links' capacity, 0 if they do not.
    """

    name: str
    wiring: Wiring
    stride: int
    copies: int
    offset: int
    classes: Numbers
    joins_inside: bool
    reduces: float
    outer_stride: int
    outer_size: int

    @property
    def links_per_copy(self) -> int:
        """Links of one copy of the wiring."""
        return sum(self.wiring.link_counts)

    @property
    def links(self) -> int:
        """Links of all copies."""
        return self.copies * self.links_per_copy

    def positions(self, npus: Ints) -> Ints:
        """Position of each NPU in its copy."""
        return npus // self.stride % self.wiring.size

    def copy_of(self, npus: Ints) -> Ints:
        """Which copy each NPU is in."""
        return npus // (self.stride * self.wiring.size) * self.stride + npus % self.stride

    def coordinates(self, npus: Ints) -> Ints:
        """Coordinate of each NPU along this axis."""
        return npus // self.outer_stride % self.outer_size

    def route(self, flows: Flows) -> tuple[list[Summand], Ints, Ints]:
        """Flows moved along this axis to the position of their ends.

        Returns what they put on links, counted from 0 for owner 0 and `links` further for each
        next one, their hops per class of the axis, and where they arrive.
        """
        start, end = self.positions(flows.start), self.positions(flows.end)
        copy = self.copy_of(flows.start) + flows.copy * self.copies
        along = Flows(copy, start, end, flows.weight)
        arrived = flows.start + (end - start) * self.stride
        return self.wiring.load(along), self.wiring.hops(along), arrived

    def class_of(self, links: Ints) -> Ints:
        """Link class of each link number of this axis."""
        within = (links - self.offset) % self.links_per_copy
        ends = np.cumsum(self.wiring.link_counts)
        return np.array(self.classes)[np.searchsorted(ends, within, side="right")]

    def nics_of_half(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s into half of the NPUs of every switch that they are cabled to."""
        ports = getattr(self.wiring, "ports", ONE_NIC)
        return self.copies * ports.capacity(self.wiring.size // 2, capacities)

    def ends(self, link: int) -> tuple[str, str]:
        """Names of the nodes a link of this axis leaves and enters."""
        copy, within = divmod(link - self.offset, self.links_per_copy)
        start, end = self.wiring.ends(within)
        return self._node(copy, start), self._node(copy, end)

    def _node(self, copy: int, node: Node) -> str:
        if isinstance(node, str):
            return f"{self.name}{copy}{node}"
        first = copy // self.stride * self.stride * self.wiring.size + copy % self.stride
        return f"npu{first + node * self.stride}"


class Layout(Noun):
    """Where the ranks of a group sit, in the group's own numbering (positions 0 to n-1).

    `coordinates[i, k]` is the coordinate of member i along axis k, innermost first, and `kinds[k]`
    how that axis is wired. `orders` are the rings to use side by side, one per channel, each a
    permutation of the positions in which neighbours are close. Where all members meet in one switch
    that can reduce, it does so at the share `reduces` of its links' capacity, else that is 0;
    `reduces_inside` is that of members which differ along the innermost axis only.
    """

    coordinates: Ints
    kinds: tuple[DimensionKind, ...]
    orders: tuple[Ints, ...]
    reduces: float = 0.0
    reduces_inside: float = 0.0

    @property
    def ranks(self) -> int:
        """Members of the group."""
        return len(self.coordinates)


def digit_bounds(axis: PlacedWiring) -> list[int]:
    """Strides at which digits of the wiring begin, in NPU numbers, and the last one's end."""
    sizes = [digit.size for digit in axis.wiring.digits]
    return list(accumulate(sizes, mul, initial=axis.stride))


def own_digits(axis: PlacedWiring) -> list[Turn]:
    """The digits of an axis outside what it joins: an inner dimension has its own."""
    bounds = digit_bounds(axis)
    if not axis.joins_inside:
        digits = zip(pairwise(bounds), axis.wiring.digits, strict=True)
        return [turn for turn, digit in digits if digit.turns]
    inside, end = axis.outer_stride, axis.outer_stride * axis.outer_size
    outside = [inside, *(bound for bound in bounds if inside < bound < end), end]
    aligned = all(high % low == 0 for low, high in pairwise(outside))
    return list(pairwise(outside)) if aligned else []


def within_a_digit(axis: PlacedWiring, turn: Turn) -> bool:
    """Whether a turn is of a digit of the wiring, or of a part that may be shifted by itself."""
    low, high = turn
    bounds = digit_bounds(axis)
    for (start, end), digit in zip(pairwise(bounds), axis.wiring.digits, strict=True):
        if start <= low and high <= end and low % start == 0 and end % high == 0:
            return digit.turns and (digit.any_order or high == end)
    return False
