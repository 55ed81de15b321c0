"""Who shares which links: where transfers happen, what each puts on which link, who slows whom.

A site is a process group, or a (sender, receiver) pair of two stages. All its transfers cross the
same few links, so which sites share links decides who can slow whom.

Links that carry the same loads of the same sites are one; sites that behave alike are one, and
their loads on a link are summed. Max-min rates are unique, so the rates of the whole network are
those of this quotient (an equitable partition of ranks, sites and links).
"""

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec.structs import astuple

from stepsim.base.arrays import Floats, Ints, _Hashes, distinct, mixed, whole_totals
from stepsim.base.structs import Noun, Numbers, replace
from stepsim.network.collectives.flows import step_load
from stepsim.network.prices import GroupKind, PhasePrice, Prices, Use
from stepsim.workload.plan import Ranks

_DIGITS = 12


class _Members(Noun, kw_only=False):
    """Who is at which site: `rank[i]` has `role[i]` at `site[i]`; rows ascend by site."""

    site: Ints
    rank: Ints
    role: Ints


class _Loads(Noun, kw_only=False):
    """What crosses which link.

    Row i: at `site[i]`, phase `phase[i]` of communication `comm[i]` puts `load[i]` flows on
    `link[i]`.
    """

    site: Ints
    comm: Ints
    phase: Ints
    link: Ints
    load: Floats


class TransferPlace(Noun):
    """A communication in `groups` of one look, which are at `sites`."""

    use: Use
    look: int
    groups: Ints
    sites: Ints

    def phases(self, prices: Prices) -> tuple[PhasePrice, ...]:
        """What it does in each of the groups."""
        return prices.phases(self.use, self.look)


class TransferSites(Noun):
    """All sites of a job.

    Links are renumbered; link l is of class `link_class[l]`. The first site of a kind is
    `first[kind]`, in the order of its groups. `places` say where what happens. Nothing here depends
    on how fast links are, but for the algorithms that are taken.
    """

    count: int
    members: _Members
    loads: _Loads
    link_class: Ints
    first: dict[GroupKind, int]
    places: tuple[TransferPlace, ...]


def find_transfer_sites(prices: Prices, uses: Iterable[Use]) -> TransferSites:
    """Trace the communications of every stage, in these `uses`, at every site."""
    nothing = [np.zeros(0, np.int64)] * 4
    first: dict[GroupKind, int] = {}
    places: list[TransferPlace] = []
    members, loads, count = [nothing[:3]], [(*nothing, np.zeros(0))], 0
    for use in (each for each in uses if each.peer_stage < 0 or each.sends):
        kind, patterns = prices.kind(use), prices.patterns(use)
        if kind not in first:
            first[kind] = count
            groups, ranks = patterns.members.shape
            role = np.arange(ranks) * isinstance(kind, tuple)  # the ends of a message differ
            every = np.arange(count, count + groups)[:, None], patterns.members, role
            members.append([each.reshape(-1) for each in np.broadcast_arrays(*every)])
            count += groups
        for look, own in patterns.rows(use.stage, prices.plan.stage_ranks):
            sites = first[kind] + own
            places.append(TransferPlace(use=use, look=look, groups=own, sites=sites))
            loads += _traced(prices, places[-1])
    site, comm, phase, link, load = (np.concatenate(each) for each in zip(*loads, strict=True))
    links, number = np.unique(link, return_inverse=True)
    columns = zip(*members, strict=True)
    return TransferSites(
        count=count,
        members=_Members(*(np.concatenate(column).astype(np.int64) for column in columns)),
        loads=_Loads(site, comm, phase, number.astype(np.int64), np.round(load, _DIGITS)),
        link_class=prices.topology.link_class(links),
        first=first,
        places=tuple(places),
    )


def _traced(
    prices: Prices, place: TransferPlace
) -> Iterator[tuple[Ints, Ints, Ints, Ints, Floats]]:
    """Columns of `_Loads` of a communication in groups that look alike."""
    npus = prices.patterns(place.use).npus[place.groups]
    for number, phase in enumerate(place.phases(prices)):
        step = replace(phase.step, fraction=phase.step.fraction / np.max(phase.step.fraction))
        load = step_load(prices.topology, npus, step, place.sites)
        site, link = np.divmod(load.links, prices.topology.link_numbers)
        what, when = np.full(len(site), place.use.comm), np.full(len(site), number)
        yield site, what, when, link, load.loads


class SiteColours(Noun):
    """Numbers that are equal for ranks, sites and links that behave alike."""

    rank: Ranks
    site: Ranks
    link: Ranks

    @property
    def count(self) -> Numbers:
        """How many distinct ones there are of each."""
        return tuple(len(distinct(each)) for each in astuple(self))


def uncoloured(ranks: Ranks, sites: TransferSites) -> SiteColours:
    """These colours of ranks, with sites and links not told apart but by what they are."""
    nothing = np.zeros(sites.count, np.int64)
    return SiteColours(rank=ranks, site=nothing, link=sites.link_class)


def refine_sites(sites: TransferSites, ranks: Ranks, colours: SiteColours) -> SiteColours:
    """Tell sites apart by their members and the loads on their links, and links by their sites.

    `ranks` are colours of the ranks; `colours` are those of sites and links so far.
    """
    loads, members = sites.loads, sites.members
    token = mixed(loads.comm, loads.phase, loads.load.view(np.int64))
    kinds = np.searchsorted(sorted(sites.first.values()), np.arange(sites.count), side="right")
    met = whole_totals(members.site, mixed(ranks[members.rank], members.role), sites.count)
    crossed = whole_totals(loads.site, mixed(token, colours.link[loads.link]), sites.count)
    site = _numbers(mixed(colours.site, kinds, met, crossed))
    used = whole_totals(loads.link, mixed(token, site[loads.site]), len(colours.link))
    return SiteColours(rank=ranks, site=site, link=_numbers(mixed(colours.link, used)))


def colour_sites(sites: TransferSites, ranks: Ranks) -> SiteColours:
    """Final colours of sites and links for final colours of ranks."""
    colours = uncoloured(ranks, sites)
    while (finer := refine_sites(sites, ranks, colours)).count != colours.count:
        colours = finer
    return finer


def sites_of_ranks(sites: TransferSites, colours: Ranks, ranks: int) -> Ranks:
    """A number per rank that is equal where ranks have equal roles at sites of equal colours."""
    members = sites.members
    return _numbers(whole_totals(members.rank, mixed(colours[members.site], members.role), ranks))


def _numbers(hashes: _Hashes) -> Ranks:
    return np.unique(hashes, return_inverse=True)[1].astype(np.int64)
