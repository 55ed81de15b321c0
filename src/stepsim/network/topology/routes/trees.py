"""Shortest paths from all nodes to one: trees in tables, a row per root, grown when asked for."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from stepsim.base.arrays import Floats, Ints, Summand, add_up, totals
from stepsim.network.topology.routes.bundles import FAR, Bundles, ranges

_CELLS = 1 << 23


class At(Struct, frozen=True, kw_only=True):
    """Where things are: each at a node, on its way to the root of a row, for an owner."""

    owner: Ints
    row: Ints
    node: Ints


class _Tables(Struct, kw_only=True):
    """A row per root: cost to it, number of shortest paths and hops per class, of every node.

    Of paths that cost the same, hops are those of one with the largest endpoint latency. Row 0 has
    no root: nothing leads there. The bundles on the shortest paths from node n to the root of row r
    are `bundles[first[r, n]:first[r, n + 1]]`, and `share` is the part of what leaves n.
    """

    distance: Ints
    paths: Floats
    hops: NDArray[np.int16]
    first: Ints
    bundles: NDArray[np.int32]
    share: Floats
    rows: int = 1
    branches: int = 0

    @classmethod
    def empty(cls, nodes: int, classes: int) -> "_Tables":
        """Row 0 only."""
        return cls(
            distance=np.full((1, nodes), FAR, dtype=np.int64),
            paths=np.zeros((1, nodes)),
            hops=np.zeros((1, nodes, classes), dtype=np.int16),
            first=np.zeros((1, nodes + 1), dtype=np.int64),
            bundles=np.zeros(0, dtype=np.int32),
            share=np.zeros(0),
        )

    def clear(self) -> None:
        """Forget all rows but row 0."""
        self.rows, self.branches = 1, 0

    def add_row(self, bundles: Ints, count: Ints, share: Floats) -> int:
        """A new row with these bundles, `count` of which begin at each node; its number."""
        row, first, end = self.rows, self.branches, self.branches + len(bundles)
        self._widen(("distance", "paths", "hops", "first"), row + 1)
        self._widen(("bundles", "share"), end)
        self.first[row] = first + np.concatenate(([0], np.cumsum(count)))
        self.bundles[first:end], self.share[first:end] = bundles, share
        self.rows, self.branches = row + 1, end
        return row

    def _widen(self, names: tuple[str, ...], needed: int) -> None:
        """Room for at least so many rows or branches."""
        have = len(getattr(self, names[0]))
        for name in names if needed > have else ():
            table = getattr(self, name)
            room = np.zeros((max(needed, 2 * have) - have, *table.shape[1:]), dtype=table.dtype)
            setattr(self, name, np.concatenate((table, room)))


class Forest(Struct, frozen=True, kw_only=True, dict=True):
    """Shortest paths among `nodes` nodes over bundles whose ends are numbered from `base` on."""

    nodes: int
    base: int
    bundles: Bundles
    endpoint_ps: Ints
    _row_of: dict[int, int] = field(default_factory=dict)

    @cached_property
    def tables(self) -> _Tables:
        """The trees grown so far."""
        return _Tables.empty(self.nodes, len(self.endpoint_ps))

    @cached_property
    def _between(self) -> Ints:
        """Bundles between the nodes, ordered by where they lead."""
        inner = (self.bundles.tail >= self.base) & (self.bundles.head >= self.base)
        found = np.flatnonzero(inner)
        return found[np.argsort(self.bundles.head[found], kind="stable")]

    @cached_property
    def _into(self) -> tuple[Ints, Ints]:
        """Per node: first place in `_between` of bundles that lead there, and how many."""
        heads = self.bundles.head[self._between] - self.base
        count = np.bincount(heads, minlength=self.nodes).astype(np.int64)
        return np.cumsum(count) - count, count

    def rows(self, roots: Ints) -> Ints:
        """Rows of the trees to these nodes (row 0 for -1); grows those that are missing."""
        if (len(self._row_of) + len(roots)) * self.nodes > _CELLS:
            self._row_of.clear()
            self.tables.clear()
        for root in roots.tolist():
            if root >= 0 and root not in self._row_of:
                self._row_of[root] = self._grow(root)
        return np.array([self._row_of.get(root, 0) for root in roots.tolist()], dtype=np.int64)

    def _grow(self, root: int) -> int:
        """The row of a new tree."""
        tables, distance = self.tables, self._distances(root)
        on = self._on_shortest(distance)
        on = on[np.argsort(self.bundles.tail[on], kind="stable")]
        tails, heads = self.bundles.tail[on] - self.base, self.bundles.head[on] - self.base
        paths = self._paths(root, tails, heads)
        count = np.bincount(tails, minlength=self.nodes)
        row = tables.add_row(on, count, paths[heads] / paths[tails])
        tables.distance[row], tables.paths[row] = distance, paths
        tables.hops[row] = self._hops(root, on)
        return row

    def _distances(self, root: int) -> Ints:
        """Cost of the shortest way from every node, corrected until nothing gets nearer."""
        bundles, base = self.bundles, self.base
        distance = np.full(self.nodes, FAR, dtype=np.int64)
        distance[root] = 0
        front = np.array([root])
        while front.size:
            edges = self._between[ranges(self._into[0][front], self._into[1][front])]
            tails = bundles.tail[edges] - base
            before = distance[tails]
            through = distance[bundles.head[edges] - base] + bundles.cost[edges]
            np.minimum.at(distance, tails, through)
            front = np.unique(tails[distance[tails] < before])
        return distance

    def _on_shortest(self, distance: Ints) -> Ints:
        tails = distance[self.bundles.tail[self._between] - self.base]
        heads = distance[self.bundles.head[self._between] - self.base]
        on = (heads < FAR) & (tails == heads + self.bundles.cost[self._between])
        edges: Ints = self._between[on]
        return edges

    def _paths(self, root: int, tails: Ints, heads: Ints) -> Floats:
        """Number of shortest paths from every node."""
        paths, grown = np.zeros(0), (np.arange(self.nodes) == root).astype(np.float64)
        while not np.array_equal(paths, grown):
            paths = grown
            grown = totals(tails, paths[heads], self.nodes)
            grown[root] = 1.0
        return paths

    def _hops(self, root: int, edges: Ints) -> NDArray[np.int16]:
        """Hops per class from every node: each goes on towards the largest endpoint latency."""
        tails, heads = self.bundles.tail[edges] - self.base, self.bundles.head[edges] - self.base
        classes = self.bundles.link_class[edges]
        own = self.endpoint_ps[classes]
        worst, before = np.full(self.nodes, -1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        while not np.array_equal(worst, before):
            before = worst.copy()
            np.maximum.at(worst, tails, np.maximum(own, before[heads]))
        onward = np.full(self.nodes, -1, dtype=np.int64)
        chosen = np.flatnonzero(np.maximum(own, worst[heads]) == worst[tails])
        onward[tails[chosen]] = chosen
        hops = np.zeros((self.nodes, len(self.endpoint_ps)), dtype=np.int16)
        walkers = here = np.flatnonzero(onward >= 0)
        while walkers.size:
            edge = onward[here]
            hops[walkers, classes[edge]] += 1
            here = heads[edge]
            walkers, here = walkers[here != root], here[here != root]
        return hops

    def push(self, at: At, weights: Floats) -> Iterator[Summand]:
        """What weights at nodes put on bundles, numbered anew for every owner, up to the roots."""
        tables, rows = self.tables, self.tables.rows
        lanes = (at.owner * rows + at.row) * self.nodes
        keys, weights = add_up([(lanes + at.node, weights)])
        while keys.size:
            lane, node = np.divmod(keys, self.nodes)
            row = lane % rows
            first = tables.first[row, node]
            count = tables.first[row, node + 1] - first
            place = ranges(first, count)
            carried = np.repeat(weights, count) * tables.share[place]
            bundles = tables.bundles[place].astype(np.int64)
            lane = np.repeat(lane, count)
            yield lane // rows * len(self.bundles.tail) + bundles, carried
            heads = self.bundles.head[bundles] - self.base
            keys, weights = add_up([(lane * self.nodes + heads, carried)])
