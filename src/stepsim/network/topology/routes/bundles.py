"""Listed links as a graph to route on: parallel links are one bundle."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stepsim.base.arrays import Floats, Ints, Part
from stepsim.base.errors import TopologyError

FAR = 1 << 62
"""Cost of a way that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundles:
    """The fastest parallel links between each two nodes, as one: arrays with an entry per bundle.

    `cost` orders routes by latency, then hops. `links[first[b]:first[b] + count[b]]` are the links
    of bundle b, `link_class[b]` the class of its first.
    """

    tail: Ints
    head: Ints
    cost: Ints
    link_class: Ints
    links: Ints
    first: Ints
    count: Ints

    def spread(self, loads: Floats) -> Part:
        """Links of the bundles that carry something, in equal shares."""
        used = np.flatnonzero(loads)
        count = self.count[used]
        place = ranges(self.first[used], count)
        return self.links[place], np.repeat(loads[used] / count, count)

    def cost_of(self, which: Ints) -> Ints:
        """Cost of bundles; nothing where there is none (-1)."""
        cost: Ints = np.where(which >= 0, self.cost[which], 0)
        return cost


def bundle_links(tails: Ints, heads: Ints, latencies: Ints, classes: Ints, nodes: int) -> Bundles:
    """Bundles of links given by their ends, latencies in ps.

    Raises TopologyError when latencies cannot be added.
    """
    if len(tails) and int(latencies.max()) >= FAR // (nodes + 2) ** 2:
        raise TopologyError(f"latencies are too large to add up over {nodes} nodes")
    order = np.lexsort((latencies, heads, tails))
    pair = (tails * nodes + heads)[order]
    starts = np.flatnonzero(np.diff(pair, prepend=-1))
    bundle = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(pair)))
    fastest = latencies[order] == latencies[order[starts]][bundle]
    links = order[fastest].astype(np.int64)
    count = np.bincount(bundle[fastest], minlength=len(starts)).astype(np.int64)
    lead = order[starts]
    return Bundles(
        tail=tails[lead],
        head=heads[lead],
        cost=latencies[lead] * (nodes + 2) + 1,  # no path has more hops: latency decides
        link_class=classes[lead],
        links=links,
        first=np.cumsum(count) - count,
        count=count,
    )


def ranges(first: Ints, count: Ints) -> Ints:
    """The numbers from each first on, `count` of them, one after the other."""
    start = np.repeat(first - (np.cumsum(count) - count), count)
    return start + np.arange(len(start), dtype=np.int64)


def components(nodes: int, ends: Iterable[tuple[int, int]]) -> list[int]:
    """A label per node, equal for nodes that links join in either direction."""
    neighbours: dict[int, list[int]] = defaultdict(list)
    for a, b in ends:
        neighbours[a].append(b)
        neighbours[b].append(a)
    label = [-1] * nodes
    for start in range(nodes):
        if label[start] >= 0:
            continue
        label[start], waiting = start, [start]
        while waiting:
            for node in neighbours[waiting.pop()]:
                if label[node] < 0:
                    label[node] = start
                    waiting.append(node)
    return label
