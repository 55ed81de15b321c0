"""Fat tree: leaf switches joined by layers of switches above them; with none above one, a star.

Leiserson, "Fat-trees: universal networks for hardware-efficient supercomputing", IEEE ToC 1985;
k-ary: Al-Fares et al., "A scalable, commodity data center network architecture", SIGCOMM 2008; the
general form: Öhring et al., "On generalized fat trees", IPPS 1995.
"""

from itertools import chain
from math import prod

import numpy as np

from stepsim.base.arrays import Ints, Summand
from stepsim.base.errors import TopologyError
from stepsim.base.structs import Noun, Numbers
from stepsim.network.topology.wiring import (
    Digit,
    DimensionKind,
    Flows,
    Node,
    Ports,
    SwitchLayer,
    climb,
    find_link,
)

_LAYERS = ("leaf", "spine", "core")


class TreeShape(Noun):
    """`down[l]`: what a switch of layer l has below it; `up[l]`: switches above it, one link each.

    Layer 0 are the leaves, and `down[0]` their NPUs. The top layer has as many below as there are:
    it is in neither tuple. So leaf-spine is down (32,), up (16,); two layers above leaves is down
    (32, 16), up (16, 8): 16 leaves and 16 spines in a pod, 8 cores above each spine; a star of 8 is
    down (8,), up (). `most` are the NPUs that its switches have ports for, 0 without a limit.
    """

    down: Numbers
    up: Numbers
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
    def _between(self) -> list[SwitchLayer]:
        """The layers between switches."""
        down, up = self.shape.down, self.shape.up
        below = [prod(down[:layer]) for layer in range(1, 1 + len(up))]
        return [
            SwitchLayer(-(-self.size // npus), npus, prod(up[:layer]))
            for layer, npus in enumerate(below, start=1)
        ]

    @property
    def _classes(self) -> list[list[SwitchLayer]]:
        """The layers of every class of links: those of the ports, and those between switches."""
        ports = [[layer] for layer in self.ports.layers(self.size)]
        return [*ports, self._between] if self.shape.up else ports

    @property
    def link_counts(self) -> Numbers:
        """Those of the ports, and those between switches if there are several."""
        return tuple(sum(layer.count for layer in layers) for layers in self._classes)

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
    def farthest(self) -> Numbers:
        """To the top and down again."""
        return tuple(sum(2 * (each.trees > 1) for each in layers) for layers in self._classes)

    def ends(self, link: int) -> tuple[Node, Node]:
        """A position and its leaf, or two switches."""
        ports, down = self.ports.layers(self.size), self.shape.down
        layer, tree, way, descends = find_link([*chain(*self._classes)], link)
        if layer < len(ports):
            leaf = self._switch(0, tree * ports[layer].npus // down[0], 0)
            low, high = self.ports.ends(layer, tree, leaf)
        else:
            layer -= len(ports)
            low = self._switch(layer, tree, way // self.shape.up[layer])
            high = self._switch(layer + 1, tree // (*down, 1)[layer + 1], way)
        return (high, low) if descends else (low, high)

    def _switch(self, layer: int, tree: int, place: int) -> str:
        if layer == 0:
            return f"-leaf{tree}" if self.shape.up else ""
        if layer == len(self.shape.up):
            return f"-{_LAYERS[layer]}{place}"
        return f"-{_LAYERS[layer]}{tree}.{place}"

    def load(self, flows: Flows) -> list[Summand]:
        """Up to the first layer that joins both ends, evenly, and down again."""
        return [*climb(chain(*self._classes), flows, sum(self.link_counts))]

    def hops(self, flows: Flows) -> Ints:
        """Two for every layer climbed."""
        columns = [sum(2 * each.crossed(flows) for each in layers) for layers in self._classes]
        return np.stack(columns, axis=1)

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of the narrowest layer below the top, of half the subtrees that it joins."""
        narrowest = self.ports.capacity(self.size // 2, capacities)
        for layer in self._between:
            if layer.trees > 1:
                narrowest = min(narrowest, capacities[-1] * layer.count / 4)
        return narrowest

    @property
    def below(self) -> int:
        """NPUs of a leaf."""
        return self.shape.down[0]
