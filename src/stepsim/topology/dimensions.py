"""Topologies described by nested dimensions, so that size costs nothing.

An NPU's coordinates are the mixed-radix digits of its number, innermost dimension first. Links are
numbered, not stored. Routing is dimension-ordered, innermost first; a `switch` dimension joins all
NPUs of the dimensions inside it, so one move through it replaces the moves inside.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from stepsim.errors import TopologyError
from stepsim.topology import wiring
from stepsim.topology.layout import Layout
from stepsim.topology.links import Floats, Ints, LinkClass, Load, sum_loads
from stepsim.topology.network import check_room
from stepsim.topology.ring_order import node_rings
from stepsim.topology.wiring import DimensionKind

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension: `size` NPUs (or blocks of the dimensions inside) wired by links of a class."""

    kind: DimensionKind
    size: int
    link: LinkClass

    def __post_init__(self) -> None:
        if self.size < 1:
            raise TopologyError(f"{self.link.name}: size is {self.size}: it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class DimensionTopology:
    """A network of nested dimensions, innermost first.

    `launch_latency_ps` is paid once per collective; `grows` says that the outermost dimension takes
    the size a job needs. `ports` of NPU i in dimension k have the link
    numbers `offset + i * ports` onward, see `stepsim.topology.wiring`.
    """

    name: str
    source: str
    dimensions: tuple[Dimension, ...]
    launch_latency_ps: int = 0
    algorithms: tuple[str, ...] = ()
    grows: bool = False

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise TopologyError(f"{self.name}: a topology needs at least one dimension")
        names = [dimension.link.name for dimension in self.dimensions]
        if len(set(names)) < len(names):
            raise TopologyError(f"{self.name}: dimension names repeat: {', '.join(names)}")

    @cached_property
    def npus(self) -> int:
        """NPUs the network holds."""
        return prod(dimension.size for dimension in self.dimensions)

    @property
    def node_size(self) -> int:
        """NPUs of the innermost dimension: they share a node."""
        return self.dimensions[0].size

    @property
    def default_npus(self) -> int:
        """NPUs of a job that names no number: all, or two innermost blocks (16) if it grows."""
        if not self.grows:
            return self.npus
        return 2 * self.node_size if len(self.dimensions) > 1 else 16

    def fit(self, npus: int) -> "DimensionTopology":
        """The topology with room for a job of `npus`; raises TopologyError if it is too small."""
        if self.grows:
            inside = prod(dimension.size for dimension in self.dimensions[:-1])
            outermost = replace(self.dimensions[-1], size=-(-npus // inside))
            return replace(self, dimensions=(*self.dimensions[:-1], outermost))
        check_room(self, npus)
        return self

    @property
    def link_classes(self) -> tuple[LinkClass, ...]:
        """Class c of a link is dimension c, which it belongs to."""
        return tuple(dimension.link for dimension in self.dimensions)

    @cached_property
    def _axes(self) -> "tuple[_Axis, ...]":
        axes, stride, offset = [], 1, 0
        for dimension in self.dimensions:
            joins_inside = dimension.kind is DimensionKind.SWITCH
            axis = _Axis(
                kind=dimension.kind,
                stride=1 if joins_inside else stride,
                size=stride * dimension.size if joins_inside else dimension.size,
                offset=offset,
                link=dimension.link,
            )
            axes.append(axis)
            stride *= dimension.size
            offset += self.npus * axis.ports
        return tuple(axes)

    def link_class(self, link: Ints) -> Ints:
        """Index into `link_classes` of each link number."""
        starts = np.array([axis.offset for axis in self._axes], dtype=np.int64)
        return np.searchsorted(starts, link, side="right").astype(np.int64) - 1

    def link_counts(self) -> tuple[int, ...]:
        """Links per class, each direction counted."""
        return tuple(
            self.npus // axis.size * wiring.link_count(axis.kind, axis.size) for axis in self._axes
        )

    def link_ends(self, link: int) -> tuple[str, str]:
        """Names of the nodes a link leaves and enters, e.g. `npu3` and `nvlink0`."""
        axis = self._axes[int(self.link_class(np.array([link]))[0])]
        npu, port = divmod(link - axis.offset, axis.ports)
        return axis.ends(npu, port)

    def links(self) -> Iterator[tuple[int, str, str, LinkClass]]:
        """Every link: its number, the node it leaves, the node it enters, its class."""
        for axis in self._axes:
            for npu in range(self.npus):
                for port in range(axis.ports):
                    if axis.is_wired(npu, port):
                        number = axis.offset + npu * axis.ports + port
                        yield number, *axis.ends(npu, port), axis.link

    def graph(self) -> "nx.MultiDiGraph":
        """The network as a networkx graph.

        Nodes carry `kind` (npu or switch), edges `link`, `name`, `bandwidth` and `latency_ps`.
        """
        from stepsim.topology.explicit import graph_of_links

        return graph_of_links(self.name, self.npus, self.links())

    def canonical(self, members: Ints) -> Ints:
        """Groups (rows of NPU numbers) moved to a common origin: equal rows cost the same.

        Ring, switch, rail and fully connected dimensions look the same from every coordinate, so
        digits are taken relative to the group's first member; a line's are kept.
        """
        moved = np.zeros_like(members)
        stride = 1
        for dimension in self.dimensions:
            digits = members // stride % dimension.size
            if dimension.kind is not DimensionKind.LINE:
                digits = (digits - digits[:, :1]) % dimension.size
            moved += digits * stride
            stride *= dimension.size
        return moved

    def layout(self, members: Ints) -> Layout:
        """How a group lies: its coordinates in every dimension, and rings going node by node."""
        strides = np.cumprod([1, *(dimension.size for dimension in self.dimensions)])[:-1]
        sizes = [dimension.size for dimension in self.dimensions]
        return Layout(
            coordinates=members[:, None] // strides % sizes,
            kinds=tuple(dimension.kind for dimension in self.dimensions),
            orders=node_rings(members, self.node_size),
        )

    def load(self, sources: Ints, destinations: Ints, weights: Floats) -> Load:
        """What flows put on the links: dimension by dimension, innermost first."""
        hops = np.zeros((len(sources), len(self.dimensions)), dtype=np.int64)
        parts: list[tuple[Ints, Floats]] = []
        here = sources.astype(np.int64)
        last_switch = self._last_switch(sources, destinations)
        for k, axis in enumerate(self._axes):
            a, b = axis.positions(here), axis.positions(destinations)
            joins_inside = axis.kind is DimensionKind.SWITCH
            moves = last_switch == k if joins_inside else (last_switch < k) & (a != b)
            moving = np.flatnonzero(moves)
            start, a, b = here[moving], a[moving], b[moving]
            for flow, position, port, share in wiring.crossings(axis.kind, axis.size, a, b):
                owner = start[flow] + (position - a[flow]) * axis.stride
                link = axis.offset + owner * axis.ports + port
                parts.append((link, share * weights[moving[flow]]))
            hops[moving, k] = wiring.hops(axis.kind, axis.size, a, b)
            here[moving] = start + (b - a) * axis.stride
        return sum_loads(parts, hops)

    def _last_switch(self, sources: Ints, destinations: Ints) -> Ints:
        """Per flow the outermost `switch` dimension in which its ends differ, else -1."""
        outermost = np.full(len(sources), -1, dtype=np.int64)
        stride = 1
        for k, dimension in enumerate(self.dimensions):
            if dimension.kind is DimensionKind.SWITCH:
                ends = (end // stride % dimension.size for end in (sources, destinations))
                outermost[np.not_equal(*ends)] = k
            stride *= dimension.size
        return outermost


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """A dimension as routing sees it: an NPU's position is `npu // stride % size`.

    A switch that joins everything inside is one long axis of stride 1.
    """

    kind: DimensionKind
    stride: int
    size: int
    offset: int
    link: LinkClass

    @property
    def ports(self) -> int:
        return wiring.port_count(self.kind, self.size)

    def positions(self, npus: Ints) -> Ints:
        return npus // self.stride % self.size

    def is_wired(self, npu: int, port: int) -> bool:
        position = npu // self.stride % self.size
        return wiring.peer_of(self.kind, self.size, position, port) is not None

    def ends(self, npu: int, port: int) -> tuple[str, str]:
        """Names of the nodes at the start and the end of a port's link."""
        position = npu // self.stride % self.size
        if self.kind.switched:
            block = npu // (self.stride * self.size) * self.stride + npu % self.stride
            up = f"npu{npu}", f"{self.link.name}{block}"
            return up if port == 0 else up[::-1]
        peer = wiring.peer_of(self.kind, self.size, position, port)
        if peer is None:
            raise TopologyError(f"{self.link.name}: npu{npu} has no link at port {port}")
        return f"npu{npu}", f"npu{npu + (peer - position) * self.stride}"
