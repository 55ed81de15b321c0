"""Fully connected: a cable between every two positions."""

from typing import ClassVar

import numpy as np

from stepsim.base.arrays import Ints, Summand
from stepsim.base.structs import Noun, Numbers
from stepsim.network.topology.wiring import Digit, DimensionKind, Flows, Node


class FullyConnected(Noun):
    """Links p * (size - 1) onward lead from position p to the others in their order."""

    kind: ClassVar[DimensionKind] = DimensionKind.FULLY_CONNECTED
    size: int

    @property
    def link_counts(self) -> Numbers:
        """Links per class: one for each ordered pair of positions."""
        return (self.size * (self.size - 1),)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """One digit: all positions are equivalent."""
        return (Digit(self.size, turns=True),)

    @property
    def farthest(self) -> Numbers:
        """One cable, where there are two positions."""
        return (min(1, self.size - 1),)

    def ends(self, link: int) -> tuple[Node, Node]:
        """The pair of positions that a link joins."""
        start, other = divmod(link, self.size - 1)
        return start, other + (other >= start)

    def load(self, flows: Flows) -> list[Summand]:
        """Load of each flow on the link of its own pair."""
        links = pair_number(flows.start, flows.end, self.size)
        return [(flows.copy * self.link_counts[0] + links, flows.weight)]

    def hops(self, flows: Flows) -> Ints:
        """Links of each flow: always the one between its two positions."""
        return np.ones((len(flows.start), 1), np.int64)

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of a cable from each lower position to each upper one."""
        return capacities[0] * (self.size // 2) * (self.size - self.size // 2)


def pair_number(start: Ints, end: Ints, size: int) -> Ints:
    """Number of an ordered pair of different positions: 0 to size * (size - 1) - 1."""
    return start * (size - 1) + end - (end > start)
