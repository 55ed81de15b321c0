"""Cables: a small network given pair by pair, such as a hybrid cube mesh; positions forward."""

from functools import cached_property
from typing import ClassVar

import numpy as np

from stepsim.base.arrays import Ints, Summand, ints
from stepsim.base.errors import TopologyError
from stepsim.base.structs import Noun, Numbers
from stepsim.network.topology.cabling import FAR, Cabling, bundle_links
from stepsim.network.topology.routing import Router
from stepsim.network.topology.wiring import Digit, DimensionKind, Flows, Node

MAX_CABLED = 32
_MOST_CABLES = 1024


class Cables(Noun, dict=True):
    """Cable i joins `cables[i]`, by link 2i one way and 2i + 1 the other; pairs may repeat.

    A flow spreads evenly over its shortest paths, and evenly over parallel cables.
    """

    kind: ClassVar[DimensionKind] = DimensionKind.CABLES
    size: int
    cables: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MAX_CABLED:
            raise TopologyError(f"size is {self.size}: cables join 1 to {MAX_CABLED} positions")
        if len(self.cables) > _MOST_CABLES:
            raise TopologyError(f"{len(self.cables)} cables: expected at most {_MOST_CABLES}")
        for i, (a, b) in enumerate(self.cables):
            if a == b:
                raise TopologyError(f"cables[{i}] joins {a} to itself")
            if not (0 <= a < self.size and 0 <= b < self.size):
                raise TopologyError(f"cables[{i}] is [{a}, {b}]: expected 0 to {self.size - 1}")
        lost = np.flatnonzero(self._distances[0] == FAR)
        if lost.size:
            raise TopologyError(f"the cables do not connect 0 and {lost[0]}")

    @property
    def link_counts(self) -> Numbers:
        """Links per class: one each way per cable."""
        return (2 * len(self.cables),)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """One digit: no two positions are equivalent."""
        return (Digit(self.size, turns=False),)

    @property
    def farthest(self) -> Numbers:
        """The longest of the shortest paths."""
        return (int(self._distances.max()),)

    def ends(self, link: int) -> tuple[Node, Node]:
        """The two positions that a cable joins."""
        a, b = self.cables[link // 2]
        return (b, a) if link % 2 else (a, b)

    @property
    def cabling(self) -> Cabling:
        """The cables as links, both ways and all of one class."""
        ends = ints(self.cables).reshape(-1, 2)
        return Cabling(
            nodes=("",) * self.size,
            npus=self.size,
            tail=ends.reshape(-1),
            head=ends[:, ::-1].reshape(-1),
            link_class=np.zeros(ends.size, np.int64),
        )

    @cached_property
    def _router(self) -> Router:
        """The routes between positions, all of which forward; cables are equally long."""
        bundles = bundle_links(self.cabling, self.cabling.link_class)
        return Router(
            npus=self.size, nodes=self.size, inner=0, bundles=bundles, endpoint_ps=ints([0])
        )

    @cached_property
    def _distances(self) -> Ints:
        """Cables on a shortest path; FAR where there is none."""
        rows = self._router.rows(np.arange(self.size))
        return self._router.trees.distance.reshape(-1, self.size)[rows]

    def load(self, flows: Flows) -> list[Summand]:
        """What every copy's flows put on its cables."""
        (copy, link, load), _ = self._router.load(flows)
        return [(copy * self.link_counts[0] + link, load)]

    def hops(self, flows: Flows) -> Ints:
        """Length of the shortest paths."""
        return self._distances[flows.start, flows.end][:, None]

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of the cables between the lower and the upper half of the positions."""
        crossing = [a for a, b in self.cables if (a < self.size // 2) != (b < self.size // 2)]
        return capacities[0] * len(crossing)
