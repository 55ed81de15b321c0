"""Topologies described by nested dimensions, so that size costs nothing.

An NPU's coordinates are the mixed-radix digits of its number, innermost dimension first. Links are
numbered, not stored. Routing is dimension-ordered, innermost first; a dimension that joins all NPUs
of the dimensions inside it (`switch`, `fat_tree`, `dragonfly`) replaces the moves inside by one.

A topology with other numbers on its links is made by `with_values`, and nowhere else.
"""

from collections.abc import Mapping
from functools import cached_property
from math import inf, prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from stepsim.base.arrays import Ints, Summand, distinct
from stepsim.base.errors import TopologyError, errors_at
from stepsim.base.option import Option
from stepsim.base.structs import Names, Noun, Numbers, Same, Values, replace
from stepsim.network.topology.dimension import (
    LAUNCH_LATENCY,
    OVERSUBSCRIPTION,
    PLAIN,
    Dimension,
    Library,
    LinkClass,
    Load,
    split_link,
    sum_loads,
)
from stepsim.network.topology.network import MAX_NPUS, Topology, check_room
from stepsim.network.topology.placed import (
    Layout,
    PlacedWiring,
    Turn,
    own_digits,
    within_a_digit,
)
from stepsim.network.topology.rings import rings
from stepsim.network.topology.wiring import DimensionKind, Flows
from stepsim.network.topology.wirings import Dragonfly, FatTree, TreeShape

if TYPE_CHECKING:
    import networkx as nx


class NestedTopology(Noun, dict=True):
    """A network of nested dimensions, innermost first.

    `launch_latency_ps` is paid once per collective; `algorithms` are those that may be chosen
    automatically (none: all), `library` has their protocols; `grows` says that the outermost
    dimension takes the size a job needs.
    """

    name: str
    source: str
    dimensions: tuple[Dimension, ...]
    launch_latency_ps: int = 0
    algorithms: Names = ()
    library: Library = PLAIN
    grows: bool = False
    device: str = ""

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise TopologyError(f"{self.name}: a topology needs at least one dimension")
        names = [link.name for link in self.link_classes]
        if len(set(names)) < len(names):
            raise TopologyError(f"{self.name}: dimension names repeat: {', '.join(names)}")
        self.library.check(self.name, names)
        _ = self.axes

    @cached_property
    def npus(self) -> int:
        """NPUs the network holds."""
        return prod(dimension.size for dimension in self.dimensions)

    @property
    def node_size(self) -> int:
        """NPUs of the innermost dimension: they share a node."""
        return self.dimensions[0].size

    @property
    def blocks(self) -> Numbers:
        """The innermost dimension, then each with those inside it."""
        return tuple(axis.outer_stride * axis.outer_size for axis in self.axes)

    @property
    def default_npus(self) -> int:
        """NPUs of a job that names no number: all, or two innermost blocks (16) if it grows."""
        if not self.grows:
            return self.npus
        if len(self.dimensions) > 1:
            inside = self.dimensions[0]
            return 2 * (inside.used or inside.whole)
        least = self.dimensions[0].least_shape
        return prod(least) if least else 16

    def fit(self, npus: int) -> "NestedTopology":
        """The topology with room for a job of `npus`; raises TopologyError if it is too small.

        Of an innermost block a job has all NPUs; where it needs more than one of them, those that
        its dimension says jobs use.
        """
        inside = self.dimensions[0]
        count = inside.whole if npus <= inside.whole else inside.used
        return self.fit_blocks(npus, count or inside.whole)

    def fit_blocks(self, npus: int, count: int) -> "NestedTopology":
        """The topology with room for a job of `npus` that has `count` NPUs of an innermost block.

        A network of fixed size that is too small for that has the job on all NPUs of the blocks.
        Raises TopologyError if it is too small for that too.
        """
        if len(self.dimensions) == 1:
            count = self.dimensions[0].size
        fitted = self._of_blocks(count)
        if self.grows:
            *others, outermost = fitted.dimensions
            inside = prod(dimension.size for dimension in others)
            grown = outermost.grown(-(-npus // inside), inside)
            return replace(fitted, dimensions=(*others, grown))
        if fitted.npus < npus:
            fitted = self._of_blocks(self.dimensions[0].whole)
        check_room(fitted, npus)
        return fitted

    def _of_blocks(self, count: int) -> "NestedTopology":
        """The topology with so many NPUs of each innermost block in the job, the others idle."""
        inside, *outside = self.dimensions
        if count == inside.size:
            return self
        taken = replace(inside, size=count, built=0 if count == inside.whole else inside.whole)
        return replace(self, dimensions=(taken, *outside))

    @cached_property
    def link_classes(self) -> tuple[LinkClass, ...]:
        """Classes of all dimensions, innermost first."""
        return tuple(link for dimension in self.dimensions for link in dimension.link_classes)

    @cached_property
    def axes(self) -> tuple[PlacedWiring, ...]:
        """The wirings of all dimensions, innermost first."""
        axes: list[PlacedWiring] = []
        stride, offset, first_class = 1, 0, 0
        for dimension in self.dimensions:
            classes = range(first_class, first_class + len(dimension.link_classes))
            with errors_at(dimension.link.name, TopologyError):
                wirings = dimension.wirings(stride)
            for wiring in wirings:
                joins = dimension.joins_inside
                axis = PlacedWiring(
                    name=dimension.link.name,
                    wiring=wiring,
                    stride=1 if joins else stride,
                    copies=self.npus // wiring.size,
                    offset=offset,
                    classes=tuple(classes),
                    joins_inside=joins,
                    reduces=dimension.reduces * dimension.reduce_efficiency,
                    outer_stride=stride,
                    outer_size=dimension.size if joins else wiring.size,
                )
                axes.append(axis)
                stride *= axis.outer_size
                offset += axis.links
            first_class = classes.stop
        return tuple(axes)

    def link_class(self, link: Ints) -> Ints:
        """Index into `link_classes` of each link number."""
        classes = np.zeros(len(link), np.int64)
        owner = np.searchsorted([axis.offset for axis in self.axes], link, side="right") - 1
        for k, axis in enumerate(self.axes):
            mine = np.flatnonzero(owner == k)
            classes[mine] = axis.class_of(link[mine])
        return classes

    def link_counts(self) -> Numbers:
        """Links per class, each direction counted."""
        counts = [0] * len(self.link_classes)
        for axis in self.axes:
            for c, links in zip(axis.classes, axis.wiring.link_counts, strict=True):
                counts[c] += axis.copies * links
        return tuple(counts)

    def link_ends(self, link: int) -> tuple[str, str]:
        """Names of the nodes a link leaves and enters, e.g. `npu3` and `nvlink0`."""
        return next(axis for axis in self.axes[::-1] if axis.offset <= link).ends(link)

    def graph(self) -> "nx.DiGraph":
        """The network as a networkx graph, see `graph_of`: NPUs forward if flows turn in them.

        Raises TopologyError for more than 65,536 NPUs or 1,048,576 links.
        """
        from stepsim.network.topology.graph import check_size, graph_of

        check_size(self)
        wide = [axis for axis in self.axes if axis.outer_size > 1]
        turns = any(not axis.joins_inside for axis in wide[1:])
        walks = any(max(axis.wiring.farthest) > 1 for axis in wide if not axis.wiring.kind.switched)
        return graph_of(self, npus_forward=turns or walks)

    @cached_property
    def _turns(self) -> tuple[Turn, ...]:
        """Digits that can each be shifted, for all NPUs at once, without changing the network."""
        joining = [axis for axis in self.axes if axis.joins_inside]
        return tuple(
            turn
            for own in self.axes
            for turn in own_digits(own)
            if all(
                turn[0] >= axis.outer_stride * axis.outer_size or within_a_digit(axis, turn)
                for axis in joining
            )
        )

    def canonical(self, members: Ints) -> Ints:
        """Groups (rows of NPU numbers) moved to a common origin: equal rows cost the same.

        Most dimensions look the same from every coordinate, so digits are taken relative to the
        group's first member; those of lines, meshes and cables are kept.
        """
        moved = members.astype(np.int64)
        for stride, end in self._turns:
            digit = members // stride - members // end * (end // stride)  # quicker than remainders
            first = digit[:, :1]
            moved -= first * stride
            np.add(moved, end, out=moved, where=digit < first)
        return moved

    def layout(self, members: Ints) -> Layout:
        """How a group lies: its coordinates along every axis, and rings that follow the network."""
        members = members.astype(np.int64)
        coordinates = np.stack([axis.coordinates(members) for axis in self.axes], axis=1)
        kinds = tuple(axis.wiring.kind for axis in self.axes)
        return Layout(
            coordinates=coordinates,
            kinds=kinds,
            orders=rings(members, self.node_size, self.axes, duplex=bool(self.library.protocols)),
            reduces=max(_reduces(axis, members) for axis in self.axes),
            reduces_inside=_reduces(self.axes[0], np.arange(self.node_size)),
        )

    def load(self, flows: Flows) -> Load:
        """What flows put on the links, axis by axis, innermost first.

        Links are numbered anew for every owner: an owner's flows run through copies of the network
        of their own, so no two owners' meet.
        """
        here, there = flows.start.copy(), flows.end
        hops = np.zeros((len(here), len(self.link_classes)), np.int64)
        parts: list[Summand] = []
        # the outermost axis that joins all inside and in which a flow's ends differ, or -1
        last_join = np.full(len(here), -1, np.int64)
        for k, axis in enumerate(self.axes):
            if axis.joins_inside:
                last_join[axis.coordinates(here) != axis.coordinates(there)] = k
        for k, axis in enumerate(self.axes):
            if axis.joins_inside:
                moves = last_join == k
            else:
                moves = (last_join < k) & (axis.positions(here) != axis.positions(there))
            moving = np.flatnonzero(moves)
            if moving.size:
                crossed, length, arrived = axis.route(replace(flows, start=here).where(moving))
                for links, loads in crossed:
                    owner, link = np.divmod(links, axis.links)
                    parts.append((owner * self.link_numbers + axis.offset + link, loads))
                hops[moving[:, None], axis.classes] += length
                here[moving] = arrived
        return sum_loads(parts, hops)

    @property
    def link_numbers(self) -> int:
        """How many numbers links have."""
        return self.axes[-1].offset + self.axes[-1].links

    def bisection(self) -> tuple[float, str]:
        """Bytes/s, one way, between halves of the NPUs, and how it was found: axis by axis."""
        rates = [tuple(self.link_classes[c].bandwidth for c in axis.classes) for axis in self.axes]
        cuts = []
        for k, axis in enumerate(self.axes):
            if axis.outer_size > 1:
                # its own links between the halves, and those of what joins all inside it
                cuts.append(axis.copies * axis.wiring.halves(rates[k]))
                for outer, own in zip(self.axes[k + 1 :], rates[k + 1 :], strict=True):
                    cuts[-1] += outer.nics_of_half(own) if outer.joins_inside else 0.0
        return min(cuts, default=inf), "least of the cuts across one axis"

    def injection(self) -> float:
        """Bytes/s that an NPU can send over all its links at once, on average."""
        total = 0.0
        for axis in self.axes:
            links = axis.wiring.link_counts[0] / (2 if axis.wiring.kind.switched else 1)
            if links:
                total += axis.copies * links * self.link_classes[axis.classes[0]].bandwidth
        return total / self.npus

    def long_routes(self) -> Ints:
        """Links per class on the longest routes that go through each joining axis last, or none."""
        joins = [-1, *(k for k, axis in enumerate(self.axes) if axis.joins_inside)]
        routes = np.zeros((len(joins), len(self.link_classes)), np.int64)
        for route, last in zip(routes, joins, strict=True):
            for k, axis in enumerate(self.axes):
                if k == last or (k > last and not axis.joins_inside):
                    route[list(axis.classes)] += axis.wiring.farthest
        return routes


def _reduces(axis: PlacedWiring, members: Ints) -> float:
    """What one switch of an axis reduces at, if members are cabled to it and meet there; else 0."""
    if not axis.reduces:
        return 0.0
    assert isinstance(axis.wiring, FatTree | Dragonfly)  # see Dimension
    switches = axis.positions(members) // axis.wiring.below
    together = not np.ptp(axis.copy_of(members)) and not np.ptp(switches)
    return axis.reduces * (together and len(distinct(axis.coordinates(members))) == len(members))


_ANY = {"bandwidth": 1.0, "latency_ps": 0, "endpoint_latency_ps": 0, "efficiency": 1.0}


def with_values(topology: Topology, values: Mapping[str, float]) -> Topology:
    """The topology with other values of `CLASS.bandwidth`, ..., `launch_latency` (bytes/s, ps).

    `CLASS.oversubscription` of a fat tree sets the bandwidth between its switches.

    Names of anything else are passed over. Raises TopologyError for values that a link cannot
    have.
    """
    changes: dict[str, dict[str, float]] = {}
    values = with_uplinks(topology, values)
    for name, value in values.items():
        link, field = split_link(name)
        if field:
            changes.setdefault(link, {})[field.field] = value
    edited = _edited(topology, changes) if changes else topology
    if LAUNCH_LATENCY.name in values:
        edited = replace(edited, launch_latency_ps=int(values[LAUNCH_LATENCY.name]))
    return edited


def with_leaves(topology: Topology, link: str) -> Topology:
    """The topology with rails of links `link` as leaf switches of 32 NPUs below spines."""
    if not isinstance(topology, NestedTopology):
        return topology
    tree = TreeShape(down=(_LEAF,), up=(_LEAF,))
    dimensions = (
        replace(each, kind=DimensionKind.FAT_TREE, rails=True, tree=tree)
        if each.link.name == link and each.kind is DimensionKind.RAIL
        else each
        for each in topology.dimensions
    )
    return replace(topology, dimensions=tuple(dimensions))


_LEAF = 32


def with_node_size(topology: Topology, asked: object) -> Topology:
    """The topology with so many NPUs on the switch of a node; raises TopologyError."""
    size = int(str(asked)) if str(asked).isdecimal() else 0
    if not 1 <= size <= MAX_NPUS:
        raise TopologyError(f"node_size is {str(asked)!r}: expected 1 to {MAX_NPUS}")
    if not isinstance(topology, NestedTopology) or topology.dimensions[0].shape:
        raise TopologyError(f"node_size: the nodes of topology {topology.name} have a shape")
    first, *others = topology.dimensions
    cables = tuple(cable for cable in first.cables if max(cable) < size)
    node = replace(first, size=size, used=min(first.used, size), built=0, cables=cables)
    found = replace(topology, dimensions=(node, *others))
    return found.fit(found.default_npus) if found.grows else found


def with_uplinks(topology: Topology, values: Mapping[str, Any]) -> Values:
    """The values with `CLASS.oversubscription` as the bandwidth that links between switches have.

    That is the bandwidth of a leaf's NPUs over the oversubscription and its links up. Values are
    numbers or columns of numbers. Raises TopologyError where the class is no fat tree's.
    """
    found = dict(values)
    for name in values:
        link, _, field = name.rpartition(".")
        if field == OVERSUBSCRIPTION.name:
            dimension = _tree(topology, link)
            tree = cast(TreeShape, dimension.tree)
            rate = values.get(f"{link}.bandwidth", dimension.link.bandwidth)
            into = dimension.ports.capacity(tree.down[0], (rate,))
            found[f"{dimension.outer_links}.bandwidth"] = into / (tree.up[0] * found.pop(name))
    return found


def _tree(topology: Topology, link: str) -> Dimension:
    """The fat tree whose links from NPUs are of a class; raises TopologyError where it is none."""
    trees = {each.link.name: each for each in topology.dimensions if each.tree}
    if link not in trees:
        known = f"expected {', '.join(trees)}" if trees else "it has none"
        raise TopologyError(
            f"{link}.{OVERSUBSCRIPTION.name}: topology {topology.name} has no fat tree of links "
            f"{link!r}: {known}"
        )
    return trees[link]


def changeable_link(topology: Topology, name: str) -> LinkClass:
    """The class of links of this name, if it can have other numbers.

    Raises TopologyError for a class that follows another (see `followed`) or is fixed.
    """
    names = [link.name for link in topology.link_classes]
    if name not in names:
        expected = ", ".join(names)
        raise TopologyError(f"topology {topology.name} has no links {name!r}: expected {expected}")
    place = names.index(name)
    if followed(topology)[place] != name:
        raise TopologyError(
            f"the links {name} of topology {topology.name} follow others: give them numbers of "
            "their own in the topology file"
        )
    if is_fixed(topology, name):
        raise TopologyError(
            f"the links {name} of topology {topology.name} have no numbers to change: they join "
            "NPUs to the NIC that they share, at no cost"
        )
    return topology.link_classes[place]


def flows_of(topology: Topology, *, numbers: bool = False) -> object:
    """A key that networks share over which flows take the same links, and as long with `numbers`.

    Routes over listed links depend on latencies: these are each like itself alone.
    """
    if not isinstance(topology, NestedTopology):
        return Same(topology)
    if numbers:
        return topology
    plain = _edited(topology, {link.name: _ANY for link in topology.link_classes})
    return replace(plain, launch_latency_ps=0)


def is_fixed(topology: Topology, name: str) -> bool:
    """Whether a class of links has no numbers to change: those of NPUs to a NIC they share."""
    return name in [each.host_links for each in topology.dimensions]


def followed(topology: Topology, field: Option | None = None) -> Names:
    """Of every class of links, the class that it follows in a number, itself if in none.

    Links between switches follow those of their dimension in all that the file does not say of
    them. Without a field a class follows that can have no number of its own.
    """
    leaders = {
        name: each.link.name
        for each in topology.dimensions
        for name, own in each.followers.items()
        if own is None or (field and getattr(own, field.field) is None)
    }
    return tuple(leaders.get(link.name, link.name) for link in topology.link_classes)


def _edited(topology: Topology, changes: Mapping[str, Mapping[str, float]]) -> Topology:
    """The topology with other numbers of the classes of links that have changes."""
    if not isinstance(topology, NestedTopology):
        classes = (replace(each, **changes.get(each.name, {})) for each in topology.link_classes)
        return replace(topology, link_classes=tuple(classes))
    dimensions = []
    for each in topology.dimensions:
        link = replace(each.link, **changes.get(each.link.name, {}))
        outer = replace(each.outer, **changes.get(each.outer_links, {}))
        dimensions.append(replace(each, link=link, outer=outer))
    return replace(topology, dimensions=tuple(dimensions))
