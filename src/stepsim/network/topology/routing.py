"""Shortest paths over listed links, for many flows at once.

NPUs that forward nothing are ends of routes only, so a route is a way to a node that forwards, or
no further than the NPU it begins at, and a last link from there. So the paths to find are those to
the nodes that links lead to NPUs from: a tree of them for each, which NPUs that hang on the same
switch share. Trees are grown when asked for, and tables with a row each.

networkx finds distances and predecessors, not how flows share: 29 ms a source on 4,096 NPUs, 19 s
for the 640 switches that NPUs hang on; these trees take 0.8 s with all shares.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import (
    Floats,
    Ints,
    Small,
    Summand,
    add_up,
    bins,
    bounds,
    distinct,
    distinct_rows,
    places_by,
    slices,
    spans,
    totals,
)
from stepsim.base.structs import Noun
from stepsim.network.topology.cabling import FAR, Bundles
from stepsim.network.topology.wiring import Flows

_CELLS = 1 << 20
_PAIRS = 1 << 16
_TREE_CELLS = 1 << 23


class _Trees(Noun, dict=True):
    """The ways to roots from every node: their cost, number of shortest paths and hops per class.

    The place of a node in a tree is that of its row in turn. Of paths that cost the same, hops are
    those of one with the largest endpoint latency. So many of the bundles on the shortest paths as
    `count` says begin at each place, in turn; `share` is the part of what leaves it.
    """

    distance: Ints
    paths: Floats
    hops: NDArray[np.int16]
    count: Ints
    bundles: NDArray[np.int32]
    share: Floats

    @cached_property
    def firsts(self) -> Small:
        """The place of the first bundle that begins at each place."""
        return bounds(self.count)

    @classmethod
    def joined(cls, parts: "Sequence[_Trees]") -> Self:
        """The trees of several, one after the other."""
        columns = {
            name: np.concatenate([getattr(each, name) for each in parts])
            for name in cls.__struct_fields__
        }
        return cls(**columns)


class Router(Noun, dict=True):
    """Shortest paths between NPUs 0 to `npus` - 1; nodes forward that have numbers from `inner` on.

    `inner` is `npus`, or 0 where NPUs forward. `endpoint_ps` are the link classes' latencies. The
    place of node n in the trees is that of its tree's row times `nodes`, and n more.
    """

    npus: int
    nodes: int
    inner: int
    bundles: Bundles
    endpoint_ps: Ints
    _trees: list[_Trees] = []

    @cached_property
    def _row_of(self) -> Ints:
        """The row of the tree to each node; -1 where it is not grown."""
        return np.full(self.nodes, -1)

    @cached_property
    def _by_head(self) -> tuple[Ints, Small]:
        """Bundles by the node that they lead to, and where those of each begin."""
        head = self.bundles.head
        return np.argsort(head, kind="stable"), bounds(np.bincount(head, minlength=self.nodes))

    def _into(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Bundles that lead to some nodes, one node after the other, and the place of its node."""
        bundles, starts = self._by_head
        count = starts[nodes + 1] - starts[nodes]
        return bundles[spans(starts[nodes], count)], np.repeat(np.arange(len(nodes)), count)

    @property
    def trees(self) -> _Trees:
        """The trees grown so far."""
        return self._trees[0]

    def rows(self, roots: Ints) -> Ints:
        """Rows of the trees to these nodes; grows those that are missing."""
        row_of = self._row_of
        missing = distinct(roots[row_of[roots] < 0])
        if missing.size:
            if (bins(row_of) + len(missing)) * self.nodes > _TREE_CELLS:
                row_of[:], missing = -1, distinct(roots)
                self._trees.clear()
            row_of[missing] = bins(row_of) + np.arange(len(missing))
            batches = slices(len(missing), max(1, _CELLS // (1 + len(self.bundles.tail))))
            grown = (self._grow(missing[batch]) for batch in batches)
            self._trees[:] = [_Trees.joined([*self._trees, *grown])]
        return row_of[roots]

    def _grow(self, roots: Ints) -> _Trees:
        """The ways to roots: nodes one hop away come first, then those that go on over them.

        Of the ways on from a node that cost the same, hops are of the largest endpoint latency.
        """
        distance, bundles = self._distances(roots), self.bundles
        first = np.arange(len(roots))[:, None] * self.nodes
        on = np.flatnonzero(bundles.head >= self.inner)
        tails, heads = first + bundles.tail[on], first + bundles.head[on]
        used = (distance[heads] < FAR) & (distance[tails] == distance[heads] + bundles.cost[on])
        tails, heads, on = tails[used], heads[used], on[np.nonzero(used)[1]]
        classes, paths = bundles.link_class[on], np.where(distance == 0, 1.0, 0.0)
        worst = np.full(len(distance), -1)
        hops = np.zeros((len(distance), len(self.endpoint_ps)), np.int16)
        steps = distance[tails] % (self.nodes + 2)  # see bundle_links
        for edges in places_by(steps, bins(steps)):
            reached = np.maximum(self.endpoint_ps[classes[edges]], worst[heads[edges]])
            some = edges[np.argsort(reached, kind="stable")]  # of a node's ways on the last stays
            here, there = tails[some], heads[some]
            crossed = hops[there]
            crossed[np.arange(len(some)), classes[some]] += 1
            worst[here], hops[here] = np.sort(reached), crossed
            paths += totals(here, paths[there], len(distance))
        return _Trees(
            distance=distance,
            paths=paths,
            hops=hops,
            count=np.bincount(tails, minlength=len(distance)),
            bundles=on.astype(np.int32),
            share=paths[heads] / paths[tails],
        )

    def _distances(self, roots: Ints) -> Ints:
        """Cost of the shortest way from every node, corrected until nothing gets nearer."""
        front = np.arange(len(roots)) * self.nodes + roots
        distance = np.full(len(roots) * self.nodes, FAR)
        distance[front] = 0
        while front.size:
            front = front[front % self.nodes >= self.inner]
            edges, place = self._into(front % self.nodes)
            heads = front[place]
            tails = heads - self.bundles.head[edges] + self.bundles.tail[edges]
            before = distance[tails]
            np.minimum.at(distance, tails, distance[heads] + self.bundles.cost[edges])
            front = distinct(tails[distance[tails] < before])
        return distance

    def _push(self, owner: Ints, place: Ints, weights: Floats) -> Iterator[Summand]:
        """What weights put on bundles, numbered anew for every owner, up to the roots of trees."""
        trees, places = self.trees, len(self.trees.count)
        keys, weights = add_up([(owner * places + place, weights)])
        while keys.size:
            count = trees.count[keys % places]
            place = spans(trees.firsts[keys % places], count)
            carried = np.repeat(weights, count) * trees.share[place]
            bundles = trees.bundles[place].astype(np.int64)
            key = np.repeat(keys, count)
            yield key // places * len(self.bundles.tail) + bundles, carried
            ahead = self.bundles.head[bundles] - self.bundles.tail[bundles]
            keys, weights = add_up([(key + ahead, carried)])

    def load(self, flows: Flows) -> tuple[tuple[Ints, Ints, Floats], Ints]:
        """What each owner's flows put on links: columns of owner, link and load; and hops.

        Hops are the distinct ones per class. Owners may be any numbers from 0. Equal-cost paths
        share evenly. Flows of one owner from one NPU to the same other count as one. All NPUs
        are connected, see `cabled`.
        """
        apart = flows.start != flows.end
        hops = [np.zeros((int(not apart.all()), len(self.endpoint_ps)), np.int64)]
        loads: Summand = np.zeros(0, np.int64), np.zeros(0)
        flows = flows.where(apart)
        keys = (flows.copy * self.npus + flows.end) * self.npus + flows.start
        keys, total = add_up([(keys, flows.weight)])
        for part in slices(len(keys), _PAIRS):
            rest, here = np.divmod(keys[part], self.npus)
            owner, there = np.divmod(rest, self.npus)
            pair, place, last = self._ways(here, there)
            paths = self.trees.paths[place]
            share = paths * (total[part] / totals(pair, paths, len(here)))[pair]
            crossed = owner[pair] * len(self.bundles.tail) + last, share
            loads = add_up([loads, crossed, *self._push(owner[pair], place, share)])
            hops.append(self._hops(pair, place, last))
        return self.bundles.spread(*loads), distinct_rows(np.concatenate(hops))

    def _ways(self, here: Ints, there: Ints) -> tuple[Ints, Ints, Ints]:
        """The shortest ways: the number of its pair, where it begins in trees, its last bundle."""
        last, pair = self._into(there)
        place = self.rows(self.bundles.tail[last]) * self.nodes + here[pair]
        cost = self.trees.distance[place] + self.bundles.cost[last]
        best = np.full(len(here), FAR)
        np.minimum.at(best, pair, cost)
        shortest = np.flatnonzero(cost == best[pair])
        return pair[shortest], place[shortest], last[shortest]

    def _hops(self, pair: Ints, place: Ints, last: Ints) -> Ints:
        """Distinct hops per class, of the way with the largest endpoint latency of each pair."""
        hops = self.trees.hops[place].astype(np.int64)
        hops[np.arange(len(last)), self.bundles.link_class[last]] += 1
        worst = np.where(hops > 0, self.endpoint_ps, -1).max(axis=1, initial=-1)
        order = np.lexsort((-worst, pair))
        return distinct_rows(hops[order[np.flatnonzero(np.diff(pair[order], prepend=-1))]])
