"""Topologies with other numbers on their links: the only place that changes a topology."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict

from stepsim.base.errors import TopologyError
from stepsim.base.kept import kept
from stepsim.base.structs import replace
from stepsim.network.topology.links import (
    LAUNCH_LATENCY,
    FollowingLinks,
    LinkClass,
    LinkField,
    split_link,
)
from stepsim.network.topology.nested import NestedTopology
from stepsim.network.topology.network import Topology

_ANY = {"bandwidth": 1.0, "latency_ps": 0, "endpoint_latency_ps": 0, "efficiency": 1.0}


def with_values(topology: Topology, values: Mapping[str, float]) -> Topology:
    """The topology with other values of `CLASS.bandwidth`, ..., `launch_latency` (bytes/s, ps).

    Names of anything else are passed over. Raises TopologyError for values that a link cannot
    have.
    """
    changes: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        link, field = split_link(name)
        if field:
            changes.setdefault(link, {})[field.attribute] = value
    edited = _edited(topology, changes) if changes else topology
    if LAUNCH_LATENCY.name in values:
        edited = replace(cast(Any, edited), launch_latency_ps=int(values[LAUNCH_LATENCY.name]))
    return cast(Topology, edited)


def with_link(topology: Topology, name: str, **changes: float) -> Topology:
    """The topology with fields of one `LinkClass` replaced.

    Raises TopologyError for a class that follows another (see `leaders`) or is fixed.
    """
    if _leader(topology, name) != name:
        raise TopologyError(
            f"the links {name} of topology {topology.name} follow others: give them numbers of "
            "their own in the topology file"
        )
    if is_fixed(topology, name):
        raise TopologyError(
            f"the links {name} of topology {topology.name} have no numbers to change: they join "
            "NPUs to the NIC that they share, at no cost"
        )
    return cast(Topology, _edited(topology, {name: changes}))


def same_but_numbers(one: Topology, other: Topology) -> bool:
    """Whether flows take the same links in both, which differ at most in the links' numbers.

    Routes over listed links depend on latencies: of these nobody can say so.
    """
    if not (isinstance(one, NestedTopology) and isinstance(other, NestedTopology)):
        return False
    return bool(_without_numbers(one) == _without_numbers(other))


@kept(32)
def _without_numbers(topology: NestedTopology) -> Any:
    """The network with the same numbers on all links."""
    plain = _edited(topology, {link.name: _ANY for link in topology.link_classes})
    return replace(plain, launch_latency_ps=0)


def _leader(topology: Topology, name: str) -> str:
    """The class whose numbers a class of links has: itself, unless it can have none of its own.

    Raises TopologyError when there is no class of that name.
    """
    names = [link.name for link in topology.link_classes]
    if name not in names:
        expected = ", ".join(names)
        raise TopologyError(f"topology {topology.name} has no links {name!r}: expected {expected}")
    place = names.index(name)
    now = topology.link_classes[place]
    for other in (name, *names):
        changed = cast(Topology, _edited(topology, {other: {"latency_ps": now.latency_ps + 1}}))
        if changed.link_classes[place] != now:
            return other
    return name


def is_fixed(topology: Topology, name: str) -> bool:
    """Whether a leading class of links has no numbers to change: NPUs to a NIC they share."""
    place = [link.name for link in topology.link_classes].index(name)
    other = {"latency_ps": topology.link_classes[place].latency_ps + 1}
    return _edited(topology, {name: other}) is topology


def leaders(topology: Topology) -> tuple[str, ...]:
    """The leader of every class of links, in their order."""
    return tuple(_leader(topology, link.name) for link in topology.link_classes)


def followed(topology: Topology, field: LinkField) -> tuple[str, ...]:
    """Of every class of links, the class that it follows in a number, itself if in none.

    Links between switches follow those of their dimension in all that the file does not say of
    them.
    """
    names = [link.name for link in topology.link_classes]
    found = list(names)
    for leader in names:
        now = getattr(topology.link_classes[names.index(leader)], field.attribute)
        other = {field.attribute: 0.5 if now == 1 else 1}
        changed = cast(Topology, _edited(topology, {leader: other})).link_classes
        for i, (old, new) in enumerate(zip(topology.link_classes, changed, strict=True)):
            if new != old and names[i] != leader:
                found[i] = leader
    return tuple(found)


def _edited(value: Any, changes: Mapping[str, Mapping[str, float]]) -> Any:
    """The value with every link class in it changed that has changes; the same object if none."""
    if isinstance(value, LinkClass | FollowingLinks):
        edits = changes.get(value.name, {})
        return replace(value, **cast(Any, edits)) if edits else value
    if isinstance(value, tuple):
        items = tuple(_edited(item, changes) for item in value)
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if not isinstance(value, Struct):
        return value
    old = asdict(value)
    new = {name: _edited(item, changes) for name, item in old.items()}
    different = {name: item for name, item in new.items() if item is not old[name]}
    return replace(value, **different) if different else value
