"""The fair-sharing network of a job: what its transfers are, at which classes of links."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

import numpy as np

from stepsim.base.arrays import Floats, Ints, bounds, row_numbers, rows_of
from stepsim.base.axes import Stream
from stepsim.base.structs import Noun, Same, replace
from stepsim.network.collectives import FlowStep
from stepsim.network.fair_rates import rounded
from stepsim.network.flights import Transfer, TransferPhase
from stepsim.network.fold import Actors, every_rank, fold
from stepsim.network.prices import Prices, Use
from stepsim.network.shared_links import (
    SiteColours,
    TransferPlace,
    TransferSites,
    colour_sites,
    find_transfer_sites,
)

_NOTHING = (np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
TransferKey = tuple[int, int]
"""Colour of a site, and a communication there."""
# Colour of a site, communication and phase.
_Slot = tuple[int, int, int]

# Transfers that never overlap each other: the colour of their site, and their stream.
_User = tuple[int, Stream]

# Communications and the streams on which each runs.
_Streams = tuple[tuple[int, Stream], ...]


class Contention(Noun, dict=True):
    """Classes of ranks, sites and links of a job at prices, and the transfers that share them.

    Links that are not `free` matter; `streams` are those of every communication.
    """

    prices: Prices
    sites: TransferSites
    actors: Actors
    colours: SiteColours
    streams: _Streams

    def at(self, prices: Prices) -> "Contention | None":
        """The same ranks, sites and links at other prices of their communications.

        None where these send otherwise, or where other links are free.
        """
        other = replace(self, prices=prices)
        if prices.flows is not self.prices.flows:
            return None
        same_free = np.array_equal(np.isinf(other._capacities), np.isinf(self._capacities))
        vars(other).update(chosen=self.chosen, slots=self.slots)  # at whatever prices
        return other if same_free and other._flows == self._flows else None

    @cached_property
    def _flows(self) -> list[list[Same[FlowStep]]]:
        """The flows of every place, phase by phase."""
        return [
            [Same(phase.step) for phase in place.phases(self.prices)] for place in self.sites.places
        ]

    @cached_property
    def _first_links(self) -> Ints:
        """A link of every colour."""
        return np.unique(self.colours.link, return_index=True)[1]

    @cached_property
    def chosen(self) -> dict[TransferKey, TransferPlace]:
        """Where a site of every colour has each communication that happens there."""
        _, first = np.unique(self.colours.site, return_index=True)
        is_chosen = np.zeros(self.sites.count, bool)
        is_chosen[first] = True
        return {
            (int(self.colours.site[site]), place.use.comm): place
            for place in self.sites.places
            for site in place.sites[is_chosen[place.sites]].tolist()
        }

    @cached_property
    def slots(self) -> dict[_Slot, tuple[Ints, Floats, Floats]]:
        """Per slot its link colours, one site's largest load there, and all sites' load there.

        Both are found on one link of every colour: they are the same on all.
        """
        loads, colours = self.sites.loads, self.colours
        link = colours.link[loads.link]
        slots = np.stack((colours.site[loads.site], loads.comm, loads.phase, link), axis=1)
        is_free = np.isinf(self._capacities)[self.sites.link_class]
        rows = np.isin(loads.link, self._first_links) & ~is_free[loads.link]
        slots = slots[rows]
        first, place = row_numbers(slots)
        every = np.bincount(place, loads.load[rows], minlength=len(first))
        largest = np.zeros(len(first))
        np.maximum.at(largest, place, loads.load[rows])
        ends = np.flatnonzero(np.any(np.diff(slots[first, :3], axis=0) != 0, axis=1)) + 1
        parts = (np.split(column, ends) for column in (slots[first], largest, every))
        return {
            tuple(rows[0, :3].tolist()): (rows[:, 3], own, load)
            for rows, own, load in zip(*parts, strict=True)
            if len(rows)
        }

    @cached_property
    def isolated(self) -> dict[TransferKey, bool]:
        """Whether only transfers that take turns cross the links of one."""
        users: dict[int, set[_User]] = defaultdict(set)
        crossed: dict[TransferKey, set[int]] = defaultdict(set)
        streams: dict[int, list[Stream]] = defaultdict(list)
        for comm, stream in self.streams:
            streams[comm].append(stream)
        for (site, comm, _), (links, _, _) in self.slots.items():
            crossed[site, comm] |= {*links.tolist()}
            for link in links.tolist():
                users[link] |= {(site, stream) for stream in streams[comm]}
        return {key: all(len(users[link]) == 1 for link in crossed[key]) for key in self.chosen}

    @cached_property
    def capacity(self) -> Floats:
        """Bytes per second of every link colour."""
        capacity: Floats = self._capacities[self.sites.link_class[self._first_links]]
        return capacity

    @property
    def _capacities(self) -> Floats:
        """Bytes per second of the links of every class."""
        return np.array([each.capacity for each in self.prices.topology.link_classes])

    def key(self, use: Use, group: int) -> TransferKey:
        """What tells a communication in a group from others."""
        site = self.sites.first[self.prices.kind(use)] + group
        return int(self.colours.site[site]), use.comm

    def cost(self, use: Use, group: int) -> int | Transfer:
        """A communication in a group: a fixed time in ps if nothing can slow it, or a transfer."""
        key = self.key(use, group)
        transfer = self.transfers[key]
        if use.peer_stage < 0 and self.isolated[key]:
            return transfer.duration_ps
        return transfer

    @property
    def siblings_slow(self) -> bool:
        """Whether transfers of one colour, which all go at the same time, slow each other."""
        return any(each.duration_ps > each.alone_ps for each in self.transfers.values())

    @cached_property
    def transfers(self) -> dict[TransferKey, Transfer]:
        """One transfer per colour of site and communication, made from a site of that colour."""
        return {
            key: Transfer(phases=tuple(self._phases(key, place)))
            for key, place in self.chosen.items()
        }

    @cached_property
    def _levels(self) -> dict[_Slot, tuple[float, float]]:
        """Rate of a flow in every slot, in bytes/s: if one site has the links, and if all have."""
        slots = self.slots
        if not slots:
            return {}
        link, own, load = (np.concatenate(column) for column in zip(*slots.values(), strict=True))
        starts = bounds(np.array([len(links) for links, _, _ in slots.values()]))[:-1]
        capacity = self.capacity[link]
        rates = (rounded(np.minimum.reduceat(capacity / each, starts)) for each in (own, load))
        return dict(rows_of(slots, rows_of(*rates)))

    def _phases(self, key: TransferKey, place: TransferPlace) -> Iterator[TransferPhase]:
        for number, price in enumerate(place.phases(self.prices)):
            slot = *key, number
            link, _, load = self.slots.get(slot, _NOTHING)
            own_level, level = self._levels.get(slot, (np.inf, np.inf))
            yield TransferPhase(
                latency_ps=price.latency_ps,
                alone_ps=price.alone_ps,
                link=link,
                load=load,
                own_level=min(own_level, price.rate),
                level=level,
            )


def find_contention(
    prices: Prices,
    uses: Collection[Use],
    streams: Iterable[tuple[int, Stream]],
    slow: Floats | None,
    *,
    fold_ranks: bool,
) -> Contention:
    """The network of a job, its ranks folded or not; `slow` are factors on their compute times.

    `uses` are the communications of all stages, `streams` on which each of them runs.
    """
    every = tuple(sorted(set(streams)))
    sites = find_transfer_sites(prices, uses)
    actors = fold(prices, uses, slow, sites) if fold_ranks else every_rank(prices)
    colours = colour_sites(sites, actors.actor_of)
    return Contention(prices=prices, sites=sites, actors=actors, colours=colours, streams=every)
