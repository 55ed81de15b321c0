"""The fair-sharing network of a job: what its transfers are, at which classes of links.

Who shares which links depends on how fast these are only by the algorithms that are taken. So the
quotient of ranks, sites and links is kept for runs that take the same ones.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Floats, Ints, bounds, row_numbers
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
from stepsim.workload.rows import Stream

_QUOTIENTS_KEPT = 8
_NOTHING = (np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
TransferKey = tuple[int, int]
"""Colour of a site, and a communication there."""
_Slot = tuple[int, int, int]
"""Colour of a site, communication and phase."""

_User = tuple[int, Stream]
"""Transfers that never overlap each other: the colour of their site, and their stream."""

_Streams = tuple[tuple[int, Stream], ...]
"""Communications and the streams on which each runs."""


class PhaseLimits(NamedTuple):
    """What limits the rate of a phase's flows: the most that they put on a link of each class.

    Of the topology's classes `link_class[i]` a link carries at most `own[i]` flows of one site, and
    `load[i]` of all sites of its colour together.
    """

    link_class: tuple[int, ...]
    own: tuple[float, ...]
    load: tuple[float, ...]

    def levels(self, capacity: Floats) -> tuple[Floats, Floats]:
        """Rate of a flow, in bytes/s: if one site has the links, and if all of its colour have.

        `capacity` has shape (cases, classes), in bytes/s; without links there is no limit.
        """
        crossed = capacity[:, list(self.link_class)]
        own, level = (
            rounded((crossed / most).min(axis=1, initial=np.inf)) for most in (self.own, self.load)
        )
        return own, level


class Quotient(Struct, frozen=True, kw_only=True, dict=True):
    """Classes of ranks, sites and links: those of links that are not `free` matter.

    `streams` are those of every communication. `apart` counts runs in which no transfer met another
    on a link, and under False those in which some did.
    """

    sites: TransferSites
    actors: Actors
    colours: SiteColours
    free: tuple[bool, ...]
    streams: _Streams
    apart: Counter[bool] = field(default_factory=Counter)

    @cached_property
    def link_class(self) -> Ints:
        """The topology's class of every link colour."""
        return self.sites.link_class[self._first_links]

    @cached_property
    def _first_links(self) -> Ints:
        """A link of every colour."""
        return np.unique(self.colours.link, return_index=True)[1]

    @cached_property
    def chosen(self) -> dict[TransferKey, TransferPlace]:
        """Where a site of every colour has each communication that happens there."""
        _, first = np.unique(self.colours.site, return_index=True)
        is_chosen = np.zeros(self.sites.count, dtype=bool)
        is_chosen[first] = True
        return {
            (int(self.colours.site[site]), place.comm): place
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
        is_free = np.array(self.free, dtype=bool)[self.sites.link_class]
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

    def links(self, key: TransferKey, phase: int) -> Ints:
        """Colours of the links that a phase of a transfer crosses."""
        return self.slots.get((*key, phase), _NOTHING)[0]

    def limits(self, key: TransferKey, phase: int) -> PhaseLimits:
        """What limits the flows of a phase of a transfer."""
        link, *loads = self.slots.get((*key, phase), _NOTHING)
        classes, number = np.unique(self.link_class[link], return_inverse=True)
        own, load = np.zeros((2, len(classes)))
        for most, flows in zip((own, load), loads, strict=True):
            np.maximum.at(most, number, flows)
        return PhaseLimits(*(tuple(column.tolist()) for column in (classes, own, load)))

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


def find_contention(
    prices: Prices,
    uses: Sequence[Use],
    streams: Iterable[tuple[int, Stream]],
    slow: Floats | None,
    *,
    fold_ranks: bool,
) -> "Contention":
    """The network of a job, its ranks folded or not; `slow` are factors on their compute times.

    `uses` are the communications of all stages, `streams` on which each of them runs.
    """
    free = tuple(np.isinf(each.capacity).item() for each in prices.topology.link_classes)
    every = tuple(sorted(set(streams)))
    slowed = None if slow is None else slow.tobytes()
    key = *_taken(prices, uses), free, every, slowed, fold_ranks
    kept = prices.quotients
    if key not in kept:
        sites = find_transfer_sites(prices, uses)
        actors = fold(prices, uses, slow, sites) if fold_ranks else every_rank(prices)
        colours = colour_sites(sites, actors.actor_of)
        while len(kept) >= _QUOTIENTS_KEPT:
            kept.pop(next(iter(kept)))
        kept[key] = Quotient(sites=sites, actors=actors, colours=colours, free=free, streams=every)
    return Contention(prices=prices, quotient=kept[key])


def _taken(prices: Prices, uses: Iterable[Use]) -> Iterator[object]:
    """What sets the flows of a job: its communications, and the algorithm of each at each look."""
    for use in uses:
        if use.peer_stage < 0 or use.sends:
            op, patterns = prices.comms[use.comm], prices.patterns(use)
            yield use, op
            for pattern in range(len(patterns.distinct)):
                yield prices.cost(op, patterns, pattern).algorithm


class Contention(Struct, frozen=True, kw_only=True, dict=True):
    """A quotient at prices: its links have speeds, and its transfers phases that take time."""

    prices: Prices
    quotient: Quotient

    @cached_property
    def capacity(self) -> Floats:
        """Bytes per second of every link colour."""
        capacities = np.array([each.capacity for each in self.prices.topology.link_classes])
        capacity: Floats = capacities[self.quotient.link_class]
        return capacity

    def key(self, use: Use, group: int) -> TransferKey:
        """What tells a communication in a group from others."""
        site = self.quotient.sites.site(self.prices, use, group)
        return int(self.quotient.colours.site[site]), use.comm

    def cost(self, use: Use, group: int) -> int | Transfer:
        """A communication in a group: a fixed time in ps if nothing can slow it, or a transfer."""
        key = self.key(use, group)
        transfer = self.transfers[key]
        if use.peer_stage < 0 and self.quotient.isolated[key]:
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
            for key, place in self.quotient.chosen.items()
        }

    @cached_property
    def _levels(self) -> dict[_Slot, tuple[float, float]]:
        """Rate of a flow in every slot, in bytes/s: if one site has the links, and if all have."""
        slots = self.quotient.slots
        if not slots:
            return {}
        link, own, load = (np.concatenate(column) for column in zip(*slots.values(), strict=True))
        starts = bounds(np.array([len(links) for links, _, _ in slots.values()]))[:-1]
        capacity = self.capacity[link]
        rates = (rounded(np.minimum.reduceat(capacity / each, starts)) for each in (own, load))
        return dict(zip(slots, zip(*(each.tolist() for each in rates), strict=True), strict=True))

    def _phases(self, key: TransferKey, place: TransferPlace) -> Iterator[TransferPhase]:
        for number, price in enumerate(place.phases(self.prices)):
            slot = *key, number
            link, _, load = self.quotient.slots.get(slot, _NOTHING)
            own_level, level = self._levels.get(slot, (np.inf, np.inf))
            yield TransferPhase(
                latency_ps=price.latency_ps,
                alone_ps=price.alone_ps,
                link=link,
                load=load,
                own_level=min(own_level, price.rate),
                level=level,
            )
