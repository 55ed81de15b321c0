"""Which ranks are simulated: all of them, or one of each class of ranks that behave alike.

Two ranks behave alike when they run the same program, pay the same prices, and talk to ranks that
behave alike. The coarsest such classes are found by colour refinement: start from program and
prices, split classes whose groups or pipeline neighbours have different classes, until none
splits (Paige and Tarjan, "Three partition refinement algorithms", SIAM J. Comput. 16, 1987).
Unless links are shared fairly a class then has one timeline, so one representative stands for all.
Where they are, links are split along with the ranks, by the loads of the sites that use them, and
sites by the links they load (see `stepsim.network.shared_links`).
"""

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, row_numbers
from stepsim.base.structs import replace
from stepsim.network.groups import Orbits, lowered, turns_of_ranks
from stepsim.network.prices import Prices, Use
from stepsim.network.shared_links import TransferSites, refine_sites, sites_of_ranks, uncoloured
from stepsim.parallel.ranks import Ranks
from stepsim.workload.rows import Group

_StagePairs = tuple[tuple[int, int], ...]
"""(stage, other stage) of all messages."""


class Actors(Struct, frozen=True, kw_only=True, dict=True):
    """The simulated ranks.

    `ranks[a]` is the rank that actor a is, `counts` how many ranks it stands for, `stages` its
    stage. `groups[kind][a]` names the group of an actor, and `sizes[kind][g]` says how many actors
    meet in group g. The ranks of orbit i have the actor `orbit_actor[i]`.
    """

    ranks: Ranks
    counts: Ranks
    stages: Ranks
    groups: dict[Group, Ranks]
    sizes: dict[Group, Ranks]
    orbits: Orbits
    orbit_actor: Ranks

    def __len__(self) -> int:
        """Number of actors."""
        return len(self.ranks)

    def of(self, rank: int) -> int:
        """The actor that stands for a rank."""
        if not self.orbits.turns:
            return int(self.orbit_actor[rank])
        for low, high in self.orbits.turns:
            rank -= rank % high // low * low
        return self._actor_of_lowest[rank]

    @cached_property
    def _actor_of_lowest(self) -> dict[int, int]:
        return dict(zip(self.orbits.lowest.tolist(), self.orbit_actor.tolist(), strict=True))

    @cached_property
    def actor_of(self) -> Ranks:
        """The actor of every rank."""
        return self.orbit_actor[self.orbits.places(np.arange(self.orbits.count))]


def every_rank(prices: Prices) -> Actors:
    """Actors without folding: one for each rank."""
    orbits = Orbits(count=prices.plan.npus)
    return _Folding(prices=prices, pairs=(), orbits=orbits).actors(orbits.lowest)


def fold(
    prices: Prices,
    uses: Iterable[Use],
    slow: Floats | None = None,
    sites: TransferSites | None = None,
) -> Actors:
    """One actor per class of ranks that behave alike, whose stages communicate in these `uses`.

    `slow` are factors on the ranks' compute times; with `sites` links are shared. Without either
    the classes are kept with the prices, for all steps whose ranks talk to the same others, and
    ranks that no number tells apart are not looked at one by one.
    """
    plan = prices.plan
    pairs = tuple(sorted({(use.stage, use.peer_stage) for use in uses if use.peer_stage >= 0}))
    if slow is not None or sites is not None:
        folding = _Folding(prices=prices, pairs=pairs, orbits=Orbits(count=plan.npus))
        return folding.run(slow, sites)
    key = tuple(_kinds(prices)), pairs
    if key not in prices.folds:
        orbits = Orbits(count=plan.npus, turns=turns_of_ranks(plan, key[0], prices.topology))
        folding = _Folding(prices=prices, pairs=pairs, orbits=orbits)
        prices.folds[key] = folding.run(None, None)
    return prices.folds[key]


class _Folding(Struct, frozen=True, kw_only=True, dict=True):
    """Refines classes of the orbits of ranks, each seen by its lowest rank."""

    prices: Prices
    pairs: _StagePairs
    orbits: Orbits

    def run(self, slow: Floats | None, sites: TransferSites | None) -> Actors:
        own = [*self.own_traits()]
        if slow is not None:
            own.append(np.unique(slow, return_inverse=True)[1].astype(np.int64))
        ranks = _merge(own)
        return self.actors(self.refined(ranks) if sites is None else self.shared(ranks, sites))

    def refined(self, ranks: Ranks) -> Ranks:
        """Classes of ranks, split until none meets others than its like."""
        while True:
            finer = _merge((ranks, *self.neighbours(ranks)))
            if finer.max() == ranks.max():
                return finer
            ranks = finer

    def shared(self, ranks: Ranks, sites: TransferSites) -> Ranks:
        """As `refined`; sites and the links that they share are split along with the ranks."""
        colours = uncoloured(ranks, sites)
        while True:
            ranks = _merge((colours.rank, *self.neighbours(colours.rank)))
            finer = refine_sites(sites, ranks, colours)
            met = sites_of_ranks(sites, finer.site, len(ranks))
            finer = replace(finer, rank=_merge((ranks, met)))
            if finer.count == colours.count:
                return finer.rank
            colours = finer

    def own_traits(self) -> Iterable[Ranks]:
        """What sets ranks apart by themselves: stage, and how their groups lie on the topology."""
        ranks = self.orbits.lowest
        stages = ranks // self.prices.plan.stage_ranks
        yield stages
        for kind in _kinds(self.prices):
            yield self.prices.groups(kind).looks(ranks)
        for stage, peer in self.pairs:
            pairs = self.prices.pairs(stage, peer)
            trait = np.where(stages == stage, pairs.looks(ranks), -1)
            if pairs.pattern.any():
                yield trait

    def neighbours(self, colours: Ranks) -> Iterable[Ranks]:
        """Classes that each rank meets: in its groups, and at the other end of its messages."""
        for members, group_of in self.meetings.values():
            met = np.sort(colours[members], axis=1)
            yield row_numbers(met)[1][group_of]
        width = len(colours) // self.prices.plan.pp
        for offset in sorted({peer - stage for stage, peer in self.pairs}):
            yield np.roll(colours, -offset * width)

    @cached_property
    def meetings(self) -> dict[Group, tuple[Ranks, Ranks]]:
        """Per kind the orbits that meet in each group that has a lowest rank, and whose is which.

        An orbit that has several members in a group has as many in all that it is in.
        """
        plan, orbits, found = self.prices.plan, self.orbits, {}
        for kind in _kinds(self.prices):
            low, high = plan.span(kind)
            ranks = orbits.lowest
            firsts, group_of = np.unique(lowered(ranks, [(low, high)]), return_inverse=True)
            steps = np.arange(0, high, low, dtype=np.int64)
            apart = steps[orbits.of(steps) == steps]
            found[kind] = orbits.places(firsts[:, None] + apart), group_of.reshape(-1)
        return found

    def actors(self, colours: Ranks) -> Actors:
        """An actor for each class."""
        _, first, counts = np.unique(colours, return_index=True, return_counts=True)
        ranks = self.orbits.lowest[first]
        groups: dict[Group, Ranks] = {}
        sizes: dict[Group, Ranks] = {}
        for kind, (members, group_of) in self.meetings.items():
            met = np.sort(colours[members], axis=1)
            one, number = row_numbers(met)
            groups[kind] = number[group_of[first]]
            sizes[kind] = 1 + (np.diff(met[one], axis=1) != 0).sum(axis=1)
        return Actors(
            ranks=ranks.astype(np.int64),
            counts=counts.astype(np.int64) * self.orbits.size,
            stages=(ranks // self.prices.plan.stage_ranks).astype(np.int64),
            groups=groups,
            sizes=sizes,
            orbits=self.orbits,
            orbit_actor=colours,
        )


def _kinds(prices: Prices) -> list[Group]:
    return sorted({op.group for op in prices.comms} - {Group.PP})


def _merge(traits: Iterable[Ranks]) -> Ranks:
    """Ranks with equal traits get equal numbers, counted from 0 in order of first appearance."""
    first, number = row_numbers(np.stack(list(traits), axis=1))
    place = np.empty_like(first)
    place[np.argsort(first)] = np.arange(len(first))
    return place[number]
