"""What a collective sends: steps of flows, and what a step costs on a topology.

An algorithm turns the ranks of a group into `FlowStep`s and knows no link. `trace` finds the links
the flows cross and keeps what the cost depends on (`StepShape`): it is found once per group
pattern and priced for any size, bandwidth and latency by one function, `step_times_ps`.

`FlatAlgorithm` and `LevelledAlgorithm` are what an algorithm says of itself, so that nobody else
knows its name. Groups that form a regular grid have levels: a collective may run in all subgroups
of one.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np
from msgspec import field

from stepsim.base.arrays import Floats, Ints, Summand, add_up, distinct, mark_of, slices
from stepsim.base.axes import CollectiveKind
from stepsim.base.structs import Noun, Numbers, replace
from stepsim.base.units import PS_PER_S
from stepsim.network.topology import DimensionKind, Layout, LinkClass, Load, Topology
from stepsim.network.topology.dimension import sum_loads
from stepsim.network.topology.exchange import exchange
from stepsim.network.topology.wiring import Flows

_FLOWS_AT_ONCE = 1 << 20
# Members of a group from which on an exchange is worth more than listing its pairs.
_MANY = 64


class FlowStep(Noun, kw_only=False):
    """`repeat` equal steps, one after the other, of simultaneous flows between members of a group.

    Flow i takes `fraction` (or `fraction[i]`) of the collective's size from member `edges[0][i]` to
    member `edges[1][i]`, counted from 0 in the group. A fraction of 0 costs latency alone: the
    stages through which a pipelined algorithm fills, which stand before the step that carries.
    With `everyone` each of so many members sends to every other one, and no edges are listed.
    With `chained` each flow hands on what the one before it brought, as along a ring, so that the
    repeats pass all of them in turn. `hidden` repeats pass while those of other levels do, in a
    pipeline of chunks; `level` is the one that the step is of, the innermost 0.
    """

    edges: Sequence[Ints] | Ints
    fraction: float | Floats
    repeat: int = 1
    chained: bool = False
    hidden: int = 0
    level: int = 0
    everyone: int = 0

    @property
    def timed(self) -> int:
        """Repeats that take time of their own."""
        return self.repeat - self.hidden

    @property
    def listed(self) -> "FlowStep":
        """The step with all its edges listed."""
        if not self.everyone:
            return self
        ranks = np.arange(self.everyone, dtype=np.int64)
        sources = np.repeat(ranks, self.everyone - 1)
        destinations = (sources + np.tile(ranks[1:], self.everyone)) % self.everyone
        return replace(self, edges=(sources, destinations), everyone=0)

    def key(self) -> bytes:
        """What equal steps share, whatever their number."""
        said = np.array([self.chained, self.everyone])
        return mark_of([said, *self.edges, np.asarray(self.fraction)])


class StepShape(Noun):
    """What the cost of a step depends on, per link class.

    `loads[c]`: the largest number of collective sizes that crosses one link of class c; `shared[c]`
    counts those of sibling groups too. `hops[p, c]`: links of class c on the p-th distinct kind of
    path. `shares[p]`: how many of the flows take it, of a chained step whose flows are counted;
    else none.
    """

    loads: Floats
    hops: Ints
    shared: Floats
    shares: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def alone(self) -> "StepShape":
        """The step without siblings."""
        return self if self.shared is self.loads else replace(self, shared=self.loads)


Links = tuple[Floats, Floats, Floats]
"""Capacity (bytes/s), latency and endpoint latency (ps), each of shape (scenarios, classes)."""


class Carrier(Noun, eq=False):
    """A protocol in a group: `rates` (bytes/s) and `steps_ps` by link class, and what comes once.

    `shared_rates` (bytes/s) hold for it and its siblings together. `copy_ps_per_byte` is for each
    byte of the collective.
    """

    name: str
    launch_ps: int
    copy_ps_per_byte: float
    rates: Floats
    shared_rates: Floats
    steps_ps: Floats

    def once_ps(self, size_bytes: Floats) -> Floats:
        """Launch and local copy of each size, whole ps."""
        once: Floats = np.rint(self.launch_ps + size_bytes * self.copy_ps_per_byte)
        return once


def pipelined(*parts: tuple[Ints, float, int]) -> list[FlowStep]:
    """Steps of flows that all run at once, in small pieces: the parts' edges, shares and stages.

    A stage through which a part fills costs a path latency before.
    """
    fills = [FlowStep(edges, 0.0, stages) for edges, _, stages in parts if stages]
    shares = np.concatenate([np.full(edges.shape[1], share) for edges, share, _ in parts])
    return [*fills, FlowStep(np.concatenate([edges for edges, _, _ in parts], axis=1), shares)]


def swapped(steps: list[FlowStep]) -> list[FlowStep]:
    """The same steps with their flows turned round."""
    return [replace(step, edges=step.edges[::-1]) for step in steps]


def backwards(steps: list[FlowStep]) -> list[FlowStep]:
    """Flows turned round, last step first: a broadcast becomes a reduction."""
    return swapped(steps)[::-1]


def inwards(kind: CollectiveKind) -> bool:
    """Whether a kind ends at the first member, so that it is its opposite backwards."""
    return kind in (CollectiveKind.REDUCE, CollectiveKind.GATHER)


def trace(topology: Topology, members: Ints, step: FlowStep) -> StepShape:
    """Find the links that a step's flows cross; `members` are the group's NPUs.

    The step takes the longest path latency plus the time of the link that the most bytes over
    capacity cross: all flows start together and share links fairly.
    """
    load = step_load(topology, members, step)
    largest = np.zeros(len(topology.link_classes))
    np.maximum.at(largest, topology.link_class(load.links), load.loads)
    counted = step.chained and load.flows.any()
    shares = load.flows / load.flows.sum() if counted else np.zeros(0)
    return StepShape(loads=largest, hops=load.hops, shared=largest, shares=shares)


def step_load(
    topology: Topology, members: Ints, step: FlowStep, owners: Ints | None = None
) -> Load:
    """What a step puts on every link, in collective sizes.

    `members` has shape (ranks,) or (groups, ranks): then all groups step at once. With `owners`, of
    every group, links are numbered anew for each of them. What many send to each other is found
    without listing their pairs, where that can be.
    """
    groups = np.atleast_2d(members).astype(np.int64)
    owners = np.zeros(len(groups), np.int64) if owners is None else owners
    found: list[Load] = []
    if step.everyone >= _MANY:
        found = [
            replace(load, links=load.links + owner * topology.link_numbers)
            for group, owner in zip(groups, owners.tolist(), strict=True)
            if (load := exchange(topology, group))
        ]
    if len(found) < len(groups):
        found = [*_listed(topology, groups, step.listed, owners)]
    load = sum_loads(
        [(each.links, each.loads) for each in found],
        np.concatenate([each.hops for each in found]),
        np.concatenate([each.flows for each in found]),
    )
    uneven = isinstance(step.fraction, np.ndarray)
    return load if uneven else replace(load, loads=load.loads * step.fraction)


def steps_load(topology: Topology, members: Ints, steps: Sequence[FlowStep]) -> Summand:
    """What some steps put on every link in all, in collective sizes; `members` as of one step."""
    loads = [(step_load(topology, members, step), step) for step in steps if np.any(step.fraction)]
    return add_up([(load.links, load.loads * step.repeat) for load, step in loads])


def _listed(topology: Topology, groups: Ints, step: FlowStep, owners: Ints) -> Iterator[Load]:
    """What listed flows put on links, a million at a time: an all-to-all of thousands fits."""
    uneven = isinstance(step.fraction, np.ndarray)
    starts, ends = step.edges
    weights = np.broadcast_to(step.fraction if uneven else 1.0, starts.shape)
    for part in slices(len(starts), max(1, _FLOWS_AT_ONCE // len(groups))):
        sources, destinations = groups[:, starts[part]], groups[:, ends[part]]
        flows = Flows(
            np.repeat(owners, sources.shape[1]),
            sources.reshape(-1),
            destinations.reshape(-1),
            np.tile(weights[part], len(groups)),
        )
        yield topology.load(flows)


def step_times_ps(
    shape: StepShape, size_bytes: Floats, links: Links, carrier: Carrier | None = None
) -> tuple[Floats, Floats]:
    """Picoseconds of one step for many scenarios, whole, and how many of them are path latency.

    `size_bytes` has shape (scenarios,). The endpoint latency of a message is the largest of the
    classes it crosses. A step takes its slowest path; what is handed on by a chained step with a
    `carrier` passes all paths in turn: their mean. The bytes of all siblings share the links; those
    of a group alone get at most the carrier's rate.
    """
    capacity, latency_ps, endpoint_ps = links
    along = carrier is not None and len(shape.shares) > 0
    if carrier:
        capacity, endpoint_ps = capacity * carrier.shared_rates, endpoint_ps + carrier.steps_ps
    endpoint = np.where(shape.hops > 0, endpoint_ps[:, None, :], 0.0).max(axis=2, initial=0.0)
    paths = latency_ps @ shape.hops.T + endpoint
    path = (paths * shape.shares).sum(axis=1) if along else paths.max(axis=1, initial=0.0)
    busy = shape.shared / capacity
    if carrier:
        busy = np.maximum(busy, shape.loads / (capacity * carrier.rates))
    times = np.rint(path + size_bytes * busy.max(axis=1, initial=0.0) * PS_PER_S)
    return times, path


def link_parameters(classes: tuple[LinkClass, ...]) -> Links:
    """Those of classes, as arrays of shape (1, classes)."""
    return (
        np.array([[link.capacity for link in classes]]),
        np.array([[float(link.latency_ps) for link in classes]]),
        np.array([[float(link.endpoint_latency_ps) for link in classes]]),
    )


REDUCING = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
)
ROOTED = (
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
)


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Bus bandwidth over size / time, as nccl-tests defines it (doc/PERFORMANCE.md).

    It makes the bandwidth that a ring's links carry out of a collective's time; 0 for one rank,
    which sends nothing.
    """
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2 * (ranks - 1) / ranks
        case CollectiveKind.BROADCAST | CollectiveKind.REDUCE | CollectiveKind.SEND_RECV:
            return float(ranks > 1)
        case _:
            return (ranks - 1) / ranks


# Links or dimensions that the flows of a step may cross: what is soon traced.
_MOST_CROSSINGS = 1 << 20


class FlatAlgorithm(Noun):
    """An algorithm over a group as a whole: what it carries out, and its steps.

    For the kinds in `basic` it is the one that works on any network. `refuses` says why it cannot
    carry out a kind over a group, or nothing. `worth_pricing` says whether `auto` prices it:
    whether it can win, and is soon traced if a step crosses so many links or dimensions in
    `crossed` from or to each of `ranks`. Nothing beats it where a group is wired as in `best_on`;
    with `in_switch` two ranks do not do the same as in every other algorithm. With `copies_own` a
    rank first reads and writes the share of the data that is its own, one of as many as there are
    ranks.
    """

    kinds: tuple[CollectiveKind, ...]
    steps: Callable[[CollectiveKind, Layout], list[FlowStep]]
    basic: tuple[CollectiveKind, ...] = ()
    refuses: Callable[[CollectiveKind, Layout], str] = lambda kind, layout: ""
    worth_pricing: Callable[[CollectiveKind, int, int], bool] = lambda kind, crossed, ranks: True
    best_on: tuple[DimensionKind, ...] = ()
    in_switch: bool = False
    copies_own: bool = False


class Levels(Noun):
    """Positions of a group's members as a grid, one axis per level.

    `grid` has the outermost level first; `kinds` and `sizes` are given innermost first. The
    innermost level is numbered 0.
    """

    grid: Ints
    kinds: tuple[DimensionKind, ...]
    reduces_inside: float = 0.0

    @property
    def sizes(self) -> Numbers:
        """Members along each level, innermost first."""
        return self.grid.shape[::-1]

    def groups(self, level: int) -> Ints:
        """The subgroups of a level: rows of positions that differ along it only."""
        moved = np.moveaxis(self.grid, self.grid.ndim - 1 - level, -1)
        return moved.reshape(-1, self.sizes[level])

    def layout(self, level: int) -> Layout:
        """How each subgroup of a level lies."""
        places = np.arange(self.sizes[level], dtype=np.int64)
        return Layout(
            coordinates=places[:, None],
            kinds=(self.kinds[level],),
            orders=(places,),
            reduces=self.reduces_inside * (level == 0),
        )

    def share(self, level: int) -> float:
        """What is left of the size when all levels inside have scattered it."""
        return 1 / prod(self.sizes[:level])

    def everywhere(self, steps: list[FlowStep], level: int, scale: float) -> list[FlowStep]:
        """Steps of one subgroup of a level, done by all of them at once on `scale` of the size."""
        groups = self.groups(level)
        return [
            FlowStep(
                [groups[:, ends].reshape(-1) for ends in step.edges],
                np.tile(step.fraction, len(groups)) * scale
                if isinstance(step.fraction, np.ndarray)
                else step.fraction * scale,
                step.repeat,
                level=level,
            )
            for step in (each.listed for each in steps)
        ]


def levels_of(layout: Layout) -> Levels | None:
    """The grid that a group forms along the axes on which its members differ; None if irregular.

    Regular means that every block of an axis holds as many blocks of the axis inside it, not that
    these have the same coordinates.
    """
    order = np.lexsort(layout.coordinates.T)
    ordered = layout.coordinates[order]
    ends = np.ones(len(order), bool)
    shape, kinds, blocks = [], [], 1
    ends[1:] = False
    for axis in reversed(range(len(layout.kinds))):
        ends[1:] |= np.diff(ordered[:, axis]) != 0
        starts = np.flatnonzero(ends)
        if len(distinct(np.diff([*starts, len(order)]))) > 1 or len(starts) % blocks:
            return None
        if len(starts) > blocks:
            shape.append(len(starts) // blocks)
            kinds.append(layout.kinds[axis])
            blocks = len(starts)
    return Levels(
        grid=order.reshape(shape).astype(np.int64),
        kinds=tuple(reversed(kinds)),
        reduces_inside=layout.reduces_inside * bool(np.ptp(layout.coordinates[:, 0])),
    )


LevelPhase = tuple[CollectiveKind, int, float]
"""What the subgroups of a level carry out: the kind, the level, and the share of the size."""


class LevelledAlgorithm(Noun):
    """An algorithm made of a flat one at each level of a group: its `phases`, in order.

    `worth_pricing` is false where another one is never slower. Kinds that it `returns` come back
    through the inner levels.
    """

    kinds: tuple[CollectiveKind, ...]
    phases: Callable[[CollectiveKind, Levels], Iterator[LevelPhase]]
    worth_pricing: bool = True
    returns: tuple[CollectiveKind, ...] = ()

    def part(self, kind: CollectiveKind, levels: Levels, level: int) -> CollectiveKind:
        """What a level carries out first."""
        return next(part for part, at, _ in self.phases(kind, levels) if at == level)


def soon_traced(kind: CollectiveKind, crossed: int, ranks: int) -> bool:
    """Whether exchanges over distances are worth pricing: up to a million links in a step.

    Left out are rings of more than 1,448 NPUs.
    """
    return crossed <= _MOST_CROSSINGS
