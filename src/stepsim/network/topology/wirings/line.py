"""Line: each position is cabled to the next; there is no way around."""

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


class Line(Switchless, Noun):
    """Link p leads from position p to p + 1, link size - 1 + p back again."""

    kind: ClassVar[DimensionKind] = DimensionKind.LINE
    size: int

    @property
    def link_counts(self) -> tuple[int, ...]:
        """Links per class: one each way between neighbours."""
        return (2 * (self.size - 1),)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """One digit: no two positions on a line are equivalent."""
        return (Digit(size=self.size, turns=False),)

    @property
    def farthest(self) -> tuple[int, ...]:
        """Links from one end of the line to the other."""
        return (self.size - 1,)

    def ends(self, link: int) -> tuple[Node, Node]:
        """The two neighbours that a link joins."""
        back, position = divmod(link, self.size - 1)
        return (position + 1, position) if back else (position, position + 1)

    def load(self, flows: Flows) -> list[Summand]:
        """Load each flow puts on every link between its ends."""
        lower, upper = np.minimum(flows.start, flows.end), np.maximum(flows.start, flows.end)
        parts = []
        for back, taken in ((0, flows.start < flows.end), (1, flows.end < flows.start)):
            steps, loads = steps_crossed(
                self.size,
                flows.copy[taken],
                lower[taken],
                (upper - lower)[taken],
                flows.weight[taken],
            )
            copy, position = np.divmod(steps, self.size)
            links = copy * self.link_counts[0] + back * (self.size - 1) + position
            parts.append((links, loads))
        return parts

    def hops(self, flows: Flows) -> Ints:
        """Links between start and end of each flow."""
        distance: Ints = np.abs(flows.end - flows.start)
        return distance[:, None]

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of the cable in the middle."""
        return capacities[0]
