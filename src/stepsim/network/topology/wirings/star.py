"""Star: every position is cabled to one switch, which is never full."""

from collections.abc import Sequence

import numpy as np

from stepsim.base.arrays import Floats, Ints, Summand, carried
from stepsim.base.structs import Noun
from stepsim.network.topology.wiring import ONE_NIC, Digit, DimensionKind, Flows, Node, Ports


class Star(Noun):
    """Links as in `Ports`, of `size` positions."""

    size: int
    ports: Ports = ONE_NIC
    kind: DimensionKind = DimensionKind.SWITCH

    @property
    def link_counts(self) -> tuple[int, ...]:
        """Links per class: those of the ports."""
        return self.ports.link_counts(self.size)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """Positions are equivalent; where NPUs share NICs, NICs are, and the places on one NIC."""
        shared = self.ports.npus_per_nic
        if self.size % shared:
            return (Digit(size=self.size, turns=False),)
        sizes = (shared, self.size // shared) if self.ports.shared else (self.size,)
        return tuple(Digit(size=size, turns=True, any_order=True) for size in sizes)

    @property
    def farthest(self) -> tuple[int, ...]:
        """Links up to the switch and down again."""
        return self.ports.farthest() if self.size > 1 else (0,) * len(self.link_counts)

    def ends(self, link: int) -> tuple[Node, Node]:
        """A position and the switch, in the direction of the link."""
        return self.ports.ends(link, self.size, lambda _: "")

    def load(self, flows: Flows) -> list[Summand]:
        """Load of each flow on its sender's uplink and its receiver's downlink."""
        return self.ports.load(flows, self.size, sum(self.link_counts))

    @property
    def layers(self) -> tuple[int, ...]:
        """That of the NICs."""
        return (self.ports.npus_per_nic,)

    def exchange(self, positions: Ints, others: Sequence[Floats]) -> Summand:
        """Up from the one, down to the other."""
        return carried(self.ports.exchange(positions, self.size, others))

    def hops(self, flows: Flows) -> Ints:
        """Links of each flow: up to the switch and down, shape (flows, classes)."""
        return np.stack(self.ports.hops(flows), axis=1)

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of the NICs of the lower half."""
        return self.ports.capacity(self.size // 2, capacities)

    def share_a_switch(self, positions: Ints) -> bool:
        """True: one switch joins all positions."""
        return True
