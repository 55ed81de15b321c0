"""Which groups look the same on listed links: blocks of NPUs that can be swapped.

Two blocks of as many consecutive NPUs can be swapped if each, with the switches that only it hangs
on, is wired inside as the other is and has links of the same classes to the same nodes outside.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.network.topology.routes.cabling import Cabling


class Swap(Struct, frozen=True, kw_only=True):
    """Blocks of `size` NPUs: `kind[b]` is that of block b, `like[k]` the blocks of kind k."""

    size: int
    kind: Ints
    like: tuple[Ints, ...]

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


def find_swaps(cabling: Cabling, node_size: int) -> tuple[Swap, ...]:
    """Swaps of nodes, then of the blocks that alike nodes form, and so on; of NPUs without nodes.

    Places within a node are kept, so that a group lies on its nodes as before.
    """
    return tuple(_levels(cabling, node_size if node_size < cabling.npus else 1))


def canonical_groups(members: Ints, swaps: tuple[Swap, ...]) -> Ints:
    """Groups (rows) in a form in which equal rows cost the same."""
    order = np.argsort(members, axis=1)
    ascending = np.take_along_axis(members.astype(np.int64), order, axis=1)
    for swap in swaps:
        ascending = swap.first_alike(ascending)
    moved = np.empty_like(ascending)
    np.put_along_axis(moved, order, ascending, axis=1)
    return moved


def _levels(cabling: Cabling, size: int) -> Iterator[Swap]:
    while size < cabling.npus:
        kind = _kinds(cabling, size)
        kinds = int(kind.max()) + 1
        yield Swap(
            size=size, kind=kind, like=tuple(np.flatnonzero(kind == k) for k in range(kinds))
        )
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
    inside = owner[cabling.tail] == owner[cabling.head]
    table = np.concatenate((rows[0], rows[1][~inside]))
    table = table[np.lexsort(table.T[::-1])]
    starts = np.searchsorted(table[:, 0], np.arange(blocks + 1))
    numbers: dict[bytes, int] = {}
    return np.array(
        [
            numbers.setdefault(table[first:end, 1:].tobytes(), len(numbers))
            for first, end in pairwise(starts.tolist())
        ],
        dtype=np.int64,
    )


def _owners(cabling: Cabling, size: int) -> Ints:
    """The block that each node belongs to, or -1.

    A switch belongs to a block if all its neighbours nearer to NPUs do.
    """
    nodes = len(cabling.nodes)
    a = np.concatenate((cabling.tail, cabling.head))
    b = np.concatenate((cabling.head, cabling.tail))
    height = np.where(np.arange(nodes) < cabling.npus, 0, nodes)
    owner = np.where(height == 0, np.arange(nodes) // size, -1).astype(np.int64)
    front = height == 0
    while front.any():
        up = front[a] & (height[b] == nodes)
        low, high = np.full(nodes, nodes), np.full(nodes, -1)
        np.minimum.at(low, b[up], owner[a[up]])
        np.maximum.at(high, b[up], owner[a[up]])
        front = np.zeros(nodes, dtype=bool)
        front[b[up]] = True
        height[front] = height[a[up]].max(initial=0) + 1
        owner[front & (low == high)] = low[front & (low == high)]
    return owner


def _places(owner: Ints, size: int, npus: int) -> Ints:
    """Number of each node within its block: NPUs by place, then switches in their order."""
    place = np.arange(len(owner)) % size
    switches = np.flatnonzero(owner[npus:] >= 0) + npus
    order = switches[np.argsort(owner[switches], kind="stable")]
    first = np.searchsorted(owner[order], owner[order])
    place[order] = size + np.arange(len(order)) - first
    return place
