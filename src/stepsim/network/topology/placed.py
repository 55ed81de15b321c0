"""A wiring in its place in a nested topology: from NPU numbers to positions and link numbers."""

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints, Summand
from stepsim.network.topology.wiring import Flows, Node, Wiring
from stepsim.network.topology.wirings.ports import ONE_NIC

Turn = tuple[int, int]
"""Digit of an NPU number from a stride up to (not including) another: `npu % end // stride`."""


class PlacedWiring(Struct, frozen=True, kw_only=True):
    """A wiring that runs through the NPUs in copies: an NPU's position is `npu // stride % size`.

    One that joins everything inside has stride 1. Its links are `offset` onward, of the topology's
    link classes `classes`; an NPU's coordinate along it is `npu // outer_stride % outer_size`.
    """

    name: str
    wiring: Wiring
    stride: int
    copies: int
    offset: int
    classes: tuple[int, ...]
    joins_inside: bool
    reduces: bool
    reduce_efficiency: float
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

    def route(
        self, here: Ints, there: Ints, weights: Floats, owners: Ints
    ) -> tuple[list[Summand], Ints, Ints]:
        """Flows moved along this axis to the position of `there`.

        Returns what they put on links, counted from 0 for owner 0 and `links` further for each
        next one, their hops per class of the axis, and where they arrive.
        """
        start, end = self.positions(here), self.positions(there)
        copy = self.copy_of(here) + owners * self.copies
        flows = Flows(copy=copy, start=start, end=end, weight=weights)
        return self.wiring.load(flows), self.wiring.hops(flows), here + (end - start) * self.stride

    def moves_links(self, turn: Turn) -> bool:
        """Whether links can be told when NPU numbers are shifted in this digit, see `moved`."""
        low, high = turn
        is_outside = high <= self.stride or low >= self.stride * self.wiring.size
        return is_outside or self.wiring.per_position > 0

    def place_of(self, links: Ints) -> Ints:
        """The NPU that each link is of; where links are not numbered so, the first of its copy."""
        copy, within = np.divmod(links - self.offset, self.links_per_copy)
        first: Ints = copy // self.stride * self.stride * self.wiring.size + copy % self.stride
        return first + self._position_of(within) * self.stride

    def moved(self, links: Ints, npus: Ints) -> Ints:
        """The links that are to these NPUs what each link is to its own."""
        within = (links - self.offset) % self.links_per_copy
        steps = self.positions(npus) - self._position_of(within)
        moved = within + steps * self.wiring.per_position
        return self.offset + self.copy_of(npus) * self.links_per_copy + moved

    def _position_of(self, within: Ints) -> Ints:
        each = self.wiring.per_position
        if not each:
            return np.zeros_like(within)
        position: Ints = within % (self.wiring.size * each) // each
        return position

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
