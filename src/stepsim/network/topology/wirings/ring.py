"""Ring: each position is cabled to the next, the last to the first."""

from typing import ClassVar

import numpy as np

from stepsim.base.arrays import Ints, Summand
from stepsim.base.structs import Noun
from stepsim.network.topology.wiring import (
    Digit,
    DimensionKind,
    Flows,
    Node,
    Switchless,
    steps_crossed,
)


class Ring(Switchless, Noun):
    """Link p leads from position p to the next, link size + p back to the one before.

    Flows take the shorter way; opposite positions send half each way. A ring of two is one cable.
    """

    kind: ClassVar[DimensionKind] = DimensionKind.RING
    size: int

    @property
    def link_counts(self) -> tuple[int, ...]:
        """Two per position, where there are more than two."""
        return (2 * self.size if self.size > 2 else 2 * (self.size - 1),)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """Every position looks the same."""
        return (Digit(size=self.size, turns=True),)

    @property
    def farthest(self) -> tuple[int, ...]:
        """Links half way around the ring, the longest route."""
        return (self.size // 2,)

    def ends(self, link: int) -> tuple[Node, Node]:
        """The position and the next, or the one before."""
        back, position = divmod(link, self.size)
        return position, (position + (-1 if back else 1)) % self.size

    def load(self, flows: Flows) -> list[Summand]:
        """Load of each flow on the shorter way around."""
        ahead = (flows.end - flows.start) % self.size
        behind = self.size - ahead
        both = (ahead == behind) & (self.size > 2)
        weight = np.where(both, 0.5, 1.0) * flows.weight
        parts = []
        for back, count, taken in (
            (0, ahead, ahead <= behind),
            (1, behind, (behind < ahead) | both),
        ):
            # Backward, a walk of n steps from p crosses what a forward one from p - n + 1 does.
            start = (flows.start - back * (count - 1)) % self.size
            steps, loads = steps_crossed(
                self.size, flows.copy[taken], start[taken], count[taken], weight[taken]
            )
            copy, position = np.divmod(steps, self.size)
            parts.append((copy * self.link_counts[0] + back * self.size + position, loads))
        return parts

    def hops(self, flows: Flows) -> Ints:
        """Links on the shorter way of each flow."""
        ahead = (flows.end - flows.start) % self.size
        shorter: Ints = np.minimum(ahead, self.size - ahead)
        return shorter[:, None]

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of two cables, or one."""
        return capacities[0] * min(2, self.size - 1)
