"""Who shares which links: the transfers the engine runs when links are shared fairly.

Links that carry the same loads of the same sites are one; sites that behave alike are one, and
their loads on a link are summed. Max-min rates are unique, so the rates of the whole network are
those of this quotient (an equitable partition of ranks, sites and links).
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.engine.shared_links import Colours, Sites, site_kind
from stepsim.graph.build import TaskGraph, Use
from stepsim.network.flights import Transfer, TransferPhase, level_alone
from stepsim.workload.axes import Stream

_Slot = tuple[int, int, int]
"""Colour of a site, communication and phase."""

_User = tuple[int, Stream]
"""Transfers that never overlap each other: the colour of their site, and their stream."""


@dataclass(frozen=True, kw_only=True)
class Contention:
    """The fair-sharing network of a job: cost of every communication at every site."""

    graph: TaskGraph
    sites: Sites
    colours: Colours

    @cached_property
    def capacity(self) -> Floats:
        """Bytes per second of every link colour."""
        _, first = np.unique(self.colours.link, return_index=True)
        capacity: Floats = self.sites.capacity[first]
        return capacity

    def cost(self, use: Use, group: int) -> int | Transfer:
        """A communication in a group: a fixed time in ps if nothing can slow it, or a transfer."""
        site = self.sites.first[site_kind(self.graph, use)] + group
        colour = int(self.colours.site[site])
        transfer = self._transfers[colour, use.comm]
        if use.peer_stage < 0 and self._is_isolated(transfer):
            return transfer.duration_ps
        return transfer

    @cached_property
    def _transfers(self) -> dict[tuple[int, int], Transfer]:
        """One transfer per colour of site and communication, made from a site of that colour."""
        _, first = np.unique(self.colours.site, return_index=True)
        chosen = set(first.tolist())
        return {
            (int(self.colours.site[site]), comm): Transfer(
                phases=tuple(self._phase(site, comm, n) for n in range(len(prices)))
            )
            for (site, comm), prices in self.sites.prices.items()
            if site in chosen
        }

    def _phase(self, site: int, comm: int, number: int) -> TransferPhase:
        price = self.sites.prices[site, comm][number]
        link, own, load = self._slots.get(
            (int(self.colours.site[site]), comm, number), (np.zeros(0, np.int64), *_NO_LOADS)
        )
        return TransferPhase(
            latency_ps=price.latency_ps,
            alone_ps=price.alone_ps,
            link=link,
            load=load,
            own_level=level_alone(own, self.capacity[link]),
            level=level_alone(load, self.capacity[link]),
        )

    @cached_property
    def _slots(self) -> dict[_Slot, tuple[Ints, Floats, Floats]]:
        """Per slot its link colours, one site's largest load there, and all sites' load there.

        Both are found on one link of every colour: they are the same on all.
        """
        loads, colours = self.sites.loads, self.colours
        link = colours.link[loads.link]
        slots = np.stack((colours.site[loads.site], loads.comm, loads.phase, link), axis=1)
        _, chosen = np.unique(colours.link, return_index=True)
        rows = np.isin(loads.link, chosen) & np.isfinite(self.sites.capacity[loads.link])
        distinct, place = np.unique(slots[rows], axis=0, return_inverse=True)
        every = np.bincount(place.reshape(-1), loads.load[rows], minlength=len(distinct))
        largest = np.zeros(len(distinct))
        np.maximum.at(largest, place.reshape(-1), loads.load[rows])
        ends = np.flatnonzero(np.any(np.diff(distinct[:, :3], axis=0) != 0, axis=1)) + 1
        parts = (np.split(column, ends) for column in (distinct, largest, every))
        return {
            tuple(rows[0, :3].tolist()): (rows[:, 3], own, load)
            for rows, own, load in zip(*parts, strict=True)
            if len(rows)
        }

    @cached_property
    def _users(self) -> dict[int, set[_User]]:
        """Whose transfers cross a link of each colour."""
        users: dict[int, set[_User]] = defaultdict(set)
        for (site, comm, _), (links, _, _) in self._slots.items():
            for link in links.tolist():
                users[link] |= {(site, stream) for stream in self._streams[comm]}
        return users

    @cached_property
    def _streams(self) -> dict[int, set[Stream]]:
        """Streams on which each communication runs."""
        streams: dict[int, set[Stream]] = defaultdict(set)
        for fragment in self.graph.fragments:
            for task in fragment.tasks:
                streams[task.comm].add(task.stream)
        for program in self.graph.programs:
            for segment in program.segments:
                if segment.peer >= 0:
                    streams[segment.comm].add(segment.stream)
        return streams

    def _is_isolated(self, transfer: Transfer) -> bool:
        """Whether only transfers that take turns cross its links."""
        links = {link for phase in transfer.phases for link in phase.link.tolist()}
        return all(len(self._users[link]) == 1 for link in links)


_NO_LOADS = (np.zeros(0), np.zeros(0))
