"""Topologies with other numbers on their links: the only place that changes a topology."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from stepsim.errors import SweepError
from stepsim.sweep.axes import LAUNCH_LATENCY, LINK_AXES, Axis
from stepsim.topology import LinkClass, Topology

_FIELDS = {
    "bandwidth": "bandwidth",
    "latency": "latency_ps",
    "endpoint_latency": "endpoint_latency_ps",
    "efficiency": "efficiency",
}


def with_values(topology: Topology, values: Mapping[str, float]) -> Topology:
    """The topology with the values of link axes (bytes/s, ps or plain) by the names of the axes.

    Names that are no axes of a topology are passed over. Raises TopologyError for values that a
    link cannot have.
    """
    changes: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        link, _, field = name.rpartition(".")
        if link:
            changes.setdefault(link, {})[_FIELDS[field]] = value
    edited = _edited(topology, changes) if changes else topology
    if LAUNCH_LATENCY in values:
        edited = replace(cast(Any, edited), launch_latency_ps=int(values[LAUNCH_LATENCY]))
    return cast(Topology, edited)


def with_link(topology: Topology, name: str, **changes: float) -> Topology:
    """The topology with fields of one `LinkClass` replaced; raises SweepError if it has none."""
    check_link(topology, name)
    return cast(Topology, _edited(topology, {name: changes}))


def check_link(topology: Topology, name: str) -> LinkClass:
    """The link class of a name; raises SweepError where it is unknown or follows another class."""
    found = {link.name: link for link in topology.link_classes}
    if name not in found:
        expected = ", ".join(found)
        raise SweepError(f"topology {topology.name} has no links {name!r}: expected {expected}")
    changed = _edited(topology, {name: {"latency_ps": found[name].latency_ps + 1}})
    if changed is topology:
        raise SweepError(
            f"the links {name} of topology {topology.name} follow others: give them numbers of "
            "their own in the topology file"
        )
    return found[name]


def check_axis(topology: Topology, axis: Axis) -> None:
    """Raise the error that a value of an axis would cause on this topology."""
    name, _, field = axis.name.rpartition(".")
    if name and field in LINK_AXES:
        link = check_link(topology, name)
        for value in axis.values:
            replace(link, **cast(Any, {_FIELDS[field]: value}))


def _edited(value: Any, changes: Mapping[str, Mapping[str, float]]) -> Any:
    """The value with every link class in it changed that has changes; the same object if none."""
    if isinstance(value, LinkClass):
        edits = changes.get(value.name, {})
        return replace(value, **cast(Any, edits)) if edits else value
    if isinstance(value, tuple):
        items = tuple(_edited(item, changes) for item in value)
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if not is_dataclass(value) or isinstance(value, type):
        return value
    old = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    new = {name: _edited(item, changes) for name, item in old.items()}
    different = {name: item for name, item in new.items() if item is not old[name]}
    return replace(cast(Any, value), **different) if different else value
