"""Listed links as a graph to route on: parallel links are one bundle."""

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import TopologyError
from stepsim.network.topology.routes.cabling import Cabling

FAR = 1 << 62
"""Cost of a way that does not exist."""


class Bundles(Struct, frozen=True, kw_only=True):
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

    def spread(self, used: Ints, loads: Floats) -> tuple[Ints, Ints, Floats]:
        """What bundles carry on their links, in equal shares, where it is anything.

        Bundles are numbered anew for every owner; returns columns of owner, link and load.
        """
        carries = loads != 0
        owner, bundle = np.divmod(used[carries], max(1, len(self.tail)))
        count = self.count[bundle]
        links = self.links[ranges(self.first[bundle], count)]
        return np.repeat(owner, count), links, np.repeat(loads[carries] / count, count)

    def cost_of(self, which: Ints) -> Ints:
        """Cost of bundles; nothing where there is none (-1)."""
        cost: Ints = np.where(which >= 0, self.cost[which], 0)
        return cost


def bundle_links(cabling: Cabling, latencies: Ints) -> Bundles:
    """Bundles of links with these latencies in ps.

    Raises TopologyError when latencies cannot be added.
    """
    tails, heads, nodes = cabling.tail, cabling.head, len(cabling.nodes)
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
        link_class=cabling.link_class[lead],
        links=links,
        first=np.cumsum(count) - count,
        count=count,
    )


def ranges(first: Ints, count: Ints) -> Ints:
    """The numbers from each first on, `count` of them, one after the other."""
    start = np.repeat(first - (np.cumsum(count) - count), count)
    return start + np.arange(len(start), dtype=np.int64)
