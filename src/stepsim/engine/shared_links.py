"""Who shares which links: where transfers happen, what each puts on which link, who slows whom.

A site is a process group, or a (sender, receiver) pair of two stages. All its transfers cross the
same few links, so which sites share links decides who can slow whom.

Links that carry the same loads of the same sites are one; sites that behave alike are one, and
their loads on a link are summed. Max-min rates are unique, so the rates of the whole network are
those of this quotient (an equitable partition of ranks, sites and links).
"""

from collections import defaultdict
from dataclasses import field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Floats, Ints, distinct
from stepsim.base.records import dataclass
from stepsim.engine.patterns import GroupPatterns
from stepsim.engine.prices import PhasePrice, Prices
from stepsim.graph.build import TaskGraph, Use
from stepsim.network.flights import Transfer, TransferPhase, level_alone
from stepsim.parallel.ranks import Ranks
from stepsim.workload.axes import Stream
from stepsim.workload.rows import Group

_Hashes = NDArray[np.uint64]

_SiteKind = tuple[Group, int, int]
"""Group kind, and for messages the stages of sender and receiver, else -1."""

_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Members:
    """Who is at which site: `rank[i]` has `role[i]` at `site[i]`; rows ascend by site."""

    site: Ints
    rank: Ints
    role: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loads:
    """What crosses which link.

    Row i: at `site[i]`, phase `phase[i]` of communication `comm[i]` puts `load[i]` flows on
    `link[i]`.
    """

    site: Ints
    comm: Ints
    phase: Ints
    link: Ints
    load: Floats


@dataclass(frozen=True, kw_only=True)
class TransferSites:
    """All sites of a job.

    Links are renumbered; link l has `capacity[l]` bytes/s and is of class `link_class[l]`. The
    first site of a kind is `first[kind]`, in the order of its groups. `prices[site, comm]` are the
    phases of a communication there.
    """

    count: int
    members: _Members
    loads: _Loads
    capacity: Floats
    link_class: Ints
    first: dict[_SiteKind, int]
    prices: dict[tuple[int, int], tuple[PhasePrice, ...]]


def _site_kind(graph: TaskGraph, use: Use) -> _SiteKind:
    """The kind of the sites where a communication happens."""
    if use.peer_stage < 0:
        return graph.comms[use.comm].group, -1, -1
    return Group.PP, *use.ends


def find_transfer_sites(graph: TaskGraph, prices: Prices) -> TransferSites:
    """Trace the communications of every stage at every site."""
    tracer = _Tracer(graph=graph, prices=prices)
    for stage in range(len(graph.programs)):
        for use in graph.uses(stage):
            if use.peer_stage < 0 or use.sends:
                tracer.add(use)
    return tracer.sites()


@dataclass(slots=True, kw_only=True)
class _Tracer:
    """Collects the columns of `TransferSites`."""

    graph: TaskGraph
    prices: Prices
    count: int = 0
    first: dict[_SiteKind, int] = field(default_factory=dict)
    phases: dict[tuple[int, int], tuple[PhasePrice, ...]] = field(default_factory=dict)
    members: list[tuple[Ints, Ints, Ints]] = field(default_factory=list)
    loads: list[tuple[Ints, Ints, Ints, Ints, Floats]] = field(default_factory=list)

    def add(self, use: Use) -> None:
        """Trace a communication at the sites of one stage."""
        patterns = self.prices.patterns(use)
        first = self._first(_site_kind(self.graph, use), patterns)
        here = patterns.members[:, 0] // self.graph.plan.stage_ranks == use.ends[0]
        for pattern in distinct(patterns.pattern[here]):
            groups = np.flatnonzero(here & (patterns.pattern == pattern))
            self._trace(use.comm, first, patterns, groups)

    def _first(self, kind: _SiteKind, patterns: GroupPatterns) -> int:
        if kind not in self.first:
            self.first[kind] = self.count
            groups, ranks = patterns.members.shape
            role = np.arange(ranks) if kind[0] is Group.PP else np.zeros(ranks, dtype=np.int64)
            sites = np.repeat(np.arange(groups) + self.count, ranks)
            self.members.append((sites, patterns.members.reshape(-1), np.tile(role, groups)))
            self.count += groups
        return self.first[kind]

    def _trace(self, comm: int, first: int, patterns: GroupPatterns, groups: Ints) -> None:
        """Trace a communication in groups that look alike."""
        phases = self.prices.phases(comm, patterns, int(groups[0]))
        for site in (first + groups).tolist():
            self.phases[site, comm] = phases
        for number, phase in enumerate(phases):
            step = phase.step.listed
            sources = patterns.npus[groups][:, step.sources]
            destinations = patterns.npus[groups][:, step.destinations]
            flows = np.broadcast_to(step.fraction / np.max(step.fraction), sources.shape)
            owners = np.repeat(first + groups, sources.shape[1])
            site, link, load = self.prices.topology.loads_apart(
                sources.reshape(-1), destinations.reshape(-1), flows.reshape(-1), owners
            )
            what, when = np.full(len(site), comm), np.full(len(site), number)
            self.loads.append((site, what, when, link, load))

    def sites(self) -> TransferSites:
        topology = self.prices.topology
        nothing = tuple(np.zeros(0, dtype=np.int64) for _ in range(4))
        site, comm, phase, link, load = (
            np.concatenate(column)
            for column in zip(*self.loads, (*nothing, np.zeros(0)), strict=True)
        )
        links, number = np.unique(link, return_inverse=True)
        link_class = topology.link_class(links)
        capacities = np.array([each.capacity for each in topology.link_classes])
        columns = zip(*self.members, nothing[:3], strict=True)
        at, rank, role = (np.concatenate(column).astype(np.int64) for column in columns)
        return TransferSites(
            count=self.count,
            members=_Members(site=at, rank=rank, role=role),
            loads=_Loads(
                site=site,
                comm=comm,
                phase=phase,
                link=number.reshape(-1).astype(np.int64),
                load=np.round(load, _DIGITS),
            ),
            capacity=capacities[link_class],
            link_class=link_class,
            first=self.first,
            prices=self.phases,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Colours:
    """Numbers that are equal for ranks, sites and links that behave alike."""

    rank: Ranks
    site: Ranks
    link: Ranks

    @property
    def count(self) -> tuple[int, int, int]:
        """How many distinct ones there are of each."""
        return (
            len(distinct(self.rank)),
            len(distinct(self.site)),
            len(distinct(self.link)),
        )


def uncoloured(ranks: Ranks, sites: TransferSites | None) -> _Colours:
    """These colours of ranks, with sites and links not told apart but by what they are."""
    count = sites.count if sites else 0
    link = sites.link_class if sites else np.zeros(0, dtype=np.int64)
    return _Colours(rank=ranks, site=np.zeros(count, dtype=np.int64), link=link)


def refine_sites(sites: TransferSites, ranks: Ranks, colours: _Colours) -> _Colours:
    """Tell sites apart by their members and the loads on their links, and links by their sites.

    `ranks` are colours of the ranks; `colours` are those of sites and links so far.
    """
    loads, members = sites.loads, sites.members
    token = mixed(loads.comm, loads.phase, loads.load.view(np.int64))
    kinds = np.searchsorted(sorted(sites.first.values()), np.arange(sites.count), side="right")
    met = sums_at(members.site, mixed(ranks[members.rank], members.role), sites.count)
    crossed = sums_at(loads.site, mixed(token, colours.link[loads.link]), sites.count)
    site = _numbers(mixed(colours.site, kinds, met, crossed))
    used = sums_at(loads.link, mixed(token, site[loads.site]), len(colours.link))
    return _Colours(rank=ranks, site=site, link=_numbers(mixed(colours.link, used)))


def colour_sites(sites: TransferSites, ranks: Ranks) -> _Colours:
    """Final colours of sites and links for final colours of ranks."""
    colours = uncoloured(ranks, sites)
    while (finer := refine_sites(sites, ranks, colours)).count != colours.count:
        colours = finer
    return finer


def sites_of_ranks(sites: TransferSites, colours: Ranks, ranks: int) -> Ranks:
    """A number per rank that is equal where ranks have equal roles at sites of equal colours."""
    members = sites.members
    return _numbers(sums_at(members.rank, mixed(colours[members.site], members.role), ranks))


def _numbers(hashes: _Hashes) -> Ranks:
    return np.unique(hashes, return_inverse=True)[1].reshape(-1).astype(np.int64)


def sums_at(place: Ints, hashes: _Hashes, places: int) -> _Hashes:
    """Sum of hashes per place, modulo 2**64: equal for equal multisets."""
    total = np.zeros(places, dtype=np.uint64)
    np.add.at(total, place, hashes)
    return total


def mixed(*columns: NDArray[np.int64] | _Hashes) -> _Hashes:
    """One well-spread 64-bit number per row (splitmix64, Steele et al., OOPSLA 2014)."""
    found = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        found = (found ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(31)
    return found


_NO_LOADS = (np.zeros(0), np.zeros(0))
_Slot = tuple[int, int, int]
"""Colour of a site, communication and phase."""

_User = tuple[int, Stream]
"""Transfers that never overlap each other: the colour of their site, and their stream."""


@dataclass(frozen=True, kw_only=True)
class Contention:
    """The fair-sharing network of a job: cost of every communication at every site."""

    graph: TaskGraph
    sites: TransferSites
    colours: _Colours

    @cached_property
    def capacity(self) -> Floats:
        """Bytes per second of every link colour."""
        _, first = np.unique(self.colours.link, return_index=True)
        capacity: Floats = self.sites.capacity[first]
        return capacity

    def cost(self, use: Use, group: int) -> int | Transfer:
        """A communication in a group: a fixed time in ps if nothing can slow it, or a transfer."""
        site = self.sites.first[_site_kind(self.graph, use)] + group
        colour = int(self.colours.site[site])
        transfer = self._transfers[colour, use.comm]
        if use.peer_stage < 0 and self._is_isolated(transfer):
            return transfer.duration_ps
        return transfer

    @property
    def siblings_slow(self) -> bool:
        """Whether transfers of one colour, which all go at the same time, slow each other."""
        return any(each.duration_ps > each.alone_ps for each in self._transfers.values())

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
            (int(self.colours.site[site]), comm, number),
            (np.zeros(0, np.int64), *_NO_LOADS),
        )
        return TransferPhase(
            latency_ps=price.latency_ps,
            alone_ps=price.alone_ps,
            link=link,
            load=load,
            own_level=min(level_alone(own, self.capacity[link]), price.rate),
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
        for task_list in self.graph.task_lists:
            for task in task_list.tasks:
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
