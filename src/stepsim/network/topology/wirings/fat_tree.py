"""Fat tree: leaf switches joined by layers of switches above them; with none above one, a star.

Leiserson, "Fat-trees: universal networks for hardware-efficient supercomputing", IEEE ToC 1985;
k-ary: Al-Fares et al., "A scalable, commodity data center network architecture", SIGCOMM 2008; the
general form: Öhring et al., "On generalized fat trees", IPPS 1995.
"""

from math import prod

import numpy as np

from stepsim.base.arrays import Ints, Summand, add_up
from stepsim.base.errors import TopologyError
from stepsim.base.structs import Noun
from stepsim.network.topology.wiring import Digit, DimensionKind, Flows, Node, Ports

_LAYERS = ("leaf", "spine", "core")


class TreeShape(Noun):
    """`down[l]`: what a switch of layer l has below it; `up[l]`: switches above it, one link each.

    Layer 0 are the leaves, and `down[0]` their NPUs. The top layer has as many below as there are:
    it is in neither tuple. So leaf-spine is down (32,), up (16,); two layers above leaves is down
    (32, 16), up (16, 8): 16 leaves and 16 spines in a pod, 8 cores above each spine; a star of 8 is
    down (8,), up (). `most` are the NPUs that its switches have ports for, 0 without a limit.
    """

    down: tuple[int, ...]
    up: tuple[int, ...]
    most: int = 0

    def __post_init__(self) -> None:
        if len(self.down) != max(len(self.up), 1) or len(self.up) > 2:
            raise TopologyError("a fat tree has one or two layers below its top, a star none")
        if min(self.down + self.up) < 1:
            raise TopologyError("a fat tree needs at least one link in every direction")

    @classmethod
    def k_ary(cls, radix: int) -> "TreeShape":
        """Three layers of switches with `radix` ports: room for radix**3 / 4 NPUs.

        Raises TopologyError for an odd radix.
        """
        if radix < 2 or radix % 2:
            raise TopologyError(f"radix is {radix}: expected an even number of ports, at least 2")
        half = radix // 2
        return cls(down=(half, half), up=(half, half), most=radix * half * half)

    @property
    def pod(self) -> int:
        """NPUs below one switch of the layer under the top."""
        return prod(self.down)


class FatTree(Noun):
    """Links of `size` positions as in `Ports`, then those between switches.

    They are numbered layer by layer, upward before downward. Going up, a flow spreads evenly over
    all shortest ways (equal-cost multipath), and comes down the one way there is from each top.
    A star is one switch for all positions, however many; its last NIC may have fewer of them.
    """

    size: int
    shape: TreeShape
    ports: Ports
    kind: DimensionKind

    def __post_init__(self) -> None:
        shape = self.shape
        if self.size > shape.down[0] and self.size % shape.pod:
            whole = "leaves" if len(shape.down) == 1 else "pods"
            raise TopologyError(f"size is {self.size}: expected whole {whole} of {shape.pod} NPUs")
        if shape.most and self.size > shape.most:
            raise TopologyError(f"size is {self.size}: the tree has room for {shape.most} NPUs")
        if shape.up and shape.down[0] % self.ports.npus_per_nic:
            raise TopologyError(
                f"npus_per_nic is {self.ports.npus_per_nic}: a leaf has {shape.down[0]} NPUs"
            )

    @property
    def _layers(self) -> list[tuple[int, int, int]]:
        """Per layer of links between switches: subtrees below, NPUs and upward links of each."""
        layers, (down, up) = [], (self.shape.down, self.shape.up)
        for layer in range(1, 1 + len(up)):
            npus = prod(down[:layer])
            layers.append((-(-self.size // npus), npus, prod(up[:layer])))
        return layers

    @property
    def link_counts(self) -> tuple[int, ...]:
        """Those of the ports, and those between switches if there are several."""
        between = sum(2 * trees * links for trees, _, links in self._layers)
        return *self.ports.link_counts(self.size), *((between,) if self.shape.up else ())

    @property
    def digits(self) -> tuple[Digit, ...]:
        """Place on the NIC and leaf, leaf, pod: each looks the same from every other."""
        shared, leaf = self.ports.npus_per_nic, min(self.size, self.shape.down[0])
        if leaf % shared:
            return (Digit(self.size, turns=False),)
        above = (*self.shape.down[1:], self.size // self.shape.pod) if self.size > leaf else ()
        sizes = (*((shared,) if self.ports.shared else ()), leaf // shared, *above)
        return tuple(Digit(size, turns=True, any_order=True) for size in sizes)

    @property
    def farthest(self) -> tuple[int, ...]:
        """To the top and down again."""
        climbs = (sum(2 for trees, _, _ in self._layers if trees > 1),) if self.shape.up else ()
        return *self.ports.farthest(self.size), *climbs

    def ends(self, link: int) -> tuple[Node, Node]:
        """A position and its leaf, or two switches."""
        number, down = link - sum(self.ports.link_counts(self.size)), self.shape.down
        if number < 0:
            return self.ports.ends(
                link, self.size, lambda position: self._switch(0, position // down[0], 0)
            )
        layer, (trees, _, links) = 0, self._layers[0]
        if number >= 2 * trees * links:
            number -= 2 * trees * links
            layer, (trees, _, links) = 1, self._layers[1]
        descends, number = divmod(number, trees * links)
        tree, way = divmod(number, links)
        low = self._switch(layer, tree, way // self.shape.up[layer])
        above = tree // down[layer + 1] if layer + 1 < len(down) else 0
        high = self._switch(layer + 1, above, way)
        return (high, low) if descends else (low, high)

    def _switch(self, layer: int, tree: int, place: int) -> str:
        if layer == 0:
            return f"-leaf{tree}" if self.shape.up else ""
        if layer == len(self.shape.up):
            return f"-{_LAYERS[layer]}{place}"
        return f"-{_LAYERS[layer]}{tree}.{place}"

    def load(self, flows: Flows) -> list[Summand]:
        """Up to the first layer that joins both ends, evenly, and down again."""
        all_links, base = sum(self.link_counts), sum(self.ports.link_counts(self.size))
        parts = self.ports.load(flows, self.size, all_links)
        for trees, npus, links in self._layers:
            climbing = flows.where(flows.start // npus != flows.end // npus)
            for position in (climbing.start, climbing.end):
                keys = [(climbing.copy * trees + position // npus, climbing.weight / links)]
                tree, load = add_up(keys)
                copy, tree = np.divmod(tree, trees)
                first = copy * all_links + base + tree * links
                parts.append(
                    ((first[:, None] + np.arange(links)).reshape(-1), np.repeat(load, links))
                )
                base += trees * links
        return parts

    def hops(self, flows: Flows) -> Ints:
        """Two, and two for every layer climbed."""
        climbed = np.zeros(len(flows.start), np.int64)
        for _, npus, _ in self._layers:
            climbed += 2 * (flows.start // npus != flows.end // npus)
        columns = [*self.ports.hops(flows), *([climbed] if self.shape.up else [])]
        return np.stack(columns, axis=1)

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of the narrowest layer below the top, of half the subtrees that it joins."""
        narrowest = self.ports.capacity(self.size // 2, capacities)
        for trees, _, links in self._layers:
            if trees > 1:
                narrowest = min(narrowest, capacities[-1] * links * trees / 2)
        return narrowest

    def share_a_switch(self, positions: Ints) -> bool:
        """Whether all are on one leaf."""
        leaves = positions // self.shape.down[0]
        return bool((leaves == leaves[0]).all())
