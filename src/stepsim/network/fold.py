"""Which ranks are simulated: all of them, or one of each class of ranks that behave alike.

Two ranks behave alike when they run the same program, pay the same prices, and talk to ranks that
behave alike. The coarsest such classes are found by colour refinement: start from program and
prices, split classes whose groups or pipeline neighbours have different classes, until none
splits (Paige and Tarjan, "Three partition refinement algorithms", SIAM J. Comput. 16, 1987).
Unless links are shared fairly a class then has one timeline, so one representative stands for all.
Where they are, links are split along with the ranks, by the loads of the sites that use them, and
sites by the links they load (see `stepsim.network.shared_links`).
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from stepsim.base.arrays import Floats, row_numbers
from stepsim.base.axes import Group
from stepsim.base.structs import Noun, replace
from stepsim.network.prices import Prices, Use
from stepsim.network.shared_links import TransferSites, refine_sites, sites_of_ranks, uncoloured
from stepsim.workload.plan import Ranks


class Actors(Noun, dict=True):
    """The simulated ranks.

    `ranks[a]` is the rank that actor a is, `counts` how many ranks it stands for, `stages` its
    stage. `groups[kind][a]` names the group of an actor, and `sizes[kind][g]` says how many actors
    meet in group g. Rank r has the actor `actor_of[r]`.
    """

    ranks: Ranks
    counts: Ranks
    stages: Ranks
    groups: dict[Group, Ranks]
    sizes: dict[Group, Ranks]
    actor_of: Ranks

    def __len__(self) -> int:
        """Number of actors."""
        return len(self.ranks)

    def of(self, rank: int) -> int:
        """The actor that stands for a rank."""
        return int(self.actor_of[rank])


def every_rank(prices: Prices) -> Actors:
    """Actors without folding: one for each rank."""
    return _actors(prices, np.arange(prices.plan.npus))


def fold(
    prices: Prices,
    uses: Iterable[Use],
    slow: Floats | None = None,
    sites: TransferSites | None = None,
) -> Actors:
    """One actor per class of ranks that behave alike, whose stages communicate in these `uses`.

    `slow` are factors on the ranks' compute times; with `sites` links are shared.
    """
    pairs = sorted({(use.stage, use.peer_stage) for use in uses if use.peer_stage >= 0})
    ranks = np.arange(prices.plan.npus)
    # what sets ranks apart by themselves: stage, and how their groups lie on the topology
    stages = ranks // prices.plan.stage_ranks
    traits = [stages, *(prices.groups(kind).looks(ranks) for kind in _kinds(prices))]
    for stage, peer in pairs:
        ends = prices.groups((stage, peer))
        if ends.pattern.any():
            traits.append(np.where(stages == stage, ends.looks(ranks), -1))
    if slow is not None:
        traits.append(np.unique(slow, return_inverse=True)[1].astype(np.int64))
    hops = sorted({peer - stage for stage, peer in pairs})
    return _actors(prices, _refined(prices, hops, _merge(traits), sites))


def _refined(
    prices: Prices, hops: Sequence[int], ranks: Ranks, sites: TransferSites | None
) -> Ranks:
    """Classes of ranks, split until none meets others than its like.

    Sites and the links that they share are split along with the ranks. Messages go `hops` stages
    on.
    """
    colours = None if sites is None else uncoloured(ranks, sites)
    while True:
        finer = _merge((ranks, *_neighbours(prices, hops, ranks)))
        if sites and colours:
            split = refine_sites(sites, finer, colours)
            met = sites_of_ranks(sites, split.site, len(finer))
            split = replace(split, rank=_merge((finer, met)))
            if split.count == colours.count:
                return split.rank
            colours, finer = split, split.rank
        elif finer.max() == ranks.max():
            return finer
        ranks = finer


def _neighbours(prices: Prices, hops: Sequence[int], colours: Ranks) -> Iterator[Ranks]:
    """Classes that each rank meets: in its groups, and at the other end of its messages."""
    for kind in _kinds(prices):
        groups = prices.groups(kind)
        met = np.sort(colours[groups.members], axis=1)
        yield row_numbers(met)[1][groups.group_of]
    for hop in hops:
        yield np.roll(colours, -hop * prices.plan.stage_ranks)


def _actors(prices: Prices, colours: Ranks) -> Actors:
    """An actor for each class."""
    _, ranks, counts = np.unique(colours, return_index=True, return_counts=True)
    groups: dict[Group, Ranks] = {}
    sizes: dict[Group, Ranks] = {}
    for kind in _kinds(prices):
        every = prices.groups(kind)
        met = np.sort(colours[every.members], axis=1)
        one, number = row_numbers(met)
        groups[kind] = number[every.group_of[ranks]]
        sizes[kind] = 1 + (np.diff(met[one], axis=1) != 0).sum(axis=1)
    return Actors(
        ranks=ranks.astype(np.int64),
        counts=counts.astype(np.int64),
        stages=(ranks // prices.plan.stage_ranks).astype(np.int64),
        groups=groups,
        sizes=sizes,
        actor_of=colours,
    )


def _kinds(prices: Prices) -> list[Group]:
    return sorted({op.group for op in prices.comms} - {Group.PP})


def _merge(traits: Iterable[Ranks]) -> Ranks:
    """Ranks with equal traits get equal numbers, counted from 0 in order of first appearance."""
    first, number = row_numbers(np.stack(list(traits), axis=1))
    place = np.empty_like(first)
    place[np.argsort(first)] = np.arange(len(first))
    return place[number]
