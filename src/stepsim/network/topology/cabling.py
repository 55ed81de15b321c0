"""Listed links as arrays and as a graph: bundles, bisection, and blocks that look alike.

Parallel links are one bundle of the graph to route on. The bisection is the least bandwidth found
between two halves of the NPUs. Two blocks of as many consecutive NPUs can be swapped if each, with
the switches that only it hangs on, is wired inside as the other is and has links of the same
classes to the same nodes outside.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from stepsim.base.arrays import Floats, Ints, bins, ints, places_by, rows_of, spans, totals
from stepsim.base.errors import TopologyError
from stepsim.base.structs import Names, Noun

FAR = 1 << 62
"""Cost of a way that does not exist."""


class Bundles(Noun):
    """The fastest parallel links between each two nodes, as one: arrays with an entry per bundle.

    They ascend by `tail`, then `head`.
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
        links = self.links[spans(self.first[bundle], count)]
        return np.repeat(owner, count), links, np.repeat(loads[carries] / count, count)


class Cabling(Noun, eq=False):
    """Named nodes, the `npus` NPUs first (`npu0`, `npu1`, ...), and directed links between them.

    Link l leaves node `tail[l]` for node `head[l]` and is of class `link_class[l]`.
    """

    nodes: Names
    npus: int
    tail: Ints
    head: Ints
    link_class: Ints

    def between(self, members: Ints) -> Ints:
        """Links from each of some NPUs to each other."""
        place = np.full(len(self.nodes), -1)
        place[members] = np.arange(len(members))
        tails, heads = place[self.tail], place[self.head]
        inside = (tails >= 0) & (heads >= 0)
        links = np.zeros((len(members), len(members)), np.int64)
        np.add.at(links, (tails[inside], heads[inside]), 1)
        return links


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


_ROUNDS = 20


def even_cut(cabling: Cabling, bandwidth: Floats) -> float:
    """Bytes/s, one way, across the least of several even cuts: no cut found is below the true one.

    Halves tried: the lower and the upper numbers, blocks that take turns (1, 2, 4, ... NPUs), and
    the NPUs nearest to one. Switches go to the side to which they have more bandwidth.
    """
    if cabling.npus < 2:
        return float("inf")
    finite = np.minimum(bandwidth, 1e30)
    least = min(_cut(cabling, side, finite) for side in _halves(cabling))
    return float("inf") if least >= 1e30 else least


def _halves(cabling: Cabling) -> Iterator[Floats]:
    """Sides of all nodes, -1 or 1, and 0 for switches that are still free."""
    import networkx as nx

    npus, numbers = cabling.npus, np.arange(cabling.npus)
    links = nx.DiGraph(rows_of(cabling.tail, cabling.head))
    hops = nx.single_source_shortest_path_length(links, 0)
    near = [hops.get(npu, len(cabling.nodes)) for npu in range(npus)]
    orders = [numbers, np.argsort(near, kind="stable")]
    block = 1
    while block < npus:
        orders.append(np.argsort(numbers // block % 2, kind="stable"))
        block *= 2
    for order in orders:
        side = np.zeros(len(cabling.nodes))
        side[order[: npus // 2]] = -1.0
        side[order[npus // 2 :]] = 1.0
        yield side


def _cut(cabling: Cabling, side: Floats, bandwidth: Floats) -> float:
    npus, tails, heads = cabling.npus, cabling.tail, cabling.head
    for _ in range(_ROUNDS):
        pull = totals(heads, side[tails] * bandwidth, len(side))
        moved = np.concatenate((side[:npus], np.sign(pull[npus:])))
        if np.array_equal(moved, side):
            break
        side = moved
    # A switch drawn to both sides alike goes to one of them; the others follow it.
    placed = np.where(side == 0, -1.0, side)
    cuts = [
        float(bandwidth[(placed[tails] == way) & (placed[heads] == -way)].sum())
        for way in (-1.0, 1.0)
    ]
    return min(cuts)


class Swap(Noun):
    """Blocks of `size` NPUs: `kind[b]` is that of block b, `like[k]` the blocks of kind k."""

    size: int
    kind: Ints
    like: list[Ints]

    def first_alike(self, members: Ints) -> Ints:
        """Ascending rows of NPUs, moved to the first blocks of each kind if they still ascend."""
        block, place = np.divmod(members, self.size)
        enters = np.diff(block, axis=1, prepend=-1) != 0
        moved = block.copy()
        for number, blocks in enumerate(self.like):
            mine = self.kind[block] == number
            if len(blocks) > 1 and mine.any():
                count = np.cumsum(enters & mine, axis=1) - 1
                moved[mine] = blocks[count[mine]]
        same_order = (np.sign(np.diff(moved, axis=1)) == enters[:, 1:]).all(axis=1)
        return np.where(same_order[:, None], moved * self.size + place, members)


def find_swaps(cabling: Cabling, node_size: int) -> Iterator[Swap]:
    """Swaps of nodes, then of the blocks that alike nodes form, and so on; of NPUs without nodes.

    Places within a node are kept, so that a group lies on its nodes as before.
    """
    size = node_size if node_size < cabling.npus else 1
    while size < cabling.npus:
        kind = _kinds(cabling, size)
        yield Swap(size=size, kind=kind, like=places_by(kind, bins(kind)))
        run = int(np.argmax(kind != kind[0])) or len(kind)
        if run == 1:
            return
        size *= run


def _kinds(cabling: Cabling, size: int) -> Ints:
    """A number per block, equal for blocks that can be swapped."""
    owner = _owners(cabling, size)
    blocks = -(-cabling.npus // size)
    code = _places(owner, size, cabling.npus)
    rows = []
    for end in (cabling.tail, cabling.head):
        mine = owner[end]
        ends = [
            np.where(owner[each] == mine, code[each], -1 - each)
            for each in (cabling.tail, cabling.head)
        ]
        rows.append(np.stack((mine, *ends, cabling.link_class), axis=1))
    table = np.concatenate(rows)  # links inside a block stand there twice
    table = table[np.lexsort(table.T[::-1])]
    starts = np.searchsorted(table[:, 0], np.arange(blocks + 1))
    numbers: dict[bytes, int] = {}
    return ints(
        [
            numbers.setdefault(table[first:end, 1:].tobytes(), len(numbers))
            for first, end in pairwise(starts.tolist())
        ],
    )


def _owners(cabling: Cabling, size: int) -> Ints:
    """The block that each node belongs to, or -1.

    A switch belongs to a block if all its neighbours nearer to NPUs do.
    """
    nodes = len(cabling.nodes)
    a = np.concatenate((cabling.tail, cabling.head))
    b = np.concatenate((cabling.head, cabling.tail))
    front = np.arange(nodes) < cabling.npus
    seen, owner = front, np.where(front, np.arange(nodes) // size, -1)
    while front.any():
        up = front[a] & ~seen[b]
        low, high = np.full(nodes, nodes), np.full(nodes, -1)
        np.minimum.at(low, b[up], owner[a[up]])
        np.maximum.at(high, b[up], owner[a[up]])
        front = low < nodes
        seen = seen | front
        owner = np.where(front & (low == high), low, owner)
    return owner


def _places(owner: Ints, size: int, npus: int) -> Ints:
    """Number of each node within its block: NPUs by place, then switches in their order."""
    place = np.arange(len(owner)) % size
    switches = np.flatnonzero(owner[npus:] >= 0) + npus
    order = switches[np.argsort(owner[switches], kind="stable")]
    first = np.searchsorted(owner[order], owner[order])
    place[order] = size + np.arange(len(order)) - first
    return place
