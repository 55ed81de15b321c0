"""Which ranks are simulated: all of them, or one of each class of ranks that behave alike.

Two ranks behave alike when they run the same program, pay the same prices, and talk to ranks that
behave alike. The coarsest such classes are found by colour refinement: start from program and
prices, split classes whose groups or pipeline neighbours have different classes, until none
splits (Paige and Tarjan, "Three partition refinement algorithms", SIAM J. Comput. 16, 1987).
Unless links are shared fairly a class then has one timeline, so one representative stands for all.
Where they are, links are split along with the ranks, by the loads of the sites that use them, and
sites by the links they load (see `stepsim.engine.shared_links`).
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from stepsim.base.arrays import Floats, row_numbers
from stepsim.base.records import dataclass
from stepsim.engine.prices import Prices
from stepsim.engine.shared_links import (
    TransferSites,
    refine_sites,
    sites_of_ranks,
    uncoloured,
)
from stepsim.graph.build import TaskGraph
from stepsim.parallel.ranks import Ranks
from stepsim.workload.rows import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Actors:
    """The simulated ranks.

    `actor_of[r]` is the actor that stands for rank r, `ranks[a]` the rank that actor a is, `counts`
    how many ranks it stands for, `stages` its stage. `groups[kind][a]` names the group of an actor,
    and `sizes[kind][g]` says how many actors meet in group g.
    """

    actor_of: Ranks
    ranks: Ranks
    counts: Ranks
    stages: Ranks
    groups: dict[Group, Ranks]
    sizes: dict[Group, Ranks]

    def __len__(self) -> int:
        """Number of actors."""
        return len(self.ranks)


def every_rank(graph: TaskGraph, prices: Prices) -> Actors:
    """Actors without folding: one for each rank."""
    return _actors(graph, prices, np.arange(graph.plan.npus, dtype=np.int64))


def fold(
    graph: TaskGraph,
    prices: Prices,
    slow: Floats | None = None,
    sites: TransferSites | None = None,
) -> Actors:
    """One actor per class of ranks that behave alike.

    `slow` are factors on the ranks' compute times; with `sites` links are shared. Without either
    the classes are kept with the prices, for all graphs whose ranks talk to the same others.
    """
    if slow is not None or sites is not None:
        return _folded(graph, prices, slow, sites)
    key = tuple(_kinds(graph)), tuple(_stage_pairs(graph))
    if key not in prices.folds:
        prices.folds[key] = _folded(graph, prices, None, None)
    return prices.folds[key]


def _folded(
    graph: TaskGraph, prices: Prices, slow: Floats | None, sites: TransferSites | None
) -> Actors:
    own = [*_own_traits(graph, prices)]
    if slow is not None:
        own.append(np.unique(slow, return_inverse=True)[1].astype(np.int64))
    colours = uncoloured(_merge(own), sites)
    while True:
        ranks = _merge((colours.rank, *_neighbours(graph, prices, colours.rank)))
        refined = replace(colours, rank=ranks)
        if sites is not None:
            refined = refine_sites(sites, ranks, colours)
            met = sites_of_ranks(sites, refined.site, graph.plan.npus)
            refined = replace(refined, rank=_merge((ranks, met)))
        if refined.count == colours.count:
            return _actors(graph, prices, refined.rank)
        colours = refined


def _own_traits(graph: TaskGraph, prices: Prices) -> Iterable[Ranks]:
    """What sets ranks apart by themselves: stage, and how their groups lie on the topology."""
    ranks = np.arange(graph.plan.npus, dtype=np.int64)
    yield ranks // graph.plan.stage_ranks
    for kind in _kinds(graph):
        patterns = prices.groups(kind)
        yield patterns.pattern[patterns.group_of]
    for stage, peer in _stage_pairs(graph):
        pairs = prices.pairs(stage, peer)
        trait = np.full_like(ranks, -1)
        trait[pairs.members[:, 0]] = pairs.pattern
        if pairs.pattern.any():
            yield trait


def _neighbours(graph: TaskGraph, prices: Prices, colours: Ranks) -> Iterable[Ranks]:
    """Classes that each rank meets: in its groups, and at the other end of its messages."""
    for kind in _kinds(graph):
        patterns = prices.groups(kind)
        met = np.sort(colours[patterns.members], axis=1)
        yield row_numbers(met)[1][patterns.group_of]
    width = graph.plan.stage_ranks
    for offset in sorted({peer - stage for stage, peer in _stage_pairs(graph)}):
        shifted = np.roll(colours, -offset * width)
        yield shifted


def _kinds(graph: TaskGraph) -> list[Group]:
    return sorted({op.group for op in graph.comms} - {Group.PP})


def _stage_pairs(graph: TaskGraph) -> list[tuple[int, int]]:
    """(stage, other stage) of all messages."""
    return sorted(
        {
            (stage, use.peer_stage)
            for stage in range(len(graph.programs))
            for use in graph.uses(stage)
            if use.peer_stage >= 0
        }
    )


def _merge(traits: Iterable[Ranks]) -> Ranks:
    """Ranks with equal traits get equal numbers, counted from 0 in order of first appearance."""
    first, number = row_numbers(np.stack(list(traits), axis=1))
    place = np.empty_like(first)
    place[np.argsort(first)] = np.arange(len(first))
    return place[number]


def _actors(graph: TaskGraph, prices: Prices, actor_of: Ranks) -> Actors:
    _, ranks, counts = np.unique(actor_of, return_index=True, return_counts=True)
    groups: dict[Group, Ranks] = {}
    sizes: dict[Group, Ranks] = {}
    for kind in _kinds(graph):
        patterns = prices.groups(kind)
        met = np.sort(actor_of[patterns.members], axis=1)
        first, number = row_numbers(met)
        groups[kind] = number[patterns.group_of[ranks]]
        sizes[kind] = 1 + (np.diff(met[first], axis=1) != 0).sum(axis=1)
    return Actors(
        actor_of=actor_of,
        ranks=ranks.astype(np.int64),
        counts=counts.astype(np.int64),
        stages=(ranks // graph.plan.stage_ranks).astype(np.int64),
        groups=groups,
        sizes=sizes,
    )
