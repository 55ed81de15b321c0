"""Ring: each position is cabled to the next, the last to the first unless it is open: a line."""

import numpy as np

from stepsim.base.arrays import Ints, Summand
from stepsim.base.structs import Noun, Numbers
from stepsim.network.topology.wiring import (
    Digit,
    DimensionKind,
    Flows,
    Node,
    steps_crossed,
)


class Ring(Noun):
    """Links that lead to the next position, in the order of positions, then those back again.

    Flows take the shorter way; opposite positions send half each way. A ring of two is one cable.
    On one that `is_open`, a line, there is no way around: link p and the p-th of those back join
    positions p and p + 1, where the p-th back of a ring leaves position p.
    """

    size: int
    is_open: bool = False

    @property
    def kind(self) -> DimensionKind:
        """A ring, or a line."""
        return DimensionKind.LINE if self.is_open else DimensionKind.RING

    @property
    def _around(self) -> bool:
        """Whether there are two ways between positions."""
        return not self.is_open and self.size > 2

    @property
    def _ahead(self) -> int:
        """Links to next positions, and as many lead back."""
        return self.size if self._around else self.size - 1

    @property
    def link_counts(self) -> Numbers:
        """Links per class: one each way between neighbours."""
        return (2 * self._ahead,)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """Every position of a ring looks the same, no two of a line do."""
        return (Digit(self.size, turns=not self.is_open),)

    @property
    def farthest(self) -> Numbers:
        """Links half way around, or from one end of a line to the other."""
        return (self.size // 2 if self._around else self.size - 1,)

    def ends(self, link: int) -> tuple[Node, Node]:
        """The two neighbours that a link joins."""
        back, position = divmod(link, self._ahead)
        if self._around:
            return position, (position + (-1 if back else 1)) % self.size
        return (position + 1, position) if back else (position, position + 1)

    def _ways(self, flows: Flows) -> tuple[Ints, Ints]:
        """Links of each flow ahead and back; no flow takes the longer way.

        A line is half of a ring of twice as many positions.
        """
        positions = self.size if self._around else 2 * self.size
        ahead = (flows.end - flows.start) % positions
        return ahead, positions - ahead

    def load(self, flows: Flows) -> list[Summand]:
        """Load of each flow on the shorter way."""
        ahead, behind = self._ways(flows)
        weight = np.where(ahead == behind, 0.5, 1.0) * flows.weight
        parts = []
        for back, count, mine in ((0, ahead, ahead <= behind), (1, behind, behind <= ahead)):
            # Backward, a walk of n steps from p crosses what a forward one from its end does: p - n
            # where links are named by their lower end, the one after where by the end they leave.
            start = (flows.start - back * (count - self._around)) % self.size
            steps, loads = steps_crossed(
                self.size, flows.copy[mine], start[mine], count[mine], weight[mine]
            )
            copy, position = np.divmod(steps, self.size)
            parts.append((copy * self.link_counts[0] + back * self._ahead + position, loads))
        return parts

    def hops(self, flows: Flows) -> Ints:
        """Links on the shorter way of each flow."""
        shorter: Ints = np.minimum(*self._ways(flows))
        return shorter[:, None]

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of two cables, or one."""
        return capacities[0] * (2 if self._around else 1)
