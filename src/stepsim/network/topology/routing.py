"""Shortest paths over listed links, for many flows at once.

NPUs that forward nothing are ends of routes only: a route is a link to a switch, a way between
switches, and a link to the other NPU (or one link from NPU to NPU). So the paths to find are those
between switches, a tree of them per switch that NPUs hang on, and each NPU adds its few links. NPUs
that forward count as switches here. Trees are grown when asked for, and tables with a row each.

networkx finds distances and predecessors, not how flows share: 29 ms a source on 4,096 NPUs, 19 s
for the 640 switches that NPUs hang on; these trees take 0.8 s with all shares.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count
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
    distinct_rows,
    ints,
    places_by,
    slices,
    spans,
    totals,
)
from stepsim.base.structs import Noun
from stepsim.network.topology.cabling import FAR, Bundles

_CELLS = 1 << 20


_TREE_CELLS = 1 << 23


class _Trees(Noun, dict=True):
    """The ways to roots from every node: their cost, number of shortest paths and hops per class.

    A row per root; to the root -1 nothing leads. Of paths that cost the same, hops are those of one
    with the largest endpoint latency. So many of the bundles on the shortest paths as `count` says
    begin at each node of each row, in turn; `share` is the part of what leaves it.
    """

    distance: Ints
    paths: Floats
    hops: NDArray[np.int16]
    count: Ints
    bundles: NDArray[np.int32]
    share: Floats

    @cached_property
    def firsts(self) -> Small:
        """The place of the first bundle that begins at each node of each row."""
        return bounds(self.count)

    @classmethod
    def joined(cls, parts: "Sequence[_Trees]") -> Self:
        """The rows of several, one after the other."""
        columns = {
            name: np.concatenate([getattr(each, name) for each in parts])
            for name in cls.__struct_fields__
        }
        return cls(**columns)


class _Ways(Noun):
    """Shortest ways of a batch of pairs.

    `paths[f, a, b]` counts those over the a-th link up and the b-th link down, which lead to the
    root of row `rows[f, b]`; `direct[f]` is the bundle from NPU to NPU, or -1.
    """

    rows: Ints
    paths: Floats
    direct: Ints


class Router(Noun, dict=True):
    """Shortest paths between NPUs 0 to `npus` - 1; inner nodes have numbers from `inner` on.

    `inner` is `npus`, or 0 where NPUs forward. `endpoint_ps` are the link classes' latencies. Trees
    lead to inner nodes, which are counted from 0 there.
    """

    npus: int
    nodes: int
    inner: int
    bundles: Bundles
    endpoint_ps: Ints
    _row_of: dict[int, int] = {}
    _trees: list[_Trees] = []

    @property
    def _inside(self) -> int:
        """How many inner nodes there are, at least one."""
        return max(1, self.nodes - self.inner)

    @cached_property
    def _between(self) -> Ints:
        """Bundles between inner nodes, ordered by where they lead."""
        inner = (self.bundles.tail >= self.inner) & (self.bundles.head >= self.inner)
        found = np.flatnonzero(inner)
        return found[np.argsort(self.bundles.head[found], kind="stable")]

    @cached_property
    def _into(self) -> tuple[Ints, Ints]:
        """Per inner node: first place in `_between` of bundles that lead there, and how many."""
        heads = self.bundles.head[self._between] - self.inner
        count = np.bincount(heads, minlength=self._inside).astype(np.int64)
        return np.cumsum(count) - count, count

    @property
    def trees(self) -> _Trees:
        """The trees grown so far."""
        return self._trees[0]

    def rows(self, roots: Ints) -> Ints:
        """Rows of the trees to these inner nodes; grows those that are missing."""
        if (len(self._row_of) + len(roots)) * self._inside > _TREE_CELLS:
            self._row_of.clear()
            self._trees.clear()
        missing = [root for root in roots.tolist() if root not in self._row_of]
        if missing:
            self._row_of.update(zip(missing, count(len(self._row_of)), strict=False))
            self._trees[:] = [_Trees.joined([*self._trees, *map(self._grow, missing)])]
        return ints([self._row_of[root] for root in roots.tolist()])

    def _grow(self, root: int) -> _Trees:
        """The ways to a root: nodes one hop away come first, then those that go on over them.

        Of the ways on from a node that cost the same, hops are of the largest endpoint latency.
        """
        distance, between, bundles = self._distances(root), self._between, self.bundles
        tails = distance[bundles.tail[between] - self.inner]
        heads = distance[bundles.head[between] - self.inner]
        on = between[(heads < FAR) & (tails == heads + bundles.cost[between])]
        on = on[np.argsort(bundles.tail[on], kind="stable")]
        tails, heads = bundles.tail[on] - self.inner, bundles.head[on] - self.inner
        classes, paths = bundles.link_class[on], np.where(distance == 0, 1.0, 0.0)
        worst = np.full(self._inside, -1, np.int64)
        hops = np.zeros((self._inside, len(self.endpoint_ps)), np.int16)
        steps = distance[tails] % (self.nodes + 2)  # see bundle_links
        for edges in places_by(steps, bins(steps)):
            reached = np.maximum(self.endpoint_ps[classes[edges]], worst[heads[edges]])
            some = edges[np.argsort(reached, kind="stable")]  # of a node's ways on the last stays
            here, there = tails[some], heads[some]
            crossed = hops[there]
            crossed[np.arange(len(some)), classes[some]] += 1
            worst[here], hops[here] = np.sort(reached), crossed
            paths += totals(here, paths[there], self._inside)
        return _Trees(
            distance=distance[None],
            paths=paths[None],
            hops=hops[None],
            count=np.bincount(tails, minlength=self._inside),
            bundles=on.astype(np.int32),
            share=paths[heads] / paths[tails],
        )

    def _distances(self, root: int) -> Ints:
        """Cost of the shortest way from every node, corrected until nothing gets nearer."""
        bundles, base = self.bundles, self.inner
        distance = np.where(np.arange(self._inside) == root, 0, FAR)
        front = np.flatnonzero(distance == 0)
        while front.size:
            edges = self._between[spans(self._into[0][front], self._into[1][front])]
            tails = bundles.tail[edges] - base
            before = distance[tails]
            through = distance[bundles.head[edges] - base] + bundles.cost[edges]
            np.minimum.at(distance, tails, through)
            front = np.unique(tails[distance[tails] < before])
        return distance

    def push(self, owner: Ints, row: Ints, node: Ints, weights: Floats) -> Iterator[Summand]:
        """What weights put on bundles, numbered anew for every owner, up to the roots of trees.

        Each is for an owner at a node, on its way to the root of the tree of a row.
        """
        trees, places = self.trees, len(self.trees.count)
        keys, weights = add_up([(owner * places + row * self._inside + node, weights)])
        while keys.size:
            count = trees.count[keys % places]
            place = spans(trees.firsts[keys % places], count)
            carried = np.repeat(weights, count) * trees.share[place]
            bundles = trees.bundles[place].astype(np.int64)
            key = np.repeat(keys, count)
            yield key // places * len(self.bundles.tail) + bundles, carried
            heads = self.bundles.head[bundles] - self.inner
            keys, weights = add_up([(key // self._inside * self._inside + heads, carried)])

    def _hung_on(self, npu_ends: Ints, inner_ends: Ints) -> tuple[Ints, Ints]:
        """Per NPU its inner nodes and the bundles to or from them; -1 fills the rows up."""
        if self.inner == 0:
            own = np.arange(self.npus, dtype=np.int64)[:, None]
            return own, np.full_like(own, -1)
        found = np.flatnonzero((npu_ends < self.inner) & (inner_ends >= self.inner))
        found = found[np.argsort(npu_ends[found], kind="stable")]
        count = np.bincount(npu_ends[found], minlength=self.npus)
        place = spans(np.zeros_like(count), count)
        width = max(1, int(count.max(initial=0)))
        nodes, bundles = (np.full((self.npus, width), -1, np.int64) for _ in range(2))
        nodes[npu_ends[found], place] = inner_ends[found] - self.inner
        bundles[npu_ends[found], place] = found
        return nodes, bundles

    @cached_property
    def _up(self) -> tuple[Ints, Ints]:
        """Inner nodes (counted from 0) an NPU sends to, and the bundles it uses."""
        return self._hung_on(self.bundles.tail, self.bundles.head)

    @cached_property
    def _down(self) -> tuple[Ints, Ints]:
        """Inner nodes (counted from 0) an NPU receives from, and the bundles used."""
        return self._hung_on(self.bundles.head, self.bundles.tail)

    @cached_property
    def _pairs(self) -> Ints:
        """A number of each bundle, ascending, that says which nodes it joins."""
        return self.bundles.tail * self.nodes + self.bundles.head

    def load(
        self, sources: Ints, destinations: Ints, weights: Floats, owners: Ints
    ) -> tuple[tuple[Ints, Ints, Floats], Ints]:
        """What each owner's flows put on links: columns of owner, link and load; and hops.

        Hops are the distinct ones per class. Owners may be any numbers from 0. Equal-cost paths
        share evenly. Flows of one owner from one NPU to the same other count as one. All NPUs
        are connected, see `cabled`.
        """
        apart = sources != destinations
        hops = [np.zeros((int(not apart.all()), len(self.endpoint_ps)), np.int64)]
        loads: Summand = np.zeros(0, np.int64), np.zeros(0)
        owner, there, here = (
            each[apart].astype(np.int64) for each in (owners, destinations, sources)
        )
        keys = (owner * self.npus + there) * self.npus + here
        keys, total = add_up([(keys, weights[apart].astype(np.float64))])
        batch = max(1, _CELLS // (self._up[0].shape[1] * self._down[0].shape[1]))
        for part in slices(len(keys), batch):
            rest, here = np.divmod(keys[part], self.npus)
            owner, there = np.divmod(rest, self.npus)
            ways = self._ways(here, there)
            loads = add_up([loads, *self._crossed(ways, owner, here, there, total[part])])
            hops.append(self._hops(ways, here, there))
        return self.bundles.spread(*loads), distinct_rows(np.concatenate(hops))

    def _crossed(
        self, ways: _Ways, owner: Ints, here: Ints, there: Ints, weight: Floats
    ) -> Iterator[Summand]:
        """Loads on bundles, numbered anew for every owner."""
        alone = ways.direct >= 0
        each = weight / (ways.paths.sum(axis=(1, 2)) + alone)
        shares = ways.paths * each[:, None, None]
        first = owner * len(self.bundles.tail)
        yield (first + ways.direct)[alone], each[alone]
        for (_, bundles), ends, axis in ((self._up, here, 2), (self._down, there, 1)):
            used = bundles[ends]
            crossed = used >= 0
            yield (first[:, None] + used)[crossed], shares.sum(axis=axis)[crossed]
        flow, a, b = np.nonzero(shares)
        row, node = ways.rows[flow, b], self._up[0][here[flow], a]
        yield from self.push(owner[flow], row, node, shares[flow, a, b])

    def _ways(self, here: Ints, there: Ints) -> _Ways:
        """The shortest ways of each pair: over which links up and down, or directly."""
        (up_node, up), (down_node, down) = self._up, self._down
        roots, place = np.unique(down_node[there], return_inverse=True)
        rows = self.rows(roots)[place.reshape(len(there), -1)]
        trees, first = self.trees, up_node[here]
        between = trees.distance[rows[:, None, :], first[:, :, None]]
        ends = (
            self.bundles.cost_of(up[here])[:, :, None] + self.bundles.cost_of(down[there])[:, None]
        )
        cost = np.where((first[:, :, None] >= 0) & (between < FAR), between + ends, FAR)
        direct, direct_cost = self._direct_of(here * self.nodes + there)
        best = np.minimum(cost.min(axis=(1, 2)), direct_cost)
        paths = trees.paths[rows[:, None, :], first[:, :, None]]
        return _Ways(
            rows=rows,
            paths=np.where(cost == best[:, None, None], paths, 0.0),
            direct=np.where(direct_cost == best, direct, -1),
        )

    def _direct_of(self, pairs: Ints) -> tuple[Ints, Ints]:
        """Bundle from NPU to NPU of each pair and its cost; -1 and FAR where there is none.

        Where NPUs forward, it is one of the bundles between nodes.
        """
        place = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        found = (self._pairs[place] == pairs) & (self.inner > 0)
        return np.where(found, place, -1), np.where(found, self.bundles.cost[place], FAR)

    def _hops(self, ways: _Ways, here: Ints, there: Ints) -> Ints:
        """Distinct hops per class, of the way with the largest endpoint latency of each pair."""
        flow, a, b = np.nonzero(ways.paths)
        alone = np.flatnonzero(ways.direct >= 0)
        up, down = self._up[1][here[flow], a], self._down[1][there[flow], b]
        inside = self.trees.hops[ways.rows[flow, b], self._up[0][here[flow], a]]
        hops = np.zeros((len(flow) + len(alone), len(self.endpoint_ps)), np.int64)
        hops[: len(flow)] = inside
        for bundle, row in ((up, 0), (down, 0), (ways.direct[alone], len(flow))):
            crossed = np.flatnonzero(bundle >= 0)
            hops[crossed + row, self.bundles.link_class[bundle[crossed]]] += 1
        flows = np.concatenate((flow, alone))
        worst = np.where(hops > 0, self.endpoint_ps, -1).max(axis=1, initial=-1)
        order = np.lexsort((-worst, flows))
        return distinct_rows(hops[order[np.flatnonzero(np.diff(flows[order], prepend=-1))]])
